//! Running other programs.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The failure of a step of a test: the attempt, and the result.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    /// A failure with this text.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self(format!("not the JSON that was expected: {error}"))
    }
}

/// The outcome of a step.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Interval of checks for an expected condition.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The words before a command that run it elsewhere: `["nsenter", "--net=…", "packrat"]`.
#[derive(Debug, Clone)]
pub(crate) struct Prefix(Vec<String>);

impl Prefix {
    /// A prefix of these words. Without words, the command runs directly.
    pub(crate) fn new<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Self {
        Self(words.into_iter().map(Into::into).collect())
    }

    /// This prefix followed by `words`.
    pub(crate) fn then<S: Into<String>>(&self, words: impl IntoIterator<Item = S>) -> Self {
        Self(self.0.iter().cloned().chain(words.into_iter().map(Into::into)).collect())
    }

    /// This prefix preceded by `words`.
    pub(crate) fn after<S: Into<String>>(&self, words: impl IntoIterator<Item = S>) -> Self {
        Self(words.into_iter().map(Into::into).chain(self.0.iter().cloned()).collect())
    }

    /// A command that runs `arguments` (the first of them the program, unless the prefix names it).
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut words = self.0.iter().map(OsStr::new);
        let mut arguments = arguments.into_iter();
        let mut command = match words.next() {
            Some(program) => Command::new(program),
            None => {
                let program = arguments.next();
                Command::new(program.as_ref().map_or(OsStr::new("true"), AsRef::as_ref))
            }
        };
        command.args(words).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs it and returns its standard output.
    ///
    /// # Errors
    /// The command cannot be started, or ends with another status than 0. The error shows the end
    /// of its standard error.
    pub(crate) fn output<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Outcome<String> {
        run(&mut self.command(arguments), None)
    }

    /// Runs it with a text on its standard input, and returns its standard output.
    pub(crate) fn feed<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        input: &str,
    ) -> Outcome<String> {
        run(&mut self.command(arguments), Some(input))
    }
}

fn run(command: &mut Command, input: Option<&str>) -> Outcome<String> {
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let described = format!("{command:?}").replace('"', "");
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Failure(format!("{described}: {error}")))?;
    if let (Some(text), Some(mut pipe)) = (input, child.stdin.take()) {
        // A program that ends before it has read everything reports its own error.
        let _ = pipe.write_all(text.as_bytes());
    }
    let mut standard_error = child.stderr.take();
    let complaints = thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(pipe) = &mut standard_error {
            let _ = pipe.read_to_end(&mut text);
        }
        text
    });
    let mut output = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_end(&mut output)?;
    }
    let status = child.wait()?;
    let complaints = complaints.join().unwrap_or_default();
    if status.success() {
        return Ok(String::from_utf8_lossy(&output).into_owned());
    }
    Err(Failure(format!(
        "{described}: {status}: {}",
        last_lines(&String::from_utf8_lossy(&complaints))
    )))
}

/// The end of a program's output, on one line.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}

/// Repeats `step` until it succeeds.
///
/// # Errors
/// Its last failure, when it has not succeeded after `limit`.
pub(crate) fn until<T>(
    limit: Duration,
    what: &str,
    mut step: impl FnMut() -> Outcome<T>,
) -> Outcome<T> {
    let end = Instant::now() + limit;
    loop {
        match step() {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= end => {
                return Err(Failure(format!("not within {} s: {what}: {error}", limit.as_secs())));
            }
            Err(_) => thread::sleep(POLL_INTERVAL),
        }
    }
}

/// A program in the background; it is killed when dropped.
#[derive(Debug)]
pub(crate) struct Background(pub(crate) Child);

impl Drop for Background {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
