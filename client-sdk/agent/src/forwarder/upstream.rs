//! The sockets of flows towards their services, from a flow's first datagram to its end.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use mio::Interest;
use packrat_client::{Silence, SourceAddress, Timestamp};
use packrat_socket::{Batch, FlowId, Mark, Message, Outlet, Peer, same_peer, source_towards};

use super::listener::Entrance;
use super::{Agent, TURN_RECEIVES};
use crate::network::is_of_this_host;
use crate::socket::{Run, Socket, Way};
use crate::socks::header;
use crate::token::Ready;
use crate::turn::{channel_header, indication};

/// The socket of a flow towards its service.
pub(super) struct Upstream {
    pub(super) socket: Arc<Socket>,
    /// Address that the socket is bound to, unless other flows share it.
    pub(super) bound: Option<SocketAddr>,
    pub(super) to: SocketAddr,
    /// Source address of the flow's datagrams.
    pub(super) source: SourceAddress,
    /// The address that the program sends to, which answers come from.
    pub(super) local: Option<IpAddr>,
    /// The bytes in front of each datagram for the program.
    pub(super) header: Vec<u8>,
    may_fragment: bool,
    silence: Silence,
    /// The program has got a datagram. Not all programs wait for any.
    is_answered: Cell<bool>,
}

/// The form of a flow's datagrams for the program.
#[derive(Debug, Clone, Copy)]
pub(super) enum Framing<'a> {
    /// Bytes in front of each.
    Header(&'a [u8]),
    /// A channel of TURN.
    Channel(u16),
    /// TURN's indications, which name the peer.
    Indication(SocketAddr),
}

impl Framing<'_> {
    /// Sends a datagram to a program, perhaps together with the next. Returns the datagrams that
    /// the system refused.
    pub(super) fn send(
        self,
        run: &mut Run,
        socket: &Socket,
        way: Way,
        datagram: &[u8],
        mark: Mark,
    ) -> u64 {
        match self {
            Self::Header(header) => run.add(socket, way, header, datagram, mark),
            Self::Channel(channel) => match channel_header(channel, datagram) {
                Some(header) => run.add(socket, way, &header, datagram, mark),
                None => 1,
            },
            Self::Indication(peer) => {
                let number = getrandom::u64().unwrap_or_default();
                indication(peer, datagram, number)
                    .map_or(1, |indication| run.add(socket, way, &indication, &[], mark))
            }
        }
    }
}

/// Sends the datagrams that leave a flow.
pub(super) struct Wire<'a> {
    pub(super) listener: &'a Socket,
    pub(super) upstream: &'a Upstream,
    pub(super) framing: Framing<'a>,
    pub(super) program: SocketAddr,
    pub(super) run: &'a mut Run,
    pub(super) errors: u64,
}

impl Wire<'_> {
    fn to_program(&self) -> Way {
        Way { to: self.program, from: self.upstream.local }
    }

    pub(super) fn finish(self) -> u64 {
        let to_program = self.to_program();
        self.errors + self.run.flush(self.listener, to_program)
    }
}

impl Outlet<Mark> for Wire<'_> {
    fn deliver(&mut self, datagram: &[u8], mark: Mark) {
        self.upstream.is_answered.set(true);
        let way = self.to_program();
        self.errors += self.framing.send(self.run, self.listener, way, datagram, mark);
    }

    fn transmit(&mut self, control: &[u8]) {
        let way = Way { to: self.upstream.to, from: None };
        self.errors += self.upstream.socket.send(way, control, control.len(), None);
    }

    fn repeat(&mut self, datagram: &[u8], mark: Mark) {
        let way = Way { to: self.upstream.to, from: None };
        self.errors += self.upstream.socket.send(way, datagram, datagram.len(), mark);
    }
}

impl Agent {
    /// Begins the flow of a program.
    pub(super) fn begin(
        &mut self,
        peer: Peer,
        message: &Message<'_>,
        now: Timestamp,
    ) -> Option<FlowId> {
        let Peer { service, address: program, through } = peer;
        let is_own = self.is_upstream(program);
        if is_own || through.is_some_and(|(_, to)| self.is_own(to)) {
            tracing::warn!(%program, "datagrams of the agent's own come back to it, or would");
            self.table.count_refused(service, message.count());
            return None;
        }
        if let Some(idlest) = self.table.room_for(peer, now) {
            self.evict(idlest, now);
        }
        let id = self.table.begin(peer, now, seed())?;
        let mut opened = self.open(peer, id, message);
        if opened.as_ref().is_err_and(is_out_of_descriptors)
            && let Some(idlest) = self.table.longest_idle(now)
        {
            self.evict(idlest, now);
            opened = self.open(peer, id, message);
        }
        if let Err(error) = opened {
            tracing::warn!(%error, "a program cannot be served");
            self.table.refuse(id);
            return None;
        }
        Some(id)
    }

    /// Ends a flow to make room for another one.
    fn evict(&mut self, id: FlowId, now: Timestamp) {
        self.with(id, |table, wire| table.evict(id, now, wire));
        self.drop_upstream(id);
    }

    /// Opens the upstream of a new flow.
    fn open(&mut self, peer: Peer, id: FlowId, first: &Message<'_>) -> io::Result<()> {
        let Some(listener) = self.listeners.get(peer.service) else { return Ok(()) };
        let chosen = peer.through.map(|(_, to)| to);
        let to =
            chosen.or(listener.to).ok_or_else(|| io::Error::other("there is no destination"))?;
        let header = match (&listener.entrance, chosen) {
            (Entrance::Socks(_), Some(to)) => header(to),
            _ => Vec::new(),
        };
        let mut source = SourceAddress::default();
        source.set(source_towards(to));
        let may_fragment = listener.may_fragment(first);
        let (socket, bound, local) = match &listener.entrance {
            Entrance::Turn(turning) => {
                let (socket, local) = turning.shared(peer)?;
                (socket, None, local)
            }
            entrance => {
                let is_redirected = matches!(entrance, Entrance::Redirected(..));
                // A program of this host may have chosen the address that it sends from.
                let is_chosen = |ip: &IpAddr| {
                    is_redirected && source_towards(to) != Some(*ip) && is_of_this_host(*ip)
                };
                let from = Some(peer.address.ip()).filter(is_chosen).unwrap_or(any(to));
                let (socket, bound) = self.bind(id, from, may_fragment)?;
                // Answers come from the address that the program has sent to.
                let local = first.local.filter(|_| is_redirected || listener.has_several());
                (socket, Some(bound), local)
            }
        };
        let (silence, is_answered) = (Silence::default(), Cell::default());
        let upstream = Upstream {
            socket,
            bound,
            to,
            source,
            local,
            header,
            may_fragment,
            silence,
            is_answered,
        };
        self.upstreams.insert(id, upstream);
        self.bound.extend(bound);
        Ok(())
    }

    /// A socket for a flow. It is not connected: after a change of network it sends from the new
    /// address.
    fn bind(
        &self,
        id: FlowId,
        from: IpAddr,
        may_fragment: bool,
    ) -> io::Result<(Arc<Socket>, SocketAddr)> {
        let mut socket = Socket::new(UdpSocket::bind((from, 0))?, may_fragment)?;
        let bound = socket.socket.local_addr()?;
        let token = Ready::Flow(id).token()?;
        self.poll.registry().register(&mut socket.socket, token, Interest::READABLE)?;
        Ok((Arc::new(socket), bound))
    }

    /// Takes another way to a service that has fallen silent: the next address of its name, and another
    /// source port. A flow that was never answered, which may be of a program that only sends, keeps
    /// its port unless there is another address.
    pub(super) fn leave_silence(&mut self, id: FlowId, now: Timestamp) {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return };
        if !upstream.silence.is_over(now) {
            return;
        }
        // Other flows may share the socket.
        let Some(bound) = upstream.bound else { return };
        let (silent, may_fragment) = (upstream.to, upstream.may_fragment);
        let is_answered = upstream.is_answered.get();
        let Some(peer) = self.table.peer(id) else { return };
        let listener = self.listeners.get_mut(peer.service).filter(|_| peer.through.is_none());
        let to = listener.and_then(|listener| listener.next_target(silent)).unwrap_or(silent);
        if to == silent && !is_answered {
            return;
        }
        let from = if to.is_ipv4() == bound.is_ipv4() { bound.ip() } else { any(to) };
        match self.bind(id, from, may_fragment) {
            Ok((socket, new)) => {
                tracing::info!(%silent, %to, "a service has fallen silent: its flow takes another way");
                self.bound.remove(&bound);
                self.bound.insert(new);
                if let Some(upstream) = self.upstreams.get_mut(&id) {
                    (upstream.socket, upstream.bound, upstream.to) = (socket, Some(new), to);
                    upstream.source.set(source_towards(to));
                }
                self.with(id, |table, wire| table.on_network_change(id, now, wire));
            }
            Err(error) => tracing::warn!(%error, %silent, "a flow can't take another way"),
        }
    }

    pub(super) fn drop_upstream(&mut self, id: FlowId) {
        if let Some(bound) = self.upstreams.remove(&id).and_then(|upstream| upstream.bound) {
            self.bound.remove(&bound);
        }
    }

    pub(super) fn read_upstream(&mut self, id: FlowId, batch: &mut Batch) -> bool {
        for _ in 0..TURN_RECEIVES {
            let Some(upstream) = self.upstreams.get(&id) else { return false };
            let to = upstream.to;
            if upstream.socket.receive(batch).is_err() {
                return false;
            }
            let now = self.now();
            if batch.messages().any(|message| same_peer(message.source) == same_peer(to))
                && let Some(upstream) = self.upstreams.get_mut(&id)
            {
                upstream.silence.end();
            }
            let mut foreign = 0;
            self.with(id, |table, wire| {
                for message in batch.messages() {
                    if same_peer(message.source) == same_peer(to) {
                        table.on_received(id, message.datagrams(), now, wire);
                    } else {
                        foreign += message.count();
                    }
                }
                table.serve(id, now, wire);
            });
            let peer = self.table.peer(id);
            if let Some(listener) = peer.and_then(|peer| self.listeners.get_mut(peer.service)) {
                listener.foreign += foreign;
            }
            if !batch.may_have_more() {
                return false;
            }
        }
        true
    }
}

/// Any address of this host, of a service's family.
fn any(to: SocketAddr) -> IpAddr {
    match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// True if the process, or the system, has as many descriptors as it may have.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    // ENFILE, EMFILE and WSAEMFILE.
    error.raw_os_error().is_some_and(|code| [23, 24, 10_024].contains(&code))
}

fn seed() -> Option<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).ok().map(|()| seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program's own datagrams are sent again with its ECN mark, control datagrams without one.
    #[test]
    fn repeated_datagrams_bear_the_programs_mark_and_control_none() {
        use quinn_udp::EcnCodepoint::{Ect0, Ect1};
        let bound = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = bound();
        let to = server.local_addr().unwrap();
        let server = Socket::new(server, true).unwrap();
        let upstream = Upstream {
            socket: Arc::new(Socket::new(bound(), true).unwrap()),
            bound: None,
            to,
            source: SourceAddress::default(),
            local: None,
            header: Vec::new(),
            may_fragment: true,
            silence: Silence::default(),
            is_answered: Cell::default(),
        };
        let listener = Socket::new(bound(), true).unwrap();
        let (mut run, mut batch, program) = (Run::default(), Batch::new(), to);
        for expected in [Some(Ect1), Some(Ect0), None] {
            let mut wire = Wire {
                listener: &listener,
                upstream: &upstream,
                framing: Framing::Header(&[]),
                program,
                run: &mut run,
                errors: 0,
            };
            wire.repeat(b"again", expected);
            wire.transmit(b"control");
            for (datagram, mark) in [(&b"again"[..], expected), (&b"control"[..], None)] {
                // On loopback it is there when sending returns; both may come in one batch.
                server.receive(&mut batch).unwrap();
                let all: Vec<_> = batch.messages().map(|one| (one.data, one.mark)).collect();
                if all.len() == 2 {
                    assert_eq!(all, [(&b"again"[..], expected), (&b"control"[..], None)]);
                    break;
                }
                assert_eq!(all, [(datagram, mark)]);
            }
        }
    }
}
