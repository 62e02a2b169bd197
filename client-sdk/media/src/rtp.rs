//! The fixed header of RTP (RFC 3550 section 5.1), which SRTP leaves in the clear, and sequence
//! numbers that do not wrap.

/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 12;
/// Version of RTP (RFC 3550, section 5.1).
const RTP_VERSION: u8 = 2;
/// Bit of the first byte that marks a header extension (RFC 3550, section 5.1).
const EXTENSION_FLAG: u8 = 0x10;
/// Profile of header extensions with headers of one byte (RFC 8285, section 4.2).
const ONE_BYTE_PROFILE: u16 = 0xbede;
/// Profile of header extensions with headers of two bytes (RFC 8285, section 4.3).
const TWO_BYTE_PROFILE: u16 = 0x1000;
/// The name of the extension with transport-wide numbers
/// (draft-holmer-rmcat-transport-wide-cc-extensions-01).
const TRANSPORT_WIDE: &str =
    "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";

/// The fields of an RTP header that this crate needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtpHeader {
    /// The payload's format; assigned by the application.
    pub payload_type: u8,
    /// Counts packets, modulo 2^16.
    pub sequence: u16,
    /// The time at which the payload was sampled, in the application's unit.
    pub timestamp: u32,
    /// The stream (SSRC).
    pub source: u32,
}

impl RtpHeader {
    /// Reads the header of a datagram; returns `None` if it is not RTP (RTCP is excluded, RFC 5761
    /// section 4).
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        let header = datagram.first_chunk::<HEADER_BYTES>()?;
        let payload_type = header[1] & 0x7f;
        if header[0] >> 6 != RTP_VERSION || (64..=95).contains(&payload_type) {
            return None;
        }
        Some(Self {
            payload_type,
            sequence: u16::from_be_bytes([header[2], header[3]]),
            timestamp: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            source: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
        })
    }

    /// Appends the header, without marker, padding, extension and contributing sources.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[RTP_VERSION << 6, self.payload_type & 0x7f]);
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.source.to_be_bytes());
    }
}

/// The value of a header extension (RFC 8285) of an RTP packet, with headers of one byte or of two;
/// `None` if the packet lacks this number.
pub fn header_extension(datagram: &[u8], number: u8) -> Option<&[u8]> {
    RtpHeader::decode(datagram).filter(|_| datagram[0] & EXTENSION_FLAG != 0)?;
    let sources = usize::from(datagram[0] & 0x0f);
    let rest = datagram.get(HEADER_BYTES + sources * 4..)?;
    let (head, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::from(u16::from_be_bytes([head[2], head[3]])) * 4;
    let mut elements = rest.get(..length)?;
    let profile = u16::from_be_bytes([head[0], head[1]]);
    loop {
        let (&first, tail) = elements.split_first()?;
        let (found, length, tail) = match (first, profile) {
            // Padding.
            (0, _) => {
                elements = tail;
                continue;
            }
            (15, ONE_BYTE_PROFILE) => return None,
            (_, ONE_BYTE_PROFILE) => (first >> 4, usize::from(first & 0x0f) + 1, tail),
            (_, profile) if profile & 0xfff0 == TWO_BYTE_PROFILE => {
                let (&length, tail) = tail.split_first()?;
                (first, usize::from(length), tail)
            }
            _ => return None,
        };
        let (value, tail) = tail.split_at_checked(length)?;
        if found == number {
            return Some(value);
        }
        elements = tail;
    }
}

/// The number of the header extension for transport-wide congestion control in a session
/// description (RFC 8285 section 8), if it has one.
pub fn transport_wide_extension(session_description: &str) -> Option<u8> {
    session_description.lines().find_map(|line| {
        let (number, name) = line.trim_end().strip_prefix("a=extmap:")?.split_once(' ')?;
        name.starts_with(TRANSPORT_WIDE).then_some(())?;
        // A direction may follow the number.
        number.split('/').next()?.parse().ok()
    })
}

/// Extends wrapping sequence numbers to non-wrapping ones: the nearest to the highest so far (RFC
/// 3711 section 3.3.1).
#[derive(Debug, Clone, Copy, Default)]
pub struct Extender {
    highest: Option<u64>,
    newest_time: Option<u64>,
}

impl Extender {
    /// The whole number; [`Self::accept`] must follow when the packet turns out to be authentic.
    pub fn extend(&self, sequence: u16) -> u64 {
        // The first number begins high enough that no later one is below zero.
        let highest = self.highest.unwrap_or((1 << 16) + u64::from(sequence));
        let difference = sequence.wrapping_sub(highest as u16) as i16;
        highest.saturating_add_signed(i64::from(difference))
    }

    /// The highest number so far.
    pub fn newest(&self) -> Option<u64> {
        self.highest
    }

    /// Extends the timestamps of authentic packets.
    pub fn extend_time(&mut self, timestamp: u32) -> u64 {
        let newest = self.newest_time.unwrap_or((1 << 32) + u64::from(timestamp));
        let difference = timestamp.wrapping_sub(newest as u32) as i32;
        let time = newest.saturating_add_signed(i64::from(difference));
        self.newest_time = Some(newest.max(time));
        time
    }

    /// A packet of this number is authentic.
    pub fn accept(&mut self, number: u64) {
        self.highest = Some(self.highest.map_or(number, |highest| highest.max(number)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_are_read_as_they_are_written_and_nothing_else_is_one() {
        let header =
            RtpHeader { payload_type: 96, sequence: 65535, timestamp: 7, source: 0xdead_beef };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        assert_eq!(RtpHeader::decode(&bytes), Some(header));
        assert_eq!(RtpHeader::decode(&bytes[..11]), None);
        bytes[0] = 0x40;
        assert_eq!(RtpHeader::decode(&bytes), None, "QUIC");
        assert_eq!(
            RtpHeader::decode(&[0x80, 200, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
            None,
            "an RTCP sender report"
        );
    }

    #[test]
    fn extensions_are_found_in_both_forms() {
        let packet = |profile: [u8; 2], elements: &[u8]| {
            let mut bytes = vec![0x91, 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 9, 9, 9, 9];
            bytes.extend_from_slice(&profile);
            bytes.extend_from_slice(&[0, (elements.len() / 4) as u8]);
            bytes.extend_from_slice(elements);
            bytes.push(8);
            bytes
        };
        let one = packet([0xbe, 0xde], &[0x10, 5, 0, 0x31, 1, 2, 0, 0]);
        assert_eq!(header_extension(&one, 1), Some(&[5][..]));
        assert_eq!(header_extension(&one, 3), Some(&[1, 2][..]));
        assert_eq!(header_extension(&one, 4), None);
        let two = packet([0x10, 0], &[1, 1, 5, 0, 3, 2, 1, 2]);
        assert_eq!(header_extension(&two, 3), Some(&[1, 2][..]));
        assert_eq!(header_extension(&one[..22], 3), None, "cut short");
        assert_eq!(
            header_extension(&packet([0xbe, 0xde], &[0x3f, 1, 2, 3]), 3),
            None,
            "longer than there is"
        );
    }

    #[test]
    fn a_session_description_names_the_extension() {
        let name = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
        let text = format!(
            "v=0\r\na=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level\r\na=extmap:4/recvonly {name}\r\n"
        );
        assert_eq!(transport_wide_extension(&text), Some(4));
        assert_eq!(transport_wide_extension("a=extmap:1 urn:x"), None);
    }

    proptest! {
        #[test]
        fn numbers_survive_wraps_and_reordering(start in any::<u16>(), steps in proptest::collection::vec(-200i64..300, 1..400)) {
            let mut extender = Extender::default();
            let first = extender.extend(start);
            extender.accept(first);
            let (mut number, mut highest) = (first, first);
            for step in steps {
                number = (number as i64 + step).clamp(first as i64, highest as i64 + 1000) as u64;
                prop_assume!(highest - number.min(highest) < 30_000);
                prop_assert_eq!(extender.extend(number as u16), number);
                extender.accept(number);
                highest = highest.max(number);
            }
        }
    }
}
