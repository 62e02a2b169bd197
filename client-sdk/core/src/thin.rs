//! Early copies of the transport's first datagrams, and of its rare ones, if the last mile is known
//! to lose datagrams: of its handshake, of requests, of a last acknowledgement (docs/POLICY.md,
//! "Thin datagrams").
//!
//! ```text
//!   transport --> sent ----- a known loss, and a token ----> again some milliseconds later
//!                   +-- before the session: kept
//!                          | InitAck: not all of it has arrived ----------------> all of it again
//!                          +---------- all of it has, or there is no gateway ---> forgotten
//! ```
//!
//! A copy to a connection ID that may be retired is not sent ([`crate::destinations`]).

use core::time::Duration;
use std::collections::VecDeque;

use packrat_assist_token::token_bucket::Rate;
use packrat_wire::RateLimit;
use packrat_wire::estimate::{MediumLoss, Timestamp};
use packrat_wire::handshake::{LossClass, MOST_HEARD, RouteHint};

use crate::loss_memory::{Experience, Remembered};

/// Rate of copied datagrams: burst, and number per second.
const THIN_RATE: Rate = Rate { per_second: 10.0, burst: 10.0 };
/// Bounds of the time between a datagram and its copy, and between copies; within them, a quarter
/// of a round trip.
const COPY_SPACING: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_millis(5);
/// Datagrams that are kept of the transport's first flight.
const FIRST_FLIGHT_DATAGRAMS: usize = 6;
const _: () = assert!(FIRST_FLIGHT_DATAGRAMS <= MOST_HEARD as usize);
/// Datagrams of a first connection, after its first flight, that are sent twice if the loss is
/// unknown: the rest of the client's handshake, and its request.
const UNKNOWN_LOSS_COPIES: u8 = 4;
/// Bytes of the longest datagram that is sent twice if the loss is unknown: longer ones probe the
/// path MTU.
const LONGEST_UNKNOWN_BYTES: usize = 1200;
/// Datagrams after which the measured loss replaces the remembered one.
const MEASURED_DATAGRAMS: u64 = 256;

/// A copy that is to be sent.
#[derive(Debug)]
struct Planned {
    at: Timestamp,
    bytes: Vec<u8>,
}

/// The early copies of one connection, and the known properties of its last mile.
#[derive(Debug)]
pub(crate) struct Thin {
    enabled: bool,
    remembered: Remembered,
    medium: MediumLoss,
    experience: Experience,
    /// The transport's first datagrams, and the number of those sent before the first question for
    /// a gateway. `None`: the question is answered, or the datagrams were too many.
    first: Option<Vec<Vec<u8>>>,
    before_question: Option<u8>,
    /// A connection to this peer has been before.
    is_known: bool,
    /// Remaining datagrams that are sent twice because the loss is unknown.
    unknown: u8,
    limit: RateLimit,
    planned: VecDeque<Planned>,
    /// Times at which the gateway is informed again that the client has its answer.
    reminders: VecDeque<Timestamp>,
    pub(crate) copies: u64,
    pub(crate) copy_bytes: u64,
}

impl Thin {
    pub(crate) fn new(enabled: bool, now: Timestamp) -> Self {
        Self {
            enabled,
            remembered: Remembered::default(),
            medium: MediumLoss::default(),
            experience: Experience::default(),
            first: enabled.then(Vec::new),
            before_question: None,
            is_known: false,
            unknown: 0,
            limit: RateLimit::new(THIN_RATE.burst, now),
            planned: VecDeque::new(),
            reminders: VecDeque::new(),
            copies: 0,
            copy_bytes: 0,
        }
    }

    /// Earlier connections have seen this.
    pub(crate) fn remember(&mut self, remembered: Remembered) {
        self.is_known = remembered.round_trip.is_some();
        self.remembered = remembered;
    }

    /// Observations so far.
    pub(crate) fn experience(&self) -> Experience {
        self.experience
    }

    /// The loss of the last mile, as a class: measured, or remembered. Low where copies are not wished.
    fn loss(&self) -> LossClass {
        if !self.enabled {
            return LossClass::Low;
        }
        let measured = LossClass::of(self.medium.loss());
        if self.experience.sent >= MEASURED_DATAGRAMS {
            measured
        } else {
            measured.max(self.remembered.loss)
        }
    }

    /// Copies of a datagram, of which one in 1000 is lost with all of them.
    pub(crate) fn copies_of_each(&self) -> u32 {
        self.loss() as u32
    }

    /// Time between copies.
    pub(crate) fn spacing(&self) -> Duration {
        let quarter = self.remembered.round_trip.map(|round_trip| round_trip / 4);
        quarter.map_or(*COPY_SPACING.end(), |time| {
            time.clamp(*COPY_SPACING.start(), *COPY_SPACING.end())
        })
    }

    /// A round trip of the last mile was measured.
    pub(crate) fn on_round_trip(&mut self, sample: Duration) {
        let shortest = self.remembered.round_trip.map_or(sample, |known| known.min(sample));
        self.remembered.round_trip = Some(shortest);
        self.experience.round_trip = Some(shortest);
    }

    /// Called when this number of datagrams has arrived.
    pub(crate) fn on_arrived(&mut self, datagrams: u64) {
        self.on_fate(datagrams, 0);
    }

    /// A datagram was lost by the medium, and repaired.
    pub(crate) fn on_lost(&mut self) {
        self.on_fate(0, 1);
    }

    fn on_fate(&mut self, sent: u64, lost: u64) {
        self.medium.on_fate(sent, lost, lost);
        self.experience.sent += sent;
        self.experience.lost += lost;
    }

    /// Called when the transport sends a datagram without a number. `is_free`: copies are allowed;
    /// a queue, for example, forbids them.
    pub(crate) fn on_send(&mut self, datagram: &[u8], is_free: bool, now: Timestamp) {
        if !self.enabled {
            return;
        }
        if let Some(first) = &mut self.first {
            if first.len() < FIRST_FLIGHT_DATAGRAMS {
                first.push(datagram.to_vec());
            } else {
                self.first = None;
            }
        }
        let copies = self.copies_of_each().max(self.copies_of_unknown(datagram.len()));
        if copies == 0 || !is_free {
            return;
        }
        if self.limit.try_acquire(&THIN_RATE, now) {
            let spacing = self.spacing();
            for copy in 1..=copies {
                self.plan(now + spacing * copy, datagram.to_vec());
            }
        }
    }

    /// Copies of one of the first datagrams of a first connection.
    fn copies_of_unknown(&mut self, length: usize) -> u32 {
        if self.unknown == 0 || length > LONGEST_UNKNOWN_BYTES {
            return 0;
        }
        self.unknown -= 1;
        1
    }

    fn plan(&mut self, at: Timestamp, bytes: Vec<u8>) {
        let place = self.planned.partition_point(|planned| planned.at <= at);
        self.planned.insert(place, Planned { at, bytes });
    }

    /// A question for a gateway leaves.
    pub(crate) fn on_question(&mut self) {
        if self.before_question.is_none() {
            let sent = self.first.as_ref().map_or(usize::from(u8::MAX), Vec::len);
            self.before_question = Some(u8::try_from(sent).unwrap_or(u8::MAX));
        }
    }

    /// Called when a gateway has answered with its hint about the route.
    pub(crate) fn on_answer(&mut self, hint: RouteHint, now: Timestamp) {
        self.remembered.loss = self.remembered.loss.max(hint.loss);
        if !self.is_known {
            self.unknown = UNKNOWN_LOSS_COPIES;
        }
        let (copies, spacing) = (self.copies_of_each(), self.spacing());
        self.reminders = (1..=copies).map(|copy| now + spacing * copy).collect();
        let Some(first) = self.first.take() else { return };
        // The datagrams after the question may still have been in flight.
        let sent = self.before_question.unwrap_or(0).min(MOST_HEARD);
        let Some(missing) = hint.heard.and_then(|heard| sent.checked_sub(heard)) else { return };
        if missing == 0 {
            return;
        }
        self.on_fate(u64::from(sent), u64::from(missing));
        // A few datagrams are no measurement; but one was lost.
        self.remembered.loss = self.remembered.loss.max(LossClass::FromThree);
        let (copies, spacing) = (self.copies_of_each(), self.spacing());
        for datagram in first {
            for copy in 0..=copies {
                self.plan(now + spacing * copy, datagram.clone());
            }
        }
    }

    /// Ends all repetitions.
    pub(crate) fn forget(&mut self) {
        self.first = None;
        self.unknown = 0;
        self.planned.clear();
        self.reminders.clear();
    }

    /// Time at which the next copy is due.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        let copy = self.planned.front().map(|planned| planned.at);
        copy.into_iter().chain(self.reminders.front().copied()).min()
    }

    /// True if the gateway is to be informed of the session now.
    pub(crate) fn take_reminder(&mut self, now: Timestamp) -> bool {
        let is_due = self.reminders.front().is_some_and(|at| *at <= now);
        is_due && self.reminders.pop_front().is_some()
    }

    /// The next due copy among those to connection IDs in use.
    pub(crate) fn poll_transmit(
        &mut self,
        is_in_use: impl Fn(&[u8]) -> bool,
        now: Timestamp,
    ) -> Option<Vec<u8>> {
        loop {
            self.planned.front().filter(|planned| planned.at <= now)?;
            let Planned { bytes, .. } = self.planned.pop_front()?;
            if is_in_use(&bytes) {
                self.copies += 1;
                self.copy_bytes += bytes.len() as u64;
                return Some(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn lossy(loss: LossClass) -> Thin {
        let mut thin = Thin::new(true, at(0));
        thin.remember(Remembered { loss, round_trip: Some(Duration::from_millis(8)) });
        thin
    }

    fn sent(thin: &mut Thin) -> Vec<(u64, usize)> {
        let mut sent = Vec::new();
        while let Some(at) = thin.next_timeout() {
            sent.push((at.as_micros() / 1000, thin.poll_transmit(|_| true, at).unwrap().len()));
        }
        sent
    }

    #[test]
    fn without_a_known_loss_nothing_is_copied() {
        let mut thin = Thin::new(true, at(0));
        for millis in 0..100 {
            thin.on_send(&[1; 1200], true, at(millis));
        }
        assert_eq!(thin.next_timeout(), None);
        thin.on_answer(RouteHint { heard: Some(6), loss: LossClass::Low }, at(100));
        assert_eq!(thin.next_timeout(), None);
    }

    #[test]
    fn the_rest_of_a_handshake_over_an_unknown_path_is_sent_twice() {
        let answer = RouteHint { heard: None, loss: LossClass::Low };
        let mut thin = Thin::new(true, at(0));
        thin.on_send(&[1; 1200], true, at(0));
        assert_eq!(thin.next_timeout(), None, "there may be no gateway");
        thin.on_answer(answer, at(20));
        for _ in 0..9 {
            for length in [1472, 1200, 60] {
                thin.on_send(&vec![1; length], true, at(40));
            }
        }
        assert_eq!(sent(&mut thin), [(45, 1200), (45, 60), (45, 1200), (45, 60)]);
        let mut thin = lossy(LossClass::Low);
        thin.on_answer(answer, at(20));
        thin.on_send(&[1; 60], true, at(40));
        assert_eq!(thin.next_timeout(), None, "a connection has been before");
    }

    #[test]
    fn where_loss_is_known_each_rare_datagram_has_copies() {
        let mut thin = lossy(LossClass::FromEight);
        thin.on_send(&[1; 1200], true, at(0));
        assert_eq!(sent(&mut thin), [(2, 1200), (4, 1200), (6, 1200)]);
        thin.on_send(&[1; 1200], false, at(10));
        assert_eq!(thin.next_timeout(), None, "a queue stands");
        for millis in 10..1010 {
            thin.on_send(&[1; 1200], true, at(millis));
        }
        let copied = sent(&mut thin).len();
        assert!((54..=60).contains(&copied), "ten at once, ten a second, three times: {copied}");
    }

    #[test]
    fn a_connection_id_that_is_not_in_use_gets_no_copies() {
        let mut thin = lossy(LossClass::FromThree);
        for (id, millis) in [(7, 0), (9, 1)] {
            thin.on_send(&[id; 45], true, at(millis));
        }
        let mut sent = Vec::new();
        while let Some(at) = thin.next_timeout() {
            sent.extend(thin.poll_transmit(|datagram| datagram[0] == 9, at));
        }
        assert_eq!((sent, thin.copies), (vec![vec![9; 45]; 2], 2));
    }

    #[test]
    fn a_first_flight_that_missed_the_gateway_is_repeated_at_once() {
        let hint = |heard| RouteHint { heard, loss: LossClass::Low };
        for (heard, again) in
            [(Some(2), false), (Some(3), false), (Some(1), true), (Some(0), true), (None, false)]
        {
            let mut thin = Thin::new(true, at(0));
            thin.on_send(&[1; 1200], true, at(0));
            thin.on_send(&[2; 700], true, at(0));
            thin.on_question();
            // It may have been overtaken.
            thin.on_send(&[3; 90], true, at(1));
            thin.on_answer(hint(heard), at(40));
            assert_eq!(thin.next_timeout(), again.then_some(at(40)), "{heard:?}");
            if again {
                let sent = sent(&mut thin);
                assert_eq!(
                    sent.iter().filter(|(_, length)| *length == 1200).count(),
                    3,
                    "with copies"
                );
                assert_eq!(thin.experience().lost, u64::from(2 - heard.unwrap()));
            }
            thin.on_answer(hint(Some(0)), at(50));
            assert!(thin.planned.is_empty(), "once");
        }
    }

    #[test]
    fn a_question_before_everything_else_tells_nothing() {
        let mut thin = Thin::new(true, at(0));
        thin.on_question();
        thin.on_send(&[1; 1200], true, at(0));
        thin.on_answer(RouteHint { heard: Some(0), loss: LossClass::Low }, at(40));
        assert_eq!(thin.next_timeout(), None);
    }

    #[test]
    fn what_is_measured_replaces_what_was_remembered() {
        let mut thin = lossy(LossClass::FromEight);
        thin.on_arrived(255);
        assert_eq!(thin.copies_of_each(), 3);
        thin.on_arrived(1);
        assert_eq!(thin.copies_of_each(), 0);
        let mut thin = Thin::new(true, at(0));
        for _ in 0..30 {
            thin.on_arrived(9);
            thin.on_lost();
        }
        assert_eq!(thin.copies_of_each(), 3);
        assert_eq!((thin.experience().sent, thin.experience().lost), (270, 30));
    }
}
