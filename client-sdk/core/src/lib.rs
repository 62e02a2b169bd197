//! The client of Packrat without sockets and without a transport: records arriving datagrams,
//! reports them to the gateway, and decides which datagrams wait for a repair.
//!
//! Sans-IO. A thin shell per transport (s2n-quic, media) passes datagrams and `now` in, sends the
//! datagrams of [`Shim::poll_transmit`], and delivers the released ones.
//!
//! ```text
//!              Offer             InitAck
//!  Discovering -----> Initiating --------> Established --+ eACKs: every 24 datagrams or 15 ms, at once for a new hole
//!    ^   |  no answer     |  no answer       |    ^      | echo answered
//!    |   v                v                  |    +------+
//!    +-- Waiting <---------------------------+ Goodbye, or echoes unanswered: nothing is waited for any more
//! ```
//!
//! - [`Assist`]: assistance of one base connection; contains all of the following
//! - `discovery`: the search for a gateway, and the handshake
//! - `recorder`, `scheduler`: the set of identifiers, and the times to send its sketch
//! - `hold`, `ranges`: the holes to wait for
//! - `upward`: the transport's datagrams, kept for a while and sent again if lost
//! - `bundling`: acknowledgements that leave together
//! - `thin`, [`LossMemory`]: copies of the first datagrams and of rare ones, on lossy last miles
//! - [`Shim`]: datagrams in order for an unmodified transport; [`GuardedShim`]: a shim whose
//!   failures cannot harm the connection
//! - [`Counters`], [`Condition`]: a flow's figures, the same in every SDK
//! - [`SourceAddress`]: detects a change of network
//! - [`Silence`]: detects a peer that does not answer any more
//! - [`ClientEvent`]: events of an observed connection
#![forbid(unsafe_code)]

mod assist;
mod base;
mod bundling;
mod coded;
mod config;
mod counters;
mod destinations;
mod discovery;
mod epoch;
mod events;
mod first_window;
mod generations;
mod group_symbols;
mod guarded;
mod hold;
mod liveness;
mod loss_memory;
mod packet_number;
mod randomness;
mod ranges;
mod reconnection;
mod recorder;
mod renewal;
mod scheduler;
mod session;
mod shim;
mod silence;
mod source_address;
mod stats;
mod thin;
mod timers;
mod token;
mod upward;
mod whole_path;

pub use assist::{Assist, Datagram, TimeoutActions};
pub use base::{base_of, bears_mark};
pub use bundling::LONGEST_BUNDLED_BYTES;
pub use config::{Access, ClientConfig};
pub use counters::{Condition, Counters};
pub use events::{ClientEvent, HoldEndedReason, NotHeldReason, Observer, SessionClosedReason};
pub use guarded::{GuardedShim, Health};
pub use loss_memory::{Experience, LossMemory, Remembered};
pub use packet_number::PacketNumber;
pub use packrat_wire::control::RefusalReason;
pub use packrat_wire::estimate::Timestamp;
pub use packrat_wire::handshake::{Live, LossClass};
pub use packrat_wire::identifier::IdentifierScheme;
pub use packrat_wire::message::{ResetReason, Totals};
pub use packrat_wire::number::NumberHeader;
pub use packrat_wire::{Epoch, MessageCounter, SessionId};
pub use renewal::RenewalSchedule;
pub use shim::{Input, Order, Released, Shim, ShimStats, Verdict};
pub use silence::Silence;
pub use source_address::SourceAddress;
pub use stats::{AssistState, AssistStats};
pub use token::{Token, TokenTooLong};
