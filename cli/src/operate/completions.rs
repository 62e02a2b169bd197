//! `packrat completions` and `packrat man`: generated from the command line's own definition.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command, ValueEnum};
use clap_complete::aot::{Shell as Known, generate};

use super::error::OperateError;
use super::finish;

/// Options of `packrat completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsOptions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// A shell.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Elvish,
    Fish,
    Zsh,
}

/// Options of `packrat man`.
#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// Write a page for each command into this folder, instead of the main one to standard output
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Prints the completions of `command`.
pub(crate) fn run(options: &CompletionsOptions, mut command: Command) -> ExitCode {
    let shell = match options.shell {
        Shell::Bash => Known::Bash,
        Shell::Elvish => Known::Elvish,
        Shell::Fish => Known::Fish,
        Shell::Zsh => Known::Zsh,
    };
    let mut text = Vec::new();
    generate(shell, &mut command, "packrat", &mut text);
    finish("completions", print(&text))
}

/// Prints the manual of `command`, or writes the manuals of all its commands.
pub(crate) fn run_man(options: &ManOptions, command: Command) -> ExitCode {
    let result = match &options.folder {
        Some(folder) => std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(command, folder))
            .map(|()| ExitCode::SUCCESS)
            .map_err(|source| OperateError::Write { path: folder.clone(), source }),
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command)
                .render(&mut text)
                .map_err(OperateError::Output)
                .and_then(|()| print(&text))
        }
    };
    finish("man", result)
}

fn print(text: &[u8]) -> Result<ExitCode, OperateError> {
    match std::io::stdout().lock().write_all(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(OperateError::Output(error))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
