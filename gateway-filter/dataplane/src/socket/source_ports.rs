//! The ports from which the gateway speaks to servers: the range from which the host chooses the
//! ports of sockets, except reserved ports and the ports that the gateway listens on.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ports of a word in [`SourcePorts::listening`].
const WORD_PORTS: usize = 64;
/// Words for all ports.
const PORT_WORDS: usize = (1 << 16) / WORD_PORTS;

/// The ports that an upstream socket may ask for.
#[derive(Debug)]
pub(crate) struct SourcePorts {
    /// `net.ipv4.ip_local_port_range`.
    range: RangeInclusive<u16>,
    /// `net.ipv4.ip_local_reserved_ports`: kept for services of the host. The kernel itself never
    /// gives them away, but does not refuse a request for one.
    reserved: Vec<RangeInclusive<u16>>,
    /// Ports that the gateway listens on, or has listened on: a listener that is replaced must find
    /// its port free. One bit each.
    listening: Box<[AtomicU64]>,
}

impl SourcePorts {
    /// Source ports of the host, as they are now.
    pub(crate) fn of_host() -> Self {
        let read = |name: &str| {
            std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default()
        };
        let range = parse_range(&read("ip_local_port_range")).unwrap_or(32_768..=60_999);
        Self::new(range, parse_list(&read("ip_local_reserved_ports")))
    }

    pub(crate) fn new(range: RangeInclusive<u16>, reserved: Vec<RangeInclusive<u16>>) -> Self {
        let listening = std::iter::repeat_with(AtomicU64::default).take(PORT_WORDS).collect();
        Self { range, reserved, listening }
    }

    /// The host's range of ephemeral ports; not all of them may be used.
    pub(crate) const fn range(&self) -> &RangeInclusive<u16> {
        &self.range
    }

    /// True if an upstream socket may ask for this port.
    pub(crate) fn contains(&self, port: u16) -> bool {
        self.range.contains(&port) && !self.is_reserved(port) && !self.is_listened_on(port)
    }

    /// Never again asks for this port: the gateway listens on it.
    pub(crate) fn exclude(&self, port: u16) {
        if let Some(word) = self.listening.get(usize::from(port) / WORD_PORTS) {
            word.fetch_or(1 << (usize::from(port) % WORD_PORTS), Ordering::Relaxed);
        }
    }

    /// The number of ports that the kernel may give.
    pub(crate) fn count(&self) -> u64 {
        self.range.clone().filter(|port| !self.is_reserved(*port)).count() as u64
    }

    fn is_reserved(&self, port: u16) -> bool {
        self.reserved.iter().any(|range| range.contains(&port))
    }

    fn is_listened_on(&self, port: u16) -> bool {
        let word = self.listening.get(usize::from(port) / WORD_PORTS);
        word.is_some_and(|word| {
            word.load(Ordering::Relaxed) >> (usize::from(port) % WORD_PORTS) & 1 == 1
        })
    }
}

fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut numbers = text.split_whitespace().map(|number| number.parse::<u16>().ok());
    let (first, last) = (numbers.next()??, numbers.next()??);
    (first > 0 && first <= last).then_some(first..=last)
}

/// A list such as `8080,9000-9010`.
fn parse_list(text: &str) -> Vec<RangeInclusive<u16>> {
    let range = |part: &str| {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(',').filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_two_numbers_in_order() {
        assert_eq!(parse_range("32768\t60999\n"), Some(32_768..=60_999));
        assert_eq!(parse_range("9 1"), None);
    }

    #[test]
    fn a_list_has_ports_and_ranges_and_may_be_empty() {
        assert_eq!(parse_list("8080,9148-9150\n"), [8080..=8080, 9148..=9150]);
        assert_eq!(parse_list("\n"), []);
    }

    #[test]
    fn reserved_ports_and_listeners_are_left_out() {
        let ports = SourcePorts::new(1000..=1099, vec![1010..=1019, 5000..=6000]);
        assert_eq!(ports.count(), 90);
        ports.exclude(1063);
        let allowed: Vec<u16> = (0..=u16::MAX).filter(|port| ports.contains(*port)).collect();
        assert_eq!(allowed.len(), 89);
        assert!(!allowed.contains(&1010) && !allowed.contains(&1063) && allowed.contains(&1064));
    }
}
