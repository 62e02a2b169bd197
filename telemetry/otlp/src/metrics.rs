//! The metrics of docs/METRICS.md, under the same names.

use std::collections::BTreeMap;
use std::sync::Arc;

use packrat_dataplane::Route;
use packrat_dataplane::metrics::{Definition, Kind, definitions, process};

use crate::attributes::{resource, scope, text};
use crate::messages::{
    CUMULATIVE, Data, ExportMetricsServiceRequest, Gauge, KeyValue, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum,
};

/// When something began, and now; nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
struct Times {
    started: u64,
    now: u64,
}

/// The metrics of all routes and of the process. `started`: when their counters were zero, in nanoseconds since 1970, as `now`.
pub fn metrics(routes: &[Arc<Route>], instance: &str, started: u64, now: u64) -> ExportMetricsServiceRequest {
    let times = Times { started, now };
    let mut all = BTreeMap::new();
    for route in routes {
        let labels = vec![
            text("gateway", &route.gateway_name()),
            text("namespace", &route.namespace()),
            text("route", route.name()),
        ];
        collect(&mut all, definitions(), route.metrics().values(), &labels, times);
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
                    aggregation_temporality: CUMULATIVE,
                    is_monotonic: true,
                    data_points: Vec::new(),
                }),
                Kind::Gauge => Data::Gauge(Gauge::default()),
            }),
        });
        match &mut metric.data {
            Some(Data::Sum(sum)) => sum.data_points.push(point),
            Some(Data::Gauge(gauge)) => gauge.data_points.push(point),
            None => {}
        }
    }
}
