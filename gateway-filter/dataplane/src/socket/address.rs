//! Addresses: three kinds that must not be mistaken for each other.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// An address in the one form that sessions are known by: IPv4-mapped addresses become IPv4, the
/// flow label is dropped, the scope of link-local addresses is kept.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, v6.port())),
            None => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
        },
        SocketAddr::V4(_) => address,
    }
}

/// The address that a client's datagrams come from, in canonical form: the key of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientAddress(SocketAddr);

impl ClientAddress {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self(canonical(address))
    }

    pub(crate) const fn get(self) -> SocketAddr {
        self.0
    }
}

/// The address that clients send to, as it is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ListenerAddress(SocketAddr);

impl ListenerAddress {
    pub(crate) const fn new(address: SocketAddr) -> Self {
        Self(address)
    }

    pub(crate) const fn get(self) -> SocketAddr {
        self.0
    }

    /// True if the listener receives at every address of the host: then a datagram has to say which
    /// one it was sent to.
    pub(crate) const fn is_wildcard(self) -> bool {
        match self.0.ip() {
            IpAddr::V4(ip) => ip.is_unspecified(),
            IpAddr::V6(ip) => ip.is_unspecified(),
        }
    }
}

/// The address of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EndpointAddress(SocketAddr);

impl EndpointAddress {
    pub(crate) const fn new(address: SocketAddr) -> Self {
        Self(address)
    }

    pub(crate) const fn get(self) -> SocketAddr {
        self.0
    }
}

impl fmt::Display for ListenerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Display for EndpointAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_form() {
        let canonical_text = |text: &str| canonical(text.parse().unwrap()).to_string();
        assert_eq!(canonical_text("[::ffff:192.0.2.1]:5"), "192.0.2.1:5");
        assert_eq!(canonical_text("192.0.2.1:5"), "192.0.2.1:5");
        assert_eq!(canonical_text("[2001:db8::1]:5"), "[2001:db8::1]:5");
        assert_eq!(canonical_text("[fe80::1%3]:5"), "[fe80::1%3]:5");
    }
}
