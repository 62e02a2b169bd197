//! Errors of the operator's commands.

use std::io;
use std::path::PathBuf;

use url::Url;

/// Why an operator's command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OperateError {
    /// No answer from the URL.
    #[error(
        "no answer from {url}: {source}; give the URL of Envoy's administration port or of `packrat-gateway --metrics`"
    )]
    Unreachable { url: Url, source: Box<ureq::Error> },
    /// There is no cluster.
    #[error(
        "no cluster to look at: {0}; give --kubeconfig or --context, or --gateway URL for a gateway without Kubernetes"
    )]
    NoCluster(String),
    /// The API server refuses a request.
    #[error("{what} (API server {server}): {problem}")]
    Api { what: String, server: String, problem: String },
    /// The definition is missing.
    #[error(
        "Packrat is not installed in the cluster {server}: it has no EdgeGateways; `packrat check --pre` says whether it can be, docs/QUICKSTART.md how"
    )]
    NotInstalled { server: String },
    /// There is no gateway to ask.
    #[error("{0}")]
    NoGateway(String),
    /// A gateway in a cluster does not answer.
    #[error(
        "no answer from gateway Pod {pod} through the API server: {problem}; you need the right to create pods/portforward"
    )]
    PodUnreachable {
        /// Namespace and name.
        pod: String,
        problem: String,
    },
    /// No port of the loopback interface is to be had.
    #[error("no port on this machine for the way to Pod {pod}: {source}")]
    NoListener {
        /// Namespace and name.
        pod: String,
        source: io::Error,
    },
    /// The answer does not come from a gateway.
    #[error("{url} answers, but not as a Packrat gateway of this version: {problem}")]
    NotAGateway { url: Url, problem: String },
    /// No route of that name.
    #[error("the gateway has no route {name:?}; it has {known}")]
    NoRoute { name: String, known: String },
    /// No gateway has a session of this client.
    #[error(
        "no gateway has a session of client {client:?}: it has been silent for longer than the idle timeout, reaches its server by another way, or is seen at another address (`packrat top` lists sessions)"
    )]
    NoClient { client: String },
    /// Something cannot be written.
    #[error("{path} cannot be written: {source}")]
    Write { path: PathBuf, source: io::Error },
    /// The terminal refuses a command.
    #[error("the terminal cannot be used: {0}; `packrat stat -o json` needs none")]
    Terminal(io::Error),
    /// Standard output is gone.
    #[error("standard output: {0}")]
    Output(io::Error),
}
