//! A trial: a scenario, an arm, a sender, a seed.

use crate::certificate;
use crate::clock::VirtualClock;
use crate::flow::{Flow, FlowOutcome, FlowSetup, Simulation};
use crate::gateway_node::GatewayNode;
use crate::observer::TraceEvent;
use crate::oracle::Oracle;
use crate::receiver::ReceiverStack;
use crate::sender::Sender;
use crate::shim_node::ShimNode;
use crate::tls;
use crate::trace;
use crate::traffic::FlowResult;
use crate::traffic::plan::{Plan, PlannedFlow};
use crate::traffic::results::share_out;
use crate::world::{PathCounters, World};
use packrat_client::{ClientConfig, LossMemory};
use packrat_emulation::path::LinkCounters;
use packrat_emulation::scenario::{FlowDirection, QueueKind, Scenario};
use packrat_engine::{GatewayConfig, SenderAnswer, SenderMemory};
use packrat_wire::number::NUMBER_LENGTH;
use s2n_quic::provider::io::testing::{spawn, test_seed};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// Virtual time after which a download is given up; bytes that have arrived by then count.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(1200);

/// Bytes of the download by which a client and its gateway know their last mile.
const KNOWN_BY: u64 = 500_000;

/// The means against loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arm {
    /// No assistance.
    EndToEnd,
    /// Repair, and datagrams in order below an unmodified client.
    Packrat,
    /// Repair without hold.
    RepairOnly,
    /// Two QUIC connections joined at the gateway.
    Split,
    /// No loss, and no assistance.
    Ideal,
}

packrat_emulation::choices!(Arm, "arm", [
    EndToEnd "end-to-end",
    Packrat "packrat",
    RepairOnly "repair-only",
    Split "split",
    Ideal "ideal",
]);

/// A trial: one download, or the traffic of its scenario.
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
    /// The client's QUIC stack.
    pub receiver: ReceiverStack,
    /// Decides everything random.
    pub seed: u64,
    /// The client of the arms that have one.
    pub client: ClientConfig,
    /// The gateway of the arms that have one.
    pub gateway: GatewayConfig,
    /// Earlier downloads through the same gateway, each a trial in another network: the gateway
    /// keeps its findings about the servers.
    pub warm: u8,
    /// The client has downloaded through the same gateway before, and both remember the losses of its
    /// last mile.
    pub known: bool,
    /// Knowledge that the last mile gives assisted clients, whose shims are then at their hosts.
    pub oracle: Option<Oracle>,
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

/// A trial's result; one JSON line. If there are several flows, all fields but `competition`,
/// `flows` and `links` belong to the first connection of the first flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialResult {
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
    /// The sharing of the bottleneck, if there are other downloads.
    pub competition: Option<Fairness>,
    /// All flows, if the scenario has traffic.
    pub flows: Vec<FlowResult>,
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
    /// Mbit/s of each of the others that take as much as they can in the same direction.
    pub others_mbps: Vec<f64>,
    /// Goodput of the measured download, over the mean of all: 1 is fair.
    pub share: f64,
    /// Jain's index of all: 1 is fair, one over their number is that one has everything.
    pub jain: f64,
}

impl Fairness {
    /// The shares of the first flow and its competitors.
    fn new(flows: &[FlowResult], jain: f64) -> Self {
        let others = flows[1..].iter().filter(|flow| flow.share.is_some());
        let others = others.filter(|flow| flow.direction == flows[0].direction);
        Self {
            others_mbps: others.map(|other| other.goodput_mbps).collect(),
            share: flows[0].share.unwrap_or(1.0),
            jain,
        }
    }
}

impl Trial {
    /// The operator names the servers' congestion control.
    pub(crate) fn name_sender(&mut self) {
        self.gateway.sender = self.sender.answer();
    }

    /// A trial with the client's and the gateway's default configuration.
    pub fn new(scenario: Scenario, arm: Arm, sender: Sender, seed: u64) -> Self {
        let mut client = ClientConfig::default();
        if arm == Arm::RepairOnly {
            client.access.maximum_hold = Duration::ZERO;
        }
        let mut gateway = GatewayConfig::default();
        // These links have no limit. Servers that probe up to 1500 bytes have room for a number.
        gateway.longest_packet += NUMBER_LENGTH as u16;
        Self {
            scenario,
            arm,
            sender,
            split_sender: sender,
            receiver: ReceiverStack::S2n,
            seed,
            client,
            gateway,
            warm: 0,
            known: false,
            oracle: None,
        }
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
        let senders = Arc::new(SenderMemory::default());
        let run = || {
            // Without assistance there is no memory.
            let warm =
                if matches!(self.arm, Arm::Packrat | Arm::RepairOnly) { self.warm } else { 0 };
            // Makes each session a trial: the default would need eight times as many sessions.
            let gateway = GatewayConfig { sender_trials: 1, ..self.gateway };
            for network in 1..=warm {
                let seed = self.seed ^ (u64::from(network) << 32);
                let before = Self { seed, gateway, ..self.clone() };
                before.simulate(false, Arc::clone(&senders), Arc::default(), network)?;
            }
            let memory = Arc::<LossMemory>::default();
            if self.known {
                let mut before = Self { seed: self.seed ^ (1 << 60), ..self.clone() };
                (before.scenario.size, before.scenario.traffic) = (KNOWN_BY, None);
                before.simulate(false, Arc::clone(&senders), Arc::clone(&memory), 0)?;
            }
            self.simulate(tracing, Arc::clone(&senders), memory, 0)
        };
        run().map_err(|reason| TrialError {
            scenario: self.scenario.name.clone(),
            arm: self.arm.name(),
            sender: self.sender.name(),
            seed: self.seed,
            reason,
        })
    }

    fn simulate(
        &self,
        tracing: bool,
        senders: Arc<SenderMemory>,
        memory: Arc<LossMemory>,
        network: u8,
    ) -> Result<(TrialResult, Vec<TraceEvent>), String> {
        let scenario = match self.arm {
            Arm::Ideal => self.scenario.clone().without_loss(),
            _ => self.scenario.clone(),
        };
        let plan =
            Plan::new(&scenario, self.arm, self.sender).map_err(|error| error.to_string())?;
        let assisted = plan.flows.iter().any(PlannedFlow::is_assisted);
        let classifies = self.oracle.is_some_and(Oracle::classifies);
        let config = GatewayConfig { queues_lose: !classifies, ..self.gateway };
        let gateway = assisted.then(|| GatewayNode::new(config, self.seed, senders, network));
        let world = World::new(&scenario, self.seed, gateway, tracing);
        world.ask(self.oracle);
        let flows: Vec<Vec<Flow>> = plan
            .flows
            .iter()
            .enumerate()
            .map(|(number, flow)| {
                let flow =
                    (0..flow.connections.len()).map(|n| Flow::new(tracing && number + n == 0));
                flow.collect()
            })
            .collect();
        let (of_world, of_flows, of_plan) = (world.clone(), flows.clone(), plan.clone());
        let of_scenario = scenario.clone();
        test_seed(world.clone(), self.seed, move |handle| {
            let clock = VirtualClock::new();
            spawn(of_world.start(clock));
            tls::begin_trial(self.seed);
            let simulation = Simulation {
                handle,
                clock,
                world: &of_world,
                certificate: certificate::fixed()?,
                memory,
            };
            let mut number = 0_u64;
            for (flow, connections) in of_plan.flows.iter().zip(&of_flows) {
                let own =
                    |own: bool| if own { of_world.add_links(&of_scenario, self.seed) } else { 0 };
                let segments = [own(flow.own_far), own(flow.own_last_mile)];
                for (place, connection) in connections.iter().enumerate() {
                    // At the client's host, or in the I/O provider of its stack.
                    let config = flow.is_assisted().then(|| self.client_of(flow));
                    let receiver = self.receiver_of(flow);
                    let at_host = receiver == ReceiverStack::Quinn || self.oracle.is_some();
                    let (below, config) = if at_host { (config, None) } else { (None, config) };
                    let seed = self.seed ^ (number << 48);
                    let setup = FlowSetup {
                        sender: flow.sender,
                        corrupted: of_scenario.corruption(),
                        start: flow.start,
                        after: (flow.in_turn && place > 0).then(|| connections[place - 1].clone()),
                        segments,
                        work: flow.connections[place].clone(),
                        end: of_plan.limit,
                        settled_at: of_plan.settled_at,
                        receiver,
                        // Each connection draws from randomness of its own.
                        seed,
                        split: (flow.arm == Arm::Split).then(|| self.split_sender(flow)),
                        config,
                    };
                    let client = connection.start(&simulation, setup)?;
                    if number == 0 {
                        of_world.follow(client);
                    }
                    if let Some(config) = below {
                        of_world.put_shim(client, ShimNode::new(config, seed, clock.now()));
                    }
                    number += 1;
                }
            }
            Ok(())
        })
        .map_err(|error| error.to_string())?;
        let mut outcomes = Vec::new();
        for flow in &flows {
            let flow: Option<Vec<_>> = flow.iter().map(Flow::outcome).collect();
            let mut flow = flow.ok_or("the simulation ended before a download")?;
            for FlowOutcome { download, client, .. } in &mut flow {
                if let Some(assistance) = world.shim_figures(*client) {
                    download.assistance.assist = assistance;
                }
            }
            outcomes.push(flow);
        }
        let mut result = self.result(&scenario, &plan, &outcomes[0][0], &world);
        if self.scenario.traffic.is_some() {
            let flows = plan.flows.iter().zip(&outcomes);
            result.flows =
                flows.map(|(flow, outcomes)| FlowResult::new(flow, outcomes, &world)).collect();
            let jain = share_out(&plan.flows, &mut result.flows);
            result.competition = jain.map(|jain| Fairness::new(&result.flows, jain));
        }
        let trace = match outcomes.swap_remove(0).into_iter().next() {
            Some(measured) if tracing => {
                trace::complete(measured, &world, plan.flows[0].direction == FlowDirection::Up)
            }
            _ => Vec::new(),
        };
        Ok((result, trace))
    }

    /// The sender at the gateway of a flow whose connection is split.
    fn split_sender(&self, flow: &PlannedFlow) -> Sender {
        if flow.sender == self.sender { self.split_sender } else { flow.sender }
    }

    /// The client's stack: its sender's, if the client sends.
    fn receiver_of(&self, flow: &PlannedFlow) -> ReceiverStack {
        match flow.direction {
            FlowDirection::Up if flow.sender.is_of_quinn() => ReceiverStack::Quinn,
            FlowDirection::Up => ReceiverStack::S2n,
            FlowDirection::Down => self.receiver,
        }
    }

    /// The client's configuration of a flow.
    fn client_of(&self, flow: &PlannedFlow) -> ClientConfig {
        let mut client = self.client.clone();
        client.queues_lose = !self.oracle.is_some_and(Oracle::classifies);
        if flow.direction == FlowDirection::Up {
            // The application knows its transport's congestion control.
            let answer = flow.sender.answer();
            client.uploads = answer != SenderAnswer::Never;
            client.tolerates_losses = answer == SenderAnswer::AboveTolerance;
        }
        if flow.arm == Arm::RepairOnly {
            client.access.maximum_hold = Duration::ZERO;
        } else if self.arm == Arm::RepairOnly {
            client.access.maximum_hold = ClientConfig::default().access.maximum_hold;
        }
        client
    }

    fn result(
        &self,
        scenario: &Scenario,
        plan: &Plan,
        outcome: &FlowOutcome,
        world: &World,
    ) -> TrialResult {
        let FlowOutcome { download, sender, receiving, client } = outcome;
        let path = world.counters(*client);
        let gateway = world.gateway_figures(*client);
        let flow = &plan.flows[0];
        let assist = &download.assistance.assist;
        let counters = &gateway.counters;
        let arrived = |number: &&u64| download.has_received(**number);
        let ended = assist.filled_in_time + assist.expired;
        TrialResult {
            scenario: self.scenario.name.clone(),
            arm: flow.arm,
            sender: flow.sender,
            receiver: self.receiver,
            loss: scenario.last_mile.loss,
            burst: scenario.last_mile.burst,
            queue: scenario.queue,
            seed: self.seed,
            goodput_mbps: download.goodput_mbps(),
            seconds: download.seconds,
            first_byte: download.first_byte,
            complete: flow.is_open_ended() || download.work.complete,
            failure: download.failure.clone(),
            lost_last_mile: path.client.down.lost,
            repaired: counters.repairs,
            repaired_late: assist.filled_late,
            spurious: sender.declared_lost.iter().filter(arrived).count() as u64,
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
            declared_lost: sender.declared_lost.len() as u64,
            congestion_events: sender.congestion_events,
            skipped: sender.skipped,
            queue_dropped: match scenario.traffic {
                Some(_) => path.client.down.queue_dropped,
                None => path.far_down.queue_dropped + path.last_mile_down.queue_dropped,
            },
            far_dropped: path.far_down.queue_dropped,
            expired: assist.expired,
            settled: assist.settled,
            too_old: receiving.too_old,
            unrepaired: [counters.repairs_late, counters.repairs_evicted, counters.budget_refusals],
            window: [
                sender.window_sum / sender.window_samples.max(1) as f64,
                f64::from(sender.window_most),
            ],
            slow_start_ended: sender.slow_start_ended,
            links: LinkFigures::new(&path),
            competition: None,
            flows: Vec::new(),
        }
    }
}
