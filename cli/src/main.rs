//! The `packrat` command.
#![forbid(unsafe_code)]

mod demo;
mod get;
mod inject;
#[cfg(feature = "lab")]
mod lab;
mod operate;
mod recv;

use clap::{CommandFactory, Parser, Subcommand};
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Loss repair for encrypted UDP transports, with the help of a gateway at the edge
#[derive(Debug, Parser)]
#[command(version, about)]
struct Command {
    #[command(subcommand)]
    subcommand: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Download a file over HTTP/3; a Packrat gateway on the path is found and used by itself
    Get(get::command::Options),
    /// Receive a gateway's live stream: RTP, SRTP or anything else, repaired and in order
    Recv(recv::Options),
    /// Show on this machine what a gateway does for a download over a lossy network
    Demo(demo::Options),
    /// Add the gateway as a sidecar to the Pods of a Kubernetes manifest that ask for it
    Inject(inject::Options),
    /// Check whether a gateway is well; the exit code is 1 when it is not
    Check(operate::check::Options),
    /// Show what a gateway does for its routes
    Stat(operate::stat::Options),
    /// Watch live sessions
    Top(operate::top::Options),
    /// Watch events as they happen
    Tap(operate::tap::Options),
    /// Say whether assistance pays on a path, by how much, and if not, why not
    Plan(operate::plan::Options),
    /// Collect what a report about a gateway needs, without secrets
    Diagnose(operate::diagnose::Options),
    /// Print completions for a shell
    Completions(operate::completions::Options),
    /// Print the manual page
    Man(operate::completions::ManOptions),
    /// Print versions
    Version(operate::version::Options),
    /// Try senders, networks and arms in virtual time, or in real time
    #[cfg(feature = "lab")]
    Lab(packrat_virtual_lab::command::Options),
}

fn main() -> ExitCode {
    let command = Command::parse();
    // Silent unless asked: PACKRAT_LOG=debug, or any filter of tracing-subscriber.
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_env("PACKRAT_LOG").unwrap_or_else(|_| EnvFilter::new("off")))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match command.subcommand {
        Subcommands::Get(options) => get::command::run(options),
        Subcommands::Recv(options) => recv::run(&options),
        Subcommands::Demo(options) => demo::run(&options),
        Subcommands::Inject(options) => inject::run(&options),
        Subcommands::Check(options) => operate::check::run(&options),
        Subcommands::Stat(options) => operate::stat::run(&options),
        Subcommands::Top(options) => operate::top::run(&options),
        Subcommands::Tap(options) => operate::tap::run(&options),
        Subcommands::Plan(options) => operate::plan::run(&options),
        Subcommands::Diagnose(options) => operate::diagnose::run(&options),
        Subcommands::Completions(options) => operate::completions::run(&options, Command::command()),
        Subcommands::Man(options) => operate::completions::run_man(&options, Command::command()),
        Subcommands::Version(options) => operate::version::run(&options),
        #[cfg(feature = "lab")]
        Subcommands::Lab(options) => lab::run(&options),
    }
}
