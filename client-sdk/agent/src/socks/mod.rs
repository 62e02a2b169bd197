//! Programs that choose their destinations: SOCKS version 5, UDP ASSOCIATE (RFC 1928).
//!
//! ```text
//!   program --- TCP ---> listener      the association: lives as long as this connection
//!           --- UDP ---> relay --+--> upstream socket of a flow ---> destination
//!                                +--> upstream socket of another one
//! ```

mod message;
mod names;

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use packrat_client::{ClientConfig, Timestamp};

use packrat_socket::{Mark, source_of};
use socket2::{SockRef, TcpKeepalive};

use crate::allow::{Allowed, Destinations};
use crate::socket::{DontFragment, Socket};
use crate::token::Ready;
pub(crate) use message::header;
use message::{Destination, Negotiation, Reply, Step, reply, split};
pub(crate) use names::Name;
use names::{Answer, Names};

/// Associations at the same time.
const MOST_ASSOCIATIONS: usize = 1024;
/// Most associations of one other machine, so that it cannot keep the others out.
const MACHINE_ASSOCIATIONS: usize = MOST_ASSOCIATIONS / 4;
/// Silence of a program's host after which its presence is checked.
const ASKED_AFTER: Duration = Duration::from_secs(60);
/// Interval of the checks of a host's presence.
const ASKED_EVERY: Duration = Duration::from_secs(15);
/// Number of checks of a host's presence.
const PRESENCE_CHECKS: u32 = 4;
/// Time within which a program has to ask for its association.
const ASSOCIATION_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes from a program above which it does not speak SOCKS: an association needs no further
/// messages.
const MOST_BYTES: usize = 1024;

/// A listener for programs that choose their destinations.
#[derive(Debug)]
pub struct SocksListener {
    /// Name for people.
    pub name: String,
    /// The address of control connections; bound.
    pub socket: std::net::TcpListener,
    /// The settings of its flows' assistance.
    pub config: ClientConfig,
    /// The treatment of a program's datagrams that are longer than the path MTU.
    pub dont_fragment: DontFragment,
    /// The destinations that programs may reach; empty: all.
    pub allow: Vec<Allowed>,
}

/// The name of an association; never used again.
pub(crate) type AssociationId = usize;

/// A program's datagram that waits for its destination's address.
pub(crate) struct Waiting {
    pub(crate) association: AssociationId,
    pub(crate) program: SocketAddr,
    name: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) mark: Mark,
}

/// The way of a program's datagram.
pub(crate) enum Route<'a> {
    To(SocketAddr, &'a [u8]),
    /// The datagram waits for an address.
    Later,
    /// The datagram is malformed, comes from a stranger, or its destination is not allowed or
    /// missing.
    Refused,
}

struct Association {
    stream: TcpStream,
    negotiation: Negotiation,
    received: usize,
    begun: Timestamp,
    /// The program's host, and its port if the program has stated one.
    program: IpAddr,
    port: u16,
    relay: Option<Socket>,
}

/// The SOCKS listener of an agent.
pub(crate) struct Socks {
    listener: TcpListener,
    allow: Destinations,
    associations: HashMap<AssociationId, Association>,
    next: AssociationId,
    names: Names<Waiting>,
}

impl Socks {
    /// Creates the listener's state. `answer` is called in another thread when a name's address is
    /// known.
    pub(crate) fn new(
        listener: std::net::TcpListener,
        allow: Vec<Allowed>,
        answer: impl Fn(Name, Option<SocketAddr>) + Clone + Send + 'static,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener: TcpListener::from_std(listener),
            allow: Destinations(allow),
            associations: HashMap::new(),
            next: 0,
            names: Names::new(answer),
        })
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.listener, token, Interest::READABLE)
    }

    /// Accepts one control connection. Returns false if none is waiting.
    pub(crate) fn accept(&mut self, registry: &Registry, now: Timestamp) -> bool {
        let (mut stream, peer) = match self.listener.accept() {
            Ok(accepted) => accepted,
            // The next one may be there; without descriptors the listener is looked at again later.
            Err(error) => {
                return [ErrorKind::Interrupted, ErrorKind::ConnectionAborted]
                    .contains(&error.kind());
            }
        };
        let id = self.next;
        let program = peer.ip().to_canonical();
        // One that is too many is closed.
        if self.has_room(program)
            && ends_with_its_host(&stream).is_ok()
            && let Ok(token) = Ready::Connection(id).token()
            && registry.register(&mut stream, token, Interest::READABLE).is_ok()
        {
            self.next += 1;
            let association = Association {
                stream,
                negotiation: Negotiation::default(),
                received: 0,
                begun: now,
                program,
                port: 0,
                relay: None,
            };
            self.associations.insert(id, association);
        }
        true
    }

    /// True if a program at this address may have another association.
    fn has_room(&self, program: IpAddr) -> bool {
        let source = source_of(program);
        let is_its_own = |one: &&Association| source_of(one.program) == source;
        let own = || self.associations.values().filter(is_its_own).count();
        self.associations.len() < MOST_ASSOCIATIONS
            && (source.is_none() || own() < MACHINE_ASSOCIATIONS)
    }

    /// Reads a program's messages on its control connection. Returns true if the association ends.
    pub(crate) fn converse(&mut self, id: AssociationId, registry: &Registry) -> bool {
        let Some(association) = self.associations.get_mut(&id) else { return false };
        let mut bytes = [0; 512];
        loop {
            match association.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(length) => {
                    association.received += length;
                    if association.received > MOST_BYTES {
                        return true;
                    }
                    if association.relay.is_some() {
                        continue;
                    }
                    association.negotiation.receive(bytes.get(..length).unwrap_or_default());
                    if association.answer(id, registry) {
                        return true;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
    }

    /// Programs that have not asked for an association in time.
    pub(crate) fn overdue(&self, now: Timestamp) -> Vec<AssociationId> {
        let overdue = self.associations.iter().filter(|(_, association)| {
            association.relay.is_none() && now >= association.begun + ASSOCIATION_PATIENCE
        });
        overdue.map(|(id, _)| *id).collect()
    }

    /// Closes an association's sockets.
    pub(crate) fn end(&mut self, id: AssociationId) {
        self.associations.remove(&id);
    }

    /// The relay of an association.
    pub(crate) fn relay(&self, id: AssociationId) -> Option<&Socket> {
        self.associations.get(&id)?.relay.as_ref()
    }

    /// The way of a datagram that has arrived at a relay.
    pub(crate) fn route<'a>(
        &mut self,
        association: AssociationId,
        program: SocketAddr,
        datagram: &'a [u8],
        mark: Mark,
        now: Timestamp,
    ) -> Route<'a> {
        let is_known = self.associations.get(&association).is_some_and(|association| {
            association.program == program.ip().to_canonical()
                && [0, program.port()].contains(&association.port)
        });
        let Some((destination, payload)) = split(datagram).filter(|_| is_known) else {
            return Route::Refused;
        };
        let from = program.ip();
        let (name, port) = match destination {
            Destination::Address(to) if self.allows(None, to, from) => {
                return Route::To(to, payload);
            }
            Destination::Address(_) => return Route::Refused,
            Destination::Name(name, port) => (name, port),
        };
        if !self.allow.may_allow(&name, port) {
            return Route::Refused;
        }
        let waits = || Waiting {
            association,
            program,
            name: name.clone(),
            payload: payload.to_vec(),
            mark,
        };
        match self.names.find(association, (name.clone(), port), waits, now) {
            Answer::At(to) if self.allows(Some(&name), to, from) => Route::To(to, payload),
            Answer::Later => Route::Later,
            Answer::At(_) | Answer::Nowhere => Route::Refused,
        }
    }

    /// Called when a name's address is known: returns the datagrams that have waited for it, and
    /// may be sent there.
    pub(crate) fn on_answer(
        &mut self,
        name: Name,
        address: Option<SocketAddr>,
        now: Timestamp,
    ) -> Vec<Waiting> {
        let mut waiting = self.names.on_answer(name, address, now);
        waiting.retain(|waiting| {
            self.associations.contains_key(&waiting.association)
                && address
                    .is_some_and(|to| self.allows(Some(&waiting.name), to, waiting.program.ip()))
        });
        waiting
    }

    /// True if a program at the address `from` may send there.
    fn allows(&self, name: Option<&str>, to: SocketAddr, from: IpAddr) -> bool {
        self.allow.allows(name, to, !from.to_canonical().is_loopback())
    }
}

/// Makes the system end a connection whose host has vanished: it would not be noticed otherwise.
fn ends_with_its_host(stream: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(ASKED_AFTER).with_interval(ASKED_EVERY);
    #[cfg(not(windows))]
    let keepalive = keepalive.with_retries(PRESENCE_CHECKS);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

impl Association {
    /// Answers the program's messages. Returns true if the association ends.
    fn answer(&mut self, id: AssociationId, registry: &Registry) -> bool {
        loop {
            match self.negotiation.next() {
                Step::More => return false,
                Step::Answer(answer) => {
                    if self.say(&answer).is_err() {
                        return true;
                    }
                }
                Step::End(answer) => {
                    // It ends in any case.
                    let _ = self.say(&answer);
                    return true;
                }
                Step::Associate(port) => {
                    let opened = self.open(id, registry);
                    let answer = match &opened {
                        Ok(relay) => reply(Reply::Succeeded, Some(*relay)),
                        Err(_) => reply(Reply::Failure, None),
                    };
                    self.port = port;
                    return self.say(&answer).is_err() || opened.is_err();
                }
            }
        }
    }

    /// Opens the relay, at the address that the program has connected to.
    fn open(&mut self, id: AssociationId, registry: &Registry) -> io::Result<SocketAddr> {
        let socket = UdpSocket::bind((self.stream.local_addr()?.ip(), 0))?;
        let address = socket.local_addr()?;
        let mut relay = Socket::new(socket, true)?;
        registry.register(&mut relay.socket, Ready::Relay(id).token()?, Interest::READABLE)?;
        self.relay = Some(relay);
        Ok(address)
    }

    /// Sends a few bytes. The system accepts them at once, unless the program does not read.
    fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.stream.write(bytes)?;
        if written < bytes.len() { Err(ErrorKind::WriteZero.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listener with one association of a program on this host, and the program's connection.
    fn with_one() -> (Socks, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let program = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut socks = Socks::new(listener, Vec::new(), |_, _| {}).unwrap();
        let poll = mio::Poll::new().unwrap();
        while socks.associations.is_empty() {
            socks.accept(poll.registry(), Timestamp::ZERO);
        }
        (socks, program)
    }

    /// A laptop that sleeps closes no connection, and its association would never end.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_ends_associations_of_hosts_that_have_vanished() {
        let (socks, _program) = with_one();
        let stream = SockRef::from(&socks.associations[&0].stream);
        assert!(stream.keepalive().unwrap());
        assert_eq!(stream.tcp_keepalive_time().unwrap(), ASKED_AFTER);
        assert_eq!(stream.tcp_keepalive_interval().unwrap(), ASKED_EVERY);
        assert_eq!(stream.tcp_keepalive_retries().unwrap(), PRESENCE_CHECKS);
    }

    #[test]
    fn another_machine_has_only_its_share_of_the_associations() {
        let (mut socks, program) = with_one();
        let one = socks.associations.remove(&0).unwrap();
        let another = |program: &str| Association {
            stream: TcpStream::from_std(SockRef::from(&one.stream).try_clone().unwrap().into()),
            negotiation: Negotiation::default(),
            received: 0,
            begun: Timestamp::ZERO,
            program: program.parse().unwrap(),
            port: 0,
            relay: None,
        };
        for id in 0..MACHINE_ASSOCIATIONS {
            socks.associations.insert(id, another("192.0.2.7"));
        }
        assert!(!socks.has_room("192.0.2.7".parse().unwrap()));
        assert!(socks.has_room("192.0.2.8".parse().unwrap()));
        // A machine has as many addresses of its network as it likes.
        for id in 0..MACHINE_ASSOCIATIONS {
            socks.associations.insert(id, another(&format!("2001:db8::{id:x}")));
        }
        assert!(!socks.has_room("2001:db8::ffff".parse().unwrap()));
        assert!(socks.has_room("2001:db8:0:1::1".parse().unwrap()));
        for id in MACHINE_ASSOCIATIONS..MOST_ASSOCIATIONS - 1 {
            socks.associations.insert(id, another("127.0.0.1"));
        }
        assert!(socks.has_room("127.0.0.1".parse().unwrap()));
        socks.associations.insert(MOST_ASSOCIATIONS, another("127.0.0.1"));
        assert!(!socks.has_room("127.0.0.1".parse().unwrap()));
        drop(program);
    }
}
