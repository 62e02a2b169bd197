//! Datagram sockets: options, batches with segmentation offload, ECN marks and source addresses.
//!
//! Thin, safe wrappers: every unsafe system call of the data path is in the files below this module.

mod control_message;
mod options;
mod receive;
mod send;

pub use options::{
    Family, bind_reuse_port, listener_options, local_address, open_connected, raise_descriptor_limit,
};
pub use receive::{Message, ReceiveBatch};
pub use send::{Destination, Offload, Piece, SendReport, Sender, send_connected};

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
