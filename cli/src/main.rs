//! The `packrat` command.
#![forbid(unsafe_code)]

/// Writes a line to the standard error, as `eprintln!` does. A reader that has gone away is no
/// reason to panic: forwarding continues, and the exit code stays the work's.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod agent;
mod demo;
mod get;
#[cfg(feature = "operate")]
mod inject;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "operate")]
mod last_download;
#[cfg(feature = "operate")]
mod operate;
mod put;
mod recv;
#[cfg(target_os = "linux")]
mod redirection;
#[cfg(target_os = "linux")]
mod router;
#[cfg(target_os = "linux")]
mod run;

#[cfg(feature = "operate")]
use clap::CommandFactory as _;
use clap::{Parser, Subcommand};
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
    /// Upload a file over HTTP/3; data lost on the way to a Packrat gateway is sent again from
    /// below QUIC
    Put(put::command::Options),
    /// Let any UDP program on this machine use a gateway, as the program is: browsers, curl, games,
    /// tunnels
    Agent(agent::Options),
    /// Run a program whose datagrams an agent forwards, without the program's knowledge (Linux, root)
    #[cfg(target_os = "linux")]
    Run(run::Options),
    /// On a router: let the hosts behind it use gateways, without their knowledge (Linux, root)
    #[cfg(target_os = "linux")]
    Router(router::Options),
    /// Receive a gateway's live stream: RTP, SRTP or anything else, repaired and in order
    Recv(recv::Options),
    /// Show on this machine what a gateway does for a download over a lossy network
    Demo(demo::Options),
    #[cfg(feature = "operate")]
    #[command(flatten)]
    Operate(operate::Operation),
    /// Try senders, networks and arms in virtual time, or in real time
    #[cfg(feature = "lab")]
    Lab(packrat_lab::command::LabOptions),
}

fn main() -> ExitCode {
    let command = Command::parse();
    // Silent by default: PACKRAT_LOG=debug, or any filter of tracing-subscriber.
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::try_from_env("PACKRAT_LOG").unwrap_or_else(|_| EnvFilter::new("off")),
        )
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match command.subcommand {
        Subcommands::Get(options) => get::command::run(options),
        Subcommands::Put(options) => put::command::run(options),
        Subcommands::Agent(options) => agent::run(options),
        #[cfg(target_os = "linux")]
        Subcommands::Run(options) => run::run(options),
        #[cfg(target_os = "linux")]
        Subcommands::Router(options) => router::run(&options),
        Subcommands::Recv(options) => recv::run(&options),
        Subcommands::Demo(options) => demo::run(&options),
        #[cfg(feature = "operate")]
        Subcommands::Operate(operation) => operation.run(Command::command()),
        #[cfg(feature = "lab")]
        Subcommands::Lab(options) => lab::run(&options),
    }
}
