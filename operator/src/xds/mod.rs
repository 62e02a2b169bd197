//! Envoy's configuration: its resources, and their delivery.
//!
//! Envoy asks for listeners, and for clusters of servers that TCP connections are passed through to,
//! by aggregated delta discovery: each has a version of its own, so that a listener that Envoy refuses,
//! or a change of one, touches no other.

mod connections;
pub mod delta;
pub mod proto;
mod resources;
mod servers;
mod tcp;
mod terminate;
pub mod wire;

pub use resources::{
    GatewaySettings, Resources, TOKEN_CERTIFICATE, Versioned, file_of, matters, resources,
    version_of,
};
