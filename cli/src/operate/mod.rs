//! Commands for operators: `check`, `stat`, `top`, `tap`, `plan`, `explain`, `diagnose`, against the gateways
//! of a cluster or against one.
//!
//! [`target::Target`] finds them: by the kubeconfig, through the API server; or by the URL of
//! Envoy's administration port or of `packrat-gateway --metrics`. Either way the commands ask a
//! [`gateway::AskedGateway`].

mod check;
mod cluster;
mod completions;
mod diagnose;
mod error;
mod explain;
mod gateway;
mod inject;
mod manifest;
mod memory;
mod output;
mod plan;
mod probe;
mod render;
mod stat;
mod tap;
mod target;
mod top;
mod version;

use std::process::ExitCode;

use clap::{Command, Subcommand};

use error::OperateError;

// A doc comment here would become the text of `packrat --help`.
#[derive(Debug, Subcommand)]
pub(crate) enum Operation {
    /// Add the gateway as a sidecar to the Pods of a Kubernetes manifest that ask for it
    Inject(inject::InjectOptions),
    /// Show the routes that the operator would make of a Kubernetes manifest, without a cluster
    Render(render::RenderOptions),
    /// Check whether a gateway is well; the exit code is 1 when it is not
    Check(check::CheckOptions),
    /// Show what a gateway does for its routes
    Stat(stat::StatOptions),
    /// Watch live sessions
    Top(top::TopOptions),
    /// Watch events as they happen
    Tap(tap::TapOptions),
    /// Forecast whether assistance pays on a path, by how much, and if not, why not
    Plan(plan::PlanOptions),
    /// Explain why a client has no benefit, or what benefit it has
    Explain(explain::ExplainOptions),
    /// Collect what a report about a gateway needs, without secrets
    Diagnose(diagnose::DiagnoseOptions),
    /// Print completions for a shell
    Completions(completions::CompletionsOptions),
    /// Print the manual page
    Man(completions::ManOptions),
    /// Print versions
    Version(version::VersionOptions),
}

impl Operation {
    /// Runs it; `command` is the whole command, for completions and the manual.
    pub(crate) fn run(&self, command: Command) -> ExitCode {
        match self {
            Self::Inject(options) => inject::run(options),
            Self::Render(options) => render::run(options),
            Self::Check(options) => check::run(options),
            Self::Stat(options) => finish("stat", stat::stat(options)),
            Self::Top(options) => finish("top", top::top(options)),
            Self::Tap(options) => finish("tap", tap::tap(options)),
            Self::Plan(options) => finish("plan", plan::plan(options)),
            Self::Explain(options) => finish("explain", explain::explain(options)),
            Self::Diagnose(options) => finish("diagnose", diagnose::diagnose(options)),
            Self::Completions(options) => completions::run(options, command),
            Self::Man(options) => completions::run_man(options, command),
            Self::Version(options) => finish("version", version::version(options)),
        }
    }
}

/// Ends a command: prints the error.
fn finish(command: &str, result: Result<ExitCode, OperateError>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("packrat {command}: {error}");
        ExitCode::FAILURE
    })
}

/// Prints which gateways could not be asked; the other answers are incomplete.
fn warn(command: &str, problems: &[OperateError]) {
    for problem in problems {
        eprintln!("packrat {command}: left out: {problem}");
    }
}
