//! `packrat-lab`, and `packrat lab`.

mod run;
mod timeline;
mod trace;

use clap::{Args, Subcommand};
pub use run::RealTrials;
use std::process::ExitCode;

/// Options of `packrat-lab`.
#[derive(Debug, Args)]
pub struct LabOptions {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run trials and print their results
    Run(run::Run),
    /// Run one trial, print everything that happened in it, one JSON object per event, and draw it
    Trace(trace::Trace),
    /// Measure the field matrix: where assistance helps and where it harms on the last miles that
    /// people have
    Field(crate::field::Field),
    /// Measure the cost of assistance to others and to its own user: shares, objects, pages, video,
    /// uploads
    Harm(crate::harm::Harm),
    /// Measure the time to the first byte of short connections, with copies of thin datagrams and
    /// without
    FirstByte(crate::first_byte::FirstByte),
    /// Live streams: media (one receiver), multicast (many)
    Live(crate::live::command::LiveOptions),
}

impl LabOptions {
    /// The trials of `--real`; [`run()`] does not run them.
    ///
    /// # Errors
    /// A message, when there is no such scenario, or the request cannot be met in real time.
    pub fn real(&self) -> Option<Result<RealTrials, String>> {
        let Action::Run(run) = &self.action else { return None };
        run.is_real().then(|| run.in_real_time())
    }
}

/// Runs the command in virtual time; its exit code.
pub fn run(options: &LabOptions) -> ExitCode {
    if options.real().is_some() {
        eprintln!(
            "error: --real starts Envoy and Caddy: cargo run --release -p packrat --features lab -- lab run …"
        );
        return ExitCode::FAILURE;
    }
    let outcome = match &options.action {
        Action::Run(run) => run.run(),
        Action::Trace(trace) => trace.run(),
        Action::Field(field) => field.run(),
        Action::Harm(harm) => harm.run(),
        Action::FirstByte(measurement) => measurement.run(),
        Action::Live(live) => live.run(),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}
