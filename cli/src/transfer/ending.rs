//! The end of a command that transfers: signals, the last words, and the exit code.

use super::summary;
use crate::http3::error::{EXIT_INTERRUPTED, EXIT_TERMINATED};
use crate::http3::{GetError, Report, redacted};
use std::io::{self, Write};
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The error or the signal that ended a transfer.
pub(crate) enum Failure {
    Error(GetError),
    Signal(u8),
}

impl From<GetError> for Failure {
    fn from(error: GetError) -> Self {
        Self::Error(error)
    }
}

/// A command's words about its transfer.
pub(crate) struct Words<'a> {
    /// The command, such as `packrat get`.
    pub(crate) command: &'static str,
    /// The URL as the user has given it.
    pub(crate) url: &'a str,
    /// The part of its file: `output` or `input`.
    pub(crate) role: &'static str,
    pub(crate) json: bool,
    pub(crate) silent: bool,
}

impl Words<'_> {
    /// Prints the end of a transfer: its report and the name of the file, or the reason for its
    /// failure. `note`: a hint after a failure.
    pub(crate) fn conclude(
        &self,
        result: &Result<(Report, String), Failure>,
        note: Option<String>,
    ) -> ExitCode {
        let Self { command, role, .. } = self;
        let url = &redacted(self.url);
        let (code, json) = match result {
            Ok((report, file)) => {
                if !self.silent {
                    tell!("{}", summary::text(report, file));
                }
                (0, summary::json(url, report, role, file))
            }
            Err(failure) => {
                let (code, kind, message) = match failure {
                    Failure::Error(error) => (error.exit_code(), error.kind(), error.to_string()),
                    Failure::Signal(code) => (*code, "interrupted", "interrupted".to_owned()),
                };
                tell!("{command}: {message}");
                if let Some(note) = note {
                    tell!("{command}: {note}");
                }
                (code, summary::json_error(url, code, kind, &message))
            }
        };
        if self.json {
            // A reader that has gone away has no use for an error either.
            let _ = writeln!(io::stdout(), "{json}");
        }
        ExitCode::from(code)
    }
}

/// Runs a command that transfers to its end.
pub(crate) fn run(command: &'static str, work: impl Future<Output = ExitCode>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let error = GetError::Local { reason: format!("no runtime: {error}") };
            tell!("{command}: {error}");
            return ExitCode::from(error.exit_code());
        }
    };
    let code = runtime.block_on(work);
    // A name lookup that hangs in the operating system must not keep the command from ending.
    runtime.shutdown_background();
    code
}

/// The signals that end the command.
///
/// After the first look, signals do not end the process by themselves any more. Therefore there is
/// one look for the whole run, which also remembers a signal that came while no task waited for it.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn catch() -> Result<Self, GetError> {
        let local =
            |error: io::Error| GetError::Local { reason: format!("no signal handler: {error}") };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(local)?,
            terminate: signal(SignalKind::terminate()).map_err(local)?,
        })
    }

    /// Does `work` unless a signal comes, or has come since the last work.
    pub(crate) async fn or<T>(
        &mut self,
        work: impl Future<Output = Result<T, GetError>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => Err(Failure::Signal(EXIT_INTERRUPTED)),
            _ = self.terminate.recv() => Err(Failure::Signal(EXIT_TERMINATED)),
            result = work => Ok(result?),
        }
    }
}

/// Runs work that may wait for a disk or a reader in a thread of its own, so that signals are heard
/// meanwhile.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
    failed: impl Fn(io::Error) -> GetError,
) -> Result<T, GetError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_between_two_steps_is_not_lost() {
        let (mut signals, mut other) = (Signals::catch().unwrap(), Signals::catch().unwrap());
        assert!(signals.or(async { Ok(()) }).await.is_ok());
        let process = std::process::id().to_string();
        let sent = std::process::Command::new("kill").args(["-INT", &process]).status().unwrap();
        assert!(sent.success());
        // The signal is delivered while no task waits for it with the first one.
        assert!(matches!(
            other.or(std::future::pending::<Result<(), _>>()).await,
            Err(Failure::Signal(_))
        ));
        let next = signals.or(async { Ok(()) }).await;
        assert!(matches!(next, Err(Failure::Signal(EXIT_INTERRUPTED))));
    }
}
