//! The laboratory: downloads in virtual time, and [`live`] streams.
//!
//! A trial puts real parts on an emulated path: an unmodified QUIC server, an unmodified s2n-quic
//! client with Packrat's client under it, in the very shell that applications use,
//! and the gateway's engine as a node in the middle. Only time is not real: a download of 25 MB
//! over a satellite takes a second or two of computing, and the same seed gives the same result in
//! every process.
//!
//! ```text
//!   sender (s2n-quic, quinn)   network                                   receiver (s2n-quic, packrat-s2n-quic)
//!       |    far segment: Link   gateway: packrat_engine        last mile: Link   |
//!       +------------------------------------+-------------------------------------+
//! ```
//!
//! This is a crate of its own because s2n-quic's simulation is a feature of s2n-quic that the
//! product must not be built with.
#![forbid(unsafe_code)]

mod arguments;
pub mod batch;
pub mod command;
mod congestion;
mod connection;
pub mod drawing;
pub mod field;
pub mod first_byte;
mod harm;
pub mod live;
mod network;
mod observer;
mod simulation;
mod stacks;
pub mod statistics;
mod tables;
mod traffic;
mod trial;

pub use network::Oracle;
pub use observer::{DatagramKind, TraceEvent};
pub use stacks::{ReceiverStack, Sender};
pub use traffic::VideoResult;
pub use trial::{
    Arm, AssistanceFigures, Completions, DownloadFigures, Fairness, FlowKind, FlowLosses,
    FlowResult, HELD_OUT, LinkFigures, ReactionFigures, TIME_LIMIT, Trial, TrialError, TrialResult,
    TrialSetting,
};
