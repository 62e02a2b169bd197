//! The operator's I/O: watches, server-side apply, leases, TLS, HTTP.

pub mod arguments;
mod authority;
mod controller;
mod discovery;
mod election;
mod error;
mod events;
mod gateway_api;
mod gateway_objects;
mod health;
mod injector;
mod keys;
mod listening;
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

pub use authority::Identities;
pub use discovery::{Connections, Discovery};
pub use error::RunError;
pub use run::run;
pub use snapshot::{GatewaySnapshot, Snapshot, Snapshots, Surroundings};
pub use tls::{ServerIdentity, TlsError, serve};
