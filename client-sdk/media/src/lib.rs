//! Live streams over a lossy last mile: a receiver that a Packrat gateway helps, and a plain sender
//! and receiver to compare with.
//!
//! ```text
//!   Sender ---- sealed packets ----> gateway ---- the same, and repairs ----> MediaReceiver ---> units, in order, on time
//!      ^                                ^                                       |  |
//!      |                                +---- eACKs, only when one is missing --+  |
//!      +-------------- requests: what the gateway had no chance to repair ---------+
//! ```
//!
//! - [`Receiver`]: missing packets, requests, the time of each unit; independent of format and key
//! - [`MediaReceiver`]: a [`Receiver`] with [`packrat_client::Assist`], for the packets of
//!   [`Sender`]
//! - [`Subscription`]: a receiver of a gateway's stream in a format of its own, such as SRTP
//! - [`RtpAssist`]: assistance between the socket and an unmodified RTP stack, such as a WebRTC
//!   peer
//! - [`udp`]: the receivers and the sender on tokio sockets
//!
//! Another format (RTP, SRTP, SRT) needs the steps of [`MediaReceiver`]: pass each authentic
//! datagram and its number to `Assist::on_packet`, and ask the sender only for packets for which
//! `Assist::is_awaited` is false. The format on the wire is unchanged, and so is its sender.
#![forbid(unsafe_code)]

mod credibility;
mod receiver;
pub mod rtp;
mod rtp_assist;
mod seal;
mod sender;
mod session;
mod statistics;
mod subscription;
pub mod udp;

pub use packrat_client::{
    Access, Assist, AssistState, AssistStats, PacketNumber, RefusalReason, Timestamp, Token,
    TokenTooLong, Totals,
};
pub use receiver::{Receiver, ReceiverConfig, Unit};
pub use rtp_assist::{PacketNumbers, RtpAssist, RtpAssistConfig};
pub use seal::MediaKey;
pub use sender::{Heard, Sender, SenderConfig};
pub use session::{Assistance, MediaReceiver};
pub use statistics::{Counts, Statistics};
pub use subscription::{Numbers, Subscription};

/// The lines of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
