//! Finding the ACK frame among the frames of a QUIC packet, and writing another in its place (RFC
//! 9000 section 19).

/// Where an ACK frame lies and what it says beside its ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AckFrame {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Highest packet number acknowledged.
    pub(crate) largest: u64,
    /// ECN counts: ECT(0), ECT(1), CE.
    pub(crate) ecn: Option<[u64; 3]>,
}

/// The frames could not be understood: leave the packet alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotUnderstood;

struct Frames<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Frames<'_> {
    fn byte(&mut self) -> Result<u8, NotUnderstood> {
        let byte = *self.bytes.get(self.position).ok_or(NotUnderstood)?;
        self.position += 1;
        Ok(byte)
    }

    /// RFC 9000 section 16.
    fn varint(&mut self) -> Result<u64, NotUnderstood> {
        let first = self.byte()?;
        let mut value = u64::from(first & 0x3f);
        for _ in 1..1usize << (first >> 6) {
            value = value << 8 | u64::from(self.byte()?);
        }
        Ok(value)
    }

    fn skip(&mut self, length: u64) -> Result<(), NotUnderstood> {
        let end = usize::try_from(length).ok().and_then(|length| self.position.checked_add(length));
        self.position = end.filter(|end| *end <= self.bytes.len()).ok_or(NotUnderstood)?;
        Ok(())
    }

    fn skip_varints(&mut self, count: usize) -> Result<(), NotUnderstood> {
        (0..count).try_for_each(|_| self.varint().map(drop))
    }

    fn skip_prefixed(&mut self) -> Result<(), NotUnderstood> {
        let length = self.varint()?;
        self.skip(length)
    }
}

/// The first ACK frame of a 1-RTT packet's plaintext, if there is one.
pub(crate) fn find(frames: &[u8]) -> Result<Option<AckFrame>, NotUnderstood> {
    let mut reader = Frames { bytes: frames, position: 0 };
    while reader.position < frames.len() {
        let start = reader.position;
        match reader.varint()? {
            // PADDING, PING, HANDSHAKE_DONE
            0x00 | 0x01 | 0x1e => {}
            kind @ (0x02 | 0x03) => {
                let largest = reader.varint()?;
                let _delay = reader.varint()?;
                let ranges = reader.varint()?;
                let _first = reader.varint()?;
                for _ in 0..ranges {
                    reader.skip_varints(2)?;
                }
                let ecn = match kind {
                    0x03 => Some([reader.varint()?, reader.varint()?, reader.varint()?]),
                    _ => None,
                };
                return Ok(Some(AckFrame { start, end: reader.position, largest, ecn }));
            }
            // RESET_STREAM
            0x04 => reader.skip_varints(3)?,
            // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED
            0x05 | 0x11 | 0x15 => reader.skip_varints(2)?,
            // CRYPTO
            0x06 => {
                reader.skip_varints(1)?;
                reader.skip_prefixed()?;
            }
            // NEW_TOKEN, DATAGRAM with a length
            0x07 | 0x31 => reader.skip_prefixed()?,
            // STREAM: bit 2 offset, bit 1 length; without a length it reaches to the end of the
            // packet
            kind @ 0x08..=0x0f => {
                reader.skip_varints(1 + usize::from(kind & 4 != 0))?;
                if kind & 2 == 0 {
                    return Ok(None);
                }
                reader.skip_prefixed()?;
            }
            // MAX_DATA, MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED, RETIRE_CONNECTION_ID
            0x10 | 0x12 | 0x13 | 0x14 | 0x16 | 0x17 | 0x19 => reader.skip_varints(1)?,
            // NEW_CONNECTION_ID: sequence, retire prior to, length, id, stateless reset token
            0x18 => {
                reader.skip_varints(2)?;
                let length = reader.byte()?;
                reader.skip(u64::from(length) + 16)?;
            }
            // PATH_CHALLENGE, PATH_RESPONSE
            0x1a | 0x1b => reader.skip(8)?,
            // CONNECTION_CLOSE: error, the frame's type (of the transport only), reason
            kind @ (0x1c | 0x1d) => {
                reader.skip_varints(if kind == 0x1c { 2 } else { 1 })?;
                reader.skip_prefixed()?;
            }
            // DATAGRAM without a length reaches to the end
            0x30 => return Ok(None),
            _ => return Err(NotUnderstood),
        }
    }
    Ok(None)
}

/// Appends an ACK frame. `ranges`: inclusive, descending, not empty. `delay`: in the units of the
/// sender's ack_delay_exponent.
pub(crate) fn write(ranges: &[(u64, u64)], delay: u64, ecn: Option<[u64; 3]>, out: &mut Vec<u8>) {
    let Some((&(start, end), rest)) = ranges.split_first() else { return };
    put_varint(out, if ecn.is_some() { 3 } else { 2 });
    put_varint(out, end);
    put_varint(out, delay);
    put_varint(out, rest.len() as u64);
    put_varint(out, end - start);
    let mut lowest = start;
    for &(start, end) in rest {
        put_varint(out, lowest - end - 2);
        put_varint(out, end - start);
        lowest = start;
    }
    for count in ecn.into_iter().flatten() {
        put_varint(out, count);
    }
}

fn put_varint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_frames_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = find(&bytes);
        }

        #[test]
        fn what_is_written_is_found(gaps in proptest::collection::vec((0u64..100_000, 0u64..5000), 1..20), delay in 0u64..1 << 20,
                                     ecn in proptest::option::of([0u64..1 << 30, 0u64..100, 0u64..100])) {
            let mut ranges = Vec::new();
            let mut next = 0;
            for (gap, length) in gaps {
                ranges.push((next + gap, next + gap + length));
                next += gap + length + 2;
            }
            ranges.reverse();
            // PING, MAX_DATA, then the ACK, then a STREAM frame.
            let mut frames = vec![0x01, 0x10, 0x44, 0x00];
            write(&ranges, delay, ecn, &mut frames);
            let end = frames.len();
            frames.extend_from_slice(&[0x08, 0x00, 1, 2, 3]);
            prop_assert_eq!(find(&frames), Ok(Some(AckFrame { start: 4, end, largest: ranges[0].1, ecn })));
        }
    }

    #[test]
    fn a_packet_without_an_ack_has_none() {
        assert_eq!(find(&[0x01, 0x00, 0x00]), Ok(None));
        assert_eq!(find(&[0x0a, 0x04, 0x02, 9, 9, 0x01]), Ok(None));
        assert_eq!(find(&[0x21]), Err(NotUnderstood));
        assert_eq!(find(&[0x06, 0x00, 0x3f]), Err(NotUnderstood));
    }
}
