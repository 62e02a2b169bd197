//! Notices that the network is another one.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use packrat_socket::source_towards;

/// A host whose clock of the day has gone ahead of the other one by so much has slept.
const SLEEP: Duration = Duration::from_secs(3);

/// The first address that there is a route to, or the first one.
pub fn choose(found: impl IntoIterator<Item = SocketAddr>) -> Option<SocketAddr> {
    let found: Vec<_> = found.into_iter().collect();
    let reached = found.iter().find(|address| source_towards(**address).is_some());
    reached.or(found.first()).copied()
}

/// True for an address of this host's: the system lets a socket have it.
pub(crate) fn is_of_this_host(address: IpAddr) -> bool {
    UdpSocket::bind((address.to_canonical(), 0)).is_ok()
}

/// The two clocks, as they were seen last: the one of the day goes on while the host sleeps.
#[derive(Debug)]
pub(crate) struct Wakefulness {
    steady: Instant,
    of_day: SystemTime,
}

impl Wakefulness {
    pub(crate) fn new(steady: Instant, of_day: SystemTime) -> Self {
        Self { steady, of_day }
    }

    /// True if the host has slept since the last call. A clock that was set looks the same, and
    /// costs a message to the gateway.
    pub(crate) fn has_slept(&mut self, steady: Instant, of_day: SystemTime) -> bool {
        let passed = steady.saturating_duration_since(self.steady);
        let of_day_passed = of_day.duration_since(self.of_day).unwrap_or_default();
        *self = Self { steady, of_day };
        of_day_passed.saturating_sub(passed) >= SLEEP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_its_addresses_and_no_others() {
        assert!(is_of_this_host([127, 0, 0, 2].into()));
        // RFC 5737, for documents.
        assert!(!is_of_this_host([192, 0, 2, 1].into()));
    }

    #[test]
    fn a_host_that_has_slept_shows_by_its_clock() {
        let (steady, of_day) = (Instant::now(), SystemTime::now());
        let mut wakefulness = Wakefulness::new(steady, of_day);
        let seconds = Duration::from_secs;
        assert!(!wakefulness.has_slept(steady + seconds(60), of_day + seconds(61)));
        assert!(wakefulness.has_slept(steady + seconds(61), of_day + seconds(600)));
        assert!(!wakefulness.has_slept(steady + seconds(62), of_day + seconds(10)), "set back");
    }
}
