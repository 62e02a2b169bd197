//! Ports for servers that cannot choose one themselves.

use std::net::SocketAddr;

/// A port that is this process's until it ends; see [`packrat_emulation::port::free_port`].
///
/// # Panics
/// If all ports are in use.
pub fn free_port() -> u16 {
    packrat_emulation::port::free_port().expect("a free port")
}

/// A [`free_port`] at `ip`.
///
/// # Panics
/// If `ip` is not an address.
pub fn free_address(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an IP address"), free_port())
}
