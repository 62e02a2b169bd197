//! Adds the gateway as a sidecar to a Pod template: for workloads that clients reach by `hostPort`
//! (game and media servers).
//!
//! The sidecar takes over the `hostPort` of each UDP port of the Pod's containers and forwards to
//! the container on the loopback interface. Its Envoy is configured by its own arguments: no
//! ConfigMap, nothing else in the cluster. The operator's webhook and `packrat inject` do the same
//! with the same function.

mod admission;
mod envoy;
mod manifest;
mod missing;
mod pod;

pub use admission::{ReviewError, review};
pub use manifest::{Injected, inject_manifest};
pub use missing::missing_sidecar;
pub use pod::{InjectError, Outcome, Sidecar, inject_pod};

/// The annotation of a Pod template that asks for the sidecar; its value is `sidecar`.
pub const INJECT: &str = "packrat.dev/inject";
/// The annotation of a Pod template that names an OpenTelemetry collector for the sidecar, `http://HOST:PORT`; it is passed on as it is.
pub const COLLECTOR: &str = "packrat.dev/otlp-endpoint";
/// The label of a Pod that has got the sidecar; its value is `injected`.
pub const SIDECAR_LABEL: &str = "packrat.dev/sidecar";
/// The name of the sidecar's container.
pub const CONTAINER: &str = "packrat-gateway";
