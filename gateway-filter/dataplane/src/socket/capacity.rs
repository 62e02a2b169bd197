//! The number of sessions that this process can hold: each of them needs a descriptor and a source
//! port of its own. Without a limit the last session would take the descriptor that a listener, a
//! timer or the metrics need.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::ephemeral_ports::ephemeral_ports;

/// Descriptors, and ports, that stay free for everything else in the process and on the host; of
/// few, half.
const RESERVED: u64 = 512;

/// The descriptors and ports that the sessions of all routes share.
#[derive(Debug)]
pub(crate) struct Capacity {
    /// Most sessions at once.
    sessions: u64,
    /// The scarcer of both, and how an operator can change that.
    reason: String,
    taken: AtomicU64,
    reported: AtomicBool,
}

/// The right to one upstream socket; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct FlowPermit(Arc<Capacity>);

impl Drop for FlowPermit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Capacity {
    /// The capacity of this process, with `descriptors` as the limit of open files.
    pub(crate) fn of_process(descriptors: &io::Result<u64>) -> Arc<Self> {
        // When it is not known, the ports are a limit, too.
        Self::new(descriptors.as_ref().ok().copied().unwrap_or(u64::MAX), ephemeral_ports())
    }

    fn new(descriptors: u64, ports: &RangeInclusive<u16>) -> Arc<Self> {
        let without_reserve = |all: u64| all - RESERVED.min(all / 2);
        let port_count = u64::from(ports.end().saturating_sub(*ports.start())) + 1;
        let (by_descriptors, by_ports) =
            (without_reserve(descriptors), without_reserve(port_count));
        let reason = if by_descriptors <= by_ports {
            format!("the process may open {descriptors} files (raise RLIMIT_NOFILE)")
        } else {
            format!(
                "the host has {port_count} ephemeral ports (widen net.ipv4.ip_local_port_range)"
            )
        };
        Self::limited(by_descriptors.min(by_ports), reason)
    }

    pub(crate) fn limited(sessions: u64, reason: String) -> Arc<Self> {
        Arc::new(Self {
            sessions,
            reason,
            taken: AtomicU64::new(0),
            reported: AtomicBool::new(false),
        })
    }

    /// Most sessions at once.
    pub(crate) const fn sessions(&self) -> u64 {
        self.sessions
    }

    /// The reason for the limit, and how an operator can change it.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    /// Admits another session, within the limit.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<FlowPermit> {
        let one_more = |taken: u64| (taken < self.sessions).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(FlowPermit(Arc::clone(self)))
    }

    /// True if an operator is to be told, for the first time, that `configured` sessions are more
    /// than there can be.
    pub(crate) fn shall_report(&self, configured: u64) -> bool {
        configured > self.sessions && !self.reported.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scarcer_of_descriptors_and_ports_decides() {
        let ports = 32_768..=60_999;
        let capacity = Capacity::new(1_048_576, &ports);
        assert_eq!(capacity.sessions(), 28_232 - 512);
        assert!(capacity.reason().contains("28232 ephemeral ports"));
        let capacity = Capacity::new(4096, &ports);
        assert_eq!(capacity.sessions(), 4096 - 512);
        assert!(capacity.reason().contains("4096 files"));
        assert_eq!(Capacity::new(256, &ports).sessions(), 128);
        assert!(Capacity::of_process(&Err(io::Error::other("unknown"))).reason().contains("ports"));
    }

    #[test]
    fn permits_are_given_back_and_the_operator_is_told_once() {
        let capacity = Capacity::limited(2, "in a test".to_owned());
        let one = capacity.try_acquire().unwrap();
        let _other = capacity.try_acquire().unwrap();
        assert!(capacity.try_acquire().is_none() && capacity.try_acquire().is_none());
        drop(one);
        assert!(capacity.try_acquire().is_some());
        assert!(!capacity.shall_report(2));
        assert!(capacity.shall_report(3));
        assert!(!capacity.shall_report(3));
    }
}
