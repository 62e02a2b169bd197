//! A UDP socket that blocks.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use packrat_client::{Access, ClientConfig, Counters, Timestamp};

use crate::peers::{Peers, Wire};
use crate::source::source_from;
use crate::table::{FlowFigures, Limits};

/// The largest UDP payload.
const MOST_BYTES: usize = 65_536;
/// The receiving thread looks at least this often if another one has begun a flow.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The shortest time that the system can wait for.
const SHORTEST_WAIT: Duration = Duration::from_micros(100);

/// A UDP socket whose peers' datagrams are repaired by a gateway on the way, and come in the order
/// in which that has forwarded them.
///
/// The program is the client: what it sends leaves unchanged (or with a number in front, which ends at
/// the gateway, where [`ClientConfig::with_uploads`] is set), and with the first datagram to a peer a
/// gateway is asked for. Assistance is at work while a thread is in [`Self::receive_from`]: a
/// program that does other things for longer than some milliseconds gets repairs late.
///
/// ```no_run
/// use packrat_socket::{AssistedSocket, ClientConfig, IdentifierScheme};
///
/// # fn main() -> std::io::Result<()> {
/// let config = ClientConfig::default().with_scheme(IdentifierScheme::Payload);
/// let socket = AssistedSocket::new(std::net::UdpSocket::bind("0.0.0.0:0")?, config)?;
/// socket.send_to(b"a question", "192.0.2.7:4000".parse().unwrap())?;
/// let mut buffer = [0; 2048];
/// let (length, peer) = socket.receive_from(&mut buffer, None)?;
/// println!("{length} bytes of {peer}; {} repaired", socket.counters().repaired());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AssistedSocket {
    socket: UdpSocket,
    began: Instant,
    state: Mutex<State>,
    /// Of the one thread that receives.
    buffer: Mutex<Vec<u8>>,
}

#[derive(Debug)]
struct State {
    peers: Peers<()>,
    ready: VecDeque<(SocketAddr, Vec<u8>)>,
}

/// The socket as [`Peers`] sees it.
struct Port<'a> {
    socket: &'a UdpSocket,
    ready: &'a mut VecDeque<(SocketAddr, Vec<u8>)>,
}

impl Wire<()> for Port<'_> {
    fn deliver(&mut self, peer: SocketAddr, datagram: &[u8], (): ()) {
        self.ready.push_back((peer, datagram.to_vec()));
    }

    fn transmit(&mut self, peer: SocketAddr, control: &[u8]) {
        // Lost, as any datagram may be.
        let _ = self.socket.send_to(control, peer);
    }

    fn source(&self, peer: SocketAddr) -> Option<IpAddr> {
        source_from(self.socket.local_addr().ok()?, peer)
    }
}

impl AssistedSocket {
    /// Assists the client that owns `socket`, which is not connected. It is made one that blocks.
    ///
    /// # Errors
    /// When the system does not let it block.
    pub fn new(socket: UdpSocket, config: ClientConfig) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        let state = State { peers: Peers::new(config, Limits::default()), ready: VecDeque::new() };
        let buffer = Mutex::new(vec![0; MOST_BYTES]);
        Ok(Self { socket, began: Instant::now(), state: Mutex::new(state), buffer })
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
    }

    /// Shims are guarded: no panic is behind a poisoned lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, call: impl FnOnce(&mut Peers<()>, Timestamp, &mut Port<'_>) -> R) -> R {
        let State { peers, ready } = &mut *self.lock();
        call(peers, self.now(), &mut Port { socket: &self.socket, ready })
    }

    /// Sends a datagram, as [`UdpSocket::send_to`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn send_to(&self, datagram: &[u8], peer: SocketAddr) -> io::Result<usize> {
        let number = self.with(|peers, now, port| {
            peers.on_sending(peer, now, port);
            peers.on_send(peer, datagram, now)
        });
        let numbered = number.is_some_and(|number| {
            self.socket.send_to(&[&number[..], datagram].concat(), peer).is_ok()
        });
        // With a number it may be too long for the link.
        let sent = if numbered { datagram.len() } else { self.socket.send_to(datagram, peer)? };
        self.with(|peers, now, _| peers.on_sent(peer, 1, sent as u64, now));
        Ok(sent)
    }

    /// The next datagram, and its sender. What does not fit into the buffer is cut off. `limit`: the
    /// longest wait; zero: what is there already; `None`: as long as it takes. Systems wait for some
    /// milliseconds at least.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when nothing has come in time; those of the system.
    pub fn receive_from(
        &self,
        buffer: &mut [u8],
        limit: Option<Duration>,
    ) -> io::Result<(usize, SocketAddr)> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut received = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some((peer, datagram)) = self.lock().ready.pop_front() {
                let length = datagram.len().min(buffer.len());
                buffer[..length].copy_from_slice(&datagram[..length]);
                return Ok((length, peer));
            }
            let due = self.with(|peers, now, port| {
                if peers.next_timeout().is_some_and(|at| at <= now) {
                    peers.handle_timeout(now, port);
                }
                peers.next_timeout().map(|at| at.saturating_since(now))
            });
            if !self.lock().ready.is_empty() {
                continue;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let wait = due.into_iter().chain(left).fold(LONGEST_WAIT, Duration::min);
            self.socket.set_read_timeout(Some(wait.max(SHORTEST_WAIT)))?;
            match self.socket.recv_from(&mut received) {
                Ok((length, peer)) => {
                    let datagram = received.get(..length).unwrap_or_default();
                    self.with(|peers, now, port| {
                        peers.on_received(peer, [(datagram, ())], now, port);
                    });
                }
                Err(error) => match error.kind() {
                    // The clock is looked at only after the socket: what is there comes first.
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                        if left == Some(Duration::ZERO) =>
                    {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// The address that the socket is bound to.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The gateway to accept and the token for the handshakes to come, also of the flows that there
    /// are: a session with another gateway ends.
    pub fn set_access(&self, access: Access) {
        self.with(|peers, now, port| peers.set_access(access, now, port));
    }

    /// The program knows that the network has changed. A change of the host's own address is noticed
    /// without.
    pub fn on_network_change(&self) {
        self.with(|peers, now, port| peers.on_network_change(now, port));
    }

    /// The figures of a peer's flow; `None`: nothing was sent to it, or not for a long time.
    pub fn figures(&self, peer: SocketAddr) -> Option<FlowFigures> {
        self.with(|peers, now, _| peers.figures(peer, now))
    }

    /// The sums of all flows.
    pub fn counters(&self) -> Counters {
        self.lock().peers.counters()
    }
}

impl Drop for AssistedSocket {
    fn drop(&mut self) {
        self.with(|peers, now, port| peers.close(now, port));
    }
}
