//! A program's requests: who asks, and the answer (RFC 8489, section 9.2; RFC 8656).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use packrat_client::Timestamp;
use turn_types::AddressFamily;
use turn_types::attribute::{
    ChannelNumber, Lifetime, RequestedAddressFamily, RequestedTransport, XorPeerAddress,
};
use turn_types::message::{ALLOCATE, CHANNEL_BIND, CREATE_PERMISSION, REFRESH};
use turn_types::stun::attribute::{
    AttributeType, ErrorCode, MessageIntegrity, Nonce, Realm, Username,
};
use turn_types::stun::message::{
    IntegrityKey, Message, MessageClass, MessageType, MessageWriteVec,
};
use turn_types::stun::prelude::{Attribute, AttributeFromRaw, AttributeStaticType};

use super::allocation::{Allocation, DEFAULT_LIFETIME, LONGEST_LIFETIME, Opening, PeerFault};
use super::answer::Answer;
use super::{MOST_ALLOCATIONS, REALM, Server, Step, USER_ALLOCATIONS, allocated, seconds};

/// Attributes that must be understood, and are; EVEN-PORT, RESERVATION-TOKEN and DONT-FRAGMENT are
/// not.
const KNOWN: [AttributeType; 9] = [
    Username::TYPE,
    MessageIntegrity::TYPE,
    Realm::TYPE,
    Nonce::TYPE,
    ChannelNumber::TYPE,
    Lifetime::TYPE,
    XorPeerAddress::TYPE,
    RequestedAddressFamily::TYPE,
    RequestedTransport::TYPE,
];
/// Numbers of channels: RFC 8656 ends at 0x4fff, programs of RFC 5766 do not.
const CHANNELS: std::ops::RangeInclusive<u16> = 0x4000..=0x7ffe;

/// The user that a request has proven to come from.
struct User {
    name: String,
    key: IntegrityKey,
}

/// The answer to a request of a user.
enum Reply {
    Success(Answer),
    Open(Opening),
    /// The allocation has ended.
    End(usize, Answer),
    /// The answer is complete.
    Repeated(Option<Vec<u8>>),
}

impl Server {
    pub(super) fn on_request(
        &mut self,
        message: &Message<'_>,
        program: SocketAddr,
        now: Timestamp,
        unix_seconds: u64,
    ) -> Step<'static> {
        let answered = |bytes: Option<Vec<u8>>| bytes.map_or(Step::Refused, Step::Answer);
        let user = match self.authenticate(message, program, now, unix_seconds) {
            Ok(user) => user,
            Err(refusal) => return answered(refusal.plain()),
        };
        let key = user.key.clone();
        let writer = MessageWriteVec::new();
        if let Some(refusal) = Message::check_attribute_types(message, &KNOWN, &[], writer) {
            return answered(Answer::from(refusal).signed(&key));
        }
        match self.reply(message, program, user, now) {
            Ok(Reply::Open(opening)) => Step::Open(opening),
            Ok(Reply::Repeated(bytes)) => answered(bytes),
            Ok(Reply::Success(answer)) => answered(answer.signed(&key)),
            Ok(Reply::End(number, answer)) => {
                Step::End(number, answer.signed(&key).unwrap_or_default())
            }
            Err(code) => answered(Answer::error(message, code).signed(&key)),
        }
    }

    /// Returns the user, or the refusal.
    fn authenticate(
        &self,
        message: &Message<'_>,
        program: SocketAddr,
        now: Timestamp,
        unix_seconds: u64,
    ) -> Result<User, Answer> {
        let challenge = |code: u16| {
            let answer = Answer::error(message, code);
            let (realm, nonce) = (Realm::new(REALM), Nonce::new(&self.nonces.issue(program, now)));
            match (realm, nonce) {
                (Ok(realm), Ok(nonce)) => answer.with(&realm).with(&nonce),
                _ => answer,
            }
        };
        if !message.has_attribute(MessageIntegrity::TYPE) {
            return Err(challenge(ErrorCode::UNAUTHORIZED));
        }
        let (Ok(name), Ok(_), Ok(nonce)) = (
            message.attribute::<Username>(),
            message.attribute::<Realm>(),
            message.attribute::<Nonce>(),
        ) else {
            return Err(Answer::error(message, ErrorCode::BAD_REQUEST));
        };
        if !self.nonces.accepts(nonce.nonce(), program, now) {
            return Err(challenge(ErrorCode::STALE_NONCE));
        }
        let name = name.username();
        let own = self.own(program, now).map(|allocation| &allocation.opening);
        // An allocation outlives the time limit of its credentials.
        let key = match own.filter(|own| own.user == name) {
            Some(own) => Some(own.key.clone()),
            None => self.credentials.key(name, REALM, unix_seconds),
        };
        let key = key.filter(|key| message.validate_integrity_with_key(key).is_ok());
        let Some(key) = key else { return Err(challenge(ErrorCode::UNAUTHORIZED)) };
        if own.is_some_and(|own| own.user != name) {
            return Err(Answer::error(message, ErrorCode::WRONG_CREDENTIALS));
        }
        Ok(User { name: name.to_owned(), key })
    }

    /// The answer, or the code of an error.
    fn reply(
        &mut self,
        message: &Message<'_>,
        program: SocketAddr,
        user: User,
        now: Timestamp,
    ) -> Result<Reply, u16> {
        match message.method() {
            ALLOCATE => self.allocate(message, program, user, now),
            REFRESH => self.refresh(message, program, now),
            CREATE_PERMISSION => self.create_permission(message, program, now),
            CHANNEL_BIND => self.bind_channel(message, program, now),
            _ => Err(ErrorCode::BAD_REQUEST),
        }
    }

    fn allocate(
        &mut self,
        message: &Message<'_>,
        program: SocketAddr,
        user: User,
        now: Timestamp,
    ) -> Result<Reply, u16> {
        let transaction = message.transaction_id();
        if let Some(own) = self.own(program, now) {
            // The answer was lost.
            if own.opening.transaction == transaction {
                return Ok(Reply::Repeated(allocated(own, now)));
            }
            return Err(ErrorCode::ALLOCATION_MISMATCH);
        }
        // One whose time has passed is still to be ended.
        if self.allocations.contains_key(&program) {
            return Err(ErrorCode::ALLOCATION_MISMATCH);
        }
        let transport = message.attribute::<RequestedTransport>();
        match transport.map(|transport| transport.protocol()) {
            Ok(RequestedTransport::UDP) => {}
            Ok(_) => return Err(ErrorCode::UNSUPPORTED_TRANSPORT_PROTOCOL),
            Err(_) => return Err(ErrorCode::BAD_REQUEST),
        }
        let is_ipv6 = requested_family(message)? == Some(AddressFamily::IPV6);
        if self.allocations.len() >= MOST_ALLOCATIONS {
            return Err(ErrorCode::INSUFFICIENT_CAPACITY);
        }
        let owner = owner(&user.name);
        let is_of_owner = |one: &&Allocation| self::owner(&one.opening.user) == owner;
        if self.allocations.values().filter(is_of_owner).count() >= USER_ALLOCATIONS {
            return Err(ErrorCode::ALLOCATION_QUOTA_REACHED);
        }
        let (number, lifetime) = (self.next, lifetime(message)?);
        self.next += 1;
        let User { name: user, key } = user;
        let lifetime = lifetime.max(DEFAULT_LIFETIME);
        Ok(Reply::Open(Opening { number, program, is_ipv6, user, key, transaction, lifetime }))
    }

    fn refresh(
        &mut self,
        message: &Message<'_>,
        program: SocketAddr,
        now: Timestamp,
    ) -> Result<Reply, u16> {
        let lifetime = lifetime(message)?;
        let family = requested_family(message)?;
        let own = self.own_mut(program, now)?;
        if family.is_some_and(|family| (family == AddressFamily::IPV6) != own.relayed.is_ipv6()) {
            return Err(ErrorCode::PEER_ADDRESS_FAMILY_MISMATCH);
        }
        own.until = now + lifetime;
        let answer = success(message).with(&Lifetime::new(seconds(lifetime)));
        Ok(match lifetime.is_zero() {
            true => Reply::End(own.opening.number, answer),
            false => Reply::Success(answer),
        })
    }

    fn create_permission(
        &mut self,
        message: &Message<'_>,
        program: SocketAddr,
        now: Timestamp,
    ) -> Result<Reply, u16> {
        let mut peers: Vec<IpAddr> = Vec::new();
        for (_, attribute) in message.iter_attributes() {
            if attribute.get_type() == XorPeerAddress::TYPE {
                let peer = XorPeerAddress::from_raw(attribute).or(Err(ErrorCode::BAD_REQUEST))?;
                peers.push(peer.addr(message.transaction_id()).ip());
            }
        }
        peers.sort_unstable();
        peers.dedup();
        if peers.is_empty() {
            return Err(ErrorCode::BAD_REQUEST);
        }
        let is_allowed = peers.iter().all(|peer| self.destinations.may_allow_foreign(*peer));
        let own = self.own_mut(program, now)?;
        check_families(own, &peers)?;
        if !is_allowed {
            return Err(ErrorCode::FORBIDDEN);
        }
        own.permit(&peers, now).map_err(code)?;
        Ok(Reply::Success(success(message)))
    }

    fn bind_channel(
        &mut self,
        message: &Message<'_>,
        program: SocketAddr,
        now: Timestamp,
    ) -> Result<Reply, u16> {
        let channel = message.attribute::<ChannelNumber>().or(Err(ErrorCode::BAD_REQUEST))?;
        let peer = message.attribute::<XorPeerAddress>().or(Err(ErrorCode::BAD_REQUEST))?;
        let (channel, peer) = (channel.channel(), peer.addr(message.transaction_id()));
        if !CHANNELS.contains(&channel) {
            return Err(ErrorCode::BAD_REQUEST);
        }
        let is_allowed = self.destinations.allows_foreign(peer);
        let own = self.own_mut(program, now)?;
        check_families(own, &[peer.ip()])?;
        if !is_allowed {
            return Err(ErrorCode::FORBIDDEN);
        }
        own.bind(channel, peer, now).map_err(code)?;
        Ok(Reply::Success(success(message)))
    }

    fn own_mut(&mut self, program: SocketAddr, now: Timestamp) -> Result<&mut Allocation, u16> {
        let own = self.allocations.get_mut(&program).filter(|one| now < one.until);
        own.ok_or(ErrorCode::ALLOCATION_MISMATCH)
    }
}

/// The answer to an allocation that gets no socket.
pub(super) fn no_capacity(opening: &Opening) -> Option<Vec<u8>> {
    let kind = MessageType::from_class_method(MessageClass::Request, ALLOCATE);
    let asked = Message::builder(kind, opening.transaction, MessageWriteVec::new());
    let asked = Message::from_bytes(&asked).ok()?;
    let code = match opening.is_ipv6 {
        true => ErrorCode::ADDRESS_FAMILY_NOT_SUPPORTED,
        false => ErrorCode::INSUFFICIENT_CAPACITY,
    };
    Answer::error(&asked, code).signed(&opening.key)
}

fn success(message: &Message<'_>) -> Answer {
    Answer::success(message.method(), message.transaction_id())
}

/// Addresses of IPv4 written as IPv6 are of neither family.
fn check_families(own: &Allocation, peers: &[IpAddr]) -> Result<(), u16> {
    let fits =
        |peer: &IpAddr| peer.is_ipv6() == own.relayed.is_ipv6() && peer.to_canonical() == *peer;
    if peers.iter().all(fits) { Ok(()) } else { Err(ErrorCode::PEER_ADDRESS_FAMILY_MISMATCH) }
}

fn code(fault: PeerFault) -> u16 {
    match fault {
        PeerFault::TooMany => ErrorCode::INSUFFICIENT_CAPACITY,
        PeerFault::Taken => ErrorCode::BAD_REQUEST,
    }
}

/// The lifetime that a request gets; zero: the allocation shall end.
fn lifetime(message: &Message<'_>) -> Result<Duration, u16> {
    if !message.has_attribute(Lifetime::TYPE) {
        return Ok(DEFAULT_LIFETIME);
    }
    let wished = message.attribute::<Lifetime>().or(Err(ErrorCode::BAD_REQUEST))?;
    let wished = Duration::from_secs(wished.seconds().into());
    Ok(if wished.is_zero() { wished } else { wished.clamp(DEFAULT_LIFETIME, LONGEST_LIFETIME) })
}

fn requested_family(message: &Message<'_>) -> Result<Option<AddressFamily>, u16> {
    if !message.has_attribute(RequestedAddressFamily::TYPE) {
        return Ok(None);
    }
    let family = message.attribute::<RequestedAddressFamily>();
    family.map(|family| Some(family.family())).or(Err(ErrorCode::ADDRESS_FAMILY_NOT_SUPPORTED))
}

/// The user without the time limit in front of a name.
fn owner(user: &str) -> &str {
    match user.split_once(':') {
        Some((time, owner)) if time.parse::<u64>().is_ok() => owner,
        None if user.parse::<u64>().is_ok() => "",
        _ => user,
    }
}
