//! The gateway without its sockets: sessions, cache, reconciliation, repair, budgets.
//!
//! Sans-IO: no socket, no clock, no thread, no randomness of its own. A shell (the dataplane in
//! Envoy, the standalone gateway, the lab in virtual time) passes datagrams and `now` in, and sends
//! the datagrams of the [`Outbox`].
//!
//! ```text
//!                          Init with a valid cookie
//!   plain forwarding ------------------------------------> assisted -----+
//!        ^                                                  |  ^  |      | forward(): identifier, cache
//!        |  Goodbye, idle, a new Init of the same client    |  |  |      | control(): eACK -> decode -> repair
//!        +--------------------------------------------------+  |  +------+ timeout(): copies, tail probe
//!                                                              |
//!                       Reset (either side): new epoch, empty sets, cache kept
//! ```
//!
//! - [`Gateway`]: shared state of all flows; answers Discovers and checks cookies without state
//! - [`Flow`]: one client 4-tuple; costs no work while it is not assisted
//! - `session`: the assisted state of one flow (Packrat26, section 3)
//! - [`SessionEvent`]: events of an observed session: why a datagram was not repaired
//! - `reconciliation`, `repair`: the rules that sessions and subscribers of streams share
//! - `history`, `cache`: forwarding order, identifier index, ring of bytes
//! - `admission`: sources, permits, rates, tokens, and the work that messages may cause
//! - `path_validation`: proof that a client receives at a new address
//! - `budget`: bytes that repairs may use
//! - [`ServerIdDecoder`]: the server that a connection ID names
//! - `sync`: locks and atomics of shared state, which `make check-concurrency` replaces
//! - `live`: the rules of live streams
//! - [`Stream`]: one stream, many receivers
//!
//! Plain forwarding goes on whatever fails here: it never asks this crate for permission.
#![forbid(unsafe_code)]

mod address_proof;
mod admission;
mod budget;
mod cache;
#[cfg(all(test, feature = "shuttle"))]
mod concurrency;
mod config;
mod counters;
mod eack_credit;
mod event;
mod flow;
mod gateway;
mod handshake;
mod history;
mod holdout;
mod index;
mod keys;
mod lazy_box;
mod live;
mod loss_memory;
mod outbox;
mod path_validation;
mod peers;
mod reconciliation;
mod repair;
mod sample;
mod scratch;
mod sender_memory;
mod sequence;
mod server_id;
mod session;
mod session_event;
mod sparse_copies;
mod stream;
mod sync;
mod ticket;

pub use address_proof::AddressProof;
pub use admission::{HANDSHAKE_PAUSE, TokenAdmission, TokenCheck, WorkBudget};
pub use config::{GatewayConfig, SenderAnswer, TOLERATED_LOSS};
pub use counters::{FlowCounters, FlowGauges, StreamCounters, StreamGauges};
pub use event::{Event, Side};
pub use flow::{Flow, PathEvent};
pub use gateway::{Begin, COOKIE_SECRET_LIFETIME, Gateway, HandshakeOutcome, Received};
pub use outbox::Outbox;
pub use packrat_assist_token as assist_token;
pub use packrat_wire::handshake::public_key;
pub use packrat_wire::number::NumberHeader;
pub use path_validation::{CHALLENGE_LIFETIME, NetworkPath, PathUse};
pub use sample::Sample;
pub use sender_memory::SenderMemory;
pub use sequence::Sequence;
pub use server_id::{ServerId, ServerIdDecoder, ServerIdError, destination};
pub use session_event::{EackIgnoredReason, GiveUpReason, RepairRefusedReason, SessionEvent};
pub use stream::{Stream, StreamConfig, StreamOutbox, Target};
pub use ticket::{MOST_SERVERS_UNPROVEN, TICKET_NONCE_BYTES};
