//! Congestion controls that the stacks of the laboratory lack: CUBIC with HyStart++, BBR, version 3, and CETEN.
//!
//! Sans-IO: times are arguments, and random values come from the trial's seed.
//! [`crate::noq_server`] gives the former two to noq, which paces at the rate that they ask for,
//! [`crate::quinn_ceten`] the last one to quinn.

mod bbr;
mod ceten;
mod cubic;

pub(crate) use bbr::Bbr;
pub(crate) use ceten::{Answer, Ceten};
pub(crate) use cubic::Cubic;

/// The initial window of RFC 9002 for datagrams of this size, bytes.
fn initial_window(datagram: u64) -> u64 {
    14_720.clamp(2 * datagram, 10 * datagram)
}
