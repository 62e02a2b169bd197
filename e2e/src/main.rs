//! Tests of the whole product on real clusters.
//!
//! `packrat-e2e run` creates a cluster, installs the chart as a user does, puts a client outside
//! behind an emulated last mile, and tries one claim after the other. `packrat-e2e path` is the
//! router in between.
#![forbid(unsafe_code)]

mod certificate;
mod claims;
mod cluster;
mod command;
mod connection_tracking;
mod download;
mod impairment;
mod path;
mod run;
mod soak;
mod suite;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "packrat-e2e", version, about = "Tests of the whole product on real clusters")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring a cluster up and try all claims (needs root)
    Run(run::Options),
    /// Be a router that delays and loses packets, until the standard input ends (needs root)
    Path(path::Options),
    /// Make this network namespace forget all flows (needs root)
    ForgetFlows,
    /// Send random datagrams to a gateway
    Garbage(GarbageOptions),
}

#[derive(Debug, Args)]
struct GarbageOptions {
    /// Destination: address:port
    to: String,
    /// Datagrams per second
    rate: u32,
    /// For how long
    seconds: u64,
}

fn main() -> ExitCode {
    let (name, result) = match Arguments::parse().command {
        Command::Run(options) => ("run", run::run(&options)),
        Command::Path(options) => ("path", path::run(&options).map(|()| true).map_err(Into::into)),
        Command::ForgetFlows => {
            ("forget-flows", connection_tracking::flush().map(|()| true).map_err(Into::into))
        }
        Command::Garbage(options) => (
            "garbage",
            claims::send_garbage(&options.to, options.rate, options.seconds).map(|sent| {
                println!("{sent} datagrams");
                true
            }),
        ),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("packrat-e2e {name}: {error}");
            ExitCode::FAILURE
        }
    }
}
