//! The gateway's half of a session, for entry functions in which it sends arbitrary messages.

use packrat_eack::Identifier;
use packrat_wire::codec::DecodeError;
use packrat_wire::control::Control;
use packrat_wire::handshake::{Established, GatewayParams, respond};
use packrat_wire::message::Message;
use packrat_wire::registry::GREASE_VALUES;
use packrat_wire::{MessageCounter, SessionId};

/// The key of a stream's symbols, for clients that want some.
pub(crate) const GROUP_KEY: [u8; 32] = [7; 32];

/// A session without state beyond its keys.
pub(crate) struct GatewayHalf(Established);

impl GatewayHalf {
    /// Answers a handshake. Also returns the answer.
    pub(crate) fn answer(nonce: u64, noise: &[u8]) -> (Self, Vec<u8>) {
        let (established, _, answer) =
            respond([2; 32], &[3; 32], nonce, noise, |client_params, _| GatewayParams {
                session: SessionId::new(5),
                scheme: client_params.scheme,
                limits: client_params.limits,
                cache_bytes: 1 << 20,
                secret: [6; 32].into(),
                stream: None,
                symbols: client_params.live.filter(|live| live.symbols).map(|_| GROUP_KEY.into()),
                numbered: None,
                hint: Default::default(),
                ticket: None,
                bundles: false,
                distinct: true,
            })
            .expect("a first message");
        let mut datagram = Vec::new();
        Control::InitAck { nonce, noise: &answer }.encode(&mut datagram);
        (Self(established), datagram)
    }

    /// The identifier of a datagram in the session.
    pub(crate) fn identify(&self, datagram: &[u8]) -> Identifier {
        let params = &self.0.gateway_params;
        params.identifier_key().identify(params.scheme, datagram)
    }

    /// A sealed datagram with this plaintext, of at most `MAXIMUM_PLAINTEXT` bytes.
    pub(crate) fn seal(&mut self, plaintext: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        self.0.sealer.seal(plaintext, &mut datagram).expect("short enough");
        datagram
    }

    /// The counter of a sealed datagram of the client; `None` if it is of another session. Panics
    /// if its message is malformed: a message of a type that is never assigned must be ignored.
    pub(crate) fn open(&mut self, datagram: &[u8]) -> Option<MessageCounter> {
        let mut plaintext = Vec::new();
        let counter = self.0.opener.open(datagram, &mut plaintext).ok()?;
        match Message::decode(&plaintext) {
            Ok(_) => {}
            Err(DecodeError::MessageType(kind)) if GREASE_VALUES.contains(&kind) => {}
            Err(error) => panic!("the client said nonsense: {error}"),
        }
        Some(counter)
    }
}

/// The plaintext of a message.
pub(crate) fn encode(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}
