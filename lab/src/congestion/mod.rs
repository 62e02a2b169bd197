//! Congestion controls that the stacks of the laboratory lack: CUBIC with HyStart++, and BBR, version 3.
//!
//! Sans-IO: times are arguments, and what is random comes from the trial's seed. [`crate::noq_server`] gives them to noq, which paces at
//! the rate that they ask for.

mod bbr;
mod cubic;

pub(crate) use bbr::Bbr;
pub(crate) use cubic::Cubic;

/// The initial window of RFC 9002 for datagrams of this size, bytes.
fn initial_window(datagram: u64) -> u64 {
    14_720.clamp(2 * datagram, 10 * datagram)
}
