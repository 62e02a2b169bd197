//! The address that a host would send from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Returns the address that datagrams to `target` would leave from; `None`: there is no route.
pub fn source_towards(target: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a UDP socket sends no packet: the system looks up the route and selects the
    // route's source address.
    let probe = UdpSocket::bind((any, 0)).ok()?;
    probe.connect(target).ok()?;
    Some(probe.local_addr().ok()?.ip())
}

/// Returns the source address towards `target` of a socket that is bound to `bound`.
pub fn source_from(bound: SocketAddr, target: SocketAddr) -> Option<IpAddr> {
    if bound.ip().is_unspecified() { source_towards(target) } else { Some(bound.ip()) }
}

/// The address by which a peer is known: the scope and the flow label of IPv6 are this host's, and
/// IPv4 may come through a socket of IPv6.
pub fn same_peer(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_what_the_route_says() {
        let local = source_towards("127.0.0.1:9".parse().unwrap());
        assert_eq!(local, Some(Ipv4Addr::LOCALHOST.into()));
    }
}
