//! The settings of a client.

use core::time::Duration;

use packrat_wire::handshake::Live;
use packrat_wire::identifier::IdentifierScheme;

use crate::token::Token;

/// The longest hold unless set otherwise.
pub(crate) const DEFAULT_MAXIMUM_HOLD: Duration = Duration::from_millis(1000);

/// The application's settings for every kind of assistance: the accepted gateway, the token, and
/// the longest hold.
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
    /// Sets the longest time that arrived datagrams wait for a hole below them. The actual hold
    /// follows the measured last mile. Zero disables waiting.
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

    /// Sets the token that the gateway's token endpoint has issued, for gateways that require one.
    ///
    /// Defaults to the empty token, which gives no permission. At most [`Token::MAXIMUM_LENGTH`]
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
    /// The accepted gateway, the token, and the longest hold.
    pub access: Access,
    /// See [`Self::with_scheme`].
    pub scheme: IdentifierScheme,
    /// See [`Self::with_live`].
    pub live: Option<Live>,
    /// See [`Self::with_uploads`].
    pub uploads: bool,
    /// See [`Self::with_loss_tolerance`].
    pub tolerates_losses: bool,
    /// See [`Self::with_copies`].
    pub copies: bool,
    /// See [`Self::with_spread_bursts`].
    pub spread_bursts: bool,
    /// For trials of the policy itself.
    #[doc(hidden)]
    pub laboratory: Laboratory,
}

/// Switches of a laboratory, which measures bounds of the policy.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Laboratory {
    /// Gives each eACK the longest prefix of the sketch instead of the shortest one that identifies
    /// the missing datagrams: for measurements of the savings of short prefixes.
    pub longest_prefix: bool,
    /// False if no missing datagram was lost by a queue, as only a laboratory's last mile can know:
    /// then each hole is held.
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
            copies: true,
            spread_bursts: false,
            laboratory: Laboratory { longest_prefix: false, queues_lose: true },
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

    /// Sets whether the transport's own datagrams are repaired as well. Each costs eight bytes for
    /// a number, and a copy in memory until the gateway has reported its arrival. The shell passes
    /// the transport's datagrams to [`Shim::on_send`](crate::Shim::on_send).
    ///
    /// Live streams towards the server are also repaired: a microphone's, a camera's, and both
    /// directions of a call. With a maximum hold of zero the gateway forwards them on arrival,
    /// since a stream's receiver has a buffer that restores the order.
    ///
    /// For transports that reduce their rate after each loss, such as CUBIC or NewReno;
    /// with BBR version 2 or 3, also set [`Self::with_loss_tolerance`]. BBR version 1 does not
    /// react to losses, so repairs only delay its acknowledgements: it uploads faster without this
    /// option.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub fn with_uploads(mut self, uploads: bool) -> Self {
        self.uploads = uploads;
        self
    }

    /// Sets whether the transport tolerates losses, as BBR does: its uploads are repaired only if
    /// the last mile is at most a quarter of the way to the server. Otherwise repairs may delay its
    /// acknowledgements by more than they gain.
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

    /// Sets whether the transport's first datagrams, and later its rare ones, are sent two or three
    /// times if the last mile is known to lose 1 % or more: handshakes, requests, last
    /// acknowledgements. Copied are ten datagrams at once and ten a second, and none while a queue
    /// stands. If the loss is unknown, as for a first connection, the next four datagrams that a
    /// gateway sees are sent twice. The shell passes the transport's datagrams to
    /// [`Shim::on_send`](crate::Shim::on_send).
    ///
    /// Defaults to `true`. Live streams are never copied, and copies need
    /// [`IdentifierScheme::Trailer`]: QUIC and SRTP drop duplicates, another protocol may act on
    /// them.
    #[must_use]
    pub fn with_copies(mut self, copies: bool) -> Self {
        self.copies = copies;
        self
    }

    /// Sets whether datagrams that have waited for a repair are released in steps of a millisecond,
    /// at twice their arrival rate, instead of all at once. For shells that pass datagrams to a
    /// socket of another program, whose receive buffer is limited. Up to about 50 datagrams still
    /// leave at once, and a datagram is delayed by at most half of its wait, and by at most the
    /// maximum hold.
    ///
    /// Defaults to `false`. The caller polls [`Shim::poll_deliver`](crate::Shim::poll_deliver)
    /// until it is empty, also after each timeout.
    #[must_use]
    pub fn with_spread_bursts(mut self, spread_bursts: bool) -> Self {
        self.spread_bursts = spread_bursts;
        self
    }

    /// Makes this the receiver of a live stream: sets the schedule of eACKs, and the time after
    /// which a repair is useless. The receivers of packrat-media take an [`Access`] instead of
    /// this, and derive it from their latency.
    ///
    /// Defaults to `None`: no live stream.
    #[must_use]
    pub fn with_live(mut self, live: impl Into<Option<Live>>) -> Self {
        self.live = live.into();
        self
    }
}
