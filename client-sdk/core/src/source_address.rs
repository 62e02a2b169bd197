//! The address that datagrams leave from: another one is another network.

use core::time::Duration;
use std::net::IpAddr;

use packrat_wire::estimate::Timestamp;

/// The source address of a path, as last reported by its host. Sans-IO: the shell asks the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceAddress {
    address: Option<IpAddr>,
    asked: Option<Timestamp>,
    /// The host had lost the address since.
    was_lost: bool,
}

impl SourceAddress {
    /// The host is asked this often at most.
    pub const INTERVAL: Duration = Duration::from_millis(100);

    /// Returns true if the address has changed: see [`crate::Input::NetworkChange`], before a
    /// datagram is sent from the new one. `ask` is called every 100 ms at most.
    pub fn has_changed(&mut self, now: Timestamp, ask: impl FnOnce() -> Option<IpAddr>) -> bool {
        if self.asked.is_some_and(|asked| now < asked + Self::INTERVAL) {
            return false;
        }
        self.asked = Some(now);
        // Without an answer there is no route now, and no datagram leaves.
        let Some(address) = ask() else { return false };
        let was_lost = core::mem::take(&mut self.was_lost);
        self.address.replace(address).is_some_and(|before| was_lost || before != address)
    }

    /// The host has lost this address: if the path has it, the network is another one when there is one
    /// again, even if the address there is the same.
    pub fn lose(&mut self, address: IpAddr) {
        self.was_lost |= self.address == Some(address);
    }

    /// The network may be another one: the host is asked the next time.
    pub fn doubt(&mut self) {
        self.asked = None;
    }

    /// The change is known already: this address is no further one.
    pub fn set(&mut self, address: Option<IpAddr>) {
        self.address = address;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_source_address_is_another_network() {
        let mut source = SourceAddress::default();
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
    }

    #[test]
    fn the_same_address_after_a_loss_is_another_network() {
        let (mut source, at) = (SourceAddress::default(), Timestamp::from_millis);
        let (own, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.9".parse().unwrap());
        assert!(!source.has_changed(at(0), || Some(own)));
        source.lose(other);
        assert!(!source.has_changed(at(100), || Some(own)));
        source.lose(own);
        assert!(!source.has_changed(at(200), || None), "no route");
        assert!(source.has_changed(at(300), || Some(own)));
        assert!(!source.has_changed(at(400), || Some(own)));
    }
}
