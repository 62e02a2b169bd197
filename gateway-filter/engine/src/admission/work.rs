//! Work: time that clients' messages take on a thread, in units of about a nanosecond.
//!
//! ```text
//!   message ---> its session's credit ---> its source and networks ---> the thread's bucket ---> done
//!                  | too little               | used much lately:         | empty                   |
//!                  v                          v leaves more in the bucket v                         v
//!               ignored                    ignored                     ignored       charged to all three
//! ```
//!
//! Forwarding is never asked and never charged: it has the time of a thread that the buckets leave.
//! An ignored eACK is as good as a lost one, as the next one repeats its content and adds to it.
//!
//! Units are counted, not measured: a decode counts its multiplications, everything else has a
//! price. So the same messages cost the same on every machine and in virtual time.

use std::sync::PoisonError;

use core::time::Duration;

use packrat_assist_token::token_bucket::Rate;
use packrat_wire::RateLimit;
use packrat_wire::estimate::Timestamp;

use super::account::SourceAccount;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// Sealed message: opened, read, answered.
pub(crate) const MESSAGE_WORK: u64 = 2_500;
/// Handshake: four multiplications of points on a curve, and a session.
pub(crate) const HANDSHAKE_WORK: u64 = 150_000;
/// Server that a ticket is compared with: a hash of two blocks.
pub(crate) const TICKET_WORK: u64 = 300;

/// Work of messages on one thread per second: half of its time.
const THREAD_WORK_PER_SECOND: f64 = 500_000_000.0;
/// Work of messages on one thread at once: a millisecond.
const THREAD_WORK_BURST: f64 = 1_000_000.0;
/// Budget of a thread's work of messages.
const MESSAGE_BUDGET: Rate = Rate { per_second: THREAD_WORK_PER_SECOND, burst: THREAD_WORK_BURST };
/// Work of handshakes on one thread: a quarter of its time. Their burst is large, as all clients of
/// a gateway that starts anew come at once.
const HANDSHAKE_WORK_PER_SECOND: f64 = 250_000_000.0;
/// Budget of a thread's work of handshakes.
const HANDSHAKE_BUDGET: Rate = Rate::per_second(HANDSHAKE_WORK_PER_SECOND);
/// Part of that burst that may come at once, and rate of the rest: half of a thread. So forwarding
/// has its turn after a millisecond: the slice, as much again that is earned meanwhile, and a
/// handshake.
const HANDSHAKE_SLICE: Rate = Rate { per_second: 500_000_000.0, burst: 400_000.0 };

/// Time after which a thread that has no time for a handshake has some again: the handshake before
/// it is paid for.
pub const HANDSHAKE_PAUSE: Duration =
    Duration::from_nanos(HANDSHAKE_WORK * 1_000_000_000 / HANDSHAKE_SLICE.per_second as u64);

/// Work is remembered with half of its weight after each of these.
const HALF_LIFE: Duration = Duration::from_millis(100);
/// Recorded work of a source that uses all of a thread's time for messages.
const FULL_USE_WORK: f64 = 2.0 * THREAD_WORK_PER_SECOND * 0.1;

/// Work of messages from which a source is heavy: more than ten times a client's with an eACK each
/// millisecond.
const HEAVY_WORK_PER_SECOND: f64 = 15_000_000.0;
/// Part of the bucket for messages that a heavy source leaves to others at least. So all messages
/// that one source sends at once take less than a millisecond: the rest of the bucket, as much
/// again that is earned meanwhile, and a message.
const HEAVY_RESERVE_WORK: f64 = 650_000.0;

/// Number of lanes, each of which counts the work of some threads.
const WORK_LANES: usize = 64;

/// Kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// A sealed message.
    Message,
    /// A handshake.
    Handshake,
}

impl WorkKind {
    const fn rate(self) -> Rate {
        match self {
            Self::Message => MESSAGE_BUDGET,
            Self::Handshake => HANDSHAKE_BUDGET,
        }
    }
}

/// The time that threads have for clients' messages. One for all gateways of a process, whose
/// threads they share.
#[derive(Debug)]
pub struct WorkBudget {
    lanes: [Lane; WORK_LANES],
}

/// One thread's part, on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Lane(Mutex<Buckets>);

#[derive(Debug)]
struct Buckets {
    messages: RateLimit,
    handshakes: RateLimit,
    handshake_slice: RateLimit,
    /// Units ever charged.
    spent: u64,
}

impl Buckets {
    fn of(&mut self, kind: WorkKind) -> &mut RateLimit {
        match kind {
            WorkKind::Message => &mut self.messages,
            WorkKind::Handshake => &mut self.handshakes,
        }
    }
}

/// This thread's lane.
fn lane() -> usize {
    /// Number of threads that have a lane.
    static THREAD_COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local! {
        /// Lane of this thread.
        static THREAD_LANE: usize = THREAD_COUNT.fetch_add(1, Ordering::Relaxed) % WORK_LANES;
    }
    THREAD_LANE.with(|lane| *lane)
}

impl Default for WorkBudget {
    fn default() -> Self {
        let full = |kind: WorkKind| RateLimit::new(kind.rate().burst, Timestamp::ZERO);
        let lane = || {
            let (messages, handshakes) = (full(WorkKind::Message), full(WorkKind::Handshake));
            let handshake_slice = RateLimit::new(HANDSHAKE_SLICE.burst, Timestamp::ZERO);
            Lane(Mutex::new(Buckets { messages, handshakes, handshake_slice, spent: 0 }))
        };
        Self { lanes: core::array::from_fn(|_| lane()) }
    }
}

impl WorkBudget {
    /// Full buckets for every thread.
    pub fn new() -> Self {
        Self::default()
    }

    /// Units of work ever charged, on all threads.
    pub fn spent(&self) -> u64 {
        self.lanes.iter().map(|lane| lock(lane).spent).sum()
    }

    fn this_thread(&self) -> MutexGuard<'_, Buckets> {
        lock(&self.lanes[lane()])
    }

    /// True if this thread may do some work of this kind now for a source, or for an address
    /// without a source yet. The more of the thread's time a source or its network has used lately,
    /// the more of the bucket it leaves to others, so that a source with little use is served
    /// first. Among the sessions of a source, a session with little use of its own credit is served
    /// first: `strain` is the used share of it, from 0 to 1.
    pub(crate) fn admits(
        &self,
        kind: WorkKind,
        source: Option<&SourceAccount>,
        strain: f64,
        now: Timestamp,
    ) -> bool {
        let rate = kind.rate();
        let use_lately = source.map_or(0.0, |source| source.use_lately(now));
        let mut reserve = rate.burst * use_lately.min(1.0) * (1.0 + strain) / 2.0;
        if kind == WorkKind::Message {
            let heavy = use_lately * THREAD_WORK_PER_SECOND / HEAVY_WORK_PER_SECOND;
            reserve *= 1.0 - HEAVY_RESERVE_WORK / rate.burst;
            reserve += HEAVY_RESERVE_WORK * heavy.min(1.0);
        }
        let mut buckets = self.this_thread();
        let tokens = buckets.of(kind).refill(&rate, now).tokens();
        tokens > 0.0 && tokens >= reserve
    }

    /// True if handshakes have not just taken all that they may take at once: otherwise an admitted
    /// one waits, and other work has its turn. A source that has used much lately leaves others
    /// more of it.
    pub(crate) fn has_handshake_slice(
        &self,
        source: Option<&SourceAccount>,
        now: Timestamp,
    ) -> bool {
        let use_lately = source.map_or(0.0, |source| source.use_lately(now));
        let reserve = HANDSHAKE_SLICE.burst * use_lately.min(1.0);
        let mut buckets = self.this_thread();
        let tokens = buckets.handshake_slice.refill(&HANDSHAKE_SLICE, now).tokens();
        tokens > 0.0 && tokens >= reserve
    }

    /// Charges work that was done. It may leave a debt, of one message.
    pub(crate) fn charge(
        &self,
        kind: WorkKind,
        source: Option<&SourceAccount>,
        units: u64,
        now: Timestamp,
    ) {
        if let Some(source) = source {
            source.charge(units, now);
        }
        let mut buckets = self.this_thread();
        buckets.of(kind).bucket().charge(units as f64);
        if kind == WorkKind::Handshake {
            buckets.handshake_slice.bucket().charge(units as f64);
        }
        buckets.spent += units;
    }
}

fn lock(lane: &Lane) -> MutexGuard<'_, Buckets> {
    lane.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work of one source lately, for many threads without a lock: units, and the half-life they were
/// counted in.
#[derive(Debug, Default)]
pub(super) struct RecentWork(AtomicU64);

impl RecentWork {
    const UNITS: u32 = 40;
    const MOST: u64 = (1 << Self::UNITS) - 1;

    /// The half-life that `now` is in; wraps around after 19 days, which forgets all work.
    fn half_life(now: Timestamp) -> u64 {
        let number = now.as_micros() / HALF_LIFE.as_micros() as u64;
        number & (u64::MAX >> Self::UNITS)
    }

    fn units_at(record: u64, half_life: u64) -> u64 {
        let (then, units) = (record >> Self::UNITS, record & Self::MOST);
        let elapsed = half_life.wrapping_sub(then) & (u64::MAX >> Self::UNITS);
        // Threads may bring times in another order: an earlier one is as good as now.
        if elapsed > u64::MAX >> (Self::UNITS + 1) {
            return units;
        }
        units.checked_shr(u32::try_from(elapsed).unwrap_or(u32::MAX)).unwrap_or(0)
    }

    pub(super) fn add(&self, units: u64, now: Timestamp) {
        let half_life = Self::half_life(now);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |record| {
            let units = (Self::units_at(record, half_life) + units).min(Self::MOST);
            Some(half_life << Self::UNITS | units)
        });
    }

    /// The work as a share of a thread's work for messages.
    pub(super) fn share(&self, now: Timestamp) -> f64 {
        let units = Self::units_at(self.0.load(Ordering::Relaxed), Self::half_life(now));
        units as f64 / FULL_USE_WORK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::account::tests::accounts;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Work in ten seconds of sources that ask for as much as they get, in messages of `units`
    /// each, every tenth of a millisecond. One that is `modest` asks once in ten milliseconds.
    fn compete(addresses: &[&str], modest: &str, units: u64) -> (Vec<u64>, u64, u64) {
        let budget = WorkBudget::new();
        let (greedy, modest) = (accounts(addresses), accounts(&[modest]).remove(0));
        let (mut done, mut served, mut refused) = (vec![0; greedy.len()], 0, 0);
        for step in 0..100_000u64 {
            let now = Timestamp::from_micros(1_000_000 + step * 100);
            for (source, done) in greedy.iter().zip(&mut done) {
                if budget.admits(WorkKind::Message, Some(source), 1.0, now) {
                    budget.charge(WorkKind::Message, Some(source), units, now);
                    *done += units;
                }
            }
            if step % 100 == 50 {
                if budget.admits(WorkKind::Message, Some(&modest), 0.0, now) {
                    budget.charge(WorkKind::Message, Some(&modest), 50_000, now);
                    served += 1;
                } else {
                    refused += 1;
                }
            }
        }
        (done, served, refused)
    }

    #[test]
    fn one_source_uses_an_idle_thread_and_gives_way_at_once() {
        let (done, served, refused) = compete(&["192.0.2.1"], "198.51.100.1", 100_000);
        let most = THREAD_WORK_PER_SECOND * 10.0;
        assert!(done[0] as f64 > 0.8 * most && (done[0] as f64) < 1.01 * most, "{done:?}");
        assert!(served > 990, "{served} served, {refused} refused");
    }

    #[test]
    fn greedy_sources_share_and_a_modest_one_is_served_first() {
        let greedy = ["192.0.2.1", "203.0.113.1", "198.18.0.1", "2001:db8::1"];
        let (done, served, refused) = compete(&greedy, "198.51.100.1", 50_000);
        let total: u64 = done.iter().sum();
        assert!(total as f64 <= THREAD_WORK_PER_SECOND * 10.01);
        assert!(done.iter().all(|one| *one * 8 > total), "not fair: {done:?}");
        assert!(served > 950, "{served} served, {refused} refused");
    }

    #[test]
    fn a_prefix_with_many_addresses_is_one_source() {
        let many: Vec<String> = (0..64).map(|n| format!("2001:db8:7:{n:x}00::1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let (done, served, refused) = compete(&many, "2001:db8:8::1", 50_000);
        assert!(done.iter().sum::<u64>() as f64 <= THREAD_WORK_PER_SECOND * 10.01);
        assert!(served > 990, "{served} served, {refused} refused");
    }

    #[test]
    fn handshakes_and_messages_have_buckets_of_their_own() {
        let budget = WorkBudget::new();
        let mut handshakes = 0;
        while budget.admits(WorkKind::Handshake, None, 1.0, at(0)) {
            budget.charge(WorkKind::Handshake, None, HANDSHAKE_WORK, at(0));
            handshakes += 1;
        }
        assert!((1600..=1700).contains(&handshakes), "{handshakes}");
        assert!(budget.admits(WorkKind::Message, None, 0.0, at(0)));
        assert_eq!(budget.spent(), handshakes * HANDSHAKE_WORK);
        // Each thread has its own.
        std::thread::scope(|scope| {
            let other = scope.spawn(|| budget.admits(WorkKind::Handshake, None, 1.0, at(0)));
            assert!(other.join().unwrap());
        });
    }

    /// Clients of many networks ask again and again from the first microsecond on. A handshake
    /// takes the time that it is charged for, and other steps take no time.
    #[test]
    fn a_burst_of_handshakes_yields_after_a_millisecond() {
        let budget = WorkBudget::new();
        let (mut now, mut busy, mut free) = (at(1000), Duration::ZERO, Duration::ZERO);
        let (mut longest, mut done) = (Duration::ZERO, 0);
        while now < at(2000) {
            let admitted = budget.has_handshake_slice(None, now)
                && budget.admits(WorkKind::Handshake, None, 1.0, now);
            let took = if admitted {
                budget.charge(WorkKind::Handshake, None, HANDSHAKE_WORK, now);
                done += 1;
                busy += Duration::from_nanos(HANDSHAKE_WORK);
                longest = longest.max(busy);
                Duration::from_nanos(HANDSHAKE_WORK)
            } else {
                busy = Duration::ZERO;
                free += Duration::from_micros(50);
                Duration::from_micros(50)
            };
            now = now + took;
        }
        assert!(longest <= Duration::from_millis(1), "{longest:?}");
        assert!(free >= Duration::from_millis(450), "{free:?}");
        // Not fewer than in one burst, and at its rate.
        assert!((3000..=3400).contains(&done), "{done}");
    }

    #[test]
    fn recent_work_is_forgotten_by_halves() {
        let recent = RecentWork::default();
        recent.add(100_000_000, at(50));
        assert_eq!(recent.share(at(99)), 1.0);
        assert_eq!(recent.share(at(100)), 0.5);
        assert_eq!(recent.share(at(50)), 1.0);
        recent.add(50_000_000, at(150));
        assert_eq!(recent.share(at(250)), 0.5);
        assert_eq!(recent.share(at(90)), 1.0, "an earlier time is as good as now");
        assert_eq!(recent.share(at(100_000)), 0.0);
        recent.add(u64::MAX >> 20, at(100_000));
        recent.add(u64::MAX >> 20, at(100_000));
        assert!(recent.share(at(100_000)) > 1.0, "it does not overflow");
    }
}
