//! What can go wrong.

use std::io;
use std::path::PathBuf;

use url::Url;

/// Why an operator's command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OperateError {
    /// Nobody answers.
    #[error(
        "no answer from {url}: {source}; give the URL of Envoy's administration port or of `packrat-gateway --metrics`"
    )]
    Unreachable {
        /// What was asked for.
        url: Url,
        /// Why.
        source: Box<ureq::Error>,
    },
    /// Somebody else answers.
    #[error("{url} answers, but not as a Packrat gateway of this version: {problem}")]
    NotAGateway {
        /// What was asked for.
        url: Url,
        /// What is wrong with the answer.
        problem: String,
    },
    /// No route of that name.
    #[error("the gateway has no route {name:?}; it has {known}")]
    NoRoute {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Something cannot be written.
    #[error("{path} cannot be written: {source}")]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The terminal does not do what it is told.
    #[error("the terminal cannot be used: {0}; `packrat stat -o json` needs none")]
    Terminal(io::Error),
    /// Standard output is gone.
    #[error("standard output: {0}")]
    Output(io::Error),
}
