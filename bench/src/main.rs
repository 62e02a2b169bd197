//! The cost of Packrat, stage by stage, beside the cost of other gateways.
//!
//! ```text
//! packrat-bench profile [FILE]
//! packrat-bench [--full] [--only sketches,engine,forwarding,scale,many] [--json target/bench/summary.json]
//! ```
//!
//! Prints Markdown tables with ratios first, and writes every figure under a flat key. A
//! measurement that this machine cannot make (no root, no valgrind, no Envoy) is skipped with a
//! line that gives the reason. Ctrl-C ends the program in order.
#![forbid(unsafe_code)]

mod code;
mod engine;
mod flame_graph;
mod forwarding;
mod interrupt;
mod machine;
mod many;
mod peer;
mod profile;
mod scale;
mod sketches;
mod summary;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use packrat_instructions::{callgrind, scene};

use interrupt::Interrupt;
use summary::Summary;

/// What a measurement comes to; any error ends it.
type Fallible<T = ()> = Result<T, Box<dyn Error>>;

/// A group of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Insertion and decoding of sketches.
    Sketches,
    /// The engine per stage, and coded repair, without sockets.
    Engine,
    /// The gateways side by side over network namespaces.
    Forwarding,
    /// Many sessions: memory, handshakes, two workers.
    Scale,
    /// The gateways side by side with few and with many clients.
    Many,
}

#[derive(Debug, Parser)]
#[command(name = "packrat-bench", version)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,

    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,

    /// The whole matrix, about an hour; otherwise what the targets are about, within ten minutes.
    #[arg(long)]
    full: bool,

    /// Of the forwarding only settings whose name contains one of these, e.g. "upload", "100kpps"; of
    /// many clients only these loads, gateways and numbers, e.g. "b1.100kpps,standalone,udp_proxy,10000".
    #[arg(long, value_delimiter = ',')]
    settings: Vec<String>,

    /// File for the figures; the report is written beside it.
    #[arg(long, default_value = "target/bench/summary.json")]
    json: PathBuf,
}

/// The roles in which the program starts itself.
#[derive(Debug, Subcommand)]
enum Role {
    /// A workload whose instructions are counted.
    #[command(hide = true)]
    Workload {
        /// "symbols", "sums", "engine", "code", "sessions" or "many".
        kind: String,
        /// Capacity, or bytes and loss, and a count.
        numbers: Vec<f64>,
    },
    /// A flame graph of the forwarding path.
    Profile {
        /// The picture.
        #[arg(default_value = "target/bench/profile.svg")]
        file: PathBuf,
    },
    /// The server of a measured flow.
    #[command(hide = true)]
    Server(peer::Arguments),
    /// The client of a measured flow.
    #[command(hide = true)]
    Client(peer::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.role {
        Some(Role::Workload { kind, numbers }) => workload(kind, numbers),
        Some(Role::Profile { file }) => Interrupt::listen()
            .map_err(Into::into)
            .and_then(|interrupt| profile::run(file, &interrupt)),
        Some(Role::Server(peer)) => peer::serve(peer),
        Some(Role::Client(peer)) => peer::receive(peer),
        None => measure(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("packrat-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn workload(kind: &str, numbers: &[f64]) -> Fallible {
    match (kind, numbers) {
        ("engine", [bytes, loss, turns]) => {
            scene::workload(*bytes as usize, *loss, *turns as usize)
        }
        ("code", [loss, datagrams]) => {
            code::workload(*loss, *datagrams as usize);
            Ok(())
        }
        ("sessions", [sessions]) => scale::workload(*sessions as usize),
        ("many", [sessions, turns]) => scene::workload_of_many(*sessions as usize, *turns as usize),
        ("symbols" | "sums", [capacity, insertions]) => {
            sketches::workload(kind, *capacity as u8, *insertions as usize);
            Ok(())
        }
        _ => Err(format!("no workload {kind} with {} numbers", numbers.len()).into()),
    }
}

fn measure(arguments: &Arguments) -> Fallible {
    let interrupt = Interrupt::listen()?;
    let mut summary = Summary::default();
    machine::describe(&mut summary);
    let counts = match callgrind::is_available() {
        Ok(()) => true,
        Err(reason) => {
            summary.say(&format!("SKIPPED: instruction counts: {reason}"));
            false
        }
    };
    let result = parts(arguments, &mut summary, counts, &interrupt);
    summary.write(&arguments.json)?;
    println!("\nAll figures: {}", arguments.json.display());
    result
}

fn parts(
    arguments: &Arguments,
    summary: &mut Summary,
    counts: bool,
    interrupt: &Interrupt,
) -> Fallible {
    type Run<'a> = &'a dyn Fn(&mut Summary) -> Fallible;
    let Arguments { only, full, settings, .. } = arguments;
    let parts: [(Part, &str, Run<'_>); 7] = [
        (Part::Sketches, "sketches", &|summary| sketches::run(summary, counts, interrupt)),
        (Part::Engine, "engine", &|summary| engine::run(summary, counts, interrupt)),
        (Part::Engine, "cache misses", &|summary| {
            engine::misses(summary, counts, *full, interrupt)
        }),
        (Part::Engine, "coded repair", &|summary| code::run(summary, counts, interrupt)),
        (Part::Forwarding, "forwarding", &|summary| {
            forwarding::run(summary, *full, settings, interrupt)
        }),
        (Part::Scale, "many sessions", &|summary| scale::run(summary, *full, interrupt)),
        (Part::Many, "many clients", &|summary| {
            many::run(summary, many::Wanted { full: *full, parts: settings }, interrupt)
        }),
    ];
    for (part, name, run) in parts {
        if !only.is_empty() && !only.contains(&part) {
            continue;
        }
        // A part that fails leaves the others to be measured; a user's wish to stop does not.
        if let Err(error) = run(summary) {
            interrupt.check()?;
            summary.fail(name, error);
        }
    }
    summary.failures()
}
