//! The plain sender: numbers, seals and remembers units, and sends those again that a receiver asks
//! for. It knows nothing of gateways.

use std::collections::VecDeque;

use packrat_wire::estimate::Timestamp;

use crate::receiver::MAXIMUM_ASKED;
use crate::rtp::RtpHeader;
use crate::seal::MediaKey;

/// Payload type of media packets.
pub(crate) const MEDIA: u8 = 96;
/// Payload type of retransmissions, which are a stream of their own (as with RFC 4588's session
/// multiplexing by source).
pub(crate) const RETRANSMISSION: u8 = 97;
/// Payload type of a receiver's requests.
pub(crate) const REQUEST: u8 = 98;
/// Units that are remembered.
const REMEMBERED: usize = 4096;

/// The form of the sender's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderConfig {
    /// Names the stream (SSRC); the next number names its retransmissions, the one after that the
    /// requests of receivers.
    pub source: u32,
    /// Each packet repeats the unit before its own.
    pub repeats: bool,
}

/// The sender of a numbered, sealed stream, sans-IO.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    key: MediaKey,
    next: u64,
    /// The last units with the time of their sampling; the newest has number `next - 1`.
    units: VecDeque<(u64, Vec<u8>)>,
    retransmissions: u64,
}

impl Sender {
    /// A sender that has sent nothing yet.
    pub fn new(config: SenderConfig, key: MediaKey) -> Self {
        Self { config, key, next: 0, units: VecDeque::new(), retransmissions: 0 }
    }

    /// The packet of a unit. `None`: the unit is too large to be sealed.
    pub fn send(&mut self, unit: &[u8], now: Timestamp) -> Option<Vec<u8>> {
        let sent = now.as_micros();
        let number = self.next;
        let mut payload = Vec::with_capacity(unit.len() * 2 + 2);
        if self.config.repeats {
            let before = self.units.back().map_or(&[][..], |(_, before)| before);
            payload.extend_from_slice(&u16::try_from(before.len()).ok()?.to_be_bytes());
            payload.extend_from_slice(before);
        }
        payload.extend_from_slice(unit);
        let header = RtpHeader {
            payload_type: MEDIA,
            sequence: 0,
            timestamp: sent as u32,
            source: self.config.source,
        };
        let datagram = self.key.seal(&header, number, &payload)?;
        self.next += 1;
        self.units.push_back((sent, unit.to_vec()));
        if self.units.len() > REMEMBERED {
            self.units.pop_front();
        }
        Some(datagram)
    }

    /// A datagram from a receiver: the retransmissions that it asks for, which may be none; `None`
    /// when it is not authentic.
    pub fn on_datagram(&mut self, datagram: &[u8]) -> Option<Vec<Vec<u8>>> {
        let header = RtpHeader::decode(datagram).filter(|header| {
            header.payload_type == REQUEST && header.source == self.config.source.wrapping_add(2)
        })?;
        let (_, asked) = self.key.open(&header, datagram)?;
        let (numbers, _) = asked.as_chunks::<4>();
        let wanted = numbers.iter().take(MAXIMUM_ASKED).map(|bytes| u32::from_be_bytes(*bytes));
        Some(wanted.filter_map(|low| self.retransmit(low)).collect())
    }

    fn retransmit(&mut self, low: u32) -> Option<Vec<u8>> {
        // The newest one with these lower bits.
        let behind = (self.next.checked_sub(1)? as u32).wrapping_sub(low);
        let index = self.units.len().checked_sub(1 + usize::try_from(behind).ok()?)?;
        let (sent, unit) = self.units.get(index)?;
        let mut payload = Vec::with_capacity(unit.len() + 4);
        payload.extend_from_slice(&low.to_be_bytes());
        payload.extend_from_slice(unit);
        let header = RtpHeader {
            payload_type: RETRANSMISSION,
            sequence: 0,
            timestamp: *sent as u32,
            source: self.config.source.wrapping_add(1),
        };
        let datagram = self.key.seal(&header, self.retransmissions, &payload)?;
        self.retransmissions += 1;
        Some(datagram)
    }

    /// Retransmissions sent.
    pub fn retransmissions(&self) -> u64 {
        self.retransmissions
    }

    /// Packets sent, retransmissions not counted.
    pub fn packets(&self) -> u64 {
        self.next
    }
}
