//! Ports for servers that cannot choose one themselves.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// A port that is free for UDP and TCP, at all addresses. It is below the ephemeral ports, so that
/// no other socket gets it in the meantime.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Each process begins at another port.
    let seed = u16::try_from(std::process::id().wrapping_mul(2_654_435_761) >> 18).unwrap();
    loop {
        let port = 10_000 + (seed + NEXT.fetch_add(1, Ordering::Relaxed) % 1000) % 20_000;
        if UdpSocket::bind(("0.0.0.0", port)).is_ok()
            && TcpListener::bind(("0.0.0.0", port)).is_ok()
        {
            return port;
        }
    }
}

/// A [`free_port`] at `ip`.
///
/// # Panics
/// If `ip` is not an address.
pub fn free_address(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an IP address"), free_port())
}
