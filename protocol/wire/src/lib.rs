//! packrat/2 on the wire: the messages between client and gateway, in band, on the base
//! connection's own 4-tuple.
//!
//! docs/PROTOCOL.md specifies it; this crate is its one implementation, shared by both ends and
//! free of I/O, clocks and randomness.
//!
//! ```text
//!   client                                   gateway
//!     | -- Discover (nonce, padding) -----------> |   stateless: nothing is kept
//!     | <------------- Offer (nonce, cookie) ---- |   never longer than the Discover
//!     | -- Init (cookie, Noise e) --------------> |   cookie right: the address is real
//!     | <--- InitAck (Noise e, ee, s, es) ------- |   never longer than the Init
//!     | == Sealed: eACK ... ====================> |
//!     | <==================== Sealed: Report ==== |
//! ```
//!
//! - [`control`]: the outer layout of control datagrams
//! - [`message`]: the messages inside sealed datagrams, a registry with room
//! - [`cookie`]: the stateless proof of address
//! - [`handshake`]: Noise NX; [`seal`]: everything after it; [`SmallChannel`]: a channel in less
//!   memory
//! - [`group`]: symbols to all subscribers of a stream at once
//! - [`estimate`]: time as an argument, and the one estimate of a path that every policy reads
//! - [`RateLimit`]: tokens that are earned with that time
//! - [`identifier`]: four bytes that stand for a datagram
//! - [`number`]: the place in forwarding order, in front of a datagram
//! - [`scone`]: the network's advice, in front of all of it
//! - [`bundle`]: several short datagrams in one
//! - [`peer`]: the search for a client's session among gateways
//! - [`dns`]: a gateway's key in HTTPS records
//! - [`registry`]: ranges of values, and deliberately meaningless values
//! - [`hexadecimal`]: keys as texts
#![forbid(unsafe_code)]

pub mod bundle;
mod cipher;
pub mod codec;
pub mod control;
pub mod cookie;
pub mod dns;
mod epoch;
pub mod estimate;
mod extension;
pub mod group;
pub mod handshake;
pub mod hexadecimal;
pub mod identifier;
pub mod message;
mod message_counter;
pub mod number;
pub mod peer;
mod rate_limit;
pub mod registry;
pub mod scone;
pub mod seal;
mod session_id;
mod small_channel;
mod tag;

pub use control::is_control;
pub use epoch::Epoch;
pub use message_counter::MessageCounter;
pub use rate_limit::RateLimit;
pub use session_id::SessionId;
pub use small_channel::SmallChannel;
