//! `packrat lab`.

use crate::batch::{self, Progress};
use crate::figures::{self, FigureError, Recipe, Settings};
use crate::observer::TraceEvent;
use crate::oracle::Oracle;
use crate::receiver::ReceiverStack;
use crate::sender::Sender;
use crate::table;
use crate::traffic::plan::Plan;
use crate::trial::{Arm, Trial};
use clap::{Args, Subcommand};
use packrat_emulation::scenario::{QueueKind, Scenario, ScenarioError, Traffic};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Options of `packrat lab`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run trials and print their results
    Run(Run),
    /// Run one trial, print everything that happened in it, one JSON object per event, and draw it
    Trace(Trace),
    /// Make figures of the paper: NAME.json, NAME.csv and NAME.svg
    Figure(Figures),
    /// Make all figures
    Figures(Making),
    /// Measure the field matrix: where assistance helps and where it harms on the last miles that
    /// people have
    Field(crate::field::Field),
    /// Measure segments of paths, sender by sender, and predict what splitting two of them gains
    Sweep(crate::sweep::Sweep),
    /// Measure the cost of assistance to others and to its own user: shares, objects, pages, video,
    /// uploads
    Harm(crate::harm::Harm),
    /// Measure the time to the first byte of short connections, with copies of thin datagrams and
    /// without
    FirstByte(crate::first_byte::FirstByte),
    /// Live streams: media (one receiver), multicast (many)
    Live(crate::live::command::Options),
}

#[derive(Debug, Args)]
struct Trace {
    #[command(flatten)]
    run: Run,
    /// The picture's file [default: SCENARIO-SENDER-ARM-SEED.svg]
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// The picture begins at this second
    #[arg(long, default_value_t = 0.0)]
    from: f64,
    /// The picture ends at this second [default: at the end of the download]
    #[arg(long)]
    to: Option<f64>,
}

#[derive(Debug, Args)]
struct Figures {
    /// fig3, fig4, fig5, fig5red, fig6, fig7, fig8, fig8b, fig9, fig9cd, fig10, fig11, fig11b, table2, eacks,
    /// competing; of other papers: rquic, ceten, quacks, sidekick4, sidekick5, sidekick6, sidekick7, sidekick9
    #[arg(required = true)]
    name: Vec<String>,
    #[command(flatten)]
    making: Making,
}

#[derive(Debug, Args)]
struct Making {
    /// The folder for the files
    #[arg(long, short, default_value = "docs/figures")]
    output: PathBuf,
    /// Measure nothing: draw the pictures of NAME.json in the folder
    #[arg(long)]
    redraw: bool,
    /// Bytes of a download
    #[arg(long, default_value_t = 10_000_000)]
    size: u64,
    /// Trials of each kind
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Trials at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

#[derive(Debug, Args)]
struct Run {
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
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// The seeds 1001, 1002 …, on which no constant was chosen
    #[arg(long, conflicts_with = "first_seed")]
    held_out: bool,
    /// Trials at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Bytes of a download instead of the scenario's
    #[arg(long)]
    size: Option<u64>,
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
    /// One JSON object per trial instead of a table of medians
    #[arg(long)]
    json: bool,
}

pub(crate) fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.0..1.0).contains(&share) {
        Ok(share)
    } else {
        Err("it must be at least 0 and below 1".to_owned())
    }
}

fn burst(text: &str) -> Result<f64, String> {
    let burst: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if burst >= 1.0 && burst.is_finite() {
        Ok(burst)
    } else {
        Err("it must be at least 1".to_owned())
    }
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
pub struct Real {
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
/// The first seed of those on which no constant was chosen.
pub(crate) const HELD_OUT: u64 = 1001;
/// The arms that real servers can have.
const REAL_ARMS: [Arm; 3] = [Arm::EndToEnd, Arm::Packrat, Arm::Ideal];

impl Options {
    /// The trials of `--real`; [`run`] does not run them.
    ///
    /// # Errors
    /// A message, when there is no such scenario, or the request cannot be met in real time.
    pub fn real(&self) -> Option<Result<Real, String>> {
        let Action::Run(run) = &self.action else { return None };
        run.real.then(|| run.in_real_time())
    }
}

/// Runs the command in virtual time; its exit code.
pub fn run(options: &Options) -> ExitCode {
    if options.real().is_some() {
        eprintln!(
            "error: --real starts Envoy and Caddy: cargo run --release -p packrat --features lab -- lab run …"
        );
        return ExitCode::FAILURE;
    }
    let outcome = match &options.action {
        Action::Run(run) => {
            run.trials().map(|trials| run_all(run, &trials)).map_err(FigureError::from)
        }
        Action::Trace(trace) => trace.draw(),
        Action::Figure(Figures { name, making }) => {
            let recipes: Result<Vec<_>, _> =
                name.iter().map(|name| figures::recipe(name)).collect();
            recipes.and_then(|recipes| making.make(&recipes))
        }
        Action::Field(field) => {
            if let Err(error) = field.run() {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Sweep(sweep) => {
            if let Err(error) = sweep.run() {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Harm(harm) => {
            if let Err(error) = harm.run() {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::FirstByte(measurement) => measurement.run().map_err(FigureError::from),
        Action::Live(live) => Ok(crate::live::command::run(live)),
        Action::Figures(making) => making.make(&figures::ALL_RECIPES.iter().collect::<Vec<_>>()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

impl Making {
    fn make(&self, recipes: &[&Recipe]) -> Result<ExitCode, FigureError> {
        if self.redraw {
            figures::redraw(recipes, &self.output)?;
            return Ok(ExitCode::SUCCESS);
        }
        let settings = Settings { size: self.size, seeds: self.seeds, jobs: self.jobs };
        figures::make(recipes, settings, &self.output)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn run_all(run: &Run, trials: &[Trial]) -> ExitCode {
    let mut results = Vec::new();
    let mut failed = false;
    let mut progress = Progress::new(trials.len() as u64);
    let outcome: io::Result<()> = batch::run(trials, run.jobs, |result| {
        progress.tick();
        match result {
            Ok(result) if run.json => {
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
    if outcome.is_ok() && !run.json {
        let _ = write!(io::stdout().lock(), "{}", table::markdown(&results));
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

impl Trace {
    fn draw(&self) -> Result<ExitCode, FigureError> {
        let trials = self.run.trials()?;
        let [trial] = &trials[..] else {
            eprintln!(
                "error: these are {} trials; name one arm, one sender, one loss, and --seeds 1",
                trials.len()
            );
            return Ok(ExitCode::FAILURE);
        };
        let (result, events) = trial.trace()?;
        let end = events.last().map_or(0.0, TraceEvent::at);
        let (from, to) = (self.from, self.to.unwrap_or(end));
        let name = format!(
            "{}-{}-{}-{}",
            result.scenario,
            result.sender.name(),
            result.arm.name(),
            result.seed
        );
        let path = self.output.clone().unwrap_or_else(|| format!("{name}.svg").into());
        let svg = figures::timeline(&result, &events, from..to)?;
        std::fs::write(&path, svg)
            .map_err(|source| FigureError::Write { path: path.clone(), source })?;
        eprintln!("The picture is in {}.", path.display());
        let mut out = io::BufWriter::new(io::stdout().lock());
        for event in events {
            // A reader that has gone away wants no more.
            if serde_json::to_writer(&mut out, &event).is_err() || writeln!(out).is_err() {
                return Ok(ExitCode::SUCCESS);
            }
        }
        let _ = serde_json::to_writer(&mut out, &result).map(|()| writeln!(out));
        Ok(ExitCode::SUCCESS)
    }
}

impl Run {
    fn trials(&self) -> Result<Vec<Trial>, ScenarioError> {
        let mut scenario = Scenario::load(&self.scenario)?;
        if let Some(traces) = &self.traces {
            scenario = scenario.with_traces(traces)?;
        }
        if let Some(traffic) = &self.traffic {
            scenario = scenario.with_traffic(Traffic::load(traffic)?);
        }
        scenario.size = self.size.unwrap_or(scenario.size);
        let losses = choose(&self.loss, &[], scenario.last_mile.loss);
        let bursts = choose(&self.burst, &scenario.vary.burst, scenario.last_mile.burst);
        let queues = choose(&self.queue, &scenario.vary.queue, scenario.queue);
        let senders = choose(&self.sender, &[], Sender::S2nCubic);
        // A mistake in the traffic is a mistake of its file.
        for &sender in &senders {
            Plan::new(&scenario, Arm::Packrat, sender)?;
        }
        let competes = Plan::new(&scenario, Arm::Packrat, senders[0])?.competes();
        let arms = if competes { &COMPETING_ARMS[..] } else { &Arm::ALL[..] };
        let arms = choose(&self.arm, arms, Arm::Packrat);
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

    fn in_real_time(&self) -> Result<Real, String> {
        if !self.sender.is_empty() {
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
        if let Some(arm) = self.arm.iter().find(|arm| !REAL_ARMS.contains(arm)) {
            let known = REAL_ARMS.map(Arm::name).join(", ");
            return Err(format!(
                "in real time there is no arm {}; choose one of {known}",
                arm.name()
            ));
        }
        trials.retain(|trial| REAL_ARMS.contains(&trial.arm));
        Ok(Real {
            trials,
            parts: self.parts.clone(),
            alternatives: self.alternative.clone(),
            neighbour: self.neighbour,
            patience: self.patience,
            json: self.json,
        })
    }

    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let first = if self.held_out { HELD_OUT } else { self.first_seed };
        (first..).take(self.seeds as usize)
    }

    fn trial(&self, scenario: &Scenario, arm: Arm, sender: Sender, seed: u64) -> Trial {
        let mut trial = Trial::new(scenario.clone(), arm, sender, seed);
        trial.receiver = self.receiver;
        if let Some(hold) = self.maximum_hold
            && arm != Arm::RepairOnly
        {
            trial.client.access.maximum_hold = Duration::from_millis(hold);
        }
        if let Some(budget) = self.repair_budget {
            trial.gateway.repair_budget = budget;
        }
        if self.name_senders {
            trial.name_sender();
        }
        trial.warm = self.warm;
        trial.known = self.known;
        trial.oracle = self.oracle;
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
