//! Congestion controls that the stacks of the laboratory lack: CUBIC with HyStart++, BBR, version 3, and CETEN.
//!
//! Sans-IO: times are arguments, and random values come from the trial's seed. noq gets the former
//! two, as it paces at the rate that they ask for, quinn the last one.

mod bbr;
mod ceten;
mod cubic;
mod initial_window;

pub(crate) use bbr::Bbr;
pub(crate) use ceten::{Answer, Ceten};
pub(crate) use cubic::Cubic;
