//! What a stream knows of one subscriber: little, as there are thousands.
//!
//! The *virtual cache* of the paper (section 6.1): a place in the shared cache up to which the subscriber's fate is known, and the
//! packets before it that are missing. Nothing is kept per packet that arrived.

use core::time::Duration;

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use packrat_eack::Identifier;
use packrat_estimate::{LIVE_PATIENCE_MARGIN, Timestamp};
use packrat_wire::SmallChannel;
use packrat_wire::handshake::Live;

use super::sums::Sums;
use crate::budget::SourceBudget;

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
const PATIENCE_MARGIN: u32 = LIVE_PATIENCE_MARGIN.as_micros() as u32;
const MAXIMUM_TRANSMISSIONS: u8 = 8;
/// A subscriber is asked to count as received what it will never get no more often than this...
const OFFER_INTERVAL: Duration = Duration::from_millis(500);
/// ...and no more than so many times for the same: it may not know how.
const MAXIMUM_OFFERS: u8 = 8;
/// Room for packets under repair that is kept beyond what is used.
const OUTSTANDING_SLACK: usize = 1;

/// A packet under repair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outstanding {
    pub(super) sequence: u64,
    pub(super) identifier: Identifier,
    /// When it was found to be missing, and when it was sent last: milliseconds.
    found: Millis,
    sent: Millis,
    /// How far the stream has come since this packet when it was sent last.
    mark: u16,
    transmissions: u8,
}

/// What a subscriber was asked to count as received.
#[derive(Debug)]
struct Offer {
    sums: Sums,
    tries: u8,
}

/// A point in time that comes around after 49 days: only differences of neighbouring ones mean something.
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

/// What to do about a packet under repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Send,
    Wait,
    GiveUp,
}

/// One subscriber.
pub(super) struct Subscriber {
    /// What its sums lack of the stream's, for good: all from before it came, and what it will never get. `None`: nothing, as the subscriber has
    /// been asked to count it as received, and does.
    base: Option<Box<Sums>>,
    /// What it was asked so, but has not said yet that it does.
    offer: Option<Box<Offer>>,
    pub(super) epoch: u16,
    pub(super) address: Address,
    pub(super) failures: u8,
    pub(super) anchored: bool,
    pub(super) reset_pending: bool,
    pub(super) channel: SmallChannel,
    /// What repairs its source may have.
    pub(super) source: Arc<SourceBudget>,
    /// Everything before this has been spoken of; before the first eACK: where it joined.
    pub(super) horizon: u64,
    #[allow(clippy::box_collection)]
    // most have nothing under repair, and then this is a third of a vector's size
    outstanding: Option<Box<Vec<Outstanding>>>,
    pub(super) heard: Millis,
    window: u32,
    round_trip: u32,
    variation: u32,
    minimum: u32,
    eack_credit: f32,
    repair_credit: f32,
    /// The stream's bytes when the repair credit was last counted; comes around after 4 GiB, which is more than anybody can save up.
    counted: u32,
    pub(super) newest_eack: u32,
    /// When it was asked last to count something as received.
    offered: Millis,
}

impl Subscriber {
    pub(super) fn new(
        address: SocketAddr,
        channel: SmallChannel,
        source: Arc<SourceBudget>,
        live: Live,
        next: u64,
        bytes: u64,
        now: Timestamp,
    ) -> Self {
        Self {
            base: None,
            offer: None,
            epoch: 0,
            address: Address::of(address),
            failures: 0,
            anchored: false,
            reset_pending: false,
            channel,
            source,
            horizon: next,
            outstanding: None,
            heard: Millis::of(now),
            window: u32::try_from(live.window.as_micros()).unwrap_or(u32::MAX),
            round_trip: 0,
            variation: 0,
            minimum: u32::MAX,
            eack_credit: EACK_BURST,
            repair_credit: REPAIR_BURST,
            counted: bytes as u32,
            newest_eack: 0,
            offered: Millis::of(now),
        }
    }

    /// What its sums lack of the stream's: for good, and what is under repair.
    pub(super) fn lacks(&self) -> Sums {
        let mut sums = self.base.as_ref().map_or(Sums::ZERO, |base| **base);
        for one in self.outstanding() {
            sums.insert(one.identifier);
        }
        sums
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

    /// What it should be asked to count as received now, if anything, so that it need not be kept apart. The subscriber is then in the next epoch.
    pub(super) fn offer(&mut self, now: Timestamp) -> Option<Sums> {
        let base = self.base.as_deref()?;
        let begins = self.epoch == 0 && self.offer.is_none();
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

    /// Whether it has been asked for something that it does when it is in this epoch.
    pub(super) fn is_offered(&self, epoch: u16) -> bool {
        self.offer.is_some() && epoch == self.epoch.wrapping_add(1)
    }

    /// It counts as received what it was asked to.
    pub(super) fn take_offer(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        if let Some(offer) = self.offer.take() {
            self.change_base(|base| base.subtract(&offer.sums));
        }
    }

    /// What is under repair.
    pub(super) fn outstanding(&self) -> &[Outstanding] {
        self.outstanding.as_ref().map_or(&[], |outstanding| outstanding)
    }

    pub(super) fn take_outstanding(&mut self) -> Vec<Outstanding> {
        self.outstanding.take().map(|outstanding| *outstanding).unwrap_or_default()
    }

    /// Keeps no memory for nothing, and little more than is needed.
    pub(super) fn set_outstanding(&mut self, mut outstanding: Vec<Outstanding>) {
        if outstanding.capacity() > outstanding.len() + OUTSTANDING_SLACK {
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
        (self.round_trip, self.variation, self.minimum) = (0, 0, u32::MAX);
    }

    /// Whether another eACK may be looked at.
    pub(super) fn may_speak(&mut self, now: Timestamp) -> bool {
        let elapsed = self.heard.elapsed(now).as_secs_f32();
        self.eack_credit = (self.eack_credit + elapsed * EACKS_PER_SECOND).min(EACK_BURST);
        self.heard = Millis::of(now);
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
        let earned = f64::from((stream_bytes as u32).wrapping_sub(self.counted)) * share;
        self.counted = stream_bytes as u32;
        self.source.earn(earned);
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
        let tired = self.window == 0 && one.found.micros_since(now) > u64::from(patience);
        if late || tired || one.transmissions >= MAXIMUM_TRANSMISSIONS {
            return Step::GiveUp;
        }
        if one.transmissions == 0 {
            return Step::Send;
        }
        let since = one.sent.micros_since(now);
        let floor = if self.minimum == u32::MAX { ASSUMED_ROUND_TRIP } else { self.minimum } / 10 * 9;
        let overtaken = newest.is_some_and(|newest| newest >= one.sequence + u64::from(one.mark))
            && since >= u64::from(floor);
        let overdue = since >= u64::from(round_trip.saturating_add(spread).saturating_add(EACK_INTERVAL));
        if overtaken || overdue { Step::Send } else { Step::Wait }
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
const _: () = assert!(size_of::<Subscriber>() <= 200);
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
