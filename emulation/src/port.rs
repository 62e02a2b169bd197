//! Ports for servers that cannot choose one themselves.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port; all ports are below the range that the system chooses from.
const FIRST_PORT: u16 = 10_000;
/// Number of ports to choose from.
const PORT_COUNT: u16 = 20_000;

/// A port that is free for UDP and TCP at all addresses, and that is this process's until it ends:
/// no socket gets it that takes any port, and no other process by this function.
///
/// # Errors
/// `AddrInUse` if none is free.
pub fn free_port() -> io::Result<u16> {
    static NEXT_PORT: AtomicU16 = AtomicU16::new(0);
    // Each process begins at another port.
    let first = (std::process::id().wrapping_mul(2_654_435_761) >> 16) as u16;
    for _ in 0..PORT_COUNT {
        let number = first.wrapping_add(NEXT_PORT.fetch_add(1, Ordering::Relaxed));
        let port = FIRST_PORT + number % PORT_COUNT;
        let any = (Ipv4Addr::UNSPECIFIED, port);
        if UdpSocket::bind(any).is_ok() && TcpListener::bind(any).is_ok() && reserve(port) {
            return Ok(port);
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// A [`free_port`] on the loopback interface.
///
/// # Errors
/// As for [`free_port`].
pub fn free_address() -> io::Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, free_port()?).into())
}

/// Takes the port's name among the processes that share this one's ports, up to the end of this process:
/// two of them may look at a port before one of them uses it. True if it was free.
#[cfg(target_os = "linux")]
fn reserve(port: u16) -> bool {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};

    let name = SocketAddr::from_abstract_name(format!("packrat-port-{port}"));
    name.and_then(|name| UnixListener::bind_addr(&name)).map(std::mem::forget).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn reserve(_port: u16) -> bool {
    true
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_though_no_socket_has_it() {
        let ports: Vec<u16> = (0..100).map(|_| free_port().unwrap()).collect();
        assert!(ports.iter().all(|port| !reserve(*port)), "{ports:?}");
        let distinct: std::collections::HashSet<_> = ports.iter().collect();
        assert_eq!(distinct.len(), ports.len());
    }
}
