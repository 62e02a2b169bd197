//! Errors of the demo.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why the demo could not finish.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// A part that `make demo` installs is missing.
    #[error(
        "{what} is not at {path}: run `make demo`, which installs it, or point --parts at the right folder"
    )]
    PartMissing {
        /// The missing part.
        what: &'static str,
        /// Expected path of the part.
        path: PathBuf,
    },
    /// A part that `tools/install-alternatives` installs is missing.
    #[error(
        "{what} is not at {path}: run tools/install-alternatives, which installs it, or point --parts at the right folder"
    )]
    AlternativeMissing {
        /// The missing part.
        what: &'static str,
        /// Expected path of the part.
        path: PathBuf,
    },
    /// A program that is built together with this command is not next to it.
    #[error(
        "{file} is not next to this command in {folder}: build it with `cargo build -p {package}`"
    )]
    NotBuilt {
        /// The file.
        file: &'static str,
        /// The directory of this command.
        folder: PathBuf,
        /// The package that builds it.
        package: &'static str,
    },
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(String),
    /// No port was free.
    #[error("no free port on the loopback address: {0}")]
    Port(#[source] io::Error),
    /// A process could not be started.
    #[error("cannot start {name} ({program}): {source}")]
    Start {
        /// The name of the process.
        name: &'static str,
        /// The program.
        program: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A process ended before it was ready.
    #[error("{name} ended by itself ({status}); the end of its log:\n{log}")]
    Ended {
        /// The name of the process.
        name: &'static str,
        /// Exit status of the program.
        status: String,
        /// Last lines of the program's log.
        log: String,
    },
    /// A process did not get ready.
    #[error("{name} was not ready after {seconds} s; the end of its log:\n{log}")]
    NotReady {
        /// The name of the process.
        name: &'static str,
        /// Seconds of waiting.
        seconds: u64,
        /// Last lines of the program's log.
        log: String,
    },
    /// The emulated path did not start.
    #[error(transparent)]
    Path(#[from] packrat_emulation::path::PathError),
    /// The gateway's metrics could not be read.
    #[error("cannot read the gateway's metrics at {address}: {source}")]
    Metrics {
        /// The address that serves them.
        address: std::net::SocketAddr,
        /// The error of the request.
        source: io::Error,
    },
    /// The download or the upload failed.
    #[error("the transfer failed: {0}")]
    Transfer(String),
    /// The runtime could not be started.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] io::Error),
}

impl DemoError {
    /// `path` could not be written.
    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }

    /// `path` could not be read.
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }
}
