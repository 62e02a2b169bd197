//! Why no token could be had.

use std::net::SocketAddr;
use std::time::Duration;

/// The reason that no token could be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The URL is not a token endpoint's.
    #[error("{url:?} is no token endpoint's URL: {reason}; expected https://host[:port]/path")]
    Url {
        /// The URL.
        url: String,
        /// The fault.
        reason: String,
    },
    /// DNS has no address.
    #[error("cannot resolve the host {host:?}: {reason}; check the spelling and the name server")]
    Resolve {
        /// The host.
        host: String,
        /// The resolver's reason.
        reason: String,
    },
    /// Connecting to every address has failed.
    #[error("cannot connect to {remote}: {reason}")]
    Connect {
        /// The address tried last.
        remote: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// TLS failed, for example as the certificate is not trusted.
    #[error("the TLS handshake with {host:?} failed: {reason}")]
    Tls {
        /// The host that the certificate must be valid for.
        host: String,
        /// The TLS stack's reason.
        reason: String,
    },
    /// The endpoint has not answered in time.
    #[error("no answer within {after:?}; try again, or raise the time limit")]
    TimedOut {
        /// The limit.
        after: Duration,
    },
    /// HTTP status 400 or above.
    #[error("{url}: the server answered with HTTP status {status}")]
    Status {
        /// The URL.
        url: String,
        /// The status.
        status: u16,
    },
    /// A redirect; they are not followed.
    #[error("{url}: redirected (HTTP status {status}) to {location}; ask that URL")]
    Redirect {
        /// The URL.
        url: String,
        /// The status.
        status: u16,
        /// Destination of the redirection.
        location: String,
    },
    /// The transfer broke.
    #[error("the transfer broke: {reason}; try again")]
    Transfer {
        /// The reason.
        reason: String,
    },
    /// The answer is not a token endpoint's document.
    #[error("the answer of {url} is not that of a token endpoint: {reason}; check the URL")]
    Document {
        /// The URL.
        url: String,
        /// The fault.
        reason: String,
    },
}

#[cfg(feature = "http3")]
impl TokenError {
    /// True if the endpoint has answered, or must not be asked: another way to it would lead to
    /// the same.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Url { .. }
                | Self::Tls { .. }
                | Self::Resolve { .. }
                | Self::Status { .. }
                | Self::Redirect { .. }
                | Self::Document { .. }
        )
    }
}
