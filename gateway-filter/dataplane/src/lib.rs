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
//! Packets leave with don't-fragment set, in both directions: the path MTU is the base connection's to find. A datagram that
//! does not fit the outgoing link (also one that had arrived in fragments) is dropped and counted, never fragmented.
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
//!   "static_key_file": "/etc/packrat/static.key",
//!   "tokens": "off",
//!   "token_keys_file": "/etc/packrat/token.keys"
//! }
//! ```
//!
//! `route` and `endpoints` are required, everything else has the default shown (`gateway`: `"packrat"`; without
//! `static_key` (64 hexadecimal digits) or `static_key_file` (the same text, or 32 raw bytes) a random key is made at start).
//!
//! `tokens` says whether clients need an assist token (`"off"`, `"optional"`, `"required"`) from the token endpoint (`packrat-token`).
//! Its keys are `token_keys`, a list of one or two texts `identifier:64 hexadecimal digits`, the current key first and then the previous
//! one, or the lines of `token_keys_file`. To rotate: add the new key in the second place here, let the endpoint issue with it, then
//! move it to the first place; sessions that exist are not touched.
//!
//! # Metrics
//!
//! One table, [`metrics::definitions`], the same in both shells, each with the labels `route` and `gateway`:
//!
//! - sessions: `packrat_sessions`, `packrat_sessions_{opened,closed,refused,moved}_total`
//! - forwarding: `packrat_to_client_{datagrams,bytes,dropped}_total`, `packrat_to_server_{datagrams,bytes,dropped}_total`,
//!   `packrat_too_large_total`, `packrat_truncated_total`, `packrat_upstream_errors_total`
//! - control: `packrat_control_{received,sent,dropped}_total`, `packrat_handshakes_<outcome>_total`
//! - assistance: every field of [`packrat_engine::FlowCounters`] as `packrat_<field>_total` (`packrat_repairs_total`,
//!   `packrat_repairs_late_total`, `packrat_resets_gateway_total`, `packrat_resets_client_total`,
//!   `packrat_eack_prefix_bytes_total`...), `packrat_assistance_panics_total`
//! - levels: `packrat_sessions_assisted`, `packrat_cache_bytes`, `packrat_cache_entries`, `packrat_cache_high_water_bytes`,
//!   `packrat_last_mile_round_trip_microseconds`, `packrat_last_mile_loss_ppm`
//!
//! # Log lines
//!
//! JSON objects; the key `event` says what happened ([`log::Event`]): `session_opened`, `assistance_begun`, `reset`,
//! `assistance_ended` and `session_closed` with their totals, `session_refused`, `upstream_error`, and so on.
#![allow(unsafe_code)] // system calls of the sockets, in `poller` and `socket` only
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
mod tokens;
mod upstream;
mod worker;

pub use configuration::{ConfigurationError, RouteConfig};
pub use dataplane::{Dataplane, DataplaneError, Options};
pub use downstream::Attachment;
pub use ingress::{ClientDatagrams, Ingress};
pub use route::Route;
pub use tokens::Tokens;
