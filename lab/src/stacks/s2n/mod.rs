//! s2n-quic in the simulation.

pub(super) mod client;
mod host;
mod limits;
pub(super) mod server;

pub(crate) use limits::{WINDOW_BYTES, limits};
