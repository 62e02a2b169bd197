//! The sockets that programs send to.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use mio::{Interest, Registry, Token};
use packrat_client::ClientConfig;
use packrat_socket::Peer;

use crate::handle::{Command, Handle};
use crate::socket::{DontFragment, Socket};
use crate::socks::{Socks, SocksListener};

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

    /// The socket that a program's datagrams come from and go to.
    pub(super) fn socket(&self, peer: Peer) -> Option<&Socket> {
        match (&self.entrance, peer.through) {
            (Entrance::Service(socket), None) => Some(socket),
            (Entrance::Redirected(socket, _), _) => Some(socket),
            (Entrance::Socks(socks), Some((association, _))) => socks.relay(association),
            _ => None,
        }
    }

    pub(super) fn socks(&mut self) -> Option<&mut Socks> {
        match &mut self.entrance {
            Entrance::Service(_) | Entrance::Redirected(..) => None,
            Entrance::Socks(socks) => Some(socks),
        }
    }
}
