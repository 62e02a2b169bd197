//! A receiver joined to Packrat's client: datagrams in, units and control datagrams out, sans-IO.

use core::time::Duration;
use std::collections::VecDeque;

use packrat_client::{Access, Assist, AssistStats, ClientConfig, Datagram, Live, PacketNumber};
use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::IdentifierScheme;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::receiver::{Receiver, ReceiverConfig, Unit};
use crate::rtp::{Extender, RtpHeader};
use crate::seal::{MediaKey, Opened, ReplayWindows, Run};
use crate::sender::{CHALLENGE_BYTES, ECHO_TYPE, MEDIA_TYPE, REQUEST_TYPE, RETRANSMISSION_TYPE};
use crate::statistics::Statistics;

/// Retransmissions whose numbers are remembered.
const REMEMBERED_RETRANSMISSIONS: usize = 256;
/// Answers to the sender's questions that wait to be sent.
const WAITING_ECHOES: usize = 8;
/// Silence of a sender's run after which another one is its successor.
const SUCCESSION_SILENCE: Duration = Duration::from_secs(1);

/// Assistance of a stream's receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assistance {
    /// Send this to a gateway's stream to get a copy of it.
    pub subscribe: bool,
    /// True if the sender is asked only after the gateway had its chance. Otherwise it is asked at
    /// once, and also retransmits the packets that the gateway repairs.
    pub hold: bool,
    /// True if eACKs are sent for holes only; otherwise every 24 datagrams or 15 ms.
    pub selective: bool,
    /// The gateway's key, the token, the longest hold.
    pub access: Access,
}

impl Default for Assistance {
    fn default() -> Self {
        Self { subscribe: false, hold: true, selective: true, access: Access::default() }
    }
}

impl Assistance {
    /// The client core for a stream: its settings follow from the receiver's latency and patience.
    pub(crate) fn assist(
        &self,
        scheme: IdentifierScheme,
        receiver: &ReceiverConfig,
        seed: [u8; 32],
        now: Timestamp,
    ) -> Assist {
        let window = receiver.latency + receiver.patience;
        let live = Live {
            selective: self.selective,
            subscribe: self.subscribe,
            window,
            tolerance: receiver.latency,
            symbols: self.subscribe,
        };
        let hold = if self.hold { self.access.maximum_hold.min(window) } else { Duration::ZERO };
        let config = ClientConfig::from(self.access.clone().with_maximum_hold(hold));
        Assist::new(config.with_scheme(scheme).with_live(live), seed, now)
    }
}

/// The receiver of a stream of [`crate::Sender`], with or without a gateway's assistance.
///
/// ```
/// use packrat_media::{
///     Assistance, MediaKey, MediaReceiver, ReceiverConfig, Sender, SenderConfig, Timestamp,
/// };
///
/// // An application takes key and seeds from the operating system.
/// let (now, key) = (Timestamp::from_millis(1000), || MediaKey::new([7; 32]));
/// let mut sender = Sender::new(SenderConfig { source: 9, repeats: false }, key(), [2; 16]);
/// let assistance = Assistance::default();
/// let config = ReceiverConfig::default();
/// let mut receiver = MediaReceiver::new(9, config, key(), Some(&assistance), [1; 32], now);
///
/// // The shell moves the datagrams, and calls `handle_timeout` at `next_timeout`.
/// let question = receiver.poll_transmit(now);
/// assert!(question.is_some(), "for a gateway");
/// receiver.on_datagram(&sender.send(b"sound", now).unwrap(), now);
/// let late = now + config.latency;
/// assert_eq!(receiver.poll_unit(late).map(|unit| unit.bytes), Some(b"sound".to_vec()));
/// ```
#[derive(Debug)]
pub struct MediaReceiver {
    source: u32,
    repeats: bool,
    key: MediaKey,
    receiver: Receiver,
    assist: Option<Assist>,
    media: Extender,
    /// The sender's run that is followed, and when it was heard last.
    followed: Option<(Run, Timestamp)>,
    /// Offset of the numbers for the client core, which continue when a sender restarts.
    base: u64,
    /// Numbers of the last retransmissions: a repair of one is no second one.
    retransmitted: VecDeque<u64>,
    /// This receiver's own run, and the number of its next request.
    run: Run,
    requests: u64,
    challenges: ReplayWindows,
    /// Answers to the sender's questions.
    echoes: VecDeque<Vec<u8>>,
    asked: Vec<u64>,
    refused: u64,
}

impl MediaReceiver {
    /// Creates a receiver. `source`: the stream's identifier, as at the sender. `seed`: 32 fresh
    /// random bytes from the operating system.
    pub fn new(
        source: u32,
        config: ReceiverConfig,
        key: MediaKey,
        assistance: Option<&Assistance>,
        seed: [u8; 32],
        now: Timestamp,
    ) -> Self {
        Self {
            source,
            repeats: config.repeats,
            key,
            receiver: Receiver::new(config),
            assist: assistance
                .map(|assistance| assistance.assist(IdentifierScheme::Trailer, &config, seed, now)),
            media: Extender::default(),
            followed: None,
            base: 0,
            retransmitted: VecDeque::new(),
            run: Run::new(run(&seed)),
            requests: 0,
            challenges: ReplayWindows::default(),
            echoes: VecDeque::new(),
            asked: Vec::new(),
            refused: 0,
        }
    }

    /// A datagram arrived.
    pub fn on_datagram(&mut self, datagram: &[u8], now: Timestamp) {
        if let Some(assist) = &mut self.assist
            && assist.on_datagram(datagram, now) == Datagram::Control
        {
            return self.take_recovered(now);
        }
        self.on_media(datagram, now);
        self.take_recovered(now);
    }

    /// Passes on datagrams that symbols have recovered, as ones that have arrived.
    fn take_recovered(&mut self, now: Timestamp) {
        while let Some(datagram) = self.assist.as_mut().and_then(Assist::poll_recovered) {
            if let Some(assist) = &mut self.assist {
                assist.on_datagram(&datagram, now);
            }
            self.on_media(&datagram, now);
        }
    }

    /// A datagram that is no control datagram.
    fn on_media(&mut self, datagram: &[u8], now: Timestamp) {
        match self.on_packet(datagram, now) {
            Some(number) => {
                let index = number.and_then(|number| self.index(number));
                match (&mut self.assist, index) {
                    (Some(assist), Some(index)) => {
                        assist.on_packet_number(PacketNumber::new(index), now);
                    }
                    (Some(assist), None) => assist.on_authentic(now),
                    (None, _) => {}
                }
            }
            None => self.refused += 1,
        }
    }

    /// The number of an authentic packet, if it is not a retransmission; otherwise `None`.
    fn on_packet(&mut self, datagram: &[u8], now: Timestamp) -> Option<Option<u64>> {
        let header = RtpHeader::decode(datagram)?;
        match (header.payload_type, header.source.wrapping_sub(self.source)) {
            (MEDIA_TYPE, 0) => {
                let Opened { run, number, payload } = self.key.open(&header, datagram)?;
                if !self.follow(run, now) {
                    return None;
                }
                let sent = self.media.extend_time(header.timestamp);
                self.media.accept(number);
                let (unit, before) =
                    if self.repeats { split(&payload)? } else { (&payload[..], None) };
                self.receiver.on_packet(number, sent, unit, before, now);
                Some(Some(number))
            }
            (RETRANSMISSION_TYPE, 1) => {
                let Opened { run, number, payload } = self.key.open(&header, datagram)?;
                if self.followed.is_none_or(|(followed, _)| followed != run) {
                    return None;
                }
                if self.retransmitted.contains(&number) {
                    return Some(None);
                }
                self.retransmitted.push_back(number);
                if self.retransmitted.len() > REMEMBERED_RETRANSMISSIONS {
                    self.retransmitted.pop_front();
                }
                let (low, unit) = payload.split_first_chunk::<4>()?;
                let newest = self.media.newest()?;
                let behind = (newest as u32).wrapping_sub(u32::from_be_bytes(*low)) as i32;
                let unit_number = newest.checked_add_signed(-i64::from(behind))?;
                let sent = self.media.extend_time(header.timestamp);
                self.receiver.on_retransmission(unit_number, sent, unit, now);
                Some(None)
            }
            (ECHO_TYPE, 3) => {
                let Opened { run, number, payload } = self.key.open(&header, datagram)?;
                let challenge = payload.first_chunk::<CHALLENGE_BYTES>()?;
                if self.challenges.accept(run, number) && self.echoes.len() < WAITING_ECHOES {
                    let echo = self.seal(ECHO_TYPE, challenge, now)?;
                    self.echoes.push_back(echo);
                }
                Some(None)
            }
            _ => None,
        }
    }

    /// True if this run of the sender is the current one. Another run replaces a silent one only:
    /// repeated packets of an earlier run cannot displace it.
    fn follow(&mut self, run: Run, now: Timestamp) -> bool {
        match self.followed {
            Some((followed, last)) if followed != run => {
                if now.saturating_since(last) < SUCCESSION_SILENCE {
                    return false;
                }
                let next = self.media.newest().and_then(|newest| self.index(newest));
                self.base = next.map_or(self.base, |newest| newest + 1);
                self.media = Extender::default();
                self.receiver.restart();
                self.retransmitted.clear();
            }
            _ => {}
        }
        self.followed = Some((run, now));
        true
    }

    /// The number of a packet for the client core.
    fn index(&self, number: u64) -> Option<u64> {
        let first = self.receiver.first().unwrap_or(number);
        Some(number.checked_sub(first)? + self.base)
    }

    /// The next unit, when its time has come.
    pub fn poll_unit(&mut self, now: Timestamp) -> Option<Unit> {
        self.receiver.poll_unit(now)
    }

    /// The next datagram to send to the source of the stream.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if let Some(echo) = self.echoes.pop_front() {
            return Some(echo);
        }
        let base = self.base;
        if let Some(assist) = &mut self.assist {
            let first = self.receiver.first().unwrap_or_default();
            while let Some(number) = self.receiver.poll_overdue(now) {
                assist.on_overdue(PacketNumber::new(base + number - first), now);
            }
            if let Some(datagram) = assist.poll_transmit(now) {
                return Some(datagram);
            }
        } else {
            while self.receiver.poll_overdue(now).is_some() {}
        }
        self.poll_request(now)
    }

    fn poll_request(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        let (assist, base) = (&self.assist, self.base);
        let first = self.receiver.first().unwrap_or_default();
        let is_awaited = |number: u64| {
            let index = PacketNumber::new(number.wrapping_sub(first).wrapping_add(base));
            assist.as_ref().is_some_and(|assist| assist.is_awaited(index))
        };
        let mut asked = core::mem::take(&mut self.asked);
        self.receiver.poll_asked(now, is_awaited, &mut asked);
        let payload: Vec<u8> =
            asked.iter().flat_map(|number| (*number as u32).to_be_bytes()).collect();
        self.asked = asked;
        if payload.is_empty() { None } else { self.seal(REQUEST_TYPE, &payload, now) }
    }

    /// An empty request: it informs the sender of this receiver's address.
    pub fn hello(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        self.seal(REQUEST_TYPE, &[], now)
    }

    fn seal(&mut self, payload_type: u8, payload: &[u8], now: Timestamp) -> Option<Vec<u8>> {
        let header = RtpHeader {
            payload_type,
            sequence: 0,
            timestamp: now.as_micros() as u32,
            source: self.source.wrapping_add(2),
        };
        let number = self.requests;
        self.requests += 1;
        self.key.seal(self.run, &header, number, payload)
    }

    /// The time at which to call [`Self::handle_timeout`] and to poll again.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let assist = self.assist.as_ref().and_then(Assist::next_timeout);
        [assist, self.receiver.next_timeout()].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if let Some(assist) = &mut self.assist {
            assist.handle_timeout(now);
        }
    }

    /// Ends the stream: a last message for the gateway is in [`Self::poll_transmit`].
    pub fn close(&mut self, now: Timestamp) {
        if let Some(assist) = &mut self.assist {
            assist.close(now);
        }
    }

    /// The receiver's statistics; begins a new interval.
    pub fn take_statistics(&mut self) -> Statistics {
        self.receiver.take_statistics()
    }

    /// Counters of the assistance, if there is one.
    pub fn assistance(&self) -> Option<AssistStats> {
        self.assist.as_ref().map(Assist::stats)
    }

    /// Datagrams that were neither control nor of this stream, or not sealed with its key.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// A receiver's run, which the network sees, from a seed that it must not see.
fn run(seed: &[u8; 32]) -> [u8; 16] {
    let mut run = [0; 16];
    // Another stream of the generator than the client core's.
    let mut random = ChaCha20Rng::from_seed(*seed);
    random.set_stream(1);
    random.fill_bytes(&mut run);
    run
}

/// The unit and the one before it, of a packet that repeats.
fn split(payload: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (length, rest) = payload.split_first_chunk::<2>()?;
    let (before, unit) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((unit, (!before.is_empty()).then_some(before)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sender::{Sender, SenderConfig};

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1000 + millis)
    }

    fn key() -> MediaKey {
        MediaKey::new([7; 32])
    }

    fn sender(run: u8) -> Sender {
        Sender::new(SenderConfig { source: 9, repeats: false }, key(), [run; 16])
    }

    #[test]
    fn a_restarted_sender_is_followed_and_its_old_packets_are_not() {
        let config = ReceiverConfig::default();
        let mut receiver = MediaReceiver::new(9, config, key(), None, [1; 32], at(0));
        let (mut first, mut second) = (sender(1), sender(2));
        let early: Vec<_> = (0..3).map(|number| first.send(&[number], at(0)).unwrap()).collect();
        early.iter().for_each(|datagram| receiver.on_datagram(datagram, at(1)));
        let late = second.send(b"other", at(10)).unwrap();
        receiver.on_datagram(&late, at(11));
        assert_eq!(receiver.refused(), 1, "two senders at a time");

        let again: Vec<_> =
            (0..3).map(|number| second.send(&[10 + number], at(2000)).unwrap()).collect();
        again.iter().for_each(|datagram| receiver.on_datagram(datagram, at(2001)));
        early.iter().for_each(|datagram| receiver.on_datagram(datagram, at(2002)));
        assert_eq!(receiver.refused(), 4, "what someone repeats of the earlier run");
        let later = at(2001) + config.latency;
        let units: Vec<_> =
            std::iter::from_fn(|| receiver.poll_unit(later)).map(|unit| unit.bytes).collect();
        assert_eq!(units, [[10], [11], [12]]);
    }
}
