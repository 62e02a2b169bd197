//! The laboratory of live streams.
#![forbid(unsafe_code)]

use clap::Parser;
use packrat_live_lab::command::{self, Options};
use std::process::ExitCode;

/// Live streams over a lossy last mile, in virtual time
#[derive(Debug, Parser)]
#[command(version, about)]
struct Command {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    command::run(&Command::parse().options)
}
