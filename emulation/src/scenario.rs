//! Scenarios: the networks on which trials are run, as TOML files.

mod built_in;
mod checks;
mod families;
mod links;
mod settings;
mod traffic;

use std::collections::BTreeMap;
use std::iter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::path::{CrossTraffic, CrossTrafficConfig, RecordingError};
use checks::{Checked, require, within};
use links::Recording;
use settings::milliseconds;

pub use families::Family;
pub use links::Links;
pub use settings::{
    AirtimeSettings, BatchSettings, BatchingSettings, DelayStep, DirectionSettings, JitterSettings,
    OutageSettings, QueueSettings, QueueSettingsKind, RateChanges,
};
pub use traffic::{
    FlowDirection, FlowSettings, ObjectSettings, PageModel, PageSettings, Traffic, VideoSettings,
};

/// Failure to read a scenario.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The text is neither a name nor a file.
    #[error("there is no scenario {name:?}; choose one of {known}, or name a TOML file")]
    Unknown {
        /// The name asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// The file could not be read.
    #[error("cannot read the scenario {}: {source}; check the name and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file is not a scenario.
    #[error("{name} is not a scenario: {reason}; compare it with those in emulation/scenarios")]
    Malformed {
        /// The scenario.
        name: String,
        /// The reason, for people.
        reason: String,
    },
    /// A recording that the scenario names cannot be used.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The path is reserved.
    #[error(
        "{name} is reserved: no rule may be chosen on it; `packrat-lab field --verdict` measures it"
    )]
    Reserved {
        /// The scenario.
        name: String,
    },
    /// The links change with time, where only constant ones can be.
    #[error(
        "{name} has links that change with time, or a queue that holds datagrams; downloads in virtual time have them (run, trace, field), real time and live streams do not"
    )]
    NotConstant {
        /// The scenario.
        name: String,
    },
}

/// The queue of a segment whose transmitter cannot keep up; its limit is one bandwidth-delay
/// product of the whole path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueKind {
    /// Datagrams that do not fit are dropped.
    #[default]
    DropTail,
    /// Adaptive random early detection, as on the links of Packrat26, section 7.1.
    Red,
}

crate::choices!(QueueKind, "queue", [DropTail "drop-tail", Red "red"]);

/// A segment of the path. Both directions are the same except for the loss and the settings in
/// `down` and `up`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Propagation delay one way, milliseconds.
    pub delay_ms: u64,
    /// Rate, Mbit/s of UDP payload.
    pub rate_mbps: f64,
    /// Mean share of datagrams lost, 0 to 1.
    #[serde(default)]
    pub loss: f64,
    /// Mean length of a burst of loss, datagrams; 1: they are lost independently.
    #[serde(default = "one")]
    pub burst: f64,
    /// Mean length of a burst in time, milliseconds, instead of datagrams: everything sent in it is
    /// lost.
    pub burst_ms: Option<f64>,
    /// Loss outside bursts, 0 to 1.
    #[serde(default)]
    pub good_loss: f64,
    /// Loss within a burst, 0 to 1.
    #[serde(default = "one")]
    pub bad_loss: f64,
    /// True if datagrams towards the server are lost as well.
    #[serde(default = "yes")]
    pub loss_upwards: bool,
    /// Traffic of others towards the client, in the same queue.
    pub cross_traffic: Option<CrossTrafficConfig>,
    /// Differences of the direction to the client.
    #[serde(default)]
    pub down: DirectionSettings,
    /// Differences of the direction to the server.
    #[serde(default)]
    pub up: DirectionSettings,
    /// Propagation delays from later times on, ascending.
    #[serde(default)]
    pub delay_steps: Vec<DelayStep>,
    /// A recording of probes in the folder of the traces, whose delay is the sum of both
    /// directions. Without that folder `delay_ms` and `jitter` are used.
    pub delay_recording: Option<String>,
    /// Delay on top.
    pub jitter: Option<JitterSettings>,
    /// Half-duplex air, which both directions share in turns.
    pub airtime: Option<AirtimeSettings>,
    /// True if datagrams overtake others when the delay falls; otherwise they wait.
    #[serde(default)]
    pub reorders: bool,
    /// Times in which everything is lost.
    pub outages: Option<OutageSettings>,
    /// A recording of probes whose losses stand for `loss` and `outages`, as far as the folder of
    /// the traces is given.
    pub loss_recording: Option<String>,
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

/// The values that a command varies by default: trials are run for each combination.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vary {
    /// Burst lengths of the last mile.
    pub burst: Vec<f64>,
    /// Queues.
    pub queue: Vec<QueueKind>,
}

/// A network, and the download over it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of the scenario; from a file, the file's name without its extension.
    #[serde(skip)]
    pub name: String,
    /// The kind of network that it stands for.
    pub description: String,
    /// Bytes of one download.
    pub size: u64,
    /// The queues of all links.
    #[serde(default)]
    pub queue: QueueKind,
    /// True if links carry the ECN field; otherwise they clear it.
    #[serde(default)]
    pub ecn: bool,
    /// Between server and gateway.
    pub far: Segment,
    /// Between gateway and client.
    pub last_mile: Segment,
    /// Several flows instead of one download.
    pub traffic: Option<Traffic>,
    /// Hosts that read in batches.
    #[serde(default)]
    pub batching: BatchingSettings,
    /// Variants of this scenario.
    #[serde(default)]
    pub vary: Vary,
    /// True if no rule may be chosen on it.
    #[serde(default)]
    pub reserved: bool,
    /// The recordings that were read, by name.
    #[serde(skip)]
    recordings: BTreeMap<String, Recording>,
}

/// The text of a file. A name without an extension is no file: it should be one of those `known`.
fn read(path: &Path, known: impl Iterator<Item = &'static str>) -> Result<String, ScenarioError> {
    if path.extension().is_none() {
        let (name, known) = (path.display().to_string(), known.collect::<Vec<_>>().join(", "));
        return Err(ScenarioError::Unknown { name, known });
    }
    std::fs::read_to_string(path)
        .map_err(|source| ScenarioError::Read { path: path.to_owned(), source })
}

impl Scenario {
    /// The names of the scenarios that come with the laboratory.
    pub fn names() -> impl Iterator<Item = &'static str> {
        built_in::all().map(|(name, _)| name)
    }

    /// The names of the paths of the field matrix: the last mile is the bottleneck, and has no loss
    /// by default.
    pub fn field_paths() -> impl Iterator<Item = &'static str> {
        built_in::FIELD_PATHS.iter().map(|(name, _)| *name)
    }

    /// The names of the profiles of last miles that people have; most of them name recordings.
    pub fn profiles() -> impl Iterator<Item = &'static str> {
        built_in::PROFILE_SCENARIOS.iter().map(|(name, _)| *name)
    }

    /// A scenario by its name, or from a TOML file.
    ///
    /// # Errors
    /// See [`ScenarioError`].
    pub fn load(name: &str) -> Result<Self, ScenarioError> {
        if let Some((name, text)) = built_in::all().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        if let Some(scenario) = Family::path(name)? {
            return if scenario.reserved {
                Err(ScenarioError::Reserved { name: scenario.name })
            } else {
                Ok(scenario)
            };
        }
        let path = Path::new(name);
        let text = read(path, Self::names())?;
        let name = path.file_stem().map_or(name.into(), |stem| stem.to_string_lossy());
        Self::parse(&name, &text)
    }

    /// A scenario from the text of a TOML file.
    ///
    /// # Errors
    /// [`ScenarioError::Malformed`].
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        toml::from_str(text)
            .map_err(|error| error.to_string())
            .and_then(|scenario: Self| scenario.named(name))
            .map_err(|reason| ScenarioError::Malformed { name: name.to_owned(), reason })
    }

    /// Gives it its name, or says what cannot be in it.
    fn named(self, name: &str) -> Result<Self, String> {
        self.check().map(|()| Self { name: name.to_owned(), ..self })
    }

    fn check(&self) -> Checked {
        for (which, segment) in [("far", &self.far), ("last_mile", &self.last_mile)] {
            segment.check(&self.vary.burst).map_err(|mistake| format!("{which}.{mistake}"))?;
        }
        self.traffic.as_ref().map_or(Ok(()), Traffic::check)?;
        self.batching.check()
    }

    /// Replaces the loss on the last mile.
    #[must_use]
    pub fn with_loss(mut self, loss: f64) -> Self {
        self.last_mile.loss = loss;
        self
    }

    /// Removes all loss on the last mile except its queues'.
    #[must_use]
    pub fn without_loss(self) -> Self {
        let mut scenario = self.with_loss(0.0);
        scenario.last_mile.outages = None;
        scenario.last_mile.loss_recording = None;
        scenario
    }

    /// Replaces the mean length of losses on the last mile.
    #[must_use]
    pub fn with_burst(mut self, burst: f64) -> Self {
        self.last_mile.burst = burst;
        self
    }

    /// Replaces the traffic.
    #[must_use]
    pub fn with_traffic(mut self, traffic: Traffic) -> Self {
        self.traffic = Some(traffic);
        self
    }

    /// Replaces the queues.
    #[must_use]
    pub fn with_queue(mut self, queue: QueueKind) -> Self {
        self.queue = queue;
        self
    }

    /// Round trip of the whole path without any queue, as it is at the beginning.
    pub fn round_trip(&self) -> Duration {
        [&self.far, &self.last_mile]
            .into_iter()
            .flat_map(|segment| {
                [&segment.down, &segment.up].map(|direction| segment.delay(direction))
            })
            .sum()
    }

    /// The share of datagrams towards the client that the media of both segments lose.
    pub fn corruption(&self) -> f64 {
        let arrives =
            |segment: &Segment| 1.0 - segment.loss * segment.down.loss_scale.unwrap_or(1.0);
        1.0 - arrives(&self.far) * arrives(&self.last_mile)
    }

    /// The traffic of others on the far segment and on the last mile, whose randomness follows from
    /// `seed`.
    pub fn cross_traffic(&self, seed: u64) -> [Option<CrossTraffic>; 2] {
        let traffic = |segment: &Segment, which: u64| {
            let seed = seed.wrapping_mul(2).wrapping_add(which) ^ 0x6372_6f73_7300_0000;
            segment.cross_traffic.map(|config| CrossTraffic::new(config, seed))
        };
        [traffic(&self.far, 0), traffic(&self.last_mile, 1)]
    }
}

impl Segment {
    /// Propagation delay of a direction at the beginning.
    fn delay(&self, direction: &DirectionSettings) -> Duration {
        direction.delay_ms.map_or(Duration::from_millis(self.delay_ms), milliseconds)
    }

    /// Rate of a direction without its recording, bits per second.
    fn rate(&self, direction: &DirectionSettings) -> u64 {
        (direction.rate_mbps.unwrap_or(self.rate_mbps) * 1e6) as u64
    }

    /// Checks this segment, with these mean lengths of its losses besides its own.
    fn check(&self, bursts: &[f64]) -> Checked {
        let loss = format!("loss is {}, not in 0 to 1", self.loss);
        require((0.0..1.0).contains(&self.loss), loss)?;
        for burst in iter::once(&self.burst).chain(bursts) {
            let is_possible = *burst >= 1.0 && burst.is_finite();
            require(is_possible, format!("burst is {burst}, below 1"))?;
        }
        let (good, bad) = (self.good_loss, self.bad_loss);
        let are_apart = 0.0 <= good && good < bad && bad <= 1.0;
        require(are_apart, format!("good_loss is {good}, not below bad_loss"))?;
        within("rate_mbps", self.rate_mbps, 0.01..=100_000.0)?;
        let delay = format!("delay_ms is {}, above 10000", self.delay_ms);
        require(self.delay_ms <= 10_000, delay)?;
        self.check_changes()?;
        let Some(cross) = self.cross_traffic else { return Ok(()) };
        within("cross_traffic.rate_mbps", cross.rate_mbps, 0.01..=100_000.0)?;
        let (is_steady, has_pauses) = (cross.off_ms == 0.0, cross.off_ms > 0.0);
        let on = format!("cross_traffic.on_ms is {}, below 1", cross.on_ms);
        require(is_steady || (has_pauses && cross.on_ms >= 1.0), on)
    }

    /// Checks the settings that change with time or direction.
    fn check_changes(&self) -> Checked {
        for (name, direction) in [("down", &self.down), ("up", &self.up)] {
            let DirectionSettings { delay_ms, rate_mbps, loss_scale, queue, rate_changes, .. } =
                direction;
            within(format!("{name}.delay_ms"), *delay_ms, 0.0..=10_000.0)?;
            within(format!("{name}.rate_mbps"), *rate_mbps, 0.01..=100_000.0)?;
            within(format!("{name}.loss_scale"), *loss_scale, 0.0..=100.0)?;
            let queue = queue.as_ref().map_or(Ok(()), QueueSettings::check);
            let changes = rate_changes.as_ref().map_or(Ok(()), RateChanges::check);
            queue.and(changes).map_err(|mistake| format!("{name}.{mistake}"))?;
        }
        within("burst_ms", self.burst_ms, 0.01..=60_000.0)?;
        let is_burst_alone = self.outages.is_none() && self.loss_recording.is_none();
        let mistake = "burst_ms goes neither with outages nor with loss_recording";
        require(self.burst_ms.is_none() || is_burst_alone, mistake)?;
        let recorded = [&self.down, &self.up]
            .iter()
            .any(|way| way.rate_recording.is_some() || way.rate_changes.is_some());
        let mistake =
            "airtime goes with constant rates only, not with rate_recording or rate_changes";
        require(self.airtime.is_none() || !recorded, mistake)?;
        self.airtime.map_or(Ok(()), AirtimeSettings::check)?;
        let steps = &self.delay_steps;
        let are_steps = steps.is_sorted_by(|one, other| one.at_ms < other.at_ms)
            && steps.iter().all(|step| (0.0..=10_000.0).contains(&step.delay_ms));
        require(are_steps, "delay_steps are not ascending, or not in 0 to 10000 ms")?;
        self.jitter.map_or(Ok(()), JitterSettings::check)?;
        self.outages.map_or(Ok(()), OutageSettings::check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_scenarios_that_come_along_can_be_loaded() {
        for name in Scenario::names() {
            let scenario = Scenario::load(name).unwrap();
            assert_eq!(scenario.name, name);
            assert!(scenario.size > 0);
        }
        assert_eq!(Scenario::field_paths().count(), 10);
        assert_eq!(Scenario::profiles().count(), 17);
    }

    #[test]
    fn links_have_their_segments_delay_loss_and_queue() {
        let links = Scenario::load("satellite").unwrap().with_loss(0.2).constant_links(7);
        assert_eq!(links.far_down.delay, Duration::from_millis(50));
        assert_eq!(links.last_mile_up.delay, Duration::from_millis(30));
        assert_eq!(links.far_down.loss.rate(), 0.0);
        assert_eq!(links.last_mile_down.loss.rate(), 0.2);
        // One bandwidth-delay product: 20 Mbit/s for 160 ms.
        assert_eq!(links.far_down.queue.limit(), 400_000);
        let seeds = [links.far_down, links.far_up, links.last_mile_down, links.last_mile_up]
            .map(|l| l.seed);
        assert!(seeds.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn mistakes_are_named() {
        let said = |name: &str| Scenario::load(name).unwrap_err().to_string();
        assert!(said("wify").contains("wifi_burst"));
        assert!(said("nowhere/such.toml").contains("nowhere/such.toml"));
        let wifi = include_str!("../scenarios/wifi.toml");
        let said = |text: String| Scenario::parse("mine", &text).unwrap_err().to_string();
        assert!(said(wifi.replace("loss = 0.04", "loss = 4")).contains("last_mile.loss is 4"));
        assert!(said(wifi.replace("loss = 0.04", "los = 0.04")).contains("los"));
        let bursts = include_str!("../scenarios/wifi_burst.toml");
        assert!(
            said(bursts.replace("good_loss = 0.02", "good_loss = 0.9"))
                .contains("last_mile.good_loss is 0.9")
        );
        let competing = include_str!("../scenarios/competing.toml");
        assert!(said(competing.replace("seconds = 60", "seconds = 5")).contains("settle_seconds"));
        let half_duplex = include_str!("../scenarios/half_duplex.toml");
        assert!(
            said(half_duplex.replace("aggregate = 16", "aggregate = 0"))
                .contains("last_mile.airtime.aggregate is 0")
        );
        assert!(
            said(half_duplex.replace("datagrams = 32", "datagrams = 0"))
                .contains("batching.gateway.datagrams is 0")
        );
    }
}
