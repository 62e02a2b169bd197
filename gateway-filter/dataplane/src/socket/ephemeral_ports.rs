//! The ports that the host gives to sockets of its own accord.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

/// The host's range of ephemeral ports, as it was when the process began.
pub(crate) fn ephemeral_ports() -> &'static RangeInclusive<u16> {
    static EPHEMERAL: OnceLock<RangeInclusive<u16>> = OnceLock::new();
    EPHEMERAL.get_or_init(|| {
        let text =
            std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        parse_range(&text).unwrap_or(32_768..=60_999)
    })
}

fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut numbers = text.split_whitespace().map(|number| number.parse::<u16>().ok());
    let (first, last) = (numbers.next()??, numbers.next()??);
    (first > 0 && first <= last).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_two_numbers_in_order() {
        assert_eq!(parse_range("32768\t60999\n"), Some(32_768..=60_999));
        assert_eq!(parse_range("9 1"), None);
    }
}
