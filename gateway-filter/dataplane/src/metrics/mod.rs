//! The metrics of a gateway, defined once: [`definitions`] and [`process::definitions`] name them,
//! everything else follows.
//!
//! Distributions are in [`HISTOGRAMS`]; their series (buckets, sum, number) are part of
//! [`definitions`].
//!
//! Registrations in Envoy, the Prometheus text of the standalone gateway, docs/METRICS.md, the
//! queries of dashboards and alerts, and the tests read the same tables. Every series has the
//! labels `route`, `gateway` and `namespace`; a series never describes one client.
//!
//! Shells read them from time to time with [`Metrics::values`]: Envoy's labelled metrics may be
//! touched on its main thread only, the standalone gateway renders [`crate::prometheus_text`] when
//! it is asked.
//!
//! Envoy's counters and gauges are whole numbers. So times are in microseconds or nanoseconds and
//! ratios in parts per million, and the unit is part of the name; the recording rules of the chart
//! make seconds and ratios of them.

mod catalog;
mod counter;
mod definition;
mod histogram;
mod levels;
pub mod process;
mod stopwatch;
mod values;

pub use catalog::{Metric, definitions};
pub use definition::{Definition, Kind};
pub use histogram::{Distribution, HISTOGRAMS, Histogram, Summary};
pub use values::Metrics;

pub(crate) use catalog::{handshake, reset};
pub(crate) use levels::{Limits, Reported};
pub(crate) use stopwatch::Stopwatch;
