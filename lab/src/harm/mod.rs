//! The page of harm: what assistance takes from others, and what it costs its own user, where it
//! may be slower than none.
//!
//! Each section is a kind of traffic on last mile bottlenecks, with assistance and without it, with
//! the same seeds.

mod command;
mod section;
mod tables;

pub(crate) use command::Harm;
pub(crate) use section::{Extent, Section};
