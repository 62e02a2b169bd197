//! Notices that the network is another one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use packrat_client::Timestamp;

/// The host is asked this often at most.
const INTERVAL: Duration = Duration::from_millis(100);
/// A host whose clock of the day has gone ahead of the other one by so much has slept.
const SLEEP: Duration = Duration::from_secs(3);

/// The address that datagrams to `target` would leave from; `None`: there is no route.
pub fn source_towards(target: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a UDP socket sends nothing: the system looks the route up, and takes the address
    // that belongs to it.
    let probe = UdpSocket::bind((any, 0)).ok()?;
    probe.connect(target).ok()?;
    Some(probe.local_addr().ok()?.ip())
}

/// The source address towards one service, as it was seen last.
#[derive(Debug, Default)]
pub(crate) struct Source {
    address: Option<IpAddr>,
    asked: Option<Timestamp>,
}

impl Source {
    /// True if it is another one than before. `ask` is called at most every 100 ms.
    pub(crate) fn has_changed(
        &mut self,
        now: Timestamp,
        ask: impl FnOnce() -> Option<IpAddr>,
    ) -> bool {
        if self.asked.is_some_and(|asked| now < asked + INTERVAL) {
            return false;
        }
        self.asked = Some(now);
        // No answer: there is no route now, and nothing leaves.
        let Some(address) = ask() else { return false };
        self.address.replace(address).is_some_and(|before| before != address)
    }
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
    fn another_source_address_is_another_network() {
        let mut source = Source::default();
        let mut ask = |millis: u64, address: Option<&str>| {
            let mut asked = false;
            let changed = source.has_changed(Timestamp::from_millis(millis), || {
                asked = true;
                address.map(|address| address.parse().unwrap())
            });
            (asked, changed)
        };
        assert_eq!(ask(0, Some("192.0.2.1")), (true, false), "the first one is no change");
        assert_eq!(ask(99, Some("192.0.2.2")), (false, false), "too soon");
        assert_eq!(ask(100, None), (true, false), "no route");
        assert_eq!(ask(200, Some("192.0.2.1")), (true, false), "the same network is back");
        assert_eq!(ask(300, Some("192.0.2.2")), (true, true));
        assert_eq!(ask(400, Some("192.0.2.2")), (true, false));
        let local = source_towards("127.0.0.1:9".parse().unwrap());
        assert_eq!(local, Some(Ipv4Addr::LOCALHOST.into()));
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
