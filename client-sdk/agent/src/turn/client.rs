//! A TURN client without a socket: for tests, and for the fuzz target.

use std::net::SocketAddr;

use turn_types::attribute::{
    ChannelNumber, Data, Lifetime, RequestedTransport, XorPeerAddress, XorRelayedAddress,
};
use turn_types::channel::ChannelData;
use turn_types::message::{ALLOCATE, CHANNEL_BIND, CREATE_PERMISSION, REFRESH, SEND};
use turn_types::stun::attribute::{ErrorCode, Nonce, Realm, Username, XorMappedAddress};
use turn_types::stun::message::{
    IntegrityAlgorithm, IntegrityKey, LongTermKeyCredentials, Message, MessageClass, MessageType,
    MessageWriteVec, Method, TransactionId,
};
use turn_types::stun::prelude::{AttributeWrite, MessageWrite, MessageWriteExt};

pub(crate) type Attributes = Vec<Box<dyn AttributeWrite>>;

#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) realm: String,
    pub(crate) nonce: String,
    pub(crate) transaction: u128,
}

/// A server's answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) code: Option<u16>,
    pub(crate) is_signed: bool,
    pub(crate) relayed: Option<SocketAddr>,
    pub(crate) mapped: Option<SocketAddr>,
    pub(crate) lifetime: Option<u32>,
}

impl Client {
    pub(crate) fn new(user: &str, password: &str) -> Self {
        let (user, password) = (user.to_owned(), password.to_owned());
        Self { user, password, realm: String::new(), nonce: String::new(), transaction: 0 }
    }

    fn key(&self) -> IntegrityKey {
        let (user, password) = (self.user.clone(), self.password.clone());
        LongTermKeyCredentials::new(user, password, self.realm.clone())
            .make_key(IntegrityAlgorithm::Sha1)
    }

    /// A request, signed as soon as the client has a nonce.
    pub(crate) fn request(
        &mut self,
        method: Method,
        attributes: impl FnOnce(TransactionId) -> Attributes,
    ) -> Vec<u8> {
        self.transaction += 1;
        self.again(method, attributes)
    }

    /// The same request once more.
    pub(crate) fn again(
        &self,
        method: Method,
        attributes: impl FnOnce(TransactionId) -> Attributes,
    ) -> Vec<u8> {
        let transaction = TransactionId::from(self.transaction);
        let kind = MessageType::from_class_method(MessageClass::Request, method);
        let mut message = Message::builder(kind, transaction, MessageWriteVec::new());
        for attribute in attributes(transaction) {
            message.add_attribute(&*attribute).unwrap();
        }
        if !self.nonce.is_empty() {
            message.add_attribute(&Username::new(&self.user).unwrap()).unwrap();
            message.add_attribute(&Realm::new(&self.realm).unwrap()).unwrap();
            message.add_attribute(&Nonce::new(&self.nonce).unwrap()).unwrap();
            message.add_message_integrity_with_key(&self.key(), IntegrityAlgorithm::Sha1).unwrap();
        }
        message.finish()
    }

    pub(crate) fn allocate(&mut self) -> Vec<u8> {
        self.request(ALLOCATE, |_| vec![Box::new(RequestedTransport::new(RequestedTransport::UDP))])
    }

    pub(crate) fn refresh(&mut self, seconds: u32) -> Vec<u8> {
        self.request(REFRESH, |_| vec![Box::new(Lifetime::new(seconds))])
    }

    pub(crate) fn permit(&mut self, peers: &[SocketAddr]) -> Vec<u8> {
        self.request(CREATE_PERMISSION, |transaction| {
            let attribute = |peer: &SocketAddr| -> Box<dyn AttributeWrite> {
                Box::new(XorPeerAddress::new(*peer, transaction))
            };
            peers.iter().map(attribute).collect()
        })
    }

    pub(crate) fn bind(&mut self, channel: u16, peer: SocketAddr) -> Vec<u8> {
        self.request(CHANNEL_BIND, |transaction| {
            vec![
                Box::new(ChannelNumber::new(channel)),
                Box::new(XorPeerAddress::new(peer, transaction)),
            ]
        })
    }

    /// Reads an answer, and keeps its nonce.
    pub(crate) fn hear(&mut self, answer: &[u8]) -> Heard {
        let message = Message::from_bytes(answer).unwrap();
        let transaction = message.transaction_id();
        if let (Ok(realm), Ok(nonce)) = (message.attribute::<Realm>(), message.attribute::<Nonce>())
        {
            (self.realm, self.nonce) = (realm.realm().to_owned(), nonce.nonce().to_owned());
        }
        Heard {
            code: message.attribute::<ErrorCode>().ok().map(|error| error.code()),
            is_signed: message.validate_integrity_with_key(&self.key()).is_ok(),
            relayed: message.attribute::<XorRelayedAddress>().ok().map(|one| one.addr(transaction)),
            mapped: message.attribute::<XorMappedAddress>().ok().map(|one| one.addr(transaction)),
            lifetime: message.attribute::<Lifetime>().ok().map(|lifetime| lifetime.seconds()),
        }
    }
}

/// A Send indication.
pub(crate) fn send(peer: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let transaction = TransactionId::from(7);
    let kind = MessageType::from_class_method(MessageClass::Indication, SEND);
    let mut message = Message::builder(kind, transaction, MessageWriteVec::new());
    message.add_attribute(&XorPeerAddress::new(peer, transaction)).unwrap();
    message.add_attribute(&Data::new(payload)).unwrap();
    message.finish()
}

/// The peer and the payload of a Data indication.
pub(crate) fn received(datagram: &[u8]) -> Option<(SocketAddr, Vec<u8>)> {
    let message = Message::from_bytes(datagram).ok()?;
    let peer = message.attribute::<XorPeerAddress>().ok()?.addr(message.transaction_id());
    Some((peer, message.attribute::<Data<'_>>().ok()?.data().to_vec()))
}

pub(crate) fn in_channel(channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; payload.len() + 4];
    ChannelData::new(channel, payload).write_into_unchecked(&mut bytes);
    bytes
}
