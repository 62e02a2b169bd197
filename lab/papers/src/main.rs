//! What reproduces five papers (docs/REFERENCES.md): Packrat26, Sidekick24, rQUIC23, CETEN04 and
//! Splitting25, with the trials of the laboratory, and with models where no QUIC stack does it.
#![forbid(unsafe_code)]

mod failure;
mod figures;
mod quack;
mod robin;
mod sweep;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Figures and tables of papers in virtual time
#[derive(Debug, Parser)]
#[command(version, about)]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make figures of the papers: NAME.json, NAME.csv and NAME.svg
    Figure(figures::Figures),
    /// Make all figures
    Figures(figures::Making),
    /// Measure segments of paths, sender by sender, and predict what splitting two of them gains
    Sweep(sweep::Sweep),
}

fn main() -> ExitCode {
    let outcome = match Command::parse().action {
        Action::Figure(figures) => figures.run(),
        Action::Figures(making) => making.run(figures::ALL_RECIPES),
        Action::Sweep(sweep) => sweep.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
