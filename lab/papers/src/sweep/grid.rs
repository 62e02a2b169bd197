//! The segments of Splitting25, table 1, and how two of them make a path.

use packrat_emulation::scenario::{
    FlowDirection, FlowSettings, QueueSettings, Scenario, ScenarioError, Segment, Traffic,
};
use packrat_lab::{Trial, TrialError};
use serde::{Deserialize, Serialize};

/// Mbit/s of UDP payload.
pub(super) const RATES_MBPS: [u64; 5] = [10, 20, 30, 40, 50];
/// Delays of one way, in milliseconds.
pub(super) const DELAYS_MILLIS: [u64; 6] = [1, 20, 40, 60, 80, 100];
/// Percent, in both directions.
pub(super) const LOSSES_PERCENT: [u64; 5] = [0, 1, 2, 3, 4];
/// Bytes of the queue of a short segment, 32 datagrams: one bandwidth-delay product would be two
/// datagrams, fewer than a receiver acknowledges at once. Longer segments have one product of their
/// own.
const SMALLEST_QUEUE: usize = 32 * 1472;
/// Bytes that make a measurement: 7000 datagrams.
const ENOUGH_BYTES: f64 = 10e6;
/// Seconds that a measurement takes at most.
const LONGEST_SECONDS: u64 = 600;
/// Delay that is negligible beside another segment's, milliseconds.
const SHORT_MILLIS: u64 = DELAYS_MILLIS[0];

/// A segment of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) rate_mbps: u64,
    pub(super) delay_ms: u64,
    pub(super) loss_percent: u64,
}

impl Cell {
    /// All segments.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        RATES_MBPS.into_iter().flat_map(|rate_mbps| {
            DELAYS_MILLIS.into_iter().flat_map(move |delay_ms| {
                LOSSES_PERCENT.map(|loss_percent| Self { rate_mbps, delay_ms, loss_percent })
            })
        })
    }

    /// The easiest of them, at which a search begins.
    pub(super) const FIRST: Self =
        Self { rate_mbps: RATES_MBPS[0], delay_ms: SHORT_MILLIS, loss_percent: 0 };

    /// The segments that are harder by one step.
    pub(super) fn harder(self) -> impl Iterator<Item = Self> {
        let next = |values: &[u64], value: u64| {
            let place = values.iter().position(|other| *other == value)?;
            values.get(place + 1).copied()
        };
        let rate = next(&RATES_MBPS, self.rate_mbps).map(|rate_mbps| Self { rate_mbps, ..self });
        let delay = next(&DELAYS_MILLIS, self.delay_ms).map(|delay_ms| Self { delay_ms, ..self });
        let loss = next(&LOSSES_PERCENT, self.loss_percent)
            .map(|loss_percent| Self { loss_percent, ..self });
        [rate, delay, loss].into_iter().flatten()
    }

    /// The path of two segments; `None` if it is not in the grid. As in the paper, the short delay
    /// is neglected, and losses are small enough to add up.
    pub(super) fn compose(self, other: Self) -> Option<Self> {
        let delay_ms = match (self.delay_ms, other.delay_ms) {
            (SHORT_MILLIS, delay) | (delay, SHORT_MILLIS) => delay,
            (one, two) => one + two,
        };
        let whole = Self {
            rate_mbps: self.rate_mbps.min(other.rate_mbps),
            delay_ms,
            loss_percent: self.loss_percent + other.loss_percent,
        };
        (DELAYS_MILLIS.contains(&delay_ms) && LOSSES_PERCENT.contains(&whole.loss_percent))
            .then_some(whole)
    }

    fn write_to(self, segment: &mut Segment) {
        segment.delay_ms = self.delay_ms;
        segment.rate_mbps = self.rate_mbps as f64;
        segment.loss = self.loss_percent as f64 / 100.0;
        let product = self.rate_mbps * 1000 / 8 * 2 * self.delay_ms;
        let queue = QueueSettings::drop_tail((product as usize).max(SMALLEST_QUEUE));
        (segment.down.queue, segment.up.queue) = (Some(queue), Some(queue));
    }
}

/// The time of a measurement. Start-up does not count: a segment on its own and the same segment
/// behind a slower one differ in it, and a download as long as a fast segment's is mostly start-up
/// on a slow one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Period {
    /// Seconds before it.
    pub(super) settle: u64,
    /// Seconds that count.
    pub(super) seconds: u64,
}

impl Period {
    /// The period in which enough arrives at this goodput, in Mbit/s; this one, or a longer one.
    fn for_goodput(self, goodput: f64) -> Self {
        let bytes = goodput * 125e3 * self.seconds as f64;
        let longest = LONGEST_SECONDS / (self.settle + self.seconds).max(1);
        let times = ((ENOUGH_BYTES / bytes.max(1.0)).ceil() as u64).min(longest).max(1);
        Self { settle: self.settle * times, seconds: self.seconds * times }
    }

    /// A download of this duration.
    pub(super) fn download(self) -> Traffic {
        let flow = FlowSettings {
            name: None,
            sender: None,
            arm: None,
            start_ms: 0.0,
            count: 1,
            start_every_ms: 0.0,
            size: None,
            direction: FlowDirection::Down,
            objects: None,
            page: None,
            video: None,
            own_far: false,
            own_last_mile: false,
        };
        Traffic {
            seconds: Some(self.settle + self.seconds),
            settle_seconds: self.settle,
            flows: vec![flow],
        }
    }
}

/// The network of one segment, from which the other is left out as far as that goes, and a download
/// that fills it.
pub(super) fn one_segment(cell: Cell, period: Period) -> Result<Scenario, ScenarioError> {
    let mut scenario = two_segments(Cell { loss_percent: 0, ..cell }, cell, period)?;
    scenario.far.delay_ms = 0;
    scenario.far.rate_mbps = 10_000.0;
    Ok(scenario)
}

/// The network of two segments, and a download that fills it.
pub(super) fn two_segments(
    far: Cell,
    near: Cell,
    period: Period,
) -> Result<Scenario, ScenarioError> {
    let mut scenario = Scenario::load("wifi")?;
    scenario.name = "sweep".to_owned();
    far.write_to(&mut scenario.far);
    near.write_to(&mut scenario.last_mile);
    Ok(scenario.with_traffic(period.download()))
}

/// The goodput of a download in steady state, Mbit/s.
pub(super) fn goodput(trial: &Trial) -> Result<f64, TrialError> {
    let result = trial.run()?;
    Ok(result.flows.first().map_or(0.0, |flow| flow.goodput_mbps))
}

/// Goodput in the steady state, over enough seconds that about [`ENOUGH_BYTES`] bytes arrive, if the
/// longest measurement allows it: a few hundred datagrams have only a few losses, and downloads
/// with a few losses differ widely. Start-up is prolonged by the same factor.
pub(super) fn steady_goodput(trial: &Trial, period: Period) -> Result<f64, TrialError> {
    let first = goodput(trial)?;
    let longer = period.for_goodput(first);
    if longer == period {
        return Ok(first);
    }
    let scenario = trial.scenario.clone().with_traffic(longer.download());
    goodput(&Trial { scenario, ..trial.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_150_grid_segments_all_but_the_first_have_an_easier_one() {
        assert_eq!(Cell::all().count(), 150);
        let harder: std::collections::BTreeSet<Cell> = Cell::all().flat_map(Cell::harder).collect();
        assert_eq!(harder.len(), 149);
        assert!(!harder.contains(&Cell::FIRST));
    }

    #[test]
    fn a_slow_download_is_measured_for_longer() {
        let period = Period { settle: 5, seconds: 10 };
        let times = |times: u64| Period { settle: 5 * times, seconds: 10 * times };
        // 12.5 MB, 9.375 MB, 1.25 MB, and almost zero.
        let goodput = [10.0, 7.5, 1.0, 0.001];
        assert_eq!(goodput.map(|one| period.for_goodput(one)), [1, 2, 8, 40].map(times));
    }

    #[test]
    fn two_segments_make_a_path_of_the_grid() {
        let cell = |rate_mbps, delay_ms, loss_percent| Cell { rate_mbps, delay_ms, loss_percent };
        assert_eq!(cell(50, 1, 4).compose(cell(10, 100, 0)), Some(cell(10, 100, 4)));
        assert_eq!(cell(50, 40, 1).compose(cell(20, 60, 2)), Some(cell(20, 100, 3)));
        assert_eq!(cell(50, 60, 1).compose(cell(20, 60, 2)), None);
        assert_eq!(cell(50, 1, 3).compose(cell(20, 1, 2)), None);
    }
}
