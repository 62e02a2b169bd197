//! Judge of losses by the backlog that each datagram met: the queue's or the medium's.
//!
//! A loss is the queue's if the backlog was near the largest of late, and losses are more frequent
//! there than elsewhere; or in an overflow, which shows by more runs of losses than the medium has
//! while arrivals are as fast as ever. So the first overflow shows, before a rate is known, and a
//! policer, which has no backlog. Each direction has one judge: downloads explain the backlog by
//! bytes ([`super::backlog`]), uploads measure it as delay ([`super::upward`]).

use std::collections::VecDeque;

use packrat_wire::estimate::{Losses, OverflowJudge, Timestamp};

use super::outage::OUTAGE_DATAGRAMS;

/// Share of the largest backlog from which on a backlog is near it.
const NEAR_TOP_SHARE: f64 = 0.85;
/// Share of the largest backlog from which on a single loss is the queue's if the medium hardly
/// loses datagrams.
const STANDING_SHARE: f64 = 0.4;
/// Least backlog, in seconds, that is near the top.
const LEAST_TOP_SECONDS: f64 = 0.005;
/// Backlog, in seconds, near which each loss is the queue's: no medium delays everything for as long.
const DEEP_TOP_SECONDS: f64 = 2.0;
/// Time in which the largest backlog is forgotten.
const TOP_MEMORY_SECONDS: f64 = 10.0;
/// Datagrams near the top that are assumed beside the counted ones.
const NEAR_TOP_PRIOR_DATAGRAMS: f64 = 25.0;
/// Datagrams in which a count of the histogram falls by a factor of e.
const HISTOGRAM_MEMORY_DATAGRAMS: f32 = 500.0;
/// Datagrams of a window in which runs of losses are counted; a base round trip's if they are more.
const WINDOW_DATAGRAMS: f64 = 64.0;
/// Share of the fastest arrivals below which arrivals do not come from a full queue.
const OVERFLOW_ARRIVALS_SHARE: f64 = 0.7;

/// Bins of the histogram: quarter octaves from a millisecond on.
const BINS: usize = 56;

pub(super) fn seconds(at: Timestamp) -> f64 {
    at.as_micros() as f64 / 1e6
}

fn bin(backlog_seconds: f64) -> usize {
    if backlog_seconds < 1e-3 || backlog_seconds.is_nan() {
        return 0;
    }
    let micros = (backlog_seconds * 1e6) as u64;
    let octave = (micros / 1000).ilog2() as usize;
    let quarter = ((micros << 2) / (1000 << octave)) as usize - 4;
    (4 * octave + quarter + 1).min(BINS - 1)
}

/// A datagram whose fate is known, and the backlog that it met, in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Met {
    pub(crate) sent_at: f64,
    pub(crate) backlog: f64,
    pub(crate) is_lost: bool,
}

/// Arrivals until now: time of the last, bytes, the fastest rate of late in bytes per second, and
/// the base round trip.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrivals {
    pub(crate) at: f64,
    pub(crate) bytes: f64,
    pub(crate) fastest: f64,
    pub(crate) base: f64,
}

/// Datagrams at low backlogs, lost ones, and runs of losses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Low {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) runs: u64,
}

impl Low {
    fn count(&mut self, is_lost: bool, begins: bool) {
        self.sent += 1;
        self.lost += u64::from(is_lost);
        self.runs += u64::from(begins);
    }

    fn add(&mut self, more: Self) {
        self.sent += more.sent;
        self.lost += more.lost;
        self.runs += more.runs;
    }
}

/// Counts of one report, which are the medium's if no overflow follows within a base round trip.
#[derive(Debug, Clone, Copy)]
struct Fresh {
    at: f64,
    low: Low,
    /// Counts of all datagrams below the top.
    below_top: Low,
}

/// Datagrams and losses of a while.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    sent: f64,
    lost: f64,
    runs: f64,
    /// Places of the first lost datagram and of the last, counted from 1.
    first_lost: f64,
    last_lost: f64,
    /// Send time of the first datagram, and arrivals until then: time, bytes.
    began: f64,
    arrivals: (f64, f64),
}

impl Window {
    fn count(&mut self, is_lost: bool, begins: bool) {
        self.sent += 1.0;
        self.runs += f64::from(u8::from(begins));
        if is_lost {
            self.lost += 1.0;
            self.last_lost = self.sent;
            if self.lost == 1.0 {
                self.first_lost = self.sent;
            }
        }
    }
}

/// Judge of one direction's losses.
#[derive(Debug)]
pub(crate) struct QueueLosses {
    top: f64,
    top_at: f64,
    /// Datagrams and losses by backlog, in units that grow.
    histogram: [[f32; 2]; BINS],
    unit: f32,
    windows: [Window; 2],
    was_lost: bool,
    /// Knows the losses below the top.
    judge: OverflowJudge,
    is_over: bool,
    shown_until: f64,
    low: Low,
    fresh: VecDeque<Fresh>,
}

impl Default for QueueLosses {
    fn default() -> Self {
        Self {
            top: 0.0,
            top_at: 0.0,
            histogram: [[0.0; 2]; BINS],
            unit: 1.0,
            windows: [Window::default(); 2],
            was_lost: false,
            judge: OverflowJudge::default(),
            is_over: false,
            shown_until: 0.0,
            low: Low::default(),
            fresh: VecDeque::new(),
        }
    }
}

impl QueueLosses {
    /// Takes in datagrams, in the order of sending, which a report has shown `at` this time.
    /// `round_trip`: of the newest one. Calls `on_queues` with the place in the report of each
    /// datagram that the queue has lost.
    pub(crate) fn take(
        &mut self,
        met: impl Iterator<Item = Met> + Clone,
        arrivals: &Arrivals,
        at: f64,
        round_trip: f64,
        on_queues: impl FnMut(usize),
    ) {
        let forgotten = ((at - self.top_at) / TOP_MEMORY_SECONDS).clamp(0.0, 1.0);
        self.top -= self.top * forgotten;
        self.top_at = at;
        let mut news = 0;
        let mut latest = 0.0;
        for it in met.clone() {
            self.count(it, arrivals);
            (news, latest) = (news + 1, it.backlog);
        }
        self.top = self.top.max(latest);
        if self.unit > 1e12 {
            for bin in &mut self.histogram {
                *bin = bin.map(|it| it / self.unit);
            }
            self.unit = 1.0;
        }
        self.is_over = self.is_overflow(news, arrivals);
        self.decide(met, arrivals.base, at, round_trip, on_queues);
    }

    /// Counts a datagram by its backlog, and runs of losses.
    fn count(&mut self, it: Met, arrivals: &Arrivals) {
        self.unit *= 1.0 + 1.0 / HISTOGRAM_MEMORY_DATAGRAMS;
        let begins = it.is_lost && !self.was_lost;
        self.was_lost = it.is_lost;
        let [sent, runs] = &mut self.histogram[bin(it.backlog)];
        *sent += self.unit;
        *runs += if begins { self.unit } else { 0.0 };
        let [before, now] = &mut self.windows;
        let is_full = now.sent >= WINDOW_DATAGRAMS && it.sent_at - now.began >= arrivals.base;
        if is_full {
            *before = *now;
        }
        if is_full || now.sent == 0.0 {
            let arrivals = (arrivals.at, arrivals.bytes);
            *now = Window { began: it.sent_at, arrivals, ..Window::default() };
        }
        now.count(it.is_lost, begins);
    }

    /// True if the losses of the last while come from a full queue, by their runs.
    fn is_overflow(&mut self, news: u64, arrivals: &Arrivals) -> bool {
        let [before, now] = &self.windows;
        let (sent, lost, runs) =
            (before.sent + now.sent, before.lost + now.lost, before.runs + now.runs);
        let first =
            if before.lost > 0.0 { before.first_lost } else { before.sent + now.first_lost };
        let last = if now.lost > 0.0 { before.sent + now.last_lost } else { before.last_lost };
        let spread = last - first + 1.0;
        let (since, bytes) = if before.sent > 0.0 { before.arrivals } else { now.arrivals };
        let (elapsed, arrived) = (arrivals.at - since, arrivals.bytes - bytes);
        let is_fast = elapsed < 0.5 * arrivals.base
            || arrived >= OVERFLOW_ARRIVALS_SHARE * arrivals.fastest * elapsed;
        self.judge.is_overflow(&Losses { sent, lost, runs, spread }, news) && is_fast
    }

    /// The least bin in which a loss is the queue's; [`BINS`]: none.
    fn edge_of_queue(&self) -> usize {
        let is_rare = self.judge.medium().is_rare();
        let edge = self.edge();
        let is_many = is_rare || self.top >= DEEP_TOP_SECONDS || self.is_many(edge);
        if is_many { edge } else { BINS }
    }

    /// True if a datagram that met this backlog, in seconds, and is lost now is the queue's loss.
    pub(crate) fn is_queues(&self, backlog: f64) -> bool {
        self.is_over || bin(backlog) >= self.edge_of_queue()
    }

    /// Decides whose the losses are.
    fn decide(
        &mut self,
        met: impl Iterator<Item = Met>,
        base: f64,
        at: f64,
        round_trip: f64,
        mut on_queues: impl FnMut(usize),
    ) {
        let (edge, edge_of_queue) = (self.edge(), self.edge_of_queue());
        let half = if self.top < LEAST_TOP_SECONDS { BINS } else { self.half() };
        let mut was_lost = false;
        let mut fresh = Fresh { at, low: Low::default(), below_top: Low::default() };
        let mut overflows = self.is_over;
        for (place, it) in met.enumerate() {
            let bin = bin(it.backlog);
            let begins = it.is_lost && !was_lost;
            was_lost = it.is_lost;
            if it.is_lost && (self.is_over || bin >= edge_of_queue) {
                overflows = true;
                on_queues(place);
            }
            if bin <= half && !self.is_over {
                fresh.low.count(it.is_lost, begins);
            }
            if bin < edge && !self.is_over {
                fresh.below_top.count(it.is_lost, begins);
            }
        }
        if self.top < LEAST_TOP_SECONDS {
            // Short connections have no time for doubts, and no queue.
            self.low.add(core::mem::take(&mut fresh.low));
        }
        // Otherwise it was an outage, or a Reset has given up arrived datagrams.
        if fresh.below_top.lost <= OUTAGE_DATAGRAMS as u64 {
            self.fresh.push_back(fresh);
        }
        if overflows {
            self.fresh.clear();
            self.shown_until = at + round_trip;
        }
        while let Some(fresh) = self.fresh.pop_front_if(|fresh| fresh.at + base < at) {
            self.low.add(fresh.low);
            let Low { sent, lost, runs } = fresh.below_top;
            self.judge.learn(sent, lost, runs);
        }
    }

    /// True if holes that open now are not worth a hold: the queue has lost something within a
    /// round trip.
    pub(crate) fn is_shown(&self, now: Timestamp) -> bool {
        seconds(now) < self.shown_until
    }

    /// True in an overflow.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The medium's losses since the last call.
    pub(crate) fn take_low(&mut self) -> Low {
        core::mem::take(&mut self.low)
    }

    /// Forgets the counts of the last report: its outage is no evidence of the medium's loss.
    pub(crate) fn on_outage(&mut self) {
        self.fresh.clear();
        self.low = Low::default();
    }

    /// The first bin near the top.
    fn edge(&self) -> usize {
        let share = if self.judge.medium().is_rare() { STANDING_SHARE } else { NEAR_TOP_SHARE };
        bin((share * self.top).max(LEAST_TOP_SECONDS))
    }

    /// The median bin.
    fn half(&self) -> usize {
        let all: f32 = self.histogram.iter().map(|bin| bin[0]).sum();
        let mut below = 0.0;
        let reaches = |bin: &[f32; 2]| {
            below += bin[0];
            below >= 0.5 * all
        };
        self.histogram.iter().position(reaches).unwrap_or(0)
    }

    /// True if runs of losses are more frequent near the top than the medium's are.
    fn is_many(&self, edge: usize) -> bool {
        if self.top < LEAST_TOP_SECONDS {
            return false;
        }
        let [sent, runs] = self.histogram[edge..].iter().fold([0.0, 0.0], |sum, bin| {
            [0, 1].map(|place| sum[place] + f64::from(bin[place] / self.unit))
        });
        let expected = self.judge.medium().most_runs() * (sent + NEAR_TOP_PRIOR_DATAGRAMS);
        runs >= (expected + 2.0 * expected.sqrt()).max(0.9)
    }
}
