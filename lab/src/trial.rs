//! One trial: a scenario, an arm, a sender, a seed.

use crate::certificate;
use crate::clock::VirtualClock;
use crate::flow::{Flow, FlowOutcome, FlowSetup, Simulation};
use crate::gateway_node::{GatewayFigures, GatewayNode};
use crate::observer::TraceEvent;
use crate::receiver::{Download, Order};
use crate::sender::Sender;
use crate::shim_node::ShimNode;
use crate::tls;
use crate::trace;
use crate::world::{PathCounters, World};
use packrat_client::ClientConfig;
use packrat_emulation::path::LinkCounters;
use packrat_emulation::scenario::{QueueKind, Scenario};
use packrat_engine::GatewayConfig;
use packrat_wire::estimate::Timestamp;
use packrat_wire::number::NUMBER_LENGTH;
use s2n_quic::provider::io::testing::{spawn, test_seed};
use serde::Serialize;
use std::time::Duration;

/// Virtual time after which a download is given up; what has arrived by then counts.
pub(crate) const LIMIT: Duration = Duration::from_secs(1200);

/// The means against loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arm {
    /// Nothing.
    EndToEnd,
    /// Repair and hold.
    Packrat,
    /// Repair without hold.
    RepairOnly,
    /// Repair, and datagrams in order below an unmodified client.
    Shim,
    /// Two QUIC connections joined at the gateway.
    Split,
    /// No loss, and no assistance.
    Ideal,
}

packrat_emulation::choices!(Arm, "arm", [
    EndToEnd "end-to-end",
    Packrat "packrat",
    RepairOnly "repair-only",
    Shim "shim",
    Split "split",
    Ideal "ideal",
]);

/// A trial: one download.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The network, and how much is downloaded.
    pub scenario: Scenario,
    /// The means against loss.
    pub arm: Arm,
    /// The sender's QUIC stack.
    pub sender: Sender,
    /// The sender of a split connection's half on the last mile.
    pub split_sender: Sender,
    /// Decides everything random.
    pub seed: u64,
    /// The client of the arms that have one.
    pub client: ClientConfig,
    /// The gateway of the arms that have one.
    pub gateway: GatewayConfig,
}

/// Failure to run a trial. A connection that fails is a result, not an error.
#[derive(Debug, thiserror::Error)]
#[error(
    "the trial {scenario} {arm} {sender} seed {seed} has no result: {reason}; this is a fault of the laboratory, please report it"
)]
pub struct TrialError {
    scenario: String,
    arm: &'static str,
    sender: &'static str,
    seed: u64,
    reason: String,
}

/// A trial's result; one JSON line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialResult {
    /// The scenario's name.
    pub scenario: String,
    /// The arm's name.
    pub arm: Arm,
    /// The sender's name.
    pub sender: Sender,
    /// Mean loss of the last mile, 0 to 1.
    pub loss: f64,
    /// Mean number of datagrams lost in a row.
    pub burst: f64,
    /// The queues of all links.
    pub queue: QueueKind,
    /// The seed.
    pub seed: u64,
    /// Mbit/s that the application received, from its request to the last byte.
    pub goodput_mbps: f64,
    /// Virtual seconds of the same.
    pub seconds: f64,
    /// True if everything has arrived within the time limit.
    pub complete: bool,
    /// The reason why the connection ended early, if it did: a path can be so bad that QUIC gives
    /// up.
    pub failure: Option<String>,
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
    /// Bytes cached, mean over the datagrams forwarded.
    pub cache_mean: f64,
    /// Bytes cached, at most.
    pub cache_max: u64,
    /// Mean time that a hole was withheld, milliseconds.
    pub hold_ms_mean: f64,
    /// Bytes sent on the last mile towards the client, UDP payload.
    pub bytes_last_mile: u64,
    /// Bytes of repairs among them.
    pub repair_bytes: u64,
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
    /// Holes whose hold ended without a repair, and holes that the gateway reported as settled.
    pub expired: u64,
    /// See `expired`.
    pub settled: u64,
    /// Times that the client stopped withholding because it did not pay.
    pub hold_suspensions: u64,
    /// Packets that arrived too late for the receiver's window of packet numbers, repairs above
    /// all.
    pub too_old: u64,
    /// Datagrams whose repair was not sent: too late, evicted, over budget.
    pub unrepaired: [u64; 3],
    /// The sender's congestion window in bytes: mean and most.
    pub window: [f64; 2],
    /// The end of the sender's slow start, virtual seconds.
    pub slow_start_ended: Option<f64>,
    /// The traffic of all flows into each link.
    pub links: LinkFigures,
    /// The sharing of the bottleneck, where there are other downloads.
    pub competition: Option<Fairness>,
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
    fn new(path: &PathCounters) -> Self {
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
    /// Mbit/s of each of the others, which are not assisted.
    pub others_mbps: Vec<f64>,
    /// Goodput of the measured download, over the mean of all: 1 is fair.
    pub share: f64,
    /// Jain's index of all: 1 is fair, one over their number is that one has everything.
    pub jain: f64,
}

impl Fairness {
    fn new(measured: &Download, others: &[FlowOutcome]) -> Self {
        let others_mbps: Vec<f64> =
            others.iter().map(|other| other.download.goodput_mbps()).collect();
        let all: Vec<f64> = [measured.goodput_mbps()].iter().chain(&others_mbps).copied().collect();
        let (count, sum) = (all.len() as f64, all.iter().sum::<f64>());
        let squares: f64 = all.iter().map(|goodput| goodput * goodput).sum();
        Self { others_mbps, share: all[0] * count / sum, jain: sum * sum / (count * squares) }
    }
}

impl Trial {
    /// A trial with the client's and the gateway's default configuration.
    pub fn new(scenario: Scenario, arm: Arm, sender: Sender, seed: u64) -> Self {
        let mut client = ClientConfig::default();
        if arm == Arm::RepairOnly {
            client.access.maximum_hold = Duration::ZERO;
        }
        let mut gateway = GatewayConfig::default();
        // These links have no limit. Servers that probe up to 1500 bytes have room for a number.
        if arm == Arm::Shim {
            gateway.longest_packet += NUMBER_LENGTH as u16;
        }
        Self { scenario, arm, sender, split_sender: sender, seed, client, gateway }
    }

    /// Runs it in virtual time, on this thread.
    ///
    /// # Errors
    /// [`TrialError`], when a QUIC stack does not start.
    pub fn run(&self) -> Result<TrialResult, TrialError> {
        self.outcome(false).map(|(result, _)| result)
    }

    /// [`Self::run`] with everything that happened, in order.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn trace(&self) -> Result<(TrialResult, Vec<TraceEvent>), TrialError> {
        self.outcome(true)
    }

    fn outcome(&self, tracing: bool) -> Result<(TrialResult, Vec<TraceEvent>), TrialError> {
        self.simulate(tracing).map_err(|reason| TrialError {
            scenario: self.scenario.name.clone(),
            arm: self.arm.name(),
            sender: self.sender.name(),
            seed: self.seed,
            reason,
        })
    }

    fn simulate(&self, tracing: bool) -> Result<(TrialResult, Vec<TraceEvent>), String> {
        let scenario = match self.arm {
            Arm::Ideal => self.scenario.clone().without_loss(),
            _ => self.scenario.clone(),
        };
        let assisted = matches!(self.arm, Arm::Packrat | Arm::RepairOnly | Arm::Shim);
        let gateway = assisted.then(|| GatewayNode::new(self.gateway.clone(), self.seed));
        let world = World::new(&scenario, self.seed, gateway, tracing);
        let measured = Flow::new(tracing);
        let others = scenario.competition.map_or(0, |competition| competition.flows);
        let others: Vec<Flow> = (0..others).map(|_| Flow::new(false)).collect();
        let (of_world, of_measured, of_others) = (world.clone(), measured.clone(), others.clone());
        let order = self.order();
        test_seed(world.clone(), self.seed, move |handle| {
            let clock = VirtualClock::new();
            spawn(of_world.start(clock));
            tls::begin_trial(self.seed);
            let simulation =
                Simulation { handle, clock, world: &of_world, certificate: certificate::fixed()? };
            // Below the client, or within it.
            let config = assisted.then(|| self.client.clone());
            let (below, config) =
                if self.arm == Arm::Shim { (config, None) } else { (None, config) };
            let setup = FlowSetup {
                sender: self.sender,
                seed: self.seed,
                split: (self.arm == Arm::Split).then_some(self.split_sender),
                config,
            };
            let client = of_measured.start(&simulation, setup, order)?;
            of_world.follow(client);
            if let Some(config) = below {
                of_world.put_shim(client, ShimNode::new(config, self.seed, clock.now()));
            }
            for (flow, which) in of_others.iter().zip(1..) {
                // The others are not assisted, and draw from randomness of their own.
                let seed = self.seed ^ (which << 48);
                let setup = FlowSetup { sender: self.sender, seed, split: None, config: None };
                flow.start(&simulation, setup, order)?;
            }
            Ok(())
        })
        .map_err(|error| error.to_string())?;
        let mut outcome = measured.outcome().ok_or("the simulation ended before the download")?;
        let others: Option<Vec<_>> = others.iter().map(Flow::outcome).collect();
        let others = others.ok_or("the simulation ended before another download")?;
        let path = world.counters(outcome.client);
        let gateway = world.gateway_figures(outcome.client);
        if let Some(assistance) = world.shim_figures(outcome.client) {
            outcome.download.assistance.assist = assistance;
        }
        let result = self.result(&scenario, &outcome, &others, &gateway, &path);
        let trace = if tracing { trace::complete(outcome, &world) } else { Vec::new() };
        Ok((result, trace))
    }

    /// Each client's download.
    fn order(&self) -> Order {
        match self.scenario.competition {
            Some(competition) => Order {
                size: u64::MAX,
                limit: Duration::from_secs(competition.seconds),
                settled_at: Timestamp::from_micros(competition.settle_seconds * 1_000_000),
            },
            None => Order { size: self.scenario.size, limit: LIMIT, settled_at: Timestamp::ZERO },
        }
    }

    fn result(
        &self,
        scenario: &Scenario,
        outcome: &FlowOutcome,
        others: &[FlowOutcome],
        gateway: &GatewayFigures,
        path: &PathCounters,
    ) -> TrialResult {
        let FlowOutcome { download, sender, receiving, .. } = outcome;
        let assist = &download.assistance.assist;
        let counters = &gateway.counters;
        let arrived = |number: &&u64| download.has_received(**number);
        let ended = assist.filled_in_time + assist.expired;
        TrialResult {
            scenario: self.scenario.name.clone(),
            arm: self.arm,
            sender: self.sender,
            loss: scenario.last_mile.loss,
            burst: scenario.last_mile.burst,
            queue: scenario.queue,
            seed: self.seed,
            goodput_mbps: download.goodput_mbps(),
            seconds: download.seconds,
            complete: scenario.competition.is_some() || download.received == self.scenario.size,
            failure: download.failure.clone(),
            lost_last_mile: path.client.lost,
            repaired: counters.repairs,
            repaired_late: assist.filled_late,
            spurious: sender.declared_lost.iter().filter(arrived).count() as u64,
            resets: counters.resets_gateway + counters.resets_client,
            decode_failures: counters.eacks_failed,
            eack_bytes: assist.eack_bytes,
            eack_packets: assist.eacks,
            cache_mean: gateway.cache_mean,
            cache_max: gateway.gauges.cache_high_water_bytes,
            hold_ms_mean: assist.hold_sum.as_secs_f64() * 1e3 / ended.max(1) as f64,
            bytes_last_mile: path.client.last_mile_bytes,
            repair_bytes: counters.repair_bytes,
            declared_lost: sender.declared_lost.len() as u64,
            congestion_events: sender.congestion_events,
            skipped: sender.skipped,
            queue_dropped: match scenario.competition {
                Some(_) => path.client.queue_dropped,
                None => path.far_down.queue_dropped + path.last_mile_down.queue_dropped,
            },
            far_dropped: path.far_down.queue_dropped,
            expired: assist.expired,
            settled: assist.settled,
            hold_suspensions: assist.hold_suspensions,
            too_old: receiving.too_old,
            unrepaired: [counters.repairs_late, counters.repairs_evicted, counters.budget_refusals],
            window: [
                sender.window_sum / sender.window_samples.max(1) as f64,
                f64::from(sender.window_most),
            ],
            slow_start_ended: sender.slow_start_ended,
            links: LinkFigures::new(path),
            competition: scenario.competition.map(|_| Fairness::new(download, others)),
        }
    }
}
