//! The answer of the administration endpoint `/packrat`.

use packrat_dataplane::Dataplane;
use packrat_dataplane::metrics::definitions;
use serde_json::{Map, Value, json};

/// All routes with their configuration and metrics, as JSON.
pub(crate) fn status(dataplane: Option<&Dataplane>) -> String {
    let routes: Vec<Value> = dataplane
        .map(Dataplane::routes)
        .unwrap_or_default()
        .iter()
        .map(|route| {
            let metrics: Map<String, Value> = definitions()
                .iter()
                .zip(route.metrics().values())
                .map(|(definition, value)| (definition.name.to_string(), value.into()))
                .collect();
            json!({
                "route": route.name(),
                "public_key": route.public_key(),
                "configuration": route.summary(),
                "metrics": metrics,
            })
        })
        .collect();
    format!("{:#}\n", json!({ "version": env!("CARGO_PKG_VERSION"), "routes": routes }))
}
