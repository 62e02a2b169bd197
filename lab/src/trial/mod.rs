//! A trial: a scenario, an arm, a sender, a seed.

mod arm;
mod flow;
mod flow_result;
mod plan;
mod result;
mod split;
mod trace;

pub use arm::Arm;
pub use flow_result::{Completions, FlowLosses, FlowResult};
pub(crate) use plan::Plan;
pub use plan::{FlowKind, TIME_LIMIT};
pub use result::{
    AssistanceFigures, DownloadFigures, Fairness, LinkFigures, ReactionFigures, TrialResult,
    TrialSetting,
};

use crate::network::{GatewayNode, Oracle, ShimNode, VirtualNetwork};
use crate::observer::TraceEvent;
use crate::simulation::clock::VirtualClock;
use crate::simulation::{Simulation, certificate, tls};
use crate::stacks::{ReceiverStack, Sender};
use flow::{Flow, FlowOutcome, FlowSetup};
use flow_result::share_out;
use packrat_client::{ClientConfig, LossMemory};
use packrat_emulation::scenario::{FlowDirection, Scenario};
use packrat_engine::{GatewayConfig, SenderAnswer, SenderMemory};
use packrat_wire::number::NUMBER_LENGTH;
use plan::PlannedFlow;
use s2n_quic::provider::io::testing::{spawn, test_seed};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// The first seed of those on which no constant was chosen.
pub const HELD_OUT: u64 = 1001;

/// Bytes of the download by which a client and its gateway know their last mile.
const KNOWN_BY: u64 = 500_000;

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
        let network = VirtualNetwork::new(&scenario, self.seed, gateway, tracing);
        network.ask(self.oracle);
        let flow = |number: usize, place: usize| Flow::new(tracing && number + place == 0);
        let flows = plan.flows.iter().enumerate().map(|(number, planned)| {
            (0..planned.connections.len()).map(|place| flow(number, place)).collect()
        });
        let flows: Vec<Vec<Flow>> = flows.collect();
        test_seed(network.clone(), self.seed, |handle| {
            let clock = VirtualClock::new();
            spawn(network.start(clock));
            tls::begin_trial(self.seed);
            let simulation =
                Simulation { handle, clock, certificate: certificate::fixed()?, memory };
            self.start(&simulation, &network, &scenario, &plan, &flows)
        })
        .map_err(|error| error.to_string())?;
        let mut outcomes =
            outcomes(&flows, &network).ok_or("the simulation ended before a download")?;
        let mut result = TrialResult::new(
            (self.receiver, self.seed),
            &scenario,
            &plan.flows[0],
            &outcomes[0][0],
            &network,
        );
        if self.scenario.traffic.is_some() {
            let flows = plan.flows.iter().zip(&outcomes);
            result.flows =
                flows.map(|(flow, outcomes)| FlowResult::new(flow, outcomes, &network)).collect();
            let jain = share_out(&plan.flows, &mut result.flows);
            result.competition = jain.map(|jain| Fairness::new(&result.flows, jain));
        }
        let trace = match outcomes.swap_remove(0).into_iter().next() {
            Some(measured) if tracing => {
                trace::complete(measured, &network, plan.flows[0].direction == FlowDirection::Up)
            }
            _ => Vec::new(),
        };
        Ok((result, trace))
    }

    /// Starts all flows of the plan, inside the simulation.
    fn start(
        &self,
        simulation: &Simulation<'_>,
        network: &VirtualNetwork,
        scenario: &Scenario,
        plan: &Plan,
        flows: &[Vec<Flow>],
    ) -> Result<(), Box<dyn Error>> {
        let mut number = 0_u64;
        for (flow, connections) in plan.flows.iter().zip(flows) {
            let own = |own: bool| if own { network.add_links(scenario, self.seed) } else { 0 };
            let segments = [own(flow.own_far), own(flow.own_last_mile)];
            for (place, connection) in connections.iter().enumerate() {
                // At the client's host, or in the I/O provider of its stack.
                let config = flow.is_assisted().then(|| self.client_of(flow));
                let receiver = self.receiver_of(flow);
                let at_host = receiver == ReceiverStack::Quinn || self.oracle.is_some();
                let (below, config) = if at_host { (config, None) } else { (None, config) };
                let setup = FlowSetup {
                    sender: flow.sender,
                    corrupted: scenario.corruption(),
                    start: flow.start,
                    after: (flow.in_turn && place > 0).then(|| connections[place - 1].clone()),
                    segments,
                    work: flow.connections[place].clone(),
                    end: plan.limit,
                    settled_at: plan.settled_at,
                    receiver,
                    // Each connection draws from randomness of its own.
                    seed: self.seed ^ (number << 48),
                    split: (flow.arm == Arm::Split).then(|| self.split_sender(flow)),
                    config,
                };
                let seed = setup.seed;
                let client = connection.start(simulation, network, setup)?;
                if number == 0 {
                    network.follow(client);
                }
                if let Some(config) = below {
                    let shim = ShimNode::new(config, seed, simulation.clock.now());
                    network.put_shim(client, shim);
                }
                number += 1;
            }
        }
        Ok(())
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
        client.laboratory.queues_lose = !self.oracle.is_some_and(Oracle::classifies);
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
}

/// The outcomes of all flows; `None` before the end of one.
fn outcomes(flows: &[Vec<Flow>], network: &VirtualNetwork) -> Option<Vec<Vec<FlowOutcome>>> {
    let outcome = |flow: &Flow| {
        let mut outcome = flow.outcome()?;
        if let Some(assistance) = network.shim_figures(outcome.client) {
            outcome.download.assistance.assist = assistance;
        }
        Some(outcome)
    };
    flows.iter().map(|flow| flow.iter().map(outcome).collect()).collect()
}
