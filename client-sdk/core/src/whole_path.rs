//! The round trip between the client and the server, gateway or not.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

/// Time from the transport's first datagram to the first answer. It is only a rough estimate: if
/// either of the two is lost, it is too long by a timeout.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum WholePath {
    #[default]
    Silent,
    Asked(Timestamp),
    Answered(Option<Duration>),
}

impl WholePath {
    /// The transport sends a datagram.
    pub(crate) fn on_sent(&mut self, now: Timestamp) {
        if let Self::Silent = self {
            *self = Self::Asked(now);
        }
    }

    /// A datagram has come for it.
    pub(crate) fn on_received(&mut self, now: Timestamp) {
        *self = match *self {
            Self::Silent => Self::Answered(None),
            Self::Asked(at) => Self::Answered(Some(now.saturating_since(at))),
            known @ Self::Answered(_) => known,
        };
    }

    /// The round trip, once it is known.
    pub(crate) const fn round_trip(self) -> Option<Duration> {
        if let Self::Answered(round_trip) = self { round_trip } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn the_first_answer_to_the_first_datagram_counts() {
        let mut path = WholePath::default();
        path.on_sent(at(10));
        path.on_sent(at(20));
        assert_eq!(path.round_trip(), None);
        path.on_received(at(70));
        path.on_sent(at(80));
        path.on_received(at(500));
        assert_eq!(path.round_trip(), Some(Duration::from_millis(60)));
        let mut path = WholePath::default();
        path.on_received(at(5));
        path.on_sent(at(10));
        path.on_received(at(70));
        assert_eq!(path.round_trip(), None, "the server has begun");
    }
}
