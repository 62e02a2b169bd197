//! The sealed channel of a session: it opens the client's messages, seals the gateway's, and has
//! another address prove itself first ([`crate::path_validation`]).
//!
//! ```text
//!   Prepared (the answer to the handshake is under way) ---- the client seals something ----> Proven
//! ```

use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::SESSION_NAMES;
use packrat_wire::message::Message;
use packrat_wire::registry::grease_message;
use packrat_wire::seal::{OpenError, Opener, Sealer, session_of};
use packrat_wire::{MessageCounter, SessionId};

use super::Turn;
use crate::counters::FlowCounters;
use crate::flow::PathEvent;
use crate::outbox::Outbox;
use crate::path_validation::{NetworkPath, PathUse, PathValidation, Step};

/// Keys of a session, and challenges of addresses other than its client's.
pub(crate) struct Channel {
    sealer: Sealer,
    opener: Opener,
    names: [SessionId; SESSION_NAMES],
    proven: bool,
    /// Time of the client's last authentic message along its own path.
    heard: Option<Timestamp>,
    path_validation: Option<Box<PathValidation<NetworkPath>>>,
}

impl Channel {
    pub(crate) fn new(sealer: Sealer, opener: Opener, names: [SessionId; SESSION_NAMES]) -> Self {
        Self { sealer, opener, names, proven: false, heard: None, path_validation: None }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.names[0]
    }

    /// The names that the client may call the session by.
    pub(crate) fn names(&self) -> [SessionId; SESSION_NAMES] {
        self.names
    }

    /// The name by which the client has called the session last, which sealed messages also have.
    pub(crate) fn name(&self) -> SessionId {
        self.sealer.session()
    }

    /// Calls the session by this name again.
    pub(crate) fn set_name(&mut self, name: SessionId) {
        self.sealer.set_session(name);
    }

    /// True if the client has sealed a message with this session's key.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Time of the client's last authentic message along its own path.
    pub(crate) fn heard(&self) -> Option<Timestamp> {
        self.heard
    }

    /// Records an authentic message of the client along its own path.
    pub(crate) fn note_heard(&mut self, now: Timestamp) {
        self.heard = Some(now);
    }

    /// Opens a sealed datagram and returns its counter; counts the reason if that fails.
    pub(crate) fn open(
        &mut self,
        datagram: &[u8],
        plaintext: &mut Vec<u8>,
        counters: &mut FlowCounters,
    ) -> Option<MessageCounter> {
        match self.opener.open(datagram, plaintext) {
            Ok(counter) => {
                self.proven = true;
                // An answer has the name of its question: no path sees a name of another one.
                if let Some(name) = session_of(datagram) {
                    self.sealer.set_session(name);
                }
                return Some(counter);
            }
            Err(OpenError::Replayed) => counters.sealed_replayed += 1,
            Err(OpenError::Forged) => counters.sealed_forged += 1,
            Err(_) => counters.sealed_malformed += 1,
        }
        None
    }

    /// Seals and sends a message.
    pub(crate) fn send(&mut self, message: &Message<'_>, turn: &mut Turn<'_>) {
        let mut buffer = core::mem::take(&mut turn.scratch().message);
        self.seal(message, &mut buffer, turn.out);
        turn.scratch().message = buffer;
    }

    /// Like [`Self::send`], with the caller's working memory.
    pub(crate) fn seal(&mut self, message: &Message<'_>, buffer: &mut Vec<u8>, out: &mut Outbox) {
        buffer.clear();
        message.encode(buffer);
        // A used-up counter or an oversized message (neither can happen in practice) costs the
        // message only.
        let _ = out.send(|bytes| self.sealer.seal(buffer, bytes));
    }

    /// Seals and sends a message without meaning behind the first one, in one session of sixteen: a
    /// client must bear unknown messages.
    pub(crate) fn send_grease(&mut self, turn: &mut Turn<'_>) {
        if self.sealer.counter() == MessageCounter::new(1)
            && let Some(plaintext) = grease_message(u64::from(self.id().get()))
        {
            let _ = turn.out.send(|bytes| self.sealer.seal(&plaintext, bytes));
        }
    }

    /// Forgets challenges when the client is heard at its known address.
    pub(crate) fn forget_challenges(&mut self) {
        self.path_validation = None;
    }

    /// Opens a sealed datagram from another path than the client's, and challenges that path or
    /// accepts its answer, if `decide` allows it.
    pub(crate) fn on_new_path(
        &mut self,
        datagram: &[u8],
        from: NetworkPath,
        random: impl FnOnce() -> [u8; 8],
        decide: impl FnOnce() -> PathUse,
        turn: &mut Turn<'_>,
    ) -> PathEvent {
        let mut plaintext = core::mem::take(&mut turn.scratch().plaintext);
        let event = match self.open(datagram, &mut plaintext, turn.counters) {
            None => PathEvent::Rejected,
            Some(_) => match Message::decode(&plaintext) {
                Ok(message) => self.validate(&message, datagram.len(), from, random, decide, turn),
                Err(_) => {
                    turn.counters.sealed_malformed += 1;
                    PathEvent::Rejected
                }
            },
        };
        turn.scratch().plaintext = plaintext;
        event
    }

    fn validate(
        &mut self,
        message: &Message<'_>,
        length: usize,
        from: NetworkPath,
        random: impl FnOnce() -> [u8; 8],
        decide: impl FnOnce() -> PathUse,
        turn: &mut Turn<'_>,
    ) -> PathEvent {
        let paths = self.path_validation.get_or_insert_default();
        match paths.on_message(message, length, from, random, turn.now) {
            Step::Validated => match decide() {
                PathUse::Free => {
                    turn.counters.paths_moved += 1;
                    self.path_validation = None;
                    PathEvent::Validated
                }
                PathUse::Asked => PathEvent::Held,
                PathUse::InUse => {
                    turn.counters.paths_refused += 1;
                    paths.refuse(from, turn.now);
                    PathEvent::Refused
                }
            },
            Step::Refuse => PathEvent::Refused,
            Step::Challenge(data) => {
                turn.counters.paths_challenged += 1;
                self.send(&Message::PathChallenge { data }, turn);
                PathEvent::Challenged
            }
            Step::Wait => PathEvent::Challenged,
            Step::Ignore => PathEvent::Rejected,
        }
    }
}
