//! A network path: what happens to a datagram between two hosts.
//!
//! A direction of the path is a [`Link`]: a queue in front of a transmitter of a given rate, then a
//! medium that loses datagrams, then a propagation delay. Everything random in it follows from a
//! seed.

mod cross_traffic;
mod lateness;
mod link;
mod loss;
mod queue;
mod release;
mod socket_drops;
mod udp;

pub use cross_traffic::{CrossTraffic, CrossTrafficConfig};
pub use lateness::Lateness;
pub use link::{Link, LinkConfig, LinkCounters, Verdict};
pub use loss::{LossModel, LossProcess, StateLoss};
pub use queue::{QueueDiscipline, bandwidth_delay_product};
pub use release::{Direction, InFlight};
pub use udp::{DirectionReport, PathConfig, PathError, PathReport, UdpPath};
