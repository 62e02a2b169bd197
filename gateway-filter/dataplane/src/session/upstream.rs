//! The connected socket through which one session speaks to its server.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::socket::{Destination, EndpointAddress, Family, Offload, WhenFull, open_connected};

/// A socket connected to an endpoint; closed when the last user drops it.
#[derive(Debug)]
pub(crate) struct Upstream {
    socket: OwnedFd,
    endpoint: EndpointAddress,
    receive_buffer_bytes: usize,
    pub(crate) offload: Offload,
}

impl Upstream {
    /// Opens a socket, from the first of `source_ports` that is free.
    pub(crate) fn open(endpoint: EndpointAddress, source_ports: &[u16]) -> io::Result<Self> {
        let (socket, receive_buffer_bytes) = open_connected(endpoint.get(), source_ports)?;
        Ok(Self { socket, endpoint, receive_buffer_bytes, offload: Offload::default() })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) const fn endpoint(&self) -> EndpointAddress {
        self.endpoint
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
