//! Datagrams towards the server: numbered, kept for a while, and sent again if the gateway reports
//! them as missing (docs/PROTOCOL.md, section 11, "Uploads").
//!
//! ```text
//!   transport --> number in front, a copy kept --> socket
//!                      ^                             ^
//!                      |  arrived: forgotten         | the same bytes, the same number
//!                      +--- gateway: Holes ----------+ within the budget, where it is wanted
//! ```
//!
//! The transport is never held up: datagrams leave unnumbered if the gateway is silent, if a
//! datagram is too long, or in a thin stream of acknowledgements.

use core::time::Duration;
use std::collections::VecDeque;

use packrat_assist_token::token_bucket::{Rate, TokenBucket};
use packrat_eack::Identifier;
use packrat_wire::estimate::{PathEstimate, Timestamp};
use packrat_wire::handshake::GatewayParams;
use packrat_wire::message::{Holes, SATURATED_AGE};
use packrat_wire::number::{NumberHeader, NumberKey};

use crate::liveness::ASSUMED_ROUND_TRIP;

/// Most datagrams that are kept.
const MAXIMUM_DATAGRAMS: usize = 2048;
/// Most bytes of datagrams that are kept.
const MAXIMUM_BYTES: usize = 2 << 20;
/// Age from which a copy is of no use: the longest hold is over.
const MAXIMUM_AGE: Duration = Duration::from_secs(1);

/// Bytes of a datagram from which it belongs to an upload.
const BULK_LENGTH: usize = 400;
/// Time for which all datagrams behind a long one belong to an upload as well.
const BULK_TIME: Duration = Duration::from_millis(250);
/// Rate of a download's shorter datagrams that get a number: requests and the first
/// acknowledgements of an answer. Of any other connection all do: a call, or a stream that is sent.
const THIN_RATE: Rate = Rate { per_second: 10.0, burst: 16.0 };

/// Number of datagrams, longer than any numbered one known to have arrived, that get a number
/// nevertheless.
const UNPROVEN_DATAGRAMS: u32 = 64;
/// Number of later datagrams of unproven length of which one gets a number.
const UNPROVEN_INTERVAL: u32 = 64;
/// Datagrams of unproven length that did not arrive, until such lengths go plain.
const VANISHED_DATAGRAMS: u32 = 8;

/// Share of the sent datagrams that may be sent again.
const REPEATED_SHARE: f64 = 0.25;
/// Largest share of the sent datagrams that may be sent again if the loss requires it.
const MAXIMUM_SHARE: f64 = 0.5;
/// Time whose sent bytes may be saved up for sending datagrams again.
const SAVINGS_TIME: Duration = Duration::from_millis(100);
/// Fewest bytes that may be saved up.
const MINIMUM_BURST_BYTES: f64 = 24_000.0;
/// Most bytes that may be saved up.
const MAXIMUM_BURST_BYTES: f64 = 256_000.0;
/// Transmissions of one datagram.
const MAXIMUM_TRANSMISSIONS: u8 = 12;
/// Time beside one and a half round trips in which the gateway would have reported the arrival of a
/// repair: while a datagram is missing, it reports every half round trip, or at this interval.
const AGAIN_MARGIN: Duration = Duration::from_millis(2);

/// Time beside the round trip in which the gateway reports the last datagram of a few.
const TAIL_MARGIN: Duration = Duration::from_millis(10);
/// Time beside the round trip in which the gateway reports the last datagram of many.
const TAIL_MARGIN_OF_MANY: Duration = Duration::from_millis(30);
/// Number of unreported datagrams from which they are many.
const FEW_DATAGRAMS: u64 = 4;
/// Repetitions of a last datagram that the gateway has not reported.
const MAXIMUM_PROBES: u32 = 4;
/// Shortest silence of the gateway about numbered datagrams after which they leave unnumbered.
const GATEWAY_SILENCE: Duration = Duration::from_millis(250);

/// A numbered datagram that may have to be sent again.
#[derive(Debug)]
struct Sent {
    header: NumberHeader,
    /// Empty: not needed any more.
    datagram: Vec<u8>,
    length: usize,
    at: Timestamp,
    transmissions: u8,
    /// The next place at the time of the last transmission: once the datagram with that place
    /// arrives, this one should have arrived.
    horizon: u64,
}

/// Counters of numbered and repeated datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UpwardStats {
    pub(crate) numbered: u64,
    pub(crate) missing: u64,
    pub(crate) repairs: u64,
    pub(crate) repair_bytes: u64,
}

/// The sending side of the numbers towards the server, for one session.
#[derive(Debug)]
pub(crate) struct Upward {
    key: NumberKey,
    /// The longest datagram that gets a number: as agreed, and now.
    agreed: usize,
    largest: usize,
    /// The longest numbered datagram that has arrived by this path, and longer ones since then.
    proven: usize,
    unproven: u32,
    vanished: u32,
    shortest_vanished: usize,
    /// The next place; kept datagrams have places below it.
    next: u64,
    kept: VecDeque<Sent>,
    bytes: usize,
    /// The gateway has reported on the places below.
    told: u64,
    untold_since: Option<Timestamp>,
    /// Set if datagrams leave unnumbered until the gateway reports again.
    is_silent: bool,
    path: PathEstimate,
    budget: TokenBucket,
    /// Bytes sent lately.
    recent: f64,
    sent_at: Timestamp,
    /// Places to send again, and the number of repetitions of the last one.
    ready: VecDeque<u64>,
    probes: u32,
    tail_since: Timestamp,
    bulk_until: Timestamp,
    thin: TokenBucket,
    thin_at: Timestamp,
    pub(crate) stats: UpwardStats,
}

impl Upward {
    /// Creates the state of a session; `None` if datagrams towards the server are not numbered.
    /// `round_trip`: of the handshake.
    pub(crate) fn new(
        params: &GatewayParams,
        round_trip: Option<Duration>,
        now: Timestamp,
    ) -> Option<Self> {
        let numbered = params.numbered.filter(|numbered| numbered.to_server)?;
        let agreed = usize::from(numbered.largest);
        let mut path = PathEstimate::new();
        if let Some(sample) = round_trip {
            path.on_round_trip(sample);
        }
        Some(Self {
            key: params.upward_number_key(),
            agreed,
            largest: agreed,
            proven: 0,
            unproven: 0,
            vanished: 0,
            shortest_vanished: usize::MAX,
            next: 0,
            kept: VecDeque::new(),
            bytes: 0,
            told: 0,
            untold_since: None,
            is_silent: false,
            path,
            budget: TokenBucket::new(MINIMUM_BURST_BYTES),
            recent: 0.0,
            sent_at: now,
            ready: VecDeque::new(),
            probes: 0,
            tail_since: now,
            bulk_until: now,
            thin: TokenBucket::new(THIN_RATE.burst),
            thin_at: now,
            stats: UpwardStats::default(),
        })
    }

    /// True if a datagram of this length gets a number now. `download`: most bytes come from the server, so
    /// that short datagrams are acknowledgements, and not a stream of their own.
    pub(crate) fn takes(&mut self, length: usize, download: bool, now: Timestamp) -> bool {
        if self.untold_since.is_some_and(|since| now.saturating_since(since) > self.silence()) {
            self.fall_silent();
        }
        if self.is_silent || length > self.largest {
            return false;
        }
        if length >= BULK_LENGTH {
            self.bulk_until = now + BULK_TIME;
        } else if download && now >= self.bulk_until {
            self.thin.earn(THIN_RATE.earned(now.saturating_since(self.thin_at)), THIN_RATE.burst);
            self.thin_at = now;
            if !self.thin.try_take(1.0) {
                return false;
            }
        }
        if length > self.proven {
            self.unproven = self.unproven.saturating_add(1);
            return self.unproven <= UNPROVEN_DATAGRAMS
                || self.unproven.is_multiple_of(UNPROVEN_INTERVAL);
        }
        true
    }

    fn silence(&self) -> Duration {
        (self.again_after() * 4).max(GATEWAY_SILENCE)
    }

    /// Ends numbering, and drops all copies.
    fn fall_silent(&mut self) {
        self.is_silent = true;
        if self.unproven > 0 {
            // It may be the length that the path does not carry.
            self.unproven = UNPROVEN_DATAGRAMS;
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.kept.clear();
        self.ready.clear();
        self.bytes = 0;
        self.told = self.next;
        self.untold_since = None;
        self.probes = 0;
    }

    /// Bytes of the kept copies.
    pub(crate) fn memory(&self) -> usize {
        self.bytes + self.kept.capacity() * size_of::<Sent>()
    }

    /// Forgets all that was sent, which is too old to be of use, and gives the memory back.
    pub(crate) fn trim(&mut self) {
        self.forget();
        self.kept = VecDeque::new();
        self.ready = VecDeque::new();
    }

    /// Called for an authentic message of the gateway.
    pub(crate) fn on_authentic(&mut self) {
        self.is_silent = false;
    }

    /// Called when the client moves: arrival by the new path is unproven.
    pub(crate) fn on_move(&mut self) {
        self.fall_silent();
        self.largest = self.agreed;
        (self.proven, self.unproven) = (0, 0);
        (self.vanished, self.shortest_vanished) = (0, usize::MAX);
        self.path.forget_round_trip();
    }

    /// Keeps a datagram that [`Self::takes`] has accepted; returns the number to put in front of
    /// it.
    pub(crate) fn number(
        &mut self,
        datagram: &[u8],
        identifier: Identifier,
        now: Timestamp,
    ) -> NumberHeader {
        let header = self.key.header(self.next, identifier);
        self.kept.push_back(Sent {
            header,
            datagram: datagram.to_vec(),
            length: datagram.len(),
            at: now,
            transmissions: 1,
            horizon: self.next,
        });
        self.next += 1;
        self.bytes += datagram.len();
        while let Some(oldest) = self.kept.front()
            && (self.kept.len() > MAXIMUM_DATAGRAMS
                || self.bytes > MAXIMUM_BYTES
                || oldest.datagram.is_empty()
                || now.saturating_since(oldest.at) > MAXIMUM_AGE)
        {
            self.bytes -= oldest.datagram.len();
            self.kept.pop_front();
        }
        self.stats.numbered += 1;
        let elapsed = now.saturating_since(self.sent_at).as_secs_f64();
        self.sent_at = now;
        self.recent *= (-elapsed / SAVINGS_TIME.as_secs_f64()).exp();
        self.recent += datagram.len() as f64;
        let burst = self.recent.clamp(MINIMUM_BURST_BYTES, MAXIMUM_BURST_BYTES);
        self.budget.earn(datagram.len() as f64 * self.share(), burst);
        self.untold_since.get_or_insert(now);
        (self.probes, self.tail_since) = (0, now);
        header
    }

    fn share(&self) -> f64 {
        let loss = self.path.loss();
        (1.3 * loss / (1.0 - loss).max(0.1)).clamp(REPEATED_SHARE, MAXIMUM_SHARE)
    }

    /// The sender's link refuses a datagram of this length with its number: all of its length and above
    /// go plain, and no copy of such a one is sent.
    pub(crate) fn on_refused(&mut self, length: usize) {
        self.largest = self.largest.min(length.saturating_sub(1));
        (self.unproven, self.vanished, self.shortest_vanished) = (0, 0, usize::MAX);
        for sent in self.kept.iter_mut().filter(|sent| sent.length >= length) {
            self.bytes -= core::mem::take(&mut sent.datagram).len();
        }
    }

    /// The place of the oldest that is kept.
    fn first(&self) -> u64 {
        self.next - self.kept.len() as u64
    }

    fn at(&mut self, place: u64) -> Option<&mut Sent> {
        let index = usize::try_from(place.checked_sub(self.first())?).ok()?;
        self.kept.get_mut(index)
    }

    /// Time in which the gateway reports the arrival of a datagram.
    fn again_after(&self) -> Duration {
        let round_trip = self.path.round_trip().unwrap_or(ASSUMED_ROUND_TRIP);
        round_trip * 3 / 2 + self.path.round_trip_variation() * 4 + AGAIN_MARGIN
    }

    /// Called when the gateway reports the missing datagrams.
    pub(crate) fn on_holes(&mut self, holes: &Holes<'_>, now: Timestamp) {
        // A forged number may have led the gateway ahead of the sent ones.
        let ahead = i64::from(holes.expected.wrapping_sub(self.next as u32) as i32);
        let Some(above) = self.next.checked_add_signed(ahead) else { return };
        let (expected, told) = (above.min(self.next), self.told);
        if expected < told {
            return;
        }
        if above <= self.next {
            self.measure(expected, holes.age, now);
        }
        let places =
            |place: u64| above.saturating_sub(u64::from(holes.expected.wrapping_sub(place as u32)));
        let (mut begin, mut lost) = (self.first().min(expected), 0);
        let mut missing = Vec::new();
        let mut runs: Vec<_> = holes.runs().collect();
        runs.reverse();
        for run in runs {
            let first = places(run.first);
            self.on_arrived(begin, first.min(expected));
            begin = first + u64::from(run.count);
            let kept = first.max(self.first())..begin.min(expected);
            lost += kept.clone().filter(|place| *place >= told).count() as u64;
            missing.extend(kept);
        }
        self.on_arrived(begin, expected);
        self.path.on_fate(expected - told, lost);
        self.stats.missing += lost;
        let arrived = (above <= self.next).then_some(expected);
        for place in missing {
            self.on_missing(place, arrived, holes.wanted, now);
        }
        if expected > told {
            (self.probes, self.tail_since) = (0, now);
        }
        self.told = expected;
        self.untold_since = (expected < self.next).then_some(now);
        self.is_silent = false;
    }

    fn measure(&mut self, expected: u64, age: Duration, now: Timestamp) {
        if expected <= self.told || age >= SATURATED_AGE {
            return;
        }
        let Some(newest) = self.at(expected - 1).filter(|newest| newest.transmissions == 1) else {
            return;
        };
        let sample = now.saturating_since(newest.at).saturating_sub(age);
        self.path.on_round_trip(sample);
    }

    /// The datagrams of these places have arrived, or are not waited for.
    fn on_arrived(&mut self, from: u64, to: u64) {
        for place in from.max(self.first())..to {
            let is_new = place >= self.told;
            let Some(sent) = self.at(place) else { continue };
            let (kept, length) = (core::mem::take(&mut sent.datagram).len(), sent.length);
            self.bytes -= kept;
            if is_new && length > self.proven {
                (self.proven, self.unproven, self.vanished) = (length, 0, 0);
            }
        }
    }

    /// The datagram of this place is missing, while everything below `arrived` that is not has
    /// arrived.
    fn on_missing(&mut self, place: u64, arrived: Option<u64>, wanted: bool, now: Timestamp) {
        let again_after = self.again_after();
        let (proven, is_new) = (self.proven, place >= self.told);
        let Some(sent) = self.at(place) else { return };
        let length = sent.length;
        if is_new && length > proven {
            self.vanished += 1;
            self.shortest_vanished = self.shortest_vanished.min(length);
            if self.vanished >= VANISHED_DATAGRAMS {
                self.largest = self.largest.min(self.shortest_vanished.saturating_sub(1));
                (self.unproven, self.vanished, self.shortest_vanished) = (0, 0, usize::MAX);
            }
        }
        let Some(sent) = self.at(place).filter(|sent| !sent.datagram.is_empty()) else { return };
        if !wanted {
            let kept = core::mem::take(&mut sent.datagram).len();
            self.bytes -= kept;
            return;
        }
        let is_overtaken = arrived.is_some_and(|arrived| arrived > sent.horizon);
        let is_due = is_overtaken || now.saturating_since(sent.at) >= again_after;
        if is_due && sent.transmissions < MAXIMUM_TRANSMISSIONS && !self.ready.contains(&place) {
            self.ready.push_back(place);
        }
    }

    /// The next datagram that is sent again, with its number, if the budget allows; and its place. One to
    /// a connection ID that is not in use stays.
    pub(crate) fn poll_transmit(
        &mut self,
        is_in_use: impl Fn(&[u8]) -> bool,
        now: Timestamp,
    ) -> Option<(u64, Vec<u8>)> {
        while let Some(place) = self.ready.pop_front() {
            let (next, budget) = (self.next, self.budget.tokens());
            let is_wanted =
                |sent: &&mut Sent| !sent.datagram.is_empty() && is_in_use(&sent.datagram);
            let Some(sent) = self.at(place).filter(is_wanted) else { continue };
            let cost = sent.datagram.len() as f64;
            if cost > budget {
                // The gateway asks again.
                self.ready.clear();
                return None;
            }
            sent.at = now;
            sent.horizon = next;
            sent.transmissions += 1;
            let mut bytes = Vec::with_capacity(sent.header.len() + sent.datagram.len());
            bytes.extend_from_slice(&sent.header);
            bytes.extend_from_slice(&sent.datagram);
            self.budget.charge(cost);
            self.stats.repairs += 1;
            self.stats.repair_bytes += bytes.len() as u64;
            return Some((place, bytes));
        }
        None
    }

    /// Time at which the last datagram is sent again because the gateway has not reported it.
    pub(crate) fn tail_deadline(&self) -> Option<Timestamp> {
        let untold = self.next - self.told;
        if untold == 0 || self.is_silent || self.probes >= MAXIMUM_PROBES {
            return None;
        }
        let margin = if untold < FEW_DATAGRAMS { TAIL_MARGIN } else { TAIL_MARGIN_OF_MANY };
        Some(self.tail_since + (self.again_after() + margin) * (1 << self.probes))
    }

    /// Called at the tail deadline.
    pub(crate) fn on_tail(&mut self, now: Timestamp) {
        self.probes += 1;
        self.tail_since = now;
        let last = self.next.saturating_sub(1);
        if !self.ready.contains(&last) {
            self.ready.push_back(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_eack::SketchLimits;
    use packrat_wire::SessionId;
    use packrat_wire::handshake::{Numbered, RouteHint};
    use packrat_wire::identifier::IdentifierScheme;
    use packrat_wire::message::Run;

    #[test]
    fn datagrams_refused_with_a_number_go_plain_without_repeats() {
        let now = Timestamp::from_millis(1000);
        let params = GatewayParams {
            session: SessionId::new(1),
            scheme: IdentifierScheme::Payload,
            limits: SketchLimits::default(),
            cache_bytes: 0,
            secret: [7; 32].into(),
            stream: None,
            symbols: None,
            numbered: Some(Numbered {
                to_client: true,
                to_server: true,
                coded: false,
                largest: 1472,
            }),
            hint: RouteHint::default(),
            ticket: None,
            bundles: false,
            distinct: false,
        };
        let mut upward = Upward::new(&params, Some(Duration::from_millis(10)), now).unwrap();
        for (place, length) in [1200, 1466, 1200].into_iter().enumerate() {
            assert!(upward.takes(length, true, now), "{place}");
            upward.number(&vec![7; length], Identifier::from_hash(place as u64), now);
        }
        upward.on_refused(1466);
        assert!(!upward.takes(1466, true, now) && !upward.takes(1470, true, now));
        assert!(upward.takes(1465, true, now));
        // The gateway misses the refused datagram, and a lost one.
        let mut buffer = Vec::new();
        let holes = Holes::new(true, 3, Duration::ZERO, &[Run { first: 0, count: 2 }], &mut buffer);
        upward.on_holes(&holes, now + Duration::from_millis(100));
        let again =
            std::iter::from_fn(|| upward.poll_transmit(|_| true, now + Duration::from_millis(100)));
        assert_eq!(again.map(|(place, _)| place).collect::<Vec<_>>(), [0]);
        // By another path it may fit.
        upward.on_move();
        upward.on_authentic();
        assert!(upward.takes(1466, true, now));
    }
}
