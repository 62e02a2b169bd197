//! The shell without a socket of its own: for an s2n-quic client whose application provides the
//! I/O.

use crate::connection::Assistance;
use crate::connection_events::ConnectionEvents;
use crate::driver::drive;
use crate::host::Host;
use crate::path::{AssistedPath, Guarded, PathShim};
use crate::paths::Paths;
use crate::release::ReleasingProvider;
use packrat_client::{ClientConfig, Input, LossMemory, Observer, Shim};
use s2n_quic::client::{Builder, ClientProviders};
use s2n_quic::provider::event::Subscriber;
use s2n_quic::provider::io;
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
/// let client = attachment.apply(Client::builder(), io).with_tls(tls)?.start()?;
///
/// let remote = "192.0.2.7:443".parse()?;
/// let assist = Some((ClientConfig::default(), seed));
/// let (assistance, driver) = attachment.assist(remote, assist);
/// tokio::spawn(driver);
/// let connect = Connect::new(remote).with_server_name("example.org");
/// let connection = client.connect(connect).await?;
/// assistance.connected(&connection);
/// # drop(connection);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Attachment {
    host: Arc<dyn Host>,
    pub(crate) paths: Arc<Paths>,
    observer: Option<Observer>,
    memory: Arc<LossMemory>,
}

impl Attachment {
    /// An attachment for a client that runs on `host`.
    pub fn new(host: Arc<dyn Host>) -> Self {
        Self { host, paths: Arc::default(), observer: None, memory: Arc::default() }
    }

    /// Shares measurements of last miles with the other clients that have this memory.
    ///
    /// Defaults to a memory of this client alone.
    #[must_use]
    pub fn with_memory(mut self, memory: Arc<LossMemory>) -> Self {
        self.memory = memory;
        self
    }

    /// Reports the events of all connections that begin after this call to `observer`.
    ///
    /// Defaults to `None`: the events are not created.
    #[must_use]
    pub fn with_observer(mut self, observer: impl Into<Option<Observer>>) -> Self {
        self.observer = observer.into();
        self
    }

    /// Repairs uploads as well, on all connections of the client, as [`ClientConfig::with_uploads`]
    /// does for [`crate::Endpoint`]. s2n-quic's longest datagrams become eight bytes shorter, to
    /// leave room for a number. Call it before [`Self::io`].
    ///
    /// Defaults to no repair of uploads: datagrams leave unchanged.
    #[must_use]
    pub fn with_uploads(self) -> Self {
        self.paths.repair_uploads();
        self
    }

    /// A client's builder with everything that assistance needs: `io` as its provider, and an event
    /// subscriber of the attachment's own. Exactly one client uses it. A builder that has its own
    /// subscriber takes [`Self::io`] and [`Self::subscriber`] one by one instead.
    pub fn apply<B, I>(
        &self,
        builder: Builder<B>,
        io: I,
    ) -> Builder<impl ClientProviders + use<B, I>>
    where
        B: ClientProviders,
        I: io::Provider,
    {
        let builder = infallible(builder.with_io(self.io(io)));
        infallible(builder.with_event(self.subscriber()))
    }

    /// Wraps `provider` as the I/O provider for the client's builder. Between the provider and
    /// s2n-quic, assistance consumes its own datagrams, removes numbers from the others, and holds
    /// datagrams above a hole.
    pub fn io<P: io::Provider>(
        &self,
        provider: P,
    ) -> impl io::Provider<PathHandle = P::PathHandle, Error = P::Error> + use<P> {
        ReleasingProvider { provider, paths: Arc::clone(&self.paths) }
    }

    /// The event subscriber for the same client's builder: through it assistance learns which
    /// connections there are. Assistance needs both.
    pub fn subscriber(&self) -> impl Subscriber + use<> {
        ConnectionEvents(Arc::clone(&self.paths))
    }

    /// Prepares a connection to `remote`; call it before connecting. `config` comes with 32 fresh
    /// random bytes; `None` means a connection without assistance. [`Self::with_uploads`] decides
    /// whether uploads are repaired, before s2n-quic chooses its longest datagram;
    /// [`ClientConfig::with_uploads`] has no effect here. The future keeps the timers and must be
    /// spawned; it ends with the assistance. A gateway sees connections to the same address as one
    /// flow, so they share the assistance of the first.
    pub fn assist(
        &self,
        remote: SocketAddr,
        config: Option<(ClientConfig, [u8; 32])>,
    ) -> (Assistance, impl Future<Output = ()> + Send + use<>) {
        let shim = config.map(|(config, seed)| self.shim(remote, config, seed));
        self.assist_with(remote, Guarded::new(shim))
    }

    /// The shim of a path that begins now.
    pub(crate) fn shim(
        &self,
        remote: SocketAddr,
        mut config: ClientConfig,
        seed: [u8; 32],
    ) -> Box<PathShim> {
        config.uploads = self.paths.repairs_uploads();
        let now = self.host.now();
        let mut shim = Shim::new(config, seed, now);
        shim.remember(self.memory.recall(remote.ip().to_canonical(), now));
        shim.handle(Input::FirstFlightBegins, now);
        if let Some(observer) = &self.observer {
            shim.observe(observer.clone());
        }
        Box::new(shim)
    }

    /// [`Self::assist`] with any shim.
    pub(crate) fn assist_with(
        &self,
        remote: SocketAddr,
        shim: Guarded,
    ) -> (Assistance, impl Future<Output = ()> + Send + use<>) {
        let (path, is_new) = self.paths.join(remote, || {
            let released = self.paths.released.clone();
            let memory = Arc::clone(&self.memory);
            AssistedPath::new(remote, Arc::clone(&self.host), shim, released, memory)
        });
        let driven = is_new.then(|| Arc::clone(&path));
        let driver = async move {
            if let Some(path) = driven {
                drive(path).await;
            }
        };
        (Assistance::new(path, Arc::clone(&self.paths)), driver)
    }
}

/// The builder cannot fail when it is given a provider.
fn infallible<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
