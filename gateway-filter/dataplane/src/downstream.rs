//! The sockets through which clients are spoken to: slots that a shell fills and releases.
//!
//! A slot belongs to one route, one listen address and one worker and outlives the socket in it. Inside Envoy the socket is
//! a duplicate of the listener's, so it shares the listener's place in the kernel's reuseport group: a duplicate that is
//! kept after the listener is gone receives (and nobody reads) part of the clients of the next listener on that address.
//! So a release closes the socket before it returns, even while other threads are sending.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::dataplane::Environment;
use crate::log::Event;
use crate::route::Route;
use crate::socket::{Destination, Family, Offload, listener_options};

/// A socket that clients send to.
#[derive(Debug)]
pub(crate) struct DownstreamSocket {
    socket: OwnedFd,
    family: Family,
    wildcard: bool,
    pub(crate) offload: Offload,
}

impl DownstreamSocket {
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// How to reach `client` from the address that it sent to.
    pub(crate) fn destination(
        &self,
        client: SocketAddr,
        local: Option<IpAddr>,
        may_wait: bool,
    ) -> Destination {
        Destination {
            address: Some(client),
            source: local.filter(|_| self.wildcard),
            family: self.family,
            leaves_as_v4: client.ip().to_canonical().is_ipv4(),
            may_wait,
        }
    }
}

/// A place for the socket of one listener on one worker.
#[derive(Debug)]
pub(crate) struct Slot {
    listener: SocketAddr,
    current: RwLock<Option<(u64, DownstreamSocket)>>,
}

impl Slot {
    pub(crate) fn new(listener: SocketAddr) -> Self {
        Self { listener, current: RwLock::new(None) }
    }

    /// The address of the listener.
    pub(crate) const fn listener(&self) -> SocketAddr {
        self.listener
    }

    /// Whether there is a socket.
    pub(crate) fn is_filled(&self) -> bool {
        self.current.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Uses the socket; `None` while the slot is empty. A release waits until `action` is over.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&DownstreamSocket) -> R) -> Option<R> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map(|(_, socket)| action(socket))
    }
}

/// Descriptors of all filled slots of the process; held while a shell looks for its listener's socket, so that it never
/// finds one of ours.
pub(crate) type Descriptors = Mutex<HashSet<RawFd>>;

/// Ownership of a filled slot. Dropping it closes the socket, unless a newer owner has replaced it already.
#[derive(Debug)]
pub struct Attachment {
    environment: Arc<Environment>,
    route: Arc<Route>,
    pub(crate) slot: Arc<Slot>,
    owner: u64,
    worker: usize,
}

impl Attachment {
    /// Fills the slot of (`route`, `listener`, `worker`) with what `open` returns. `open` is given the descriptors of all
    /// filled slots of the process.
    pub(crate) fn fill(
        environment: &Arc<Environment>,
        route: &Arc<Route>,
        listener: SocketAddr,
        worker: usize,
        reads_here: bool,
        open: impl FnOnce(&HashSet<RawFd>) -> io::Result<OwnedFd>,
    ) -> io::Result<Self> {
        let slot = route.slot(listener, worker);
        let owner = environment.next_number();
        {
            let mut descriptors = environment.descriptors.lock().unwrap_or_else(PoisonError::into_inner);
            let socket = open(&descriptors)?;
            let family = listener_options(socket.as_fd(), reads_here)?;
            descriptors.insert(socket.as_raw_fd());
            let socket = DownstreamSocket {
                socket,
                family,
                wildcard: listener.ip().is_unspecified(),
                offload: Offload::default(),
            };
            let mut current = slot.current.write().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, previous)) = current.replace((owner, socket)) {
                descriptors.remove(&previous.socket.as_raw_fd());
            }
        }
        environment.logger.about(Event::ListenerAttached, route, || {
            [("listener", listener.to_string().into()), ("worker", worker.into())]
        });
        // A stream arrives as long as there is somebody to send it to.
        route.follow_stream(environment);
        Ok(Self { environment: Arc::clone(environment), route: Arc::clone(route), slot, owner, worker })
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let released = {
            let mut descriptors = self.environment.descriptors.lock().unwrap_or_else(PoisonError::into_inner);
            let mut current = self.slot.current.write().unwrap_or_else(PoisonError::into_inner);
            match current.take_if(|(owner, _)| *owner == self.owner) {
                Some((_, socket)) => {
                    descriptors.remove(&socket.socket.as_raw_fd());
                    true
                }
                None => false,
            }
        };
        if released {
            self.route.follow_stream(&self.environment);
            self.environment.logger.about(Event::ListenerReleased, &self.route, || {
                [("listener", self.slot.listener.to_string().into()), ("worker", self.worker.into())]
            });
        }
    }
}
