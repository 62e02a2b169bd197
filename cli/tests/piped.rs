//! A command that reads its standard input.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// The outcome of `packrat` with these arguments and this input.
pub(crate) fn packrat(arguments: &[&str], input: &str) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_packrat"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    process.wait_with_output().unwrap()
}
