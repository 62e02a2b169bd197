//! The connected socket through which one session speaks to its server.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::backend::source_ports;
use crate::socket::{Destination, Family, Offload, open_connected};

/// A socket connected to an endpoint; closed when the last user drops it.
#[derive(Debug)]
pub(crate) struct Upstream {
    socket: OwnedFd,
    endpoint: SocketAddr,
    receive_buffer_bytes: usize,
    pub(crate) offload: Offload,
}

impl Upstream {
    /// Opens a socket for `client`, from a source port derived from its address where that is free.
    pub(crate) fn open(endpoint: SocketAddr, client: SocketAddr) -> io::Result<Self> {
        let (socket, receive_buffer_bytes) = open_connected(endpoint, &source_ports(client))?;
        Ok(Self { socket, endpoint, receive_buffer_bytes, offload: Offload::default() })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) const fn endpoint(&self) -> SocketAddr {
        self.endpoint
    }

    pub(crate) const fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    pub(crate) const fn destination(&self) -> Destination {
        Destination {
            address: None,
            source: None,
            family: Family::of(&self.endpoint),
            leaves_as_v4: self.endpoint.is_ipv4(),
            may_wait: false,
        }
    }
}
