//! Why a socket fails.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The reason for which an assisted socket could not be made, or a call on it has failed. It becomes
/// an [`io::Error`] of the system's kind by `?`, in functions that return one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The address is in use, or not this host's.
    #[error(
        "cannot bind a UDP socket to {local}: {source}; choose another address or free the port"
    )]
    Bind {
        /// The address asked for.
        local: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The system does not set the socket up as needed.
    #[error("cannot set the UDP socket up: {source}")]
    Setup {
        /// Error of the operating system.
        source: io::Error,
    },
    /// The caller is outside of a Tokio runtime.
    #[error("no Tokio runtime here: make the socket inside one with I/O and time enabled")]
    NoRuntime,
    /// The system does not report the socket's address.
    #[error("the UDP socket has no address: {source}")]
    Address {
        /// Error of the operating system.
        source: io::Error,
    },
    /// The system does not take a datagram.
    #[error("cannot send a datagram to {peer}: {source}")]
    Send {
        /// The datagram's destination.
        peer: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The system gives no datagram.
    #[error("cannot receive a datagram: {source}")]
    Receive {
        /// Error of the operating system.
        source: io::Error,
    },
    /// No datagram has arrived in time.
    #[error("no datagram has arrived within {limit:?}")]
    TimedOut {
        /// The caller's limit.
        limit: Duration,
    },
}

impl From<SocketError> for io::Error {
    fn from(error: SocketError) -> Self {
        let kind = match &error {
            SocketError::Bind { source, .. }
            | SocketError::Setup { source }
            | SocketError::Address { source }
            | SocketError::Send { source, .. }
            | SocketError::Receive { source } => source.kind(),
            SocketError::TimedOut { .. } => io::ErrorKind::TimedOut,
            SocketError::NoRuntime => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
