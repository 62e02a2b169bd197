//! Assisted UDP sockets for any program, and the parts shared by all shells on sockets.
//!
//! - [`AssistedSocket`]: a blocking UDP socket whose peers' datagrams are repaired on the way and
//!   delivered in order; `AsyncAssistedSocket`: its counterpart for tokio, with the feature `tokio`
//! - [`Peers`]: the assistance of one socket without the socket: its flows, by the peer's address.
//!   Time and sockets are the caller's; packrat-quinn is a shell around it
//! - [`Table`]: flows with their limits and deadlines, sans-IO; the agent has one for its programs
//! - [`Batch`], [`source_towards`]: the system's part
//!
//! Each change of a flow's [`Condition`] is a `tracing` event at the level `DEBUG`.
//!
//! Without a gateway, or if assistance fails, every datagram passes as it arrives.
#![forbid(unsafe_code)]

mod assisted;
#[cfg(feature = "tokio")]
mod asynchronous;
mod batch;
mod config;
mod error;
mod flow;
mod peers;
mod shared;
mod source;
mod table;

pub use assisted::AssistedSocket;
#[cfg(feature = "tokio")]
pub use asynchronous::AsyncAssistedSocket;
pub use batch::{Batch, Mark, Message, is_too_long, with_large_buffers};
pub use config::SocketConfig;
pub use error::SocketError;
pub use flow::Outlet;
pub use packrat_client::{
    Access, ClientConfig, Condition, Counters, IdentifierScheme, Timestamp, Token,
};
pub use peers::{Peers, Wire};
pub use source::{same_peer, source_from, source_towards};
pub use table::{FlowFigures, FlowId, Limits, Peer, Table, source_of};

/// The lines of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
