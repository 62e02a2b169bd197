//! Datagrams that the transport sends: numbered, bundled, copied, or as they are.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;
use packrat_wire::is_control;
use packrat_wire::number::NumberHeader;
use packrat_wire::scone;

use super::Assist;
use crate::bundling::Bundling;
use crate::loss_memory::{Experience, Remembered};
use crate::upward::{Upward, UpwardStats};

/// Longest time for which the first question for a gateway waits for the transport's first
/// datagram.
const FLIGHT_BEGINS: Duration = Duration::from_millis(50);
/// Longest time for which the first question for a gateway waits, after a datagram of the first
/// flight, for the next one, if the caller has announced a flight.
const FLIGHT_ENDS: Duration = Duration::from_millis(5);

/// Ratio of the round trip to the server to the last mile's from which the last mile is short.
const SHORT_RATIO: u32 = 4;

impl Assist {
    #[inline]
    pub(super) fn upward(&mut self) -> Option<&mut Upward> {
        self.session.as_mut()?.upward.as_deref_mut()
    }

    /// Processes a datagram that the transport sends. Returns the number to put in front of it, if
    /// any.
    pub(crate) fn on_send(&mut self, datagram: &[u8], now: Timestamp) -> Option<NumberHeader> {
        if self.closed || is_control(datagram) {
            return None;
        }
        self.note_sent(datagram, now);
        // The waiting datagrams leave behind this one, except those to a connection ID that this
        // one may retire.
        if let Self { bundling: Some(bundling), destinations, .. } = self {
            bundling.hurry(now);
            bundling.retain(|datagram| destinations.is_in_use(datagram, now));
        }
        // A client that uploads sends all the time: the gateway's Reports answer its eACKs.
        let mut expects_answer = false;
        if let Some(session) = &mut self.session {
            if session.upward.is_none() {
                session.scheduler.on_company(now);
            }
            if session.scheduler.is_silent(now) && session.liveness.on_quiet() {
                session.scheduler.on_urgent(now);
            } else {
                let liveness = &session.liveness;
                expects_answer = session.upward.is_none() && liveness.quiet_deadline().is_none();
            }
        }
        if expects_answer {
            let quiet_after = self.quiet_after();
            if let Some(session) = &mut self.session {
                session.liveness.on_sent(quiet_after, now);
            }
        }
        let number = self.number(datagram, now);
        let is_free = self.session.as_ref().is_none_or(|session| !session.queue_stands);
        // A copy of a numbered datagram would overtake the datagrams that wait at the gateway for a missing
        // one. The gateway requests missing ones in any case.
        if number.is_none() {
            self.thin.on_send(datagram, is_free, now);
        }
        if self.question_from.is_some() {
            self.question_from = Some(now + FLIGHT_ENDS);
        }
        number
    }

    fn note_sent(&mut self, datagram: &[u8], now: Timestamp) {
        self.whole_path.on_sent(now);
        self.direction.on_sent(datagram.len());
        self.destinations.on_sent(datagram, now);
    }

    #[inline]
    pub(super) fn sends_bundles(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.bundles)
    }

    /// See [`crate::Shim::bundle`].
    pub(crate) fn bundle(&mut self, datagram: &[u8], now: Timestamp) -> bool {
        let is_quic = self.destinations.knows_length() && Bundling::suits(datagram);
        if self.closed || !is_quic || !self.direction.is_download() {
            return false;
        }
        let (held, round_trip) = (self.hold.held(), self.path.round_trip());
        let Some(session) = self.session.as_mut().filter(|session| session.bundles) else {
            return false;
        };
        let bundling = self.bundling.get_or_insert_default();
        if session.scheduler.is_silent(now) || !bundling.has_room() {
            return false;
        }
        let wait = bundling.wait(self.whole_path.round_trip(), now);
        if wait.is_zero() {
            session.scheduler.on_company(now);
            if session.scheduler.due(held > 0, round_trip).is_none_or(|due| due > now) {
                return false;
            }
        }
        bundling.take(datagram, wait, now);
        self.note_sent(datagram, now);
        true
    }

    /// See [`crate::Input::MarkChanges`].
    pub(crate) fn end_bundle(&mut self, now: Timestamp) {
        if let Some(bundling) = &mut self.bundling {
            bundling.hurry(now);
        }
    }

    /// True if repairs help a sender that tolerates losses: the last mile is a small part of the path to the
    /// server. The answer does not change while the path stays: such a sender takes the delay of repairs that
    /// begin later for a slower path.
    fn is_worth_it_for_the_tolerant(&mut self) -> bool {
        if self.is_short.is_none() {
            let paths = self.path.minimum_round_trip().zip(self.whole_path.round_trip());
            self.is_short = paths.map(|(last_mile, whole)| last_mile * SHORT_RATIO <= whole);
        }
        self.is_short.unwrap_or(false)
    }

    pub(super) fn number(&mut self, datagram: &[u8], now: Timestamp) -> Option<NumberHeader> {
        self.session.as_ref()?.upward.as_ref()?;
        if self.config.tolerates_losses && !self.is_worth_it_for_the_tolerant() {
            return None;
        }
        let session = self.session.as_mut()?;
        let upward = session.upward.as_deref_mut()?;
        // Networks on the path look for a SCONE packet at the very beginning.
        if scone::leads(datagram)
            || !upward.takes(datagram.len(), self.direction.is_download(), now)
        {
            return None;
        }
        Some(upward.number(datagram, session.recorder.identify(datagram), now))
    }

    /// See [`crate::Input::NumberRefused`].
    pub(crate) fn on_refused(&mut self, length: usize) {
        if let Some(upward) = self.upward() {
            upward.on_refused(length);
        }
    }

    /// See [`crate::Shim::remember`].
    pub(crate) fn remember(&mut self, remembered: Remembered) {
        self.thin.remember(remembered);
        self.discovery.set_copies(self.thin.copies_of_each(), self.thin.spacing());
    }

    /// See [`crate::Shim::experience`].
    pub(crate) fn experience(&self) -> Experience {
        self.thin.experience()
    }

    /// See [`crate::Input::FirstFlightBegins`].
    pub(crate) fn expect_first_flight(&mut self, now: Timestamp) {
        if self.config.makes_copies() {
            self.question_from = Some(now + FLIGHT_BEGINS);
        }
    }

    /// See [`crate::Input::FirstFlightEnds`].
    pub(crate) fn end_first_flight(&mut self) {
        self.question_from = None;
    }

    /// Adds the session's figures to the connection's, before the session ends.
    pub(super) fn count_upward(&mut self) {
        let Some(upward) = self.upward() else { return };
        let UpwardStats { numbered, missing, repairs, repair_bytes } =
            core::mem::take(&mut upward.stats);
        self.stats.upward_numbered += numbered;
        self.stats.upward_missing += missing;
        self.stats.upward_repairs += repairs;
        self.stats.upward_repair_bytes += repair_bytes;
    }
}
