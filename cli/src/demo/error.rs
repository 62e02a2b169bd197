//! What can stop the demo.

use std::io;
use std::path::{Path, PathBuf};

/// Why the demo could not be carried through.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// A part that `make demo` installs is not there.
    #[error(
        "{what} is not at {path}: run `make demo`, which installs it, or point --parts at the right folder"
    )]
    PartMissing {
        /// What is missing.
        what: &'static str,
        /// Where it was expected.
        path: PathBuf,
    },
    /// A part that is built together with this command is not next to it.
    #[error("{file} is not next to this command in {folder}: build it with `cargo build -p {package}`")]
    NotBuilt {
        /// The file.
        file: &'static str,
        /// Where this command is.
        folder: PathBuf,
        /// The package that makes it.
        package: &'static str,
    },
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
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
        /// What it is.
        name: &'static str,
        /// The program.
        program: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A process ended before it served.
    #[error("{name} ended by itself ({status}); the end of its log:\n{log}")]
    Ended {
        /// What it is.
        name: &'static str,
        /// How it ended.
        status: String,
        /// Its last lines.
        log: String,
    },
    /// A process did not get ready.
    #[error("{name} was not ready after {seconds} s; the end of its log:\n{log}")]
    NotReady {
        /// What it is.
        name: &'static str,
        /// How long was waited.
        seconds: u64,
        /// Its last lines.
        log: String,
    },
    /// The emulated path did not start.
    #[error(transparent)]
    Path(#[from] packrat_lab::path::PathError),
    /// The gateway's metrics could not be had.
    #[error("cannot read the gateway's metrics at {address}: {source}")]
    Metrics {
        /// Where they are served.
        address: std::net::SocketAddr,
        /// What went wrong.
        source: io::Error,
    },
    /// The download failed.
    #[error("the download failed: {0}")]
    Download(String),
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
