//! Uploads as Sidekick24 (docs/REFERENCES.md) has them: a proxy on the path says by quACKs which packets
//! have passed it, and the sender retransmits what is missing in new packets, with a window that knows on
//! which segment a loss was (PACUBIC).
//!
//! ```text
//!            link 1                     link 2
//!   sender ----------> proxy ----------------------> receiver
//!     ^  ^               |                              |
//!     |  +--- quACKs ----+                              |
//!     +----------------------- acknowledgements --------+
//! ```
//!
//! The sender is a model of a QUIC sender and no stack, because no stack lets others retransmit: RFC
//! 9002's loss detection and probe timeouts, CUBIC (RFC 9438), a window and no pacing. A quACK of `t` sums
//! tells up to `t` missing packets, and one of more is followed by a Reset. It serves comparison only:
//! Packrat itself repairs what is missing with the same bytes, below a transport that is not changed.

mod cubic;
mod media;
mod sender;
mod upload;

pub(crate) use media::Media;
pub(crate) use upload::{Acknowledging, Help, Outcome, Quacks, Upload, scenario};
