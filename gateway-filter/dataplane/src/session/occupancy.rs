//! The claim of a session to its path, when another session's client has proved to be there.
//!
//! ```text
//!                    a session without assistance is settled, and has spoken lately
//!   challenged ----------------------------------------------------------------------------> Stays
//!       |  |         the client of an assisted session has sealed something since it was asked ^
//!       |  +--assisted--> Ask ------------------------------------------------------------------+
//!       |                  |  silent for PATIENCE
//!       v                  v
//!      GivesWay <----------+
//! ```
//!
//! Two clients are never at one path at once, but a NAT may give the port of one to another. A
//! silent client has gone; a client that speaks is not displaced, whatever another client proves.
//!
//! A session without assistance proves nothing. A young one was probably opened by datagrams of the
//! client that has moved, which were faster than its sealed messages, or by an attacker who has
//! foreseen the port: with one datagram, after which the moved client's own and its server's
//! answers go through it. Hence it is *settled* only when both have spoken twice, and the server's
//! first answer is older than any datagram that the moved client can have sent from there.

use std::time::Duration;

use packrat_engine::CHALLENGE_LIFETIME;
use packrat_wire::estimate::Timestamp;

/// Time in which an assisted client answers when it is asked whether it is still there. Its answer
/// counts for as long as the challenge.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
/// Time after its last datagram, either way, for which a session without assistance speaks.
const SPEAKING_TIME: Duration = Duration::from_secs(10);

/// Age of a server's first answer from which a session without assistance is settled: a client that
/// has moved proves its address within the lifetime of a challenge.
const SETTLED_AGE: Duration = Duration::from_secs(3);
const _: () = assert!(SETTLED_AGE.as_millis() >= CHALLENGE_LIFETIME.as_millis());

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
    /// Time at which its client last sealed something at its path.
    pub(crate) heard: Option<Timestamp>,
    /// Time at which its client was first asked whether it is still there.
    pub(crate) asked: Option<Timestamp>,
    /// True if client and server have both spoken twice.
    pub(crate) is_mutual: bool,
    /// Time at which its server first answered.
    pub(crate) answered: Option<Timestamp>,
    /// Time at which either of them last spoke.
    pub(crate) active: Timestamp,
}

impl Occupant {
    /// True if its client was asked so lately that an answer since then counts.
    pub(crate) fn is_being_asked(&self, now: Timestamp) -> bool {
        self.asked.is_some_and(|asked| now.saturating_since(asked) < CHALLENGE_LIFETIME)
    }

    pub(crate) fn occupancy(&self, now: Timestamp) -> Occupancy {
        if !self.is_assisted {
            let is_old = |answered| now.saturating_since(answered) >= SETTLED_AGE;
            let is_settled = self.is_mutual && self.answered.is_some_and(is_old);
            let speaks = now.saturating_since(self.active) < SPEAKING_TIME;
            return if is_settled && speaks { Occupancy::Stays } else { Occupancy::GivesWay };
        }
        match self.asked.filter(|_| self.is_being_asked(now)) {
            None => Occupancy::Ask,
            Some(asked) if self.heard.is_some_and(|heard| heard >= asked) => Occupancy::Stays,
            Some(asked) if now.saturating_since(asked) < ANSWER_PATIENCE => Occupancy::Ask,
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
            is_mutual: true,
            answered: Some(at(1_000)),
            active: at(10_000),
        };
        assert_eq!(occupant.occupancy(at(10_000)), Occupancy::Ask);
        occupant.asked = Some(at(10_000));
        assert_eq!(occupant.occupancy(at(10_999)), Occupancy::Ask);
        assert_eq!(occupant.occupancy(at(11_000)), Occupancy::GivesWay);
        // An answer that is too old is no evidence.
        assert_eq!(occupant.occupancy(at(13_000)), Occupancy::Ask);
        occupant.heard = Some(at(10_000));
        assert_eq!(occupant.occupancy(at(12_999)), Occupancy::Stays);
        assert_eq!(occupant.occupancy(at(13_000)), Occupancy::Ask);
    }

    #[test]
    fn a_settled_unassisted_session_keeps_its_path_while_it_speaks() {
        let mut occupant = Occupant {
            is_assisted: false,
            heard: None,
            asked: None,
            is_mutual: true,
            answered: Some(at(1_000)),
            active: at(1_000),
        };
        assert_eq!(occupant.occupancy(at(3_999)), Occupancy::GivesWay);
        assert_eq!(occupant.occupancy(at(4_000)), Occupancy::Stays);
        assert_eq!(occupant.occupancy(at(10_999)), Occupancy::Stays);
        assert_eq!(occupant.occupancy(at(11_000)), Occupancy::GivesWay);
        // An answer to one forged datagram.
        occupant.is_mutual = false;
        assert_eq!(occupant.occupancy(at(4_000)), Occupancy::GivesWay);
        (occupant.is_mutual, occupant.answered) = (true, None);
        assert_eq!(occupant.occupancy(at(4_000)), Occupancy::GivesWay);
    }
}
