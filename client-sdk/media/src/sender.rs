//! The plain sender: numbers, seals and remembers units, and retransmits units on a receiver's
//! request. It has no knowledge of gateways.

use std::collections::VecDeque;

use packrat_wire::estimate::Timestamp;

use crate::receiver::ASKED_NUMBERS;
use crate::rtp::RtpHeader;
use crate::seal::{MediaKey, Opened, ReplayWindows, Run};

/// Payload type of media packets.
pub(crate) const MEDIA_TYPE: u8 = 96;
/// Payload type of retransmissions, which are a stream of their own (as with RFC 4588's session
/// multiplexing by source).
pub(crate) const RETRANSMISSION_TYPE: u8 = 97;
/// Payload type of a receiver's requests.
pub(crate) const REQUEST_TYPE: u8 = 98;
/// Payload type of the question whether a receiver is at its requests' source address, and of the
/// answer, which repeats it.
pub(crate) const ECHO_TYPE: u8 = 99;
/// Bytes of the question whether a receiver is at its requests' source address.
pub(crate) const CHALLENGE_BYTES: usize = 16;
/// Units that are remembered.
const REMEMBERED_UNITS: usize = 4096;

/// The form of the sender's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderConfig {
    /// Names the stream (SSRC); the next number names its retransmissions, the one after that the
    /// requests of receivers, and the one after that the sender's questions to them.
    pub source: u32,
    /// Each packet repeats the unit before its own.
    pub repeats: bool,
}

/// A receiver's message, authentic and heard for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heard {
    /// The receiver asks for these retransmissions; the list may be empty. Whether the receiver is
    /// at the message's source address is checked by [`Sender::challenge`].
    Asked(Vec<Vec<u8>>),
    /// The receiver repeats the bytes that [`Sender::challenge`] has sent to its address.
    Echo([u8; 16]),
}

/// The sender of a numbered, sealed stream, sans-IO.
///
/// ```
/// use packrat_media::{MediaKey, Sender, SenderConfig, Timestamp};
///
/// // An application takes both from the operating system; the key may be the last run's, the run
/// // may not.
/// let (key, run) = (MediaKey::new([7; 32]), [1; 16]);
/// let mut sender = Sender::new(SenderConfig { source: 9, repeats: false }, key, run);
/// let datagram = sender.send(b"sound", Timestamp::from_millis(1000));
/// assert!(datagram.is_some_and(|datagram| datagram.len() > 5));
/// ```
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    key: MediaKey,
    run: Run,
    requests: ReplayWindows,
    challenges: u64,
    next: u64,
    /// The last units with the time of their sampling; the newest has number `next - 1`.
    units: VecDeque<(u64, Vec<u8>)>,
    retransmissions: u64,
}

impl Sender {
    /// Creates a sender. `run`: 16 fresh random bytes from the operating system.
    pub fn new(config: SenderConfig, key: MediaKey, run: [u8; 16]) -> Self {
        Self {
            config,
            key,
            run: Run::new(run),
            requests: ReplayWindows::default(),
            challenges: 0,
            next: 0,
            units: VecDeque::new(),
            retransmissions: 0,
        }
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
            payload_type: MEDIA_TYPE,
            sequence: 0,
            timestamp: sent as u32,
            source: self.config.source,
        };
        let datagram = self.key.seal(self.run, &header, number, &payload)?;
        self.next += 1;
        self.units.push_back((sent, unit.to_vec()));
        if self.units.len() > REMEMBERED_UNITS {
            self.units.pop_front();
        }
        Some(datagram)
    }

    /// A datagram from a receiver; `None` when it is not authentic, or was heard before.
    pub fn on_datagram(&mut self, datagram: &[u8]) -> Option<Heard> {
        let header = RtpHeader::decode(datagram).filter(|header| {
            matches!(header.payload_type, REQUEST_TYPE | ECHO_TYPE)
                && header.source == self.config.source.wrapping_add(2)
        })?;
        let Opened { run, number, payload } = self.key.open(&header, datagram)?;
        if !self.requests.accept(run, number) {
            return None;
        }
        if header.payload_type == ECHO_TYPE {
            return Some(Heard::Echo(*payload.first_chunk()?));
        }
        let (numbers, _) = payload.as_chunks::<4>();
        let wanted = numbers.iter().take(ASKED_NUMBERS).map(|bytes| u32::from_be_bytes(*bytes));
        Some(Heard::Asked(wanted.filter_map(|low| self.retransmit(low)).collect()))
    }

    /// A question to a receiver's apparent address, which only a receiver there can answer, as
    /// [`Heard::Echo`]. `random`: fresh bytes from the operating system.
    pub fn challenge(&mut self, random: [u8; 16]) -> Option<Vec<u8>> {
        let header = RtpHeader {
            payload_type: ECHO_TYPE,
            sequence: 0,
            timestamp: 0,
            source: self.config.source.wrapping_add(3),
        };
        let datagram = self.key.seal(self.run, &header, self.challenges, &random)?;
        self.challenges += 1;
        Some(datagram)
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
            payload_type: RETRANSMISSION_TYPE,
            sequence: 0,
            timestamp: *sent as u32,
            source: self.config.source.wrapping_add(1),
        };
        let datagram = self.key.seal(self.run, &header, self.retransmissions, &payload)?;
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
