//! Answers to a program's requests, and its peers' data.

use std::net::SocketAddr;

use turn_types::attribute::{Data, XorPeerAddress};
use turn_types::message::DATA;
use turn_types::stun::attribute::ErrorCode;
use turn_types::stun::message::{
    IntegrityAlgorithm, IntegrityKey, Message, MessageClass, MessageType, MessageWriteVec, Method,
    StunWriteError, TransactionId,
};
use turn_types::stun::prelude::{AttributeWrite, MessageWrite, MessageWriteExt};

/// An answer that is being written.
pub(super) struct Answer(Result<MessageWriteVec, StunWriteError>);

impl Answer {
    pub(super) fn success(method: Method, transaction: TransactionId) -> Self {
        Self::new(MessageClass::Success, method, transaction)
    }

    /// A refusal with the standard's words for the code.
    pub(super) fn error(to: &Message<'_>, code: u16) -> Self {
        let answer = Self::new(MessageClass::Error, to.method(), to.transaction_id());
        match ErrorCode::builder(code).build() {
            Ok(error) => answer.with(&error),
            Err(error) => Self(Err(error)),
        }
    }

    fn new(class: MessageClass, method: Method, transaction: TransactionId) -> Self {
        let kind = MessageType::from_class_method(class, method);
        Self(Ok(Message::builder(kind, transaction, MessageWriteVec::new())))
    }

    pub(super) fn with(self, attribute: &dyn AttributeWrite) -> Self {
        Self(self.0.and_then(|mut message| {
            message.add_attribute(attribute)?;
            Ok(message)
        }))
    }

    /// The answer's bytes with a proof that they are the server's; `None`: they cannot be written.
    pub(super) fn signed(self, key: &IntegrityKey) -> Option<Vec<u8>> {
        let mut message = self.0.ok()?;
        message.add_message_integrity_with_key(key, IntegrityAlgorithm::Sha1).ok()?;
        Some(message.finish())
    }

    /// The answer's bytes.
    pub(super) fn plain(self) -> Option<Vec<u8>> {
        Some(self.0.ok()?.finish())
    }
}

impl From<MessageWriteVec> for Answer {
    fn from(message: MessageWriteVec) -> Self {
        Self(Ok(message))
    }
}

/// A peer's datagram in a Data indication, for a peer without a channel.
pub(crate) fn indication(peer: SocketAddr, datagram: &[u8], number: u64) -> Option<Vec<u8>> {
    let transaction = TransactionId::from(u128::from(number));
    let answer = Answer::new(MessageClass::Indication, DATA, transaction);
    answer.with(&XorPeerAddress::new(peer, transaction)).with(&Data::new(datagram)).plain()
}

/// The bytes in front of a peer's datagram in a channel, which has no padding over UDP (RFC 8656,
/// section 12.5); `None`: it is too long.
pub(crate) fn channel_header(channel: u16, datagram: &[u8]) -> Option<[u8; 4]> {
    let [one, two] = channel.to_be_bytes();
    let [three, four] = u16::try_from(datagram.len()).ok()?.to_be_bytes();
    Some([one, two, three, four])
}
