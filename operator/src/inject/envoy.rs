//! The configuration of the sidecar's Envoy.

use serde_json::{Value, json};

use super::pod::Forward;
use crate::workload::{ADMIN_SOCKET, METRICS_PATHS, METRICS_PORT, admin_address, administration};

/// A bootstrap configuration with static listeners.
pub(crate) fn configuration(
    gateway: &str,
    namespace: &str,
    listen: &str,
    forwards: &[Forward],
) -> Value {
    let module =
        json!({ "name": "packrat_envoy", "do_not_close": true, "metrics_namespace": "packrat" });
    let mut listeners: Vec<Value> = forwards
        .iter()
        .map(|forward| {
            json!({
                "name": format!("udp-{}", forward.listen),
                "address": address("UDP", listen, forward.listen),
                "udp_listener_config": { "downstream_socket_config": { "prefer_gro": true } },
                "listener_filters": [{ "name": "packrat", "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.udp.dynamic_modules.v3.DynamicModuleUdpListenerFilter",
                    "dynamic_module_config": module,
                    "filter_name": "packrat",
                    "filter_config": { "@type": "type.googleapis.com/google.protobuf.Struct", "value": {
                        "route": format!("{}/{}", forward.container, forward.target),
                        "gateway": gateway,
                        "namespace": namespace,
                        "endpoints": [format!("127.0.0.1:{}", forward.target)],
                    }},
                }}],
            })
        })
        .collect();
    let routes = METRICS_PATHS.map(|path| {
        let get = json!([{ "name": ":method", "string_match": { "exact": "GET" } }]);
        json!({ "match": { "path": path, "headers": get }, "route": { "cluster": "administration" } })
    });
    listeners.push(json!({
        "name": "metrics",
        "address": address("TCP", listen, METRICS_PORT),
        "filter_chains": [{ "filters": [{ "name": "envoy.filters.network.http_connection_manager", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "metrics",
            "route_config": { "virtual_hosts": [{ "name": "metrics", "domains": ["*"], "routes": routes }] },
            "http_filters": [{ "name": "envoy.filters.http.router", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
            }}],
        }}]}],
    }));
    json!({
        "admin": { "address": admin_address(ADMIN_SOCKET) },
        "layered_runtime": { "layers": [{ "name": "packrat", "static_layer": {
            "envoy.reloadable_features.dynamic_modules_strip_custom_stat_prefix": true,
        }}]},
        "bootstrap_extensions": [{ "name": "packrat", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtension",
            "dynamic_module_config": module,
            "extension_name": "packrat",
        }}],
        "static_resources": {
            "listeners": listeners,
            "clusters": [administration(ADMIN_SOCKET)],
        },
    })
}

fn address(protocol: &str, host: &str, port: u16) -> Value {
    let mut address =
        json!({ "socket_address": { "protocol": protocol, "address": host, "port_value": port } });
    if host == "::" {
        address["socket_address"]["ipv4_compat"] = true.into();
    }
    address
}
