//! The accounting of packets: delivered, lost, in flight, and the rate of delivery.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A packet when it was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    pub(super) bytes: u64,
    sent_at: Instant,
    first_sent_at: Instant,
    delivered_at: Instant,
    pub(super) delivered: u64,
    pub(super) lost: u64,
    pub(super) in_flight: u64,
    pub(super) limited: bool,
}

/// The newest packet of one batch of acknowledgements, and the bytes that the batch delivered.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sample {
    pub(super) newest: Option<Packet>,
    pub(super) acknowledged: u64,
    pub(super) round_trip: Option<Duration>,
}

/// The packets of a connection, in bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Delivery {
    packets: BTreeMap<u64, Packet>,
    /// The draft's `C.delivered`.
    pub(super) delivered: u64,
    delivered_at: Option<Instant>,
    first_sent_at: Option<Instant>,
    pub(super) lost: u64,
    pub(super) in_flight: u64,
    /// Deliveries up to this count belong to a time when the application had no more data to send.
    limited_until: u64,
    /// Acknowledgements since the last batch.
    sample: Sample,
}

impl Delivery {
    /// A packet was sent.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64, number: u64) {
        if self.in_flight == 0 {
            self.first_sent_at = Some(now);
            self.delivered_at = Some(now);
        }
        self.in_flight += bytes;
        let packet = Packet {
            bytes,
            sent_at: now,
            first_sent_at: self.first_sent_at.unwrap_or(now),
            delivered_at: self.delivered_at.unwrap_or(now),
            delivered: self.delivered,
            lost: self.lost,
            in_flight: self.in_flight,
            limited: self.limited_until > self.delivered,
        };
        self.packets.insert(number, packet);
    }

    /// A packet is acknowledged.
    pub(super) fn on_ack(&mut self, now: Instant, number: u64) {
        let Some(packet) = self.take(number) else { return };
        self.delivered += packet.bytes;
        self.delivered_at = Some(now);
        self.sample.acknowledged += packet.bytes;
        if self.sample.newest.is_none_or(|newest| newest.sent_at <= packet.sent_at) {
            self.sample.newest = Some(packet);
            self.sample.round_trip = Some(now.saturating_duration_since(packet.sent_at));
            self.first_sent_at = Some(packet.sent_at);
        }
    }

    /// A packet is lost; as it was when it was sent.
    pub(super) fn on_lost(&mut self, number: u64) -> Option<Packet> {
        let packet = self.take(number)?;
        self.lost += packet.bytes;
        Some(packet)
    }

    fn take(&mut self, number: u64) -> Option<Packet> {
        let packet = self.packets.remove(&number)?;
        self.in_flight = self.in_flight.saturating_sub(packet.bytes);
        Some(packet)
    }

    /// A batch of acknowledgements has ended, with these bytes in flight.
    pub(super) fn end_batch(&mut self, in_flight: u64, limited: bool) -> Sample {
        // The stack forgets packets of the handshake without a word.
        self.in_flight = in_flight;
        if limited {
            self.limit();
        }
        std::mem::take(&mut self.sample)
    }

    /// The bytes in flight now do not reflect the bandwidth.
    pub(super) fn limit(&mut self) {
        self.limited_until = (self.delivered + self.in_flight).max(1);
    }

    /// Bytes per second while `newest` was in flight; `None` if that time is shorter than the
    /// shortest round trip.
    pub(super) fn rate_of(&self, newest: &Packet, shortest: Option<Duration>) -> Option<f64> {
        let sending = newest.sent_at.saturating_duration_since(newest.first_sent_at);
        let acknowledging = self.delivered_at?.saturating_duration_since(newest.delivered_at);
        let interval = sending.max(acknowledging);
        if interval.is_zero() || shortest.is_some_and(|shortest| interval < shortest) {
            return None;
        }
        Some((self.delivered - newest.delivered) as f64 / interval.as_secs_f64())
    }
}
