//! Sans-IO time and the path estimate that every policy reads.
//!
//! The cores of the gateway and of the client never look at a clock: whoever calls them passes `now` in. [`Timestamp`]
//! is that argument, and [`PathEstimate`] is the single place where round trip and loss of the last mile are estimated,
//! so that repair, hold and scheduling never disagree about the path.
#![forbid(unsafe_code)]

mod path;
mod queueing;
mod timestamp;

pub use path::{LIVE_PATIENCE_MARGIN, PATIENCE_MARGIN, PathEstimate, patience_margin};
pub use queueing::{Queueing, STANDING_QUEUE};
pub use timestamp::Timestamp;
