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
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::dataplane::Environment;
use crate::log::Event;
use crate::route::Route;
use crate::socket::{Destination, Family, Offload, bind_beside, listener_options};
use crate::steering::{self, mark_of};

/// A socket that clients send to.
#[derive(Debug)]
pub(crate) struct DownstreamSocket {
    socket: OwnedFd,
    family: Family,
    wildcard: bool,
    /// Whether an I/O thread reads it.
    is_read_here: bool,
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
    /// The last probe that has arrived at the socket, see [`crate::steering`].
    probe: AtomicU32,
}

/// Who reads the socket of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The shell.
    Elsewhere,
    /// The worker's I/O thread.
    Here,
    /// The shell reads its own, the worker's I/O thread another one on the same address.
    Beside,
}

impl Slot {
    pub(crate) fn new(listener: SocketAddr) -> Self {
        Self { listener, current: RwLock::new(None), probe: AtomicU32::new(0) }
    }

    /// The address of the listener.
    pub(crate) const fn listener(&self) -> SocketAddr {
        self.listener
    }

    /// Whether there is a socket.
    pub(crate) fn is_filled(&self) -> bool {
        self.current.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether an I/O thread reads the socket in it.
    pub(crate) fn is_read_here(&self) -> bool {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().is_some_and(|(_, socket)| socket.is_read_here)
    }

    /// A datagram of one byte that means nothing has arrived.
    pub(crate) fn note_probe(&self, port: u16, byte: u8) {
        self.probe.store(mark_of(port, byte), Ordering::Release);
    }

    /// Whether that was the last one.
    pub(crate) fn has_seen_probe(&self, port: u16, byte: u8) -> bool {
        self.probe.load(Ordering::Acquire) == mark_of(port, byte)
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
    newly_read_here: bool,
}

impl Attachment {
    /// Fills the slot of (`route`, `listener`, `worker`) with what `open` returns. `open` is given the descriptors of all
    /// filled slots of the process.
    pub(crate) fn fill(
        environment: &Arc<Environment>,
        route: &Arc<Route>,
        listener: SocketAddr,
        worker: usize,
        reading: Reading,
        open: impl FnOnce(&HashSet<RawFd>) -> io::Result<OwnedFd>,
    ) -> io::Result<Self> {
        let slot = route.slot(listener, worker);
        let owner = environment.next_number();
        let mut newly_read_here = false;
        {
            let mut descriptors = environment.descriptors.lock().unwrap_or_else(PoisonError::into_inner);
            let mut current = slot.current.write().unwrap_or_else(PoisonError::into_inner);
            match &mut *current {
                // With an update of the listener only the owner changes: what waits in the socket is read.
                Some((previous, socket)) if reading == Reading::Beside && socket.is_read_here => {
                    *previous = owner;
                }
                _ => {
                    let lent = open(&descriptors)?;
                    let own = match reading {
                        Reading::Beside => bind_beside(listener, lent.as_fd())
                            .inspect_err(|error| steering::note_refused(environment, listener, error))
                            .ok(),
                        _ => None,
                    };
                    newly_read_here = own.is_some();
                    let is_read_here = newly_read_here || reading == Reading::Here;
                    let socket = own.unwrap_or(lent);
                    let family = listener_options(socket.as_fd(), is_read_here)?;
                    descriptors.insert(socket.as_raw_fd());
                    let socket = DownstreamSocket {
                        socket,
                        family,
                        wildcard: listener.ip().is_unspecified(),
                        is_read_here,
                        offload: Offload::default(),
                    };
                    if let Some((_, previous)) = current.replace((owner, socket)) {
                        descriptors.remove(&previous.socket.as_raw_fd());
                    }
                }
            }
        }
        environment.logger.about(Event::ListenerAttached, route, || {
            [("listener", listener.to_string().into()), ("worker", worker.into())]
        });
        // A stream arrives as long as there is somebody to send it to.
        route.follow_stream(environment);
        Ok(Self {
            environment: Arc::clone(environment),
            route: Arc::clone(route),
            slot,
            owner,
            worker,
            newly_read_here,
        })
    }

    /// Whether the socket is one that nobody reads yet.
    pub(crate) const fn is_newly_read_here(&self) -> bool {
        self.newly_read_here
    }

    /// The shell has read a datagram itself. When the gateway reads beside it, that should not have happened, and the kernel is told anew.
    pub fn note_read_elsewhere(&self) {
        if self.slot.is_read_here() {
            steering::note_stray(&self.environment, self.slot.listener());
        }
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
