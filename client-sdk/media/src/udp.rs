//! The sender and the receiver on tokio sockets.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use packrat_client::{Access, AssistStats};
use packrat_wire::estimate::Timestamp;
use socket2::{Domain, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{sleep_until, timeout};

use crate::receiver::{ReceiverConfig, Unit};
use crate::seal::MediaKey;
use crate::sender::{CHALLENGE_BYTES, Heard, Sender};
use crate::session::{Assistance, MediaReceiver};
use crate::statistics::Statistics;
use crate::subscription::{Numbers, Subscription};

/// Interval at which a receiver shows its sender that it is there.
const HELLO_INTERVAL: Duration = Duration::from_secs(1);
/// Silence of a receiver after which a sender stops sending to it.
const RECEIVER_SILENCE: Duration = Duration::from_secs(10);
/// Addresses of which a sender remembers that it has asked them.
const REMEMBERED_QUESTIONS: usize = 16;
/// Room for the largest datagram, bytes.
const LARGEST_DATAGRAM_BYTES: usize = 65_536;

/// The core behind a socket.
#[derive(Debug)]
enum Core {
    Media(Box<MediaReceiver>),
    Subscription(Box<Subscription>),
}

/// Calls a method that both have.
macro_rules! core {
    ($core:expr, $receiver:ident => $call:expr) => {
        match $core {
            Core::Media($receiver) => $call,
            Core::Subscription($receiver) => $call,
        }
    };
}

/// A stream's receiver on a socket of its own.
#[derive(Debug)]
pub struct UdpReceiver {
    /// Not connected: after a change of network it sends from the new address.
    socket: UdpSocket,
    peer: SocketAddr,
    /// The socket on which a multicast stream arrives.
    group: Option<UdpSocket>,
    core: Core,
    origin: Instant,
    hello_at: Timestamp,
    buffer: Vec<u8>,
    group_buffer: Vec<u8>,
}

impl UdpReceiver {
    /// Calls the stream's sender, or the gateway in front of it, at `peer`.
    ///
    /// # Errors
    /// No socket, or no randomness, can be had from the operating system.
    pub async fn connect(
        peer: SocketAddr,
        source: u32,
        config: ReceiverConfig,
        key: MediaKey,
        assistance: Option<&Assistance>,
    ) -> io::Result<Self> {
        let seed = seed()?;
        let receiver = MediaReceiver::new(source, config, key, assistance, seed, Timestamp::ZERO);
        Self::open(peer, None, Core::Media(Box::new(receiver))).await
    }

    /// Subscribes to the stream of the gateway at `gateway`; with `group`, the packets themselves
    /// come by multicast to that address.
    ///
    /// ```no_run
    /// use packrat_media::{Access, Numbers, ReceiverConfig, udp::UdpReceiver};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let (config, access) = (ReceiverConfig::default(), Access::default());
    /// let gateway = "192.0.2.7:5004".parse()?;
    /// let mut stream = UdpReceiver::subscribe(gateway, None, Numbers::Rtp, config, access).await?;
    /// let unit = stream.next().await?;
    /// println!("{} bytes", unit.bytes.len());
    /// stream.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// No socket, or no randomness, can be had from the operating system, or the group can't be
    /// joined.
    pub async fn subscribe(
        gateway: SocketAddr,
        group: Option<SocketAddr>,
        numbers: Numbers,
        config: ReceiverConfig,
        access: Access,
    ) -> io::Result<Self> {
        let group = match group {
            Some(group) => Some(join(group, gateway)?),
            None => None,
        };
        let subscription = Subscription::new(numbers, config, access, seed()?, Timestamp::ZERO);
        Self::open(gateway, group, Core::Subscription(Box::new(subscription))).await
    }

    async fn open(peer: SocketAddr, group: Option<UdpSocket>, core: Core) -> io::Result<Self> {
        let socket = UdpSocket::bind(any(peer)).await?;
        Ok(Self {
            socket,
            peer,
            group,
            core,
            origin: Instant::now(),
            hello_at: Timestamp::ZERO,
            buffer: vec![0; LARGEST_DATAGRAM_BYTES],
            group_buffer: vec![0; LARGEST_DATAGRAM_BYTES],
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    /// The next unit in order, at its time. May be dropped and called again at any moment.
    ///
    /// # Errors
    /// The socket fails. A closed port at the peer or a missing network is no error: both may come yet.
    pub async fn next(&mut self) -> io::Result<Unit> {
        loop {
            let now = self.now();
            core!(&mut self.core, core => core.handle_timeout(now));
            if now >= self.hello_at {
                self.hello_at = now + HELLO_INTERVAL;
                if let Core::Media(receiver) = &mut self.core
                    && let Some(hello) = receiver.hello(now)
                {
                    self.send(&hello).await?;
                }
            }
            while let Some(datagram) = core!(&mut self.core, core => core.poll_transmit(now)) {
                self.send(&datagram).await?;
            }
            if let Some(unit) = core!(&mut self.core, core => core.poll_unit(now)) {
                return Ok(unit);
            }
            let due = core!(&self.core, core => core.next_timeout());
            let due = due.map_or(self.hello_at, |at| at.min(self.hello_at));
            let due = self.origin + due.saturating_since(Timestamp::ZERO);
            tokio::select! {
                received = self.socket.recv_from(&mut self.buffer) => match received {
                    Ok((length, from)) if is_same(from, self.peer) => {
                        let now = self.now();
                        core!(&mut self.core, core => core.on_datagram(&self.buffer[..length], now));
                    }
                    Ok(_) => {}
                    Err(error) => unless_it_passes(error)?,
                },
                received = receive(self.group.as_ref(), &mut self.group_buffer) => {
                    let (length, now) = (received?, self.now());
                    core!(&mut self.core, core => core.on_datagram(&self.group_buffer[..length], now));
                }
                () = sleep_until(due.into()) => {}
            }
        }
    }

    async fn send(&self, datagram: &[u8]) -> io::Result<()> {
        send(&self.socket, datagram, self.peer).await
    }

    /// Ends the gateway's stream to this receiver.
    ///
    /// # Errors
    /// The socket fails.
    pub async fn close(mut self) -> io::Result<()> {
        let now = self.now();
        core!(&mut self.core, core => core.close(now));
        while let Some(datagram) = core!(&mut self.core, core => core.poll_transmit(now)) {
            self.send(&datagram).await?;
        }
        Ok(())
    }

    /// The receiver's statistics; begins a new interval.
    pub fn take_statistics(&mut self) -> Statistics {
        core!(&mut self.core, core => core.take_statistics())
    }

    /// Counters of the assistance, if it was asked for.
    pub fn assistance(&self) -> Option<AssistStats> {
        match &self.core {
            Core::Media(receiver) => receiver.assistance(),
            Core::Subscription(subscription) => Some(subscription.assistance()),
        }
    }
}

fn seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    Ok(seed)
}

/// A socket that hears a multicast group, beside others of this host: on the group's interface, for
/// IPv4 on the one towards the gateway.
fn join(group: SocketAddr, gateway: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&group.into())?;
    match group {
        SocketAddr::V4(group) if group.ip().is_multicast() => {
            let towards = std::net::UdpSocket::bind(any(gateway)).and_then(|probe| {
                probe.connect(gateway)?;
                probe.local_addr()
            });
            let interface = match towards.map(|local| local.ip()) {
                Ok(IpAddr::V4(address)) => address,
                _ => Ipv4Addr::UNSPECIFIED,
            };
            socket.join_multicast_v4(group.ip(), &interface)?;
        }
        SocketAddr::V6(group) if group.ip().is_multicast() => {
            socket.join_multicast_v6(group.ip(), group.scope_id())?;
        }
        _ => {
            let reason = format!("{group} is no multicast group");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
    }
    UdpSocket::from_std(socket.into())
}

/// Any address of this host, of the peer's family.
fn any(peer: SocketAddr) -> SocketAddr {
    match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// True for two forms of one address: scope and flow label of IPv6 are this host's.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip().to_canonical(), one.port()) == (other.ip().to_canonical(), other.port())
}

async fn send(socket: &UdpSocket, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
    match socket.send_to(datagram, to).await {
        Ok(_) => Ok(()),
        Err(error) => unless_it_passes(error),
    }
}

/// The error, unless the network may be back, or the peer, or room in the system, by the next datagram.
fn unless_it_passes(error: io::Error) -> io::Result<()> {
    use io::ErrorKind::{
        AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkDown, NetworkUnreachable,
        PermissionDenied,
    };
    /// ENOBUFS of Linux, of BSDs, and of Windows.
    const NO_BUFFERS: [i32; 3] = [105, 55, 10_055];
    match error.kind() {
        AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkDown
        | NetworkUnreachable | PermissionDenied => Ok(()),
        _ if error.raw_os_error().is_some_and(|code| NO_BUFFERS.contains(&code)) => Ok(()),
        _ => Err(error),
    }
}

/// The next datagram of the group, if there is one; else never.
async fn receive(group: Option<&UdpSocket>, buffer: &mut [u8]) -> io::Result<usize> {
    match group {
        Some(group) => group.recv(buffer).await,
        None => std::future::pending().await,
    }
}

/// A stream's sender on a socket of its own: sends to the receiver that last proved that it has the
/// key, and receives at its apparent address.
///
/// ```text
///   a request from an address        the echo, from there            requests from there
///   ----------------------> Asked --------------------------> Sent to ------------------> Sent to
///                           nothing but the question              |
///                           goes there                            +--- 10 s of silence ---> nothing
/// ```
///
/// ```no_run
/// use packrat_media::{MediaKey, Sender, SenderConfig, udp::UdpSender};
/// use std::time::Duration;
///
/// # async fn example(key: MediaKey, run: [u8; 16]) -> std::io::Result<()> {
/// let core = Sender::new(SenderConfig { source: 1, repeats: false }, key, run);
/// let mut sender = UdpSender::bind(([0, 0, 0, 0], 5004).into(), core).await?;
/// sender.wait_for_receiver(Duration::from_secs(600)).await?;
/// sender.send(b"a unit").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct UdpSender {
    socket: UdpSocket,
    sender: Sender,
    origin: Instant,
    receiver: Option<(SocketAddr, Instant)>,
    /// Addresses that were asked whether a receiver is there.
    asked: VecDeque<(SocketAddr, [u8; CHALLENGE_BYTES])>,
    buffer: Vec<u8>,
}

impl UdpSender {
    /// Waits for its receiver at `local`.
    ///
    /// # Errors
    /// The address can't be had.
    pub async fn bind(local: SocketAddr, sender: Sender) -> io::Result<Self> {
        let socket = UdpSocket::bind(local).await?;
        Ok(Self {
            socket,
            sender,
            origin: Instant::now(),
            receiver: None,
            asked: VecDeque::new(),
            buffer: vec![0; LARGEST_DATAGRAM_BYTES],
        })
    }

    /// Returns the address for receivers.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves receivers' requests, for this long.
    ///
    /// # Errors
    /// The socket fails.
    pub async fn serve(&mut self, time: Duration) -> io::Result<()> {
        let end = Instant::now() + time;
        while self.serve_one(end).await? {}
        Ok(())
    }

    /// Serves receivers' requests until there is a receiver, but no longer than `limit`.
    ///
    /// # Errors
    /// The socket fails.
    pub async fn wait_for_receiver(&mut self, limit: Duration) -> io::Result<()> {
        let end = Instant::now() + limit;
        while self.serve_one(end).await? && self.receiver.is_none() {}
        Ok(())
    }

    /// Serves a receiver's request or answer. Returns false if none came in time.
    async fn serve_one(&mut self, end: Instant) -> io::Result<bool> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(received) = timeout(left, self.socket.recv_from(&mut self.buffer)).await else {
                return Ok(false);
            };
            let (length, from) = match received {
                Ok(received) => received,
                Err(error) => {
                    unless_it_passes(error)?;
                    continue;
                }
            };
            match self.sender.on_datagram(&self.buffer[..length]) {
                Some(Heard::Asked(retransmissions)) if self.is_there(from) => {
                    self.receiver = Some((from, Instant::now()));
                    for datagram in retransmissions {
                        send(&self.socket, &datagram, from).await?;
                    }
                }
                Some(Heard::Asked(_)) => self.ask(from).await?,
                Some(Heard::Echo(challenge)) if self.asked.contains(&(from, challenge)) => {
                    self.asked.retain(|(asked, _)| *asked != from);
                    self.receiver = Some((from, Instant::now()));
                }
                Some(Heard::Echo(_)) | None => continue,
            }
            return Ok(true);
        }
    }

    /// True if the stream goes to this address.
    fn is_there(&self, address: SocketAddr) -> bool {
        self.receiver.is_some_and(|(receiver, heard)| {
            receiver == address && heard.elapsed() < RECEIVER_SILENCE
        })
    }

    /// Asks whether a receiver is at this address; a request may have been repeated by someone else.
    async fn ask(&mut self, address: SocketAddr) -> io::Result<()> {
        let mut challenge = [0; CHALLENGE_BYTES];
        getrandom::fill(&mut challenge).map_err(io::Error::other)?;
        let Some(datagram) = self.sender.challenge(challenge) else { return Ok(()) };
        if self.asked.len() == REMEMBERED_QUESTIONS {
            self.asked.pop_front();
        }
        self.asked.push_back((address, challenge));
        send(&self.socket, &datagram, address).await
    }

    /// Sends a unit, if there is a receiver.
    ///
    /// # Errors
    /// The socket fails, or the unit is too large for a datagram.
    pub async fn send(&mut self, unit: &[u8]) -> io::Result<()> {
        let now = Timestamp::ZERO + self.origin.elapsed();
        let datagram = self.sender.send(unit, now).ok_or(io::ErrorKind::InvalidInput)?;
        match self.receiver {
            Some((receiver, heard)) if heard.elapsed() < RECEIVER_SILENCE => {
                send(&self.socket, &datagram, receiver).await
            }
            _ => Ok(()),
        }
    }

    /// The sender's core, for its counters.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }
}
