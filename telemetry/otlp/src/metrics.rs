//! The metrics of docs/METRICS.md, under the same names.

use std::collections::BTreeMap;
use std::sync::Arc;

use packrat_dataplane::Route;
use packrat_dataplane::metrics::{Definition, HISTOGRAMS, Kind, definitions, process};

use crate::attributes::{resource, scope, text};
use crate::messages::{
    CUMULATIVE_TEMPORALITY, Data, ExportMetricsServiceRequest, Gauge, Histogram,
    HistogramDataPoint, KeyValue, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};

/// The start of the counters and the present, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
struct Times {
    started: u64,
    now: u64,
}

/// The metrics of all routes and of the process. `started`: the time at which their counters were
/// zero, in nanoseconds since 1970, like `now`.
pub fn metrics(
    routes: &[Arc<Route>],
    instance: &str,
    started: u64,
    now: u64,
) -> ExportMetricsServiceRequest {
    let times = Times { started, now };
    let mut all = BTreeMap::new();
    for route in routes {
        let labels = vec![
            text("gateway", &route.gateway_name()),
            text("namespace", &route.namespace()),
            text("route", route.name()),
        ];
        collect(&mut all, definitions(), route.metrics().values(), &labels, times);
        let of_histograms = definitions().iter().zip(route.metrics().values());
        let of_histograms =
            of_histograms.filter(|(definition, _)| definition.kind == Kind::Histogram);
        distributions(&mut all, of_histograms.map(|(_, value)| value), &labels, times);
    }
    collect(&mut all, process::definitions(), process::values(), &[], times);
    let metrics = all.into_values().collect();
    let scope_metrics = vec![ScopeMetrics { scope: scope(), metrics }];
    let resource_metrics = vec![ResourceMetrics { resource: resource(instance), scope_metrics }];
    ExportMetricsServiceRequest { resource_metrics }
}

fn collect<'a>(
    all: &mut BTreeMap<String, Metric>,
    definitions: impl IntoIterator<Item = &'a Definition>,
    values: impl IntoIterator<Item = u64>,
    labels: &[KeyValue],
    times: Times,
) {
    for (definition, value) in definitions.into_iter().zip(values) {
        if definition.kind == Kind::Histogram {
            continue;
        }
        let own = definition.labels.iter().map(|(label, value)| text(label, value));
        let point = NumberDataPoint {
            attributes: labels.iter().cloned().chain(own).collect(),
            start_time_unix_nano: times.started,
            time_unix_nano: times.now,
            as_int: Some(i64::try_from(value).unwrap_or(i64::MAX)),
        };
        let metric = all.entry(definition.name.to_string()).or_insert_with(|| Metric {
            name: definition.name.to_string(),
            description: definition.help.to_string(),
            data: Some(match definition.kind {
                Kind::Counter => Data::Sum(Sum {
                    aggregation_temporality: CUMULATIVE_TEMPORALITY,
                    is_monotonic: true,
                    data_points: Vec::new(),
                }),
                Kind::Gauge | Kind::Histogram => Data::Gauge(Gauge::default()),
            }),
        });
        match &mut metric.data {
            Some(Data::Sum(sum)) => sum.data_points.push(point),
            Some(Data::Gauge(gauge)) => gauge.data_points.push(point),
            Some(Data::Histogram(_)) | None => {}
        }
    }
}

/// Adds the histograms, whose parts are `values` in the order of their definition.
fn distributions(
    all: &mut BTreeMap<String, Metric>,
    mut values: impl Iterator<Item = u64>,
    labels: &[KeyValue],
    times: Times,
) {
    for histogram in HISTOGRAMS {
        let parts: Vec<u64> = values.by_ref().take(histogram.series.len()).collect();
        let [cumulative @ .., sum, count] = parts.as_slice() else { continue };
        // Prometheus' buckets are cumulative; OpenTelemetry's are not.
        let below = std::iter::once(0).chain(cumulative.iter().copied());
        let bucket_counts =
            cumulative.iter().zip(below).map(|(to, from)| to.saturating_sub(from)).collect();
        let point = HistogramDataPoint {
            start_time_unix_nano: times.started,
            time_unix_nano: times.now,
            count: *count,
            sum: Some(*sum as f64),
            bucket_counts,
            explicit_bounds: histogram.bounds.iter().map(|bound| *bound as f64).collect(),
            attributes: labels
                .iter()
                .cloned()
                .chain(histogram.labels.iter().map(|(label, value)| text(label, value)))
                .collect(),
        };
        let metric = all.entry(histogram.name.to_owned()).or_insert_with(|| Metric {
            name: histogram.name.to_owned(),
            description: histogram.help.to_owned(),
            data: Some(Data::Histogram(Histogram {
                aggregation_temporality: CUMULATIVE_TEMPORALITY,
                data_points: Vec::new(),
            })),
        });
        if let Some(Data::Histogram(histogram)) = &mut metric.data {
            histogram.data_points.push(point);
        }
    }
}
