//! Congestion controls that the stacks of the laboratory lack: CUBIC with HyStart++, BBR, version 3, and CETEN.
//!
//! Sans-IO: times are arguments, and random values come from the trial's seed.
//! [`crate::stacks::noq::server`] gives the former two to noq, which paces at the rate that they ask for,
//! [`crate::stacks::quinn::ceten`] the last one to quinn.

mod bbr;
mod ceten;
mod cubic;
mod initial_window;

pub(crate) use bbr::Bbr;
pub(crate) use ceten::{Answer, Ceten};
pub(crate) use cubic::Cubic;
