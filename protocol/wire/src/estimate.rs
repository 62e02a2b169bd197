//! Sans-IO time and the path estimate that every policy reads.
//!
//! The cores of the gateway and of the client never look at a clock: the caller passes `now` in.
//! [`Timestamp`] is that argument. [`RoundTrip`] is the one estimator of round trips, and
//! [`PathEstimate`] the single place where round trip and loss of the last mile are estimated, so
//! that repair, hold and scheduling never disagree about the path.

use core::time::Duration;

mod first_window;
mod least;
mod medium_loss;
mod overflow;
mod path;
mod round_trip;
mod timestamp;

pub use first_window::{LARGE_WINDOW, is_large_window};
pub use least::Least;
pub use medium_loss::MediumLoss;
pub use overflow::{Losses, OverflowJudge};
pub use path::{LIVE_PATIENCE_MARGIN, PATIENCE_MARGIN, PathEstimate, patience_margin};
pub use round_trip::{RoundTrip, SmallRoundTrip};
pub use timestamp::Timestamp;

/// Delay of a standing queue: half of it is CoDel's target (RFC 8289).
pub const STANDING_QUEUE: Duration = Duration::from_millis(10);
