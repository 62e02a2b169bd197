//! An Envoy's administration interface, in a gateway and in a sidecar.

use serde_json::{Value, json};

/// Directory of [`ADMIN_SOCKET`]: a volume of the Pod's own.
pub const RUN_DIRECTORY: &str = "/run/packrat";
/// Envoy's administration interface. It shows keys and can end Envoy, so that no port leads to it:
/// on the host network, every process of the node would reach one.
pub const ADMIN_SOCKET: &str = "/run/packrat/admin.sock";
/// Cluster of the administration interface.
pub(crate) const ADMINISTRATION_CLUSTER: &str = "administration";
/// Cluster of the administration interface for the readers of the page with metrics, of whom it
/// takes few at a time: Envoy's main thread answers.
pub(crate) const METRICS_CLUSTER: &str = "administration-metrics";
/// The cluster of the same for servers that ask for their clients: they keep no reader of metrics
/// waiting.
pub(crate) const LOOK_UPS: &str = "administration-clients";
/// Requests and connections of all readers together that Envoy's main thread has at a time, and that wait.
const MOST_READERS: u32 = 8;

/// The source of the volume at [`RUN_DIRECTORY`]: in memory, so that a disk that is full does not
/// keep Envoy from starting.
pub fn run_volume() -> Value {
    json!({ "medium": "Memory", "sizeLimit": "1Mi" })
}

/// The address of an administration interface for its own user alone.
pub fn admin_address(socket: &str) -> Value {
    json!({ "pipe": { "path": socket, "mode": 0o600 } })
}

/// The clusters that the pages with metrics lead to.
pub(crate) fn administration(socket: &str) -> [Value; 3] {
    let cluster = |name: &str| {
        let endpoint = json!({ "endpoint": { "address": { "pipe": { "path": socket } } } });
        json!({
            "name": name,
            "type": "STATIC",
            "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": [endpoint] }] },
        })
    };
    let few = |name: &str| {
        let limits =
            json!({ "max_connections": MOST_READERS, "max_pending_requests": MOST_READERS });
        let mut few = cluster(name);
        few["circuit_breakers"] = json!({ "thresholds": [limits] });
        few
    };
    [cluster(ADMINISTRATION_CLUSTER), few(METRICS_CLUSTER), few(LOOK_UPS)]
}
