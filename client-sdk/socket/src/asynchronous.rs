//! A UDP socket for programs on tokio.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use packrat_client::{Access, Counters};
use tokio::net::UdpSocket;
use tokio::sync::Notify;

use crate::config::SocketConfig;
use crate::error::SocketError;
use crate::shared::{MOST_BYTES, Raw, Shared};
use crate::table::FlowFigures;

/// Datagrams that are taken from the system before the first of them is handed out: the program's
/// other tasks have their turn.
const TURN_DATAGRAMS: usize = 8;
/// A receiving task looks at least this often if another one has begun a flow.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// [`AssistedSocket`](crate::AssistedSocket) for programs on tokio: a UDP socket for assisted
/// peers. A gateway on the path repairs lost datagrams, and they are delivered in the order in
/// which the gateway has forwarded them.
///
/// Assistance only runs while a task is in [`Self::receive_from`], which runs the shim's timers: a
/// program that stays away for longer than some milliseconds gets repairs late. All calls take
/// `&self` and may be made by several tasks at a time. A call that is dropped before its end, as by
/// `select!`, loses no arrived datagram.
///
/// ```no_run
/// use packrat_socket::{AsyncAssistedSocket, SocketConfig};
///
/// # async fn ask() -> std::io::Result<()> {
/// let socket = tokio::net::UdpSocket::bind("0.0.0.0:0").await?;
/// let socket = AsyncAssistedSocket::new(socket, SocketConfig::default());
/// socket.send_to(b"a question", "192.0.2.7:4000".parse().unwrap()).await?;
/// let mut buffer = [0; 2048];
/// let (length, peer) = socket.receive_from(&mut buffer).await?;
/// println!("{length} bytes of {peer}; {} repaired", socket.counters().repaired());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncAssistedSocket {
    shared: Shared<UdpSocket>,
    /// A flow has a deadline that the waiting task may not know of.
    begun: Notify,
    buffer: Mutex<Vec<u8>>,
}

impl Raw for UdpSocket {
    fn send(&self, datagram: &[u8], peer: SocketAddr) -> io::Result<usize> {
        self.try_send_to(datagram, peer)
    }

    fn local(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

impl AsyncAssistedSocket {
    /// Assists the client that owns `socket`, which is not connected.
    pub fn new(socket: UdpSocket, config: SocketConfig) -> Self {
        let buffer = Mutex::new(vec![0; MOST_BYTES]);
        Self { shared: Shared::new(socket, config), begun: Notify::new(), buffer }
    }

    /// Sends a datagram, as [`UdpSocket::send_to`].
    ///
    /// # Errors
    /// [`SocketError::Send`]: the system's errors.
    pub async fn send_to(&self, datagram: &[u8], peer: SocketAddr) -> Result<usize, SocketError> {
        let socket = self.shared.socket();
        // Control datagrams leave before it, without waiting for room.
        socket.writable().await.map_err(|source| SocketError::Send { peer, source })?;
        let number = self.shared.on_sending(peer, datagram);
        self.begun.notify_one();
        let numbered = match number {
            Some(number) => {
                let sent = socket.send_to(&[&number[..], datagram].concat(), peer).await;
                self.shared.has_left_numbered(&sent, peer, datagram)
            }
            None => false,
        };
        // With a number it may be too long for the link.
        let sent = if numbered { Ok(datagram.len()) } else { socket.send_to(datagram, peer).await };
        self.shared.on_sent(peer, sent)
    }

    /// Receives the next datagram, and returns its length and sender. A datagram longer than the
    /// buffer is truncated.
    ///
    /// # Errors
    /// [`SocketError::Receive`]: the system's errors.
    pub async fn receive_from(
        &self,
        buffer: &mut [u8],
    ) -> Result<(usize, SocketAddr), SocketError> {
        let socket = self.shared.socket();
        loop {
            if !self.shared.has_ready() {
                self.take_in().map_err(|source| SocketError::Receive { source })?;
            }
            let due = self.shared.handle_timeout();
            if let Some(next) = self.shared.next_delivered(buffer) {
                return Ok(next);
            }
            let wait = due.map_or(LONGEST_WAIT, |due| due.min(LONGEST_WAIT));
            tokio::select! {
                ready = socket.readable() => ready.map_err(|source| SocketError::Receive { source })?,
                () = tokio::time::sleep(wait) => {}
                () = self.begun.notified() => {}
            }
        }
    }

    /// Takes the datagrams that the system has received.
    fn take_in(&self) -> io::Result<()> {
        let mut received = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TURN_DATAGRAMS {
            match self.shared.socket().try_recv_from(&mut received) {
                Ok((length, peer)) => {
                    self.shared.on_received(peer, received.get(..length).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Datagrams that have arrived before come first.
                Err(_) if self.shared.has_ready() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    /// [`SocketError::Address`] when the system does not report it.
    pub fn local_address(&self) -> Result<SocketAddr, SocketError> {
        self.shared.local_address()
    }

    /// Sets the gateway to accept and the token of future handshakes, also for existing flows: a
    /// session with another gateway ends.
    pub fn set_access(&self, access: Access) {
        self.shared.set_access(access);
        self.begun.notify_one();
    }

    /// Reports that the network has changed. A change of the host's own address is detected without
    /// this call.
    pub fn on_network_change(&self) {
        self.shared.on_network_change();
        self.begun.notify_one();
    }

    /// Returns the figures of a peer's flow, or `None` if no datagram was sent to the peer
    /// recently.
    pub fn figures(&self, peer: SocketAddr) -> Option<FlowFigures> {
        self.shared.figures(peer)
    }

    /// The sums of all flows.
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }
}
