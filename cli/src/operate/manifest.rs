//! Manifests: the input of a command, and its outcome.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

/// The documents of a manifest in YAML or JSON; `-` reads the standard input.
///
/// # Errors
/// The reason, for people.
pub(super) fn read(file: &Path) -> Result<Vec<Value>, String> {
    let name = file.display();
    let text = if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    }
    .map_err(|error| format!("{name} cannot be read: {error}"))?;
    serde_saphyr::from_multiple(&text)
        .map_err(|error| format!("{name} is neither YAML nor JSON: {error}"))
}

/// Prints the text that a command has made, or its error. The command fails if the text lacks
/// something that was asked for.
pub(super) fn print(command: &str, outcome: Result<(String, bool), String>) -> ExitCode {
    match outcome {
        Ok((text, is_complete)) => {
            print!("{text}");
            if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("packrat {command}: {error}");
            ExitCode::FAILURE
        }
    }
}
