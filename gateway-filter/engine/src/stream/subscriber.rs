//! One subscriber of a stream, in little memory, as there are thousands.
//!
//! The *virtual cache* of Packrat26, section 6.1: a place in the shared cache up to which the fates
//! of the subscriber's packets are known, and the missing packets before it. A packet that arrived
//! takes no memory.

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
/// Shortest interval of offers to a subscriber: to count packets that it will never get as
/// received.
const OFFER_INTERVAL: Duration = Duration::from_millis(500);
/// Most times that an offer is made: the subscriber may not know how to take it.
const MAXIMUM_OFFERS: u8 = 8;
/// Weight of a subscriber's earlier loss against the newest packets, in packets.
const LOSS_MEMORY_PACKETS: f64 = 1024.0;
/// Number that stands for a loss of 1.
const LOSS_UNIT: f64 = 65536.0;
/// Number of packets under repair for which spare memory is kept.
const SLACK_PACKETS: usize = 1;

/// A packet under repair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outstanding {
    pub(super) sequence: u64,
    pub(super) identifier: Identifier,
    /// When the packet was found missing, and when it was sent last: milliseconds.
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

/// A point in time that wraps around after 49 days: only differences of close ones mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Millis(u32);

impl Millis {
    pub(super) const fn of(now: Timestamp) -> Self {
        Self((now.as_micros() / 1000) as u32)
    }

    /// Microseconds from this time to `now`.
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
    /// IPv4 addresses in the form of IPv6 (IPv4-mapped).
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
    /// Sums of the packets that the subscriber lacks for good: all before its subscription, and
    /// given-up ones. `None`: the set is empty, for example because the subscriber counts them as
    /// received, as it was asked to.
    base: Option<Box<Sums>>,
    /// Set that the subscriber was asked to count as received, and has not confirmed yet.
    offer: Option<Box<Offer>>,
    pub(super) epoch: Epoch,
    pub(super) address: Address,
    pub(super) failures: u8,
    pub(super) anchored: bool,
    pub(super) reset_pending: bool,
    /// True if the subscriber's session reports its events.
    pub(super) observed: bool,
    /// Packets that the subscriber has missed since its loss was measured.
    missed: u16,
    /// Number of packets that the subscriber has reported as recovered, and of the stream's next
    /// packet at that time: the lower 16 bits of each.
    recovered: u16,
    told_at: u16,
    /// True if it has reported recovered packets since its loss was measured.
    has_told: bool,
    /// Loss of the subscriber in 1/65536.
    loss: u16,
    /// True if the subscriber was given the key of the stream's symbols.
    pub(super) takes_symbols: bool,
    pub(super) channel: SmallChannel,
    /// Account of the subscriber's source.
    pub(super) source: Arc<SourceAccount>,
    /// Packet before which eACKs have covered all packets; before the first eACK: the stream's next
    /// packet at the subscription.
    pub(super) horizon: u64,
    #[allow(clippy::box_collection)]
    // most have no packet under repair, and then this takes a third of a vector's size
    outstanding: Option<Box<Vec<Outstanding>>>,
    pub(super) heard: Millis,
    window: u32,
    pub(super) round_trip: SmallRoundTrip,
    /// Credit for eACKs.
    pub(super) eacks: TokenBucket<f32>,
    /// Bytes of repairs.
    repairs: TokenBucket<f32>,
    /// The stream's bytes when repairs were last earned; wraps around after 4 GiB, which is more
    /// than a subscriber can save up.
    counted: u32,
    pub(super) newest_eack: MessageCounter,
    /// Time of the last offer.
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

    /// Sums of the packets that the subscriber lacks for good.
    pub(super) fn base(&self) -> Sums {
        self.base.as_ref().map_or(Sums::ZERO, |base| **base)
    }

    /// Replaces the sums of the packets that the subscriber lacks for good.
    pub(super) fn set_base(&mut self, sums: Sums) {
        self.offer = None;
        self.base = (sums != Sums::ZERO).then(|| Box::new(sums));
    }

    fn change_base(&mut self, change: impl FnOnce(&mut Sums)) {
        let mut base = self.base.take().unwrap_or_else(|| Box::new(Sums::ZERO));
        change(&mut base);
        self.base = (*base != Sums::ZERO).then_some(base);
    }

    /// Records that the subscriber will never get this packet.
    pub(super) fn give_up(&mut self, identifier: Identifier) {
        self.change_base(|base| base.insert(identifier));
    }

    /// Records that the subscriber has got a packet that was given up.
    pub(super) fn regain(&mut self, identifier: Identifier) {
        self.change_base(|base| base.remove(identifier));
    }

    /// Set that the subscriber should be asked to count as received now, if any, so that it need
    /// not be kept. The subscriber is then in the next epoch.
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

    /// True if an eACK of this epoch shows that the subscriber has taken the offer.
    pub(super) fn is_offered(&self, epoch: Epoch) -> bool {
        self.offer.is_some() && epoch == self.epoch.next()
    }

    /// Records that the subscriber counts the offered set as received.
    pub(super) fn take_offer(&mut self) {
        self.epoch = self.epoch.next();
        if let Some(offer) = self.offer.take() {
            self.change_base(|base| base.subtract(&offer.sums));
        }
    }

    /// Records that the subscriber has missed `packets` more packets.
    pub(super) fn on_missed(&mut self, packets: usize) {
        self.missed = self.missed.saturating_add(u16::try_from(packets).unwrap_or(u16::MAX));
    }

    /// Records that the subscriber has recovered `total` packets from symbols in all; `next`: the
    /// stream's next packet. Mostly, no eACK shows packets that symbols recover.
    pub(super) fn on_recovered(&mut self, total: u32, next: u64) {
        let more = (total as u16).wrapping_sub(self.recovered);
        let packets = (next as u16).wrapping_sub(self.told_at);
        // Otherwise an older message was overtaken, or the number is invalid.
        if more <= u16::MAX / 2 && packets > 0 {
            (self.recovered, self.told_at) = (total as u16, next as u16);
            self.has_told = true;
            self.blend(f64::from(more) / f64::from(packets), packets.into());
        }
    }

    /// True if the subscriber has lost packets since its loss was measured.
    pub(super) fn has_lost(&self) -> bool {
        self.missed > 0 || self.has_told
    }

    /// Packets that the subscriber has missed since its loss was measured.
    pub(super) fn missed(&self) -> u16 {
        self.missed
    }

    fn blend(&mut self, sample: f64, packets: u64) {
        let weight = packets as f64 / (packets as f64 + LOSS_MEMORY_PACKETS);
        let known = f64::from(self.loss) / LOSS_UNIT;
        let loss = known + (sample - known) * weight;
        // Rounded down, so that it becomes 0 once losses have ended.
        self.loss = (loss.clamp(0.0, 0.99) * LOSS_UNIT) as u16;
    }

    /// Measures the subscriber's loss, `packets` after the last call. `mean`: of all subscribers in
    /// this time, with which a subscriber begins.
    pub(super) fn measure(&mut self, packets: u64, mean: f64) -> Experience {
        let sample = f64::from(self.missed) / packets.max(1) as f64;
        let (has_told, _) =
            (core::mem::take(&mut self.has_told), core::mem::take(&mut self.missed));
        if self.loss == 0 && !has_told {
            self.loss = (mean.clamp(0.0, 0.99) * LOSS_UNIT) as u16;
        }
        let known = f64::from(self.loss) / LOSS_UNIT;
        // Reports include packets that symbols have recovered: eACKs count only if they show more.
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

    /// Sets the packets under repair, and keeps little spare memory.
    pub(super) fn set_outstanding(&mut self, mut outstanding: Vec<Outstanding>) {
        if outstanding.capacity() > outstanding.len() + SLACK_PACKETS {
            outstanding.shrink_to(outstanding.len());
        }
        self.outstanding = (!outstanding.is_empty()).then(|| Box::new(outstanding));
    }

    /// Heap memory of the subscriber, beside its own size.
    pub(super) fn memory(&self) -> usize {
        let outstanding = self.outstanding.as_ref().map_or(0, |outstanding| {
            size_of::<Vec<Outstanding>>() + outstanding.capacity() * size_of::<Outstanding>()
        });
        let base = self.base.as_ref().map_or(0, |_| size_of::<Sums>());
        outstanding + base + self.offer.as_ref().map_or(0, |_| size_of::<Offer>())
    }

    /// Moves the subscriber to another address: another path, another round trip.
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

    /// Empties the budget that a subscriber begins with: no repairs are configured.
    pub(super) fn forgo_repairs(&mut self) {
        self.repairs.drain();
    }

    /// Takes `length` bytes of the subscriber's budget, which is a share of the stream's bytes.
    pub(super) fn may_repair(&mut self, length: usize, stream_bytes: u64, share: f64) -> bool {
        let earned = f64::from((stream_bytes as u32).wrapping_sub(self.counted)) * share;
        self.counted = stream_bytes as u32;
        self.source.repairs.earn(earned);
        self.repairs.earn(earned, REPAIR_BURST_BYTES);
        self.repairs.try_take(length as f64)
    }

    /// Age of a packet at the arrival of an eACK from which the eACK must know of it.
    pub(super) fn known_age(&self) -> Option<Duration> {
        reconciliation::known_age(&self.round_trip.get())
    }

    /// Decides about a packet that an eACK shows to be missing. `newest`: the subscriber's highest
    /// packet; `forwarded`: when the packet was sent first.
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
        // Without a window, it is unknown until when a repair is of use.
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

    /// State of the packet at an eACK whose newest packet has sequence number `newest`.
    fn progress(&self, newest: Option<u64>, now: Timestamp) -> Progress {
        Progress {
            transmissions: self.transmissions.into(),
            since_found: self.found.elapsed(now),
            since_sent: self.sent.elapsed(now),
            passed: newest.is_some_and(|newest| newest >= self.sequence + u64::from(self.mark)),
        }
    }

    /// Time since the packet was sent last.
    pub(super) fn sent_since(&self, now: Timestamp) -> Duration {
        self.sent.elapsed(now)
    }

    pub(super) fn sent(&mut self, next: u64, now: Timestamp) {
        self.transmissions += 1;
        self.sent = Millis::of(now);
        self.mark = u16::try_from(next.saturating_sub(self.sequence)).unwrap_or(u16::MAX);
    }
}

/// A gateway has thousands of subscribers, each with its sealed channel.
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
