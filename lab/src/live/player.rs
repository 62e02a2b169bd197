//! The listener's experience: the lateness of each unit, and the stalls of the player.

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
#[derive(Debug, Clone, Default)]
pub(crate) struct Experience {
    /// Times from production to playing, in microseconds, ascending; missing units are excluded.
    pub(crate) latencies: Vec<u64>,
    pub(crate) stalls: u64,
    pub(crate) stalled: Duration,
    pub(crate) skipped: u64,
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
    let end = |stall: &mut Option<(u64, u64)>, experience: &mut Experience| {
        if let Some((from, to)) = stall.take() {
            experience.stalls += 1;
            experience.stalled += Duration::from_micros(to - from);
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
    experience.latencies.sort_unstable();
    experience
}

/// The quantile of ascending microseconds by the nearest rank, in milliseconds.
pub(crate) fn nearest_rank_ms(ascending: &[u64], share: f64) -> f64 {
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
        assert_eq!(experience.stalled, Duration::from_millis(60 + 80 + 500));
        assert_eq!(experience.latencies, [120_000, 120_900, 160_000, 180_000, 200_000]);
        assert_eq!(nearest_rank_ms(&experience.latencies, 0.5), 160.0);
        assert_eq!(nearest_rank_ms(&experience.latencies, 0.999), 200.0);
        let buffered = play(units, Duration::from_millis(70), Duration::from_millis(500));
        assert_eq!((buffered.stalls, buffered.stalled), (2, Duration::from_millis(10 + 500)));
    }
}
