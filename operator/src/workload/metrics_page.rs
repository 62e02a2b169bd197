//! The page with metrics: what is read on [`METRICS_PORT`] of a gateway and of a sidecar.
//!
//! Everyone who reaches the Pod may read what does not depend on a query: it names no client, and costs
//! Envoy's main thread little. Sessions, log lines and the observation of a session are for connections
//! from the Pod's own loopback interface, as those of a port-forward are.

use serde_json::{Value, json};

use super::administration::{ADMINISTRATION, METRICS};

/// Port of the page with metrics.
pub const METRICS_PORT: u16 = 9902;

/// Paths that everyone who reaches the Pod may read, without a query, and the cluster that answers. That
/// of `/ready` is its own: a reader who keeps the others busy does not make the gateway unready.
const PUBLIC: [(&str, &str); 3] =
    [("/stats/prometheus", METRICS), ("/packrat", METRICS), ("/ready", ADMINISTRATION)];

/// Paths of the administration interface that can be read by way of the loopback interface, with
/// queries: none that shows a key, so neither `/packrat/log` nor `/config_dump`. `packrat top`, `tap`,
/// `explain` and `check` need them.
const OWN: [&str; 6] = [
    "/stats/prometheus",
    "/ready",
    "/packrat",
    "/packrat/sessions",
    "/packrat/events",
    "/server_info",
];

/// The answer to a request that the loopback interface alone may make.
const NOT_HERE: &str = "only connections from the Pod's loopback interface are answered this: use packrat top, tap, explain or check, or \
                        kubectl port-forward POD 9902\n";

/// The readers of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// All are strangers.
    Public,
    /// Those that connect from the loopback interface may read more.
    OwnAndPublic,
}

/// A listener of the page with metrics at an address.
pub(crate) fn metrics_page(name: &str, address: &Value, readers: Readers) -> Value {
    let mut listener = json!({
        "name": name,
        "address": address,
        // A page that is read twice a minute needs no place on every worker.
        "default_filter_chain": filter_chain(&public_routes()),
    });
    if readers == Readers::OwnAndPublic {
        let mut own = filter_chain(&own_routes());
        own["filter_chain_match"] = json!({ "source_prefix_ranges": [
            { "address_prefix": "127.0.0.0", "prefix_len": 8 },
            { "address_prefix": "::1", "prefix_len": 128 },
        ]});
        listener["filter_chains"] = json!([own]);
    }
    listener
}

fn own_routes() -> Vec<Value> {
    let route = |path: &str| json!({ "match": get(path), "route": { "cluster": ADMINISTRATION } });
    OWN.map(route).into()
}

fn public_routes() -> Vec<Value> {
    let mut routes: Vec<Value> = PUBLIC
        .iter()
        .map(|(path, cluster)| {
            let mut found = get(path);
            if let Some(headers) = found["headers"].as_array_mut() {
                // With the query, unlike the path that routes are chosen by.
                headers.push(json!({ "name": ":path", "string_match": { "exact": path } }));
            }
            json!({ "match": found, "route": { "cluster": cluster, "timeout": "5s" } })
        })
        .collect();
    let refuse = |path: &str| {
        let answer = json!({ "status": 403, "body": { "inline_string": NOT_HERE } });
        json!({ "match": get(path), "direct_response": answer })
    };
    routes.extend(OWN.map(refuse));
    routes
}

/// The match of a GET of a path, with any query.
fn get(path: &str) -> Value {
    json!({ "path": path, "headers": [{ "name": ":method", "string_match": { "exact": "GET" } }] })
}

fn filter_chain(routes: &[Value]) -> Value {
    json!({ "filters": [{
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "metrics",
            // Longer than the time between two scrapes.
            "common_http_protocol_options": { "idle_timeout": "120s" },
            "request_headers_timeout": "10s",
            "route_config": { "virtual_hosts": [{ "name": "metrics", "domains": ["*"], "routes": routes }] },
            "http_filters": [{ "name": "envoy.filters.http.router", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
            }}],
        },
    }]})
}
