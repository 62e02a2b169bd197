//! Envoy's configuration: its resources, and their delivery.
//!
//! Envoy asks for listeners only, by aggregated delta discovery: each listener has a version of its
//! own, so that a listener that Envoy refuses, or a change of one, touches no other.

pub mod delta;
pub mod proto;
mod resources;
pub mod wire;

pub use resources::{
    GatewaySettings, Resources, TOKEN_CERTIFICATE, Versioned, file_of, listeners, matters,
    version_of,
};
