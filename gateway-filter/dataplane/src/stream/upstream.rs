//! The sockets of a stream: one that it arrives at, and one that sends to its group.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use socket2::SockRef;

use super::RouteStream;
use super::config::StreamRoute;
use crate::route::Route;
use crate::socket::{
    Destination, Family, Offload, Piece, SendReport, Sender, bind_reuse_port, listener_options, local_address,
};

/// A socket at which a stream arrives, while its route has listeners.
#[derive(Debug)]
pub(crate) struct StreamUpstream {
    /// Its number at the I/O thread.
    pub(crate) number: u64,
    pub(crate) route: Arc<Route>,
    pub(crate) stream: Arc<RouteStream>,
    pub(crate) config: StreamRoute,
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
        route: &Arc<Route>,
        stream: &Arc<RouteStream>,
        config: &StreamRoute,
    ) -> io::Result<Self> {
        let socket = bind_reuse_port(config.upstream)?;
        listener_options(socket.as_fd(), true)?;
        join(&socket, config)?;
        Ok(Self {
            number,
            route: Arc::clone(route),
            stream: Arc::clone(stream),
            config: config.clone(),
            socket,
            group: config.group.map(|group| GroupSocket::open(group, config)).transpose()?,
        })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Where the stream arrives.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        local_address(self.socket.as_fd())
    }

    /// Sends to the group; `None` when there is none.
    pub(crate) fn send_to_group(&self, sender: &mut Sender, pieces: &[Piece<'_>]) -> Option<SendReport> {
        let group = self.group.as_ref()?;
        Some(sender.send(group.socket.as_fd(), &group.offload, &group.destination, pieces))
    }
}

impl GroupSocket {
    fn open(group: SocketAddr, config: &StreamRoute) -> io::Result<Self> {
        let any: SocketAddr = if group.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
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
            may_wait: false,
        };
        Ok(Self { socket, destination, offload: Offload::default() })
    }
}

/// Joins the group, if the stream comes from one.
fn join(socket: &OwnedFd, config: &StreamRoute) -> io::Result<()> {
    let socket = SockRef::from(socket);
    match config.upstream {
        SocketAddr::V4(group) if group.ip().is_multicast() => {
            socket.join_multicast_v4(group.ip(), &config.interface.unwrap_or(Ipv4Addr::UNSPECIFIED))
        }
        SocketAddr::V6(group) if group.ip().is_multicast() => {
            socket.join_multicast_v6(group.ip(), group.scope_id())
        }
        _ => Ok(()),
    }
}
