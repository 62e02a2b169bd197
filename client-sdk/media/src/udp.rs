//! The sender and the receiver on tokio sockets.

use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use packrat_client::AssistStats;
use packrat_estimate::Timestamp;
use tokio::net::UdpSocket;
use tokio::time::{sleep_until, timeout};

use crate::receiver::{ReceiverConfig, Unit};
use crate::seal::MediaKey;
use crate::sender::Sender;
use crate::session::{Assistance, MediaReceiver};
use crate::statistics::Statistics;

/// A receiver tells its sender that it is there this often.
const HELLO: Duration = Duration::from_secs(1);
/// A sender stops sending to a receiver that it has not heard of for this long.
const SILENCE: Duration = Duration::from_secs(10);
/// Room for the largest datagram.
const LARGEST: usize = 65_536;

/// A stream's receiver on a socket of its own.
#[derive(Debug)]
pub struct UdpReceiver {
    socket: UdpSocket,
    receiver: MediaReceiver,
    origin: Instant,
    hello_at: Timestamp,
    buffer: Vec<u8>,
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
        let local: SocketAddr = if peer.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(local).await?;
        socket.connect(peer).await?;
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        // Time begins a little before the first datagram.
        let origin = Instant::now();
        let receiver = MediaReceiver::new(source, config, key, assistance, seed, Timestamp::ZERO);
        Ok(Self { socket, receiver, origin, hello_at: Timestamp::ZERO, buffer: vec![0; LARGEST] })
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    /// The next unit in order, at its time. May be dropped and called again at any moment.
    ///
    /// # Errors
    /// The socket fails. That nobody listens at the peer's port is none: the sender may come yet.
    pub async fn next(&mut self) -> io::Result<Unit> {
        loop {
            let now = self.now();
            self.receiver.handle_timeout(now);
            if now >= self.hello_at {
                self.hello_at = now + HELLO;
                if let Some(hello) = self.receiver.hello(now) {
                    self.send(&hello).await?;
                }
            }
            while let Some(datagram) = self.receiver.poll_transmit(now) {
                self.send(&datagram).await?;
            }
            if let Some(unit) = self.receiver.poll_unit(now) {
                return Ok(unit);
            }
            let due = self.receiver.next_timeout().map_or(self.hello_at, |at| at.min(self.hello_at));
            let due = self.origin + due.saturating_since(Timestamp::ZERO);
            tokio::select! {
                received = self.socket.recv(&mut self.buffer) => match received {
                    Ok(length) => {
                        let now = self.now();
                        self.receiver.on_datagram(&self.buffer[..length], now);
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                    Err(error) => return Err(error),
                },
                () = sleep_until(due.into()) => {}
            }
        }
    }

    async fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match self.socket.send(datagram).await {
            Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => Err(error),
            _ => Ok(()),
        }
    }

    /// Tells the gateway that the stream is not wanted any more.
    ///
    /// # Errors
    /// The socket fails.
    pub async fn close(mut self) -> io::Result<()> {
        let now = self.now();
        self.receiver.close(now);
        while let Some(datagram) = self.receiver.poll_transmit(now) {
            self.send(&datagram).await?;
        }
        Ok(())
    }

    /// The receiver's statistics; begins a new interval.
    pub fn take_statistics(&mut self) -> Statistics {
        self.receiver.take_statistics()
    }

    /// What assistance did, where it was asked for.
    pub fn assistance(&self) -> Option<AssistStats> {
        self.receiver.assistance()
    }
}

/// A stream's sender on a socket of its own: sends to whoever has shown that it has the key last.
#[derive(Debug)]
pub struct UdpSender {
    socket: UdpSocket,
    sender: Sender,
    origin: Instant,
    receiver: Option<(SocketAddr, Instant)>,
    buffer: Vec<u8>,
}

impl UdpSender {
    /// Waits for its receiver at `local`.
    ///
    /// # Errors
    /// The address can't be had.
    pub async fn bind(local: SocketAddr, sender: Sender) -> io::Result<Self> {
        let socket = UdpSocket::bind(local).await?;
        Ok(Self { socket, sender, origin: Instant::now(), receiver: None, buffer: vec![0; LARGEST] })
    }

    /// Where receivers call.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves what receivers ask for, for this long or until there is a receiver.
    ///
    /// # Errors
    /// The socket fails.
    pub async fn serve(&mut self, time: Duration, until_heard: bool) -> io::Result<()> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(received) = timeout(left, self.socket.recv_from(&mut self.buffer)).await else {
                return Ok(());
            };
            let (length, from) = match received {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let Some(retransmissions) = self.sender.on_datagram(&self.buffer[..length]) else { continue };
            self.receiver = Some((from, Instant::now()));
            for datagram in retransmissions {
                self.socket.send_to(&datagram, from).await?;
            }
            if until_heard {
                return Ok(());
            }
        }
    }

    /// Sends a unit, if there is a receiver.
    ///
    /// # Errors
    /// The socket fails, or the unit is too large for a datagram.
    pub async fn send(&mut self, unit: &[u8]) -> io::Result<()> {
        let now = Timestamp::ZERO + self.origin.elapsed();
        let datagram = self.sender.send(unit, now).ok_or(io::ErrorKind::InvalidInput)?;
        match self.receiver {
            Some((receiver, heard)) if heard.elapsed() < SILENCE => {
                self.socket.send_to(&datagram, receiver).await.map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// The sender's core, for its counters.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }
}
