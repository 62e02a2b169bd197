//! A UDP socket that blocks.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use packrat_client::{Access, Counters};

use crate::config::SocketConfig;
use crate::error::SocketError;
use crate::shared::{MOST_BYTES, Shared};
use crate::table::FlowFigures;

/// The receiving thread looks at least this often if another one has begun a flow.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The shortest time that the system can wait for.
const SHORTEST_WAIT: Duration = Duration::from_micros(100);

/// A UDP socket for assisted peers: a gateway on the path repairs lost datagrams, and they are
/// delivered in the order in which the gateway has forwarded them.
///
/// The program is the client. Its datagrams leave unchanged (with [`SocketConfig::with_uploads`],
/// with a number in front, which the gateway removes). The first datagram to a peer begins the
/// search for a gateway. Assistance only runs while a thread is in [`Self::receive_from`]: a
/// program that stays away for longer than some milliseconds gets repairs late.
///
/// ```no_run
/// use packrat_socket::{AssistedSocket, SocketConfig};
///
/// # fn main() -> std::io::Result<()> {
/// let socket = AssistedSocket::new(std::net::UdpSocket::bind("0.0.0.0:0")?, SocketConfig::default())?;
/// socket.send_to(b"a question", "192.0.2.7:4000".parse().unwrap())?;
/// let mut buffer = [0; 2048];
/// let (length, peer) = socket.receive_from(&mut buffer, None)?;
/// println!("{length} bytes of {peer}; {} repaired", socket.counters().repaired());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AssistedSocket {
    shared: Shared<UdpSocket>,
    /// Buffer of the one thread that receives.
    buffer: Mutex<Vec<u8>>,
}

impl AssistedSocket {
    /// Assists the client that owns `socket`, which is not connected, and is switched to blocking.
    ///
    /// # Errors
    /// [`SocketError::Setup`] when the system does not let it block.
    pub fn new(socket: UdpSocket, config: SocketConfig) -> Result<Self, SocketError> {
        socket.set_nonblocking(false).map_err(|source| SocketError::Setup { source })?;
        let buffer = Mutex::new(vec![0; MOST_BYTES]);
        Ok(Self { shared: Shared::new(socket, config), buffer })
    }

    /// Sends a datagram, as [`UdpSocket::send_to`].
    ///
    /// # Errors
    /// [`SocketError::Send`]: the system's errors.
    pub fn send_to(&self, datagram: &[u8], peer: SocketAddr) -> Result<usize, SocketError> {
        let socket = self.shared.socket();
        let number = self.shared.on_sending(peer, datagram);
        let numbered = number.is_some_and(|number| {
            let sent = socket.send_to(&[&number[..], datagram].concat(), peer);
            self.shared.has_left_numbered(&sent, peer, datagram)
        });
        // With a number it may be too long for the link.
        let sent = if numbered { Ok(datagram.len()) } else { socket.send_to(datagram, peer) };
        self.shared.on_sent(peer, sent)
    }

    /// Receives the next datagram, and returns its length and sender. A datagram longer than the
    /// buffer is truncated. `limit`: the longest wait; zero: only datagrams that have arrived
    /// already; `None`: no limit. Systems wait for some milliseconds at least.
    ///
    /// # Errors
    /// [`SocketError::TimedOut`] if no datagram has arrived in time; [`SocketError::Receive`]: the
    /// system's errors.
    pub fn receive_from(
        &self,
        buffer: &mut [u8],
        limit: Option<Duration>,
    ) -> Result<(usize, SocketAddr), SocketError> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut received = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(next) = self.shared.next_delivered(buffer) {
                return Ok(next);
            }
            let due = self.shared.handle_timeout();
            if self.shared.has_ready() {
                continue;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let wait = due.into_iter().chain(left).fold(LONGEST_WAIT, Duration::min);
            let socket = self.shared.socket();
            let arrived = socket
                .set_read_timeout(Some(wait.max(SHORTEST_WAIT)))
                .and_then(|()| socket.recv_from(&mut received));
            match arrived {
                Ok((length, peer)) => {
                    self.shared.on_received(peer, received.get(..length).unwrap_or_default());
                }
                Err(source) => match source.kind() {
                    // The clock is checked only after the socket: datagrams that have arrived come
                    // first.
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                        if left == Some(Duration::ZERO) =>
                    {
                        return Err(SocketError::TimedOut { limit: limit.unwrap_or_default() });
                    }
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted => {}
                    _ => return Err(SocketError::Receive { source }),
                },
            }
        }
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
    }

    /// Reports that the network has changed. A change of the host's own address is detected without
    /// this call.
    pub fn on_network_change(&self) {
        self.shared.on_network_change();
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
