//! A network in virtual time: gateways, servers and clients, which are never late. A datagram
//! arrives at once, unless its sender is far away.
//!
//! ```text
//!   Socket::say -> under way -> Network::arrive -> a listener, or a session's way to its server
//!                      ^                               |
//!                      +--------- what it sends -------+----> the inbox of an address
//! ```
//!
//! Time passes while a socket is heard at.
#![allow(dead_code)] // every test uses a part of it

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use packrat_client::ClientConfig;
use packrat_dataplane::RouteConfig;
use packrat_dataplane::virtual_time::{Sent, VirtualGateway};
use packrat_wire::estimate::Timestamp;

use crate::client::{self, Client, PATIENCE};
use crate::gateway;

/// Ports of the listeners of each gateway.
const LISTENERS: [u16; 2] = [443, 444];
/// The port that servers see instead of session 0.
const FIRST_PORT: u16 = 10_000;
/// Ports of clients and servers.
const FIRST_OF_HOSTS: u16 = 40_000;
/// Sessions that a gateway has room for.
const SESSIONS: u64 = 1000;

/// A datagram in flight.
struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    data: Vec<u8>,
}

struct State {
    now: Timestamp,
    /// Gateways by their first listeners.
    gateways: BTreeMap<SocketAddr, VirtualGateway>,
    /// Datagrams in flight by the time of arrival, in order of sending.
    under_way: BTreeMap<(Timestamp, u64), Datagram>,
    inboxes: HashMap<SocketAddr, VecDeque<(Vec<u8>, SocketAddr)>>,
    /// The time that datagrams of a sender take.
    delays: HashMap<SocketAddr, Duration>,
    /// Numbers given so far: of datagrams, hosts, gateways.
    sent: u64,
    ports: u16,
    seeds: u8,
}

/// A network.
#[derive(Clone)]
pub(crate) struct Network(Rc<RefCell<State>>);

impl State {
    fn send(&mut self, datagram: Datagram) {
        let delay = self.delays.get(&datagram.from).copied().unwrap_or_default();
        self.sent += 1;
        self.under_way.insert((self.now + delay, self.sent), datagram);
    }

    /// The time at which something happens next.
    fn next(&self) -> Option<Timestamp> {
        let timeouts = self.gateways.values().filter_map(VirtualGateway::next_timeout);
        let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
        timeouts.chain(arrival).min()
    }

    /// Lets the next event happen, until this time at the latest.
    fn pass_to_next(&mut self, end: Timestamp) {
        self.now = self.next().map_or(end, |next| next.clamp(self.now, end));
        let listeners: Vec<SocketAddr> = self.gateways.keys().copied().collect();
        for listener in listeners {
            self.at(listener, |gateway, now| gateway.handle_timeout(now));
        }
        self.arrive();
    }

    /// All that is due arrives.
    fn arrive(&mut self) {
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= self.now
        {
            let Datagram { from, to, data } = entry.remove();
            let gateway = self.gateways.keys().find(|listener| listener.ip() == to.ip()).copied();
            let number = LISTENERS.iter().position(|port| *port == to.port());
            match gateway {
                Some(listener) if number.is_some() => {
                    let number = number.unwrap_or_default();
                    self.at(listener, |gateway, _| {
                        gateway.receive_from_client(from, number, &data);
                    });
                }
                Some(listener) => {
                    let session = u64::from(to.port().wrapping_sub(FIRST_PORT));
                    self.at(listener, |gateway, _| gateway.receive_from_server(session, &data));
                }
                None => self.inboxes.entry(to).or_default().push_back((data, from)),
            }
        }
    }

    /// Has a gateway do something, and takes what it sends.
    fn at<R>(
        &mut self,
        listener: SocketAddr,
        action: impl FnOnce(&mut VirtualGateway, Timestamp) -> R,
    ) -> Option<R> {
        let (now, gateway) = (self.now, self.gateways.get_mut(&listener)?);
        let result = action(gateway, now);
        let sent = gateway.take_sent().into_iter().filter_map(|sent| match sent {
            Sent::ToClient { path, datagram } => {
                Some(Datagram { from: path.gateway, to: path.client, data: datagram })
            }
            Sent::ToServer { session, datagram } => {
                let port = FIRST_PORT + u16::try_from(session).unwrap();
                let from = SocketAddr::new(listener.ip(), port);
                Some(Datagram { from, to: gateway.endpoint(session)?, data: datagram })
            }
        });
        let sent: Vec<Datagram> = sent.collect();
        sent.into_iter().for_each(|datagram| self.send(datagram));
        Some(result)
    }
}

impl Network {
    pub(crate) fn new() -> Self {
        Self(Rc::new(RefCell::new(State {
            now: Timestamp::from_millis(1000),
            gateways: BTreeMap::new(),
            under_way: BTreeMap::new(),
            inboxes: HashMap::new(),
            delays: HashMap::new(),
            sent: 0,
            ports: FIRST_OF_HOSTS,
            seeds: 0,
        })))
    }

    fn state(&self) -> RefMut<'_, State> {
        self.0.borrow_mut()
    }

    /// A socket of this host, with a port of its own.
    pub(crate) fn socket(&self, host: &str) -> Socket {
        let mut state = self.state();
        state.ports += 1;
        let address = SocketAddr::new(host.parse().unwrap(), state.ports);
        Socket { network: self.clone(), address, peer: Cell::new(None) }
    }

    pub(crate) fn server(&self) -> Socket {
        self.socket("127.1.0.1")
    }

    pub(crate) fn gateway(&self, config: RouteConfig) -> Gateway {
        let mut state = self.state();
        state.seeds += 1;
        let (seed, now) = (state.seeds, state.now);
        let [listen, second] = LISTENERS.map(|port| SocketAddr::from(([127, 2, 0, seed], port)));
        let listeners = [listen, second];
        let mut gateway = VirtualGateway::new(config, &listeners, SESSIONS, seed.into()).unwrap();
        gateway.handle_timeout(now);
        state.gateways.insert(listen, gateway);
        Gateway { network: self.clone(), listen, second }
    }

    /// Time passes.
    pub(crate) fn pass(&self, time: Duration) {
        let end = self.state().now + time;
        while self.state().now < end {
            self.state().pass_to_next(end);
        }
    }
}

/// A network with a server, and a gateway before it.
pub(crate) fn alone() -> (Network, Socket, Gateway) {
    let network = Network::new();
    let server = network.server();
    let gateway = network.gateway(gateway::config(&[&server]));
    (network, server, gateway)
}

/// A server, a gateway, its assisted client, and the address that the server sees the client at.
pub(crate) fn connected() -> (Socket, Gateway, Client<Socket>, SocketAddr) {
    let (_, server, gateway) = alone();
    let (client, upstream) = gateway.connect(&server);
    (server, gateway, client, upstream)
}

/// A gateway of a network.
pub(crate) struct Gateway {
    network: Network,
    pub(crate) listen: SocketAddr,
    /// Another listener of the same route.
    pub(crate) second: SocketAddr,
}

impl Gateway {
    fn at<R>(&self, action: impl FnOnce(&mut VirtualGateway) -> R) -> R {
        let mut state = self.network.state();
        let result = state.at(self.listen, |gateway, _| action(gateway)).expect("it is there");
        state.arrive();
        result
    }

    pub(crate) fn metric(&self, name: &str) -> u64 {
        self.at(|gateway| gateway::metric(gateway.route(), name))
    }

    pub(crate) fn configure(&self, config: RouteConfig) {
        self.at(|gateway| gateway.configure(config)).unwrap();
    }

    /// Ends all sessions with a Goodbye.
    pub(crate) fn end_sessions(&self) {
        self.at(VirtualGateway::shutdown);
    }

    /// Ends all sessions with a Goodbye, and stops listening.
    pub(crate) fn shutdown(self) {
        self.end_sessions();
        self.network.state().gateways.remove(&self.listen);
    }

    /// A socket of a client of this gateway, at this host.
    pub(crate) fn client_from(&self, host: &str) -> Socket {
        let socket = self.network.socket(host);
        socket.connect(self.listen);
        socket
    }

    pub(crate) fn client(&self) -> Socket {
        self.client_from("127.0.0.1")
    }

    /// An assisted client, and the address that the server sees it at.
    pub(crate) fn connect(&self, server: &Socket) -> (Client<Socket>, SocketAddr) {
        client::assist(Client::on(self.client(), ClientConfig::default()), server)
    }

    /// Has the gateway receive a datagram in the name of this client.
    pub(crate) fn receive_from(&self, client: SocketAddr, datagram: &[u8]) {
        self.at(|gateway| gateway.receive_from_client(client, 0, datagram));
    }

    pub(crate) fn wait_for(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let end = self.network.state().now + PATIENCE;
        while !condition(self) {
            assert!(self.network.state().now < end, "waited in vain for: {what}");
            self.network.pass(Duration::from_millis(1));
        }
    }
}

/// A socket of a client or a server.
pub(crate) struct Socket {
    network: Network,
    address: SocketAddr,
    peer: Cell<Option<SocketAddr>>,
}

impl Socket {
    /// Connects the socket: from now on it speaks to this address alone.
    pub(crate) fn connect(&self, peer: SocketAddr) {
        self.peer.set(Some(peer));
    }

    /// Another socket at this address, connected to the same peer.
    pub(crate) fn again(&self) -> Self {
        Self { network: self.network.clone(), address: self.address, peer: self.peer.clone() }
    }

    /// Delays the datagrams that are sent from here.
    pub(crate) fn delay(&self, delay: Duration) {
        self.network.state().delays.insert(self.address, delay);
    }

    fn take(&self) -> Option<(Vec<u8>, SocketAddr)> {
        let mut state = self.network.state();
        let inbox = state.inboxes.get_mut(&self.address)?;
        while let Some((datagram, from)) = inbox.pop_front() {
            if self.peer.get().is_none_or(|peer| peer == from) {
                return Some((datagram, from));
            }
        }
        None
    }

    /// All that has come.
    pub(crate) fn drain(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| Some(self.take()?.0)).collect()
    }
}

impl client::Socket for Socket {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn now(&self) -> Timestamp {
        self.network.state().now
    }

    fn pause(&self, time: Duration) {
        self.network.pass(time);
    }

    fn say(&self, datagram: &[u8]) {
        self.say_to(datagram, self.peer.get().expect("it is connected"));
    }

    fn say_to(&self, datagram: &[u8], to: SocketAddr) {
        let mut state = self.network.state();
        state.send(Datagram { from: self.address, to, data: datagram.to_vec() });
        state.arrive();
    }

    fn hear(&self, patience: Duration) -> Option<(Vec<u8>, SocketAddr)> {
        let end = self.now() + patience;
        loop {
            if let Some(heard) = self.take() {
                return Some(heard);
            }
            if self.now() >= end {
                return None;
            }
            self.network.state().pass_to_next(end);
        }
    }
}
