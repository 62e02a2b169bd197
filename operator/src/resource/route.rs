//! Settings of routes as the specs of resources have them, by the table of `packrat_api::knobs`.

use std::borrow::Cow;

use packrat_api::knobs::{self, ClusterKnob, ClusterValues, Limit};
use packrat_api::route::RouteConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::edge_gateway::EdgeGatewaySpec;
use super::limits::Limits;
use crate::overrides::Overrides;

/// The settings that a spec has, and a sentence about each that is not understood.
pub(super) fn settings(spec: &Value) -> (Overrides, Vec<String>) {
    let (mut settings, mut problems) = (Overrides::default(), Vec::new());
    for (_, knob) in knobs::in_cluster() {
        let path = knob.edge_gateway;
        let found = path.split('.').try_fold(spec, |inner, name| inner.get(name));
        let Some(found) = found.filter(|found| !found.is_null()) else { continue };
        let read = match text_of(knob, found) {
            Some(text) => settings.read(knob, &text),
            None => Err(format!("{found} is not understood; write {}", knob.values)),
        };
        problems.extend(read.err().map(|problem| format!("{path}: {problem}")));
    }
    (settings, problems)
}

/// A value of an EdgeGateway as an annotation has it.
fn text_of(knob: &ClusterKnob, value: &Value) -> Option<Cow<'static, str>> {
    match knob.values {
        ClusterValues::Bytes => value.as_str().map(|text| text.to_owned().into()),
        ClusterValues::Numbers { .. } => value.as_u64().map(|number| number.to_string().into()),
        ClusterValues::Switch => value.as_bool().map(|on| if on { "on" } else { "off" }.into()),
        ClusterValues::Words(words) => {
            let found = words.all.iter().find(|(_, in_edge_gateway)| value == in_edge_gateway);
            found.map(|(word, _)| Cow::Borrowed(*word))
        }
    }
}

/// Replaces values of a spec by others. `edits`: paths with points, and values there.
///
/// # Errors
/// A sentence about a value that the spec cannot have.
pub(super) fn edit<T: Serialize + DeserializeOwned>(
    spec: &mut T,
    edits: impl IntoIterator<Item = (&'static str, Value)>,
) -> Result<(), String> {
    let error = |error| format!("a setting cannot be lowered: {error}");
    let mut all = serde_json::to_value(&*spec).map_err(error)?;
    for (path, value) in edits {
        *path.split('.').fold(&mut all, |inner, name| &mut inner[name]) = value;
    }
    *spec = serde_json::from_value(all).map_err(error)?;
    Ok(())
}

impl EdgeGatewaySpec {
    /// The gateway's settings. One that the schema would not let in is left out.
    pub(crate) fn settings(&self) -> Overrides {
        settings(&serde_json::to_value(self).unwrap_or_default()).0
    }

    /// Puts the gateway's settings into the configuration of a route. One that the schema would
    /// not let in is left at its default.
    pub fn apply(&self, route: &mut RouteConfig) {
        self.settings().apply(route);
    }
}

impl Limits {
    /// The most that Services may ask for, where these limits say so.
    pub(super) fn settings(&self) -> Overrides {
        let limits = serde_json::to_value(self).unwrap_or_default();
        let mut settings = Overrides::default();
        for (_, knob) in knobs::in_cluster() {
            let Limit::Field(field) = knob.limit else { continue };
            match (&limits[field], knob.values.most()) {
                (Value::Bool(true), Some(most)) => settings.set(knob, most),
                (value, None) => {
                    // The schema does not admit other texts; there is no limit then.
                    let _ = text_of(knob, value).map(|text| settings.read(knob, &text));
                }
                _ => {}
            }
        }
        settings
    }
}
