//! The error that ends the operator.

use super::authority::AuthorityError;

/// An error that ends the operator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// There is no way to the API server.
    #[error(
        "the API server cannot be reached: {0}; in a Pod the ServiceAccount says how, elsewhere KUBECONFIG"
    )]
    Client(String),
    /// A port.
    #[error("{address} cannot be listened on: {source}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The certificates.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The lease.
    #[error(
        "the lease cannot be used: {0}; check that the operator may get, create and patch Leases in its namespace"
    )]
    Lease(String),
    /// A task that should never end; why, if it has panicked.
    #[error("a part of the operator has ended{}; this is a defect, please report it", .0.as_ref().map(|error| format!(": {error}")).unwrap_or_default())]
    Task(Option<String>),
    /// The runtime.
    #[error("the operating system refused: {0}")]
    System(#[from] std::io::Error),
}
