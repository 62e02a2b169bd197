//! The backlog of the last mile, and the losses of its queue.
//!
//! Delay is no evidence of a queue: jitter, aggregates and radio grants delay as well. Bytes
//! explain a backlog: a datagram meets the bytes sent before it, less the bytes that the link has
//! taken since, at its learnt rate. Round trips correct the explanation on one side, as jitter only
//! adds to them: a round trip below the explained one lowers the backlog at once, and the least
//! excess of a while raises it.
//!
//! ```text
//!   sent ----> backlog = max(0, backlog + bytes / rate - time) ----> histogram: sent and lost by backlog
//!                 ^                      ^                                  |
//!                 | min(round trip -     | lower envelope of                v
//!                 | base - backlog)      | arrivals over bytes      losses of the queue | of the medium
//! ```

use core::time::Duration;
use std::collections::VecDeque;

use packrat_wire::estimate::Timestamp;

use super::queue_losses::{Arrivals, Met, QueueLosses, seconds};
use crate::history::{Fate, History};

/// Time whose least residual raises the backlog; a base round trip if that is longer.
const RESIDUAL_WINDOW_SECONDS: f64 = 0.1;
/// Time over which a rate is measured; a base round trip if that is longer.
const RATE_BLOCK_SECONDS: f64 = 0.05;
/// Rates whose median counts.
const RATES: usize = 5;
/// Backlog, in seconds, from which on the link is busy.
const BUSY_SECONDS: f64 = 0.003;
/// Time of which the fastest arrivals are known.
const FASTEST_MEMORY_SECONDS: f64 = 2.0;
/// Time of which the base round trip is the least.
const BASE_MEMORY_SECONDS: f64 = 10.0;
/// Round trips of which the base round trip is the least, if they take longer: a deep queue stands for long.
const BASE_MEMORY_ROUND_TRIPS: f64 = 8.0;
/// Base round trip before one is measured.
const ASSUMED_BASE_SECONDS: f64 = 0.03;
/// Length of a datagram whose bytes are gone.
const ASSUMED_LENGTH_BYTES: f64 = 1200.0;

/// The least or the largest value of a while, in two buckets of that length.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    before: f64,
    now: f64,
    since: f64,
    is_known: bool,
}

impl Recent {
    fn take(&mut self, value: f64, at: f64, memory: f64, better: fn(f64, f64) -> f64) {
        if !self.is_known {
            *self = Self { before: value, now: value, since: at, is_known: true };
        } else if at - self.since > memory {
            *self = Self { before: self.now, now: value, since: at, is_known: true };
        }
        self.now = better(self.now, value);
    }
}

/// Rate of the last mile while a backlog stands: slope of the lower envelope of arrivals over
/// bytes.
#[derive(Debug, Default)]
pub(super) struct Rate {
    bytes_per_second: Option<f64>,
    recent: VecDeque<f64>,
    fastest: Recent,
    edge: Option<f64>,
    before: Option<Point>,
    now: Option<Point>,
}

#[derive(Debug, Clone, Copy)]
struct Point {
    key: f64,
    at: f64,
    bytes: f64,
    is_busy: bool,
}

impl Rate {
    /// The first `bytes` have arrived until `at`. `is_busy`: a backlog stood.
    pub(super) fn on_sample(&mut self, at: f64, bytes: f64, is_busy: bool, base: f64) {
        let block = RATE_BLOCK_SECONDS.max(base);
        let edge = *self.edge.get_or_insert(at);
        if at - edge >= block {
            if let (Some(before), Some(now)) = (self.before, self.now)
                && now.at - before.at > 0.3 * block
                && now.bytes > before.bytes
            {
                let slope = (now.bytes - before.bytes) / (now.at - before.at);
                self.fastest.take(slope, at, FASTEST_MEMORY_SECONDS.max(4.0 * block), f64::max);
                self.on_slope(slope, before.is_busy && now.is_busy);
            }
            self.before = self.now.take();
            self.edge = Some(at);
        }
        let key = at - bytes / self.bytes_per_second.unwrap_or(1e6);
        match &mut self.now {
            Some(now) if key >= now.key => now.is_busy &= is_busy,
            now => *now = Some(Point { key, at, bytes, is_busy }),
        }
    }

    fn on_slope(&mut self, slope: f64, is_busy: bool) {
        if !is_busy {
            if self.bytes_per_second.is_none_or(|rate| slope > rate) {
                self.bytes_per_second = Some(slope);
                self.recent.clear();
            }
            return;
        }
        if self.recent.len() == RATES {
            self.recent.pop_front();
        }
        self.recent.push_back(slope);
        let mut sorted: Vec<f64> = self.recent.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        self.bytes_per_second = Some(match sorted.len() {
            1 => slope.max(self.bytes_per_second.unwrap_or(0.0)),
            count => sorted[count / 2],
        });
    }

    /// The fastest arrivals of late, in bytes per second.
    pub(super) fn fastest(&self) -> f64 {
        self.fastest.before.max(self.fastest.now)
    }
}

/// The last datagram with a known fate.
#[derive(Debug, Clone, Copy)]
struct Last {
    backlog: f64,
    sent_at: f64,
    length: f64,
}

/// A datagram of the eACK in hand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    met: Met,
    length: f64,
    extra: f64,
}

fn last_backlog(told: &[Told]) -> f64 {
    told.last().map_or(0.0, |it| it.met.backlog)
}

/// Observer of the last mile's backlog.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Bytes of repairs and symbols, by the sequence number of the datagram behind them.
    extras: VecDeque<(u64, f64)>,
    last: Option<Last>,
    /// Fates below this sequence number are counted.
    done: u64,
    base: Recent,
    /// Times and excesses of round trips over the explained ones.
    residuals: VecDeque<(f64, f64)>,
    rate: Rate,
    /// Bytes that have arrived.
    arrived: f64,
    pub(crate) losses: QueueLosses,
}

impl Backlog {
    /// A repair or a symbol of `length` bytes was sent before the datagram `next`.
    pub(crate) fn on_extra(&mut self, next: u64, length: usize) {
        match self.extras.back_mut() {
            Some((sequence, bytes)) if *sequence == next => *bytes += length as f64,
            _ => self.extras.push_back((next, length as f64)),
        }
    }

    fn base_seconds(&self) -> f64 {
        if self.base.is_known { self.base.before.min(self.base.now) } else { ASSUMED_BASE_SECONDS }
    }

    /// Applies the fates of all datagrams up to `newest`, which an eACK has shown; `newest` was
    /// sent once and had this round trip. Calls `on_queues` for each datagram that the queue has
    /// lost.
    pub(crate) fn on_eack(
        &mut self,
        history: &History,
        newest: u64,
        round_trip: Duration,
        now: Timestamp,
        told: &mut Vec<Told>,
        mut on_queues: impl FnMut(u64),
    ) {
        let (at, sample) = (seconds(now), round_trip.as_secs_f64());
        let memory = BASE_MEMORY_SECONDS.max(BASE_MEMORY_ROUND_TRIPS * sample);
        self.base.take(sample, at, memory, f64::min);
        let first = self.done.max(history.first());
        self.read(history, first, newest, told);
        let Some(last) = told.last().copied() else { return };
        self.count_arrived(told);
        self.explain(told);
        self.correct(told, sample, at);
        let backlog = last_backlog(told);
        self.last = Some(Last { backlog, sent_at: last.met.sent_at, length: last.length });
        let arrived_at = last.met.sent_at + sample;
        let base = self.base_seconds();
        self.rate.on_sample(arrived_at, self.arrived, backlog > BUSY_SECONDS, base);
        let fastest = self.rate.fastest();
        let arrivals = Arrivals { at: arrived_at, bytes: self.arrived, fastest, base };
        let met = told.iter().map(|it| it.met);
        self.losses.take(met, &arrivals, at, sample, |place| on_queues(first + place as u64));
        self.done = newest + 1;
    }

    fn read(&mut self, history: &History, first: u64, newest: u64, told: &mut Vec<Told>) {
        told.clear();
        for (sequence, entry) in (first..).zip(history.range(first..newest + 1)) {
            let mut extra = 0.0;
            while let Some((_, bytes)) = self.extras.pop_front_if(|(next, _)| *next <= sequence) {
                extra += bytes;
            }
            told.push(Told {
                met: Met {
                    sent_at: seconds(entry.forwarded_at),
                    backlog: 0.0,
                    is_lost: matches!(entry.fate, Fate::Missing | Fate::GivenUp),
                },
                length: entry.length().map_or(ASSUMED_LENGTH_BYTES, |length| length as f64),
                extra,
            });
        }
    }

    /// Counts bytes that have arrived: repairs and symbols in proportion to the datagrams around
    /// them.
    fn count_arrived(&mut self, told: &[Told]) {
        let (mut sent, mut arrived, mut extra) = (0.0, 0.0, 0.0);
        for it in told {
            sent += it.length;
            extra += it.extra;
            if !it.met.is_lost {
                arrived += it.length;
            }
        }
        self.arrived += arrived + extra * arrived / f64::max(sent, 1.0);
    }

    /// Backlogs as bytes explain them.
    fn explain(&self, told: &mut [Told]) {
        let first = told.first().map_or(0.0, |it| it.met.sent_at);
        let Last { mut backlog, mut sent_at, mut length } =
            self.last.unwrap_or(Last { backlog: 0.0, sent_at: first, length: 0.0 });
        for it in told {
            if let Some(rate) = self.rate.bytes_per_second {
                backlog += (length + it.extra) / rate;
            }
            backlog = f64::max(backlog - (it.met.sent_at - sent_at), 0.0);
            it.met.backlog = backlog;
            sent_at = it.met.sent_at;
            length = if it.met.is_lost && self.losses.is_over() { 0.0 } else { it.length };
        }
    }

    /// A round trip bounds the backlog from above, and all of a while bound it from below.
    fn correct(&mut self, told: &mut [Told], sample: f64, at: f64) {
        let base = self.base_seconds();
        let residual = sample - base - last_backlog(told);
        let window = RESIDUAL_WINDOW_SECONDS.max(base);
        self.residuals.push_back((at, residual));
        while self.residuals.pop_front_if(|(then, _)| *then < at - window).is_some() {}
        let is_full = self.residuals.len() >= 4 && at - self.residuals[0].0 > 0.6 * window;
        let shift = match residual {
            ..0.0 => residual,
            _ if is_full => self.residuals.iter().map(|it| it.1).fold(f64::MAX, f64::min).max(0.0),
            _ => 0.0,
        };
        if shift == 0.0 {
            return;
        }
        let count = told.len() as f64;
        for (index, it) in told.iter_mut().enumerate() {
            let backlog = &mut it.met.backlog;
            *backlog = (*backlog + shift * (index + 1) as f64 / count).max(0.0);
        }
        for (_, residual) in &mut self.residuals {
            *residual -= shift;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{MAXIMUM_ENTRIES, identifier};

    const RATE: f64 = 5e6;
    const ROUND_TRIP: f64 = 0.04;
    const LENGTH: usize = 1000;

    /// A last mile of [`RATE`] and [`ROUND_TRIP`], in seconds and shares.
    struct LastMile {
        queue: f64,
        jitter: f64,
        loss: f64,
        /// Datagrams beyond the rate are lost at once, without a queue.
        polices: bool,
        state: u64,
    }

    /// Losses of the queue and of the medium, and the ones among each that the observer calls the
    /// queue's.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Found {
        queue: u64,
        queue_blamed: u64,
        medium: u64,
        medium_blamed: u64,
    }

    impl LastMile {
        const fn new() -> Self {
            Self { queue: 0.03, jitter: 0.0, loss: 0.0, polices: false, state: 1 }
        }

        fn random(&mut self) -> f64 {
            self.state =
                self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.state >> 11) as f64 / (1u64 << 53) as f64
        }

        /// Ten seconds of datagrams, at this multiple of the link's rate at each time; an eACK each
        /// 10 ms.
        fn observe(mut self, offered: impl Fn(f64) -> f64) -> Found {
            let (mut backlog, mut history) =
                (Backlog::default(), History::new(1 << 24, MAXIMUM_ENTRIES));
            let (mut found, mut told) = (Found::default(), Vec::new());
            let (mut queue, mut at, mut last, mut next_eack) = (0.0f64, 1.0, 1.0, 1.1);
            let mut arrivals: VecDeque<(f64, u64, f64)> = VecDeque::new();
            let (mut losses, mut newest) = (VecDeque::new(), None);
            for sequence in 0.. {
                at += LENGTH as f64 / (RATE * offered(at));
                if at > 11.0 {
                    break;
                }
                queue = (queue - (at - last)).max(0.0);
                last = at;
                history.make_room(LENGTH, |_| true);
                let now = Timestamp::from_micros((at * 1e6) as u64);
                history.push(identifier(sequence + 1), &[0; LENGTH], now);
                let is_queues = queue > if self.polices { 0.002 } else { self.queue };
                let is_mediums = self.random() < self.loss;
                if !is_queues {
                    queue += LENGTH as f64 / RATE;
                }
                if is_queues || is_mediums {
                    losses.push_back((sequence, is_queues));
                } else {
                    let wait = if self.polices { 0.0 } else { queue };
                    let jitter = -self.jitter * (1.0 - self.random()).ln();
                    arrivals.push_back((at + ROUND_TRIP / 2.0 + wait + jitter, sequence, at));
                }
                while at >= next_eack {
                    next_eack += 0.01;
                    let heard = next_eack - ROUND_TRIP / 2.0;
                    let latest = arrivals.iter().filter(|it| it.0 <= heard).max_by_key(|it| it.1);
                    let Some(&(arrived, latest, sent)) = latest else { continue };
                    arrivals.retain(|it| it.0 > heard);
                    if newest.is_some_and(|newest| latest <= newest) {
                        continue;
                    }
                    newest = Some(latest);
                    let mut lost = VecDeque::new();
                    while let Some(it) = losses.pop_front_if(|it: &mut (u64, bool)| it.0 < latest) {
                        history.get_mut(it.0).unwrap().fate = Fate::Missing;
                        lost.push_back(it);
                    }
                    let sample = Duration::from_secs_f64(arrived - sent + ROUND_TRIP / 2.0);
                    let now = Timestamp::from_micros((next_eack * 1e6) as u64);
                    let mut blamed = Vec::new();
                    backlog.on_eack(&history, latest, sample, now, &mut told, |it| blamed.push(it));
                    for (sequence, is_queues) in lost {
                        let is_blamed = u64::from(blamed.contains(&sequence));
                        if is_queues {
                            found.queue += 1;
                            found.queue_blamed += is_blamed;
                        } else {
                            found.medium += 1;
                            found.medium_blamed += is_blamed;
                        }
                    }
                }
            }
            found
        }
    }

    /// A sender that grows by a half in two seconds, and begins again.
    fn sawtooth(at: f64) -> f64 {
        0.7 + 0.5 * (at / 2.0).fract()
    }

    #[test]
    fn losses_of_a_full_queue_are_the_queues() {
        let found = LastMile::new().observe(sawtooth);
        assert!(found.queue > 500 && found.queue_blamed * 10 > found.queue * 9, "{found:?}");
    }

    #[test]
    fn losses_below_the_rate_are_the_mediums_whatever_the_jitter() {
        for jitter in [0.0, 0.002, 0.005, 0.01] {
            let found = LastMile { jitter, loss: 0.02, ..LastMile::new() }.observe(|_| 0.8);
            assert!(
                found.medium > 500 && found.medium_blamed * 20 < found.medium,
                "{jitter}: {found:?}"
            );
        }
    }

    #[test]
    fn both_are_told_from_each_other() {
        let found = LastMile { jitter: 0.003, loss: 0.01, ..LastMile::new() }.observe(sawtooth);
        assert!(found.queue > 500 && found.queue_blamed * 4 > found.queue * 3, "{found:?}");
        assert!(found.medium > 200 && found.medium_blamed * 4 < found.medium, "{found:?}");
    }

    #[test]
    fn a_policer_shows_without_a_queue() {
        let found = LastMile { polices: true, ..LastMile::new() }.observe(|at| sawtooth(at * 4.0));
        assert!(found.queue > 500 && found.queue_blamed * 4 > found.queue * 3, "{found:?}");
    }
}
