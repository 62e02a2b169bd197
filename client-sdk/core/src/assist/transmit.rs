//! Datagrams that the client itself sends: messages, repairs, copies, eACKs.

use core::time::Duration;

use packrat_eack::MAX_EXPECTED_DIFFERENCE;
use packrat_wire::MessageCounter;
use packrat_wire::estimate::Timestamp;
use packrat_wire::message::{Eack, Message};
use packrat_wire::seal::reference_of;

use super::{Assist, Outgoing};
use crate::events::{ClientEvent, SessionClosedReason};
use crate::reconnection::RECONNECT_AFTER;

/// Differences that the holes do not explain: datagrams that came after the gateway had given them
/// up, or that carry no packet number.
const UNEXPLAINED_DIFFERENCES: u64 = 1;
/// Differences of a selective client that the holes do not explain, beside datagrams lost behind
/// its newest one, which the gateway knows by their age.
const UNEXPLAINED_SELECTIVE: u64 = 3;

impl Assist {
    /// Seals a message that leaves before repairs and eACKs.
    pub(super) fn send_urgently(&mut self, message: &Message<'_>) {
        let mut plaintext = core::mem::take(&mut self.outgoing.message);
        plaintext.clear();
        message.encode(&mut plaintext);
        self.send_plaintext(&plaintext);
        self.outgoing.message = plaintext;
    }

    pub(super) fn send_plaintext(&mut self, plaintext: &[u8]) {
        let Some(session) = &mut self.session else { return };
        let mut datagram = Vec::new();
        // A used-up counter costs the message; the session ends at the next eACK.
        if session.sealer.seal(plaintext, &mut datagram).is_ok() {
            self.outgoing.urgent.push_back(datagram);
        }
    }

    /// Returns the next datagram to send to the peer's address from the base connection's own
    /// socket: a control datagram, a repair, a copy, or a bundle.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        let Self { session, thin, destinations, .. } = self;
        let is_in_use = |datagram: &[u8]| destinations.is_in_use(datagram, now);
        if self.outgoing.urgent.is_empty()
            && !self.closed
            && let Some(upward) = session.as_mut().and_then(|session| session.upward.as_mut())
            && let Some((place, again)) = upward.poll_transmit(is_in_use, now)
        {
            let bytes = again.len();
            self.events.tell(now, || ClientEvent::DatagramSentAgain { place, bytes });
            return Some(again);
        }
        if !self.closed
            && let Some(copy) = thin.poll_transmit(is_in_use, now)
        {
            let bytes = copy.len();
            self.events.tell(now, || ClientEvent::CopySent { bytes });
            return Some(copy);
        }
        if self.bundling.is_some()
            && let Some(own) = self.poll_unbundled()
        {
            return Some(own);
        }
        let datagram = match self.outgoing.urgent.pop_front() {
            Some(urgent) => Some(urgent),
            None if self.closed => None,
            None if self.session.is_some() && self.bundling.is_some() => {
                return self.poll_with_bundle(now);
            }
            None if self.session.is_some() => self.poll_eack(now),
            None if self.question_from.is_some_and(|from| now < from) => None,
            None => {
                let random = &mut self.random;
                let question = self.discovery.poll_transmit(now, || random.attempt());
                if question.is_some() {
                    self.question_from = None;
                    self.thin.on_question();
                }
                question
            }
        }?;
        self.stats.control_bytes_sent += datagram.len() as u64;
        Some(datagram)
    }

    /// Returns a datagram that has waited for a bundle, if the session no longer has bundles.
    #[cold]
    fn poll_unbundled(&mut self) -> Option<Vec<u8>> {
        let agreed = self.sends_bundles() && !self.closed;
        self.bundling.as_mut().filter(|_| !agreed)?.alone(false)
    }

    /// Returns the next eACK, with the waiting datagrams in front if there are any; or a bundle
    /// without an eACK.
    fn poll_with_bundle(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        let due = self.bundling.as_ref().and_then(|bundling| bundling.deadline());
        let is_due = due.is_some_and(|due| due <= now);
        if is_due && let Some(session) = &mut self.session {
            session.scheduler.on_company(now);
        }
        let eack = self.poll_eack(now);
        let agreed = self.sends_bundles();
        let bundling = self.bundling.as_mut().filter(|_| due.is_some());
        match (eack, bundling) {
            (Some(eack), bundling) => {
                self.stats.control_bytes_sent += eack.len() as u64;
                Some(match bundling {
                    Some(bundling) => bundling.with(eack),
                    None => eack,
                })
            }
            (None, Some(bundling)) if is_due => bundling.alone(agreed),
            (None, _) => None,
        }
    }

    /// Differences between the two ends' sets that the next eACK has to explain.
    fn expected_differences(&mut self, now: Timestamp) -> usize {
        let overdue = self
            .hold
            .highest_arrived()
            .map_or(0, |last| self.numbers.overdue_below.get().saturating_sub(last.get() + 1));
        let unexplained = match self.is_selective() {
            true => UNEXPLAINED_SELECTIVE,
            false => UNEXPLAINED_DIFFERENCES,
        };
        let unproven = self.session.as_ref().map_or(0, |session| session.recorder.unproven());
        let unexplained = unexplained + unproven;
        let expected = self.hold.expected_missing(&self.path, now) + overdue + unexplained;
        match self.config.laboratory.longest_prefix {
            true => MAX_EXPECTED_DIFFERENCE,
            false => usize::try_from(expected).unwrap_or(usize::MAX),
        }
    }

    fn poll_eack(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        let held = self.hold.held();
        let session = self.session.as_ref()?;
        if session.scheduler.due(held > 0, self.path.round_trip())? > now {
            return None;
        }
        let expected = self.expected_differences(now);
        let session = self.session.as_mut()?;
        let sized = session.recorder.encoding_for(expected);
        let wanted = session.epoch.wanted(now);
        let Outgoing { message, prefix, .. } = &mut self.outgoing;
        let encoding = sized.into_iter().chain(wanted).max_by_key(|encoding| encoding.decodable());
        let encoding = encoding.filter(|encoding| session.recorder.write_prefix(*encoding, prefix));
        let Some(encoding) = encoding else {
            session.scheduler.on_sent(now);
            return None;
        };
        // A live stream has no time to lose, and the gateway judges uploads by frequent echoes.
        let always = self.config.live.is_some() || session.upward.is_some();
        let wants_echo = session.liveness.wants_echo(always || held > 0, now);
        let newest = session.recorder.newest();
        let eack = Eack {
            epoch: session.epoch.number(),
            echo: wants_echo,
            newest: newest.map(|(identifier, _)| identifier),
            newest_age: newest.map_or(Duration::ZERO, |(_, at)| now.saturating_since(at)),
            holes: u8::try_from(held).unwrap_or(u8::MAX),
            anchor: session.recorder.anchor().filter(|_| !session.epoch.is_confirmed()),
            encoding,
            prefix,
        };
        message.clear();
        Message::Eack(eack).encode(message);
        let mut datagram =
            Vec::with_capacity(message.len() + packrat_wire::seal::SEAL_OVERHEAD_BYTES);
        let Ok(counter) = session.sealer.seal(message, &mut datagram) else {
            // The counter is used up: a new session follows.
            self.lose_gateway(SessionClosedReason::Exhausted, RECONNECT_AFTER, now);
            return None;
        };
        if wants_echo {
            session.liveness.on_asked(counter, now);
        }
        self.events.tell(now, || ClientEvent::EackSent {
            eack: counter,
            epoch: session.epoch.number(),
            symbols: encoding.count(),
            held,
            bytes: datagram.len(),
        });
        self.on_eack_sealed(counter, &datagram, now);
        Some(datagram)
    }

    /// Remembers an eACK that leaves, and reports to the gateway the datagrams recovered since.
    fn on_eack_sealed(&mut self, counter: MessageCounter, datagram: &[u8], now: Timestamp) {
        let Some(session) = &mut self.session else { return };
        session.recorder.on_told(counter);
        session.sent.push(counter, reference_of(datagram), now);
        session.scheduler.on_sent(now);
        let coded = session.coded.as_mut().and_then(|coded| coded.untold(now));
        let group = session.group.as_mut().and_then(|group| group.untold(now));
        let untold = coded.or(group);
        self.stats.eacks += 1;
        self.stats.eack_bytes += datagram.len() as u64;
        if let Some(total) = untold {
            self.send_urgently(&Message::Recovered { total });
        }
    }
}
