//! The traffic of a scenario: flows of several kinds over the same path.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

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
            file.traffic.mistake().map_or(Ok(file.traffic), |mistake| Err(malformed(mistake)))
        };
        if let Some((_, text)) =
            built_in::TRAFFIC_SCENARIOS.iter().find(|(known, _)| *known == name)
        {
            return parse(text);
        }
        parse(&read(Path::new(name), Self::names())?)
    }

    /// The first mistake.
    pub(super) fn mistake(&self) -> Option<String> {
        if self.flows.is_empty() {
            return Some("traffic has no flow".to_owned());
        }
        if let Some(seconds) = self.seconds {
            if !(1..=LONGEST_SECONDS).contains(&seconds) {
                return Some(format!(
                    "traffic.seconds is {seconds}, not in 1 to {LONGEST_SECONDS}"
                ));
            }
            if seconds <= self.settle_seconds {
                return Some("traffic.settle_seconds leaves nothing of traffic.seconds".to_owned());
            }
        }
        let flows = self.flows.iter().zip(1..);
        let mistake =
            flows.filter_map(|(flow, number)| Some((number, flow.mistake(self.seconds)?))).next();
        if let Some((number, mistake)) = mistake {
            return Some(format!("flow {number} of traffic: {mistake}"));
        }
        let flows: u64 = self.flows.iter().map(FlowSettings::connections).sum();
        (flows > MOST_FLOWS)
            .then(|| format!("traffic has {flows} connections, more than {MOST_FLOWS}"))
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

    fn mistake(&self, seconds: Option<u64>) -> Option<String> {
        let kinds = [
            self.size.is_some(),
            self.objects.is_some(),
            self.page.is_some(),
            self.video.is_some(),
        ];
        match kinds.into_iter().filter(|kind| *kind).count() {
            0 if seconds.is_none() => {
                return Some("it has no size, and traffic.seconds no end".to_owned());
            }
            0 | 1 => {}
            _ => return Some("it has more than one of size, objects, page and video".to_owned()),
        }
        if self.direction == FlowDirection::Up && (self.page.is_some() || self.video.is_some()) {
            return Some("pages and videos are downloads".to_owned());
        }
        let counts = [
            ("count", Some(self.count)),
            ("objects.count", self.objects.as_ref().map(|objects| objects.count)),
            ("page.visits", self.page.as_ref().map(|page| page.visits)),
        ];
        if let Some((field, value)) = counts
            .into_iter()
            .filter_map(|(field, value)| Some((field, value?)))
            .find(|(_, value)| !(1..=MOST_FLOWS).contains(value))
        {
            return Some(format!("{field} is {value}, not in 1 to {MOST_FLOWS}"));
        }
        if self.size == Some(0) {
            return Some("size is 0".to_owned());
        }
        for (field, ms) in [("start_ms", self.start_ms), ("start_every_ms", self.start_every_ms)] {
            let latest = seconds.unwrap_or(LONGEST_SECONDS) as f64 * 1e3;
            if !(0.0..latest).contains(&ms) {
                return Some(format!("{field} is {ms}, not in 0 to {latest}"));
            }
        }
        if let Some(seconds) = seconds
            && self.start(self.count - 1) >= Duration::from_secs(seconds)
        {
            return Some("the last one begins after traffic.seconds".to_owned());
        }
        if let Some(objects) = &self.objects
            && (objects.sizes.is_empty() || objects.sizes.contains(&0))
        {
            return Some("objects.sizes are none, or one of them is 0".to_owned());
        }
        self.video.as_ref().and_then(VideoSettings::mistake)
    }
}

impl VideoSettings {
    fn mistake(&self) -> Option<String> {
        if self.segment_seconds == 0
            || !(self.segment_seconds..=LONGEST_SECONDS).contains(&self.seconds)
        {
            return Some(format!(
                "video.seconds is {}, below a segment or above {LONGEST_SECONDS}",
                self.seconds
            ));
        }
        if self.ladder_kbps.is_empty()
            || self.ladder_kbps[0] == 0
            || !self.ladder_kbps.is_sorted_by(|one, other| one < other)
        {
            return Some("video.ladder_kbps is not ascending from above 0".to_owned());
        }
        // The bit rate rises between the reservoir and a last segment below the full buffer.
        (self.buffer_seconds < self.reservoir_seconds + 2 * self.segment_seconds).then(|| {
            format!(
                "video.buffer_seconds is {}, less than the reservoir and two segments",
                self.buffer_seconds
            )
        })
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
        assert_eq!(traffic.mistake(), None);
        assert_eq!(
            [0, 1, 2].map(|number| traffic.flows[0].start(number).as_millis()),
            [500, 2500, 4500]
        );
    }

    #[test]
    fn mistakes_are_named() {
        let said = |text: &str| parse(text).mistake().unwrap();
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
