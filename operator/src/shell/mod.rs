//! The operator's I/O: watches, server-side apply, leases, TLS, HTTP.

#[cfg(test)]
mod answering;
pub mod arguments;
mod authority;
mod claim;
mod contact;
mod controller;
mod discovery;
mod edge_gateway;
mod election;
mod error;
mod events;
mod failure;
mod gateway_api;
mod gateway_objects;
mod gateway_secrets;
mod health;
mod injector;
mod keys;
mod last_configuration;
mod listening;
mod objects;
mod observations;
mod peers;
mod readings;
mod refusal;
mod replica;
mod reports;
mod run;
mod secrets;
mod services;
mod snapshot;
mod tenant_secrets;
mod tls;
mod watches;
mod webhook;

pub use authority::Identities;
pub use contact::Contact;
pub use discovery::{Connections, Discovery};
pub use error::RunError;
pub use run::run;
pub use snapshot::{GatewaySnapshot, Snapshot, Snapshots, Surroundings};
pub use tls::{ServerIdentity, TlsError, serve};
