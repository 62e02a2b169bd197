//! The sockets that programs send to.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use mio::{Interest, Registry, Token};
use packrat_client::ClientConfig;
use packrat_socket::{Message, Peer};

use super::turning::{TurnListener, Turning};
use super::upstream::Framing;
use crate::handle::{Command, Handle};
use crate::socket::{DontFragment, Socket, is_quic_initial};
use crate::socks::{AssociationId, Socks, SocksListener};

/// A service that programs reach through the agent.
#[derive(Debug)]
pub struct Service {
    /// Name for people.
    pub name: String,
    /// The bound socket that programs send to.
    pub socket: UdpSocket,
    /// Destination of the programs' datagrams.
    pub to: Target,
    /// The settings of its assistance.
    pub config: ClientConfig,
    /// The treatment of a program's datagrams that are longer than the path MTU.
    pub dont_fragment: DontFragment,
}

/// Destination of the datagrams of a service's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The service, with a gateway on the way or at this very address.
    Service(SocketAddr),
    /// The address that the program has sent them to, at this port: the system redirects them to a
    /// [`crate::transparent`] socket (Linux, TPROXY). Answers leave from that address and from the
    /// socket's own port: the packet filter gives them the port that the program has sent to. The
    /// agent leaves that port to a server of this host.
    Original {
        /// The port that programs send to.
        port: u16,
    },
}

/// The listeners for programs that choose their destinations themselves.
#[derive(Debug, Default)]
pub struct Choosing {
    /// SOCKS version 5, UDP ASSOCIATE (RFC 1928).
    pub socks: Option<SocksListener>,
    /// TURN over UDP (RFC 8656).
    pub turn: Option<TurnListener>,
}

/// A service as the agent has it.
pub(super) struct Listener {
    pub(super) name: String,
    pub(super) entrance: Entrance,
    pub(super) listen: SocketAddr,
    /// The service, where programs do not choose their destinations.
    pub(super) to: Option<SocketAddr>,
    /// All addresses of its name.
    pub(super) targets: Vec<SocketAddr>,
    pub(super) dont_fragment: DontFragment,
    pub(super) send_errors: u64,
    pub(super) foreign: u64,
}

/// The sockets of programs.
pub(super) enum Entrance {
    Service(Socket),
    Socks(Box<Socks>),
    Redirected(Socket, u16),
    Turn(Box<Turning>),
}

impl Listener {
    /// Listens to the programs of a service.
    pub(super) fn of_service(
        service: Service,
        token: Token,
        registry: &Registry,
    ) -> io::Result<Self> {
        let Service { name, socket, to, dont_fragment, .. } = service;
        let listen = socket.local_addr()?;
        let may_fragment = dont_fragment != DontFragment::Always;
        let mut socket = Socket::new(socket, may_fragment)?;
        registry.register(&mut socket.socket, token, Interest::READABLE)?;
        let (entrance, to) = match to {
            Target::Service(to) => (Entrance::Service(socket), Some(to)),
            Target::Original { port } => (Entrance::Redirected(socket, port), None),
        };
        let targets = to.into_iter().collect();
        Ok(Self { name, entrance, listen, to, targets, dont_fragment, send_errors: 0, foreign: 0 })
    }

    /// The address to try after a silent one. Flows that begin take it as well.
    pub(super) fn next_target(&mut self, silent: SocketAddr) -> Option<SocketAddr> {
        if self.to == Some(silent) {
            let position = self.targets.iter().position(|target| *target == silent)?;
            self.to = self.targets.iter().cycle().nth(position + 1).copied();
        }
        self.to
    }

    /// Listens to programs that choose their destinations; `answers` brings resolved names.
    pub(super) fn of_socks(
        socks: SocksListener,
        answers: Handle,
        token: Token,
        registry: &Registry,
    ) -> io::Result<Self> {
        let SocksListener { name, socket, dont_fragment, allow, .. } = socks;
        let listen = socket.local_addr()?;
        let answer = move |name, address| answers.tell(Command::Resolved(name, address));
        let mut socks = Box::new(Socks::new(socket, allow, answer)?);
        socks.register(registry, token)?;
        let entrance = Entrance::Socks(socks);
        let (to, targets) = (None, Vec::new());
        Ok(Self { name, entrance, listen, to, targets, dont_fragment, send_errors: 0, foreign: 0 })
    }

    /// Listens to programs that speak TURN.
    pub(super) fn of_turn(
        turn: TurnListener,
        token: Token,
        registry: &Registry,
    ) -> io::Result<Self> {
        let (name, listen) = (turn.name.clone(), turn.socket.local_addr()?);
        let dont_fragment = turn.dont_fragment;
        let mut turning = Box::new(Turning::new(turn)?);
        registry.register(&mut turning.socket.socket, token, Interest::READABLE)?;
        let entrance = Entrance::Turn(turning);
        let (to, targets) = (None, Vec::new());
        Ok(Self { name, entrance, listen, to, targets, dont_fragment, send_errors: 0, foreign: 0 })
    }

    /// The socket that a program's datagrams come from and go to.
    pub(super) fn socket(&self, peer: Peer) -> Option<&Socket> {
        match (&self.entrance, peer.through) {
            (Entrance::Service(socket), None) => Some(socket),
            (Entrance::Redirected(socket, _), _) => Some(socket),
            (Entrance::Socks(socks), Some((association, _))) => socks.relay(association),
            (Entrance::Turn(turning), _) => Some(&turning.socket),
            _ => None,
        }
    }

    /// True if datagrams of a flow that begins with this message may be taken apart.
    pub(super) fn may_fragment(&self, first: &Message<'_>) -> bool {
        match self.dont_fragment {
            DontFragment::Always => false,
            DontFragment::Never => true,
            DontFragment::Auto => {
                let datagram = first.datagrams().next();
                !datagram.is_some_and(|(datagram, _)| is_quic_initial(datagram))
            }
        }
    }

    /// True if programs reach it at several addresses.
    pub(super) fn has_several(&self) -> bool {
        self.listen.ip().is_unspecified()
    }

    /// The form of a flow's datagrams for the program. `header`: the bytes in front of each.
    pub(super) fn framing<'a>(&self, peer: Peer, header: &'a [u8]) -> Framing<'a> {
        match (&self.entrance, peer.through) {
            (Entrance::Turn(turning), Some((allocation, to))) => turning.framing(allocation, to),
            _ => Framing::Header(header),
        }
    }

    /// Ends an association or allocation: the address that its own socket was bound to.
    pub(super) fn end(&mut self, id: AssociationId) -> Option<SocketAddr> {
        match &mut self.entrance {
            Entrance::Socks(socks) => {
                socks.end(id);
                None
            }
            Entrance::Turn(turning) => turning.end(id),
            Entrance::Service(_) | Entrance::Redirected(..) => None,
        }
    }

    pub(super) fn socks(&mut self) -> Option<&mut Socks> {
        match &mut self.entrance {
            Entrance::Socks(socks) => Some(socks),
            Entrance::Service(_) | Entrance::Redirected(..) | Entrance::Turn(_) => None,
        }
    }

    pub(super) fn turn(&mut self) -> Option<&mut Turning> {
        match &mut self.entrance {
            Entrance::Turn(turning) => Some(turning),
            Entrance::Service(_) | Entrance::Redirected(..) | Entrance::Socks(_) => None,
        }
    }
}
