//! The operator's sidecar, without the code that reads the Pods of a cluster: the operator itself
//! needs all of Kubernetes.

#[path = "../../../operator/src/inject/admission.rs"]
mod admission;
#[path = "../../../operator/src/inject/envoy.rs"]
mod envoy;
#[path = "../../../operator/src/inject/pod.rs"]
mod pod;

pub use admission::review;
pub use pod::{Sidecar, inject_pod};
