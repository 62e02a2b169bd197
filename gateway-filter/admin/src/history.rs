//! The last quarter of an hour, for the page's curves.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use packrat_dataplane::Dataplane;
use packrat_dataplane::metrics::{Kind, definitions};
use packrat_figures::Figures;
use parking_lot::Mutex;

/// Time between two stored readings.
const READING_INTERVAL: Duration = Duration::from_secs(5);
/// Number of stored readings.
const STORED_READINGS: usize = 180;

type Reading = BTreeMap<String, f64>;

/// Readings of all routes, one every five seconds.
#[derive(Debug, Default)]
pub struct History(Mutex<BTreeMap<String, VecDeque<(Instant, Reading)>>>);

impl History {
    /// Takes a reading when the last one is old enough. The caller calls it about once a second.
    pub fn tick(&self, dataplane: Option<&Dataplane>, now: Instant) {
        let Some(dataplane) = dataplane else { return };
        let mut history = self.0.lock();
        for route in dataplane.routes() {
            let readings = history.entry(route.name().to_owned()).or_default();
            if readings
                .back()
                .is_some_and(|(last, _)| now.saturating_duration_since(*last) < READING_INTERVAL)
            {
                continue;
            }
            let values = route.metrics().values().map(|value| value as f64);
            // No curve of the page shows a histogram.
            let reading = definitions()
                .iter()
                .zip(values)
                .filter(|(definition, _)| definition.kind != Kind::Histogram)
                .map(|(definition, value)| (definition.series(), value))
                .collect();
            if readings.len() >= STORED_READINGS {
                readings.pop_front();
            }
            readings.push_back((now, reading));
        }
    }

    /// A route's figures between each two readings, with their age in seconds; oldest first.
    pub(crate) fn curve(&self, route: &str, now: Instant) -> Vec<(f64, Figures)> {
        let history = self.0.lock();
        let Some(readings) = history.get(route) else { return Vec::new() };
        readings
            .iter()
            .zip(readings.iter().skip(1))
            .map(|((earlier, before), (later, after))| {
                let seconds = later.saturating_duration_since(*earlier).as_secs_f64();
                let age = now.saturating_duration_since(*later).as_secs_f64();
                (age, Figures::between(before, after, seconds))
            })
            .collect()
    }

    /// A route's figures of about the last `window`, and the time that they cover.
    pub(crate) fn figures(&self, route: &str, window: Duration) -> Option<(Figures, Duration)> {
        let history = self.0.lock();
        let readings = history.get(route)?;
        let (last, after) = readings.back()?;
        let (first, before) =
            readings.iter().find(|(at, _)| last.saturating_duration_since(*at) <= window)?;
        let elapsed = last.saturating_duration_since(*first);
        Some((Figures::between(before, after, elapsed.as_secs_f64()), elapsed))
    }
}
