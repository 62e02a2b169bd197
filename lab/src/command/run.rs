//! `packrat-lab run`.

use crate::arguments::{burst, seed, share};
use crate::batch::{self, Progress};
use crate::network::Oracle;
use crate::stacks::{ReceiverStack, Sender};
use crate::tables;
use crate::trial::{Arm, HELD_OUT, Plan, Trial};
use clap::Args;
use packrat_emulation::scenario::{QueueKind, Scenario, ScenarioError, Traffic};
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Options of `packrat-lab run`.
#[derive(Debug, Args)]
pub(super) struct Run {
    #[command(flatten)]
    path: TrialPaths,
    #[command(flatten)]
    kinds: TrialKinds,
    /// Trials at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Bytes of a download instead of the scenario's
    #[arg(long)]
    size: Option<u64>,
    #[command(flatten)]
    assistance: AssistanceOptions,
    #[command(flatten)]
    real_time: RealTimeOptions,
    /// One JSON object per trial instead of a table of medians
    #[arg(long)]
    json: bool,
}

/// The paths of the trials.
#[derive(Debug, Args)]
struct TrialPaths {
    /// wifi, cellular, satellite, sat_long, wifi_burst, competing, policed, uplink, rquic_wifi, rquic_cellular,
    /// rquic_satellite, ceten, a path of the field matrix
    /// (ingress_wifi …), a profile (lte_edge …), or a TOML file
    scenario: String,
    /// The folder of the recordings that a profile names; without it constant values stand for them
    #[arg(long)]
    traces: Option<PathBuf>,
    /// neighbour, bbr_beside_cubic, joining, dumbbell, objects, objects_beside, sessions, page,
    /// video, upload, put, household, or a TOML file: replaces the scenario's traffic, or the
    /// single download
    #[arg(long)]
    traffic: Option<String>,
    /// Loss of the last mile instead of the scenario's, 0 to 1; may be repeated
    #[arg(long, value_parser = share)]
    loss: Vec<f64>,
    /// Mean number of datagrams lost in a row, instead of the scenario's; may be repeated
    #[arg(long, value_parser = burst)]
    burst: Vec<f64>,
    /// drop-tail, red: replaces the scenario's queues; may be repeated
    #[arg(long)]
    queue: Vec<QueueKind>,
}

/// The senders, arms and seeds of the trials.
#[derive(Debug, Args)]
struct TrialKinds {
    /// s2n-cubic, s2n-bbr, quinn-cubic, quinn-newreno, quinn-bbr, noq-cubic, noq-bbr3; may be
    /// repeated [default: s2n-cubic]
    #[arg(long)]
    sender: Vec<Sender>,
    /// s2n-quic or quinn: the client's stack
    #[arg(long, default_value = "s2n-quic")]
    receiver: ReceiverStack,
    /// end-to-end, packrat, repair-only, split, ideal; may be repeated [default: all, without ideal
    /// if flows compete]
    #[arg(long)]
    arm: Vec<Arm>,
    /// Trials of each kind, with the seeds 1, 2, 3 …
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1, value_parser = seed)]
    first_seed: u64,
    /// The seeds 1001, 1002 …, on which no constant was chosen
    #[arg(long, conflicts_with = "first_seed")]
    held_out: bool,
}

/// The assistance of the trials, and its knowledge.
#[derive(Debug, Args)]
struct AssistanceOptions {
    /// Longest time that a datagram waits for one before it, milliseconds, instead of the client's default
    #[arg(long)]
    maximum_hold: Option<u64>,
    /// Repairs as a share of the forwarded bytes, instead of the gateway's default
    #[arg(long)]
    repair_budget: Option<f64>,
    /// The operator has named the servers' congestion control (packrat.dev/config.sender)
    #[arg(long)]
    name_senders: bool,
    /// Downloads before the measured one, each a trial in another network: the gateway keeps its
    /// findings about the servers
    #[arg(long, default_value_t = 0)]
    warm: u8,
    /// The client has downloaded through the same gateway before: both remember the losses of its last
    /// mile
    #[arg(long)]
    known: bool,
    /// classification, repair, both: the last mile reports the losses of its queue to assisted
    /// clients, or delivers the medium's losses 5 ms later, to measure a bound
    #[arg(long, conflicts_with = "real")]
    oracle: Option<Oracle>,
}

/// Trials in real time.
#[derive(Debug, Args)]
struct RealTimeOptions {
    /// Real time: real Envoy, real Caddy, the emulated path between real sockets (only as `packrat
    /// lab`)
    #[arg(long)]
    real: bool,
    /// bbr, packrat-bbr, terminated, terminated-bbr2, terminated-cubic, hysteria, hysteria-rate,
    /// kcp: alternatives for users, in the same run (only with --real); may be repeated
    #[arg(long, value_name = "NAME", requires = "real")]
    alternative: Vec<String>,
    /// Beside each download an unassisted one on the same last mile (only with --real)
    #[arg(long, requires = "real")]
    neighbour: bool,
    /// Seconds after which a download is stopped that is slow for a reason (only with --real)
    #[arg(long, requires = "real", default_value_t = 600)]
    patience: u64,
    /// Folder of Envoy and Caddy as `make demo` installed them, for --real
    #[arg(long, default_value = ".packrat")]
    parts: PathBuf,
}

/// The requested values, or else the scenario's, or else the default.
fn choose<T: Clone>(asked: &[T], vary: &[T], one: T) -> Vec<T> {
    [asked, vary]
        .into_iter()
        .find(|values| !values.is_empty())
        .map_or_else(|| vec![one], <[T]>::to_vec)
}

/// Trials to run in real time.
#[derive(Debug)]
pub struct RealTrials {
    /// The trials; their `sender` is ignored.
    pub trials: Vec<Trial>,
    /// The directory of Envoy and Caddy.
    pub parts: PathBuf,
    /// The names of arms to measure beside the trials' arms.
    pub alternatives: Vec<String>,
    /// True if an unassisted download shares the last mile.
    pub neighbour: bool,
    /// Seconds after which a slow download is stopped.
    pub patience: u64,
    /// True if results are printed as JSON.
    pub json: bool,
}

/// The arms of flows that compete, unless others are named.
const COMPETING_ARMS: [Arm; 4] = [Arm::EndToEnd, Arm::Packrat, Arm::RepairOnly, Arm::Split];
/// The arms that real servers can have.
const REAL_ARMS: [Arm; 3] = [Arm::EndToEnd, Arm::Packrat, Arm::Ideal];

impl Run {
    /// Runs the trials in virtual time, and prints their results.
    pub(super) fn run(&self) -> Result<ExitCode, Box<dyn Error>> {
        let trials = self.trials()?;
        let mut results = Vec::new();
        let mut failed = false;
        let mut progress = Progress::new(trials.len() as u64);
        let outcome: io::Result<()> = batch::run(&trials, self.jobs, |result| {
            progress.tick();
            match result {
                Ok(result) if self.json => {
                    let mut out = io::stdout().lock();
                    serde_json::to_writer(&mut out, &result)?;
                    writeln!(out)?;
                }
                Ok(result) => results.push(result),
                Err(error) => {
                    failed = true;
                    eprintln!("error: {error}");
                }
            }
            Ok(())
        });
        // A reader that has gone away, like `head`, wants no more; that is no failure of the trials.
        if outcome.is_ok() && !self.json {
            let _ = write!(io::stdout().lock(), "{}", tables::markdown(&results));
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// True if the trials are to run in real time.
    pub(super) fn is_real(&self) -> bool {
        self.real_time.real
    }

    pub(super) fn trials(&self) -> Result<Vec<Trial>, ScenarioError> {
        let mut scenario = Scenario::load(&self.path.scenario)?;
        if let Some(traces) = &self.path.traces {
            scenario = scenario.with_traces(traces)?;
        }
        if let Some(traffic) = &self.path.traffic {
            scenario = scenario.with_traffic(Traffic::load(traffic)?);
        }
        scenario.size = self.size.unwrap_or(scenario.size);
        let losses = choose(&self.path.loss, &[], scenario.last_mile.loss);
        let bursts = choose(&self.path.burst, &scenario.vary.burst, scenario.last_mile.burst);
        let queues = choose(&self.path.queue, &scenario.vary.queue, scenario.queue);
        let senders = choose(&self.kinds.sender, &[], Sender::S2nCubic);
        // A mistake in the traffic is a mistake of its file.
        for &sender in &senders {
            Plan::new(&scenario, Arm::Packrat, sender)?;
        }
        let competes = Plan::new(&scenario, Arm::Packrat, senders[0])?.competes();
        let arms = if competes { &COMPETING_ARMS[..] } else { &Arm::ALL[..] };
        let arms = choose(&self.kinds.arm, arms, Arm::Packrat);
        let mut trials = Vec::new();
        for queue in queues {
            for &burst in &bursts {
                for &loss in &losses {
                    let scenario =
                        scenario.clone().with_queue(queue).with_burst(burst).with_loss(loss);
                    for &sender in &senders {
                        for &arm in &arms {
                            trials.extend(
                                self.seeds().map(|seed| self.trial(&scenario, arm, sender, seed)),
                            );
                        }
                    }
                }
            }
        }
        Ok(trials)
    }

    pub(super) fn in_real_time(&self) -> Result<RealTrials, String> {
        if !self.kinds.sender.is_empty() {
            return Err("in real time Caddy sends; leave --sender out".to_owned());
        }
        let mut trials = self.trials().map_err(|error| error.to_string())?;
        for trial in &trials {
            let scenario = trial.scenario.clone();
            scenario.require_constant_links().map_err(|error| error.to_string())?;
        }
        if trials.iter().any(|trial| trial.scenario.traffic.is_some()) {
            return Err(
                "in real time there is one download at a time; choose another scenario".to_owned()
            );
        }
        if let Some(arm) = self.kinds.arm.iter().find(|arm| !REAL_ARMS.contains(arm)) {
            let known = REAL_ARMS.map(Arm::name).join(", ");
            return Err(format!(
                "in real time there is no arm {}; choose one of {known}",
                arm.name()
            ));
        }
        trials.retain(|trial| REAL_ARMS.contains(&trial.arm));
        Ok(RealTrials {
            trials,
            parts: self.real_time.parts.clone(),
            alternatives: self.real_time.alternative.clone(),
            neighbour: self.real_time.neighbour,
            patience: self.real_time.patience,
            json: self.json,
        })
    }

    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let first = if self.kinds.held_out { HELD_OUT } else { self.kinds.first_seed };
        (first..).take(self.kinds.seeds as usize)
    }

    fn trial(&self, scenario: &Scenario, arm: Arm, sender: Sender, seed: u64) -> Trial {
        let mut trial = Trial::new(scenario.clone(), arm, sender, seed);
        trial.receiver = self.kinds.receiver;
        if let Some(hold) = self.assistance.maximum_hold
            && arm != Arm::RepairOnly
        {
            trial.client.access.maximum_hold = Duration::from_millis(hold);
        }
        if let Some(budget) = self.assistance.repair_budget {
            trial.gateway.repair_budget = budget;
        }
        if self.assistance.name_senders {
            trial.name_sender();
        }
        trial.warm = self.assistance.warm;
        trial.known = self.assistance.known;
        trial.oracle = self.assistance.oracle;
        trial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_comes_before_what_the_scenario_varies() {
        assert_eq!(choose(&[1, 2], &[3], 4), [1, 2]);
        assert_eq!(choose(&[], &[3], 4), [3]);
        assert_eq!(choose(&[], &[], 4), [4]);
    }
}
