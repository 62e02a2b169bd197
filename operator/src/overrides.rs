//! Settings of a route that a Service or a Namespace overrides by annotations.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use packrat_api::knobs::{self, ClusterKnob, ClusterValues, Setting, Words};
use packrat_api::route::{RouteConfig, StreamRoute};
use packrat_api::token::TokenPolicy;

use crate::size::parse_size;

/// A live stream with many receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multicast {
    /// Address at which the stream arrives at the gateway: a multicast group, or an address of the
    /// gateway's.
    pub upstream: SocketAddr,
    /// The group that the stream is sent to; without a group each subscriber gets a copy.
    pub group: Option<SocketAddr>,
}

impl Multicast {
    /// The stream that an annotation describes.
    pub(crate) fn read(value: &str) -> Option<Self> {
        let mut parts = value.split(',').map(|part| part.trim().parse::<SocketAddr>());
        let upstream = parts.next()?.ok()?;
        let group = parts.next().transpose().ok()?;
        let is_group = group.is_none_or(|group| group.ip().is_multicast() && group.port() != 0);
        let whole = parts.next().is_none() && upstream.port() >= 1024 && group != Some(upstream);
        (is_group && whole).then_some(Self { upstream, group })
    }

    /// True if the stream needs IP multicast, and with it the host's network.
    pub fn has_group(&self) -> bool {
        self.upstream.ip().is_multicast() || self.group.is_some()
    }
}

/// Settings of a route that override its EdgeGateway's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overrides {
    /// Settings by the names of their annotations, as in `packrat_api::knobs`.
    settings: BTreeMap<&'static str, Setting>,
    /// The port is a live stream; only Services have it.
    pub multicast: Option<Multicast>,
}

/// The setting that an annotation overrides. `name`: after `packrat.dev/config.`.
pub(crate) fn knob(name: &str) -> Option<&'static ClusterKnob> {
    knobs::in_cluster().map(|(_, knob)| knob).find(|knob| knob.annotation == name)
}

impl Overrides {
    /// The value of a setting. `name`: of its annotation, after `packrat.dev/config.`.
    pub fn get(&self, name: &str) -> Option<Setting> {
        self.settings.get(name).copied()
    }

    /// All settings by the names of their annotations.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, Setting)> {
        self.settings.iter().map(|(name, setting)| (*name, *setting))
    }

    /// Sets a value of a setting.
    pub(crate) fn set(&mut self, knob: &ClusterKnob, setting: Setting) {
        self.settings.insert(knob.annotation, setting);
    }

    /// Reads the value of an annotation.
    ///
    /// # Errors
    /// The text to write instead.
    pub(crate) fn read(&mut self, knob: &ClusterKnob, value: &str) -> Result<(), String> {
        let setting = match knob.values {
            ClusterValues::Bytes => size(value),
            ClusterValues::Numbers { least, most } => number(least..=most, value),
            ClusterValues::Switch => switch(value),
            ClusterValues::Words(words) => word(words, value),
        }?;
        self.set(knob, setting);
        Ok(())
    }

    /// True if clients may ask for assistance, where it is set.
    pub fn assist(&self) -> Option<bool> {
        self.get("assist").map(Setting::is_on)
    }

    /// The policy about tokens, where it is set.
    pub fn tokens(&self) -> Option<TokenPolicy> {
        self.get("tokens").map(Setting::word)
    }

    /// The settings with another live stream, or without one.
    #[must_use]
    pub fn with_multicast(self, multicast: Option<Multicast>) -> Self {
        Self { multicast, ..self }
    }

    /// Settings of this route, completed by the others.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        for (name, setting) in other.settings {
            self.settings.entry(name).or_insert(setting);
        }
        self
    }

    /// Writes the settings into the configuration of a route.
    pub fn apply(&self, route: &mut RouteConfig) {
        for (_, knob) in knobs::in_cluster() {
            if let Some(setting) = self.get(knob.annotation) {
                (knob.apply)(route, setting);
            }
        }
        // The two limits have to be consistent, whichever of them was overridden.
        route.cache_bytes_total = route.cache_bytes_total.max(route.cache_bytes_per_session);
        let stream =
            |Multicast { upstream, group }| StreamRoute { group, ..StreamRoute::new(upstream) };
        route.stream = self.multicast.map(stream);
    }
}

fn switch(value: &str) -> Result<Setting, String> {
    match value {
        "on" => Ok(Setting::Switch(true)),
        "off" => Ok(Setting::Switch(false)),
        _ => Err("write on or off".to_owned()),
    }
}

fn word(words: Words, value: &str) -> Result<Setting, String> {
    let found = words.all.iter().find(|(word, _)| *word == value);
    found.map(|(word, _)| Setting::Word(word)).ok_or_else(|| words.advice.to_owned())
}

fn size(value: &str) -> Result<Setting, String> {
    match parse_size(value) {
        Ok(0) | Err(_) => {
            Err("write whole bytes or Ki, Mi or Gi, at least 1, for example 512Ki or 1Mi"
                .to_owned())
        }
        Ok(size) => Ok(Setting::Number(size)),
    }
}

fn number(range: RangeInclusive<u32>, value: &str) -> Result<Setting, String> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    u32::from_str(value)
        .ok()
        .filter(|number| digits && range.contains(number))
        .map(|number| Setting::Number(number.into()))
        .ok_or_else(|| format!("write a whole number from {} to {}", range.start(), range.end()))
}
