//! The gateway's half of the handshake, for sessions and for subscribers of streams.
//!
//! ```text
//!   Begin ---> answered: keys, and an InitAck that is kept ---- the client seals something ----> proven
//!                            |                  |
//!                            | repeated Init:   | 5 s without a sealed message,
//!                            | the same answer  | if nothing else is in use
//!                            +--> answered      v
//!                                           forgotten
//! ```

use core::time::Duration;

use packrat_wire::SessionId;
use packrat_wire::control::Control;
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::{ClientParams, Established, GatewayParams, respond};

use crate::gateway::{Begin, Gateway};
use crate::outbox::Outbox;

/// An answered handshake must be used within this time.
const PENDING_LIFETIME: Duration = Duration::from_secs(5);

/// An answered handshake, whose client may not have the answer yet.
#[derive(Debug)]
pub(crate) struct Handshake {
    nonce: u64,
    /// Sent again for a repeated Init.
    init_ack: Box<[u8]>,
    since: Timestamp,
}

impl Handshake {
    /// Answers a client: agrees on keys and puts the InitAck into the outbox. `grant` makes the
    /// parameters from the client's, with the session's id and its secret, both random; `is_taken`
    /// is asked whether an id is in use. `None`: malformed, or refused by `grant`.
    pub(crate) fn answer(
        gateway: &Gateway,
        begin: &Begin,
        seed: [u8; 32],
        now: Timestamp,
        is_taken: impl Fn(SessionId) -> bool,
        grant: impl FnOnce(&ClientParams, SessionId, [u8; 32]) -> GatewayParams,
    ) -> Option<(Self, Established, ClientParams)> {
        let answered = respond(
            seed,
            &gateway.keys().static_key,
            begin.nonce,
            &begin.noise,
            |client_params, random| {
                let (mut id, mut secret) = ([0; 4], [0; 32]);
                random(&mut id);
                while is_taken(SessionId::new(u32::from_be_bytes(id))) {
                    random(&mut id);
                }
                random(&mut secret);
                grant(client_params, SessionId::new(u32::from_be_bytes(id)), secret)
            },
        );
        let (established, client_params, noise) = answered.ok()?;
        let mut init_ack = Vec::new();
        Control::InitAck { nonce: begin.nonce, noise: &noise }.encode(&mut init_ack);
        Some((
            Self { nonce: begin.nonce, init_ack: init_ack.into(), since: now },
            established,
            client_params,
        ))
    }

    /// Puts the answer into the outbox.
    pub(crate) fn send(&self, out: &mut Outbox) {
        out.send(|bytes| bytes.extend_from_slice(&self.init_ack));
    }

    /// True if this is the handshake with that nonce; the answer is in the outbox then.
    pub(crate) fn repeat(&self, nonce: u64, out: &mut Outbox) -> bool {
        let same = self.nonce == nonce;
        if same {
            self.send(out);
        }
        same
    }

    /// The client has the answer: it will not ask for it again.
    pub(crate) fn forget_answer(&mut self) {
        self.init_ack = Box::default();
    }

    /// When it is forgotten if it was not used.
    pub(crate) fn expires(&self) -> Timestamp {
        self.since + PENDING_LIFETIME
    }

    /// True if it was not used in time.
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.expires()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_question_gets_the_remembered_answer() {
        let mut handshake =
            Handshake { nonce: 7, init_ack: [1, 2, 3].into(), since: Timestamp::from_millis(1000) };
        let mut out = Outbox::new();
        assert!(!handshake.repeat(8, &mut out) && out.is_empty());
        assert!(handshake.repeat(7, &mut out));
        assert_eq!(out.datagrams().collect::<Vec<_>>(), [[1, 2, 3]]);
        out.clear();
        handshake.forget_answer();
        assert!(handshake.repeat(7, &mut out) && out.is_empty(), "nothing written is nothing sent");
        assert!(!handshake.is_expired(Timestamp::from_millis(5999)));
        assert!(handshake.is_expired(Timestamp::from_millis(6000)));
    }
}
