//! The congestion mark of a datagram.

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

    /// The mark that the sender of a flow has put on a datagram with this one. A report of
    /// congestion is a queue's; `before`: the sender's mark of earlier datagrams.
    pub const fn of_sender(self, before: Self) -> Self {
        match (self, before) {
            (Self::CONGESTION, Self::NOT_CAPABLE) => Self::CAPABLE_0,
            (Self::CONGESTION, before) => before,
            (other, _) => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_senders_mark_is_never_congestion() {
        for byte in 0..=255 {
            let mark = Ecn::from_traffic_class(byte);
            assert_eq!(mark.traffic_class(), byte & 3);
        }
        for before in [Ecn::CAPABLE_0, Ecn::CAPABLE_1] {
            assert_eq!(Ecn::CONGESTION.of_sender(before), before);
            assert_eq!(Ecn::NOT_CAPABLE.of_sender(before), Ecn::NOT_CAPABLE);
        }
        assert_eq!(Ecn::CONGESTION.of_sender(Ecn::NOT_CAPABLE), Ecn::CAPABLE_0);
        assert_eq!(Ecn::CAPABLE_1.of_sender(Ecn::CAPABLE_0), Ecn::CAPABLE_1);
    }
}
