//! The listener's experience: the lateness of each unit, and the stalls of the player.

use serde::Serialize;
use std::time::Duration;

/// A unit, with times in microseconds of the trial.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Played {
    /// The time at which the production of its content began.
    pub(crate) produced: u64,
    /// The time at which it is due: without loss it would be played now.
    pub(crate) due: u64,
    /// The time at which it could be decoded; `None`: never.
    pub(crate) available: Option<u64>,
}

/// The listener's experience.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Experience {
    /// Latency in milliseconds, one way, from the beginning of a unit's production until it is
    /// played: the quantiles of [`Experience::QUANTILES`].
    pub latency_ms: Vec<f64>,
    /// Times that the player stalled.
    pub stalls: u64,
    /// Milliseconds of all stalls.
    pub stalled_ms: f64,
    /// Units that were never played.
    pub skipped: u64,
    /// All latencies, ascending, microseconds; missing units are excluded.
    #[serde(skip)]
    pub latencies: Vec<u64>,
}

impl Experience {
    /// The quantiles of the latency that a result has.
    pub const QUANTILES: [f64; 9] = [0.0, 0.5, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0];

    /// The given quantile, in milliseconds.
    pub fn latency(&self, quantile: f64) -> f64 {
        let index = Self::QUANTILES.iter().position(|known| *known == quantile);
        index.and_then(|index| self.latency_ms.get(index)).copied().unwrap_or(f64::NAN)
    }
}

/// Lateness that a listener does not notice, microseconds: a datagram that waits for another one to
/// be transmitted is no stall.
const UNNOTICED_MICROS: u64 = 1_000;

/// Plays units in order. `slack`: the part of the player's buffer beyond the due unit. The player
/// waits for a late unit, at most `patience`, and afterwards fast-forwards until it is on time
/// again.
pub(crate) fn play(
    units: impl IntoIterator<Item = Played>,
    slack: Duration,
    patience: Duration,
) -> Experience {
    let slack = slack.as_micros() as u64;
    let mut experience = Experience::default();
    let patience = patience.as_micros() as u64;
    // The current stall.
    let mut stall: Option<(u64, u64)> = None;
    let mut stalled = Duration::ZERO;
    let mut end = |stall: &mut Option<(u64, u64)>, experience: &mut Experience| {
        if let Some((from, to)) = stall.take() {
            experience.stalls += 1;
            stalled += Duration::from_micros(to - from);
        }
    };
    for unit in units {
        let played = unit.available.map(|available| available.max(unit.due));
        match played {
            Some(played) => experience.latencies.push(played.saturating_sub(unit.produced)),
            None => experience.skipped += 1,
        }
        let due = unit.due + slack;
        let until = played.unwrap_or(due + patience).min(due + patience);
        if until <= due + UNNOTICED_MICROS {
            continue;
        }
        match &mut stall {
            Some((_, to)) if due <= *to => *to = until.max(*to),
            _ => {
                end(&mut stall, &mut experience);
                stall = Some((due, until));
            }
        }
    }
    end(&mut stall, &mut experience);
    experience.stalled_ms = stalled.as_secs_f64() * 1e3;
    experience.latencies.sort_unstable();
    experience.latency_ms =
        Experience::QUANTILES.map(|share| nearest_rank_ms(&experience.latencies, share)).to_vec();
    experience
}

/// The quantile of ascending microseconds by the nearest rank, in milliseconds.
fn nearest_rank_ms(ascending: &[u64], share: f64) -> f64 {
    let index = (ascending.len() as f64 * share).ceil() as usize;
    ascending
        .get(index.clamp(1, ascending.len().max(1)) - 1)
        .map_or(f64::NAN, |value| *value as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_that_are_late_together_are_one_stall() {
        let at = |millis: u64| Some(millis * 1000);
        let unit = |number: u64, available| Played {
            produced: number * 20_000,
            due: number * 20_000 + 120_000,
            available,
        };
        let units = [
            unit(0, at(100)),
            unit(1, at(200)),
            unit(2, at(200)),
            unit(3, Some(180_900)),
            unit(10, at(400)),
            unit(20, None),
        ];
        let experience = play(units, Duration::ZERO, Duration::from_millis(500));
        assert_eq!((experience.stalls, experience.skipped), (3, 1));
        assert_eq!(experience.stalled_ms, f64::from(60 + 80 + 500));
        assert_eq!(experience.latencies, [120_000, 120_900, 160_000, 180_000, 200_000]);
        assert_eq!(nearest_rank_ms(&experience.latencies, 0.5), 160.0);
        assert_eq!(nearest_rank_ms(&experience.latencies, 0.999), 200.0);
        let buffered = play(units, Duration::from_millis(70), Duration::from_millis(500));
        assert_eq!((buffered.stalls, buffered.stalled_ms), (2, f64::from(10 + 500)));
    }
}
