//! What machines are told.

use packrat_dataplane::Dataplane;
use packrat_dataplane::metrics::{Kind, Summary, definitions, process};
use serde_json::{Map, Value, json};

/// All routes with their configuration and metrics.
pub(crate) fn status(dataplane: Option<&Dataplane>) -> Value {
    let routes: Vec<Value> = dataplane
        .map(Dataplane::routes)
        .unwrap_or_default()
        .iter()
        .map(|route| {
            let metrics: Map<String, Value> = definitions()
                .iter()
                .zip(route.metrics().values())
                .filter(|(definition, _)| definition.kind != Kind::Histogram)
                .map(|(definition, value)| (definition.series(), value.into()))
                .collect();
            json!({
                "route": route.name(),
                "public_key": route.public_key(),
                "listeners": route.listeners(),
                "configuration": route.summary(),
                "metrics": metrics,
                "distributions": distributions(&route.metrics().summaries()),
            })
        })
        .collect();
    let process: Map<String, Value> = process::definitions()
        .iter()
        .zip(process::values())
        .map(|(definition, value)| (definition.series(), value.into()))
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "draining": dataplane.is_some_and(Dataplane::is_draining),
        "process": process,
        "routes": routes,
    })
}

/// Number, mean and quantiles, in the unit of the histogram's name.
fn distributions(summaries: &[Summary]) -> Map<String, Value> {
    let value = |summary: &Summary| {
        json!({
            "count": summary.count, "mean": summary.mean(), "p50": summary.quantile(0.5), "p90": summary.quantile(0.9),
            "p99": summary.quantile(0.99),
        })
    };
    summaries.iter().map(|summary| (summary.name.to_owned(), value(summary))).collect()
}

/// Live sessions of all routes, at most `limit`.
pub(crate) fn sessions(dataplane: Option<&Dataplane>, limit: usize) -> Value {
    let mut sessions = Vec::new();
    let mut total = 0;
    for (dataplane, route) in dataplane
        .iter()
        .flat_map(|dataplane| dataplane.routes().into_iter().map(move |route| (dataplane, route)))
    {
        total += route.metrics().get(packrat_dataplane::metrics::Metric::Sessions);
        for session in dataplane.sessions(&route, limit) {
            let bytes = session.to_client_bytes;
            let Ok(Value::Object(mut fields)) = serde_json::to_value(&session) else { continue };
            fields.insert("route".to_owned(), route.name().into());
            sessions.push((bytes, fields));
        }
    }
    sessions.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    sessions.truncate(limit);
    let sessions: Vec<Value> = sessions.into_iter().map(|(_, fields)| Value::Object(fields)).collect();
    json!({ "total": total, "sessions": sessions })
}

/// The last log lines after number `after`.
pub(crate) fn events(dataplane: Option<&Dataplane>, after: u64, limit: usize) -> Value {
    let lines = dataplane.map(|dataplane| dataplane.logger().recent(after, limit)).unwrap_or_default();
    let newest = lines
        .last()
        .map(|line| line.number)
        .or_else(|| dataplane.map(|dataplane| dataplane.logger().newest()))
        .unwrap_or_default();
    json!({ "newest": newest, "events": lines })
}
