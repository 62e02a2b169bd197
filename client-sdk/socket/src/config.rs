//! The settings of a socket.

use packrat_client::{Access, ClientConfig, IdentifierScheme};

/// An application's settings of an assisted socket, whatever its protocol is.
///
/// ```
/// use packrat_socket::{Access, ClientConfig, IdentifierScheme, SocketConfig};
/// use std::time::Duration;
///
/// let config = SocketConfig::default().with_uploads(true);
/// assert_eq!(ClientConfig::from(config).scheme, IdentifierScheme::Payload);
/// let access = Access::default().with_maximum_hold(Duration::from_millis(200));
/// assert_eq!(ClientConfig::from(SocketConfig::from(access.clone())).access, access);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketConfig(ClientConfig);

impl Default for SocketConfig {
    fn default() -> Self {
        Access::default().into()
    }
}

impl From<Access> for SocketConfig {
    fn from(access: Access) -> Self {
        Self(ClientConfig::from(access).with_scheme(IdentifierScheme::Payload))
    }
}

/// The settings of a shell for one protocol, whose scheme stays.
impl From<ClientConfig> for SocketConfig {
    fn from(config: ClientConfig) -> Self {
        Self(config)
    }
}

impl From<SocketConfig> for ClientConfig {
    fn from(config: SocketConfig) -> Self {
        config.0
    }
}

impl SocketConfig {
    /// Sets how datagrams get their identifiers.
    ///
    /// Defaults to [`IdentifierScheme::Payload`], which is right for every protocol. With
    /// [`IdentifierScheme::Trailer`], the first datagrams and rare ones are also
    /// [sent twice or three times](ClientConfig::with_copies): for protocols such as QUIC and SRTP,
    /// which drop duplicates, and whose datagrams end with an authentication tag.
    #[must_use]
    pub fn with_scheme(self, scheme: IdentifierScheme) -> Self {
        Self(self.0.with_scheme(scheme))
    }

    /// Sets whether the program's own datagrams are repaired as well: see
    /// [`ClientConfig::with_uploads`].
    ///
    /// Defaults to `false`.
    #[must_use]
    pub fn with_uploads(self, uploads: bool) -> Self {
        Self(self.0.with_uploads(uploads))
    }

    /// Sets whether the program's protocol tolerates losses: see
    /// [`ClientConfig::with_loss_tolerance`].
    ///
    /// Defaults to `false`.
    #[must_use]
    pub fn with_loss_tolerance(self, tolerates_losses: bool) -> Self {
        Self(self.0.with_loss_tolerance(tolerates_losses))
    }
}
