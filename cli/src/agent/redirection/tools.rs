//! Tools of the system: nft, and iproute2's ip.

use std::io::Write;
use std::process::{Command, Stdio};

pub(super) fn nft(text: &str) -> Result<(), String> {
    run(Command::new("nft").args(["-f", "-"]), Some(text)).map(drop)
}

pub(super) fn ip(arguments: &[&str]) -> Result<(), String> {
    run(Command::new("ip").args(arguments), None).map(drop)
}

/// Runs a tool of the system, and returns its output, or its error message if it fails.
pub(super) fn run(command: &mut Command, input: Option<&str>) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let input_kind = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let child = command.stdin(input_kind).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child
        .map_err(|error| format!("cannot run {name}: {error}; install it, or use packrat agent"))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        // A tool that ends before it has read all prints the reason.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name} refuses: {}; run it as root, or use packrat agent", said.trim()))
}
