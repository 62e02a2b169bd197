//! Listening on IPv6 and IPv4 if the system has both, and on one of them otherwise.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

/// The wildcard address for gateways and sidecars: IPv6 with IPv4, or IPv4 alone if the system has
/// no IPv6. Nodes of a cluster are taken to be alike: the finding for the operator's Pod holds for
/// the gateways' Pods.
pub(super) fn every_address() -> &'static str {
    match std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => "::",
        Err(_) => "0.0.0.0",
    }
}

/// A listener. If the system has no IPv6, an address for all of IPv6 and IPv4 becomes one for IPv4
/// alone.
pub(super) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && has_no_ipv6(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        result => result,
    }
}

fn has_no_ipv6(error: &std::io::Error) -> bool {
    // EAFNOSUPPORT has no kind of its own.
    error.kind() == ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(97)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_address_is_for_ipv4_as_well() {
        for address in ["[::]:0", "0.0.0.0:0", "127.0.0.1:0"] {
            let listener = listen(address.parse().unwrap()).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            assert!(listener.accept().await.unwrap().1.ip().to_canonical().is_loopback());
        }
        assert!(every_address().parse::<std::net::IpAddr>().unwrap().is_unspecified());
    }
}
