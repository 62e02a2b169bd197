//! Distributions of measurements per eACK, repair, batch and session, counted in buckets.
//!
//! A histogram is a set of counters, as Prometheus' text has it: one per bucket with the label
//! `le`, their sum and their number. Envoy's own histograms take one value per call, on its main
//! thread alone; the counters here take values on every thread for two additions each, and
//! reach Envoy as counters of the same names.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use packrat_engine::Sample;

use super::counter::load;
use super::definition::{self, Definition, Kind};

/// Name, buckets and meaning of one histogram.
#[derive(Debug)]
pub struct Histogram {
    /// The name in Prometheus, without the `_bucket`, `_sum` and `_count` of its series.
    pub name: &'static str,
    /// Labels of all of its series; several histograms of one name differ in them.
    pub labels: &'static [(&'static str, &'static str)],
    /// One sentence for operators.
    pub help: &'static str,
    /// Upper bounds of the buckets, rising; a last one without a bound follows.
    pub bounds: &'static [u64],
    /// Series of the histogram: the buckets by rising bound, the sum, the number.
    pub series: &'static [Definition],
}

/// Labels of a histogram, and one more.
macro_rules! labels {
    ({$($label:ident = $value:literal),*} $($more:tt)*) => {
        &[$((stringify!($label), $value),)* $($more)*]
    };
}

macro_rules! histograms {
    ($($variant:ident $name:literal $labels:tt [$($bound:literal)+] $help:literal;)*) => {
        /// A quantity that is read as a distribution.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Distribution {
            $(#[doc = concat!("`packrat_", $name, "`: ", $help)] $variant,)*
        }

        /// Every histogram of a route.
        pub const HISTOGRAMS: &[Histogram] = &[$(Histogram {
            name: concat!("packrat_", $name),
            labels: labels!($labels),
            help: $help,
            bounds: &[$($bound),+],
            series: &[
                // The bounds are written as Prometheus 3 writes them, so that the series of all
                // shells are the same.
                $(part(concat!("packrat_", $name, "_bucket"), labels!($labels ("le", concat!(stringify!($bound), ".0"))), $help),)+
                part(concat!("packrat_", $name, "_bucket"), labels!($labels ("le", "+Inf")), $help),
                part(concat!("packrat_", $name, "_sum"), labels!($labels), $help),
                part(concat!("packrat_", $name, "_count"), labels!($labels), $help),
            ],
        },)*];
    };
}

const fn part(
    name: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
) -> Definition {
    Definition {
        name: Cow::Borrowed(name),
        labels,
        kind: Kind::Histogram,
        help: Cow::Borrowed(help),
    }
}

histograms! {
    LastMileRoundTrip "last_mile_round_trip_sample_microseconds" {} [500 1000 2000 5000 10000 20000 35000 50000 75000 100000 150000 250000 500000 1000000] "Last-mile round trip, of each eACK that names a new datagram.";
    FarRoundTrip "far_round_trip_sample_microseconds" {} [500 1000 2000 5000 10000 20000 35000 50000 75000 100000 150000 250000 500000 1000000] "Round trip to the server with its time to answer, one per session.";
    RepairSent "repair_delay_microseconds" {} [500 1000 2000 5000 10000 20000 35000 50000 75000 100000 150000 250000 500000 1000000] "From forwarding a datagram to its first repair.";
    RepairArrived "repair_arrival_microseconds" {} [500 1000 2000 5000 10000 20000 35000 50000 75000 100000 150000 250000 500000 1000000] "From forwarding a repaired datagram to the eACK that shows its arrival.";
    EackSymbols "eack_symbols" {} [2 3 4 6 8 12 16 24 32 48 64 96 128] "Coded symbols or power sums in an eACK.";
    EackMissing "eack_missing_datagrams" {} [1 2 3 5 8 13 21 34 55 89 144] "Newly missing datagrams in a decoded eACK, if any.";
    Batch "batch_datagrams" {} [1 2 4 8 16 32 64 128 256 512 1024] "Datagrams of a server received and sent on together.";
    Control "control_nanoseconds" {} [1000 2000 5000 10000 20000 50000 100000 200000 500000 1000000 5000000] "Time for answering a control datagram, repairs included.";
    SessionDuration "session_duration_seconds" {} [1 5 15 60 120 300 900 3600 14400 86400] "Duration of client sessions, idle timeout included.";
    SessionBytes "session_to_client_bytes" {} [1000 10000 100000 1000000 10000000 100000000 1000000000 10000000000] "Payload bytes of an ended session to the client.";
    // Of the comparison: a hundred series for each route and Pod, and no more.
    TransferGoodputAssisted "transfer_goodput_bits_per_second" {assisted = "yes"} [500000 1000000 2000000 4000000 8000000 16000000 32000000 64000000 128000000 512000000] "Goodput of ended sessions of 256 kB to the client or more, without pauses above a second, retransmissions included.";
    TransferGoodputHoldout "transfer_goodput_bits_per_second" {assisted = "holdout"} [500000 1000000 2000000 4000000 8000000 16000000 32000000 64000000 128000000 512000000] "Goodput of ended sessions of 256 kB to the client or more, without pauses above a second, retransmissions included.";
    TransferTimeAssistedSmall "transfer_duration_microseconds" {assisted = "yes", size = "256kB"} [500000 1000000 2000000 5000000 10000000 30000000] "Time of ended sessions of 256 kB to 1 MB to the client, without pauses above a second.";
    TransferTimeAssistedMiddle "transfer_duration_microseconds" {assisted = "yes", size = "1MB"} [500000 1000000 2000000 5000000 10000000 30000000] "Time of ended sessions of 1 MB to 10 MB to the client, without pauses above a second.";
    TransferTimeAssistedLarge "transfer_duration_microseconds" {assisted = "yes", size = "10MB"} [500000 1000000 2000000 5000000 10000000 30000000] "Time of ended sessions of 10 MB or more to the client, without pauses above a second.";
    TransferTimeHoldoutSmall "transfer_duration_microseconds" {assisted = "holdout", size = "256kB"} [500000 1000000 2000000 5000000 10000000 30000000] "Time of ended sessions of 256 kB to 1 MB to the client, without pauses above a second.";
    TransferTimeHoldoutMiddle "transfer_duration_microseconds" {assisted = "holdout", size = "1MB"} [500000 1000000 2000000 5000000 10000000 30000000] "Time of ended sessions of 1 MB to 10 MB to the client, without pauses above a second.";
    TransferTimeHoldoutLarge "transfer_duration_microseconds" {assisted = "holdout", size = "10MB"} [500000 1000000 2000000 5000000 10000000 30000000] "Time of ended sessions of 10 MB or more to the client, without pauses above a second.";
    TransferLossLastMile "transfer_loss_ppm" {seen = "last_mile"} [1000 10000 30000 100000] "Share of the datagrams of an assisted session of 256 kB or more that the last mile lost at first.";
    TransferLossSender "transfer_loss_ppm" {seen = "sender"} [1000 10000 30000 100000] "The share lost for good.";
}

/// Every series of every histogram, in the order of [`Values::values`].
pub(super) fn series() -> impl Iterator<Item = &'static Definition> {
    HISTOGRAMS.iter().flat_map(|histogram| histogram.series)
}

/// The counters of every histogram.
#[derive(Debug)]
pub(super) struct Values(Vec<Value>);

#[derive(Debug)]
struct Value {
    /// Values between two bounds; the last one counts those above all of them.
    buckets: Vec<AtomicU64>,
    sum: AtomicU64,
}

/// The content of a histogram.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Name of the histogram.
    pub name: &'static str,
    /// Labels of the histogram.
    pub labels: &'static [(&'static str, &'static str)],
    /// The number of values.
    pub count: u64,
    /// All values together.
    pub sum: u64,
    buckets: Vec<u64>,
    bounds: &'static [u64],
}

impl Summary {
    /// The name with the labels, as a selector of Prometheus.
    pub fn series(&self) -> String {
        definition::series(self.name, self.labels)
    }

    /// The mean; `None` when there are no values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The value that `share` (0 to 1) of the values do not exceed, estimated as Prometheus'
    /// `histogram_quantile` does: as if values were spread evenly in their bucket. Above the
    /// last bound it is the last bound; `None` when there are no values.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = share * self.count as f64;
        let (mut below, mut from) = (0.0, 0.0);
        for (bucket, bound) in self.buckets.iter().zip(self.bounds) {
            let (bucket, to) = (*bucket as f64, *bound as f64);
            if bucket > 0.0 && below + bucket >= wanted {
                return Some(from + (to - from) * (wanted - below) / bucket);
            }
            (below, from) = (below + bucket, to);
        }
        (self.count > 0).then_some(from)
    }
}

impl Default for Values {
    fn default() -> Self {
        let value = |histogram: &Histogram| Value {
            buckets: std::iter::repeat_with(AtomicU64::default)
                .take(histogram.bounds.len() + 1)
                .collect(),
            sum: AtomicU64::default(),
        };
        Self(HISTOGRAMS.iter().map(value).collect())
    }
}

impl Values {
    pub(super) fn record(&self, distribution: Distribution, measured: u64) {
        let place = distribution as usize;
        let (Some(value), Some(histogram)) = (self.0.get(place), HISTOGRAMS.get(place)) else {
            return;
        };
        let bucket = histogram.bounds.partition_point(|bound| *bound < measured);
        if let Some(bucket) = value.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
            value.sum.fetch_add(measured, Ordering::Relaxed);
        }
    }

    /// Records a measurement of the engine.
    pub(super) fn record_sample(&self, sample: Sample) {
        let microseconds =
            |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        match sample {
            Sample::LastMileRoundTrip(time) => {
                self.record(Distribution::LastMileRoundTrip, microseconds(time));
            }
            Sample::RepairSent(time) => self.record(Distribution::RepairSent, microseconds(time)),
            Sample::RepairArrived(time) => {
                self.record(Distribution::RepairArrived, microseconds(time))
            }
            Sample::EackSymbols(count) => self.record(Distribution::EackSymbols, count.into()),
            Sample::EackMissing(count) => self.record(Distribution::EackMissing, count),
            _ => {}
        }
    }

    pub(super) fn summaries(&self) -> Vec<Summary> {
        let summary = |(histogram, value): (&Histogram, &Value)| {
            let buckets: Vec<u64> = value.buckets.iter().map(load).collect();
            let (count, sum) = (buckets.iter().sum(), load(&value.sum));
            let Histogram { name, labels, bounds, .. } = *histogram;
            Summary { name, labels, count, sum, buckets, bounds }
        };
        HISTOGRAMS.iter().zip(&self.0).map(summary).collect()
    }

    /// The values of [`series`].
    pub(super) fn values(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flat_map(|value| {
            let mut count = 0;
            let mut values: Vec<u64> = value
                .buckets
                .iter()
                .map(|bucket| {
                    count += load(bucket);
                    count
                })
                .collect();
            values.extend([load(&value.sum), count]);
            values
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(values: &Values, name: &str) -> u64 {
        series().zip(values.values()).find(|(definition, _)| definition.series() == name).unwrap().1
    }

    #[test]
    fn what_is_measured_is_in_its_bucket_and_in_all_above() {
        let values = Values::default();
        assert_eq!(values.values().count(), series().count());
        for measured in [1, 2, 2, 33, 5000] {
            values.record(Distribution::Batch, measured);
        }
        let bucket = |bound: &str| {
            value(&values, &format!("packrat_batch_datagrams_bucket{{le=\"{bound}\"}}"))
        };
        assert_eq!(["1.0", "2.0", "4.0", "32.0", "64.0"].map(bucket), [1, 3, 3, 3, 4]);
        assert_eq!(["1024.0", "+Inf"].map(bucket), [4, 5]);
        assert_eq!(value(&values, "packrat_batch_datagrams_sum"), 5038);
        assert_eq!(value(&values, "packrat_batch_datagrams_count"), 5);
    }

    #[test]
    fn quantiles_are_those_of_prometheus() {
        let values = Values::default();
        let summary = || values.summaries().swap_remove(Distribution::Batch as usize);
        assert_eq!((summary().mean(), summary().quantile(0.5)), (None, None));
        for measured in [2, 2, 3, 4, 9999] {
            values.record(Distribution::Batch, measured);
        }
        assert_eq!((summary().count, summary().mean()), (5, Some(2002.0)));
        // Half of 5 is the middle between the second (the end of the bucket from 1 to 2) and the
        // fourth (the end of that to 4).
        assert_eq!(summary().quantile(0.5), Some(2.5));
        assert_eq!(
            [0.2, 0.8, 0.99].map(|share| summary().quantile(share).unwrap()),
            [1.5, 4.0, 1024.0]
        );
    }

    #[test]
    fn what_the_engine_measures_is_told_apart() {
        let values = Values::default();
        let time = std::time::Duration::from_micros;
        for sample in [
            Sample::LastMileRoundTrip(time(4000)),
            Sample::RepairSent(time(5000)),
            Sample::RepairArrived(time(9000)),
            Sample::EackSymbols(4),
            Sample::EackMissing(7),
        ] {
            values.record_sample(sample);
        }
        for (name, sum) in [
            ("last_mile_round_trip_sample_microseconds", 4000),
            ("repair_delay_microseconds", 5000),
            ("repair_arrival_microseconds", 9000),
            ("eack_symbols", 4),
            ("eack_missing_datagrams", 7),
        ] {
            assert_eq!(value(&values, &format!("packrat_{name}_sum")), sum);
            assert_eq!(value(&values, &format!("packrat_{name}_count")), 1);
        }
    }

    #[test]
    fn bounds_rise_and_names_have_a_unit() {
        for Histogram { name, bounds, help, series, .. } in HISTOGRAMS {
            assert!(bounds.is_sorted_by(|before, after| before < after), "{name}");
            assert!(help.ends_with('.'), "{name}");
            assert_eq!(series.len(), bounds.len() + 3, "{name}");
            let unit = name.rsplit('_').next().unwrap();
            let units =
                ["microseconds", "nanoseconds", "seconds", "bytes", "datagrams", "symbols", "ppm"];
            assert!(units.contains(&unit) || name.ends_with("_bits_per_second"), "{name}");
        }
    }
}
