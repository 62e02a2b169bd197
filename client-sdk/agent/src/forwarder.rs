//! The agent on real sockets: one thread, which waits for all of them.
//!
//! ```text
//!   program A ----> listener --+--> upstream socket of A ----> service, with a gateway before it
//!   program B ---->            +--> upstream socket of B ---->
//!             <---- shim of A, shim of B <----------------
//! ```

mod associations;
mod listener;
mod turning;
mod upstream;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use mio::{Events, Poll, Waker};
use packrat_client::{LONGEST_BUNDLED_BYTES, SourceAddress, Timestamp};

use packrat_socket::{Batch, FlowId, Limits, Mark, Message, Peer, Table, source_towards};

pub use self::listener::{Choosing, Service, Target};
use self::listener::{Entrance, Listener};
pub use self::turning::TurnListener;
use self::upstream::{Upstream, Wire};
use crate::handle::{Command, Handle};
use crate::network::{NetworkEvents, Wakefulness, choose, is_of_this_host};
use crate::socket::{Run, Way};
use crate::socks::AssociationId;
use crate::statistics::{FlowStatus, ServiceStatus, Status};
use crate::token::{MOST_LISTENERS, Ready};

/// Events taken at once.
const EVENT_ROOM: usize = 1024;
/// Receiving calls for one socket before the others have their turn.
const TURN_RECEIVES: usize = 8;
/// The agent looks at least this often if the host has slept.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Divisor of the agent's time that limits the search for another network.
const NETWORK_SHARE: u32 = 20;
/// Flows in a status.
const FLOWS_SHOWN: usize = 100;
/// Association of datagrams that the system redirects.
const REDIRECTED_ASSOCIATION: AssociationId = AssociationId::MAX;

/// An agent with its sockets.
pub struct Agent {
    poll: Poll,
    commands: Receiver<Command>,
    table: Table<Mark>,
    limits: Limits,
    listeners: Vec<Listener>,
    upstreams: HashMap<FlowId, Upstream>,
    /// Local addresses of the upstream sockets: a datagram from one of them has gone in a circle.
    bound: HashSet<SocketAddr>,
    run: Run,
    began: Instant,
    wakefulness: Wakefulness,
    /// Events about networks, if the host reports them.
    network_events: Option<NetworkEvents>,
    network_changes: u64,
    /// Time of the next search for another network, and the earliest such time after an event of
    /// the host.
    next_network: Timestamp,
    next_network_event: Timestamp,
    /// Time to look for programs that have connected and remain silent.
    next_look: Timestamp,
}

impl Agent {
    /// Creates an agent for these services, and for programs that choose their destinations, and
    /// the handle to it. The listeners of the latter count as the last of the services, SOCKS
    /// before TURN.
    ///
    /// # Errors
    /// When the system refuses a resource, there are more than 65,535 services, or a service is at
    /// an address of the agent's own.
    pub fn new(
        services: Vec<Service>,
        choosing: Choosing,
        limits: Limits,
    ) -> io::Result<(Self, Handle)> {
        let Choosing { socks, turn } = choosing;
        let count = services.len() + socks.iter().len() + turn.iter().len();
        if !(1..=MOST_LISTENERS).contains(&count) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("an agent has 1 to {MOST_LISTENERS} services, not {count}"),
            ));
        }
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), Ready::Waker.token()?)?);
        let (sender, commands) = channel();
        let handle = Handle { commands: sender, waker };
        let of_socks = socks.iter().map(|socks| &socks.config);
        let chosen = of_socks.chain(turn.iter().map(|turn| &turn.config));
        let configs = services.iter().map(|service| &service.config).chain(chosen).cloned();
        // The buffers of programs' sockets are limited.
        let configs = configs.map(|config| config.with_spread_bursts(true)).collect();
        let mut listeners = Vec::with_capacity(count);
        for (index, service) in services.into_iter().enumerate() {
            let token = Ready::Listener(index).token()?;
            listeners.push(Listener::of_service(service, token, poll.registry())?);
        }
        if let Some(socks) = socks {
            let token = Ready::Listener(listeners.len()).token()?;
            listeners.push(Listener::of_socks(socks, handle.clone(), token, poll.registry())?);
        }
        if let Some(turn) = turn {
            let token = Ready::Listener(listeners.len()).token()?;
            listeners.push(Listener::of_turn(turn, token, poll.registry())?);
        }
        let began = Instant::now();
        let network_events = NetworkEvents::new(poll.registry(), Ready::Network.token()?)
            .inspect_err(|error| tracing::debug!(%error, "the host does not tell of its networks"))
            .ok();
        let agent = Self {
            poll,
            commands,
            table: Table::new(configs, limits),
            limits,
            listeners,
            upstreams: HashMap::new(),
            bound: HashSet::new(),
            run: Run::default(),
            began,
            wakefulness: Wakefulness::new(began, SystemTime::now()),
            network_events,
            network_changes: 0,
            next_network: Timestamp::ZERO,
            next_network_event: Timestamp::ZERO,
            next_look: Timestamp::ZERO,
        };
        agent.refuse_circles()?;
        Ok((agent, handle))
    }

    /// Refuses a service whose datagrams would come back to the agent.
    fn refuse_circles(&self) -> io::Result<()> {
        for Listener { name, to, .. } in &self.listeners {
            if let Some(to) = to.filter(|to| self.is_own(*to)) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "service {name}: {to} is the agent's own address; give that of the service"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// True if datagrams to `to` come back to one of the listeners.
    fn is_own(&self, to: SocketAddr) -> bool {
        let address = to.ip().to_canonical();
        let takes_datagrams =
            |one: &&Listener| matches!(one.entrance, Entrance::Service(_) | Entrance::Turn(_));
        let datagrams = self.listeners.iter().filter(takes_datagrams);
        datagrams.map(|listener| listener.listen).any(|listen| {
            let own = listen.ip().to_canonical();
            let is_there = || {
                own == address
                    // The system takes it for the loopback address.
                    || address.is_unspecified()
                    || own.is_unspecified() && is_of_this_host(address)
            };
            listen.port() == to.port() && is_there()
        })
    }

    /// True if datagrams from this address have left one of the upstream sockets. A program may
    /// have the port of an upstream socket at another address, or in the other family.
    fn is_upstream(&self, from: SocketAddr) -> bool {
        let ip = from.ip().to_canonical();
        let any: IpAddr = match ip {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let is_bound = |ip: IpAddr| self.bound.contains(&SocketAddr::new(ip, from.port()));
        is_bound(ip) || is_bound(any) && is_of_this_host(ip)
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
    }

    /// Forwards until it is stopped.
    ///
    /// # Errors
    /// When the system cannot wait for sockets any more.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENT_ROOM);
        let mut ready = BTreeSet::new();
        let mut batch = Batch::new();
        loop {
            let wait = if ready.is_empty() { self.wait() } else { Duration::ZERO };
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            for event in &events {
                match Ready::from(event.token()) {
                    Ready::Waker => {}
                    Ready::Network => self.on_network_events(),
                    socket => drop(ready.insert(socket)),
                }
            }
            self.follow_network();
            ready.retain(|socket| self.read(*socket, &mut batch));
            self.handle_timeouts();
            ready.extend(self.end_overdue());
            while let Ok(command) = self.commands.try_recv() {
                if self.obey(command) {
                    return Ok(());
                }
            }
        }
    }

    fn wait(&self) -> Duration {
        let due = self.table.next_timeout();
        let until = due.map_or(LONGEST_WAIT, |due| due.saturating_since(self.now()));
        until.min(LONGEST_WAIT)
    }

    /// Reads a socket for a turn. False: there is no more.
    fn read(&mut self, socket: Ready, batch: &mut Batch) -> bool {
        match socket {
            Ready::Listener(service) => self.read_listener(service, batch),
            Ready::Flow(flow) => self.read_upstream(flow, batch),
            Ready::Relay(association) => self.read_relay(association, batch),
            Ready::Connection(association) => self.converse(association),
            Ready::Relayed(allocation) => self.read_relayed(allocation, batch),
            Ready::Waker | Ready::Network => false,
        }
    }

    fn read_listener(&mut self, service: usize, batch: &mut Batch) -> bool {
        for _ in 0..TURN_RECEIVES {
            let now = self.now();
            let (socket, port) = match self.listeners.get_mut(service).map(|one| &mut one.entrance)
            {
                Some(Entrance::Service(socket)) => (&*socket, None),
                Some(Entrance::Redirected(socket, port)) => (&*socket, Some(*port)),
                Some(Entrance::Turn(_)) => return self.read_turn(batch),
                Some(Entrance::Socks(socks)) => {
                    if !socks.accept(self.poll.registry(), now) {
                        return false;
                    }
                    continue;
                }
                None => return false,
            };
            if socket.receive(batch).is_err() {
                return false;
            }
            for message in batch.messages() {
                // The address that a redirected datagram has arrived at is its destination.
                let to = port.zip(message.local).map(|(port, ip)| SocketAddr::from((ip, port)));
                let through = to.map(|to| (REDIRECTED_ASSOCIATION, to));
                if port.is_some() && through.is_none() {
                    continue;
                }
                let peer = Peer { service, address: message.source, through };
                self.forward(peer, &message, now);
            }
            if !batch.may_have_more() {
                return false;
            }
        }
        true
    }

    /// Datagrams of a program.
    fn forward(&mut self, peer: Peer, message: &Message<'_>, now: Timestamp) {
        let service = peer.service;
        let known = self.table.find(peer);
        let Some(id) = known.or_else(|| self.begin(peer, message, now)) else { return };
        self.leave_silence(id, now);
        if !self.table.has_mark(id, message.mark) {
            self.with(id, |table, wire| table.set_mark(id, message.mark, now, wire));
        }
        let Some(upstream) = self.upstreams.get_mut(&id) else { return };
        let way = Way { to: upstream.to, from: None };
        // Short datagrams may leave with others.
        let errors = if self.table.repairs_uploads(service) || message.size <= LONGEST_BUNDLED_BYTES
        {
            let mut errors = 0;
            for (datagram, mark) in message.datagrams() {
                if self.table.bundle(id, datagram, mark, now) {
                    continue;
                }
                let number = self.table.on_send(id, datagram, now);
                let front = number.as_ref().map_or(&[][..], |number| &number[..]);
                errors += self.run.add_numbered(&upstream.socket, way, front, datagram, mark);
            }
            errors += self.run.flush(&upstream.socket, way);
            if let Some(length) = upstream.socket.take_refused() {
                self.table.on_refused(id, length, now);
            }
            errors
        } else {
            for (datagram, _) in message.datagrams() {
                self.table.on_send(id, datagram, now);
            }
            upstream.socket.send(way, message.data, message.size, message.mark)
        };
        self.count_errors(service, errors);
        self.table.on_sent(id, message.count(), message.data.len() as u64, now);
        self.with(id, |table, wire| table.serve(id, now, wire));
    }

    /// Calls the table for a flow, and sends the datagrams that result.
    fn with<R>(
        &mut self,
        id: FlowId,
        call: impl FnOnce(&mut Table<Mark>, &mut Wire<'_>) -> R,
    ) -> Option<R> {
        let peer @ Peer { service, address: program, .. } = self.table.peer(id)?;
        let upstream = self.upstreams.get(&id)?;
        let entrance = self.listeners.get(service)?;
        let (listener, framing) =
            (entrance.socket(peer)?, entrance.framing(peer, &upstream.header));
        let run = &mut self.run;
        let mut wire = Wire { listener, upstream, framing, program, run, errors: 0 };
        let result = call(&mut self.table, &mut wire);
        let errors = wire.finish();
        self.count_errors(service, errors);
        Some(result)
    }

    fn count_errors(&mut self, service: usize, errors: u64) {
        if errors > 0
            && let Some(listener) = self.listeners.get_mut(service)
        {
            listener.send_errors += errors;
        }
    }

    fn handle_timeouts(&mut self) {
        let now = self.now();
        // Each socket once: a socket with more datagrams has its turn after the others.
        let due: Vec<FlowId> = std::iter::from_fn(|| self.table.next_due(now)).collect();
        for id in due {
            let is_over = self.with(id, |table, wire| table.handle_timeout(id, now, wire));
            if is_over != Some(false) {
                self.drop_upstream(id);
            }
        }
    }

    /// Called when the host reports changes of addresses and routes: the agent looks at once.
    fn on_network_events(&mut self) {
        let lost = self.network_events.as_mut().map(NetworkEvents::take).unwrap_or_default();
        for upstream in self.upstreams.values_mut() {
            lost.iter().for_each(|address| upstream.source.lose(*address));
            upstream.source.doubt();
        }
        self.next_network = self.next_network.min(self.next_network_event);
    }

    /// The gateways learn of another network before anything is sent from there.
    fn follow_network(&mut self) {
        let now = self.now();
        let has_slept = self.wakefulness.has_slept(Instant::now(), SystemTime::now());
        if self.table.is_empty() || now < self.next_network && !has_slept {
            return;
        }
        // Flows with one destination leave from one address.
        let mut sources = HashMap::new();
        let mut ask = |to: SocketAddr| *sources.entry(to).or_insert_with(|| source_towards(to));
        let moved = self.upstreams.iter_mut().filter_map(|(id, upstream)| {
            let to = upstream.to;
            (upstream.source.has_changed(now, || ask(to)) || has_slept).then_some(*id)
        });
        let moved: Vec<_> = moved.collect();
        self.network_changes += u64::from(!moved.is_empty());
        for id in moved {
            self.with(id, |table, wire| table.on_network_change(id, now, wire));
        }
        let took = self.now().saturating_since(now);
        self.next_network_event = now + took.saturating_mul(NETWORK_SHARE);
        self.next_network = self.next_network_event.max(now + SourceAddress::INTERVAL);
    }

    /// True if it is the end.
    fn obey(&mut self, command: Command) -> bool {
        let now = self.now();
        match command {
            Command::SetAccess(service, access) => {
                self.table.set_access(service, access);
                for id in self.table.flows_of(service) {
                    self.with(id, |table, wire| table.give_access(id, now, wire));
                }
            }
            Command::SetTargets(service, mut targets) => {
                targets.retain(|to| !self.is_own(*to));
                if targets.is_empty() {
                    tracing::warn!(
                        service,
                        "a name leads to the agent itself, and is not followed"
                    );
                } else if let Some(listener) = self.listeners.get_mut(service)
                    && matches!(listener.entrance, Entrance::Service(_))
                {
                    if listener.to.is_none_or(|to| !targets.contains(&to)) {
                        listener.to = choose(targets.iter().copied());
                    }
                    listener.targets = targets;
                }
            }
            Command::Resolved(name, address) => self.on_resolved(name, address, now),
            Command::Status(sender) => drop(sender.send(self.status(now))),
            Command::Stop => {
                for id in (0..self.listeners.len())
                    .flat_map(|service| self.table.flows_of(service))
                    .collect::<Vec<_>>()
                {
                    self.with(id, |table, wire| table.close(id, now, wire));
                }
                return true;
            }
        }
        false
    }

    fn status(&mut self, now: Timestamp) -> Status {
        let mut services = Vec::with_capacity(self.listeners.len());
        for (index, listener) in self.listeners.iter().enumerate() {
            let (counters, flows) = self.table.sums(index);
            services.push(ServiceStatus {
                name: listener.name.clone(),
                listen: listener.listen,
                to: listener.to,
                flows,
                refused_datagrams: self.table.refused(index),
                evicted_flows: self.table.evicted(index),
                send_errors: listener.send_errors,
                foreign_datagrams: listener.foreign,
                counters,
            });
        }
        Status {
            version: env!("CARGO_PKG_VERSION"),
            flow_limit: self.limits.flows,
            waiting_bytes: self.table.waiting_bytes(),
            network_changes: self.network_changes,
            services,
            flows: self.table.busiest(FLOWS_SHOWN, now).into_iter().map(FlowStatus::from).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use packrat_client::ClientConfig;

    use super::*;
    use crate::socket::DontFragment;

    /// An agent with one service, whose programs send to this socket.
    fn of_one_service(socket: UdpSocket) -> (Agent, Handle) {
        let to = Target::Service("127.0.0.1:9".parse().unwrap());
        let config = ClientConfig::default();
        let dont_fragment = DontFragment::default();
        let service = Service { name: "web".to_owned(), socket, to, config, dont_fragment };
        Agent::new(vec![service], Choosing::default(), Limits::default()).unwrap()
    }

    /// A redirection unknown to the agent leads its datagrams back to it.
    #[test]
    fn datagrams_of_the_agents_own_begin_no_flow() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listen = socket.local_addr().unwrap();
        let (mut agent, handle) = of_one_service(socket);
        agent.listeners[0].to = Some(listen);
        let thread = std::thread::spawn(move || agent.run());
        let program = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        program.send_to(b"round and round", listen).unwrap();
        // It comes back with the question for a gateway.
        let refused = || handle.status().unwrap().services[0].refused_datagrams;
        let begun = Instant::now();
        while refused() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(60), "they are not refused");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(handle.status().unwrap().flows.len(), 1);
        handle.stop();
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn a_flow_follows_the_mark_of_its_programs_datagrams() {
        use quinn_udp::EcnCodepoint::{Ce, Ect0, Ect1};
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (mut agent, _) = of_one_service(socket);
        let program = "127.0.0.1:5000".parse().unwrap();
        let peer = Peer { service: 0, address: program, through: None };
        for (mark, of_flow) in
            [(Some(Ce), Some(Ect0)), (Some(Ect1), Some(Ect1)), (Some(Ce), Some(Ect1)), (None, None)]
        {
            let now = agent.now();
            agent.forward(peer, &Message::of_one(program, b"@ short", mark), now);
            let id = agent.table.find(peer).unwrap();
            assert!(agent.table.has_mark(id, of_flow), "{mark:?}");
        }
    }

    #[test]
    fn a_program_may_have_an_upstream_port_in_the_other_family() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (mut agent, _) = of_one_service(socket);
        let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
        agent.bound.extend([at("0.0.0.0:5000"), at("127.0.0.2:5001")]);
        assert!(agent.is_upstream(at("127.0.0.1:5000")));
        assert!(agent.is_upstream(at("[::ffff:127.0.0.1]:5000")));
        assert!(agent.is_upstream(at("127.0.0.2:5001")));
        assert!(!agent.is_upstream(at("[::1]:5000")));
        assert!(!agent.is_upstream(at("127.0.0.1:5001")));
        assert!(!agent.is_upstream(at("192.0.2.1:5000")), "another host");
    }
}
