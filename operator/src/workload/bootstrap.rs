//! An Envoy's bootstrap configuration: the source of its listeners, the module, the page with
//! metrics.

use serde_json::{Value, json};

use super::names::{BOOTSTRAP_DIRECTORY, CLIENT_DIRECTORY, TOKEN_DIRECTORY};
use super::platform::Platform;
use crate::envoy::{
    ADMIN_SOCKET, METRICS_PORT, Readers, TOKEN_CERTIFICATE, admin_address, administration,
    metrics_page,
};
use crate::object_key::ObjectKey;

/// TCP connections of clients to one Pod, of all routes together: beyond, further ones are refused, so
/// that files and memory are left for sessions.
const MOST_CONNECTIONS: u64 = 16_384;
/// Parts of the Pod's memory limit from which Envoy gives memory back, serves no more requests, and
/// refuses TCP connections. Sessions are never touched: they have limits of their own.
const GIVES_BACK: f64 = 0.8;
const TAKES_NO_REQUESTS: f64 = 0.9;
const TAKES_NO_CONNECTIONS: f64 = 0.95;

/// The bootstrap configuration of an EdgeGateway's Envoys, as JSON. On the host network (`on_host`)
/// the page with metrics is for the node itself, and [`node_page`] adds another. `memory`: bytes that
/// a Pod may have, if there is a limit.
pub fn bootstrap(
    key: &ObjectKey,
    platform: &Platform,
    on_host: bool,
    memory: Option<u64>,
) -> Value {
    let host = if on_host { "127.0.0.1" } else { &platform.listen_address };
    let listener = metrics_page("metrics", &address(host, METRICS_PORT), Readers::OwnAndPublic);
    let [administration, metrics, look_ups] = administration(ADMIN_SOCKET);
    json!({
        "admin": { "address": admin_address(ADMIN_SOCKET) },
        "node": { "metadata": { "packrat.dev/edge-gateway": key.to_string() } },
        "layered_runtime": { "layers": [{ "name": "packrat", "static_layer": {
            "envoy.reloadable_features.dynamic_modules_strip_custom_stat_prefix": true,
        }}]},
        "bootstrap_extensions": [{ "name": "packrat", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtension",
            "dynamic_module_config": { "name": "packrat_envoy", "do_not_close": true, "metrics_namespace": "packrat" },
            "extension_name": "packrat",
        }}],
        "overload_manager": overload_manager(memory),
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{ "envoy_grpc": { "cluster_name": "packrat-operator" } }],
            },
            "cds_config": { "resource_api_version": "V3", "ads": {}, "initial_fetch_timeout": "0s" },
            "lds_config": { "resource_api_version": "V3", "ads": {}, "initial_fetch_timeout": "0s" },
        },
        "static_resources": {
            "listeners": [listener],
            "clusters": [
                administration,
                operator_cluster(platform),
                metrics,
                look_ups,
            ],
        },
    })
}

/// The cluster of the operator's discovery service.
fn operator_cluster(platform: &Platform) -> Value {
    let sds = |name: &str, file: &str| {
        json!({ "name": name, "sds_config": {
            "resource_api_version": "V3",
            "path_config_source": { "path": format!("{BOOTSTRAP_DIRECTORY}/{file}") },
        }})
    };
    let validation = json!({
        "default_validation_context": {
            "match_typed_subject_alt_names": [
                { "san_type": "DNS", "matcher": { "exact": platform.discovery_host } },
            ],
        },
        "validation_context_sds_secret_config": sds("authority", "authority.json"),
    });
    json!({
        "name": "packrat-operator",
        "type": "STRICT_DNS",
        "connect_timeout": "5s",
        "load_assignment": assignment("packrat-operator", &platform.discovery_host, platform.discovery_port),
        "typed_extension_protocol_options": { "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            // An operator that has vanished without a word is noticed, and another replica is asked.
            "explicit_http_config": { "http2_protocol_options": {
                "connection_keepalive": { "interval": "10s", "timeout": "5s" },
            }},
        }},
        "transport_socket": { "name": "envoy.transport_sockets.tls", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": platform.discovery_host,
            "common_tls_context": {
                "tls_params": { "tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3" },
                "alpn_protocols": ["h2"],
                "tls_certificate_sds_secret_configs": [sds("client", "client.json")],
                "combined_validation_context": validation,
            },
        }},
    })
}

/// Limits of what a Pod takes by TCP: while too much is open, or its memory comes to an end, Envoy
/// refuses connections and requests, which clients repeat. Actions that stop listeners would stop UDP
/// with them.
fn overload_manager(memory: Option<u64>) -> Value {
    const HEAP_MONITOR: &str = "envoy.resource_monitors.fixed_heap";
    const CONNECTIONS_MONITOR: &str = "envoy.resource_monitors.global_downstream_max_connections";
    let kind = |name: &str, message: &str| {
        format!("type.googleapis.com/envoy.extensions.resource_monitors.{name}.v3.{message}")
    };
    let mut monitors = vec![json!({ "name": CONNECTIONS_MONITOR, "typed_config": {
        "@type": kind("downstream_connections", "DownstreamConnectionsConfig"),
        "max_active_downstream_connections": MOST_CONNECTIONS,
    }})];
    let mut actions = Vec::new();
    if let Some(memory) = memory {
        monitors.push(json!({ "name": HEAP_MONITOR, "typed_config": {
            "@type": kind("fixed_heap", "FixedHeapConfig"),
            "max_heap_size_bytes": memory,
        }}));
        actions = [
            ("shrink_heap", GIVES_BACK),
            ("stop_accepting_requests", TAKES_NO_REQUESTS),
            ("disable_http_keepalive", TAKES_NO_REQUESTS),
            ("reject_incoming_connections", TAKES_NO_CONNECTIONS),
        ]
        .map(|(action, from)| {
            json!({
                "name": format!("envoy.overload_actions.{action}"),
                "triggers": [{ "name": HEAP_MONITOR, "threshold": { "value": from } }],
            })
        })
        .into();
    }
    json!({ "refresh_interval": "0.25s", "resource_monitors": monitors, "actions": actions })
}

/// The configuration of a gateway on the host network beside its bootstrap configuration: the page
/// with metrics at the node's own address (`POD_IP` in its environment), and not at all that the
/// node has, for strangers.
pub fn node_page() -> String {
    let listener =
        metrics_page("metrics-node", &address("$(POD_IP)", METRICS_PORT), Readers::Public);
    json!({ "static_resources": { "listeners": [listener] } }).to_string()
}

/// The file by which Envoy finds a certificate in a directory at which a Secret is mounted
/// (`authority`: the authorities to trust, instead); Envoy reads it again when the Secret changes.
pub fn certificate_file(name: &str, directory: &str, authority: bool) -> Value {
    let file = |file: &str| json!({ "filename": format!("{directory}/{file}") });
    let watched = json!({ "path": directory });
    let content = if authority {
        json!({ "validation_context": { "trusted_ca": file("ca.crt"), "watched_directory": watched } })
    } else {
        json!({ "tls_certificate": {
            "certificate_chain": file("tls.crt"), "private_key": file("tls.key"), "watched_directory": watched,
        }})
    };
    let mut resource = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        "name": name,
    });
    if let (Value::Object(resource), Value::Object(content)) = (&mut resource, content) {
        resource.extend(content);
    }
    json!({ "resources": [resource] })
}

/// The files of the bootstrap ConfigMap.
pub(super) fn files(
    key: &ObjectKey,
    platform: &Platform,
    on_host: bool,
    memory: Option<u64>,
) -> [(&'static str, Value); 4] {
    [
        ("envoy.json", bootstrap(key, platform, on_host, memory)),
        ("client.json", certificate_file("client", CLIENT_DIRECTORY, false)),
        ("authority.json", certificate_file("authority", CLIENT_DIRECTORY, true)),
        ("token.json", certificate_file(TOKEN_CERTIFICATE, TOKEN_DIRECTORY, false)),
    ]
}

fn address(host: &str, port: u16) -> Value {
    let mut address = json!({ "socket_address": { "address": host, "port_value": port } });
    if host == "::" {
        address["socket_address"]["ipv4_compat"] = true.into();
    }
    address
}

fn assignment(cluster: &str, host: &str, port: u16) -> Value {
    json!({ "cluster_name": cluster, "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(host, port) } }] }] })
}
