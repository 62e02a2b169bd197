//! Early copies of a flow's first and rare datagrams, if the last mile is known to lose some: of
//! handshakes, short answers, and the first flight of a long one (docs/POLICY.md, "Thin
//! datagrams").
//!
//! ```text
//!   forwarded ---> a token? ---> planned ---- due, and not known to have arrived ---> sent again
//!                    |                 |
//!                    +-- no: bulk      +---- others follow, a queue stands, repairs pause or
//!                                            need the budget: forgotten
//! ```
//!
//! Datagrams that pass before the client has proved its address are copied after that: no other
//! address gets copies.

use core::time::Duration;
use std::collections::VecDeque;

use packrat_assist_token::token_bucket::Rate;
use packrat_wire::RateLimit;
use packrat_wire::estimate::{PathEstimate, Timestamp};
use packrat_wire::handshake::LossClass;

use super::{Session, Turn};
use crate::history::Fate;

/// Rate of datagrams that are copied, and number at once: a download has its first ones copied, and
/// then hardly any.
const THIN_RATE: Rate = Rate { per_second: 10.0, burst: 10.0 };
/// Bounds of the time between a datagram and its copy, and between copies; within them, a quarter
/// of a round trip. Bursts of loss are over then, most likely.
const COPY_SPACING: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_millis(5);
/// Datagrams behind another one that show its loss by themselves (RFC 9002, section 6.1.1): a
/// datagram that is followed by them is not rare.
const FOLLOWING_DATAGRAMS: u64 = 3;
/// Datagrams at a session's beginning that count as rare, whatever follows them.
const FIRST_DATAGRAMS: u64 = 10;
/// Fates that are noted for later sessions the first time.
const FIRST_NOTED_FATES: u64 = 16;
/// Fates that are noted for later sessions at once, after the first time.
const NOTED_FATES: u64 = 256;

/// The early copies of one session.
#[derive(Debug)]
pub(crate) struct Thin {
    loss: LossClass,
    limit: RateLimit,
    /// Sequence numbers, by the time at which a copy is due.
    due: VecDeque<(Timestamp, u64)>,
}

impl Thin {
    /// `None`: the last mile loses too little.
    pub(crate) fn new(loss: f64, now: Timestamp) -> Option<Box<Self>> {
        let loss = LossClass::of(loss);
        let limit = RateLimit::new(THIN_RATE.burst, now);
        (loss > LossClass::Low).then(|| Box::new(Self { loss, limit, due: VecDeque::new() }))
    }

    /// Follows another measured loss. False if it is too low for copies.
    fn follow(&mut self, loss: f64) -> bool {
        self.loss = LossClass::of(loss);
        self.loss > LossClass::Low
    }

    /// Plans the copies of a datagram that was forwarded at this time.
    fn plan(
        &mut self,
        sequence: u64,
        forwarded_at: Timestamp,
        path: &PathEstimate,
        now: Timestamp,
    ) {
        if !self.limit.try_acquire(&THIN_RATE, now) {
            return;
        }
        let quarter = path.round_trip().map(|round_trip| round_trip / 4);
        let spacing = quarter.map_or(*COPY_SPACING.end(), |time| {
            time.clamp(*COPY_SPACING.start(), *COPY_SPACING.end())
        });
        for copy in 1..=copies(self.loss) {
            self.due.push_back((forwarded_at + spacing * copy, sequence));
        }
        self.due.make_contiguous().sort_unstable();
    }

    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        self.due.front().map(|(at, _)| *at)
    }

    fn take_due(&mut self, now: Timestamp) -> Option<u64> {
        self.due.pop_front_if(|(at, _)| *at <= now).map(|(_, sequence)| sequence)
    }
}

/// Number of copies with which one datagram in 1000 is lost with all of them.
fn copies(loss: LossClass) -> u32 {
    loss as u32
}

impl Session {
    /// True if early copies are allowed. Copies of a live stream are another matter.
    pub(super) fn may_copy_early(&self) -> bool {
        let config = self.permit.gateway().config();
        self.live.is_none()
            && self.drops_duplicates()
            && config.early_copies > 0.0
            && config.repair_budget > 0.0
    }

    /// Plans the copies of a forwarded datagram, in a session with early copies.
    #[cold]
    pub(super) fn plan_thin_copy(&mut self, now: Timestamp) {
        let sequence = self.history.next() - 1;
        if let Some(thin) = self.thin.as_mut().filter(|_| self.channel.is_proven()) {
            thin.plan(sequence, now, &self.last_mile.path, now);
        }
    }

    /// Plans copies of the server's first flight when the client has proved its address: of the
    /// datagrams that have passed before, and are not known to have arrived.
    pub(super) fn copy_first_flight(&mut self, now: Timestamp) {
        let Some(thin) = &mut self.thin else { return };
        for sequence in self.history.first()..self.history.next() {
            if let Some(entry) = self.history.get(sequence)
                && entry.fate == Fate::Unknown
            {
                thin.plan(sequence, entry.forwarded_at, &self.last_mile.path, now);
            }
        }
    }

    /// Sends the copies that are due.
    pub(super) fn send_thin_copies(&mut self, turn: &mut Turn<'_>) {
        let Some(mut thin) = self.thin.take() else { return };
        let off = self.queue_loses(turn.now);
        while let Some(sequence) = thin.take_due(turn.now) {
            if !off {
                self.send_thin_copy(sequence, turn);
            }
        }
        self.thin = Some(thin);
    }

    fn send_thin_copy(&mut self, sequence: u64, turn: &mut Turn<'_>) {
        let Some(entry) = self.history.get(sequence) else { return };
        let is_followed =
            sequence >= FIRST_DATAGRAMS && self.history.next() > sequence + FOLLOWING_DATAGRAMS;
        if entry.fate != Fate::Unknown || is_followed {
            return;
        }
        let Some((first, second)) = self.history.bytes(sequence) else { return };
        let identifier = entry.identifier;
        let numbering = self.numbering.as_deref();
        let number = numbering.and_then(|numbering| numbering.copy(sequence, identifier));
        let length = first.len() + second.len() + number.map_or(0, |number| number.len());
        // Bytes that repairs may need are left to them: a slow flow earns less than its copies
        // take.
        if !self.repairs.is_ample() || !self.repairs.afford(length, &self.permit, false) {
            return;
        }
        let Some((first, second)) = self.history.bytes(sequence) else { return };
        turn.out.repeat(self.history.is_congested(sequence), |bytes| {
            bytes.extend(number.into_iter().flatten());
            bytes.extend_from_slice(first);
            bytes.extend_from_slice(second);
        });
        turn.counters.early_copies += 1;
        turn.counters.early_copy_bytes += length as u64;
    }

    /// Follows the measured loss of the medium, and notes it for later sessions.
    pub(super) fn follow_thin(&mut self, now: Timestamp) {
        let Some(coding) = &mut self.coding else { return };
        let (sent, lost) = coding.unnoted();
        if sent >= if self.noted { NOTED_FATES } else { FIRST_NOTED_FATES } {
            self.noted = true;
            coding.forget_unnoted();
            self.permit.gateway().losses().note(self.permit.source(), sent, lost, now);
        }
        // A measurement needs some datagrams; until then the remembered loss holds.
        if coding.known() < NOTED_FATES {
            return;
        }
        let loss = coding.loss();
        if let Some(thin) = &mut self.thin {
            if !thin.follow(loss) {
                self.thin = None;
            }
        } else if LossClass::of(loss) > LossClass::Low && self.may_copy_early() {
            self.thin = Thin::new(loss, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn due(thin: &mut Thin) -> Vec<(u64, u64)> {
        let mut due = Vec::new();
        while let Some(at) = thin.next_timeout() {
            due.push((at.as_micros(), thin.take_due(at).unwrap()));
        }
        due
    }

    #[test]
    fn a_path_that_loses_little_has_no_copies() {
        assert!(Thin::new(0.0, at(0)).is_none() && Thin::new(0.009, at(0)).is_none());
        let mut thin = Thin::new(0.02, at(0)).unwrap();
        assert!(thin.follow(0.01) && !thin.follow(0.004));
    }

    #[test]
    fn copies_are_spaced_and_more_where_more_is_lost() {
        let mut path = PathEstimate::new();
        let mut thin = Thin::new(0.04, at(0)).unwrap();
        thin.plan(0, at(10), &path, at(10));
        thin.plan(1, at(10), &path, at(10));
        assert_eq!(due(&mut thin), [(15_000, 0), (15_000, 1), (20_000, 0), (20_000, 1)]);
        path.on_round_trip(Duration::from_millis(8));
        let mut thin = Thin::new(0.1, at(0)).unwrap();
        thin.plan(0, at(10), &path, at(10));
        thin.plan(1, at(11), &path, at(11));
        let times = due(&mut thin);
        assert_eq!(
            times.iter().map(|(at, _)| at / 1000).collect::<Vec<_>>(),
            [12, 13, 14, 15, 16, 17]
        );
    }

    #[test]
    fn bulk_is_not_copied() {
        let (path, mut thin) = (PathEstimate::new(), Thin::new(0.02, at(0)).unwrap());
        for sequence in 0..1000 {
            thin.plan(sequence, at(sequence), &path, at(sequence));
        }
        let copied = due(&mut thin).len();
        assert!((18..=20).contains(&copied), "ten at once, and ten a second: {copied}");
        assert_eq!(thin.take_due(at(5000)), None);
        thin.plan(1000, at(2000), &path, at(2000));
        assert_eq!(due(&mut thin).len(), 1, "after a pause");
    }
}
