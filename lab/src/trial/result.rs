//! The result of a trial.

use super::arm::Arm;
use super::flow::FlowOutcome;
use super::flow_result::FlowResult;
use super::plan::PlannedFlow;
use crate::network::{GatewayFigures, PathCounters, VirtualNetwork};
use crate::stacks::{ReceiverStack, Sender};
use packrat_emulation::path::LinkCounters;
use packrat_emulation::scenario::{QueueKind, Scenario};
use serde::Serialize;

/// A trial's result; one JSON line. If there are several flows, all fields but `competition`,
/// `flows` and `links` belong to the first connection of the first flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialResult {
    /// The conditions of the trial.
    #[serde(flatten)]
    pub setting: TrialSetting,
    /// The download as the application had it.
    #[serde(flatten)]
    pub download: DownloadFigures,
    /// The losses of the last mile, and the assistance against them.
    #[serde(flatten)]
    pub assistance: AssistanceFigures,
    /// The remaining losses, and the sender's reaction.
    #[serde(flatten)]
    pub reaction: ReactionFigures,
    /// The traffic of all flows into each link.
    pub links: LinkFigures,
    /// The sharing of the bottleneck, if there are other downloads.
    pub competition: Option<Fairness>,
    /// All flows, if the scenario has traffic.
    pub flows: Vec<FlowResult>,
}

/// The conditions of a trial.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialSetting {
    /// The scenario's name.
    pub scenario: String,
    /// The arm's name.
    pub arm: Arm,
    /// The sender's name.
    pub sender: Sender,
    /// The receiver's name.
    pub receiver: ReceiverStack,
    /// Mean loss of the last mile, 0 to 1.
    pub loss: f64,
    /// Mean number of datagrams lost in a row.
    pub burst: f64,
    /// The queues of all links.
    pub queue: QueueKind,
    /// The seed.
    pub seed: u64,
}

/// A download as the application had it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DownloadFigures {
    /// Mbit/s that the application received, from its request to the last byte.
    pub goodput_mbps: f64,
    /// Virtual seconds of the same.
    pub seconds: f64,
    /// Virtual seconds from the connection's first datagram to the first byte of an answer.
    pub first_byte: Option<f64>,
    /// True if everything has arrived within the time limit.
    pub complete: bool,
    /// The reason why the connection ended early, if it did: a path can be so bad that QUIC gives
    /// up.
    pub failure: Option<String>,
}

/// The losses of the last mile, and the assistance against them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AssistanceFigures {
    /// Datagrams that the last mile lost on the way to the client.
    pub lost_last_mile: u64,
    /// Datagrams that the gateway sent again.
    pub repaired: u64,
    /// Packet numbers that were repaired after the hold had ended.
    pub repaired_late: u64,
    /// Packets that the sender declared lost although they arrived.
    pub spurious: u64,
    /// Resets of both sides.
    pub resets: u64,
    /// eACKs that could not be decoded at first.
    pub decode_failures: u64,
    /// Bytes of eACKs sent.
    pub eack_bytes: u64,
    /// eACKs sent.
    pub eack_packets: u64,
    /// Times that the client sent after a millisecond without: its radio wakes up.
    pub client_wake_ups: u64,
    /// Bytes cached, mean over the datagrams forwarded.
    pub cache_mean: f64,
    /// Bytes cached, at most.
    pub cache_max: u64,
    /// Mean time that a hole was waited for, milliseconds.
    pub hold_ms_mean: f64,
    /// Bytes sent on the last mile towards the client, UDP payload.
    pub bytes_last_mile: u64,
    /// Bytes of repairs among them.
    pub repair_bytes: u64,
}

/// The losses that the sender or a queue saw, and the sender's reaction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReactionFigures {
    /// Packets that the sender declared lost.
    pub declared_lost: u64,
    /// Times that the sender reduced its window.
    pub congestion_events: u64,
    /// Packet numbers that the sender left out on purpose.
    pub skipped: u64,
    /// Datagrams that the queues of the far segment and of the last mile dropped on the way to the
    /// client.
    pub queue_dropped: u64,
    /// Datagrams among them that the far segment's queue dropped.
    #[serde(skip)]
    pub far_dropped: u64,
    /// Holes whose hold ended without a repair.
    pub expired: u64,
    /// Holes that the gateway reported as settled.
    pub settled: u64,
    /// Packets that arrived too late for the receiver's window of packet numbers, repairs above
    /// all.
    pub too_old: u64,
    /// Datagrams whose repair was not sent: too late, evicted, over budget.
    pub unrepaired: [u64; 3],
    /// The sender's congestion window in bytes: mean and most.
    pub window: [f64; 2],
    /// The end of the sender's slow start, virtual seconds.
    pub slow_start_ended: Option<f64>,
}

impl TrialResult {
    /// The loss of the last mile, for people.
    pub(crate) fn loss_in_words(&self) -> String {
        let percent = self.setting.loss * 100.0;
        if self.setting.burst > 1.0 && self.setting.loss > 0.0 {
            format!("{percent:.0} %, bursts of {}", self.setting.burst)
        } else {
            format!("{percent:.0} %")
        }
    }

    /// The result of the trial's first flow; the other flows are added to it.
    pub(super) fn new(
        (receiver, seed): (ReceiverStack, u64),
        scenario: &Scenario,
        flow: &PlannedFlow,
        outcome: &FlowOutcome,
        network: &VirtualNetwork,
    ) -> Self {
        let FlowOutcome { download, client, .. } = outcome;
        let path = network.counters(*client);
        let gateway = network.gateway_figures(*client);
        Self {
            setting: TrialSetting {
                scenario: scenario.name.clone(),
                arm: flow.arm,
                sender: flow.sender,
                receiver,
                loss: scenario.last_mile.loss,
                burst: scenario.last_mile.burst,
                queue: scenario.queue,
                seed,
            },
            download: DownloadFigures {
                goodput_mbps: download.goodput_mbps(),
                seconds: download.seconds,
                first_byte: download.first_byte,
                complete: flow.is_open_ended() || download.work.complete,
                failure: download.failure.clone(),
            },
            assistance: AssistanceFigures::new(outcome, &path, &gateway),
            reaction: ReactionFigures::new(outcome, &path, &gateway, scenario.traffic.is_some()),
            links: LinkFigures::new(&path),
            competition: None,
            flows: Vec::new(),
        }
    }
}

impl AssistanceFigures {
    fn new(outcome: &FlowOutcome, path: &PathCounters, gateway: &GatewayFigures) -> Self {
        let FlowOutcome { download, sender, .. } = outcome;
        let (assist, counters) = (&download.assistance.assist, &gateway.counters);
        let ended = assist.filled_in_time + assist.expired;
        Self {
            lost_last_mile: path.client.down.lost,
            repaired: counters.repairs,
            repaired_late: assist.filled_late,
            spurious: download.received_of(&sender.declared_lost),
            resets: counters.resets_gateway + counters.resets_client,
            decode_failures: counters.eacks_failed,
            eack_bytes: assist.eack_bytes,
            eack_packets: assist.eacks,
            client_wake_ups: path.client.wake_ups,
            cache_mean: gateway.cache_mean,
            cache_max: gateway.gauges.cache_high_water_bytes,
            hold_ms_mean: assist.hold_sum.as_secs_f64() * 1e3 / ended.max(1) as f64,
            bytes_last_mile: path.client.last_mile_bytes,
            repair_bytes: counters.repair_bytes + counters.symbol_bytes,
        }
    }
}

impl ReactionFigures {
    /// The figures; `beside`: with other flows on the path only the client's own drops count.
    fn new(
        FlowOutcome { download, sender, receiving, .. }: &FlowOutcome,
        path: &PathCounters,
        GatewayFigures { counters, .. }: &GatewayFigures,
        beside: bool,
    ) -> Self {
        let assist = &download.assistance.assist;
        Self {
            declared_lost: sender.declared_lost.len() as u64,
            congestion_events: sender.congestion_events,
            skipped: sender.skipped,
            queue_dropped: match beside {
                true => path.client.down.queue_dropped,
                false => path.far_down.queue_dropped + path.last_mile_down.queue_dropped,
            },
            far_dropped: path.far_down.queue_dropped,
            expired: assist.expired,
            settled: assist.settled,
            too_old: receiving.too_old,
            unrepaired: [counters.repairs_late, counters.repairs_evicted, counters.budget_refusals],
            window: sender.window(),
            slow_start_ended: sender.slow_start_ended,
        }
    }
}

/// Datagrams and bytes of UDP payload that were sent into each link, dropped and lost ones too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LinkFigures {
    /// Server to gateway.
    pub far_down: [u64; 2],
    /// Gateway to server.
    pub far_up: [u64; 2],
    /// Gateway to client.
    pub last_mile_down: [u64; 2],
    /// Client to gateway.
    pub last_mile_up: [u64; 2],
}

impl LinkFigures {
    pub(super) fn new(path: &PathCounters) -> Self {
        let of = |counters: &LinkCounters| [counters.offered, counters.offered_bytes];
        Self {
            far_down: of(&path.far_down),
            far_up: of(&path.far_up),
            last_mile_down: of(&path.last_mile_down),
            last_mile_up: of(&path.last_mile_up),
        }
    }
}

/// The sharing of the path between the measured download and others at the same time, since
/// everything had settled.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fairness {
    /// Mbit/s of each of the others that take as much as they can in the same direction.
    pub others_mbps: Vec<f64>,
    /// Goodput of the measured download, over the mean of all: 1 is fair.
    pub share: f64,
    /// Jain's index of all: 1 is fair, one over their number is that one has everything.
    pub jain: f64,
}

impl Fairness {
    /// The shares of the first flow and its competitors.
    pub(super) fn new(flows: &[FlowResult], jain: f64) -> Self {
        let others = flows[1..].iter().filter(|flow| flow.share.is_some());
        let others = others.filter(|flow| flow.direction == flows[0].direction);
        Self {
            others_mbps: others.map(|other| other.goodput_mbps).collect(),
            share: flows[0].share.unwrap_or(1.0),
            jain,
        }
    }
}
