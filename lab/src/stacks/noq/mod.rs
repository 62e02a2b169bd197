//! noq, a fork of quinn, in the simulation.

mod observer;
mod runtime;
pub(super) mod server;
