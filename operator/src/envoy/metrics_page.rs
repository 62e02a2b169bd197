//! The page with metrics, which is served on [`METRICS_PORT`] of a gateway and of a sidecar.
//!
//! Everyone who reaches the Pod may read pages that do not depend on a query: they name no client,
//! and cost Envoy's main thread little. Sessions, log lines and the observation of a session are
//! for connections from the Pod's own loopback interface, such as a port-forward.

use serde_json::{Value, json};

use super::administration::{ADMINISTRATION_CLUSTER, LOOK_UPS, METRICS_CLUSTER};

/// Port of the page with metrics.
pub const METRICS_PORT: u16 = 9902;

/// Paths that everyone who reaches the Pod may read, without a query, of Envoy's main thread.
const PUBLIC_PATHS: [&str; 2] = ["/stats/prometheus", "/packrat"];
/// Path that Envoy's workers answer themselves: readers who keep the main thread busy, with this
/// path or another one, do not make the gateway unready. Envoy listens on the page once it has its
/// routes.
const READY_PATH: &str = "/ready";

/// Path at which a server reads the addresses of its clients. It reads only its own clients': the
/// requester is added to the query here, in place of whatever is there.
const CLIENTS_PATH: &str = "/packrat/clients";
/// Filter that adds the requester to the query.
const HEADER_MUTATION: &str = "envoy.filters.http.header_mutation";

/// Paths of the administration interface that can be read by way of the loopback interface, with
/// queries: no path shows a key, so neither `/packrat/log` nor `/config_dump`. `packrat top`,
/// `tap`, `explain` and `check` need them.
const LOOPBACK_PATHS: [&str; 6] = [
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
    /// Connections from the loopback interface may read more.
    OwnAndPublic,
}

/// A listener of the page with metrics at an address.
pub(crate) fn metrics_page(name: &str, address: &Value, readers: Readers) -> Value {
    let mut listener = json!({
        "name": name,
        "address": address,
        // A Pod that is short of a resource has to be seen, and counts as ready while it serves
        // sessions.
        "bypass_overload_manager": true,
        "ignore_global_conn_limit": true,
        // A page that is read twice a minute needs no place on every worker.
        "default_filter_chain": filter_chain(&[ready(), requester(), router()], &public_routes()),
    });
    if readers == Readers::OwnAndPublic {
        let mut own = filter_chain(&[requester(), router()], &own_routes());
        own["filter_chain_match"] = json!({ "source_prefix_ranges": [
            { "address_prefix": "127.0.0.0", "prefix_len": 8 },
            { "address_prefix": "::1", "prefix_len": 128 },
        ]});
        listener["filter_chains"] = json!([own]);
    }
    listener
}

fn own_routes() -> Vec<Value> {
    let route =
        |path: &str| json!({ "match": get(path), "route": { "cluster": ADMINISTRATION_CLUSTER } });
    let mut routes: Vec<Value> = LOOPBACK_PATHS.map(route).into();
    routes.push(clients());
    routes
}

fn public_routes() -> Vec<Value> {
    let answer = |path: &str| json!({ "match": exactly(path), "route": { "cluster": METRICS_CLUSTER, "timeout": "5s" } });
    let mut routes: Vec<Value> = PUBLIC_PATHS.map(answer).into();
    routes.push(clients());
    let refuse = |path: &str| {
        let answer = json!({ "status": 403, "body": { "inline_string": NOT_HERE } });
        json!({ "match": get(path), "direct_response": answer })
    };
    routes.extend(LOOPBACK_PATHS.map(refuse));
    routes
}

/// The route of the servers' question.
fn clients() -> Value {
    let requester = "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%";
    let mutation = json!({ "append": {
        "record": { "key": "requester", "value": requester },
        "action": "OVERWRITE_IF_EXISTS_OR_ADD",
    }});
    json!({
        "match": get(CLIENTS_PATH),
        "route": { "cluster": LOOK_UPS, "timeout": "5s" },
        "typed_per_filter_config": { HEADER_MUTATION: {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute",
            "mutations": { "query_parameter_mutations": [mutation] },
        }},
    })
}

/// Adds the requester's address, if a route wants it.
fn requester() -> Value {
    json!({ "name": HEADER_MUTATION, "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
        "mutations": {},
    }})
}

/// The match of a GET of a path, with any query.
fn get(path: &str) -> Value {
    json!({ "path": path, "headers": [{ "name": ":method", "string_match": { "exact": "GET" } }] })
}

/// The match of a GET of a path without a query.
fn exactly(path: &str) -> Value {
    let mut found = get(path);
    found["headers"] = without_query(path);
    found
}

/// The headers of a GET of a path without a query. `:path` has the query, unlike the path that routes are
/// chosen by.
fn without_query(path: &str) -> Value {
    json!([
        { "name": ":method", "string_match": { "exact": "GET" } },
        { "name": ":path", "string_match": { "exact": path } },
    ])
}

/// The filter that answers [`READY_PATH`] on a worker.
fn ready() -> Value {
    json!({ "name": "envoy.filters.http.health_check", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck",
        "pass_through_mode": false,
        "headers": without_query(READY_PATH),
    }})
}

fn router() -> Value {
    json!({ "name": "envoy.filters.http.router", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
    }})
}

fn filter_chain(filters: &[Value], routes: &[Value]) -> Value {
    json!({ "filters": [{
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "metrics",
            // Longer than the time between two scrapes.
            "common_http_protocol_options": { "idle_timeout": "120s" },
            "request_headers_timeout": "10s",
            "route_config": { "virtual_hosts": [{ "name": "metrics", "domains": ["*"], "routes": routes }] },
            "http_filters": filters,
        },
    }]})
}
