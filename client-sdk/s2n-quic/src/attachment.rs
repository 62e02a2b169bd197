//! The shell without a socket of its own: for an s2n-quic client whose application provides the
//! I/O.

use crate::connection::Assistance;
use crate::connection_events::ConnectionEvents;
use crate::driver::{LateHandle, drive};
use crate::guard::Guarded;
use crate::host::Host;
use crate::interceptor::{Interceptor, Paths};
use crate::path::AssistedPath;
use crate::release::ReleasingProvider;
use crate::tls::{KeyOf, NewKeys, PacketKeyOf, SharingProvider};
use packrat_client::{Assist, ClientConfig, Observer};
use s2n_quic::client::{Builder, ClientProviders};
use s2n_quic::provider::event::Subscriber;
use s2n_quic::provider::packet_interceptor::PacketInterceptor;
use s2n_quic::provider::{io, tls};
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

/// Assistance for the connections of one s2n-quic client, which the caller builds and
/// [`Self::apply`] joins to it.
///
/// [`crate::Endpoint`] is this on the operating system's sockets; a simulation does the same in
/// virtual time.
///
/// ```no_run
/// # use packrat_s2n_quic::s2n_quic;
/// # use s2n_quic::provider::{io, tls};
/// # async fn example(
/// #     host: std::sync::Arc<dyn packrat_s2n_quic::Host>,
/// #     tls: tls::rustls::Client,
/// #     io: io::tokio::Provider,
/// #     seed: [u8; 32],
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use packrat_s2n_quic::{Attachment, ClientConfig};
/// use s2n_quic::client::{Client, Connect};
///
/// // `host` sends from the socket that `io` reads.
/// let attachment = Attachment::new(host);
/// let client = attachment.apply(Client::builder(), tls, io).start()?;
///
/// let remote = "192.0.2.7:443".parse()?;
/// let assist = Some((ClientConfig::default(), seed));
/// let (assistance, driver) = attachment.assist(remote, assist).ok_or("connected already")?;
/// tokio::spawn(driver);
/// let connect = Connect::new(remote).with_server_name("example.org");
/// let connection = client.connect(connect).await?;
/// assistance.connected(&connection);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Attachment {
    host: Arc<dyn Host>,
    pub(crate) paths: Arc<Paths>,
    keys: NewKeys,
    events: ConnectionEvents,
    observer: Option<Observer>,
}

impl Attachment {
    /// For a client that runs on `host`.
    pub fn new(host: Arc<dyn Host>) -> Self {
        Self {
            host,
            paths: Arc::new(Paths::default()),
            keys: NewKeys::default(),
            events: ConnectionEvents::default(),
            observer: None,
        }
    }

    /// Tells `observer` of the events of all connections that begin from here on.
    ///
    /// Defaults to `None`: events are not even made.
    #[must_use]
    pub fn with_observer(mut self, observer: impl Into<Option<Observer>>) -> Self {
        self.observer = observer.into();
        self
    }

    /// A client's builder with everything that assistance needs: `tls` and `io` as its providers,
    /// and a packet interceptor and an event subscriber of the attachment's own. Exactly one client
    /// uses it. A builder that has its own subscriber takes [`Self::io`], [`Self::tls`],
    /// [`Self::interceptor`] and [`Self::subscriber`] one by one instead.
    pub fn apply<B, T, I>(
        &self,
        builder: Builder<B>,
        tls: T,
        io: I,
    ) -> Builder<impl ClientProviders + use<B, T, I>>
    where
        B: ClientProviders,
        T: tls::Provider,
        I: io::Provider,
        KeyOf<T>: 'static,
        PacketKeyOf<T>: 'static,
    {
        let builder = infallible(builder.with_tls(self.tls(tls)));
        let builder = infallible(builder.with_io(self.io(io)));
        let builder = infallible(builder.with_event(self.subscriber()));
        infallible(builder.with_packet_interceptor(self.interceptor()))
    }

    /// The I/O provider for the client's builder: `provider`, between which and s2n-quic assistance
    /// consumes its own datagrams and keeps others back until s2n-quic can use them.
    pub fn io<P: io::Provider>(
        &self,
        provider: P,
    ) -> impl io::Provider<PathHandle = P::PathHandle, Error = P::Error> + use<P> {
        ReleasingProvider { provider, paths: Arc::clone(&self.paths), keys: self.keys.clone() }
    }

    /// The TLS provider for the same client's builder: `provider`, of whose connections assistance
    /// may read the packet numbers.
    pub fn tls<P>(&self, provider: P) -> impl tls::Provider<Error = P::Error> + use<P>
    where
        P: tls::Provider,
        KeyOf<P>: 'static,
        PacketKeyOf<P>: 'static,
    {
        SharingProvider { provider, keys: self.keys.clone() }
    }

    /// The packet interceptor for the client's builder; exactly one client uses it.
    pub fn interceptor(&self) -> impl PacketInterceptor + use<> {
        Interceptor::new(Arc::clone(&self.paths), self.events.clone())
    }

    /// The event subscriber for the same client's builder: through it the interceptor learns of key
    /// updates and of what s2n-quic drops. Assistance needs both.
    pub fn subscriber(&self) -> impl Subscriber + use<> {
        self.events.clone()
    }

    /// Prepares a connection to `remote`; call it before connecting. `config` and 32 fresh random
    /// bytes, or `None` for a connection whose packet numbers are only recorded. The future
    /// keeps the timers and must be spawned; it ends with the assistance. `None` when there
    /// is a connection to this address already.
    pub fn assist(
        &self,
        remote: SocketAddr,
        config: Option<(ClientConfig, [u8; 32])>,
    ) -> Option<(Assistance, impl Future<Output = ()> + Send + use<>)> {
        let core = config.map(|(config, seed)| self.core(config, seed));
        self.assist_with(remote, Guarded::new(core))
    }

    /// The core of a connection that begins now.
    pub(crate) fn core(&self, config: ClientConfig, seed: [u8; 32]) -> Box<Assist> {
        let mut core = Assist::new(config, seed, self.host.now());
        if let Some(observer) = &self.observer {
            core.observe(observer.clone());
        }
        Box::new(core)
    }

    /// [`Self::assist`] with any core.
    pub(crate) fn assist_with(
        &self,
        remote: SocketAddr,
        core: Guarded,
    ) -> Option<(Assistance, impl Future<Output = ()> + Send + use<>)> {
        let path = Arc::new(AssistedPath::new(
            remote,
            Arc::clone(&self.host),
            core,
            self.paths.waker.clone(),
        ));
        if !self.paths.insert(&path) {
            return None;
        }
        let handle = LateHandle::default();
        let driver = drive(Arc::clone(&path), Arc::clone(&handle));
        Some((Assistance { path, paths: Arc::clone(&self.paths), handle }, driver))
    }
}

/// A builder takes what is a provider already without asking.
fn infallible<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
