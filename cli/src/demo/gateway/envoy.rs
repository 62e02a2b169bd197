//! Real Envoy with Packrat's filter.

use std::fs;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::super::error::DemoError;
use super::super::metrics::http_get;
use super::super::parts;
use super::super::process::Process;
use super::setup::{GatewaySetup, ROUTE_NAME, built};

/// The path at which Envoy's admin interface serves metrics.
pub(super) const METRICS_PATH: &str = "/stats/prometheus?filter=packrat";
/// Name of the module; Envoy looks for `lib<name>.so`.
const MODULE_NAME: &str = "packrat_envoy";

pub(super) async fn start(
    setup: GatewaySetup<'_>,
    address: SocketAddr,
    admin: SocketAddr,
) -> Result<Process, DemoError> {
    let program = parts::envoy(setup.parts)?;
    let module = built("libpackrat_envoy.so", "packrat-envoy")?;
    let configuration = setup.work.join("envoy.json");
    let text = format!("{:#}", bootstrap(setup.route(), address, admin));
    fs::write(&configuration, text).map_err(|error| DemoError::write(&configuration, error))?;
    let mut process =
        Process::start("Envoy", &program, &setup.work.join("envoy.log"), |command| {
            command.arg("--config-path").arg(&configuration);
            // One worker is enough for 20 Mbit/s, and leaves the machine to the others.
            command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]);
            if let Some(folder) = module.parent() {
                command.env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", folder);
            }
        })?;
    process.wait_until_ready(|| http_get(admin, "/ready").is_ok()).await?;
    Ok(process)
}

fn bootstrap(route: Value, address: SocketAddr, admin: SocketAddr) -> Value {
    // The module must never be unloaded while it serves other listeners: its sessions are in
    // statics.
    let module =
        json!({ "name": MODULE_NAME, "do_not_close": true, "metrics_namespace": "packrat" });
    let filter = json!({
        "name": "packrat",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.udp.dynamic_modules.v3.DynamicModuleUdpListenerFilter",
            "dynamic_module_config": module,
            "filter_name": "packrat",
            "filter_config": {
                "@type": "type.googleapis.com/google.protobuf.Struct",
                "value": route,
            },
        },
    });
    let listener = json!({
        "name": ROUTE_NAME,
        "address": socket_address(address, "UDP"),
        // Without it, Envoy drops every batch that the kernel has coalesced.
        "udp_listener_config": { "downstream_socket_config": { "prefer_gro": true } },
        "listener_filters": [filter],
    });
    let labels = json!({
        "name": "packrat",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtension",
            "dynamic_module_config": module,
            "extension_name": "packrat",
        },
    });
    // Metrics have the same names as in the standalone gateway.
    let names =
        json!({ "envoy.reloadable_features.dynamic_modules_strip_custom_stat_prefix": true });
    json!({
        "admin": { "address": socket_address(admin, "TCP") },
        "layered_runtime": { "layers": [{ "name": "packrat", "static_layer": names }] },
        "bootstrap_extensions": [labels],
        "static_resources": { "listeners": [listener] },
    })
}

pub(super) fn socket_address(address: SocketAddr, protocol: &str) -> Value {
    json!({ "socket_address": {
        "protocol": protocol,
        "address": address.ip().to_string(),
        "port_value": address.port(),
    } })
}
