//! A network path: the fate of datagrams between two hosts.
//!
//! A direction of the path is a [`Link`]: a queue in front of a transmitter of a given rate, then a
//! medium that loses datagrams, then a propagation delay. A [`QueuedLink`] is a link whose rate,
//! delay and outages change with time, or whose queue decides when a datagram leaves it. Everything
//! random in them follows from a seed.

mod airtime;
mod any_link;
mod arrival;
mod cross_traffic;
mod delay;
mod discipline;
mod lateness;
mod link;
mod loss;
mod outages;
mod queue;
mod queued_link;
pub mod recording;
mod release;
mod socket_drops;
mod udp;

use std::time::Duration;

pub use airtime::{Air, AirtimeConfig, Station};
pub use any_link::{AnyLink, AnyLinkConfig};
pub use cross_traffic::{CrossTraffic, CrossTrafficConfig};
pub use delay::{DelayModel, Jitter, JitterModel};
pub use discipline::{CoDelConfig, FqCoDelConfig, QueueManagement, RedConfig};
pub use lateness::Lateness;
pub use link::{Link, LinkConfig, LinkCounters, Verdict};
pub use loss::{LossModel, LossProcess, StateLoss};
pub use outages::OutageModel;
pub use queue::{QueueDiscipline, bandwidth_delay_product};
pub use queued_link::{Fate, QueuedLink, QueuedLinkConfig, Rate};
pub use recording::{ProbeRecording, RateRecording, RecordingError, Replay};
pub use release::{Direction, InFlight};
pub use udp::{DirectionReport, PathConfig, PathError, PathReport, UdpPath};

/// Converts a time to the links' nanoseconds, which saturate after five centuries.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
