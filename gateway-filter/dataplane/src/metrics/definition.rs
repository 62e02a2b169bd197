//! The name, kind, labels and meaning of one series.

use std::borrow::Cow;

/// Name, kind, own labels and meaning of one series of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The name in Prometheus, the same in every shell. Several series of one name differ in
    /// [`Self::labels`].
    pub name: Cow<'static, str>,
    /// Labels beside `route`, `gateway` and `namespace`, with their values.
    pub labels: &'static [(&'static str, &'static str)],
    /// Counter, gauge, or a part of a histogram.
    pub kind: Kind,
    /// One sentence for operators.
    pub help: Cow<'static, str>,
}

impl Definition {
    /// The name of the histogram that the series is a part of, else its own.
    pub fn family(&self) -> &str {
        if self.kind != Kind::Histogram {
            return &self.name;
        }
        ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| self.name.strip_suffix(end))
            .unwrap_or(&self.name)
    }

    /// The name with the labels of [`Self::labels`], as a selector of Prometheus:
    /// `packrat_handshakes_total{result="offered"}`.
    pub fn series(&self) -> String {
        series(&self.name, self.labels)
    }
}

/// A name with labels, as a selector of Prometheus.
pub(super) fn series(name: &str, labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return name.to_owned();
    }
    let labels: Vec<String> =
        labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
    format!("{name}{{{}}}", labels.join(","))
}

/// The behaviour of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A bucket, the sum or the number of a histogram: each of them only grows.
    Histogram,
}

impl Kind {
    /// The name of the type in Prometheus.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}
