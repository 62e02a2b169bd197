//! Detects that a remote UDP port is closed.
//!
//! QUIC sockets are not connected, so the kernel does not report ICMP errors on them and a refused
//! connection looks like silence. A second, connected socket does get them: the missing route at
//! once, "port unreachable" after it has sent a datagram itself. It sends one only when the
//! handshake has been silent for a while.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;

/// Silence after which the address is probed, and between probes.
const PROBE_AFTER: Duration = Duration::from_millis(400);
/// Most probes that are sent: ICMP errors are rate-limited and can be lost.
const MOST_PROBES: usize = 5;
/// Packet that is invalid for any transport: its first byte is in a range that RFC 7983 and RFC
/// 9443 leave unassigned.
const PROBE_PACKET: [u8; 1] = [0x0f];

/// Completes with the reason when the network reports `remote` as unreachable; otherwise never.
pub(crate) async fn refused(remote: SocketAddr) -> io::Error {
    match probe(remote).await {
        Ok(()) => std::future::pending().await,
        Err(error) => error,
    }
}

async fn probe(remote: SocketAddr) -> io::Result<()> {
    let any: SocketAddr = match remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(remote).await?;
    let mut buffer = [0; 64];
    for _ in 0..MOST_PROBES {
        tokio::time::sleep(PROBE_AFTER).await;
        socket.send(&PROBE_PACKET).await?;
        // An answer proves an endpoint; silence proves neither.
        if let Ok(answer) = tokio::time::timeout(PROBE_AFTER, socket.recv(&mut buffer)).await {
            answer?;
            return Ok(());
        }
    }
    Ok(())
}
