//! The TURN server's sockets: the listener's, and one for each allocation, which its flows share.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mio::{Interest, Registry};
use packrat_client::{Access, ClientConfig, IdentifierScheme, Live, Timestamp};
use packrat_socket::{Batch, Mark, Message, Peer, same_peer, source_towards};

use super::associations::turn_of;
use super::listener::Listener;
use super::upstream::Framing;
use super::{Agent, TURN_RECEIVES};
use crate::allow::{Allowed, Destinations};
use crate::socket::{DontFragment, Socket, Way};
use crate::token::Ready;
use crate::turn::{Opening, Server, Step, TurnCredentials};

/// Most time that the jitter buffer of a call bears: the longest hold of a flow to a TURN peer, and
/// the lateness up to which a repair is of use.
const JITTER_BUFFER: Duration = Duration::from_millis(200);

/// A listener for programs that speak TURN, such as a browser's pages.
#[derive(Debug)]
pub struct TurnListener {
    /// Name for people.
    pub name: String,
    /// The bound socket of the server.
    pub socket: UdpSocket,
    /// The settings of its flows' assistance: see [`Self::config`].
    pub config: ClientConfig,
    /// The treatment of a program's datagrams that are longer than the path MTU.
    pub dont_fragment: DontFragment,
    /// The users.
    pub credentials: TurnCredentials,
    /// The peers that programs may reach; empty: all but this host and its links.
    pub allow: Vec<Allowed>,
}

impl TurnListener {
    /// The longest hold of a flow, from a longest one that was wished.
    pub fn maximum_hold(wished: Duration) -> Duration {
        wished.min(JITTER_BUFFER)
    }

    /// The settings for media: repairs come within the hold, or not at all.
    pub fn config(access: Access) -> ClientConfig {
        let hold = Self::maximum_hold(access.maximum_hold);
        let live = Live { window: hold, ..Live::default() };
        let config = ClientConfig::from(access.with_maximum_hold(hold)).with_live(live);
        config.with_scheme(IdentifierScheme::Payload)
    }
}

/// The socket of an allocation.
struct Relayed {
    socket: Arc<Socket>,
    bound: SocketAddr,
    /// The address that the program sends to, if the listener has several.
    local: Option<IpAddr>,
}

/// The TURN server of an agent.
pub(super) struct Turning {
    pub(super) server: Server,
    pub(super) socket: Socket,
    may_fragment: bool,
    relayed: HashMap<usize, Relayed>,
}

impl Turning {
    pub(super) fn new(listener: TurnListener) -> io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        let may_fragment = listener.dont_fragment != DontFragment::Always;
        Ok(Self {
            server: Server::new(listener.credentials, Destinations(listener.allow), key),
            socket: Socket::new(listener.socket, may_fragment)?,
            may_fragment,
            relayed: HashMap::new(),
        })
    }

    /// The form of a peer's datagrams for the program.
    pub(super) fn framing(&self, allocation: usize, peer: SocketAddr) -> Framing<'static> {
        let channel = self.server.channel(allocation, peer);
        channel.map_or(Framing::Indication(peer), Framing::Channel)
    }

    /// The socket of a flow's allocation, and the address that answers to the program come from.
    pub(super) fn shared(&self, peer: Peer) -> io::Result<(Arc<Socket>, Option<IpAddr>)> {
        let relayed = peer.through.and_then(|(allocation, _)| self.relayed.get(&allocation));
        let relayed = relayed.ok_or_else(|| io::Error::other("the allocation has ended"))?;
        Ok((Arc::clone(&relayed.socket), relayed.local))
    }

    /// Ends an allocation: the address that its socket was bound to.
    pub(super) fn end(&mut self, allocation: usize) -> Option<SocketAddr> {
        self.server.end(allocation);
        self.relayed.remove(&allocation).map(|relayed| relayed.bound)
    }

    /// Opens the socket of an allocation: the address that it is bound to.
    fn open(
        &mut self,
        opening: &Opening,
        local: Option<IpAddr>,
        registry: &Registry,
    ) -> io::Result<SocketAddr> {
        let any: IpAddr = match opening.is_ipv6 {
            false => Ipv4Addr::UNSPECIFIED.into(),
            true => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut socket = Socket::new(UdpSocket::bind((any, 0))?, self.may_fragment)?;
        let bound = socket.socket.local_addr()?;
        let token = Ready::Relayed(opening.number).token()?;
        registry.register(&mut socket.socket, token, Interest::READABLE)?;
        let relayed = Relayed { socket: Arc::new(socket), bound, local };
        self.relayed.insert(opening.number, relayed);
        Ok(bound)
    }
}

/// The address from which a socket's datagrams leave by the usual route.
fn usual_address(bound: SocketAddr) -> SocketAddr {
    // Addresses of documentation (RFC 5737, RFC 3849), to which no packet is sent.
    let (outside, loopback): (IpAddr, IpAddr) = match bound {
        SocketAddr::V4(_) => (Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::LOCALHOST.into()),
        SocketAddr::V6(_) => {
            (Ipv6Addr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]).into(), Ipv6Addr::LOCALHOST.into())
        }
    };
    let source = source_towards(SocketAddr::new(outside, 9)).unwrap_or(loopback);
    SocketAddr::new(source, bound.port())
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Agent {
    /// Reads the TURN listener.
    pub(super) fn read_turn(&mut self, batch: &mut Batch) -> bool {
        for _ in 0..TURN_RECEIVES {
            let now = self.now();
            let Some((service, turning)) = turn_of(&mut self.listeners) else { return false };
            if turning.socket.receive(batch).is_err() {
                return false;
            }
            for message in batch.messages() {
                for (datagram, mark) in message.datagrams() {
                    self.on_turn(service, &message, datagram, mark, now);
                }
            }
            if !batch.may_have_more() {
                return false;
            }
        }
        true
    }

    /// One datagram of a program.
    fn on_turn(
        &mut self,
        service: usize,
        message: &Message<'_>,
        datagram: &[u8],
        mark: Mark,
        now: Timestamp,
    ) {
        let program = message.source;
        let Some((_, turning)) = turn_of(&mut self.listeners) else { return };
        match turning.server.on_datagram(program, datagram, now, unix_seconds) {
            Step::Relay(allocation, to, payload) => {
                let through = Some((allocation, same_peer(to)));
                let peer = Peer { service, address: program, through };
                self.forward(peer, &Message::of_one(program, payload, mark), now);
            }
            Step::Answer(answer) => self.answer_turn(service, message, &answer),
            Step::Open(opening) => {
                let has_several = self.listeners.get(service).is_some_and(Listener::has_several);
                let local = message.local.filter(|_| has_several);
                let Some((_, turning)) = turn_of(&mut self.listeners) else { return };
                let opened = turning.open(&opening, local, self.poll.registry());
                let opened = opened.inspect_err(|error| {
                    tracing::warn!(%error, %program, "an allocation gets no socket");
                });
                let bound = opened.ok();
                let answer = turning.server.opened(opening, bound.map(usual_address), now);
                self.bound.extend(bound);
                if let Some(answer) = answer {
                    self.answer_turn(service, message, &answer);
                }
            }
            Step::End(allocation, answer) => {
                self.end_association(service, allocation);
                self.answer_turn(service, message, &answer);
            }
            Step::Refused => self.table.count_refused(service, 1),
        }
    }

    fn answer_turn(&mut self, service: usize, to: &Message<'_>, answer: &[u8]) {
        let Some(listener) = self.listeners.get_mut(service) else { return };
        let from = to.local.filter(|_| listener.has_several());
        if let Some(turning) = listener.turn() {
            let errors =
                turning.socket.send(Way { to: to.source, from }, answer, answer.len(), None);
            self.count_errors(service, errors);
        }
    }

    /// Reads the socket of an allocation. Peers that the program has sent to have flows; the
    /// datagrams of other permitted peers pass as they are.
    pub(super) fn read_relayed(&mut self, allocation: usize, batch: &mut Batch) -> bool {
        for _ in 0..TURN_RECEIVES {
            let now = self.now();
            let Some((service, turning)) = turn_of(&mut self.listeners) else { return false };
            let Some(relayed) = turning.relayed.get(&allocation) else { return false };
            let Some(program) = turning.server.program(allocation) else { return false };
            if relayed.socket.receive(batch).is_err() {
                return false;
            }
            for message in batch.messages() {
                let from = same_peer(message.source);
                let peer = Peer { service, address: program, through: Some((allocation, from)) };
                self.on_peer(peer, from, &message, now);
            }
            if !batch.may_have_more() {
                return false;
            }
        }
        true
    }

    /// Datagrams of a peer.
    fn on_peer(&mut self, peer: Peer, from: SocketAddr, message: &Message<'_>, now: Timestamp) {
        let allocation = peer.through.map_or(0, |(allocation, _)| allocation);
        let Some(listener) = self.listeners.get_mut(peer.service) else { return };
        let Some(turning) = listener.turn() else { return };
        if !turning.server.permits(allocation, from.ip(), now) {
            listener.foreign += message.count();
            return;
        }
        if let Some(id) = self.table.find(peer) {
            self.with(id, |table, wire| {
                table.on_received(id, message.datagrams(), now, wire);
                table.serve(id, now, wire);
            });
            return;
        }
        let framing = turning.framing(allocation, from);
        let local = turning.relayed.get(&allocation).and_then(|relayed| relayed.local);
        let way = Way { to: peer.address, from: local };
        let mut errors = 0;
        for (datagram, mark) in message.datagrams() {
            errors += framing.send(&mut self.run, &turning.socket, way, datagram, mark);
        }
        errors += self.run.flush(&turning.socket, way);
        self.count_errors(peer.service, errors);
    }
}
