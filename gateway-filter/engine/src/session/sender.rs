//! How a session's sender answers losses, and which it is shown because of that.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::coding::Coding;
use super::shadow::RoundTrips;
use super::trial::Trial;
use super::{Session, Turn};
use crate::config::{SenderAnswer, TOLERATED_LOSS};
use crate::event::Event;
use crate::sender_memory::Finding;

/// Datagrams are counted over no shorter time than this.
const SHORTEST_ROUND_TRIP: Duration = Duration::from_millis(1);

impl Session {
    /// Checks whether the sender begins with a window that no loss-based sender has.
    pub(super) fn follow_first_window(&mut self, newest: Option<u64>) {
        if self.first_window.on_eack(newest, self.history.next()) {
            self.show_to_heedless();
        }
    }

    /// `None`: the last mile was not measured yet.
    pub(super) fn round_trips(&self) -> Option<RoundTrips> {
        let present = self.last_mile.path.round_trip()?.max(SHORTEST_ROUND_TRIP);
        let least = self.last_mile.base()?.min(present).max(SHORTEST_ROUND_TRIP);
        let far = self.server_round_trip.unwrap_or_default();
        let is_whole = self.server_round_trip.is_some();
        Some(RoundTrips { least: least + far, present: present + far, is_whole })
    }

    /// Shows losses to the sender from here on, unless it gives way, or the operator has configured
    /// its answer.
    fn show_to_heedless(&mut self) {
        let is_unknown = self.permit.gateway().config().sender == SenderAnswer::Unknown;
        if is_unknown && self.live.is_none() {
            self.shown = Some(Box::new(Trial::of_heedless()));
        }
    }

    /// Checks how the sender answers the losses that it is shown.
    pub(super) fn follow_sender(
        &mut self,
        newest: Option<u64>,
        newly_missing: u64,
        turn: &mut Turn<'_>,
    ) {
        let forwarded = self.history.next();
        let is_found = newest.is_some() && newly_missing > 0;
        if let Some(shown) = &mut self.shown {
            shown.on_forwarded(forwarded);
        }
        let is_tolerated = self.is_tolerated();
        if let Some(shown) = &mut self.shown {
            if !is_tolerated {
                shown.end_start(false);
                if let Some(shadow) = &mut self.shadow {
                    shadow.hide();
                }
            } else if is_found && shown.note_shown() {
                let senders = &self.permit.gateway().senders;
                let tipped = senders.on_shown(self.permit.network(), turn.now);
                self.tell_judged(tipped, turn);
            }
        }
        if !self.watches_sender && self.shown.is_none() {
            return;
        }
        let Some(round_trips) = self.round_trips() else { return };
        let shadow = self.shadow.get_or_insert_default();
        let finding = shadow.on_eack(forwarded, round_trips, turn.now);
        let has_had_time =
            !round_trips.is_whole && is_found || shadow.has_judged_growth(round_trips, turn.now);
        let is_heedless = shadow.is_queues();
        match &mut self.shown {
            None if self.watches_sender && is_heedless && finding == Some(Finding::Tolerates) => {
                self.watches_sender = false;
                shadow.begin_anew();
                self.show_to_heedless();
            }
            Some(shown) if is_tolerated => match finding {
                Some(finding) => self.on_finding(finding, turn),
                None if shown.is_at_start() && has_had_time => {
                    shown.end_start(false);
                    if !shown.shows() {
                        let network = self.permit.network();
                        self.permit.gateway().senders.on_undecided(network, turn.now);
                    }
                }
                None => {}
            },
            _ => {}
        }
    }

    /// Applies a finding about the session's sender, and votes.
    fn on_finding(&mut self, finding: Finding, turn: &mut Turn<'_>) {
        let Some(shown) = &mut self.shown else { return };
        match finding {
            Finding::Tolerates if shown.note_tolerance() => turn.counters.senders_tolerant += 1,
            // The session has voted.
            Finding::Tolerates => return,
            Finding::Answers => {
                turn.counters.senders_answering += 1;
                self.shown = None;
            }
            Finding::Fits => {
                let has_voted = shown.tolerates();
                self.shown = None;
                if has_voted {
                    return;
                }
            }
        }
        let network = self.permit.network();
        let tipped = self.permit.gateway().senders.vote(network, finding, turn.now);
        self.tell_judged(tipped, turn);
    }

    /// Reports that sessions begin in another way from here on, if they do.
    fn tell_judged(&self, tipped: Option<bool>, turn: &mut Turn<'_>) {
        if let Some(tolerant) = tipped {
            turn.out.event(Event::SendersJudged { session: self.id(), tolerant });
        }
    }

    /// Reports to the sender's shadow that the sender is shown a loss.
    pub(super) fn note_shown(&mut self, sequence: u64, is_queues: bool, now: Timestamp) {
        let forwarded = self.history.get(sequence).map(|entry| entry.forwarded_at);
        let known = forwarded.zip(self.round_trips());
        if let Some(((forwarded, round_trips), shadow)) = known.zip(self.shadow.as_mut()) {
            shadow.on_shown(forwarded, is_queues, round_trips, now);
        }
    }

    /// Sets the session's expectation of its sender from other sessions' findings. It counts the
    /// session, so only clients that receive at their address may have one.
    pub(super) fn expect_of_sender(&mut self, now: Timestamp) {
        let gateway = self.permit.gateway();
        let config = gateway.config();
        if config.sender == SenderAnswer::Unknown && self.live.is_none() {
            let network = self.permit.network();
            // A trial finds nothing on a path that loses more than any sender tolerates.
            let loss = gateway.losses().expect(self.permit.source(), now);
            let one_of = if loss > TOLERATED_LOSS { 0 } else { config.sender_trials };
            let expected = gateway.senders.expect(network, one_of, now);
            self.shown = Trial::expecting(expected).map(Box::new);
            self.watches_sender = true;
        }
    }

    /// True if the sender goes on as before when it sees the losses of this path.
    pub(super) fn is_tolerated(&self) -> bool {
        let loss = || self.coding.as_deref().map_or(self.last_mile.path.loss(), Coding::loss);
        self.live.is_none()
            && match self.permit.gateway().config().sender {
                SenderAnswer::Unknown => self
                    .shown
                    .as_ref()
                    .is_some_and(|shown| shown.shows() && loss() <= shown.tolerated_loss()),
                SenderAnswer::Always => false,
                SenderAnswer::AboveTolerance => loss() <= TOLERATED_LOSS,
                SenderAnswer::Never => true,
            }
    }
}
