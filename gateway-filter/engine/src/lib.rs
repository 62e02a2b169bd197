//! The gateway without its sockets: sessions, cache, reconciliation, repair, budgets.
//!
//! Sans-IO: no socket, no clock, no thread, no randomness of its own. A shell (the dataplane in Envoy, the standalone gateway, the
//! lab in virtual time) passes datagrams and `now` in, and sends what it finds in the [`Outbox`].
//!
//! ```text
//!                          Init with a right cookie
//!   plain forwarding ------------------------------------> assisted -----+
//!        ^                                                  |  ^  |      | forward(): identifier, cache
//!        |  Goodbye, idle, a new Init of the same client    |  |  |      | control(): eACK -> decode -> repair
//!        +--------------------------------------------------+  |  +------+ timeout(): copies, tail probe
//!                                                              |
//!                       Reset (either side): new epoch, empty sets, cache kept
//! ```
//!
//! - [`Gateway`]: what all flows share; answers Discovers and checks cookies without state
//! - [`Flow`]: one client 4-tuple; costs nothing while it is not assisted
//! - `session`: the reconciliation of one assisted flow (paper section 3)
//! - `history`, `cache`: forwarding order, identifier index, ring of bytes
//! - `repair`, `budget`: when to repair and how much
//! - `live`: what is different for live streams
//! - [`Stream`]: one stream, many receivers
//!
//! Whatever goes wrong in here, plain forwarding goes on: it never asks this crate for permission.
#![forbid(unsafe_code)]

mod budget;
mod busyness;
mod cache;
mod config;
mod counters;
mod event;
mod flow;
mod gateway;
mod history;
mod index;
mod lazily;
mod live;
mod outbox;
mod repair;
mod sample;
mod scratch;
mod session;
mod sources;
mod stream;
mod tokens;

pub use config::GatewayConfig;
pub use counters::{FlowCounters, FlowGauges, StreamCounters, StreamGauges};
pub use event::{Event, Side};
pub use flow::{Elsewhere, Flow};
pub use gateway::{Begin, COOKIE_SECRET_LIFETIME, Gateway, HandshakeOutcome, Received};
pub use outbox::Outbox;
pub use packrat_assist_token as assist_token;
pub use packrat_wire::handshake::public_key;
pub use sample::Sample;
pub use stream::{Stream, StreamConfig, StreamOutbox, Target};
pub use tokens::{TokenCheck, TokenPolicy};
