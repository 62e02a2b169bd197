//! The settings of a client.

use core::time::Duration;

use packrat_wire::handshake::Live;
use packrat_wire::identifier::IdentifierScheme;

use crate::token::Token;

/// The longest hold unless set otherwise.
pub(crate) const DEFAULT_MAXIMUM_HOLD: Duration = Duration::from_millis(1000);

/// The application's part in every kind of assistance: from whom, with which permission, and how
/// long it may take.
///
/// ```
/// use packrat_client::{Access, Token, TokenTooLong};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), TokenTooLong> {
/// let access = Access::default()
///     .with_token(Token::new(b"issued by the gateway".to_vec())?)
///     .with_maximum_hold(Duration::from_millis(200));
/// assert_eq!(access.gateway_key, None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Access {
    /// See [`Self::with_maximum_hold`].
    pub maximum_hold: Duration,
    /// See [`Self::with_gateway_key`].
    pub gateway_key: Option<[u8; 32]>,
    /// See [`Self::with_token`].
    pub token: Token,
}

impl Default for Access {
    fn default() -> Self {
        Self { maximum_hold: DEFAULT_MAXIMUM_HOLD, gateway_key: None, token: Token::default() }
    }
}

impl Access {
    /// Sets the longest time that what has arrived waits for a hole below it. The actual hold follows
    /// the measured last mile. Zero: nothing waits.
    ///
    /// Defaults to 1 s.
    #[must_use]
    pub fn with_maximum_hold(mut self, maximum_hold: Duration) -> Self {
        self.maximum_hold = maximum_hold;
        self
    }

    /// Sets the gateway's static public key: another gateway is refused.
    ///
    /// Defaults to `None`: trust on first use.
    #[must_use]
    pub fn with_gateway_key(mut self, key: impl Into<Option<[u8; 32]>>) -> Self {
        self.gateway_key = key.into();
        self
    }

    /// Sets the permission that the gateway's token endpoint has issued, for gateways that ask for
    /// one.
    ///
    /// Defaults to the empty token, which is no permission. At most [`Token::MAXIMUM_LENGTH`]
    /// bytes.
    #[must_use]
    pub fn with_token(mut self, token: Token) -> Self {
        self.token = token;
        self
    }
}

/// An application's settings of one connection's assistance.
///
/// ```
/// use packrat_client::{Access, ClientConfig};
/// use std::time::Duration;
///
/// let config = ClientConfig::default().with_maximum_hold(Duration::from_millis(200));
/// assert_eq!(config.live, None);
/// assert_eq!(config, Access::default().with_maximum_hold(Duration::from_millis(200)).into());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientConfig {
    /// From whom, with which permission, how long.
    pub access: Access,
    /// See [`Self::with_scheme`].
    pub scheme: IdentifierScheme,
    /// See [`Self::with_live`].
    pub live: Option<Live>,
    /// See [`Self::with_uploads`].
    pub uploads: bool,
    /// See [`Self::with_loss_tolerance`].
    pub tolerates_losses: bool,
    /// Each eACK has the longest prefix of the sketch, and not the shortest one that tells what is
    /// missing: for measurements of what short ones save.
    pub longest_prefix: bool,
    /// See [`Self::with_copies`].
    pub copies: bool,
    /// See [`Self::with_spread_bursts`].
    pub spread_bursts: bool,
    /// False where it is known that no queue has lost what is missing, as only a laboratory's last
    /// mile can tell: each hole is held.
    pub queues_lose: bool,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            access: Access::default(),
            scheme: IdentifierScheme::default(),
            live: None,
            uploads: false,
            tolerates_losses: false,
            longest_prefix: false,
            copies: true,
            spread_bursts: false,
            queues_lose: true,
        }
    }
}

impl From<Access> for ClientConfig {
    fn from(access: Access) -> Self {
        Self { access, ..Self::default() }
    }
}

impl ClientConfig {
    /// See [`Access::with_maximum_hold`].
    #[must_use]
    pub fn with_maximum_hold(mut self, maximum_hold: Duration) -> Self {
        self.access = self.access.with_maximum_hold(maximum_hold);
        self
    }

    /// See [`Access::with_gateway_key`].
    #[must_use]
    pub fn with_gateway_key(mut self, key: impl Into<Option<[u8; 32]>>) -> Self {
        self.access = self.access.with_gateway_key(key);
        self
    }

    /// See [`Access::with_token`].
    #[must_use]
    pub fn with_token(mut self, token: Token) -> Self {
        self.access = self.access.with_token(token);
        self
    }

    /// Sets how datagrams get their identifiers.
    ///
    /// Defaults to [`IdentifierScheme::Trailer`], which is right for QUIC. Receivers of a gateway's
    /// stream use [`IdentifierScheme::Payload`].
    #[must_use]
    pub fn with_scheme(mut self, scheme: IdentifierScheme) -> Self {
        self.scheme = scheme;
        self
    }

    /// Sets whether what the transport sends is repaired, too. It costs a copy of each datagram, until
    /// the gateway has told that it has arrived, and eight bytes in front of it. The shell passes
    /// what the transport sends to [`Shim::on_send`](crate::Shim::on_send).
    ///
    /// Live streams that are sent are repaired, too, a microphone's, a camera's, and a call's both ways; with
    /// a maximum hold of zero the gateway passes them on as they come, since a stream's receiver has a buffer
    /// that puts them in order.
    ///
    /// For transports that answer each loss, such as those with CUBIC or NewReno; those with BBR, version 2 or
    /// 3, set [`Self::with_loss_tolerance`], too. Version 1 answers no loss, so that repairs only delay its
    /// acknowledgements: without this it uploads faster.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub fn with_uploads(mut self, uploads: bool) -> Self {
        self.uploads = uploads;
        self
    }

    /// Sets whether the transport tolerates losses, as BBR does: its uploads are repaired only where the last
    /// mile is at most a quarter of the way to the server. Elsewhere repairs may delay its acknowledgements by
    /// more than they gain.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub fn with_loss_tolerance(mut self, tolerates_losses: bool) -> Self {
        self.tolerates_losses = tolerates_losses;
        self
    }

    pub(crate) fn makes_copies(&self) -> bool {
        self.copies && self.live.is_none() && self.scheme == IdentifierScheme::Trailer
    }

    /// Sets whether the transport's first datagrams, and later those that it sends seldom, are sent twice
    /// or three times where the last mile is known to lose 1 % or more: handshakes, requests, last
    /// acknowledgements. Ten at once and ten a second are, and none while a queue stands. Where nothing is
    /// known of the last mile, a first connection, the next four that a gateway sees are sent twice. The shell
    /// passes what the transport sends to [`Shim::on_send`](crate::Shim::on_send).
    ///
    /// Defaults to `true`. Never for live streams, and with [`IdentifierScheme::Trailer`] only: QUIC's and
    /// SRTP's ends drop what comes twice, another protocol's may act upon it.
    #[must_use]
    pub fn with_copies(mut self, copies: bool) -> Self {
        self.copies = copies;
        self
    }

    /// Sets whether what has waited for a repair comes out in steps of a millisecond, at twice the rate at
    /// which it arrives, and not all at once: for shells that hand datagrams to a socket of another
    /// program, whose receive buffer takes only so much at once. Up to about 50 datagrams come at once all
    /// the same, and none is delayed by more than half the time for which it has waited, or by the maximum
    /// hold.
    ///
    /// Defaults to `false`. The caller polls [`Shim::poll_deliver`](crate::Shim::poll_deliver) until it is
    /// empty, after each timeout too.
    #[must_use]
    pub fn with_spread_bursts(mut self, spread_bursts: bool) -> Self {
        self.spread_bursts = spread_bursts;
        self
    }

    /// Makes this the receiver of a live stream: sets when eACKs are sent, and until when a repair
    /// is of use. The receivers of packrat-media take an [`Access`] instead of this, and derive it
    /// from their latency.
    ///
    /// Defaults to `None`: no live stream.
    #[must_use]
    pub fn with_live(mut self, live: impl Into<Option<Live>>) -> Self {
        self.live = live.into();
        self
    }
}
