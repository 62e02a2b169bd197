//! A stream with many receivers behind one gateway.
//!
//! Time advances in steps of a millisecond: with thousands of receivers, the events within a step
//! are processed together.

mod latencies;
mod member;
mod result;
mod simulation;
mod trial;

pub use result::{GroupRepairs, LatencyQuantiles, MulticastCost, MulticastResult};
pub use trial::{MulticastArm, MulticastTrial};
