//! quinn in the simulation.

mod ceten;
pub(super) mod client;
mod observer;
mod runtime;
pub(super) mod server;
