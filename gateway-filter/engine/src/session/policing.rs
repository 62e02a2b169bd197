//! Distinguishes a policer's losses from the medium's, by their times.
//!
//! A policer drops datagrams that find its token bucket empty (RFC 2697). So at each of its losses,
//! the number of datagrams that have arrived since the one before is, to a datagram, the number
//! that the policed rate allows in that time: the losses lie on a line over time (Flach16). A
//! medium chooses by chance, and arrivals stray from any line, by the variance of that chance at
//! least. Repairs pass the same bucket, and count. The same is true of a queue that is too short to
//! be seen standing.
//!
//! If all losses of a medium are repaired, arrivals are regular as well, after the time that
//! repairs take: only losses within a few round trips are compared.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

/// Variance of the number of losses, if they were by chance, from which they are judged.
const MINIMUM_VARIANCE: f64 = 24.0;
/// Share of the deviation by chance below which arrivals are regular: with independent losses at a
/// constant rate, one judgement in a thousand is below a sixth.
const REGULAR_SHARE: f64 = 0.1;
/// Number of round trips, each with the time of an eACK that reports it, within which losses that
/// are judged together lie.
const JUDGED_ROUND_TRIPS: u32 = 6;
/// Interval of a client's eACKs while it misses a datagram.
const EACK_INTERVAL: Duration = Duration::from_millis(10);

/// Losses that are judged together: sums over the points (time, datagrams arrived until then), both
/// from the first one on.
#[derive(Debug, Clone, Copy, Default)]
struct Losses {
    since: Timestamp,
    sequence: u64,
    arrived: u64,
    count: f64,
    time: f64,
    time_squared: f64,
    arrivals: f64,
    arrivals_squared: f64,
    product: f64,
}

impl Losses {
    const fn begin(since: Timestamp, sequence: u64, arrived: u64) -> Self {
        Self {
            since,
            sequence,
            arrived,
            count: 1.0,
            time: 0.0,
            time_squared: 0.0,
            arrivals: 0.0,
            arrivals_squared: 0.0,
            product: 0.0,
        }
    }

    fn add(&mut self, at: Timestamp, arrived: u64) {
        let time = at.saturating_since(self.since).as_secs_f64();
        let arrivals = arrived.saturating_sub(self.arrived) as f64;
        self.count += 1.0;
        self.time += time;
        self.time_squared += time * time;
        self.arrivals += arrivals;
        self.arrivals_squared += arrivals * arrivals;
        self.product += time * arrivals;
    }

    /// Mean square of the distances from the line that fits best.
    fn residual(&self) -> f64 {
        let covariance = |product: f64, one: f64, other: f64| {
            product / self.count - one * other / self.count.powi(2)
        };
        let time = covariance(self.time_squared, self.time, self.time);
        let arrivals = covariance(self.arrivals_squared, self.arrivals, self.arrivals);
        let both = covariance(self.product, self.time, self.arrivals);
        if time > 0.0 { arrivals - both * both / time } else { arrivals }
    }

    /// Variance of the number of losses among the datagrams up to this one, if each was lost by
    /// chance.
    fn variance(&self, sequence: u64) -> f64 {
        let datagrams = sequence.saturating_sub(self.sequence).max(1) as f64;
        let share = (self.count - 1.0) / datagrams;
        datagrams * share * (1.0 - share)
    }
}

/// Evidence of a policer in one session's eACKs, recorded in sending order, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policing {
    losses: Option<Losses>,
    /// Totals of lost datagrams and of arrived repairs.
    lost: u64,
    repaired: u64,
}

impl Policing {
    pub(super) const fn new() -> Self {
        Self { losses: None, lost: 0, repaired: 0 }
    }

    /// Records the arrival of a repair.
    pub(super) fn on_repair_arrived(&mut self) {
        self.repaired += 1;
    }

    /// Records that the datagram with this sequence number, forwarded `at`, is lost; the fates of
    /// all before it are known. `round_trip`: the last mile's. True if a policer has caused losses.
    pub(super) fn on_loss(&mut self, sequence: u64, at: Timestamp, round_trip: Duration) -> bool {
        let arrived = sequence.saturating_sub(self.lost) + self.repaired;
        self.lost += 1;
        let limit = (round_trip + EACK_INTERVAL) * JUDGED_ROUND_TRIPS;
        let fresh = Losses::begin(at, sequence, arrived);
        let Some(losses) =
            self.losses.as_mut().filter(|losses| at.saturating_since(losses.since) <= limit)
        else {
            self.losses = Some(fresh);
            return false;
        };
        losses.add(at, arrived);
        let variance = losses.variance(sequence);
        if variance < MINIMUM_VARIANCE {
            return false;
        }
        // Numbers of losses by chance are a random walk: a line that is fitted to it leaves a
        // fifteenth of the variance at its end.
        let regular = losses.residual() < REGULAR_SHARE * variance / 15.0;
        self.losses = None;
        regular
    }

    /// Separates evidence about later datagrams from the evidence so far.
    pub(super) fn begin_anew(&mut self) {
        self.losses = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};
    use std::collections::BTreeMap;

    const ROUND_TRIP: Duration = Duration::from_millis(30);

    /// Fate of a datagram that is sent at this microsecond: true if the path loses it.
    type Path<'a> = &'a mut dyn FnMut(u64) -> bool;

    /// A policer of 2 datagrams per millisecond with a bucket of 100 datagrams.
    fn policer() -> impl FnMut(u64) -> bool {
        let (mut tokens, mut filled) = (100.0f64, 0);
        move |at| {
            tokens = (tokens + (at - filled) as f64 * 2e-3).min(100.0);
            filled = at;
            let lost = tokens < 1.0;
            tokens -= f64::from(u8::from(!lost));
            lost
        }
    }

    /// Losses by chance: this share, in bursts of this mean length.
    fn medium(seed: u64, share: f64, burst: f64) -> impl FnMut(u64) -> bool {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut is_bad = false;
        move |_| {
            let drawn = f64::from(random.next_u32()) / f64::from(u32::MAX);
            let leaves_good = share / (1.0 - share) / burst;
            is_bad = if burst <= 1.0 {
                drawn < share
            } else if is_bad {
                drawn >= 1.0 / burst
            } else {
                drawn < leaves_good
            };
            is_bad
        }
    }

    /// Sends for this many milliseconds, a datagram each `interval(millisecond)` microseconds, and
    /// repairs after a round trip until it arrives. Returns the number of times that losses were
    /// found to be a policer's, and the number of datagrams lost until the first time.
    fn told(millis: u64, interval: impl Fn(u64) -> u64, path: Path<'_>) -> (u64, u64) {
        let (mut policing, mut repairs) = (Policing::new(), BTreeMap::new());
        let (mut at, mut sequence, mut lost, mut told, mut first) = (0, 0, 0, 0, 0);
        let again = |at: u64| at + ROUND_TRIP.as_micros() as u64;
        while at < millis * 1000 {
            while let Some((due, number)) = repairs.pop_first() {
                if due > at {
                    repairs.insert(due, number);
                    break;
                }
                if path(due) {
                    repairs.insert(again(due), number);
                } else {
                    policing.on_repair_arrived();
                }
            }
            if path(at) {
                lost += 1;
                repairs.insert(again(at), sequence);
                if policing.on_loss(sequence, Timestamp::from_micros(at), ROUND_TRIP) {
                    told += 1;
                    first = if told == 1 { lost } else { first };
                }
            }
            sequence += 1;
            at += interval(at / 1000);
        }
        (told, first)
    }

    #[test]
    fn a_policers_losses_are_told_within_a_hundred_or_two() {
        // In slow start; somewhat above the rate; and up and down.
        let slow_start = |millis: u64| 1000 >> (millis / 50).min(4);
        let (all, first) = told(400, slow_start, &mut policer());
        assert!(all >= 3 && first <= 200, "{all}, {first}");
        let (all, first) = told(5000, |_| 300, &mut policer());
        assert!(all >= 10 && first <= 200, "{all}, {first}");
        let sawtooth = |millis: u64| 700 - millis % 1000 / 2;
        let (all, first) = told(10_000, sawtooth, &mut policer());
        assert!(all >= 10 && first <= 200, "{all}, {first}");
    }

    #[test]
    fn a_mediums_losses_are_not() {
        for seed in 0..20 {
            for (share, burst) in
                [(0.01, 1.0), (0.1, 1.0), (0.3, 1.0), (0.6, 1.0), (0.1, 5.0), (0.3, 20.0)]
            {
                let constant = told(10_000, |_| 500, &mut medium(seed, share, burst)).0;
                let fast = told(4000, |_| 100, &mut medium(seed, share, burst)).0;
                let sawtooth = |millis: u64| 700 - millis % 1000 / 2;
                let varied = told(10_000, sawtooth, &mut medium(seed, share, burst)).0;
                assert_eq!([constant, fast, varied], [0; 3], "{seed}: {share}, {burst}");
            }
        }
    }

    #[test]
    fn what_was_known_of_other_datagrams_does_not_count() {
        let (mut policing, mut passes) = (Policing::new(), policer());
        let told = (0..1000u64).filter(|number| {
            let at = number * 100;
            policing.begin_anew();
            passes(at) && policing.on_loss(*number, Timestamp::from_micros(at), ROUND_TRIP)
        });
        assert_eq!(told.count(), 0);
    }
}
