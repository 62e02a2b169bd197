//! Sockets of the gateway: GRO in, GSO out, I/O threads, the process-wide session table.
//!
//! The same dataplane runs inside Envoy (`packrat-envoy`) and on sockets of its own (`packrat-gateway`). A shell starts one
//! [`Dataplane`], describes its routes with [`RouteConfig`], hands it the sockets that clients send to
//! ([`Dataplane::attach`]) and passes what clients send to [`Ingress`]. The dataplane keeps one connected upstream
//! socket for every client, forwards both ways, and lets `packrat-engine` repair what the last mile loses.
//!
//! Plain forwarding never depends on assistance: an error or a panic in the engine costs the flow its assistance and is
//! counted, the datagram is forwarded all the same.
//!
//! # Configuration of a route
//!
//! A JSON object, the same in both shells; unknown fields are errors:
//!
//! ```json
//! {
//!   "route": "web",
//!   "gateway": "edge",
//!   "endpoints": ["192.0.2.10:443", "[2001:db8::10]:443"],
//!   "assist": true,
//!   "cache_bytes_per_session": 1048576,
//!   "cache_bytes_total": 268435456,
//!   "repair_budget": 0.25,
//!   "residual_loss_target": 0.00001,
//!   "idle_timeout_seconds": 120,
//!   "maximum_sessions": 100000,
//!   "static_key_file": "/etc/packrat/static.key"
//! }
//! ```
//!
//! `route` and `endpoints` are required, everything else has the default shown (`gateway`: `"packrat"`; without
//! `static_key` (64 hexadecimal digits) or `static_key_file` (the same text, or 32 raw bytes) a random key is made at start).
//!
//! # Metrics
//!
//! One table, [`metrics::Metric`]: names are `packrat_<name>` with the labels `route` and `gateway`.
#![allow(unsafe_code)] // system calls of the sockets: `address`, `poller` and `socket` only
#![deny(unsafe_op_in_unsafe_fn)]

mod assistance;
mod backend;
pub mod configuration;
mod dataplane;
mod downstream;
mod ingress;
pub mod log;
pub mod metrics;
mod poller;
mod route;
mod session;
pub mod socket;
mod upstream;
mod worker;

pub use configuration::{ConfigurationError, RouteConfig};
pub use dataplane::{Dataplane, DataplaneError, Options};
pub use downstream::Attachment;
pub use ingress::{ClientDatagrams, Ingress};
pub use route::Route;
