//! Sealed datagrams of the client: opened, recognised, and answered by a challenge when they come from somewhere else.

use std::net::SocketAddr;

use packrat_estimate::Timestamp;
use packrat_wire::message::Message;
use packrat_wire::seal::OpenError;

use super::{CHALLENGE_INTERVAL, CHALLENGE_LENGTH, CHALLENGE_LIFETIME, Ended, Session};
use crate::counters::FlowCounters;
use crate::event::Event;
use crate::flow::Elsewhere;
use crate::lazily::Lazily;
use crate::outbox::Outbox;
use crate::scratch::Scratch;

impl Session {
    /// A sealed datagram from the client's address.
    pub(crate) fn control(
        &mut self,
        datagram: &[u8],
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) -> Option<Ended> {
        self.scratch = Scratch::borrow();
        let mut plaintext = core::mem::take(&mut self.scratch().plaintext);
        let mut ended = None;
        if let Some(counter) = self.open(datagram, &mut plaintext, counters) {
            match Message::decode(&plaintext) {
                Ok(Message::Eack(eack)) => self.on_eack(counter, &eack, now, counters, out),
                Ok(Message::Reset { epoch, reason }) => self.on_client_reset(epoch, reason, counters, out),
                Ok(Message::Goodbye { reason }) => ended = Some(Ended(reason)),
                // The client has come back before the address it was challenged at was accepted.
                Ok(Message::PathResponse { .. }) => self.challenge = None,
                Ok(_) | Err(_) => counters.sealed_malformed += 1,
            }
        }
        self.scratch().plaintext = plaintext;
        Scratch::give_back(self.scratch.take());
        ended
    }

    /// Opens a sealed datagram; counts why when that fails.
    fn open(&mut self, datagram: &[u8], plaintext: &mut Vec<u8>, counters: &mut FlowCounters) -> Option<u32> {
        match self.opener.open(datagram, plaintext) {
            Ok(counter) => {
                self.proven = true;
                return Some(counter);
            }
            Err(OpenError::Replayed) => counters.sealed_replayed += 1,
            Err(OpenError::Forged) => counters.sealed_forged += 1,
            Err(_) => counters.sealed_malformed += 1,
        }
        None
    }

    /// See [`crate::Flow::control_from_elsewhere`].
    pub(crate) fn control_from_elsewhere(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) -> Elsewhere {
        self.scratch = Scratch::borrow();
        let mut plaintext = core::mem::take(&mut self.scratch().plaintext);
        let opened = self.open(datagram, &mut plaintext, counters).is_some();
        let message = Message::decode(&plaintext);
        let elsewhere = match (message, self.challenge.as_deref().copied()) {
            _ if !opened => Elsewhere::Refused,
            (Ok(Message::PathResponse { data }), Some((challenged, expected, at)))
                if challenged == from
                    && data == expected
                    && now.saturating_since(at) <= CHALLENGE_LIFETIME =>
            {
                self.challenge = None;
                counters.paths_moved += 1;
                // Another path, another round trip; what is known of its loss is the best guess.
                self.path.forget_round_trip();
                self.queueing = Lazily::new();
                self.measured = None;
                out.event(Event::SessionMoved { session: self.name() });
                Elsewhere::Moved
            }
            (Ok(_), Some((challenged, _, at)))
                if challenged == from && now.saturating_since(at) < CHALLENGE_INTERVAL =>
            {
                Elsewhere::Challenged
            }
            (Ok(_), _) if datagram.len() < CHALLENGE_LENGTH => Elsewhere::Refused,
            (Ok(_), _) => {
                let data = self.terms.path_challenge(self.challenges);
                self.challenges += 1;
                self.challenge = Some(Box::new((from, data, now)));
                counters.paths_challenged += 1;
                self.send(&Message::PathChallenge { data }, out);
                Elsewhere::Challenged
            }
            (Err(_), _) => {
                counters.sealed_malformed += 1;
                Elsewhere::Refused
            }
        };
        self.scratch().plaintext = plaintext;
        Scratch::give_back(self.scratch.take());
        elsewhere
    }
}
