//! The laboratory: downloads in virtual time, and [`live`] streams.
//!
//! A trial puts real parts on an emulated path: an unmodified QUIC server, an unmodified s2n-quic
//! client with Packrat's client under it, in the very shell that applications use,
//! and the gateway's engine as a node in the middle. Only time is not real: a download of 25 MB
//! over a satellite takes a second or two of computing, and the same seed gives the same result in
//! every process.
//!
//! ```text
//!   sender (s2n-quic, quinn)   world                                     receiver (s2n-quic, packrat-s2n-quic)
//!       |    far segment: Link   gateway_node: packrat_engine   last mile: Link   |
//!       +------------------------------------+-------------------------------------+
//! ```
//!
//! This is a crate of its own because s2n-quic's simulation is a feature of s2n-quic that the
//! product must not be built with.
#![forbid(unsafe_code)]

pub mod batch;
mod batching;
mod certificate;
mod clock;
pub mod command;
mod congestion;
pub mod field;
pub mod figures;
pub mod first_byte;
mod flow;
mod gateway_node;
mod harm;
mod host;
mod intervals;
pub mod live;
mod noq_observer;
mod noq_runtime;
mod noq_server;
mod observer;
mod oracle;
mod quack;
mod quinn_ceten;
mod quinn_client;
mod quinn_observer;
mod quinn_runtime;
mod quinn_server;
mod randomness;
mod receiver;
mod robin;
mod s2n_server;
mod sender;
mod server;
mod shim_node;
mod split;
mod sweep;
mod table;
mod tls;
mod trace;
mod traffic;
mod trial;
mod world;

pub use observer::{DatagramKind, TraceEvent};
pub use oracle::Oracle;
pub use receiver::ReceiverStack;
pub use sender::Sender;
pub use table::median;
pub use traffic::{Completions, FlowKind, FlowResult, VideoResult};
pub use trial::{Arm, Fairness, LinkFigures, Trial, TrialError, TrialResult};
