//! The host of the shell: its clock, its timers, and the base connection's own socket.

use packrat_wire::estimate::Timestamp;
use s2n_quic_core::inet::ExplicitCongestionNotification;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::time::{Duration, Instant};

/// A future that completes when its time has come.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Environment of an assisted endpoint. For applications, the operating system's sockets and clock;
/// for other I/O of s2n-quic another one, as in a simulation in virtual time.
pub trait Host: Debug + Send + Sync + 'static {
    /// Time since a fixed origin.
    fn now(&self) -> Timestamp;

    /// Sends a datagram with this ECN codepoint from the address and port that s2n-quic itself sends from.
    /// Must not block.
    ///
    /// # Errors
    /// When the datagram could not be sent; it counts as lost.
    fn send(
        &self,
        datagram: &[u8],
        remote: SocketAddr,
        ecn: ExplicitCongestionNotification,
    ) -> io::Result<()>;

    /// The address that a datagram to `remote` would leave from now, if the host can find out. A
    /// different address means that the network has changed. Called at most ten times a second.
    fn source(&self, remote: SocketAddr) -> Option<IpAddr> {
        let _ = remote;
        None
    }

    /// Completes at `at`, or at once when that is past.
    fn sleep_until(&self, at: Timestamp) -> Sleep;
}

/// The operating system, with Tokio's timers.
#[derive(Debug)]
pub(crate) struct OperatingSystem {
    pub(crate) socket: UdpSocket,
    origin: Instant,
}

impl OperatingSystem {
    /// Sends from `socket`, which must not block; the clock begins now.
    pub(crate) fn new(socket: UdpSocket) -> Self {
        Self { socket, origin: Instant::now() }
    }
}

/// Offset that replaces an instant beyond the platform's range.
const FAR_AWAY: Duration = Duration::from_secs(24 * 3600);

impl Host for OperatingSystem {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn send(
        &self,
        datagram: &[u8],
        remote: SocketAddr,
        ecn: ExplicitCongestionNotification,
    ) -> io::Result<()> {
        if ecn == ExplicitCongestionNotification::NotEct {
            return self.socket.send_to(datagram, remote).map(|_| ());
        }
        send_marked(&self.socket, datagram, remote, ecn)
    }

    fn source(&self, remote: SocketAddr) -> Option<IpAddr> {
        let bound = self.socket.local_addr().ok()?;
        if !bound.ip().is_unspecified() {
            return Some(bound.ip());
        }
        // Connecting a UDP socket sends no packet: the system looks up the route and selects the
        // route's source address. A connected socket keeps its address.
        let probe = UdpSocket::bind((bound.ip(), 0)).ok()?;
        probe.connect(remote).ok()?;
        Some(probe.local_addr().ok()?.ip())
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        let instant = self.origin.checked_add(at.saturating_since(Timestamp::ZERO));
        Box::pin(tokio::time::sleep_until(
            instant.unwrap_or_else(|| Instant::now() + FAR_AWAY).into(),
        ))
    }
}

/// Sends a datagram with an ECN codepoint.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn send_marked(
    socket: &UdpSocket,
    datagram: &[u8],
    remote: SocketAddr,
    ecn: ExplicitCongestionNotification,
) -> io::Result<()> {
    use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
    use std::os::fd::AsRawFd;

    let (of_ipv4, of_ipv6) = (ecn as u8, i32::from(ecn as u8));
    // A socket of IPv6 sends to IPv4 by mapped addresses.
    let mark = match remote.ip().to_canonical() {
        IpAddr::V4(_) => ControlMessage::Ipv4Tos(&of_ipv4),
        IpAddr::V6(_) => ControlMessage::Ipv6TClass(&of_ipv6),
    };
    let (parts, to) = ([io::IoSlice::new(datagram)], SockaddrStorage::from(remote));
    sendmsg(socket.as_raw_fd(), &parts, &[mark], MsgFlags::empty(), Some(&to))?;
    Ok(())
}

/// Sends a datagram without a codepoint, for systems with another interface for codepoints.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn send_marked(
    socket: &UdpSocket,
    datagram: &[u8],
    remote: SocketAddr,
    _: ExplicitCongestionNotification,
) -> io::Result<()> {
    socket.send_to(datagram, remote).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_the_sockets_address_or_the_routes() {
        let source = |bound: &str, remote: &str| {
            let host = OperatingSystem::new(UdpSocket::bind(bound).unwrap());
            host.source(remote.parse().unwrap()).map(|address| address.to_string())
        };
        assert_eq!(source("0.0.0.0:0", "127.0.0.1:9"), Some("127.0.0.1".to_owned()));
        assert_eq!(source("127.0.0.5:0", "127.0.0.1:9"), Some("127.0.0.5".to_owned()));
        assert_eq!(source("0.0.0.0:0", "[::1]:9"), None, "there is no route");
    }
}
