//! Endpoints: sockets, limits, connecting.

use crate::attachment::Attachment;
use crate::connection::Connection;
use crate::host::{Host, OperatingSystem};
use crate::path::{Guarded, PathShim};
use crate::{refusal, socket};
use packrat_client::{ClientConfig, Observer};
use rustls_pki_types::ServerName;
use s2n_quic::client::{Builder, ClientProviders, Connect};
use s2n_quic::connection::Error as QuicError;
use s2n_quic::provider::{event, io, limits::Limits, tls};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Flow control windows, bytes: s2n-quic grants new credit when half is used, so that 500 Mbit/s
/// over 200 ms fit.
const DATA_WINDOW: u64 = 32 << 20;
/// First TLS alert code in QUIC's error space (RFC 9001, section 4.8), and how many there are.
const CRYPTO_ERROR: u64 = 0x100;

/// An application's settings of an endpoint.
///
/// ```
/// use packrat_s2n_quic::EndpointConfig;
/// use std::time::Duration;
///
/// let config = EndpointConfig::default().with_idle_timeout(Duration::from_secs(60));
/// assert!(config.assist.is_some());
/// let plain = EndpointConfig::default().with_assist(None);
/// assert!(plain.assist.is_none());
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// See [`Self::with_assist`].
    pub assist: Option<ClientConfig>,
    /// See [`Self::with_handshake_timeout`].
    pub handshake_timeout: Duration,
    /// See [`Self::with_idle_timeout`].
    pub idle_timeout: Duration,
    /// See [`Self::with_data_window`].
    pub data_window: u64,
    /// See [`Self::with_observer`].
    pub observer: Option<Observer>,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            assist: Some(ClientConfig::default()),
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
            data_window: DATA_WINDOW,
            observer: None,
        }
    }
}

impl EndpointConfig {
    /// Sets the assistance of the endpoint's connections; `None` switches it off.
    ///
    /// Defaults to [`ClientConfig::default`].
    #[must_use]
    pub fn with_assist(mut self, assist: impl Into<Option<ClientConfig>>) -> Self {
        self.assist = assist.into();
        self
    }

    /// Sets the longest duration of a handshake.
    ///
    /// Defaults to 10 s.
    #[must_use]
    pub fn with_handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Sets the time without any packet from the server after which a connection is given up.
    ///
    /// Defaults to 30 s. [`Endpoint::bind`] refuses values that s2n-quic cannot use.
    #[must_use]
    pub fn with_idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Sets the number of bytes that the server may send before the application has read them, of a
    /// stream and of the connection.
    ///
    /// Defaults to 32 MiB. An application that reads slowly lets fewer wait in memory.
    #[must_use]
    pub fn with_data_window(mut self, bytes: u64) -> Self {
        self.data_window = bytes;
        self
    }

    /// Sets the observer of assistance on the endpoint's connections. Events contain the reasons of
    /// decisions.
    ///
    /// Defaults to `None`: the events are not created.
    ///
    /// ```
    /// use packrat_s2n_quic::{EndpointConfig, Observer};
    ///
    /// let observer = Observer::new(|at, event| println!("{at:?} {event:?}"));
    /// let config = EndpointConfig::default().with_observer(observer);
    /// assert!(config.observer.is_some());
    /// ```
    #[must_use]
    pub fn with_observer(mut self, observer: impl Into<Option<Observer>>) -> Self {
        self.observer = observer.into();
        self
    }
}

/// Why an endpoint could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The socket could not be bound or configured.
    #[error(
        "cannot open a UDP socket at {local}: {source}; choose another local address or free the port"
    )]
    Socket {
        /// The address asked for.
        local: SocketAddr,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// s2n-quic refused a limit.
    #[error("s2n-quic does not accept the limit {what}: {reason}; choose a smaller value")]
    Limit {
        /// The limit.
        what: &'static str,
        /// Reason that s2n-quic gave.
        reason: String,
    },
    /// s2n-quic did not start: no Tokio runtime, or TLS settings that it cannot use.
    #[error(
        "s2n-quic did not start: {reason}; call this inside a Tokio runtime and check the TLS configuration"
    )]
    Start {
        /// Reason that s2n-quic gave.
        reason: String,
    },
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name cannot be used in TLS.
    #[error(
        "{name:?} is neither a DNS name nor an IP address, so that no certificate can be valid for it"
    )]
    ServerName {
        /// The name.
        name: String,
    },
    /// The system has no randomness for the session.
    #[error("the operating system gave no random bytes: {reason}")]
    Randomness {
        /// Reason that the operating system gave.
        reason: String,
    },
    /// The network reports the address as unreachable: the UDP port is closed, or there is no
    /// route.
    #[error("{remote} cannot be reached over UDP: {source}")]
    Unreachable {
        /// The address.
        remote: SocketAddr,
        /// Error of the operating system ([`std::io::ErrorKind::ConnectionRefused`]: no listener on
        /// the port).
        source: std::io::Error,
    },
    /// The server has not answered in time.
    #[error("{remote} did not complete the QUIC handshake within {after:?}")]
    TimedOut {
        /// The address.
        remote: SocketAddr,
        /// Time waited.
        after: Duration,
    },
    /// TLS failed: a certificate that is not trusted, or no protocol in common.
    #[error("the TLS handshake with {remote} failed: {reason} (alert {alert})")]
    Tls {
        /// The address.
        remote: SocketAddr,
        /// TLS alert number (RFC 8446, section 6).
        alert: u8,
        /// True if this side found the fault.
        local: bool,
        /// Reason that s2n-quic gave.
        reason: String,
    },
    /// The connection ended during the handshake for another reason.
    #[error("{remote} closed the connection during the handshake: {source}")]
    Closed {
        /// The address.
        remote: SocketAddr,
        /// Reason that s2n-quic gave.
        source: QuicError,
    },
}

/// A QUIC client endpoint: one UDP socket whose connections are assisted.
///
/// ```no_run
/// # async fn example(tls: s2n_quic::provider::tls::rustls::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use packrat_s2n_quic::{Endpoint, EndpointConfig};
///
/// let endpoint = Endpoint::bind("0.0.0.0:0".parse()?, tls, EndpointConfig::default())?;
/// let connection = endpoint.connect("192.0.2.7:443".parse()?, "example.org").await?;
/// let (mut connection, assistance) = connection.split();
/// let stream = connection.open_bidirectional_stream().await?;
/// println!("{} repaired in time", assistance.stats().assist.filled_in_time);
/// # drop(stream);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Endpoint {
    client: s2n_quic::Client,
    host: Arc<OperatingSystem>,
    attachment: Attachment,
    config: EndpointConfig,
}

impl Endpoint {
    /// Binds a socket at `local` (port 0: any) and starts s2n-quic on it. Must be called inside a
    /// Tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    /// When the socket cannot be bound, a limit is out of s2n-quic's range, or s2n-quic does not
    /// start.
    pub fn bind<T>(local: SocketAddr, tls: T, config: EndpointConfig) -> Result<Self, EndpointError>
    where
        T: tls::Provider,
    {
        Self::bind_with_events(local, tls, event::disabled::Subscriber, config)
    }

    /// [`Self::bind`] with the application's own subscriber to s2n-quic's events; events of
    /// assistance go to [`EndpointConfig::with_observer`].
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn bind_with_events<T, E>(
        local: SocketAddr,
        tls: T,
        events: E,
        config: EndpointConfig,
    ) -> Result<Self, EndpointError>
    where
        T: tls::Provider,
        E: event::Subscriber,
    {
        let start = |reason: String| EndpointError::Start { reason };
        let builder = s2n_quic::Client::builder()
            .with_tls(tls)
            .map_err(|error| start(error.to_string()))?
            .with_limits(limits(&config)?)
            .map_err(|error| start(error.to_string()))?;
        Self::with_builder(local, builder, events, config)
    }

    /// An endpoint whose s2n-quic client the application has configured itself: TLS, limits,
    /// congestion controller. The endpoint sets the client's I/O and its subscriber, which passes
    /// events on to `events` (without one: `event::disabled::Subscriber`). Of `config`, the
    /// assistance and the observer are used.
    ///
    /// ```no_run
    /// # use packrat_s2n_quic::{Endpoint, EndpointConfig, s2n_quic};
    /// # async fn example(tls: s2n_quic::provider::tls::rustls::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use s2n_quic::provider::{congestion_controller::Bbr, event};
    ///
    /// let builder = s2n_quic::Client::builder()
    ///     .with_tls(tls)?
    ///     .with_congestion_controller(Bbr::default())?;
    /// let (events, config) = (event::disabled::Subscriber, EndpointConfig::default());
    /// let endpoint = Endpoint::with_builder("0.0.0.0:0".parse()?, builder, events, config)?;
    /// # drop(endpoint);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the socket cannot be bound, or s2n-quic does not start.
    pub fn with_builder<B, E>(
        local: SocketAddr,
        builder: Builder<B>,
        events: E,
        config: EndpointConfig,
    ) -> Result<Self, EndpointError>
    where
        B: ClientProviders,
        E: event::Subscriber,
    {
        let of_socket = |source| EndpointError::Socket { local, source };
        let socket = socket::bind(local).map_err(of_socket)?;
        let io = io::tokio::Builder::default()
            .with_rx_socket(socket.try_clone().map_err(of_socket)?)
            .and_then(|builder| builder.with_tx_socket(socket.try_clone()?))
            .and_then(io::tokio::Builder::build)
            .map_err(of_socket)?;
        let host = Arc::new(OperatingSystem::new(socket));
        let mut attachment = Attachment::new(Arc::clone(&host) as Arc<dyn Host>)
            .with_observer(config.observer.clone());
        if config.assist.as_ref().is_some_and(|assist| assist.uploads) {
            attachment = attachment.with_uploads();
        }
        let start = |reason: String| EndpointError::Start { reason };
        let client = attachment
            .apply(builder, io)
            .with_event((attachment.subscriber(), events))
            .map_err(|error| start(error.to_string()))?
            .start()
            .map_err(|error| start(error.to_string()))?;
        Ok(Self { client, host, attachment, config })
    }

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    /// When the operating system does not report the address.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        self.host.socket.local_addr()
    }

    /// Connects to `remote`, whose certificate must be valid for `server_name` (a DNS name or an IP
    /// address).
    ///
    /// Assistance begins with the first datagram, and its failure is never an error here.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
    ) -> Result<Connection, ConnectError> {
        // s2n-quic panics on a name that TLS cannot use.
        if ServerName::try_from(server_name).is_err() {
            return Err(ConnectError::ServerName { name: server_name.to_owned() });
        }
        let shim =
            self.config.assist.clone().map(|config| self.shim(remote, config)).transpose()?;
        self.connect_with(remote, server_name, Guarded::new(shim)).await
    }

    fn shim(
        &self,
        remote: SocketAddr,
        config: ClientConfig,
    ) -> Result<Box<PathShim>, ConnectError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)
            .map_err(|error| ConnectError::Randomness { reason: error.to_string() })?;
        Ok(self.attachment.shim(remote, config, seed))
    }

    /// [`Self::connect`] with any shim.
    pub(crate) async fn connect_with(
        &self,
        remote: SocketAddr,
        server_name: &str,
        shim: Guarded,
    ) -> Result<Connection, ConnectError> {
        // Until there is a connection its destructor takes the path out again, whatever happens.
        let (assistance, driver) = self.attachment.assist_with(remote, shim);
        tokio::spawn(driver);
        let attempt = self.client.connect(Connect::new(remote).with_server_name(server_name));
        let connected = tokio::select! {
            result = attempt => result.map_err(|error| self.connect_error(remote, error)),
            source = refusal::refused(remote) => Err(ConnectError::Unreachable { remote, source }),
        };
        let connection = connected?;
        assistance.connected(&connection);
        Ok(Connection { connection, assistance })
    }

    fn connect_error(&self, remote: SocketAddr, error: QuicError) -> ConnectError {
        match error {
            QuicError::MaxHandshakeDurationExceeded { max_handshake_duration, .. } => {
                ConnectError::TimedOut { remote, after: max_handshake_duration }
            }
            QuicError::IdleTimerExpired { .. } => {
                ConnectError::TimedOut { remote, after: self.config.handshake_timeout }
            }
            QuicError::Transport { code, reason, initiator, .. } => {
                let code = code.as_u64();
                match code.checked_sub(CRYPTO_ERROR).and_then(|alert| u8::try_from(alert).ok()) {
                    Some(alert) => ConnectError::Tls {
                        remote,
                        alert,
                        local: initiator.is_local(),
                        reason: reason.to_owned(),
                    },
                    None => ConnectError::Closed { remote, source: error },
                }
            }
            source => ConnectError::Closed { remote, source },
        }
    }

    /// Waits until every connection has ended and its last datagrams are sent, at most `limit`.
    pub async fn wait_idle(mut self, limit: Duration) {
        let _ = tokio::time::timeout(limit, self.client.wait_idle()).await;
    }
}

fn limits(config: &EndpointConfig) -> Result<Limits, EndpointError> {
    fn set<E: std::fmt::Display>(
        what: &'static str,
        result: Result<Limits, E>,
    ) -> Result<Limits, EndpointError> {
        result.map_err(|error| EndpointError::Limit { what, reason: error.to_string() })
    }
    let window = config.data_window;
    let limits = set("data window", Limits::new().with_data_window(window))?;
    let limits = set("stream data window", limits.with_bidirectional_local_data_window(window))?;
    let limits = set("idle timeout", limits.with_max_idle_timeout(config.idle_timeout))?;
    set("handshake timeout", limits.with_max_handshake_duration(config.handshake_timeout))
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
