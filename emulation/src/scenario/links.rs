//! The links of a scenario.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::settings::milliseconds;
use super::{
    BatchingSettings, DirectionSettings, JitterSettings, OutageSettings, QueueKind, Scenario,
    ScenarioError, Segment,
};
use crate::path::{
    Air, AnyLinkConfig, DelayModel, LinkConfig, LossModel, OutageModel, ProbeRecording,
    QueueDiscipline, QueueManagement, QueuedLinkConfig, Rate, RateRecording, Replay, StateLoss,
    Station, bandwidth_delay_product, recording,
};

/// The four links of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Links<C = LinkConfig> {
    /// Server to gateway.
    pub far_down: C,
    /// Gateway to server.
    pub far_up: C,
    /// Gateway to client.
    pub last_mile_down: C,
    /// Client to gateway.
    pub last_mile_up: C,
}

impl<C> Links<C> {
    /// Applies `of` to each link.
    pub fn map<T>(self, mut of: impl FnMut(C) -> T) -> Links<T> {
        Links {
            far_down: of(self.far_down),
            far_up: of(self.far_up),
            last_mile_down: of(self.last_mile_down),
            last_mile_up: of(self.last_mile_up),
        }
    }
}

/// A recording that was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Recording {
    Rate(Arc<RateRecording>),
    Probes(Arc<ProbeRecording>),
}

/// One direction of one segment.
struct Way<'a> {
    segment: &'a Segment,
    direction: &'a DirectionSettings,
    /// False if nothing is lost in this direction.
    lossy: bool,
    seed: u64,
    outage_seed: u64,
    /// The time at which recordings begin.
    recorded_from: Duration,
}

/// Recordings begin at a time below this, which the seed decides: each seed shows another part.
const RECORDED_FROM: u64 = 600_000;
/// Bytes of payload of a datagram of full size.
const FULL_BYTES: u64 = 1200;

impl Scenario {
    /// Loads the recordings that the scenario names from the folder of the traces.
    ///
    /// # Errors
    /// [`ScenarioError::Recording`].
    pub fn with_traces(mut self, folder: &Path) -> Result<Self, ScenarioError> {
        let segments = [self.far.clone(), self.last_mile.clone()];
        for segment in &segments {
            for name in
                [&segment.down, &segment.up].iter().filter_map(|d| d.rate_recording.as_ref())
            {
                let text = recording::read(&folder.join(name))?;
                let rate = Arc::new(RateRecording::parse(name, &text)?);
                self.recordings.insert(name.clone(), Recording::Rate(rate));
            }
            for name in [&segment.delay_recording, &segment.loss_recording].into_iter().flatten() {
                let text = recording::read(&folder.join(name))?;
                let probes = Arc::new(ProbeRecording::parse(name, &text)?);
                self.recordings.insert(name.clone(), Recording::Probes(probes));
            }
        }
        Ok(self)
    }

    /// Checks that rate and delay of the links are constant and no queue holds datagrams.
    ///
    /// # Errors
    /// [`ScenarioError::NotConstant`].
    pub fn require_constant_links(self) -> Result<Self, ScenarioError> {
        let constant =
            self.ways(0).iter().all(|way| matches!(self.link(way), AnyLinkConfig::Constant(_)));
        let shared = [&self.far, &self.last_mile].iter().any(|segment| segment.airtime.is_some());
        if constant && !shared && self.batching == BatchingSettings::default() {
            Ok(self)
        } else {
            Err(ScenarioError::NotConstant { name: self.name })
        }
    }

    /// The links, whose randomness follows from `seed`.
    pub fn links(&self, seed: u64) -> Links<AnyLinkConfig> {
        let [mut far_down, mut far_up, mut last_mile_down, mut last_mile_up] =
            self.ways(seed).map(|way| self.link(&way));
        self.far.share_air(&mut far_down, &mut far_up);
        self.last_mile.share_air(&mut last_mile_down, &mut last_mile_up);
        Links { far_down, far_up, last_mile_down, last_mile_up }
    }

    /// The links as far as they are constant: without anything that changes with time, and with
    /// drop-tail queues or adaptive RED.
    pub fn constant_links(&self, seed: u64) -> Links {
        let [far_down, far_up, last_mile_down, last_mile_up] =
            self.ways(seed).map(|way| self.constant_link(&way));
        Links { far_down, far_up, last_mile_down, last_mile_up }
    }

    fn ways(&self, seed: u64) -> [Way<'_>; 4] {
        let way = |segment, direction, lossy, which: u64| Way {
            segment,
            direction,
            lossy,
            seed: seed.wrapping_mul(4).wrapping_add(which),
            // The same in both directions.
            outage_seed: seed.wrapping_mul(4).wrapping_add(which & !1) ^ 0x6f75_7461_6765_0000,
            // The same for all links, as recordings may have been made at the same time.
            recorded_from: Duration::from_millis(
                (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % RECORDED_FROM,
            ),
        };
        let (far, last_mile) = (&self.far, &self.last_mile);
        [
            way(far, &far.down, true, 0),
            way(far, &far.up, far.loss_upwards, 1),
            way(last_mile, &last_mile.down, true, 2),
            way(last_mile, &last_mile.up, last_mile.loss_upwards, 3),
        ]
    }

    fn constant_link(&self, way: &Way<'_>) -> LinkConfig {
        let Way { segment, direction, lossy, seed, .. } = *way;
        let rate = segment.rate(direction);
        LinkConfig::new(segment.delay(direction), rate)
            .with_queue(self.default_queue(rate))
            .with_loss(segment.loss_model(segment.loss, direction, lossy))
            .with_seed(seed)
    }

    fn default_queue(&self, rate: u64) -> QueueDiscipline {
        let limit = bandwidth_delay_product(rate, self.round_trip());
        match self.queue {
            QueueKind::DropTail => QueueDiscipline::DropTail { limit },
            QueueKind::Red => QueueDiscipline::AdaptiveRed { limit },
        }
    }

    fn link(&self, way: &Way<'_>) -> AnyLinkConfig {
        let Way { segment, direction, lossy, seed, outage_seed, recorded_from: from } = *way;
        let constant = self.constant_link(way);
        let recorded = direction.rate_recording.as_ref().and_then(|name| self.recordings.get(name));
        let rate = match (recorded, &direction.rate_changes) {
            (Some(Recording::Rate(recording)), _) => {
                Rate::Recorded(Replay { recording: Arc::clone(recording), from })
            }
            (_, Some(changes)) => {
                Rate::Recorded(Replay { recording: Arc::new(changes.recording(seed)), from })
            }
            _ => Rate::Constant(constant.rate),
        };
        let queue = match &direction.queue {
            Some(queue) => queue.management(rate.mean(), self.round_trip()),
            None => QueueManagement::Arrival(self.default_queue(rate.mean())),
        };
        let probes = |name: &Option<String>| match self.recordings.get(name.as_ref()?)? {
            Recording::Probes(recording) => Some(Replay { recording: Arc::clone(recording), from }),
            Recording::Rate(_) => None,
        };
        let recorded_delay = probes(&segment.delay_recording);
        let delay = DelayModel {
            base: constant.delay,
            steps: segment
                .delay_steps
                .iter()
                .map(|step| (milliseconds(step.at_ms), milliseconds(step.delay_ms)))
                .collect(),
            // A recording has its own.
            jitter: segment.jitter.filter(|_| recorded_delay.is_none()).map(JitterSettings::jitter),
            recording: recorded_delay,
            reorders: segment.reorders,
        };
        let lost = probes(&segment.loss_recording);
        let loss = match &lost {
            Some(replay) => segment.loss_model(replay.recording.single_loss(), direction, lossy),
            None => constant.loss,
        };
        let (loss, bursts) = segment.bursts_in_time(loss, rate.mean());
        let outages = lost
            .map(OutageModel::Recorded)
            .or(segment.outages.map(OutageSettings::model))
            .or(bursts);
        let base = DelayModel { base: delay.base, ..DelayModel::default() };
        match (&rate, queue) {
            (Rate::Constant(_), QueueManagement::Arrival(queue))
                if outages.is_none() && delay == base =>
            {
                AnyLinkConfig::Constant(constant.with_queue(queue).with_loss(loss))
            }
            _ => AnyLinkConfig::Queued(Box::new(QueuedLinkConfig {
                delay,
                rate,
                queue,
                loss,
                outages,
                seed,
                outage_seed,
                air: None,
            })),
        }
    }
}

impl Segment {
    /// Gives two links the same air, if the segment has that.
    fn share_air(&self, down: &mut AnyLinkConfig, up: &mut AnyLinkConfig) {
        let Some(airtime) = self.airtime else { return };
        let air = Air::new(airtime.config());
        for (link, station) in [(down, Station::Down), (up, Station::Up)] {
            let mut queued = link.clone().queued();
            queued.air = Some((air.clone(), station));
            *link = AnyLinkConfig::Queued(Box::new(queued));
        }
    }

    /// Losses, and instead of them outages when bursts are measured in time.
    fn bursts_in_time(&self, loss: LossModel, rate: u64) -> (LossModel, Option<OutageModel>) {
        let Some(burst) = self.burst_ms.filter(|_| loss.rate() > 0.0) else { return (loss, None) };
        let transmission = Duration::from_nanos(FULL_BYTES * 8_000_000_000 / rate.max(1));
        let outages = OutageModel::markov(loss.rate(), milliseconds(burst), transmission);
        (LossModel::None, Some(outages))
    }

    fn loss_model(&self, loss: f64, direction: &DirectionSettings, lossy: bool) -> LossModel {
        let loss = if lossy { loss * direction.loss_scale.unwrap_or(1.0) } else { 0.0 };
        let states = StateLoss { good: self.good_loss, bad: self.bad_loss };
        LossModel::new(loss.min(1.0), self.burst).with_states(states)
    }
}

#[cfg(test)]
mod tests {
    use packrat_wire::estimate::Timestamp;

    use super::*;
    use crate::path::{AnyLink, Verdict};

    const TEXT: &str = "description = \"\"\nsize = 1\n[far]\ndelay_ms = 1\nrate_mbps = 1000\n\
                        [last_mile]\ndelay_ms = 20\nrate_mbps = 40\nloss = 0.01\n";

    fn last_mile(text: &str) -> [AnyLinkConfig; 2] {
        let links = Scenario::parse("mine", &format!("{TEXT}{text}")).unwrap().links(3);
        [links.last_mile_down, links.last_mile_up]
    }

    fn queued(link: &AnyLinkConfig) -> &QueuedLinkConfig {
        match link {
            AnyLinkConfig::Queued(config) => config,
            AnyLinkConfig::Constant(config) => panic!("constant: {config:?}"),
        }
    }

    #[test]
    fn directions_have_their_own_rate_delay_loss_and_queue() {
        let text = "down = { queue = { kind = \"drop-tail\", ms = 100 } }\n\
                    up = { rate_mbps = 5, delay_ms = 30.5, loss_scale = 0.5 }\n";
        let [AnyLinkConfig::Constant(down), AnyLinkConfig::Constant(up)] = last_mile(text) else {
            panic!("nothing here changes with time");
        };
        assert_eq!((down.rate, up.rate), (40_000_000, 5_000_000));
        assert_eq!(down.queue.limit(), 500_000);
        // 5 Mbit/s for 1 + 1 + 20 + 30.5 ms.
        assert_eq!(up.queue.limit(), 32_812);
        assert_eq!(up.delay, Duration::from_micros(30_500));
        assert_eq!((down.loss.rate(), up.loss.rate()), (0.01, 0.005));
    }

    #[test]
    fn a_policer_has_a_rate_of_its_own() {
        let text = "down = { queue = { kind = \"policer\", rate_mbps = 8, ms = 50 } }\n";
        let [AnyLinkConfig::Constant(down), _] = last_mile(text) else {
            panic!("nothing here changes with time");
        };
        assert_eq!(down.rate, 40_000_000);
        assert_eq!(down.queue, QueueDiscipline::Policer { rate: 8_000_000, burst: 50_000 });
    }

    #[test]
    fn settings_that_change_with_time_reach_both_directions() {
        let text = "delay_steps = [{ at_ms = 1000, delay_ms = 30 }]\n\
                    jitter = { model = \"wifi\", late_share = 0.1 }\nreorders = true\n\
                    outages = { model = \"scheduled\", every_ms = 15000, length_ms = 500, first_ms = 8000 }\n\
                    down = { queue = { kind = \"fq-codel\", ecn = true, target_ms = 20 } }\n";
        let [down, up] = last_mile(text);
        for link in [&down, &up].map(queued) {
            assert_eq!(link.delay.steps, [(Duration::from_secs(1), Duration::from_millis(30))]);
            assert!(link.delay.reorders && link.delay.jitter.is_some());
            assert!(matches!(link.outages, Some(OutageModel::Scheduled { .. })));
        }
        let QueueManagement::FqCoDel(config) = queued(&down).queue else { panic!("{down:?}") };
        assert_eq!((config.target, config.ecn), (Duration::from_millis(20), true));
        assert_eq!(queued(&down).outage_seed, queued(&up).outage_seed);
        assert_ne!(queued(&down).seed, queued(&up).seed);
    }

    #[test]
    fn settings_replace_recordings_if_the_folder_is_missing() {
        let folder = std::env::temp_dir().join(format!("packrat-links-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("r.down"), "1\n2\n").unwrap();
        std::fs::write(folder.join("p.txt"), "# (round trip)\n0 50000\n10 -\n20 -\n30 50000\n")
            .unwrap();
        let text = format!(
            "{TEXT}delay_recording = \"p.txt\"\nloss_recording = \"p.txt\"\ndown = {{ rate_recording = \"r.down\" }}\n"
        );
        let scenario = Scenario::parse("mine", &text).unwrap();
        assert!(scenario.clone().require_constant_links().is_ok());
        let recorded = scenario.with_traces(&folder).unwrap();
        let links = recorded.links(1);
        let down = queued(&links.last_mile_down);
        assert_eq!(down.rate.mean(), 12_000_000);
        assert!(down.delay.recording.is_some());
        assert!(matches!(down.outages, Some(OutageModel::Recorded(_))));
        assert_eq!(down.loss.rate(), 0.0, "both lost probes are an outage");
        let lossless = recorded.clone().without_loss().links(1);
        assert_eq!(queued(&lossless.last_mile_down).outages, None);
        assert!(recorded.require_constant_links().is_err());
        std::fs::remove_dir_all(&folder).unwrap();
        let absent = Scenario::parse("mine", &text).unwrap().with_traces(&folder).unwrap_err();
        assert!(absent.to_string().contains("r.down"), "{absent}");
    }

    #[test]
    fn rates_that_change_are_replayed_as_recordings_are() {
        let walk = "down = { rate_changes = { model = \"walk\", least_mbps = 10, most_mbps = 40, every_ms = 100 } }\n";
        let mean = |seed| {
            let scenario = Scenario::parse("mine", &format!("{TEXT}{walk}")).unwrap();
            queued(&scenario.links(seed).last_mile_down).rate.mean()
        };
        assert_eq!(mean(1), mean(1));
        assert_ne!(mean(1), mean(2));
        assert!((1..20).all(|seed| (10_000_000..=40_000_000).contains(&mean(seed))));
        let cycle =
            "down = { rate_changes = { model = \"cycle\", mbps = [12, 24], every_ms = 500 } }\n";
        let [down, up] = last_mile(cycle);
        assert_eq!(queued(&down).rate.mean(), 18_000_000);
        assert!(matches!(up, AnyLinkConfig::Constant(_)));
    }

    #[test]
    fn bursts_in_time_replace_those_in_datagrams() {
        let [down, up] = last_mile("burst_ms = 2.4\n");
        for link in [&down, &up].map(queued) {
            assert_eq!(link.loss, LossModel::None);
            let Some(OutageModel::Markov { off, on }) = link.outages else { panic!("{link:?}") };
            assert_eq!(off, Duration::from_micros(2400));
            // (2.4 + 0.24) ms · 0.99 / 0.01
            assert!((on.as_secs_f64() - 0.26136).abs() < 1e-6, "{on:?}");
        }
        let lossless = Scenario::parse("mine", &format!("{TEXT}burst_ms = 2.4\n")).unwrap();
        assert!(lossless.without_loss().require_constant_links().is_ok());
    }

    #[test]
    fn both_directions_of_a_segment_share_its_air() {
        let text = "airtime = { access_us = 120, aggregate = 8 }\n";
        let [down, up] = last_mile(text);
        let mut links = [down, up].map(AnyLink::new);
        // With this seed the first datagrams are not lost.
        let arrivals = links.each_mut().map(|link| {
            link.offer(Timestamp::ZERO, 1200, 0, false, ());
            if let Some(at) = link.next_timeout() {
                link.handle_timeout(at);
            }
            link.poll_fate().map(|fate| fate.verdict)
        });
        // Access and 240 microseconds of transmission, one after the other.
        let at = |micros| Some(Verdict::Deliver { at: Timestamp::from_micros(micros) });
        assert_eq!(arrivals, [at(20_360), at(20_720)]);
        let scenario = Scenario::parse("mine", &format!("{TEXT}{text}")).unwrap();
        assert!(
            scenario.links(1).far_down == Scenario::parse("mine", TEXT).unwrap().links(1).far_down
        );
        assert!(scenario.require_constant_links().is_err());
    }

    #[test]
    fn each_seed_begins_at_another_time_of_a_recording() {
        let scenario = Scenario::parse("mine", TEXT).unwrap();
        let from = |seed| scenario.ways(seed).map(|way| way.recorded_from);
        assert_eq!(from(1), from(1));
        assert_ne!(from(1)[0], from(2)[0]);
        assert!(from(1).iter().all(|from_| *from_ == from(1)[0]), "all links at the same time");
    }

    #[test]
    fn mistakes_are_named() {
        let said = |text: &str| {
            Scenario::parse("mine", &format!("{TEXT}{text}\n")).unwrap_err().to_string()
        };
        assert!(said("up = { rate_mbps = 0 }").contains("last_mile.up.rate_mbps is 0"));
        assert!(
            said("up = { queue = { kind = \"red\", bytes = 1, ms = 1 } }").contains("bytes and ms")
        );
        assert!(
            said("jitter = { model = \"wifi\", late_share = 2 }")
                .contains("jitter.late_share is 2")
        );
        assert!(said("down = { queue = { kind = \"policer\" } }").contains("queue.rate_mbps"));
        let rates = |of: &str| said(&format!("down = {{ rate_changes = {{ {of} }} }}"));
        assert!(rates("model = \"cycle\", mbps = [], every_ms = 5").contains("a rate is missing"));
        let walk = "model = \"walk\", every_ms = 5, most_mbps = 2, least_mbps";
        assert!(rates(&format!("{walk} = 3")).contains("least_mbps is above most_mbps"));
        assert!(rates("model = \"cycle\", mbps = [1], every_ms = 0").contains("every_ms is 0"));
        let outages =
            "outages = { model = \"scheduled\", every_ms = 5, length_ms = 6, first_ms = 0 }";
        assert!(said(outages).contains("outages.length_ms"));
        let steps = "delay_steps = [{ at_ms = 2, delay_ms = 1 }, { at_ms = 1, delay_ms = 1 }]";
        assert!(said(steps).contains("delay_steps"));
    }
}
