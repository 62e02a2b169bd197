//! One subscriber of a stream, in little memory, as there are thousands.
//!
//! The *virtual cache* of Packrat26, section 6.1: a place in the shared cache up to which the
//! subscriber's fate is known, and the packets before it that are missing. Nothing is kept per
//! packet that arrived.

use core::time::Duration;

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use packrat_assist_token::token_bucket::TokenBucket;
use packrat_eack::Identifier;
use packrat_wire::estimate::{LIVE_PATIENCE_MARGIN, SmallRoundTrip, Timestamp};
use packrat_wire::handshake::Live;
use packrat_wire::{Epoch, MessageCounter, SmallChannel};

use super::sums::Sums;
use super::symbols::{self, Experience};
use crate::admission::SourceAccount;
use crate::eack_credit::SUBSCRIBER_TARIFF;
use crate::reconciliation;
use crate::repair::{ASSUMED_ROUND_TRIP, Decision, Progress, decide};
use crate::session_event::GiveUpReason;

/// Bytes of repairs that a subscriber may have at once.
const REPAIR_BURST_BYTES: f64 = 32.0 * 1024.0;
/// Packets of one subscriber that are repaired at the same time.
pub(super) const OUTSTANDING_PACKETS: usize = 256;
/// More transmissions than this of one packet never help a subscriber.
const MAXIMUM_TRANSMISSIONS: u32 = 8;
/// Shortest interval at which a subscriber is asked to count as received what it will never get.
const OFFER_INTERVAL: Duration = Duration::from_millis(500);
/// Most times that a subscriber is asked the same: it may not know how.
const MAXIMUM_OFFERS: u8 = 8;
/// Packets that a subscriber's loss is about, beside the newest ones.
const LOSS_MEMORY_PACKETS: f64 = 1024.0;
/// Number that stands for a loss of 1.
const LOSS_UNIT: f64 = 65536.0;
/// Room for packets under repair that is kept beyond what is used.
const SLACK_PACKETS: usize = 1;

/// A packet under repair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outstanding {
    pub(super) sequence: u64,
    pub(super) identifier: Identifier,
    /// When it was found to be missing, and when it was sent last: milliseconds.
    found: Millis,
    sent: Millis,
    /// Packets of the stream since this one when it was sent last.
    mark: u16,
    transmissions: u8,
}

/// Set that a subscriber was asked to count as received.
#[derive(Debug)]
struct Offer {
    sums: Sums,
    tries: u8,
}

/// A point in time that comes around after 49 days: only differences of neighbouring ones mean
/// something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Millis(u32);

impl Millis {
    pub(super) const fn of(now: Timestamp) -> Self {
        Self((now.as_micros() / 1000) as u32)
    }

    /// Microseconds since then.
    fn micros_since(self, now: Timestamp) -> u64 {
        u64::from(Self::of(now).0.wrapping_sub(self.0)) * 1000
    }

    pub(super) fn elapsed(self, now: Timestamp) -> Duration {
        Duration::from_micros(self.micros_since(now))
    }
}

/// An address in 24 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    /// IPv4 addresses as IPv6 has them.
    ip: [u8; 16],
    scope: u32,
    port: u16,
}

impl Address {
    pub(super) fn of(address: SocketAddr) -> Self {
        let (ip, scope) = match address {
            SocketAddr::V4(address) => (address.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(address) => (*address.ip(), address.scope_id()),
        };
        Self { ip: ip.octets(), scope, port: address.port() }
    }

    pub(super) fn get(self) -> SocketAddr {
        let ip = Ipv6Addr::from(self.ip);
        match ip.to_ipv4_mapped() {
            Some(ip) => (ip, self.port).into(),
            None => SocketAddrV6::new(ip, self.port, 0, self.scope).into(),
        }
    }
}

/// One subscriber.
pub(super) struct Subscriber {
    /// Sums that its own lack of the stream's, for good: all from before it came, and what it will
    /// never get. `None`: nothing, as the subscriber has been asked to count it as received,
    /// and does.
    base: Option<Box<Sums>>,
    /// Set that it was asked to count so, but has not said yet that it does.
    offer: Option<Box<Offer>>,
    pub(super) epoch: Epoch,
    pub(super) address: Address,
    pub(super) failures: u8,
    pub(super) anchored: bool,
    pub(super) reset_pending: bool,
    /// True if its session tells of each step.
    pub(super) observed: bool,
    /// Packets that it has missed since its loss was measured.
    missed: u16,
    /// Packets that it has recovered, as it has told, and the stream's next packet then: of both the
    /// lower 16 bits.
    recovered: u16,
    told_at: u16,
    /// True if it has told since its loss was measured.
    has_told: bool,
    /// Its loss in 1/65536.
    loss: u16,
    /// True if it was given the key of the stream's symbols.
    pub(super) takes_symbols: bool,
    pub(super) channel: SmallChannel,
    /// Account of its source.
    pub(super) source: Arc<SourceAccount>,
    /// Everything before this has been spoken of; before the first eACK: where it joined.
    pub(super) horizon: u64,
    #[allow(clippy::box_collection)]
    // most have nothing under repair, and then this is a third of a vector's size
    outstanding: Option<Box<Vec<Outstanding>>>,
    pub(super) heard: Millis,
    window: u32,
    pub(super) round_trip: SmallRoundTrip,
    /// Credit for eACKs.
    pub(super) eacks: TokenBucket<f32>,
    /// Bytes of repairs.
    repairs: TokenBucket<f32>,
    /// The stream's bytes when repairs were last earned; comes around after 4 GiB, which is more
    /// than a subscriber can save up.
    counted: u32,
    pub(super) newest_eack: MessageCounter,
    /// When it was asked last to count something as received.
    offered: Millis,
}

impl Subscriber {
    pub(super) fn new(
        address: SocketAddr,
        channel: SmallChannel,
        source: Arc<SourceAccount>,
        live: Live,
        next: u64,
        bytes: u64,
        now: Timestamp,
    ) -> Self {
        Self {
            base: None,
            offer: None,
            epoch: Epoch::FIRST,
            address: Address::of(address),
            failures: 0,
            anchored: false,
            reset_pending: false,
            observed: false,
            missed: 0,
            recovered: 0,
            told_at: next as u16,
            has_told: false,
            loss: 0,
            takes_symbols: false,
            channel,
            source,
            horizon: next,
            outstanding: None,
            heard: Millis::of(now),
            window: u32::try_from(live.window.as_micros()).unwrap_or(u32::MAX),
            round_trip: SmallRoundTrip::new(),
            eacks: SUBSCRIBER_TARIFF.open(),
            repairs: TokenBucket::new(REPAIR_BURST_BYTES),
            counted: bytes as u32,
            newest_eack: MessageCounter::FIRST,
            offered: Millis::of(now),
        }
    }

    /// Sums that its own lack of the stream's for good.
    pub(super) fn base(&self) -> Sums {
        self.base.as_ref().map_or(Sums::ZERO, |base| **base)
    }

    /// From here on it lacks this for good, and nothing else.
    pub(super) fn set_base(&mut self, sums: Sums) {
        self.offer = None;
        self.base = (sums != Sums::ZERO).then(|| Box::new(sums));
    }

    fn change_base(&mut self, change: impl FnOnce(&mut Sums)) {
        let mut base = self.base.take().unwrap_or_else(|| Box::new(Sums::ZERO));
        change(&mut base);
        self.base = (*base != Sums::ZERO).then_some(base);
    }

    /// It will never get this.
    pub(super) fn give_up(&mut self, identifier: Identifier) {
        self.change_base(|base| base.insert(identifier));
    }

    /// It has got what it was thought to lack for good.
    pub(super) fn regain(&mut self, identifier: Identifier) {
        self.change_base(|base| base.remove(identifier));
    }

    /// Set that it should be asked to count as received now, if any, so that it need not be kept
    /// apart. The subscriber is then in the next epoch.
    pub(super) fn offer(&mut self, now: Timestamp) -> Option<Sums> {
        let base = self.base.as_deref()?;
        let begins = self.epoch == Epoch::FIRST && self.offer.is_none();
        if !begins && self.offered.elapsed(now) < OFFER_INTERVAL {
            return None;
        }
        let offer = self.offer.get_or_insert_with(|| Box::new(Offer { sums: *base, tries: 0 }));
        if offer.tries >= MAXIMUM_OFFERS {
            return None;
        }
        offer.tries += 1;
        self.offered = Millis::of(now);
        Some(offer.sums)
    }

    /// True if it has been asked for something that it does when it is in this epoch.
    pub(super) fn is_offered(&self, epoch: Epoch) -> bool {
        self.offer.is_some() && epoch == self.epoch.next()
    }

    /// It counts as received what it was asked to.
    pub(super) fn take_offer(&mut self) {
        self.epoch = self.epoch.next();
        if let Some(offer) = self.offer.take() {
            self.change_base(|base| base.subtract(&offer.sums));
        }
    }

    /// It has missed so many packets more.
    pub(super) fn on_missed(&mut self, packets: usize) {
        self.missed = self.missed.saturating_add(u16::try_from(packets).unwrap_or(u16::MAX));
    }

    /// It has recovered so many packets from symbols, all in all; `next`: the stream's next one. What
    /// symbols recover no eACK shows, mostly.
    pub(super) fn on_recovered(&mut self, total: u32, next: u64) {
        let more = (total as u16).wrapping_sub(self.recovered);
        let packets = (next as u16).wrapping_sub(self.told_at);
        // An older message that was overtaken, or nonsense.
        if more <= u16::MAX / 2 && packets > 0 {
            (self.recovered, self.told_at) = (total as u16, next as u16);
            self.has_told = true;
            self.blend(f64::from(more) / f64::from(packets), packets.into());
        }
    }

    /// True if it has lost something since its loss was measured.
    pub(super) fn has_lost(&self) -> bool {
        self.missed > 0 || self.has_told
    }

    /// Packets that it has missed since its loss was measured.
    pub(super) fn missed(&self) -> u16 {
        self.missed
    }

    fn blend(&mut self, sample: f64, packets: u64) {
        let weight = packets as f64 / (packets as f64 + LOSS_MEMORY_PACKETS);
        let known = f64::from(self.loss) / LOSS_UNIT;
        let loss = known + (sample - known) * weight;
        // Rounded down to nothing when nothing is lost any more.
        self.loss = (loss.clamp(0.0, 0.99) * LOSS_UNIT) as u16;
    }

    /// Its loss, after so many packets since the last call. `mean`: of all in this time, which is where
    /// one begins.
    pub(super) fn measure(&mut self, packets: u64, mean: f64) -> Experience {
        let sample = f64::from(self.missed) / packets.max(1) as f64;
        let (has_told, _) =
            (core::mem::take(&mut self.has_told), core::mem::take(&mut self.missed));
        if self.loss == 0 && !has_told {
            self.loss = (mean.clamp(0.0, 0.99) * LOSS_UNIT) as u16;
        }
        let known = f64::from(self.loss) / LOSS_UNIT;
        // What symbols have recovered is in what it tells, and it told of less.
        if !has_told || sample > known {
            self.blend(sample, packets);
        }
        Experience { loss: f64::from(self.loss) / LOSS_UNIT, wait: self.symbol_wait() }
    }

    /// Time for which a plain repair waits for symbols.
    pub(super) fn symbol_wait(&self) -> Duration {
        let round_trip = self.round_trip.get().smoothed().unwrap_or(ASSUMED_ROUND_TRIP);
        symbols::wait(Duration::from_micros(u64::from(self.window)), round_trip)
    }

    /// Packets under repair.
    pub(super) fn outstanding(&self) -> &[Outstanding] {
        self.outstanding.as_ref().map_or(&[], |outstanding| outstanding)
    }

    pub(super) fn take_outstanding(&mut self) -> Vec<Outstanding> {
        self.outstanding.take().map(|outstanding| *outstanding).unwrap_or_default()
    }

    /// Keeps no memory for nothing, and little more than is needed.
    pub(super) fn set_outstanding(&mut self, mut outstanding: Vec<Outstanding>) {
        if outstanding.capacity() > outstanding.len() + SLACK_PACKETS {
            outstanding.shrink_to(outstanding.len());
        }
        self.outstanding = (!outstanding.is_empty()).then(|| Box::new(outstanding));
    }

    /// Heap memory of it, beside its own size.
    pub(super) fn memory(&self) -> usize {
        let outstanding = self.outstanding.as_ref().map_or(0, |outstanding| {
            size_of::<Vec<Outstanding>>() + outstanding.capacity() * size_of::<Outstanding>()
        });
        let base = self.base.as_ref().map_or(0, |_| size_of::<Sums>());
        outstanding + base + self.offer.as_ref().map_or(0, |_| size_of::<Offer>())
    }

    /// It is somewhere else now: another path, another round trip.
    pub(super) fn move_to(&mut self, address: SocketAddr) {
        self.address = Address::of(address);
        self.round_trip = SmallRoundTrip::new();
    }

    /// True if another eACK may be looked at.
    pub(super) fn admits_eack(&mut self, now: Timestamp) -> bool {
        let elapsed = self.heard.elapsed(now);
        self.heard = Millis::of(now);
        SUBSCRIBER_TARIFF.admits(&mut self.eacks, elapsed)
    }

    /// No repairs are configured: there is nothing to begin with, either.
    pub(super) fn forgo_repairs(&mut self) {
        self.repairs.drain();
    }

    /// Takes `length` bytes of its budget, which is a share of what the stream has brought.
    pub(super) fn may_repair(&mut self, length: usize, stream_bytes: u64, share: f64) -> bool {
        let earned = f64::from((stream_bytes as u32).wrapping_sub(self.counted)) * share;
        self.counted = stream_bytes as u32;
        self.source.repairs.earn(earned);
        self.repairs.earn(earned, REPAIR_BURST_BYTES);
        self.repairs.try_take(length as f64)
    }

    /// An eACK must know of what was sent this long before it arrived.
    pub(super) fn known_age(&self) -> Option<Duration> {
        reconciliation::known_age(&self.round_trip.get())
    }

    /// Decides about a packet that an eACK shows to be missing. `newest`: the highest that the
    /// subscriber has; `forwarded`: when the packet was sent first.
    pub(super) fn decide(
        &self,
        one: &Outstanding,
        newest: Option<u64>,
        forwarded: Timestamp,
        now: Timestamp,
    ) -> Decision {
        let round_trip = self.round_trip.get();
        let window = Duration::from_micros(u64::from(self.window));
        if !window.is_zero() && now.saturating_since(forwarded) > window {
            return Decision::GiveUp(GiveUpReason::WindowOver);
        }
        // Without a window nothing says until when a repair is of use.
        let patience = window
            .is_zero()
            .then(|| round_trip.or_assumed(ASSUMED_ROUND_TRIP).patience(LIVE_PATIENCE_MARGIN));
        decide(&one.progress(newest, now), &round_trip, patience, MAXIMUM_TRANSMISSIONS)
    }
}

impl Outstanding {
    pub(super) fn new(sequence: u64, identifier: Identifier, now: Timestamp) -> Self {
        Self {
            sequence,
            identifier,
            mark: 0,
            found: Millis::of(now),
            sent: Millis::of(now),
            transmissions: 0,
        }
    }

    pub(super) fn transmissions(&self) -> u8 {
        self.transmissions
    }

    /// Its state at an eACK whose newest packet has sequence number `newest`.
    fn progress(&self, newest: Option<u64>, now: Timestamp) -> Progress {
        Progress {
            transmissions: self.transmissions.into(),
            since_found: self.found.elapsed(now),
            since_sent: self.sent.elapsed(now),
            passed: newest.is_some_and(|newest| newest >= self.sequence + u64::from(self.mark)),
        }
    }

    /// Time since it was sent last.
    pub(super) fn sent_since(&self, now: Timestamp) -> Duration {
        self.sent.elapsed(now)
    }

    pub(super) fn sent(&mut self, next: u64, now: Timestamp) {
        self.transmissions += 1;
        self.sent = Millis::of(now);
        self.mark = u16::try_from(next.saturating_sub(self.sequence)).unwrap_or(u16::MAX);
    }
}

/// There are thousands of them, each with its sealed channel.
const _: () = assert!(size_of::<Subscriber>() <= 208);
const _: () = assert!(size_of::<Outstanding>() <= 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_small_form() {
        for text in ["192.0.2.7:5004", "[2001:db8::5]:443", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Address::of(address).get(), address);
        }
    }

    #[test]
    fn time_comes_around_unnoticed() {
        let before = Timestamp::from_millis(u64::from(u32::MAX) - 10);
        let after = Timestamp::from_millis(u64::from(u32::MAX) + 20);
        assert_eq!(Millis::of(before).elapsed(after), Duration::from_millis(30));
    }
}
