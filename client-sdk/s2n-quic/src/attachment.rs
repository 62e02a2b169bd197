//! The shell without a socket of its own: for an s2n-quic client whose application provides the
//! I/O.

use crate::connection::Assistance;
use crate::connection_events::ConnectionEvents;
use crate::driver::{LateHandle, drive};
use crate::guard::Core;
use crate::host::Host;
use crate::interceptor::{Interceptor, Paths};
use crate::path::AssistedPath;
use crate::release::ReleasingProvider;
use crate::tls::{KeyOf, NewKeys, SharingProvider};
use packrat_client::{Assist, ClientConfig, Observer};
use s2n_quic::provider::event::Subscriber;
use s2n_quic::provider::packet_interceptor::PacketInterceptor;
use s2n_quic::provider::{io, tls};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

/// Assistance for the connections of one s2n-quic client, which the caller builds: with any I/O and
/// TLS providers that went through [`Self::io`] and [`Self::tls`], and with [`Self::interceptor`]
/// and [`Self::subscriber`] as its packet interceptor and event subscriber.
///
/// [`crate::Endpoint`] is this on the operating system's sockets; a simulation does the same in
/// virtual time.
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
        self.assist_with(remote, core)
    }

    /// The core of a connection that begins now.
    pub(crate) fn core(&self, config: ClientConfig, seed: [u8; 32]) -> Box<dyn Core> {
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
        core: Option<Box<dyn Core>>,
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
