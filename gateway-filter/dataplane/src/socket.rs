//! Datagram sockets: options, batches with segmentation offload, ECN marks and source addresses.
//!
//! Thin, safe wrappers: every unsafe system call of the data path is in the files below this module.

use std::net::{SocketAddr, SocketAddrV6};

mod control_message;
mod options;
mod receive;
mod reuse_port;
mod send;

pub(crate) use options::join_source;
pub use options::{
    Family, bind_reuse_port, listener_options, local_address, open_connected, raise_descriptor_limit,
};
pub use receive::{Message, ReceiveBatch};
pub(crate) use reuse_port::{MOST_READERS, NOWHERE, Places, bind_beside, put_in_force};
pub use send::{Destination, Offload, Piece, SendReport, Sender, send_connected};

/// An address in the one form that sessions are known by: IPv4-mapped addresses become IPv4, the flow label is dropped, the
/// scope of link-local addresses is kept.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, v6.port())),
            None => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
        },
        SocketAddr::V4(_) => address,
    }
}

/// The two ECN bits of the IP header (RFC 3168, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Ecn(u8);

impl Ecn {
    /// The sender does not speak ECN.
    pub const NOT_CAPABLE: Self = Self(0);
    /// ECT(1).
    pub const CAPABLE_1: Self = Self(1);
    /// ECT(0).
    pub const CAPABLE_0: Self = Self(2);
    /// Congestion was experienced on the way.
    pub const CONGESTION: Self = Self(3);

    /// The mark in a type-of-service or traffic-class byte.
    pub const fn from_traffic_class(byte: u8) -> Self {
        Self(byte & 3)
    }

    /// The byte with the mark and no differentiated-services code point.
    pub const fn traffic_class(self) -> u8 {
        self.0
    }

    /// The mark for a repair of a flow whose last datagram carried this one: a repair is a new packet, which no queue has
    /// marked yet.
    pub const fn for_repair(self) -> Self {
        match self {
            Self::CONGESTION => Self::CAPABLE_0,
            other => other,
        }
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

    #[test]
    fn repairs_are_not_marked_as_congested() {
        for byte in 0..=255 {
            let mark = Ecn::from_traffic_class(byte);
            assert_eq!(mark.traffic_class(), byte & 3);
            assert_ne!(mark.for_repair(), Ecn::CONGESTION);
        }
        assert_eq!(Ecn::CAPABLE_1.for_repair(), Ecn::CAPABLE_1);
        assert_eq!(Ecn::NOT_CAPABLE.for_repair(), Ecn::NOT_CAPABLE);
    }
}
