//! The sockets through which clients are spoken to: slots that a shell fills and releases.
//!
//! A slot belongs to one route, one listen address and one worker and outlives the socket in it.
//! Inside Envoy the socket is a duplicate of the listener's, so it shares the listener's place in
//! the kernel's reuseport group: a duplicate that is kept after the listener is gone receives,
//! unread, part of the datagrams for the next listener on that address. So a release closes the
//! socket before it returns, even while other threads are sending.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::address::{ClientAddress, ListenerAddress};
use super::options::{Family, listener_options};
use super::reuse_port::bind_beside;
use super::send::{Destination, Offload, WhenFull};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, RwLock};

/// A socket that clients send to.
#[derive(Debug)]
pub(crate) struct DownstreamSocket {
    socket: OwnedFd,
    family: Family,
    wildcard: bool,
    /// True if an I/O thread reads it.
    is_read_here: bool,
    pub(crate) offload: Offload,
}

impl DownstreamSocket {
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The way to `client` from the address that it sent to.
    pub(crate) fn destination(
        &self,
        client: ClientAddress,
        local: Option<IpAddr>,
        when_full: WhenFull,
    ) -> Destination {
        Destination {
            address: Some(client.get()),
            source: local.filter(|_| self.wildcard),
            family: self.family,
            leaves_as_v4: client.get().is_ipv4(),
            when_full,
        }
    }
}

/// The reader of a slot's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The worker's I/O thread.
    IoThread,
    /// The shell reads its own, the worker's I/O thread another one on the same address.
    Both,
}

/// The reader of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeReader {
    IoThread,
    Shell,
}

/// Descriptors of all filled slots of the process; held while a shell looks for its listener's
/// socket, so that it never finds one of ours.
pub(crate) type Descriptors = Mutex<HashSet<RawFd>>;

/// A place for the socket of one listener on one worker.
#[derive(Debug)]
pub(crate) struct Slot {
    listener: ListenerAddress,
    /// The socket, and the number of its owner.
    current: RwLock<Option<(u64, DownstreamSocket)>>,
    /// The last probe that was read by the slot's worker, on either socket: 0, or what [`mark_of`]
    /// makes of it.
    probe: AtomicU32,
}

/// The outcome of [`Slot::fill`].
#[derive(Debug, Default)]
pub(crate) struct Filled {
    /// True if the slot has a socket that no I/O thread reads yet and one shall.
    pub(crate) is_newly_read_here: bool,
    /// The reason why no socket could be opened beside the shell's.
    pub(crate) refused: Option<io::Error>,
}

impl Slot {
    pub(crate) fn new(listener: ListenerAddress) -> Self {
        Self { listener, current: RwLock::new(None), probe: AtomicU32::new(0) }
    }

    /// The address of the listener.
    pub(crate) const fn listener(&self) -> ListenerAddress {
        self.listener
    }

    /// True if there is a socket.
    pub(crate) fn is_filled(&self) -> bool {
        self.current.read().is_some()
    }

    /// True if an I/O thread reads the socket in it.
    pub(crate) fn is_read_here(&self) -> bool {
        self.current.read().as_ref().is_some_and(|(_, socket)| socket.is_read_here)
    }

    /// Uses the socket; `None` while the slot is empty. A release waits until `action` is over.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&DownstreamSocket) -> R) -> Option<R> {
        self.current.read().as_ref().map(|(_, socket)| action(socket))
    }

    /// Fills the slot with the socket that `open` returns, on behalf of `owner`. `open` is given
    /// the descriptors of all filled slots of the process.
    pub(crate) fn fill(
        &self,
        descriptors: &Descriptors,
        owner: u64,
        reader: Reader,
        open: impl FnOnce(&HashSet<RawFd>) -> io::Result<OwnedFd>,
    ) -> io::Result<Filled> {
        let mut descriptors = descriptors.lock();
        let mut current = self.current.write();
        if let Some((previous, socket)) = &mut *current
            && reader == Reader::Both
            && socket.is_read_here
        {
            // With an update of the listener only the owner changes: the datagrams that wait in the
            // socket are read.
            *previous = owner;
            return Ok(Filled::default());
        }
        let lent = open(&descriptors)?;
        let mut filled = Filled::default();
        let own = match reader {
            Reader::IoThread => None,
            Reader::Both => bind_beside(self.listener.get(), lent.as_fd())
                .map_err(|error| filled.refused = Some(error))
                .ok(),
        };
        let is_read_here = own.is_some() || reader == Reader::IoThread;
        filled.is_newly_read_here = is_read_here;
        let socket = own.unwrap_or(lent);
        let family = listener_options(socket.as_fd(), is_read_here)?;
        descriptors.insert(socket.as_raw_fd());
        let socket = DownstreamSocket {
            socket,
            family,
            wildcard: self.listener.is_wildcard(),
            is_read_here,
            offload: Offload::default(),
        };
        if let Some((_, previous)) = current.replace((owner, socket)) {
            descriptors.remove(&previous.socket.as_raw_fd());
        }
        Ok(filled)
    }

    /// Closes the socket, unless a newer owner has replaced it already; true if it was closed.
    pub(crate) fn release(&self, descriptors: &Descriptors, owner: u64) -> bool {
        let mut descriptors = descriptors.lock();
        let released = self.current.write().take_if(|(current, _)| *current == owner);
        if let Some((_, socket)) = &released {
            descriptors.remove(&socket.socket.as_raw_fd());
        }
        released.is_some()
    }

    /// Notes that a datagram of one byte, which has no meaning, was read.
    pub(crate) fn note_probe(&self, port: u16, byte: u8, reader: ProbeReader) {
        self.probe.store(mark_of(port, byte, reader), Ordering::Release);
    }

    /// The reader of this probe, if it was the last one.
    pub(crate) fn probe_reader(&self, port: u16, byte: u8) -> Option<ProbeReader> {
        let mark = self.probe.load(Ordering::Acquire);
        let readers = [ProbeReader::IoThread, ProbeReader::Shell];
        readers.into_iter().find(|reader| mark == mark_of(port, byte, *reader))
    }

    /// Forgets the last probe.
    pub(crate) fn forget_probe(&self) {
        self.probe.store(0, Ordering::Release);
    }
}

/// A probe and its reader in one number that is not 0.
fn mark_of(port: u16, byte: u8, reader: ProbeReader) -> u32 {
    (1 + reader as u32) << 24 | u32::from(port) << 8 | u32::from(byte)
}
