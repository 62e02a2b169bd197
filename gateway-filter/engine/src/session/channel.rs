//! The sealed channel of a session: what the client says is opened, what the gateway says is
//! sealed, and another address has to prove itself first ([`crate::path_validation`]).
//!
//! ```text
//!   Prepared (the answer to the handshake is under way) ---- the client seals something ----> Proven
//! ```

use std::net::SocketAddr;

use packrat_wire::message::Message;
use packrat_wire::seal::{OpenError, Opener, Sealer};
use packrat_wire::{MessageCounter, SessionId};

use super::Turn;
use crate::counters::FlowCounters;
use crate::flow::PathEvent;
use crate::outbox::Outbox;
use crate::path_validation::{PathValidation, Step};

/// Keys of a session, and challenges of addresses that are not its client's.
pub(crate) struct Channel {
    sealer: Sealer,
    opener: Opener,
    proven: bool,
    path_validation: Option<Box<PathValidation>>,
}

impl Channel {
    pub(crate) fn new(sealer: Sealer, opener: Opener) -> Self {
        Self { sealer, opener, proven: false, path_validation: None }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.sealer.session()
    }

    /// True if the client has sealed something with this session's key.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Opens a sealed datagram and returns its counter; counts why when that fails.
    pub(crate) fn open(
        &mut self,
        datagram: &[u8],
        plaintext: &mut Vec<u8>,
        counters: &mut FlowCounters,
    ) -> Option<MessageCounter> {
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

    /// Seals and sends a message.
    pub(crate) fn send(&mut self, message: &Message<'_>, turn: &mut Turn<'_>) {
        let mut buffer = core::mem::take(&mut turn.scratch().message);
        self.seal(message, &mut buffer, turn.out);
        turn.scratch().message = buffer;
    }

    /// The same, with working memory of the caller.
    pub(crate) fn seal(&mut self, message: &Message<'_>, buffer: &mut Vec<u8>, out: &mut Outbox) {
        buffer.clear();
        message.encode(buffer);
        // A used-up counter or an oversized message (neither can happen in practice) costs the
        // message, nothing else.
        let _ = out.send(|bytes| self.sealer.seal(buffer, bytes));
    }

    /// The client spoke from its known address: no challenge is needed any more.
    pub(crate) fn forget_challenges(&mut self) {
        self.path_validation = None;
    }

    /// Opens a sealed datagram from another address than the client's, and challenges that address
    /// or accepts its answer.
    pub(crate) fn on_new_path(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        random: impl FnOnce() -> [u8; 8],
        turn: &mut Turn<'_>,
    ) -> PathEvent {
        let mut plaintext = core::mem::take(&mut turn.scratch().plaintext);
        let event = match self.open(datagram, &mut plaintext, turn.counters) {
            None => PathEvent::Rejected,
            Some(_) => match Message::decode(&plaintext) {
                Ok(message) => self.validate(&message, datagram.len(), from, random, turn),
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
        from: SocketAddr,
        random: impl FnOnce() -> [u8; 8],
        turn: &mut Turn<'_>,
    ) -> PathEvent {
        let paths = self.path_validation.get_or_insert_default();
        match paths.on_message(message, length, from, random, turn.now) {
            Step::Validated => {
                turn.counters.paths_moved += 1;
                self.path_validation = None;
                PathEvent::Validated
            }
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
