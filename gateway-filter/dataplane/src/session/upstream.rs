//! The connected socket through which one session speaks to its server, or to the gateway that has
//! the session of its client.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::socket::{
    Destination, EndpointAddress, Family, Offload, WhenFull, local_address, open_connected,
};

/// A socket connected to an endpoint; closed when the last user drops it.
#[derive(Debug)]
pub(crate) struct Upstream {
    socket: OwnedFd,
    endpoint: EndpointAddress,
    /// The endpoint is another gateway: everything goes there as it is.
    is_relay: bool,
    /// The socket's own address, which the server sees.
    local: Option<SocketAddr>,
    receive_buffer_bytes: usize,
    pub(crate) offload: Offload,
}

impl Upstream {
    /// Opens a socket, from the first of `source_ports` that is free.
    pub(crate) fn open(
        endpoint: EndpointAddress,
        is_relay: bool,
        source_ports: &[u16],
    ) -> io::Result<Self> {
        let (socket, receive_buffer_bytes) = open_connected(endpoint.get(), source_ports)?;
        let local = local_address(socket.as_fd());
        Ok(Self {
            socket,
            endpoint,
            is_relay,
            local,
            receive_buffer_bytes,
            offload: Offload::default(),
        })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) const fn endpoint(&self) -> EndpointAddress {
        self.endpoint
    }

    /// True if the endpoint is another gateway, which has the session of the client.
    pub(crate) const fn is_relay(&self) -> bool {
        self.is_relay
    }

    /// The address and port that the server sees.
    pub(crate) const fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    pub(crate) const fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    pub(crate) fn destination(&self) -> Destination {
        let endpoint = self.endpoint.get();
        Destination {
            address: None,
            source: None,
            family: Family::of(&endpoint),
            leaves_as_v4: endpoint.is_ipv4(),
            when_full: WhenFull::Drop,
        }
    }
}
