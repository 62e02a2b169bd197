//! The page of harm: the cost of assistance to others and to its own user, where it may be slower
//! than no assistance.
//!
//! Each section is a kind of traffic on last mile bottlenecks, with assistance and without it, with
//! the same seeds.

mod command;
mod section;
mod tables;

pub(crate) use command::Harm;
pub(crate) use section::{Extent, Section};
