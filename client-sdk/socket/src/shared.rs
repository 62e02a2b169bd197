//! The common part of the sockets, whether they block or not: flows, and datagrams that are ready for the program.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use packrat_client::{Access, Counters, NumberHeader, Timestamp};

use crate::batch::is_too_long;
use crate::config::SocketConfig;
use crate::error::SocketError;
use crate::peers::{Peers, Wire};
use crate::source::source_from;
use crate::table::{FlowFigures, Limits};

/// The largest UDP payload.
pub(crate) const MOST_BYTES: usize = 65_536;

/// The system's socket, as wrapped by a library.
pub(crate) trait Raw {
    /// Sends a datagram without waiting for anything but the system.
    fn send(&self, datagram: &[u8], peer: SocketAddr) -> io::Result<usize>;
    /// The address that it is bound to.
    fn local(&self) -> io::Result<SocketAddr>;
}

impl Raw for UdpSocket {
    fn send(&self, datagram: &[u8], peer: SocketAddr) -> io::Result<usize> {
        self.send_to(datagram, peer)
    }

    fn local(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

/// A socket, and the flows of its peers.
#[derive(Debug)]
pub(crate) struct Shared<S: Raw> {
    socket: S,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    peers: Peers<()>,
    ready: VecDeque<(SocketAddr, Vec<u8>)>,
}

/// The socket as [`Peers`] sees it.
struct Port<'a, S> {
    socket: &'a S,
    ready: &'a mut VecDeque<(SocketAddr, Vec<u8>)>,
}

impl<S: Raw> Wire<()> for Port<'_, S> {
    fn deliver(&mut self, peer: SocketAddr, datagram: &[u8], (): ()) {
        self.ready.push_back((peer, datagram.to_vec()));
    }

    fn transmit(&mut self, peer: SocketAddr, control: &[u8]) {
        // Lost, as any datagram may be.
        let _ = self.socket.send(control, peer);
    }

    fn source(&self, peer: SocketAddr) -> Option<IpAddr> {
        source_from(self.socket.local().ok()?, peer)
    }
}

impl<S: Raw> Shared<S> {
    pub(crate) fn new(socket: S, config: SocketConfig) -> Self {
        let state = State { peers: Peers::new(config, Limits::default()), ready: VecDeque::new() };
        Self { socket, began: Instant::now(), state: Mutex::new(state) }
    }

    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
    }

    /// Shims are guarded: no panic is behind a poisoned lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, call: impl FnOnce(&mut Peers<()>, Timestamp, &mut Port<'_, S>) -> R) -> R {
        let State { peers, ready } = &mut *self.lock();
        call(peers, self.now(), &mut Port { socket: &self.socket, ready })
    }

    /// Called when the program sends a datagram. Returns the number to put in front of it.
    pub(crate) fn on_sending(&self, peer: SocketAddr, datagram: &[u8]) -> Option<NumberHeader> {
        self.with(|peers, now, port| {
            peers.on_sending(peer, None, now, port);
            peers.on_send(peer, datagram, now)
        })
    }

    /// True if a datagram has left with its number, for which the link may refuse it.
    pub(crate) fn has_left_numbered(
        &self,
        sent: &io::Result<usize>,
        peer: SocketAddr,
        datagram: &[u8],
    ) -> bool {
        if sent.as_ref().is_err_and(is_too_long) {
            self.with(|peers, now, _| peers.on_refused(peer, datagram.len(), now));
        }
        sent.is_ok()
    }

    /// Counts the datagram if the system has taken it.
    pub(crate) fn on_sent(
        &self,
        peer: SocketAddr,
        sent: io::Result<usize>,
    ) -> Result<usize, SocketError> {
        let bytes = sent.map_err(|source| SocketError::Send { peer, source })?;
        self.with(|peers, now, _| peers.on_sent(peer, 1, bytes as u64, now));
        Ok(bytes)
    }

    pub(crate) fn local_address(&self) -> Result<SocketAddr, SocketError> {
        self.socket.local().map_err(|source| SocketError::Address { source })
    }

    /// A datagram has arrived.
    pub(crate) fn on_received(&self, peer: SocketAddr, datagram: &[u8]) {
        self.with(|peers, now, port| peers.on_received(peer, [(datagram, ())], now, port));
    }

    /// Runs the timers that are due, and returns the time until the next one.
    pub(crate) fn handle_timeout(&self) -> Option<Duration> {
        self.with(|peers, now, port| {
            if peers.next_timeout().is_some_and(|at| at <= now) {
                peers.handle_timeout(now, port);
            }
            peers.next_timeout().map(|at| at.saturating_since(now))
        })
    }

    /// The next datagram for the program, and its sender; a datagram longer than the buffer is
    /// truncated.
    pub(crate) fn next_delivered(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let (peer, datagram) = self.lock().ready.pop_front()?;
        let length = datagram.len().min(buffer.len());
        buffer[..length].copy_from_slice(&datagram[..length]);
        Some((length, peer))
    }

    /// True if there is one.
    pub(crate) fn has_ready(&self) -> bool {
        !self.lock().ready.is_empty()
    }

    pub(crate) fn set_access(&self, access: Access) {
        self.with(|peers, now, port| peers.set_access(access, now, port));
    }

    pub(crate) fn on_network_change(&self) {
        self.with(|peers, now, port| peers.on_network_change(now, port));
    }

    pub(crate) fn figures(&self, peer: SocketAddr) -> Option<FlowFigures> {
        self.with(|peers, now, _| peers.figures(peer, now))
    }

    pub(crate) fn counters(&self) -> Counters {
        self.lock().peers.counters()
    }
}

impl<S: Raw> Drop for Shared<S> {
    fn drop(&mut self) {
        self.with(|peers, now, port| peers.close(now, port));
    }
}
