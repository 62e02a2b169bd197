//! Settings of Services, lowered to their EdgeGateway's limits.

use packrat_api::knobs::{self, ClusterKnob, ClusterValues, Limit, Setting};
use serde_json::Value;

use super::edge_gateway::EdgeGatewaySpec;
use crate::names::CONFIG_PREFIX;
use crate::overrides::Overrides;

/// A setting that was lowered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lowered {
    /// The setting.
    pub(super) knob: &'static ClusterKnob,
    asked: Setting,
    instead: Setting,
}

impl Lowered {
    /// A part of a sentence, with the name that the setting has in a spec.
    pub(super) fn told(&self) -> String {
        format!("{} {} ({} is used)", self.knob.edge_gateway, self.asked, self.instead)
    }

    /// The lower value as an EdgeGateway writes it.
    pub(super) fn value(&self) -> Value {
        match (self.knob.values, self.instead) {
            (ClusterValues::Bytes, Setting::Number(bytes)) => size_text(bytes).into(),
            (_, Setting::Number(number)) => number.into(),
            (_, Setting::Switch(on)) => on.into(),
            (ClusterValues::Words(words), Setting::Word(word)) => {
                let found = words.all.iter().find(|(name, _)| *name == word);
                found.map_or(word, |(_, in_edge_gateway)| in_edge_gateway).into()
            }
            (_, Setting::Word(word)) => word.into(),
        }
    }

    /// The lower limit: field of `spec.limits`, and value.
    pub(super) fn limit(&self) -> Option<(&'static str, Value)> {
        let Limit::Field(field) = self.knob.limit else { return None };
        Some((field, if self.knob.values.most().is_some() { false.into() } else { self.value() }))
    }
}

/// A size with the largest unit that leaves it whole: the schema takes no more than 15 digits.
fn size_text(bytes: u64) -> String {
    let units = [(1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    let unit = units.into_iter().find(|(unit, _)| bytes.is_multiple_of(*unit));
    unit.map_or_else(|| bytes.to_string(), |(unit, name)| format!("{}{name}", bytes / unit))
}

impl Overrides {
    /// The limits, as far as an EdgeGateway lets its Services have them, and a sentence about each
    /// that was lowered. `gateway`: its name, for the sentences.
    pub fn within(self, spec: &EdgeGatewaySpec, gateway: &str) -> (Self, Vec<String>) {
        let (kept, lowered) = self.lowered(spec);
        let sentence = |Lowered { knob, asked, instead }: Lowered| {
            format!(
                "{CONFIG_PREFIX}{}: {asked} is not what EdgeGateway {gateway} allows; {instead} is used",
                knob.annotation
            )
        };
        (kept, lowered.into_iter().map(sentence).collect())
    }

    /// The limits, as far as an EdgeGateway lets its Services have them, and the lowered ones.
    pub(super) fn lowered(mut self, spec: &EdgeGatewaySpec) -> (Self, Vec<Lowered>) {
        let mut lowered = Vec::new();
        if self.settings().next().is_none() {
            return (self, lowered);
        }
        let most = spec.limits.settings().or(spec.settings());
        for (_, knob) in knobs::in_cluster() {
            let name = knob.annotation;
            let (Some(asked), Some(mut instead)) = (self.get(name), most.get(name)) else {
                continue;
            };
            if name == "cache-bytes-per-session"
                && let Some(total) = most.get("cache-bytes-total")
            {
                // A session's cache above the total would raise that.
                instead = Setting::Number(instead.number().min(total.number()));
            }
            let amount = |setting| knob.values.amount(setting);
            if knob.limit != Limit::Free && amount(asked) > amount(instead) {
                lowered.push(Lowered { knob, asked, instead });
                self.set(knob, instead);
            }
        }
        (self, lowered)
    }
}
