//! The operator's half of the delta discovery protocol, without the code that builds listeners: the
//! operator itself needs all of Kubernetes.

#[path = "../../../operator/src/xds/delta.rs"]
pub mod delta;
#[path = "../../../operator/src/xds/proto.rs"]
pub mod proto;
#[path = "../../../operator/src/xds/wire.rs"]
pub mod wire;

/// As in the operator.
pub type Resources = std::collections::BTreeMap<String, Versioned>;

/// As in the operator.
#[derive(Debug)]
pub struct Versioned {
    pub version: String,
    pub resource: proto::Any,
}
