//! The network around the gateway, as its network namespace shows it: how large packets may be, and
//! the kernel's table of tracked connections.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use packrat_api::status::{ConnectionTracking, NetworkStatus};

use super::options::path_mtu;

/// Most servers whose ways are looked at.
const MOST_SERVERS: usize = 64;
/// Hosts of documentation only (RFC 5737, RFC 3849): the way to them is the default route.
const DOCUMENTATION_HOSTS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// The network around a gateway with these listeners and servers. Sends nothing.
pub fn network(
    listeners: impl IntoIterator<Item = SocketAddr>,
    servers: impl IntoIterator<Item = SocketAddr>,
) -> NetworkStatus {
    let addresses = |sockets: &mut dyn Iterator<Item = SocketAddr>| -> BTreeSet<IpAddr> {
        sockets.map(|socket| socket.ip().to_canonical()).collect()
    };
    let listeners = addresses(&mut listeners.into_iter());
    let servers = addresses(&mut servers.into_iter());
    let to_clients = listeners.iter().flat_map(|listener| ways_out(*listener));
    let to_servers = servers.iter().take(MOST_SERVERS).map(|server| (any(*server), *server));
    NetworkStatus {
        mtu_to_clients: smallest_mtu(to_clients),
        mtu_to_servers: smallest_mtu(to_servers),
        tracking: tracking(Path::new("/proc/sys/net/netfilter")),
    }
}

/// The unspecified address of the same family.
const fn any(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Ends of the ways to clients of a listener, which are anywhere.
fn ways_out(listener: IpAddr) -> Vec<(IpAddr, IpAddr)> {
    if listener.is_loopback() {
        return vec![(listener, listener)];
    }
    let is_dual = listener == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let reaches = |host: &IpAddr| is_dual || host.is_ipv4() == listener.is_ipv4();
    let from = |host: IpAddr| (if listener.is_unspecified() { any(host) } else { listener }, host);
    DOCUMENTATION_HOSTS.into_iter().filter(reaches).map(from).collect()
}

fn smallest_mtu(ways: impl Iterator<Item = (IpAddr, IpAddr)>) -> Option<u32> {
    ways.filter_map(|(local, remote)| path_mtu(local, remote).ok()).min()
}

/// The table of tracked connections, as the files of `folder` describe it.
fn tracking(folder: &Path) -> Option<ConnectionTracking> {
    let number = |name: &str| -> Option<u64> {
        std::fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
    };
    Some(ConnectionTracking {
        entries: number("nf_conntrack_count")?,
        maximum: number("nf_conntrack_max")?,
        udp_timeout_seconds: number("nf_conntrack_udp_timeout")?,
        udp_stream_timeout_seconds: number("nf_conntrack_udp_timeout_stream")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_takes_the_largest_packets_of_ip() {
        let on_loopback = ["127.0.0.1:443".parse().unwrap()];
        let seen = network(on_loopback, on_loopback);
        assert_eq!((seen.mtu_to_clients, seen.mtu_to_servers), (Some(65_535), Some(65_535)));
        let nowhere = network([], []);
        assert_eq!((nowhere.mtu_to_clients, nowhere.mtu_to_servers), (None, None));
    }

    #[test]
    fn clients_are_looked_for_in_the_families_of_the_listener() {
        let out = |listener: &str| -> Vec<String> {
            let ways = ways_out(listener.parse().unwrap());
            ways.into_iter().map(|(from, to)| format!("{from} {to}")).collect()
        };
        assert_eq!(out("0.0.0.0"), ["0.0.0.0 192.0.2.1"]);
        assert_eq!(out("::"), ["0.0.0.0 192.0.2.1", ":: 2001:db8::1"]);
        assert_eq!(out("10.1.2.3"), ["10.1.2.3 192.0.2.1"]);
        assert_eq!(out("::1"), ["::1 ::1"]);
    }

    #[test]
    fn the_table_of_connections_is_known_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(tracking(folder.path()), None);
        for (name, text) in [
            ("nf_conntrack_count", "17\n"),
            ("nf_conntrack_max", "131072\n"),
            ("nf_conntrack_udp_timeout", "30\n"),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(tracking(folder.path()), None);
        std::fs::write(folder.path().join("nf_conntrack_udp_timeout_stream"), "120\n").unwrap();
        let expected = ConnectionTracking {
            entries: 17,
            maximum: 131_072,
            udp_timeout_seconds: 30,
            udp_stream_timeout_seconds: 120,
        };
        assert_eq!(tracking(folder.path()), Some(expected));
    }
}
