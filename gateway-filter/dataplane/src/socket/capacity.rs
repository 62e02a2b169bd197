//! The number of sessions that this process can hold: each of them needs a descriptor and a source
//! port of its own. Without a limit the last session would take the descriptor that a listener, a
//! timer or the metrics need.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use super::source_ports::SourcePorts;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Descriptors, and ports, that stay free for everything else in the process and on the host; of
/// few, half.
const RESERVED_PLACES: u64 = 512;
/// Sessions that one source may have in any case.
const SMALLEST_SHARE: u64 = 64;
/// Divisor of the share of one source, which gets a fourth of the places or less.
const SHARE_DIVISOR: u64 = 4;
/// Bits of an IPv6 address that make a source: what a provider gives to one customer, at most.
const IPV6_SOURCE_BITS: u32 = 48;

/// The descriptors and ports that the sessions of all routes share.
#[derive(Debug)]
pub(crate) struct Capacity {
    /// Most sessions at once.
    sessions: u64,
    /// The scarcer of both, and how an operator can change that.
    reason: String,
    taken: AtomicU64,
    reported: AtomicBool,
    /// Sessions by the source that opened them.
    sources: Mutex<HashMap<IpAddr, u64>>,
}

/// The room in a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RouteRoom {
    /// Sessions of the route.
    pub(crate) taken: u64,
    /// Most sessions of the route.
    pub(crate) limit: u64,
    /// The most that a source may have, once there is little room.
    pub(crate) per_source: u64,
}

/// The reason why there is no room for a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoom {
    #[error("{0}")]
    Process(String),
    #[error(
        "the source has {0} sessions, its share while half of all are taken (raise sessions_per_source if many clients have one address)"
    )]
    Source(u64),
}

/// The right to one upstream socket; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct FlowPermit {
    capacity: Arc<Capacity>,
    source: IpAddr,
}

impl Drop for FlowPermit {
    fn drop(&mut self) {
        let mut sources = self.capacity.sources.lock();
        self.capacity.taken.fetch_sub(1, Ordering::Relaxed);
        if let Entry::Occupied(mut count) = sources.entry(self.source) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The source that an address belongs to: an IPv4 address, or a network of IPv6.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::MAX << (128 - IPV6_SOURCE_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & network))
        }
        address => address,
    }
}

impl Capacity {
    /// The capacity of this process, with `descriptors` as the limit of open files.
    pub(crate) fn of_process(descriptors: &io::Result<u64>) -> Arc<Self> {
        // If it is not known, the ports are also a limit.
        let descriptors = descriptors.as_ref().ok().copied().unwrap_or(u64::MAX);
        Self::new(descriptors, SourcePorts::of_host().count())
    }

    fn new(descriptors: u64, port_count: u64) -> Arc<Self> {
        let without_reserve = |all: u64| all - RESERVED_PLACES.min(all / 2);
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
            sources: Mutex::default(),
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

    /// Sessions now.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Admits another session for a client at `address`, within the limit. When half of the process
    /// or of the route is taken, its source's share is a second limit.
    pub(crate) fn try_acquire(
        self: &Arc<Self>,
        address: IpAddr,
        route: RouteRoom,
    ) -> Result<FlowPermit, NoRoom> {
        let source = source_of(address);
        let share = self.sessions.min(route.limit) / SHARE_DIVISOR;
        let share = route.per_source.min(share).max(SMALLEST_SHARE);
        let mut sources = self.sources.lock();
        // Under the lock, so that threads that come at once do not all find it empty enough.
        let is_crowded = self.taken() * 2 >= self.sessions || route.taken * 2 >= route.limit;
        let count = sources.get(&source).copied().unwrap_or_default();
        if is_crowded && count >= share {
            return Err(NoRoom::Source(count));
        }
        let one_more = |taken: u64| (taken < self.sessions).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .map_err(|_| NoRoom::Process(self.reason.clone()))?;
        sources.insert(source, count + 1);
        Ok(FlowPermit { capacity: Arc::clone(self), source })
    }

    /// True if a report is due, for the first time, that `configured` sessions are more than there
    /// can be.
    pub(crate) fn shall_report(&self, configured: u64) -> bool {
        configured > self.sessions && !self.reported.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: RouteRoom = RouteRoom { taken: 0, limit: 100_000, per_source: 4096 };

    #[test]
    fn a_source_gets_free_capacity_and_only_its_share_of_the_rest() {
        let capacity = Capacity::limited(1000, String::new());
        // All of it is one source: an IPv4 address, and a network of IPv6.
        let addresses: [fn(usize) -> String; 2] =
            [|_| "192.0.2.1".to_owned(), |number| format!("2001:db8:1:{number:x}::1")];
        for address in addresses {
            let mut permits = Vec::new();
            let refusal = loop {
                let address = address(permits.len()).parse().unwrap();
                match capacity.try_acquire(address, ROOM) {
                    Ok(permit) => permits.push(permit),
                    Err(refusal) => break refusal,
                }
            };
            assert_eq!((permits.len(), &refusal), (500, &NoRoom::Source(500)));
            // Others, which have little, still get something.
            for other in 0..100u8 {
                let permit = capacity.try_acquire([198, 51, 100, other].into(), ROOM);
                permits.push(permit.unwrap());
            }
            let second = (0..400).map(|_| capacity.try_acquire([203, 0, 113, 1].into(), ROOM));
            permits.extend(second.map_while(Result::ok));
            assert_eq!(permits.len(), 600 + 1000 / SHARE_DIVISOR as usize);
            drop(permits);
            assert_eq!(capacity.taken(), 0);
            assert!(capacity.sources.lock().is_empty());
        }
    }

    #[test]
    fn a_crowded_route_has_shares_of_its_own() {
        let capacity = Capacity::limited(100_000, String::new());
        let crowded = RouteRoom { taken: 100, limit: 200, per_source: 4096 };
        let acquire = |room| capacity.try_acquire([192, 0, 2, 1].into(), room);
        let _permits: Vec<_> = (0..SMALLEST_SHARE).map(|_| acquire(crowded).unwrap()).collect();
        assert_eq!(acquire(crowded).unwrap_err(), NoRoom::Source(SMALLEST_SHARE));
        assert!(acquire(ROOM).is_ok());
        assert!(capacity.try_acquire([192, 0, 2, 2].into(), crowded).is_ok());
    }

    #[test]
    fn the_scarcer_of_descriptors_and_ports_decides() {
        let ports = 28_232;
        let capacity = Capacity::new(1_048_576, ports);
        assert_eq!(capacity.sessions(), 28_232 - 512);
        assert!(capacity.reason().contains("28232 ephemeral ports"));
        let capacity = Capacity::new(4096, ports);
        assert_eq!(capacity.sessions(), 4096 - 512);
        assert!(capacity.reason().contains("4096 files"));
        assert_eq!(Capacity::new(256, ports).sessions(), 128);
        assert!(Capacity::of_process(&Err(io::Error::other("unknown"))).reason().contains("ports"));
    }

    #[test]
    fn permits_are_given_back_and_the_operator_is_told_once() {
        let capacity = Capacity::limited(2, "in a test".to_owned());
        let acquire = || capacity.try_acquire([192, 0, 2, 1].into(), ROOM);
        let one = acquire().unwrap();
        let _other = acquire().unwrap();
        assert_eq!(acquire().unwrap_err(), NoRoom::Process("in a test".to_owned()));
        drop(one);
        assert!(acquire().is_ok());
        assert!(!capacity.shall_report(2));
        assert!(capacity.shall_report(3));
        assert!(!capacity.shall_report(3));
    }
}
