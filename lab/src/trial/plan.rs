//! The connections of a trial's traffic.

use super::arm::Arm;
use crate::stacks::Sender;
use crate::traffic::Work;
use packrat_emulation::scenario::{FlowDirection, FlowSettings, Scenario, ScenarioError};
use packrat_wire::estimate::Timestamp;
use std::time::Duration;

/// Virtual time after which a download is given up; bytes that have arrived by then count.
pub const TIME_LIMIT: Duration = Duration::from_secs(1200);

/// All connections of a trial, in the order in which they are set up.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) flows: Vec<PlannedFlow>,
    /// Bytes that arrive earlier do not count.
    pub(crate) settled_at: Timestamp,
    /// The end of everything, from the beginning of virtual time on.
    pub(crate) limit: Duration,
}

/// A flow: one connection, or several in turn or at once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlannedFlow {
    pub(crate) name: String,
    pub(crate) kind: FlowKind,
    pub(crate) sender: Sender,
    pub(crate) arm: Arm,
    pub(crate) direction: FlowDirection,
    pub(crate) start: Timestamp,
    /// The work of each connection.
    pub(crate) connections: Vec<Work>,
    /// True if each connection begins when the one before has ended.
    pub(crate) in_turn: bool,
    pub(crate) own_far: bool,
    pub(crate) own_last_mile: bool,
}

/// The kind of a flow, as results name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowKind {
    /// A single object, or an endless transfer.
    Transfer,
    /// Short objects.
    Objects,
    /// A web page.
    Page,
    /// An adaptive video session.
    Video,
}

packrat_emulation::choices!(FlowKind, "kind of flow", [
    Transfer "transfer",
    Objects "objects",
    Page "page",
    Video "video",
]);

impl Plan {
    /// The flows of a scenario; flows that do not name their sender or arm have the given ones.
    ///
    /// # Errors
    /// [`ScenarioError::Malformed`], if a flow names an unknown sender or arm, or one that it
    /// cannot have.
    pub(crate) fn new(
        scenario: &Scenario,
        arm: Arm,
        sender: Sender,
    ) -> Result<Self, ScenarioError> {
        let Some(traffic) = &scenario.traffic else {
            let settings = FlowDirection::Down;
            let work = Work::Transfer { size: scenario.size, direction: settings };
            let flow = PlannedFlow {
                name: "download".to_owned(),
                kind: FlowKind::Transfer,
                sender,
                arm,
                direction: settings,
                start: Timestamp::ZERO,
                connections: vec![work],
                in_turn: false,
                own_far: false,
                own_last_mile: false,
            };
            return Ok(Self { flows: vec![flow], settled_at: Timestamp::ZERO, limit: TIME_LIMIT });
        };
        let mut flows = Vec::new();
        for (settings, place) in traffic.flows.iter().zip(1..) {
            let of = |settings: &FlowSettings| PlannedFlow::all(settings, place, arm, sender);
            flows.extend(of(settings).map_err(|reason| ScenarioError::Malformed {
                name: scenario.name.clone(),
                reason: format!("flow {place} of traffic: {reason}"),
            })?);
        }
        Ok(Self {
            flows,
            settled_at: Timestamp::from_micros(traffic.settle_seconds * 1_000_000),
            limit: traffic.seconds.map_or(TIME_LIMIT, Duration::from_secs),
        })
    }

    /// True if the first flow has others beside it that take as much as they can.
    pub(crate) fn competes(&self) -> bool {
        self.flows[0].is_open_ended() && self.flows[1..].iter().any(PlannedFlow::is_open_ended)
    }
}

impl PlannedFlow {
    /// The flows of one entry.
    fn all(
        settings: &FlowSettings,
        place: u64,
        arm: Arm,
        sender: Sender,
    ) -> Result<Vec<Self>, String> {
        let named = |name: &Option<String>| name.as_ref().map(|name| name.parse::<Arm>());
        let arm = named(&settings.arm).unwrap_or(Ok(arm))?;
        let sender = settings.sender.as_ref().map_or(Ok(sender), |name| name.parse())?;
        let direction = settings.direction;
        if direction == FlowDirection::Up && !sender.uploads() {
            return Err(format!(
                "the client sends an upload, with s2n-quic or quinn, not with {}; name one of their senders",
                sender.name()
            ));
        }
        if direction == FlowDirection::Up && arm == Arm::Ideal && settings.arm.is_some() {
            return Err("ideal is an arm of a whole trial".to_owned());
        }
        let (kind, connections, in_turn) = work(settings);
        let name = settings.name.clone().unwrap_or_else(|| format!("flow {place}"));
        let flow = |number| Self {
            name: if settings.count > 1 { format!("{name} {}", number + 1) } else { name.clone() },
            kind,
            sender,
            arm,
            direction,
            start: Timestamp::ZERO + settings.start(number),
            connections: connections.clone(),
            in_turn,
            own_far: settings.own_far,
            own_last_mile: settings.own_last_mile,
        };
        Ok((0..settings.count).map(flow).collect())
    }

    /// True if the gateway assists it.
    pub(crate) fn is_assisted(&self) -> bool {
        matches!(self.arm, Arm::Packrat | Arm::RepairOnly)
    }

    /// True if it takes as much as it can until the end.
    pub(crate) fn is_open_ended(&self) -> bool {
        self.connections.iter().any(Work::is_open_ended)
    }
}

/// The connections of a flow, and whether they come in turn.
fn work(settings: &FlowSettings) -> (FlowKind, Vec<Work>, bool) {
    let direction = settings.direction;
    if let Some(objects) = &settings.objects {
        // Takes turns of all sizes, so that each size has an equal share of the beginning.
        let sizes: Vec<u64> =
            (0..objects.count).flat_map(|_| objects.sizes.iter().copied()).collect();
        let together = objects.together;
        let connections = if objects.own_connections {
            sizes.into_iter().map(|size| Work::Transfer { size, direction }).collect()
        } else {
            vec![Work::Objects { sizes, together, direction }]
        };
        return (FlowKind::Objects, connections, !together);
    }
    if let Some(page) = &settings.page {
        return (FlowKind::Page, (0..page.visits).map(|_| Work::Page(page.model)).collect(), true);
    }
    if let Some(video) = &settings.video {
        return (FlowKind::Video, vec![Work::Video(video.clone())], false);
    }
    let size = settings.size.unwrap_or(u64::MAX);
    (FlowKind::Transfer, vec![Work::Transfer { size, direction }], false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_emulation::scenario::Traffic;

    fn plan(text: &str) -> Result<Plan, ScenarioError> {
        let path = "description = \"\"\nsize = 1\n[far]\ndelay_ms = 1\nrate_mbps = 10\n\
                    [last_mile]\ndelay_ms = 1\nrate_mbps = 10\n";
        let scenario = Scenario::parse("mine", &format!("{path}{text}"))?;
        Plan::new(&scenario, Arm::Packrat, Sender::QuinnBbr)
    }

    #[test]
    fn a_flow_has_its_own_sender_and_arm_or_those_of_the_trial() {
        let text = "[traffic]\nseconds = 9\n[[traffic.flow]]\n\
                    [[traffic.flow]]\nsender = \"s2n-bbr\"\narm = \"split\"\ncount = 2\n";
        let flows = plan(text).unwrap().flows;
        let of: Vec<_> =
            flows.iter().map(|flow| (flow.name.as_str(), flow.sender, flow.arm)).collect();
        assert_eq!(
            of,
            [
                ("flow 1", Sender::QuinnBbr, Arm::Packrat),
                ("flow 2 1", Sender::S2nBbr, Arm::Split),
                ("flow 2 2", Sender::S2nBbr, Arm::Split),
            ]
        );
    }

    #[test]
    fn objects_with_connections_of_their_own_come_in_turn_by_size() {
        let text = "[traffic]\n[[traffic.flow]]\n\
                    objects = { sizes = [5, 6], count = 2, own_connections = true }\n";
        let flow = &plan(text).unwrap().flows[0];
        let sizes: Vec<u64> = flow
            .connections
            .iter()
            .map(|work| match work {
                Work::Transfer { size, .. } => *size,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((sizes, flow.in_turn, flow.kind), (vec![5, 6, 5, 6], true, FlowKind::Objects));
    }

    #[test]
    fn names_that_there_are_not_are_refused() {
        let said = |text: &str| {
            plan(&format!("[traffic]\nseconds = 9\n[[traffic.flow]]\n[[traffic.flow]]\n{text}\n"))
                .unwrap_err()
                .to_string()
        };
        assert!(said("arm = \"assisted\"").contains("flow 2 of traffic: there is no arm"));
        assert!(said("sender = \"cubic\"").contains("choose one of s2n-cubic"));
        let up = said("sender = \"noq-cubic\"\ndirection = \"up\"");
        assert!(up.contains("not with noq-cubic"), "{up}");
    }

    #[test]
    fn the_traffic_that_comes_along_can_be_planned() {
        let scenario = Scenario::load("wifi").unwrap();
        for name in Traffic::names() {
            let scenario = scenario.clone().with_traffic(Traffic::load(name).unwrap());
            assert!(Plan::new(&scenario, Arm::Packrat, Sender::S2nBbr).is_ok(), "{name}");
        }
        assert!(Plan::new(&scenario, Arm::Ideal, Sender::S2nBbr).unwrap().limit == TIME_LIMIT);
    }
}
