//! The `packrat` command.
#![forbid(unsafe_code)]

/// Writes a line to the standard error, as `eprintln!` does. A reader that has gone away is no
/// reason to panic: forwarding continues, and the exit code stays the work's.
#[cfg(any(feature = "agent", feature = "recv", feature = "transfer"))]
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

#[cfg(not(any(
    feature = "agent",
    feature = "demo",
    feature = "operate",
    feature = "recv",
    feature = "transfer"
)))]
compile_error!("the command needs a feature: agent, demo, operate, recv or transfer");

#[cfg(feature = "agent")]
mod agent;
#[cfg(any(feature = "agent", feature = "recv"))]
mod assist_token;
#[cfg(feature = "demo")]
mod demo;
#[cfg(feature = "http3")]
// Each command has a use for some of it.
#[cfg_attr(not(all(feature = "demo", feature = "transfer")), allow(dead_code, unused_imports))]
mod http3;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "operate")]
mod last_download;
#[cfg(feature = "operate")]
mod operate;
#[cfg(feature = "recv")]
mod recv;
#[cfg(feature = "transfer")]
mod transfer;

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
    #[cfg(feature = "transfer")]
    Get(transfer::get::GetOptions),
    /// Upload a file over HTTP/3; data lost on the way to a Packrat gateway is sent again from
    /// below QUIC
    #[cfg(feature = "transfer")]
    Put(transfer::put::PutOptions),
    /// Let any UDP program on this machine use a gateway, as the program is: browsers, curl, games,
    /// tunnels
    #[cfg(feature = "agent")]
    Agent(agent::AgentOptions),
    /// Run a program whose datagrams an agent forwards, without the program's knowledge (Linux, root)
    #[cfg(all(feature = "agent", target_os = "linux"))]
    Run(agent::run::RunOptions),
    /// On a router: let the hosts behind it use gateways, without their knowledge (Linux, root)
    #[cfg(all(feature = "agent", target_os = "linux"))]
    Router(agent::router::RouterOptions),
    /// Receive a gateway's live stream: RTP, SRTP or anything else, repaired and in order
    #[cfg(feature = "recv")]
    Recv(recv::RecvOptions),
    /// Show on this machine what a gateway does for a download over a lossy network
    #[cfg(feature = "demo")]
    Demo(demo::DemoOptions),
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
        #[cfg(feature = "transfer")]
        Subcommands::Get(options) => transfer::get::run(options),
        #[cfg(feature = "transfer")]
        Subcommands::Put(options) => transfer::put::run(options),
        #[cfg(feature = "agent")]
        Subcommands::Agent(options) => agent::run(options),
        #[cfg(all(feature = "agent", target_os = "linux"))]
        Subcommands::Run(options) => agent::run::run(options),
        #[cfg(all(feature = "agent", target_os = "linux"))]
        Subcommands::Router(options) => agent::router::run(&options),
        #[cfg(feature = "recv")]
        Subcommands::Recv(options) => recv::run(&options),
        #[cfg(feature = "demo")]
        Subcommands::Demo(options) => demo::run(&options),
        #[cfg(feature = "operate")]
        Subcommands::Operate(operation) => operation.run(Command::command()),
        #[cfg(feature = "lab")]
        Subcommands::Lab(options) => lab::run(&options),
    }
}
