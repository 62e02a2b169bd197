//! packrat/1 on the wire: what client and gateway say to each other, in band, on the base connection's own 4-tuple.
//!
//! docs/PROTOCOL.md specifies it; this crate is its one implementation, shared by both ends and free of I/O, clocks and
//! randomness.
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
//! - [`control`]: how a control datagram is told apart from the base connection, and its outer layout
//! - [`message`]: the messages inside sealed datagrams, a registry with room
//! - [`cookie`]: the stateless proof of address
//! - [`handshake`]: Noise NX; [`seal`]: everything after it; [`SmallChannel`]: the same in little memory
//! - [`identifier`]: four bytes that stand for a datagram
#![forbid(unsafe_code)]

mod cipher;
pub mod codec;
pub mod control;
pub mod cookie;
mod extension;
pub mod handshake;
pub mod identifier;
pub mod message;
pub mod seal;
mod small_channel;

pub use control::is_control;
pub use small_channel::SmallChannel;
