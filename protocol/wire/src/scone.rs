//! The SCONE packet in front of a datagram's QUIC packets (draft-ietf-scone-protocol-08).
//!
//! ```text
//!   0        1        2        3        4        5
//!  +--------+--------+--------+--------+--------+---+-----------------+---+-----------+----------
//!  |1.rrrrrr|rSCONE's version, 0x6f7dc0fd       | n | destination (n) | m | source (m)| packets
//!  +--------+--------+--------+--------+--------+---+-----------------+---+-----------+----------
//! ```
//!
//! A network on the path writes its advice about the rate into the bits `r`, so these bytes differ
//! at the two ends, and may only be first in a datagram. Therefore an identifier is that of the
//! packets behind them, and a datagram with them has no number in front and no place: it is in no
//! symbol either.

/// The version with its highest bit, which is the lowest one of the advice, set to 0.
const VERSION: u32 = 0x6f7d_c0fd;
/// The bit of the version that belongs to the advice.
const VERSION_ADVICE_BIT: u32 = 1 << 31;
/// The bit of the first byte that long headers have (RFC 8999, section 5.1).
const LONG_HEADER_BIT: u8 = 0x80;

/// Splits a datagram into its SCONE packet and the packets behind it. `None`: it does not begin
/// with a whole SCONE packet.
#[inline]
pub fn split(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[first, version @ ..], rest) = datagram.split_first_chunk::<5>()?;
    let is_scone = first & LONG_HEADER_BIT != 0
        && u32::from_be_bytes(version) & !VERSION_ADVICE_BIT == VERSION;
    if !is_scone {
        return None;
    }
    let rest = behind_connection_id(behind_connection_id(rest)?)?;
    datagram.split_at_checked(datagram.len() - rest.len())
}

/// The datagram without its SCONE packet, if it has one.
#[inline]
pub fn behind(datagram: &[u8]) -> &[u8] {
    split(datagram).map_or(datagram, |(_, packets)| packets)
}

/// True if a datagram begins with a SCONE packet.
#[inline]
pub fn leads(datagram: &[u8]) -> bool {
    split(datagram).is_some()
}

fn behind_connection_id(bytes: &[u8]) -> Option<&[u8]> {
    let (&length, rest) = bytes.split_first()?;
    rest.get(usize::from(length)..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identifier::{IdentifierKey, IdentifierScheme};

    /// A SCONE packet with the advice "unknown".
    fn scone(destination: &[u8], source: &[u8]) -> Vec<u8> {
        let (to, from) = ([destination.len() as u8], [source.len() as u8]);
        [&[0xff, 0xef, 0x7d, 0xc0, 0xfd][..], &to, destination, &from, source].concat()
    }

    #[test]
    fn the_packet_and_its_rest_are_split() {
        for (destination, source) in
            [(&[7; 8][..], &[][..]), (&[], &[9; 20]), (&[1; 255], &[2; 255])]
        {
            let packet = scone(destination, source);
            let datagram = [&packet[..], b"\x40packets"].concat();
            assert_eq!(split(&datagram), Some((&packet[..], &b"\x40packets"[..])));
            assert_eq!(split(&packet), Some((&packet[..], &[][..])));
            assert!((0..packet.len()).all(|length| !leads(&packet[..length])), "it is cut off");
        }
    }

    #[test]
    fn another_version_or_a_short_header_is_no_scone() {
        let datagram = [&scone(&[7; 8], &[])[..], &[0x40; 40]].concat();
        for (byte, bits) in [(0, 0x80), (1, 0x40), (2, 1), (3, 1), (4, 1)] {
            let mut other = datagram.clone();
            other[byte] ^= bits;
            assert_eq!((split(&other), behind(&other)), (None, &other[..]), "byte {byte}");
        }
    }

    #[test]
    fn each_bit_of_the_advice_leaves_the_identifier() {
        let key = IdentifierKey::new([1, 2, 3]);
        let packets: Vec<u8> = (0x40..0x60).collect();
        // Packets shorter than a tag, and with zeros at their end, are hashed.
        for packets in [&packets[..], &packets[..9], &[&packets[..], &[0; 20]].concat()] {
            let sent = [&scone(&[7; 8], &[])[..], packets].concat();
            for scheme in [IdentifierScheme::Trailer, IdentifierScheme::Payload] {
                let identifier = key.identify(scheme, &sent);
                let bits = (0..6).map(|bit| (0, 1 << bit)).chain([(1, 0x80)]);
                for (byte, bit) in bits {
                    let mut rewritten = sent.clone();
                    rewritten[byte] ^= bit;
                    assert_eq!(key.identify(scheme, &rewritten), identifier, "{byte} {bit}");
                }
                assert_eq!(key.identify(scheme, packets), identifier);
            }
        }
    }
}
