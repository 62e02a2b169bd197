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

    /// The mark for a repair of a flow whose last datagram carried this one: a repair is a new
    /// packet, which no queue has marked yet.
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
