//! The operator's command.

use std::process::ExitCode;

use clap::Parser as _;
use packrat_operator::resource;
use packrat_operator::shell::arguments::{Arguments, Command};

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Crds => match resource::definitions() {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => failed(&error),
        },
        Command::Run(options) => match packrat_operator::shell::run(*options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("packrat-operator: {error}");
    ExitCode::FAILURE
}
