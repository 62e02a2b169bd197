//! The laboratory's own command; `packrat lab` of a `packrat` that was built with the feature `lab`
//! is the same.
#![forbid(unsafe_code)]

use clap::Parser;
use packrat_lab::command::{self, LabOptions};
use std::process::ExitCode;

/// Trials of Packrat in virtual time
#[derive(Debug, Parser)]
#[command(version, about)]
struct Command {
    #[command(flatten)]
    options: LabOptions,
}

fn main() -> ExitCode {
    command::run(&Command::parse().options)
}
