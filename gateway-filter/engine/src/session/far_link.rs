//! The link on the way to the server that is slower than the last mile, if there is one. Only then
//! is a burst spread that would leave the gateway when a hole is filled.
//!
//! A server acknowledges several datagrams with one (two, RFC 9000, section 13.2.2; often ten). A
//! burst that meets no slower link arrives at once; its answers leave at once, and a queue on the
//! way back does not part them. Behind a slower link they leave at its pace, and come together only
//! by chance, if a queue on the way back pushes them together. This is the dispersion of a packet
//! train (Dovrolis, Ramanathan and Moore, "What do packet dispersion techniques measure?", 2001),
//! measured at its answers: sizes and times of encrypted datagrams are enough.
//!
//! ```text
//!   forwarded        ::::::::::::::::   .  .  .  .          a burst, and what follows
//!   answers          ....                  .     .          no slower link: a run of its answers
//!                    .   .   .   .   .   .   .   .          a slower one: no run
//! ```
//!
//! A server that invents or delays answers makes its own client's uploads wait: no longer than the
//! burst's first datagram has waited, which is the patience at most.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

/// Bytes of the longest answer: acknowledgements and little beside.
const LONGEST_ANSWER_BYTES: usize = 100;
/// Answers of a block, after which the usual values are measured anew.
const BLOCK_ANSWERS: u32 = 32;
/// Factor by which the largest number of datagrams for an answer is forgotten with each block. A
/// server answers each datagram while it misses one, and a single one after a while.
const PER_ANSWER_DECAY: f64 = 0.95;
/// Weight of a block in the interval of answers.
const BLOCK_WEIGHT: f64 = 0.25;
/// Fewest answers that a burst must expect to be judged.
const FEWEST_ANSWERS: usize = 4;
/// Most answers of a burst that are looked for.
const MOST_ANSWERS: usize = 16;
/// Ratio of their rate to the usual one from which answers are a run.
const RUN_RATE_RATIO: f64 = 4.0;
/// Time for which a server waits with the answer to a single datagram (RFC 9000, section 18.2): the
/// round trip is measured too long by that, at most, and by a queue that is as long as itself.
const ANSWER_DELAY: Duration = Duration::from_millis(25);
/// Time that an answer may take beyond the longest round trip.
const ANSWER_LATENESS: Duration = Duration::from_millis(20);
/// Longest round trip that is believed.
const LONGEST_ROUND_TRIP: Duration = Duration::from_secs(1);
/// Part of a miss that a burst with its run takes back; a burst without one counts 1.
const RUN_CREDIT: f64 = 0.33;
/// Misses from which on a slower link follows.
const MISSES_ENOUGH: f64 = 3.0;
/// Misses that are remembered at most.
const MAXIMUM_MISSES: f64 = 6.0;
/// Time after which a burst leaves at once again, and shows anew whether a slower link follows.
const SLOW_LINK_MEMORY: Duration = Duration::from_secs(10);
/// Ratio of the rate at which a spread burst passes to the rate at which it has come.
const SPREAD_RATE_RATIO: u64 = 2;
/// Step of the times at which a spread burst passes, microseconds.
const SPREAD_STEP_MICROS: u64 = 1000;

/// A burst whose answers are awaited.
#[derive(Debug, Clone, Copy)]
struct Watch {
    from: Timestamp,
    to: Timestamp,
    /// Answers that belong to the burst, and number of answers that have come.
    answers: usize,
    come: usize,
}

/// Evidence of the server's answers about the path to it: some 260 bytes, and the same work for
/// each datagram.
#[derive(Debug, Default)]
pub(super) struct FarLink {
    /// The block: when it began, its datagrams and its answers.
    began: Option<Timestamp>,
    forwarded: u32,
    answers: u32,
    /// Datagrams for an answer, and microseconds from one answer to the next; 0 before the first
    /// block is over.
    per_answer: f64,
    interval: f64,
    /// The newest answers' times, in a ring.
    times: [Timestamp; MOST_ANSWERS],
    next: usize,
    /// The first datagram since the last answer; and the longest time that an answer has taken.
    asked: Option<Timestamp>,
    round_trip: Duration,
    watch: Option<Watch>,
    misses: f64,
    known_until: Timestamp,
}

impl FarLink {
    /// Records that `count` long datagrams leave at once.
    pub(super) fn on_forwarded(&mut self, count: u32, now: Timestamp) {
        if count == 0 {
            return;
        }
        self.judge(now);
        self.forwarded = self.forwarded.saturating_add(count);
        self.asked.get_or_insert(now);
        if self.per_answer <= 0.0 || self.watch.is_some() {
            return;
        }
        let answers = ((f64::from(count) / self.per_answer) as usize).min(MOST_ANSWERS);
        if answers >= FEWEST_ANSWERS {
            let from = now + self.round_trip.saturating_sub(ANSWER_DELAY) / 2;
            let to = now + self.round_trip + ANSWER_LATENESS;
            self.watch = Some(Watch { from, to, answers, come: 0 });
        }
    }

    /// Records a datagram of `length` bytes from the server.
    pub(super) fn on_answer(&mut self, length: usize, now: Timestamp) {
        if length > LONGEST_ANSWER_BYTES {
            return;
        }
        self.judge(now);
        if let Some(asked) = self.asked.take() {
            self.round_trip =
                self.round_trip.max(now.saturating_since(asked)).min(LONGEST_ROUND_TRIP);
        }
        self.count(now);
        self.times[self.next % MOST_ANSWERS] = now;
        self.next = self.next.wrapping_add(1);
        let Some(watch) = self.watch.as_mut().filter(|watch| watch.from <= now) else { return };
        watch.come += 1;
        let first = self.times[self.next.wrapping_sub(watch.answers) % MOST_ANSWERS];
        let took = now.saturating_since(first).as_micros() as f64;
        let usual = self.interval * (watch.answers - 1) as f64;
        if watch.come >= watch.answers && took * RUN_RATE_RATIO <= usual {
            self.misses = (self.misses - RUN_CREDIT).max(0.0);
            self.watch = None;
        }
    }

    /// Counts an answer in the block.
    fn count(&mut self, now: Timestamp) {
        let Some(began) = self.began else {
            (self.began, self.forwarded) = (Some(now), 0);
            return;
        };
        self.answers += 1;
        if self.answers < BLOCK_ANSWERS {
            return;
        }
        let answers = f64::from(self.answers);
        let interval = now.saturating_since(began).as_micros() as f64 / answers;
        let weight = if self.per_answer > 0.0 { BLOCK_WEIGHT } else { 1.0 };
        self.interval += (interval - self.interval) * weight;
        self.per_answer =
            (self.per_answer * PER_ANSWER_DECAY).max(f64::from(self.forwarded) / answers);
        (self.began, self.forwarded, self.answers) = (Some(now), 0, 0);
    }

    /// Judges a burst when the time of its answers is over.
    fn judge(&mut self, now: Timestamp) {
        if let Some(watch) = self.watch.filter(|watch| watch.to < now) {
            self.watch = None;
            // Fewer answers are no evidence: the server has answered less often.
            if watch.come >= watch.answers {
                self.misses = (self.misses + 1.0).min(MAXIMUM_MISSES);
                self.known_until = now + SLOW_LINK_MEMORY;
            }
        }
    }

    /// True if a slower link follows, most likely.
    pub(super) fn is_slower(&mut self, now: Timestamp) -> bool {
        self.judge(now);
        if self.misses >= MISSES_ENOUGH && self.known_until <= now {
            self.misses = MISSES_ENOUGH - 1.0;
        }
        self.misses >= MISSES_ENOUGH
    }
}

/// The times of a burst that is spread. Each datagram passes after a part of the time after which
/// it has come, so that no datagram waits for longer than the first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    began: Timestamp,
    first: Timestamp,
}

impl Spread {
    /// Begins a spread now; the burst's first datagram has come at `first`.
    pub(super) const fn new(first: Timestamp, now: Timestamp) -> Self {
        Self { began: now, first }
    }

    /// Time at which a datagram passes that has come at `since`.
    pub(super) fn due(&self, since: Timestamp) -> Timestamp {
        let at = self.began + since.saturating_since(self.first) / SPREAD_RATE_RATIO as u32;
        Timestamp::from_micros(at.as_micros() / SPREAD_STEP_MICROS * SPREAD_STEP_MICROS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bursts of `burst` datagrams each 80 ms, to a server 30 ms away that answers every `every`th
    /// one, over a link that takes `each` microseconds for a datagram. Returns how many of the last
    /// 20 of 40 bursts would be spread.
    fn spread(burst: u64, every: u64, each: u64, length: usize) -> usize {
        let (mut far, mut free, mut received, mut slower) = (FarLink::default(), 0, 0, 0);
        let mut answers = std::collections::VecDeque::new();
        for at in 0..40 * 80 {
            let now = 1_000_000_000 + at * 1000;
            while answers.front().is_some_and(|answer| *answer <= now) {
                let answer = answers.pop_front().unwrap_or_default();
                far.on_answer(length, Timestamp::from_micros(answer));
            }
            let now = Timestamp::from_micros(now);
            let count = if at % 80 == 0 { burst } else { u64::from(at % 80 > 40) };
            if at % 80 == 0 && far.is_slower(now) && at >= 20 * 80 {
                slower += 1;
            }
            far.on_forwarded(count as u32, now);
            for _ in 0..count {
                free = now.as_micros().max(free) + each;
                received += 1;
                if received % every == 0 {
                    answers.push_back(free + 60_000);
                }
            }
        }
        slower
    }

    #[test]
    fn the_answers_to_bursts_tell_a_slower_link_from_none() {
        for every in [2, 10] {
            assert_eq!(spread(48, every, 1, 60), 0, "none follows, {every}");
            assert!(spread(48, every, 800, 60) >= 19, "a slower one, {every}");
        }
    }

    #[test]
    fn what_is_no_burst_or_no_answer_says_nothing() {
        assert_eq!(spread(30, 10, 800, 60), 0, "three answers");
        assert_eq!(spread(48, 10, 800, 1200), 0, "long datagrams are no answers");
        let mut far = FarLink::default();
        for burst in 0..100 {
            far.on_forwarded(1000, Timestamp::from_millis(burst * 100));
        }
        assert!(!far.is_slower(Timestamp::from_millis(10_000)), "it is silent");
    }

    #[test]
    fn what_was_known_is_asked_for_again() {
        let mut far = FarLink { misses: MAXIMUM_MISSES, ..FarLink::default() };
        far.known_until = Timestamp::from_millis(5000);
        assert!(far.is_slower(Timestamp::from_millis(4999)));
        assert!(!far.is_slower(Timestamp::from_millis(5000)), "a burst leaves at once");
        far.misses += 1.0;
        assert!(far.misses >= MISSES_ENOUGH, "and is enough");
    }

    #[test]
    fn nothing_waits_longer_than_the_first_of_a_burst() {
        let at = Timestamp::from_millis;
        let spread = Spread::new(at(100), at(140));
        assert_eq!(spread.due(at(100)), at(140));
        for since in 90..300 {
            let waits = spread.due(at(since)).saturating_since(at(since));
            assert!(waits <= at(140).saturating_since(at(since.min(100))), "{since}: {waits:?}");
        }
        assert_eq!(spread.due(at(180)), at(180), "it has caught up");
    }
}
