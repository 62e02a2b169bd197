//! The few fields of an IPv4 packet that a router reads and a NAT changes.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Length of an IPv4 header without options.
const SHORTEST_HEADER: usize = 20;
/// IANA's protocol number of UDP.
const UDP_PROTOCOL: u8 = 17;

/// Address and port of one end of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Source address and port.
    Source,
    /// Destination address and port.
    Destination,
}

/// The source address, or `None` unless the packet is IPv4.
pub(crate) fn source_address(packet: &[u8]) -> Option<Ipv4Addr> {
    (header_length(packet).is_some()).then(|| address_at(packet, 12))
}

/// Address and port of one end of a UDP datagram's packet; `None` for anything else and for
/// fragments after the first.
pub(crate) fn udp_end(packet: &[u8], end: End) -> Option<SocketAddrV4> {
    let header = udp_header(packet)?;
    let (address, port) = offsets(end, header);
    Some(SocketAddrV4::new(address_at(packet, address), u16_at(packet, port)))
}

/// The payload of a UDP datagram's packet; `None` for anything else and for fragments after the
/// first.
pub(crate) fn udp_payload(packet: &[u8]) -> Option<&[u8]> {
    packet.get(udp_header(packet)? + 8..)
}

/// Writes another address and port into one end of a UDP datagram's packet and corrects both
/// checksums (RFC 1624).
pub(crate) fn set_udp_end(packet: &mut [u8], end: End, to: SocketAddrV4) {
    let Some(header) = udp_header(packet) else { return };
    let (address, port) = offsets(end, header);
    let checksum = header + 6;
    let old_port = u16_at(packet, port);
    let [a, b, c, d] = to.ip().octets();
    for (at, word) in
        [(address, u16::from_be_bytes([a, b])), (address + 2, u16::from_be_bytes([c, d]))]
    {
        let old = u16_at(packet, at);
        put_u16(packet, at, word);
        put_u16(packet, 10, updated(u16_at(packet, 10), old, word));
        put_udp_checksum(packet, checksum, old, word);
    }
    put_u16(packet, port, to.port());
    put_udp_checksum(packet, checksum, old_port, to.port());
}

/// Offsets of address and port of an end, in a packet whose UDP header is at `header`.
fn offsets(end: End, header: usize) -> (usize, usize) {
    match end {
        End::Source => (12, header),
        End::Destination => (16, header + 2),
    }
}

fn header_length(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    let length = usize::from(first & 0x0f) * 4;
    (first >> 4 == 4 && length >= SHORTEST_HEADER && packet.len() >= length).then_some(length)
}

/// Offset of the UDP header.
fn udp_header(packet: &[u8]) -> Option<usize> {
    let header = header_length(packet)?;
    let first_fragment = u16_at(packet, 6) & 0x1fff == 0;
    (packet[9] == UDP_PROTOCOL && first_fragment && packet.len() >= header + 8).then_some(header)
}

/// Writes a checksum. 0 means no checksum (RFC 768).
fn put_udp_checksum(packet: &mut [u8], at: usize, old: u16, new: u16) {
    let checksum = u16_at(packet, at);
    if checksum != 0 {
        let sum = updated(checksum, old, new);
        put_u16(packet, at, if sum == 0 { 0xffff } else { sum });
    }
}

/// The Internet checksum after one word has changed: RFC 1624, equation 3.
fn updated(checksum: u16, old: u16, new: u16) -> u16 {
    let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn address_at(packet: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3])
}

fn u16_at(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

fn put_u16(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The Internet checksum of RFC 1071, by its definition.
    fn checksum(words: impl Iterator<Item = u16>) -> u16 {
        let mut sum: u32 = words.map(u32::from).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
        bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]))
    }

    fn udp_checksum(packet: &[u8]) -> u16 {
        let datagram = &packet[20..];
        checksum(words(&packet[12..20]).chain([17, datagram.len() as u16]).chain(words(datagram)))
    }

    fn packet(source: SocketAddrV4, destination: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
        let length = 28 + payload.len();
        let mut packet = vec![0; 28];
        packet[0] = 0x45;
        put_u16(&mut packet, 2, length as u16);
        packet[8] = 64;
        packet[9] = UDP_PROTOCOL;
        packet[12..16].copy_from_slice(&source.ip().octets());
        packet[16..20].copy_from_slice(&destination.ip().octets());
        put_u16(&mut packet, 20, source.port());
        put_u16(&mut packet, 22, destination.port());
        put_u16(&mut packet, 24, (8 + payload.len()) as u16);
        packet.extend_from_slice(payload);
        let sum = checksum(words(&packet[..20]));
        put_u16(&mut packet, 10, sum);
        let sum = udp_checksum(&packet);
        put_u16(&mut packet, 26, if sum == 0 { 0xffff } else { sum });
        packet
    }

    fn address() -> impl Strategy<Value = SocketAddrV4> {
        (any::<[u8; 4]>(), any::<u16>()).prop_map(|(ip, port)| SocketAddrV4::new(ip.into(), port))
    }

    proptest! {
        #[test]
        fn a_rewritten_packet_is_as_if_it_had_been_sent_so(
            source in address(),
            destination in address(),
            to in address(),
            payload in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            for end in [End::Source, End::Destination] {
                let mut rewritten = packet(source, destination, &payload);
                set_udp_end(&mut rewritten, end, to);
                prop_assert_eq!(udp_end(&rewritten, end), Some(to));
                // A receiver adds everything up, checksum included, and expects zero.
                prop_assert_eq!(checksum(words(&rewritten[..20])), 0);
                prop_assert_eq!(udp_checksum(&rewritten), 0);
            }
        }

        #[test]
        fn anything_else_is_left_alone(bytes in proptest::collection::vec(any::<u8>(), 0..60), to in address()) {
            let mut after = bytes.clone();
            set_udp_end(&mut after, End::Source, to);
            if udp_end(&bytes, End::Source).is_none() {
                prop_assert_eq!(after, bytes);
            }
        }
    }
}
