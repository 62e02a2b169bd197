//! The configuration of the sidecar's Envoy.

use serde_json::{Value, json};

use crate::envoy::{
    ADMIN_SOCKET, METRICS_PORT, Readers, admin_address, administration, metrics_page,
};

/// A port that is taken over.
pub(super) struct Forward {
    pub(super) host: u16,
    pub(super) host_ip: Option<String>,
    pub(super) listen: u16,
    pub(super) target: u16,
    pub(super) container: String,
}

impl Forward {
    /// The port that leads from the node to the sidecar.
    pub(super) fn published(&self) -> Value {
        let mut port =
            json!({ "containerPort": self.listen, "hostPort": self.host, "protocol": "UDP" });
        if let Some(ip) = &self.host_ip {
            port["hostIP"] = ip.as_str().into();
        }
        port
    }
}

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
    let page = address("TCP", listen, METRICS_PORT);
    listeners.push(metrics_page("metrics", &page, Readers::OwnAndPublic));
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
            "clusters": administration(ADMIN_SOCKET),
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
