//! Uploads as in Sidekick24 (docs/REFERENCES.md): a proxy on the path reports in quACKs which
//! packets have passed it, and the sender retransmits missing data in new packets, with a window
//! that knows the segment of each loss (PACUBIC).
//!
//! ```text
//!            link 1                     link 2
//!   sender ----------> proxy ----------------------> receiver
//!     ^  ^               |                              |
//!     |  +--- quACKs ----+                              |
//!     +----------------------- acknowledgements --------+
//! ```
//!
//! The sender is a model of a QUIC sender rather than a stack, because no stack lets others
//! retransmit: RFC 9002's loss detection and probe timeouts, CUBIC (RFC 9438), a window and no
//! pacing. A quACK of `t` sums identifies up to `t` missing packets, and one of more is followed by
//! a Reset. It serves comparison only: Packrat itself repairs missing datagrams with the same
//! bytes, below an unmodified transport.

mod cubic;
mod media;
mod sender;
mod upload;

pub(crate) use media::Media;
pub(crate) use upload::{Acknowledging, Help, Outcome, Quacks, Strawman, Upload, scenario};
