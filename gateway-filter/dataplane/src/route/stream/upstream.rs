//! The sockets of a stream: one that it arrives at, and one that sends to its group.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use socket2::SockRef;

use crate::socket::{
    Destination, Family, GsoBatch, Offload, SendReport, Sender, WhenFull, bind_alone,
    bind_reuse_port, join_source, listener_options, local_address,
};
use packrat_api::route::{RouteConfig, StreamRoute};

/// Attempts of a thread that may wait to bind the port of a stream: an I/O thread may just be about
/// to close the former socket of the port.
const BIND_ATTEMPTS: u32 = 20;
/// Time between two attempts to bind the port of a stream.
const BIND_PAUSE: Duration = Duration::from_millis(5);

/// Behaviour of a thread while the port of a stream is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenInUse {
    /// The thread waits for a moment.
    Wait,
    /// The thread comes again later.
    ComeAgain,
}

/// A socket at which a stream arrives, while its route has listeners.
#[derive(Debug)]
pub(crate) struct StreamUpstream {
    /// Number of the stream at the I/O thread.
    pub(crate) number: u64,
    pub(crate) config: StreamRoute,
    /// The only hosts that may send it; empty: all.
    pub(crate) senders: Vec<IpAddr>,
    socket: OwnedFd,
    group: Option<GroupSocket>,
}

#[derive(Debug)]
struct GroupSocket {
    socket: OwnedFd,
    destination: Destination,
    offload: Offload,
}

impl StreamUpstream {
    pub(crate) fn open(
        number: u64,
        config: &StreamRoute,
        senders: Vec<IpAddr>,
        when_in_use: WhenInUse,
    ) -> io::Result<Self> {
        let socket = bind_when_free(config.upstream, when_in_use)?;
        listener_options(socket.as_fd(), true)?;
        join(&socket, config, &senders)?;
        Ok(Self {
            number,
            config: config.clone(),
            senders,
            socket,
            group: config.group.map(|group| GroupSocket::open(group, config)).transpose()?,
        })
    }

    /// The worker whose I/O thread reads it: streams are spread over them.
    pub(crate) fn worker(&self) -> usize {
        usize::try_from(self.number).unwrap_or_default()
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The address at which the stream arrives.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        local_address(self.socket.as_fd())
    }

    /// Sends to the group; `None` without a group.
    pub(crate) fn send_to_group(
        &self,
        sender: &mut Sender,
        batches: &[GsoBatch<'_>],
    ) -> Option<SendReport> {
        let group = self.group.as_ref()?;
        Some(sender.send(group.socket.as_fd(), &group.offload, &group.destination, batches))
    }
}

/// Binds the port of a stream for the stream alone: a socket that shared it with a listener would
/// take the listener's datagrams.
fn bind_when_free(address: SocketAddr, when_in_use: WhenInUse) -> io::Result<OwnedFd> {
    let mut attempts = match when_in_use {
        WhenInUse::Wait => BIND_ATTEMPTS,
        WhenInUse::ComeAgain => 1,
    };
    loop {
        attempts -= 1;
        match bind_alone(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => {
                std::thread::sleep(BIND_PAUSE);
            }
            result => return result,
        }
    }
}

impl GroupSocket {
    fn open(group: SocketAddr, config: &StreamRoute) -> io::Result<Self> {
        let any: SocketAddr =
            if group.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = bind_reuse_port(any)?;
        listener_options(socket.as_fd(), false)?;
        let options = SockRef::from(&socket);
        match group {
            SocketAddr::V4(_) => {
                options.set_multicast_ttl_v4(config.group_hops)?;
                if let Some(interface) = config.interface {
                    options.set_multicast_if_v4(&interface)?;
                }
            }
            SocketAddr::V6(group) => {
                options.set_multicast_hops_v6(config.group_hops)?;
                if group.scope_id() != 0 {
                    options.set_multicast_if_v6(group.scope_id())?;
                }
            }
        }
        let destination = Destination {
            address: Some(group),
            source: None,
            family: Family::of(&group),
            leaves_as_v4: group.is_ipv4(),
            when_full: WhenFull::Drop,
        };
        Ok(Self { socket, destination, offload: Offload::default() })
    }
}

/// The only hosts that may send the stream; empty: every host that reaches its address.
pub(super) fn senders(config: &RouteConfig) -> impl Iterator<Item = IpAddr> {
    let sources = config.stream.as_ref().map_or(&[][..], |stream| &stream.sources);
    let endpoints =
        config.endpoints.iter().map(|endpoint| endpoint.ip()).filter(|_| sources.is_empty());
    sources.iter().copied().chain(endpoints).map(|sender| sender.to_canonical())
}

/// True if a host may send the stream.
pub(super) fn accepts(config: &RouteConfig, from: Option<IpAddr>) -> bool {
    let mut senders = senders(config).peekable();
    let Some(from) = from.map(|from| from.to_canonical()) else { return senders.peek().is_none() };
    senders.peek().is_none() || senders.any(|sender| sender == from)
}

/// Joins the group, if the stream comes from one: with senders that are known, so that no others
/// reach this host (RFC 4607); else from anybody. What another program of this host has joined does
/// not count.
fn join(socket: &OwnedFd, config: &StreamRoute, senders: &[IpAddr]) -> io::Result<()> {
    let options = SockRef::from(socket);
    match config.upstream {
        SocketAddr::V4(group) if group.ip().is_multicast() => {
            let interface = config.interface.unwrap_or(Ipv4Addr::UNSPECIFIED);
            options.set_multicast_all_v4(false)?;
            if senders.is_empty() {
                return options.join_multicast_v4(group.ip(), &interface);
            }
            let senders = senders.iter().filter_map(|sender| match sender {
                IpAddr::V4(sender) => Some(sender),
                IpAddr::V6(_) => None,
            });
            join_each(senders, |sender| options.join_ssm_v4(sender, group.ip(), &interface))
        }
        SocketAddr::V6(group) if group.ip().is_multicast() => {
            options.set_multicast_all_v6(false)?;
            if senders.is_empty() {
                return options.join_multicast_v6(group.ip(), group.scope_id());
            }
            let senders = senders.iter().filter(|sender| sender.is_ipv6());
            join_each(senders, |sender| join_source(socket.as_fd(), group, *sender))
        }
        _ => Ok(()),
    }
}

/// Joins for each sender; there must be one.
fn join_each<T>(
    senders: impl Iterator<Item = T>,
    join: impl FnMut(T) -> io::Result<()>,
) -> io::Result<()> {
    let mut senders = senders.peekable();
    if senders.peek().is_none() {
        let problem =
            "none of the hosts that may send the stream has an address of its group's family";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    senders.try_for_each(join)
}
