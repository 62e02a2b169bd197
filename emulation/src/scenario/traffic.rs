//! The traffic of a scenario: flows of several kinds over the same path.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::checks::{Checked, require, within};
use super::settings::milliseconds;
use super::{ScenarioError, built_in, read};

/// The most flows, and the most objects or visits of one of them.
const MOST_FLOWS: u64 = 1000;
/// Seconds of the longest trial.
const LONGEST_SECONDS: u64 = 1200;

/// Flows over one path. The first one is measured; the others are beside it, or come in turn.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// The end of all flows, seconds from the beginning; required if a flow has no size.
    pub seconds: Option<u64>,
    /// The first seconds do not count in goodput and shares: slow start is no sign of fairness.
    #[serde(default)]
    pub settle_seconds: u64,
    /// The flows.
    #[serde(rename = "flow")]
    pub flows: Vec<FlowSettings>,
}

/// A flow, or several of the same kind. Without `objects`, `page` or `video` it is one transfer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowSettings {
    /// Name of the flow in results.
    pub name: Option<String>,
    /// The sender's name; without it the trial's.
    pub sender: Option<String>,
    /// The arm's name; without it the trial's.
    pub arm: Option<String>,
    /// Beginning of the flow, milliseconds.
    #[serde(default)]
    pub start_ms: f64,
    /// Number of flows like this one, each of a client of its own.
    #[serde(default = "one")]
    pub count: u64,
    /// Interval between the beginnings of the flows, milliseconds.
    #[serde(default)]
    pub start_every_ms: f64,
    /// Bytes of the transfer; without it as much as can be had until the end.
    pub size: Option<u64>,
    /// The side that sends.
    #[serde(default)]
    pub direction: FlowDirection,
    /// Short objects instead of one transfer.
    pub objects: Option<ObjectSettings>,
    /// Visits of a web page instead of one transfer.
    pub page: Option<PageSettings>,
    /// An adaptive video session instead of one transfer.
    pub video: Option<VideoSettings>,
    /// True if the far segment is one of its own, like the shared one.
    #[serde(default)]
    pub own_far: bool,
    /// True if the last mile is one of its own, like the shared one.
    #[serde(default)]
    pub own_last_mile: bool,
}

fn one() -> u64 {
    1
}

/// The side that sends the bulk of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowDirection {
    /// Server to client.
    #[default]
    Down,
    /// Client to server.
    Up,
}

/// Short objects.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectSettings {
    /// Sizes of the objects, bytes.
    pub sizes: Vec<u64>,
    /// Objects of each size.
    pub count: u64,
    /// True if all of them are asked for at once; otherwise one after another.
    #[serde(default)]
    pub together: bool,
    /// True if each has a connection of its own; otherwise all share one.
    #[serde(default)]
    pub own_connections: bool,
}

/// Visits of a web page, one after another, each with a connection of its own.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSettings {
    /// Number of visits.
    #[serde(default = "one")]
    pub visits: u64,
    /// The page.
    #[serde(default)]
    pub model: PageModel,
}

/// A web page of the median weight and number of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageModel {
    /// The page that phones get.
    #[default]
    Mobile,
    /// The page that larger screens get.
    Desktop,
}

/// An adaptive video session.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VideoSettings {
    /// Length of the video, seconds.
    pub seconds: u64,
    /// Length of a segment, seconds.
    #[serde(default = "four")]
    pub segment_seconds: u64,
    /// Bit rates, ascending, kbit/s; by default Apple's authoring specification's.
    #[serde(default = "apple_ladder")]
    pub ladder_kbps: Vec<u64>,
    /// The player's buffer, seconds.
    #[serde(default = "forty")]
    pub buffer_seconds: u64,
    /// The buffer below which the lowest bit rate is chosen (Huang14: reservoir), seconds.
    #[serde(default = "ten")]
    pub reservoir_seconds: u64,
}

fn four() -> u64 {
    4
}

fn ten() -> u64 {
    10
}

fn forty() -> u64 {
    40
}

/// The H.264 ladder of Apple's HLS authoring specification, average bit rates.
fn apple_ladder() -> Vec<u64> {
    vec![145, 365, 730, 1100, 2000, 3000, 4500, 6000, 7800]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "description")]
    _description: String,
    traffic: Traffic,
}

impl Traffic {
    /// The names of the traffic that comes with the laboratory.
    pub fn names() -> impl Iterator<Item = &'static str> {
        built_in::TRAFFIC_SCENARIOS.iter().map(|(name, _)| *name)
    }

    /// Traffic by its name, or from a TOML file that has nothing else.
    ///
    /// # Errors
    /// See [`ScenarioError`].
    pub fn load(name: &str) -> Result<Self, ScenarioError> {
        let malformed = |reason: String| ScenarioError::Malformed { name: name.to_owned(), reason };
        let parse = |text: &str| -> Result<Self, ScenarioError> {
            let file: File = toml::from_str(text).map_err(|error| malformed(error.to_string()))?;
            file.traffic.check().map_err(malformed)?;
            Ok(file.traffic)
        };
        if let Some((_, text)) =
            built_in::TRAFFIC_SCENARIOS.iter().find(|(known, _)| *known == name)
        {
            return parse(text);
        }
        parse(&read(Path::new(name), Self::names())?)
    }

    pub(super) fn check(&self) -> Checked {
        require(!self.flows.is_empty(), "traffic has no flow")?;
        within("traffic.seconds", self.seconds, 1..=LONGEST_SECONDS)?;
        let is_left = self.seconds.is_none_or(|seconds| seconds > self.settle_seconds);
        require(is_left, "traffic.settle_seconds leaves nothing of traffic.seconds")?;
        for (flow, number) in self.flows.iter().zip(1..) {
            let named = |mistake| format!("flow {number} of traffic: {mistake}");
            flow.check(self.seconds).map_err(named)?;
        }
        let flows: u64 = self.flows.iter().map(FlowSettings::connections).sum();
        let mistake = format!("traffic has {flows} connections, more than {MOST_FLOWS}");
        require(flows <= MOST_FLOWS, mistake)
    }
}

impl FlowSettings {
    /// The delay between the beginnings of two flows of this kind.
    pub fn start(&self, number: u64) -> Duration {
        milliseconds(self.start_ms + self.start_every_ms * number as f64)
    }

    fn connections(&self) -> u64 {
        let each = match (&self.objects, &self.page) {
            (Some(objects), _) if objects.own_connections => {
                objects.count.saturating_mul(objects.sizes.len() as u64)
            }
            (_, Some(page)) => page.visits,
            _ => 1,
        };
        each.saturating_mul(self.count)
    }

    fn check(&self, seconds: Option<u64>) -> Checked {
        let Self { size, objects, page, video, .. } = self;
        let kinds = [size.is_some(), objects.is_some(), page.is_some(), video.is_some()];
        let kinds = kinds.into_iter().filter(|kind| *kind).count();
        require(kinds > 0 || seconds.is_some(), "it has no size, and traffic.seconds no end")?;
        require(kinds <= 1, "it has more than one of size, objects, page and video")?;
        let can_go_up = page.is_none() && video.is_none();
        let has_its_way = self.direction == FlowDirection::Down || can_go_up;
        require(has_its_way, "pages and videos are downloads")?;
        within("count", self.count, 1..=MOST_FLOWS)?;
        within("objects.count", objects.as_ref().map(|it| it.count), 1..=MOST_FLOWS)?;
        within("page.visits", page.as_ref().map(|page| page.visits), 1..=MOST_FLOWS)?;
        require(*size != Some(0), "size is 0")?;
        for (field, ms) in [("start_ms", self.start_ms), ("start_every_ms", self.start_every_ms)] {
            let latest = seconds.unwrap_or(LONGEST_SECONDS) as f64 * 1e3;
            let mistake = format!("{field} is {ms}, not in 0 to {latest}");
            require((0.0..latest).contains(&ms), mistake)?;
        }
        let last = self.start(self.count - 1);
        let begins = seconds.is_none_or(|seconds| last < Duration::from_secs(seconds));
        require(begins, "the last one begins after traffic.seconds")?;
        let sizes = objects.as_ref().map(|objects| &objects.sizes);
        let has_sizes = sizes.is_none_or(|sizes| !sizes.is_empty() && !sizes.contains(&0));
        require(has_sizes, "objects.sizes are none, or one of them is 0")?;
        video.as_ref().map_or(Ok(()), VideoSettings::check)
    }
}

impl VideoSettings {
    fn check(&self) -> Checked {
        let Self { seconds, segment_seconds, ladder_kbps, buffer_seconds, .. } = self;
        let has_segments =
            *segment_seconds > 0 && (*segment_seconds..=LONGEST_SECONDS).contains(seconds);
        let mistake =
            format!("video.seconds is {seconds}, below a segment or above {LONGEST_SECONDS}");
        require(has_segments, mistake)?;
        let ascends = ladder_kbps.first().is_some_and(|first| *first > 0)
            && ladder_kbps.is_sorted_by(|one, other| one < other);
        require(ascends, "video.ladder_kbps is not ascending from above 0")?;
        // The bit rate rises between the reservoir and a last segment below the full buffer.
        let mistake = format!(
            "video.buffer_seconds is {buffer_seconds}, less than the reservoir and two segments"
        );
        require(*buffer_seconds >= self.reservoir_seconds + 2 * segment_seconds, mistake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Traffic {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn all_traffic_that_comes_along_can_be_loaded() {
        for name in Traffic::names() {
            assert!(!Traffic::load(name).unwrap().flows.is_empty(), "{name}");
        }
        let unknown = Traffic::load("pages").unwrap_err().to_string();
        assert!(unknown.contains("page"), "{unknown}");
    }

    #[test]
    fn flows_of_a_kind_begin_one_after_another() {
        let traffic =
            parse("seconds = 60\n[[flow]]\ncount = 3\nstart_ms = 500\nstart_every_ms = 2000\n");
        assert_eq!(traffic.check(), Ok(()));
        assert_eq!(
            [0, 1, 2].map(|number| traffic.flows[0].start(number).as_millis()),
            [500, 2500, 4500]
        );
    }

    #[test]
    fn mistakes_are_named() {
        let said = |text: &str| parse(text).check().unwrap_err();
        assert!(said("[[flow]]\n").contains("no size"));
        assert!(said("seconds = 5\nsettle_seconds = 5\n[[flow]]\n").contains("settle_seconds"));
        assert!(said("seconds = 5\n[[flow]]\nstart_ms = 5000\n").contains("start_ms is 5000"));
        assert!(said("[[flow]]\nsize = 1\npage = {}\n").contains("more than one"));
        assert!(
            said("[[flow]]\nsize = 1\n[[flow]]\nsize = 0\n")
                .starts_with("flow 2 of traffic: size is 0")
        );
        assert!(said("[[flow]]\ndirection = \"up\"\npage = {}\n").contains("downloads"));
        assert!(said("[[flow]]\nobjects = { sizes = [], count = 1 }\n").contains("objects.sizes"));
        assert!(
            said("[[flow]]\ncount = 100\npage = { visits = 100 }\n").contains("10000 connections")
        );
        assert!(
            said("[[flow]]\nvideo = { seconds = 60, ladder_kbps = [3, 2] }\n")
                .contains("ladder_kbps")
        );
        assert!(
            said("[[flow]]\nvideo = { seconds = 60, buffer_seconds = 17 }\n")
                .contains("buffer_seconds is 17")
        );
    }
}
