//! The answer of the administration endpoint `/packrat`.

use packrat_dataplane::Dataplane;
use packrat_dataplane::metrics::Metric;
use serde_json::{Map, Value, json};

/// All routes with their configuration and metrics, as JSON.
pub(crate) fn status(dataplane: Option<&Dataplane>) -> String {
    let routes: Vec<Value> = dataplane
        .map(Dataplane::routes)
        .unwrap_or_default()
        .iter()
        .map(|route| {
            let metrics: Map<String, Value> = Metric::ALL
                .iter()
                .map(|&metric| (metric.name().to_owned(), route.metrics().get(metric).into()))
                .collect();
            json!({ "route": route.name(), "configuration": route.summary(), "metrics": metrics })
        })
        .collect();
    format!("{:#}\n", json!({ "version": env!("CARGO_PKG_VERSION"), "routes": routes }))
}
