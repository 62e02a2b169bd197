//! Adds the gateway as a sidecar to a Pod template: for workloads that clients reach by `hostPort`
//! (game and media servers).
//!
//! The sidecar takes over the `hostPort` of each UDP port of the Pod's containers and forwards to
//! the container on the loopback interface. Its Envoy is configured by its own arguments: no
//! ConfigMap and no other object of the cluster is needed. The operator's webhook and `packrat
//! inject` do the same with the same function.

mod admission;
mod envoy;
mod manifest;
mod missing;
mod pod;
mod resources;
mod room;

pub use admission::{ReviewError, review};
pub use manifest::{Injected, inject_manifest};
pub use missing::missing_sidecar;
pub use pod::{InjectError, Outcome, Sidecar, inject_pod};
pub use resources::{ResourcesError, SidecarResources};
pub use room::Room;
