//! The data plane without threads, network and clock, for tests: the caller passes in datagrams of
//! clients and servers, takes out the gateway's datagrams, and passes the time as an argument.
//!
//! Everything in between is the data plane's own: ways of datagrams, session table, path
//! validation, pending datagrams, capacity, eviction, deadlines. Its sockets exist, but no datagram
//! passes through them.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packrat_api::route::RouteConfig;
use packrat_engine::NetworkPath;
use packrat_wire::estimate::Timestamp;
use parking_lot::Mutex;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::io_thread::{IoThread, Served};
use crate::clock::Clock;
use crate::configuration::ConfigurationError;
use crate::context::Environment;
use crate::listener::{ClientDatagrams, Command, Ingress, Mailboxes, pass_on, take_peer_messages};
use crate::log::{Logger, Silent};
use crate::random::Random;
use crate::route::Route;
use crate::session::FlowId;
use crate::socket::{
    Capacity, Descriptors, Ecn, GsoBatch, ListenerAddress, Outlet, Reader, Sender, Taken,
};

/// A datagram that the gateway has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// Datagram to a client, along this path.
    ToClient {
        /// The client's address, and the gateway's.
        path: NetworkPath,
        /// The datagram.
        datagram: Vec<u8>,
    },
    /// Datagram to the server.
    ToServer {
        /// The session's number in log lines: to the server, a socket of the gateway.
        session: u64,
        /// The datagram.
        datagram: Vec<u8>,
    },
}

/// The reason why a gateway in virtual time cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VirtualGatewayError {
    /// The route's configuration is wrong.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// The operating system refused a socket.
    #[error("a socket cannot be opened: {0}; check the limit of open files")]
    Socket(#[from] io::Error),
}

/// A data plane with one worker and one route.
pub struct VirtualGateway {
    environment: Arc<Environment>,
    mailboxes: Arc<Mailboxes>,
    route: Arc<Route>,
    thread: IoThread,
    ingresses: Vec<Ingress>,
    now: Arc<AtomicU64>,
    outlet: Outlet,
    /// The listeners by their sockets.
    listeners: HashMap<RawFd, SocketAddr>,
}

impl std::fmt::Debug for VirtualGateway {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("VirtualGateway").field("route", &self.route).finish_non_exhaustive()
    }
}

impl VirtualGateway {
    /// A gateway with room for `sessions`. `listeners`: the addresses that clients send to, which
    /// may be foreign to this host. `seed`: the seed of its random numbers.
    ///
    /// # Errors
    /// [`VirtualGatewayError`].
    pub fn new(
        config: RouteConfig,
        listeners: &[SocketAddr],
        sessions: u64,
        seed: u64,
    ) -> Result<Self, VirtualGatewayError> {
        let now = Arc::new(AtomicU64::new(0));
        let capacity = Capacity::limited(sessions, "in virtual time".to_owned());
        let random = Random::Seeded(Box::new(Mutex::new(ChaCha8Rng::seed_from_u64(seed))));
        let environment = Arc::new(
            Environment::new(Logger::new(Box::new(Silent)), capacity)
                .with(Clock::Virtual(Arc::clone(&now)), random),
        );
        let mailboxes = Arc::new(Mailboxes::new(1).map_err(|(_, error)| error)?);
        let route = Arc::new(Route::new(config, Arc::clone(&environment))?);
        let outlet = Outlet::default();
        let mut thread = IoThread::new(0, Arc::clone(&environment), Arc::clone(&mailboxes));
        thread.forwarder.sender = Sender::to(&outlet);
        let descriptors = Descriptors::default();
        let (mut ingresses, mut sockets) = (Vec::new(), HashMap::new());
        for &listener in listeners {
            let slot = route.slot(ListenerAddress::new(listener), 0);
            // A name for the listener: no datagram passes it, and a machine may have no IPv6.
            let open = || Ok(OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0")?));
            slot.fill(&descriptors, 0, Reader::IoThread, |_| open())?;
            if let Some(socket) = slot.with(|downstream| downstream.socket().as_raw_fd()) {
                sockets.insert(socket, listener);
            }
            let mut ingress = Ingress::new(Arc::clone(&mailboxes), Arc::clone(&route), slot, 0);
            ingress.forwarder.sender = Sender::to(&outlet);
            ingresses.push(ingress);
        }
        let listeners = sockets;
        Ok(Self { environment, mailboxes, route, thread, ingresses, now, outlet, listeners })
    }

    /// The route has another configuration.
    ///
    /// # Errors
    /// It is wrong; the one before stays in force.
    pub fn configure(&mut self, config: RouteConfig) -> Result<(), ConfigurationError> {
        let config = config.checked()?;
        let is_switched_off = self.route.context.engine.config().assist && !config.assist;
        self.route.context.reconfigure(config)?;
        if is_switched_off {
            self.mailboxes.post_to_all(|| Command::FollowRoutes);
            self.run_due();
        }
        Ok(())
    }

    /// Ends all sessions, and sends their clients Goodbye.
    pub fn shutdown(&mut self) {
        self.run_due();
        if let Some(mailbox) = self.mailboxes.of(0) {
            self.thread.stop(mailbox);
        }
    }

    /// The server of a session, or the gateway that it is relayed to.
    pub fn endpoint(&self, session: u64) -> Option<SocketAddr> {
        let served = self.thread.sessions.get(&FlowId::new(session))?;
        Some(served.upstream.endpoint().get())
    }

    /// A client, or someone in its name, has sent a datagram to one of the listeners.
    pub fn receive_from_client(&mut self, client: SocketAddr, listener: usize, datagram: &[u8]) {
        let Some(ingress) = self.ingresses.get_mut(listener) else { return };
        ingress.receive(&ClientDatagrams {
            client,
            local: None,
            ecn: Ecn::NOT_CAPABLE,
            data: datagram,
            segment_size: datagram.len().max(1),
        });
        self.run_due();
    }

    /// Passes in a datagram to the session's socket from its server, or from the gateway that it is
    /// relayed to; false if there is no such session.
    pub fn receive_from_server(&mut self, session: u64, datagram: &[u8]) -> bool {
        let served = self.thread.sessions.get(&FlowId::new(session));
        let Some(Served { session, upstream, .. }) = served else { return false };
        let (session, is_relayed) = (Arc::clone(session), upstream.is_relay());
        let forwarder = &mut self.thread.forwarder;
        let mut batches = vec![GsoBatch::single(datagram, Ecn::NOT_CAPABLE)];
        if is_relayed {
            batches = take_peer_messages(forwarder, &self.route, &session, batches);
        }
        let deadline = pass_on(forwarder, &session, &batches);
        self.thread.plan_for(&session, deadline, Timestamp::ZERO);
        self.run_due();
        true
    }

    /// The time at which there is something to do.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.thread.next_deadline(None)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.now.store(now.as_micros(), Ordering::Relaxed);
        self.run_due();
    }

    fn run_due(&mut self) {
        let Some(mailbox) = self.mailboxes.of(0) else { return };
        loop {
            self.thread.run_due(mailbox);
            if mailbox.is_empty() {
                return;
            }
        }
    }

    /// Takes the datagrams sent since the last call, in order.
    pub fn take_sent(&mut self) -> Vec<Sent> {
        let taken = self.outlet.drain();
        taken.into_iter().filter_map(|taken| self.addressed(taken)).collect()
    }

    /// The datagram with its path or session; `None` if the session has ended since it was sent.
    fn addressed(&self, taken: Taken) -> Option<Sent> {
        let Taken { socket, to, datagram } = taken;
        if let Some(client) = to {
            let gateway = *self.listeners.get(&socket)?;
            return Some(Sent::ToClient { path: NetworkPath { client, gateway }, datagram });
        }
        let uses = |served: &&Served| served.upstream.socket().as_raw_fd() == socket;
        let served = self.thread.sessions.values().find(uses)?;
        Some(Sent::ToServer { session: served.session.id.get(), datagram })
    }

    /// Units of work that clients have been charged for.
    pub fn work(&self) -> u64 {
        self.environment.work.spent()
    }

    /// The route.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Clients whose sessions are in an arm of the comparison of assisted clients with those held out.
    pub fn compared(&self) -> Vec<SocketAddr> {
        let sessions = self.thread.sessions.values().map(|served| &served.session);
        let compared = sessions.filter(|session| session.transfer.is_compared());
        compared.map(|session| session.network().client).collect()
    }

    /// Sessions, assisted or not.
    pub fn sessions(&self) -> u64 {
        self.route.sessions.count()
    }
}

/// Ends every session: they and the table that they are in hold each other.
impl Drop for VirtualGateway {
    fn drop(&mut self) {
        self.shutdown();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_it_is_left_when_it_goes() {
        let text = r#"{"route":"r","endpoints":["127.0.0.1:9"]}"#;
        let config: RouteConfig = serde_json::from_str(text).unwrap();
        let listener = "192.0.2.1:443".parse().unwrap();
        let mut gateway = VirtualGateway::new(config, &[listener], 8, 1).unwrap();
        for port in 1000..1004 {
            let client = SocketAddr::from(([198, 51, 100, 1], port));
            gateway.receive_from_client(client, 0, b"a datagram");
        }
        assert_eq!(gateway.sessions(), 4);
        let session = gateway.thread.sessions.values().next().unwrap();
        let (session, route) = (Arc::downgrade(&session.session), Arc::downgrade(&gateway.route));
        drop(gateway);
        assert!(session.upgrade().is_none() && route.upgrade().is_none());
    }

    /// In a roll-out the configuration changes more often than a silent server is given up.
    #[test]
    fn configuration_changes_do_not_extend_a_lost_servers_time() {
        let config = |endpoint: &str, idle: u64| {
            let mut config = RouteConfig::new("r", [endpoint.parse().unwrap()]).unwrap();
            config.idle_timeout_seconds = idle;
            config
        };
        let (gone, next) = ("127.0.0.1:9", "127.0.0.1:10");
        let listener = "192.0.2.1:443".parse().unwrap();
        let client = "198.51.100.1:1000".parse().unwrap();
        // Whether there is a change before the client's second datagram, and before its third.
        for changes in [[true, false], [true, true], [false, true]] {
            let mut gateway = VirtualGateway::new(config(gone, 60), &[listener], 8, 1).unwrap();
            let at = |gateway: &mut VirtualGateway, milliseconds| {
                gateway.handle_timeout(Timestamp::from_millis(milliseconds));
                gateway.receive_from_client(client, 0, b"a datagram");
                let served = gateway.thread.sessions.values().next().unwrap();
                served.upstream.endpoint().get().to_string()
            };
            assert_eq!(at(&mut gateway, 1000), gone);
            let session = gateway.thread.sessions.keys().next().unwrap().get();
            assert!(gateway.receive_from_server(session, b"an answer"));
            gateway.configure(config(next, 60)).unwrap();
            assert_eq!(at(&mut gateway, 2000), gone);
            for (milliseconds, endpoint, is_changed) in
                [(4100, gone, changes[0]), (5500, next, changes[1])]
            {
                if is_changed {
                    gateway.configure(config(next, milliseconds)).unwrap();
                }
                assert_eq!(at(&mut gateway, milliseconds), endpoint, "{changes:?}");
            }
        }
    }
}
