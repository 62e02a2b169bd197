//! Live streams in virtual time (Packrat26, sections 7.2.2 and 7.2.3).
//!
//! Real parts on an emulated path: the receiver of packrat-media or the client core, and the
//! gateway's engine. Only sockets and time are not real. The same seed gives the same result in
//! every process. A trial of [`media`] can also be run in real time, with sockets and the data
//! plane; the host then influences the result.
//!
//! - [`media`]: one stream, one receiver, with and without help
//! - [`multicast`]: one stream, many receivers
//! - `packrat-lab live` is [`command`]

pub mod command;
mod gateway;
pub mod media;
pub mod multicast;
mod player;
mod real;
mod stream;
mod virtual_time;

pub use gateway::GatewayTotals;
pub use media::{Arm, MediaResult, MediaTrial, StreamTraffic, Traffic};
pub use multicast::{
    GroupRepairs, LatencyQuantiles, MulticastArm, MulticastCost, MulticastResult, MulticastTrial,
};
pub use player::Experience;
pub use stream::Stream;
