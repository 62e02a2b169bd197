//! Atomics that any thread counts in.

use std::sync::atomic::{AtomicU64, Ordering};

use packrat_engine::{FlowCounters, Sample, StreamCounters, StreamGauges};

use super::catalog::{self, Metric};
use super::counter::load;
use super::histogram::{self, Distribution, Summary};
use super::levels::Levels;

/// The values of one route; any thread may count in them.
#[derive(Debug)]
pub struct Metrics {
    own: Vec<AtomicU64>,
    engine: Vec<AtomicU64>,
    pub(crate) levels: Levels,
    streams: Vec<AtomicU64>,
    stream_levels: Vec<AtomicU64>,
    histograms: histogram::Values,
}

impl Default for Metrics {
    fn default() -> Self {
        let zeros = |count| std::iter::repeat_with(|| AtomicU64::new(0)).take(count).collect();
        Self {
            own: zeros(Metric::DEFINITIONS.len()),
            engine: zeros(FlowCounters::FIELDS.len()),
            levels: Levels::default(),
            streams: zeros(StreamCounters::FIELDS.len()),
            stream_levels: zeros(StreamGauges::FIELDS.len()),
            histograms: histogram::Values::default(),
        }
    }
}

impl Metrics {
    /// A counter of the data plane itself.
    pub fn get(&self, metric: Metric) -> u64 {
        self.own.get(metric as usize).map_or(0, load)
    }

    /// Every value now, in the order of [`super::definitions`]. They are not a consistent snapshot.
    pub fn values(&self) -> impl Iterator<Item = u64> {
        let engine =
            catalog::engine().iter().map(|(index, _)| self.engine.get(*index).map_or(0, load));
        let streams = self.streams.iter().chain(&self.stream_levels).map(load);
        let histograms = self.histograms.values();
        self.own
            .iter()
            .map(load)
            .chain(engine)
            .chain(self.levels.values())
            .chain(streams)
            .chain(histograms)
    }

    pub(crate) fn add(&self, metric: Metric, amount: u64) {
        if amount != 0
            && let Some(value) = self.own.get(metric as usize)
        {
            value.fetch_add(amount, Ordering::Relaxed);
        }
    }

    pub(crate) fn subtract(&self, metric: Metric, amount: u64) {
        if amount != 0
            && let Some(value) = self.own.get(metric as usize)
        {
            value.fetch_sub(amount, Ordering::Relaxed);
        }
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, metric: Metric, level: u64) {
        if let Some(value) = self.own.get(metric as usize) {
            value.store(level, Ordering::Relaxed);
        }
    }

    /// All histograms, for readers without Prometheus.
    pub fn summaries(&self) -> Vec<Summary> {
        self.histograms.summaries()
    }

    /// Adds a value to a histogram.
    pub(crate) fn record(&self, distribution: Distribution, value: u64) {
        self.histograms.record(distribution, value);
    }

    /// Adds what the engine has measured to the histograms.
    pub(crate) fn record_samples(&self, samples: &[Sample]) {
        for sample in samples {
            self.histograms.record_sample(*sample);
        }
    }

    /// Adds what the engine has counted for one flow.
    pub(crate) fn add_flow(&self, counters: &FlowCounters) {
        for (value, amount) in self.engine.iter().zip(counters.values()) {
            if amount != 0 {
                value.fetch_add(amount, Ordering::Relaxed);
            }
        }
    }

    /// Adds what the engine has counted for a live stream.
    pub(crate) fn add_stream(&self, counters: &StreamCounters) {
        for (value, amount) in self.streams.iter().zip(counters.values()) {
            if amount != 0 {
                value.fetch_add(amount, Ordering::Relaxed);
            }
        }
    }

    /// The levels of the route's live stream now.
    pub(crate) fn set_stream_levels(&self, gauges: &StreamGauges) {
        for (value, level) in self.stream_levels.iter().zip(gauges.values()) {
            value.store(level, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use packrat_engine::FlowGauges;

    use super::*;
    use crate::metrics::catalog::definitions;
    use crate::metrics::levels::{Limits, Reported};

    fn value(metrics: &Metrics, series: &str) -> u64 {
        let index = definitions()
            .iter()
            .position(|definition| definition.series() == series)
            .expect(series);
        metrics.values().nth(index).unwrap()
    }

    #[test]
    fn values_stand_under_their_names() {
        let metrics = Metrics::default();
        assert_eq!(metrics.values().count(), definitions().len());
        metrics.add(Metric::Sessions, 3);
        metrics.subtract(Metric::Sessions, 1);
        metrics.add(Metric::HandshakesMalformed, 7);
        let mut counters = FlowCounters::default();
        counters.repairs = 5;
        counters.eacks_failed = 2;
        metrics.add_flow(&counters);
        metrics.add_flow(&counters);
        assert_eq!(value(&metrics, "packrat_sessions"), 2);
        assert_eq!(value(&metrics, "packrat_handshakes_total{result=\"malformed\"}"), 7);
        assert_eq!(value(&metrics, "packrat_repairs_total"), 10);
        assert_eq!(value(&metrics, "packrat_eacks_total{result=\"failed\"}"), 4);
        metrics.levels.set_limits(Limits {
            sessions: 9,
            cache_bytes: 8,
            repair_budget_ppm: 250_000,
            assist: true,
        });
        assert_eq!(value(&metrics, "packrat_sessions_limit"), 9);
        assert_eq!(value(&metrics, "packrat_cache_limit_bytes"), 8);
        assert_eq!(value(&metrics, "packrat_repair_budget_ppm"), 250_000);
        assert_eq!(value(&metrics, "packrat_assist_enabled"), 1);
    }

    #[test]
    fn levels_follow_the_sessions_up_and_down() {
        let metrics = Metrics::default();
        let (mut one, mut other) = (Reported::default(), Reported::default());
        let mut gauges = FlowGauges::default();
        gauges.assisted = 1;
        gauges.cache_bytes = 1000;
        gauges.cache_high_water_bytes = 1500;
        gauges.round_trip_microseconds = 20_000;
        metrics.levels.replace(&mut one, &gauges);
        gauges.cache_bytes = 50;
        gauges.round_trip_microseconds = 40_000;
        metrics.levels.replace(&mut other, &gauges);
        assert_eq!(value(&metrics, "packrat_cache_bytes"), 1050);
        assert_eq!(value(&metrics, "packrat_last_mile_round_trip_microseconds"), 30_000);
        metrics.levels.replace(&mut one, &FlowGauges::default());
        assert_eq!(value(&metrics, "packrat_cache_bytes"), 50);
        assert_eq!(value(&metrics, "packrat_sessions_assisted"), 1);
        assert_eq!(value(&metrics, "packrat_last_mile_round_trip_microseconds"), 40_000);
        metrics.levels.replace(&mut other, &FlowGauges::default());
        assert_eq!(value(&metrics, "packrat_cache_bytes"), 0);
        assert_eq!(value(&metrics, "packrat_cache_high_water_bytes"), 1500);
        metrics.levels.add_far_round_trip(60_000);
        metrics.levels.add_far_round_trip(20_000);
        assert_eq!(value(&metrics, "packrat_far_round_trip_microseconds"), 40_000);
        metrics.levels.subtract_far_round_trip(20_000);
        assert_eq!(value(&metrics, "packrat_far_round_trip_microseconds"), 60_000);
    }
}
