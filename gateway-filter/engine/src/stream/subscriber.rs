//! What a stream knows of one subscriber: little, as there are thousands.
//!
//! The *virtual cache* of the paper (section 6.1): a place in the shared cache up to which the subscriber's fate is known, and the
//! packets before it that are missing. Nothing is kept per packet that arrived.

use core::time::Duration;

use packrat_estimate::Timestamp;
use packrat_wire::handshake::Live;
use packrat_wire::seal::{Opener, Sealer};

use super::sums::Sums;
use crate::flow::Share;

/// eACKs per second of one subscriber, and at once.
const EACKS_PER_SECOND: f32 = 2_000.0;
const EACK_BURST: f32 = 400.0;
/// One that can't be decoded keeps the gateway as busy as this many.
pub(super) const FAILED_EACK_COST: f32 = 40.0;
/// Bytes of repairs that a subscriber may have at once.
const REPAIR_BURST: f32 = 32.0 * 1024.0;
/// Packets of one subscriber that are repaired at the same time.
pub(super) const MAXIMUM_OUTSTANDING: usize = 256;
/// Round trip assumed before one was measured.
const ASSUMED_ROUND_TRIP: u32 = 60_000;
/// What is waited beside round trips, microseconds.
const EACK_INTERVAL: u32 = 10_000;
/// What the eACK of a selective client must know is older than a round trip and this.
const OVERDUE_MARGIN: u32 = 1_000;
/// How long is tried: three round trips and this, microseconds; a client asks elsewhere then.
const PATIENCE_MARGIN: u32 = 30_000;
const MAXIMUM_TRANSMISSIONS: u8 = 8;

/// A packet under repair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outstanding {
    pub(super) sequence: u64,
    /// Where the stream was when it was sent last.
    mark: u64,
    found: Timestamp,
    sent: Timestamp,
    transmissions: u8,
}

/// What to do about a packet under repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Send,
    Wait,
    GiveUp,
}

/// The sealed channel to a subscriber, and what counts it.
pub(super) struct Channel {
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
    /// Repeated for a repeated Init, until the subscriber has proven that it has it.
    pub(super) init_ack: Vec<u8>,
    pub(super) nonce: u64,
    pub(super) share: Share,
}

/// One subscriber.
pub(super) struct Subscriber {
    /// What its sums lack of the stream's, for good: all from before it came, and what it will never get.
    pub(super) base: Sums,
    /// Everything before this has been spoken of; before the first eACK: where it joined.
    pub(super) horizon: u64,
    pub(super) outstanding: Vec<Outstanding>,
    pub(super) channel: Box<Channel>,
    pub(super) heard: Timestamp,
    window: u32,
    round_trip: u32,
    variation: u32,
    minimum: u32,
    eack_credit: f32,
    repair_credit: f32,
    /// The stream's bytes when the repair credit was last counted.
    counted: u64,
    pub(super) newest_eack: u32,
    pub(super) epoch: u16,
    pub(super) failures: u8,
    pub(super) anchored: bool,
    pub(super) reset_pending: bool,
}

impl Subscriber {
    pub(super) fn new(channel: Channel, live: Live, next: u64, bytes: u64, now: Timestamp) -> Self {
        Self {
            base: Sums::ZERO,
            horizon: next,
            outstanding: Vec::new(),
            channel: Box::new(channel),
            heard: now,
            window: u32::try_from(live.window.as_micros()).unwrap_or(u32::MAX),
            round_trip: 0,
            variation: 0,
            minimum: u32::MAX,
            eack_credit: EACK_BURST,
            repair_credit: REPAIR_BURST,
            counted: bytes,
            newest_eack: 0,
            epoch: 0,
            failures: 0,
            anchored: false,
            reset_pending: false,
        }
    }

    /// Memory of it, about, without the sealed channel.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.outstanding.capacity() * size_of::<Outstanding>()
    }

    /// Whether another eACK may be looked at.
    pub(super) fn may_speak(&mut self, now: Timestamp) -> bool {
        let elapsed = now.saturating_since(self.heard).as_secs_f32();
        self.eack_credit = (self.eack_credit + elapsed * EACKS_PER_SECOND).min(EACK_BURST);
        self.heard = now;
        self.eack_credit >= 1.0
    }

    pub(super) fn spend_eack(&mut self, cost: f32) {
        self.eack_credit -= cost;
    }

    /// No repairs are configured: there is nothing to begin with, either.
    pub(super) fn forgo_repairs(&mut self) {
        self.repair_credit = 0.0;
    }

    /// Takes `length` bytes of its budget, which is a share of what the stream has brought.
    pub(super) fn may_repair(&mut self, length: usize, stream_bytes: u64, share: f64) -> bool {
        let earned = (stream_bytes - self.counted) as f64 * share;
        self.counted = stream_bytes;
        self.channel.share.earn_for_source(earned);
        self.repair_credit = (self.repair_credit + earned as f32).min(REPAIR_BURST);
        let allowed = self.repair_credit >= length as f32;
        if allowed {
            self.repair_credit -= length as f32;
        }
        allowed
    }

    /// Takes in a sample of the last-mile round trip (RFC 6298).
    pub(super) fn measure(&mut self, sample: Duration) {
        let sample = u32::try_from(sample.as_micros()).unwrap_or(u32::MAX).max(1);
        self.minimum = self.minimum.min(sample);
        if self.round_trip == 0 {
            (self.round_trip, self.variation) = (sample, sample / 2);
        } else {
            self.variation = self.variation / 4 * 3 + self.round_trip.abs_diff(sample) / 4;
            self.round_trip = self.round_trip / 8 * 7 + sample / 8;
        }
    }

    pub(super) fn round_trip(&self) -> Option<Duration> {
        (self.round_trip > 0).then(|| Duration::from_micros(u64::from(self.round_trip)))
    }

    /// An eACK must know of what was sent this long before it arrived.
    pub(super) fn known_age(&self) -> Option<Duration> {
        let round_trip = self.round_trip()?;
        Some(round_trip + Duration::from_micros(u64::from(self.variation + OVERDUE_MARGIN)))
    }

    /// Decides about a packet that an eACK shows to be missing. `newest`: the highest that the subscriber has; `forwarded`: when the packet
    /// was sent first.
    pub(super) fn decide(
        &self,
        one: &Outstanding,
        newest: Option<u64>,
        forwarded: Timestamp,
        now: Timestamp,
    ) -> Step {
        let micros = |micros: u32| Duration::from_micros(u64::from(micros));
        let round_trip = if self.round_trip == 0 { ASSUMED_ROUND_TRIP } else { self.round_trip };
        let spread = self.variation.saturating_mul(4);
        let patience = round_trip.saturating_mul(3).saturating_add(spread).saturating_add(PATIENCE_MARGIN);
        // Without a window nobody knows until when a repair is of use.
        let late = self.window > 0 && now.saturating_since(forwarded) > micros(self.window);
        let tired = self.window == 0 && now.saturating_since(one.found) > micros(patience);
        if late || tired || one.transmissions >= MAXIMUM_TRANSMISSIONS {
            return Step::GiveUp;
        }
        if one.transmissions == 0 {
            return Step::Send;
        }
        let since = now.saturating_since(one.sent);
        let floor = if self.minimum == u32::MAX { ASSUMED_ROUND_TRIP } else { self.minimum } / 10 * 9;
        let overtaken = newest.is_some_and(|newest| newest >= one.mark) && since >= micros(floor);
        let overdue = since >= micros(round_trip.saturating_add(spread).saturating_add(EACK_INTERVAL));
        if overtaken || overdue { Step::Send } else { Step::Wait }
    }
}

impl Outstanding {
    pub(super) fn new(sequence: u64, now: Timestamp) -> Self {
        Self { sequence, mark: 0, found: now, sent: now, transmissions: 0 }
    }

    pub(super) fn transmissions(&self) -> u8 {
        self.transmissions
    }

    pub(super) fn sent_at(&self) -> Timestamp {
        self.sent
    }

    pub(super) fn sent(&mut self, next: u64, now: Timestamp) {
        self.transmissions += 1;
        self.sent = now;
        self.mark = next;
    }
}

/// There are thousands of them. What is under repair and the sealed channel come on top.
const _: () = assert!(size_of::<Subscriber>() <= 256);
