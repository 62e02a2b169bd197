//! A receiver joined to Packrat's client: datagrams in, units and control datagrams out, sans-IO.

use core::time::Duration;
use std::collections::VecDeque;

use packrat_client::{Assist, AssistStats, ClientConfig, Datagram, Live, PacketNumber};
use packrat_wire::estimate::Timestamp;

use crate::receiver::{Receiver, ReceiverConfig, Unit};
use crate::rtp::{Extender, RtpHeader};
use crate::seal::MediaKey;
use crate::sender::{MEDIA, REQUEST, RETRANSMISSION};
use crate::statistics::Statistics;

/// Retransmissions whose numbers are remembered.
const RETRANSMISSIONS: usize = 256;

/// Assistance of a stream's receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assistance {
    /// Address this to a gateway's stream, and get a copy of it.
    pub subscribe: bool,
    /// True if the sender is asked only when the gateway had its chance. Otherwise it is asked at
    /// once, and retransmits in vain the packets that the gateway repairs.
    pub hold: bool,
    /// True if eACKs are sent for holes only; otherwise every 24 datagrams or 15 ms.
    pub selective: bool,
    /// The gateway's key, token and so on.
    pub client: ClientConfig,
}

impl Default for Assistance {
    fn default() -> Self {
        Self { subscribe: false, hold: true, selective: true, client: ClientConfig::default() }
    }
}

impl Assistance {
    /// The client core for a stream: its params follow from the receiver's latency and patience.
    pub fn assist(&self, receiver: &ReceiverConfig, seed: [u8; 32], now: Timestamp) -> Assist {
        let window = receiver.latency + receiver.patience;
        let live = Live {
            selective: self.selective,
            subscribe: self.subscribe,
            window,
            tolerance: receiver.latency,
        };
        let hold = if self.hold { self.client.maximum_hold.min(window) } else { Duration::ZERO };
        let client = self.client.clone().with_maximum_hold(hold).with_live(live);
        Assist::new(client, seed, now)
    }
}

/// The receiver of a stream of [`crate::Sender`], with or without a gateway's assistance.
#[derive(Debug)]
pub struct MediaReceiver {
    source: u32,
    repeats: bool,
    key: MediaKey,
    receiver: Receiver,
    assist: Option<Assist>,
    media: Extender,
    /// Numbers of the last retransmissions: a repair of one is no second one.
    retransmitted: VecDeque<u64>,
    requests: u64,
    asked: Vec<u64>,
    refused: u64,
}

impl MediaReceiver {
    /// `source`: names the stream, as the sender's does. `seed`: 32 fresh random bytes from the
    /// operating system.
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
            assist: assistance.map(|assistance| assistance.assist(&config, seed, now)),
            media: Extender::default(),
            retransmitted: VecDeque::new(),
            // Each receiver begins somewhere else: two that share a key must not seal with the same
            // number.
            requests: u64::from(u32::from_be_bytes([seed[0], seed[1], seed[2], seed[3]])),
            asked: Vec::new(),
            refused: 0,
        }
    }

    /// A datagram arrived.
    pub fn on_datagram(&mut self, datagram: &[u8], now: Timestamp) {
        if let Some(assist) = &mut self.assist
            && assist.on_datagram(datagram, now) == Datagram::Control
        {
            return;
        }
        if self.on_packet(datagram, now).is_none() {
            self.refused += 1;
        }
    }

    fn on_packet(&mut self, datagram: &[u8], now: Timestamp) -> Option<()> {
        let header = RtpHeader::decode(datagram)?;
        match (header.payload_type, header.source.wrapping_sub(self.source)) {
            (MEDIA, 0) => {
                let (number, payload) = self.key.open(&header, datagram)?;
                let sent = self.media.extend_time(header.timestamp);
                self.media.accept(number);
                let (unit, before) =
                    if self.repeats { split(&payload)? } else { (&payload[..], None) };
                self.receiver.on_packet(number, sent, unit, before, now);
                let first = self.receiver.first().unwrap_or(number);
                if let (Some(assist), Some(index)) = (&mut self.assist, number.checked_sub(first)) {
                    assist.on_packet_number(PacketNumber::new(index), now);
                }
            }
            (RETRANSMISSION, 1) => {
                let (number, payload) = self.key.open(&header, datagram)?;
                if self.retransmitted.contains(&number) {
                    return Some(());
                }
                self.retransmitted.push_back(number);
                if self.retransmitted.len() > RETRANSMISSIONS {
                    self.retransmitted.pop_front();
                }
                let (low, unit) = payload.split_first_chunk::<4>()?;
                let newest = self.media.newest()?;
                let behind = (newest as u32).wrapping_sub(u32::from_be_bytes(*low)) as i32;
                let unit_number = newest.checked_add_signed(-i64::from(behind))?;
                let sent = self.media.extend_time(header.timestamp);
                self.receiver.on_retransmission(unit_number, sent, unit, now);
            }
            _ => return None,
        }
        Some(())
    }

    /// The next unit, when its time has come.
    pub fn poll_unit(&mut self, now: Timestamp) -> Option<Unit> {
        self.receiver.poll_unit(now)
    }

    /// The next datagram to send to where the stream comes from.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if let Some(assist) = &mut self.assist {
            let first = self.receiver.first().unwrap_or_default();
            while let Some(number) = self.receiver.poll_overdue(now) {
                assist.on_overdue(PacketNumber::new(number - first), now);
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
        let (assist, first) = (&self.assist, self.receiver.first().unwrap_or_default());
        let is_awaited = |number: u64| {
            let number = PacketNumber::new(number.wrapping_sub(first));
            assist.as_ref().is_some_and(|assist| assist.is_awaited(number))
        };
        let mut asked = core::mem::take(&mut self.asked);
        self.receiver.poll_asked(now, is_awaited, &mut asked);
        let payload: Vec<u8> =
            asked.iter().flat_map(|number| (*number as u32).to_be_bytes()).collect();
        self.asked = asked;
        if payload.is_empty() { None } else { self.seal_request(&payload, now) }
    }

    /// A request for nothing: it tells the sender where this receiver is.
    pub fn hello(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        self.seal_request(&[], now)
    }

    fn seal_request(&mut self, payload: &[u8], now: Timestamp) -> Option<Vec<u8>> {
        let header = RtpHeader {
            payload_type: REQUEST,
            sequence: 0,
            timestamp: now.as_micros() as u32,
            source: self.source.wrapping_add(2),
        };
        let number = self.requests;
        self.requests += 1;
        self.key.seal(&header, number, payload)
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

    /// The stream is not wanted any more: a last message for the gateway is in
    /// [`Self::poll_transmit`].
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

/// The unit and the one before it, of a packet that repeats.
fn split(payload: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (length, rest) = payload.split_first_chunk::<2>()?;
    let (before, unit) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((unit, (!before.is_empty()).then_some(before)))
}
