//! An Envoy's administration interface, in a gateway and in a sidecar.

use serde_json::{Value, json};

/// Directory of [`ADMIN_SOCKET`]: a volume of the Pod's own.
pub const RUN_DIRECTORY: &str = "/run/packrat";
/// Envoy's administration interface. It shows keys and can end Envoy, so that no port leads to it:
/// on the host network, every process of the node would reach one.
pub const ADMIN_SOCKET: &str = "/run/packrat/admin.sock";
/// Port of [`METRICS_PATHS`], open to all that can reach the Pod.
pub const METRICS_PORT: u16 = 9902;

/// Paths of the administration interface that can be read on [`METRICS_PORT`]: none that changes
/// anything or shows a key, so neither `/packrat/log` nor `/config_dump`. `packrat top`, `tap` and
/// `check` need the last four.
pub const METRICS_PATHS: [&str; 6] = [
    "/stats/prometheus",
    "/ready",
    "/packrat",
    "/packrat/sessions",
    "/packrat/events",
    "/server_info",
];

/// The source of the volume at [`RUN_DIRECTORY`]: in memory, so that a disk that is full does not
/// keep Envoy from starting.
pub fn run_volume() -> Value {
    json!({ "medium": "Memory", "sizeLimit": "1Mi" })
}

/// The address of an administration interface for its own user alone.
pub fn admin_address(socket: &str) -> Value {
    json!({ "pipe": { "path": socket, "mode": 0o600 } })
}

/// The cluster that the pages with metrics lead to.
pub fn administration(socket: &str) -> Value {
    let endpoint = json!({ "endpoint": { "address": { "pipe": { "path": socket } } } });
    json!({
        "name": "administration",
        "type": "STATIC",
        "load_assignment": { "cluster_name": "administration", "endpoints": [{ "lb_endpoints": [endpoint] }] },
    })
}
