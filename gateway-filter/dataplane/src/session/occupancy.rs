//! The claim of a session to its path, when another session's client has proved to be there.
//!
//! ```text
//!                    the client of a session without assistance, and its server, have spoken lately
//!   challenged ----------------------------------------------------------------------------> Stays
//!       |  |         the client of an assisted session has sealed something since it was asked ^
//!       |  +--assisted--> Ask ------------------------------------------------------------------+
//!       |                  |  silent for PATIENCE
//!       v                  v
//!      GivesWay <----------+
//! ```
//!
//! Two clients are never at one path at once, but a NAT may give the port of one to another. Who is
//! silent has gone; who speaks is not displaced, whatever another client proves.

use std::time::Duration;

use packrat_engine::CHALLENGE_LIFETIME;
use packrat_wire::estimate::Timestamp;

/// Time in which an assisted client answers when it is asked whether it is still there. Its answer
/// counts for as long as the challenge.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time after its last datagram, either way, for which a session without assistance speaks.
const SPEAKS: Duration = Duration::from_secs(10);

/// The fate of a session at whose path another client has proved to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occupancy {
    /// The other client gets the path.
    GivesWay,
    /// The session's client has to be asked.
    Ask,
    /// The session keeps the path.
    Stays,
}

/// The session at a path, as its occupancy sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Occupant {
    pub(crate) is_assisted: bool,
    /// When its client last sealed something at its path.
    pub(crate) heard: Option<Timestamp>,
    /// When its client was first asked whether it is still there.
    pub(crate) asked: Option<Timestamp>,
    /// True if its server has spoken to its client.
    pub(crate) is_answered: bool,
    /// When either of them last spoke.
    pub(crate) active: Timestamp,
}

impl Occupant {
    /// True if its client was asked so lately that an answer since then counts.
    pub(crate) fn is_being_asked(&self, now: Timestamp) -> bool {
        self.asked.is_some_and(|asked| now.saturating_since(asked) < CHALLENGE_LIFETIME)
    }

    pub(crate) fn occupancy(&self, now: Timestamp) -> Occupancy {
        if !self.is_assisted {
            // Without an answer it was, most likely, opened by the moved client's own datagrams.
            let speaks = self.is_answered && now.saturating_since(self.active) < SPEAKS;
            return if speaks { Occupancy::Stays } else { Occupancy::GivesWay };
        }
        match self.asked.filter(|_| self.is_being_asked(now)) {
            None => Occupancy::Ask,
            Some(asked) if self.heard.is_some_and(|heard| heard >= asked) => Occupancy::Stays,
            Some(asked) if now.saturating_since(asked) < PATIENCE => Occupancy::Ask,
            Some(_) => Occupancy::GivesWay,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::from_millis(milliseconds)
    }

    #[test]
    fn an_assisted_client_is_asked_and_keeps_its_path_if_it_speaks() {
        let mut occupant = Occupant {
            is_assisted: true,
            heard: Some(at(9_999)),
            asked: None,
            is_answered: true,
            active: at(10_000),
        };
        assert_eq!(occupant.occupancy(at(10_000)), Occupancy::Ask);
        occupant.asked = Some(at(10_000));
        assert_eq!(occupant.occupancy(at(10_999)), Occupancy::Ask);
        assert_eq!(occupant.occupancy(at(11_000)), Occupancy::GivesWay);
        // An answer that is too old says nothing.
        assert_eq!(occupant.occupancy(at(13_000)), Occupancy::Ask);
        occupant.heard = Some(at(10_000));
        assert_eq!(occupant.occupancy(at(12_999)), Occupancy::Stays);
        assert_eq!(occupant.occupancy(at(13_000)), Occupancy::Ask);
    }

    #[test]
    fn a_session_without_assistance_keeps_its_path_while_both_sides_speak() {
        let mut occupant = Occupant {
            is_assisted: false,
            heard: None,
            asked: None,
            is_answered: true,
            active: at(1_000),
        };
        assert_eq!(occupant.occupancy(at(10_999)), Occupancy::Stays);
        assert_eq!(occupant.occupancy(at(11_000)), Occupancy::GivesWay);
        occupant.is_answered = false;
        assert_eq!(occupant.occupancy(at(1_000)), Occupancy::GivesWay);
    }
}
