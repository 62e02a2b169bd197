//! The client of Packrat without sockets and without a transport: records what arrives, tells the
//! gateway, shapes acknowledgements.
//!
//! Sans-IO. A thin shell per transport (s2n-quic, quinn, media) passes datagrams, packet numbers
//! and `now` in, sends what [`Assist::poll_transmit`] gives, and lets [`Assist::rewrite_frames`]
//! edit outgoing acknowledgements.
//!
//! ```text
//!              Offer             InitAck
//!  Discovering -----> Initiating --------> Established --+ eACKs: every 24 datagrams or 15 ms, at once for a new hole
//!    ^   |  no answer     |  no answer       |    ^      | echo answered
//!    |   v                v                  |    +------+
//!    +-- Waiting <---------------------------+ Goodbye, or echoes unanswered: acknowledgements are not withheld any more
//! ```
//!
//! - [`Assist`]: assistance of one base connection; everything below behind one door
//! - `discovery`: finding a gateway and agreeing with it
//! - `recorder`, `scheduler`: the set of identifiers, and when to send its sketch
//! - `hold`, `ack_frame`, `ranges`: what may be acknowledged, and how that looks in QUIC (RFC 9000
//!   section 19.3)
//! - [`Shim`]: datagrams in order for a transport that knows nothing of this
//! - [`ClientEvent`]: what happens on a connection that is observed
#![forbid(unsafe_code)]

mod ack_frame;
mod assist;
mod coded;
mod config;
mod discovery;
mod epoch;
mod events;
#[cfg(test)]
mod fuzz_corpus;
mod hold;
mod liveness;
mod packet_number;
mod randomness;
mod ranges;
mod reconnection;
mod recorder;
mod renewal;
mod scheduler;
mod session;
mod shim;
mod stats;
mod timers;
mod token;

pub use assist::{Assist, Datagram, TimeoutActions};
pub use config::{Access, ClientConfig};
pub use events::{ClientEvent, HoldEndedReason, NotHeldReason, Observer, SessionClosedReason};
pub use packet_number::PacketNumber;
pub use packrat_wire::control::RefusalReason;
pub use packrat_wire::estimate::Timestamp;
pub use packrat_wire::handshake::Live;
pub use packrat_wire::identifier::IdentifierScheme;
pub use packrat_wire::message::{ResetReason, Totals};
pub use packrat_wire::{Epoch, MessageCounter, SessionId};
pub use renewal::RenewalSchedule;
pub use shim::{Order, Released, Shim, ShimStats, Verdict};
pub use stats::{AssistState, AssistStats};
pub use token::{Token, TokenTooLong};
