//! The TURN server of an agent, sans-IO (RFC 8656, over UDP): a browser's page, or another program
//! that knows TURN, reaches its peers through the agent's flows.
//!
//! ```text
//!   program ---- TURN ----> listener ---- Server ----> flow to one peer ----> gateway, peer
//!           <-- channels --                      <---- flow to another  <----
//! ```
//!
//! An allocation's flows share one socket, whose address is the relayed address. Time is the
//! caller's; randomness is one key.

mod allocation;
mod answer;
#[cfg(any(test, fuzzing))]
mod check;
#[cfg(any(test, fuzzing))]
#[allow(clippy::unwrap_used)] // a test may fail anywhere
mod client;
mod credentials;
mod request;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use packrat_client::Timestamp;
use turn_types::attribute::{Data, Lifetime, XorPeerAddress, XorRelayedAddress};
use turn_types::channel::ChannelData;
use turn_types::message::{ALLOCATE, SEND};
use turn_types::stun::attribute::XorMappedAddress;
use turn_types::stun::message::{BINDING, Message, MessageClass, MessageHeader};
use turn_types::stun::prelude::{Attribute, AttributeStaticType};

use crate::allow::Destinations;
use allocation::Allocation;
pub(crate) use allocation::Opening;
use answer::Answer;
pub(crate) use answer::{channel_header, indication};
#[cfg(fuzzing)]
#[allow(unused_imports)]
pub(crate) use check::check;
use credentials::Nonces;
pub use credentials::TurnCredentials;

/// The name of the server's users as a whole, which is a part of their keys.
const REALM: &str = "packrat";
/// Allocations at the same time, each with a socket.
pub const MOST_ALLOCATIONS: usize = 256;
/// Most allocations of one user.
const USER_ALLOCATIONS: usize = 64;
/// Bytes in front of an attribute's value.
const ATTRIBUTE_HEADER_BYTES: usize = 4;

/// The answer to a program's datagram.
pub(crate) enum Step<'a> {
    /// Bytes for the program.
    Answer(Vec<u8>),
    /// A datagram of an allocation for a peer.
    Relay(usize, SocketAddr, &'a [u8]),
    /// An allocation begins with a socket: call [`Server::opened`].
    Open(Opening),
    /// An allocation has ended; bytes for the program.
    End(usize, Vec<u8>),
    /// The datagram is malformed, a peer is not permitted, or no allocation is there: silence.
    Refused,
}

/// The allocations of all programs.
pub(crate) struct Server {
    credentials: TurnCredentials,
    destinations: Destinations,
    nonces: Nonces,
    allocations: HashMap<SocketAddr, Allocation>,
    programs: HashMap<usize, SocketAddr>,
    next: usize,
}

impl Server {
    /// Creates a server. `key`: 32 fresh random bytes.
    pub(crate) fn new(
        credentials: TurnCredentials,
        destinations: Destinations,
        key: [u8; 32],
    ) -> Self {
        Self {
            credentials,
            destinations,
            nonces: Nonces(key),
            allocations: HashMap::new(),
            programs: HashMap::new(),
            next: 0,
        }
    }

    /// Called for a program's datagram. `unix_seconds` is the time of day.
    pub(crate) fn on_datagram<'a>(
        &mut self,
        program: SocketAddr,
        datagram: &'a [u8],
        now: Timestamp,
        unix_seconds: impl FnOnce() -> u64,
    ) -> Step<'a> {
        if matches!(datagram.first(), Some(0x40..)) {
            return self.on_channel_data(program, datagram, now);
        }
        let Ok(message) = Message::from_bytes(datagram) else { return Step::Refused };
        let is_whole = MessageHeader::from_bytes(datagram).is_ok_and(|header| {
            MessageHeader::LENGTH + usize::from(header.data_length()) == datagram.len()
        });
        match (message.class(), message.method()) {
            _ if !is_whole => Step::Refused,
            (MessageClass::Request, BINDING) => bind(&message, program),
            (MessageClass::Request, _) => self.on_request(&message, program, now, unix_seconds()),
            (MessageClass::Indication, SEND) => self.on_send(program, datagram, &message, now),
            _ => Step::Refused,
        }
    }

    /// Called when an allocation has its socket: returns the answer for the program. `None`: there
    /// is no socket for it.
    pub(crate) fn opened(
        &mut self,
        opening: Opening,
        relayed: Option<SocketAddr>,
        now: Timestamp,
    ) -> Option<Vec<u8>> {
        let Opening { program, number, .. } = opening;
        let Some(relayed) = relayed else { return request::no_capacity(&opening) };
        let allocation = Allocation::new(opening, relayed, now);
        let answer = allocated(&allocation, now);
        self.programs.insert(number, program);
        self.allocations.insert(program, allocation);
        answer
    }

    /// True if a peer at this address may send to a program through its allocation.
    pub(crate) fn permits(&self, number: usize, peer: IpAddr, now: Timestamp) -> bool {
        self.numbered(number).is_some_and(|one| now < one.until && one.permits(peer, now))
    }

    /// The channel of a peer; `None`: its datagrams go to the program in indications.
    pub(crate) fn channel(&self, number: usize, peer: SocketAddr) -> Option<u16> {
        self.numbered(number)?.channel(peer)
    }

    /// The program of an allocation.
    pub(crate) fn program(&self, number: usize) -> Option<SocketAddr> {
        self.programs.get(&number).copied()
    }

    /// Forgets permissions and channels whose time has passed, and names such allocations.
    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<usize> {
        self.allocations.values_mut().for_each(|allocation| allocation.expire(now));
        let over = self.allocations.values().filter(|allocation| now >= allocation.until);
        over.map(|allocation| allocation.opening.number).collect()
    }

    /// Forgets an allocation.
    pub(crate) fn end(&mut self, number: usize) {
        if let Some(program) = self.programs.remove(&number)
            && self.allocations.get(&program).is_some_and(|one| one.opening.number == number)
        {
            self.allocations.remove(&program);
        }
    }

    fn numbered(&self, number: usize) -> Option<&Allocation> {
        self.allocations.get(self.programs.get(&number)?)
    }

    /// The allocation of a program.
    fn own(&self, program: SocketAddr, now: Timestamp) -> Option<&Allocation> {
        self.allocations.get(&program).filter(|allocation| now < allocation.until)
    }

    fn on_channel_data<'a>(
        &self,
        program: SocketAddr,
        datagram: &'a [u8],
        now: Timestamp,
    ) -> Step<'a> {
        let Ok((channel, length)) = ChannelData::parse_header(datagram) else {
            return Step::Refused;
        };
        let payload = datagram.get(ATTRIBUTE_HEADER_BYTES..).and_then(|rest| rest.get(..length));
        let allocation = self.own(program, now);
        let peer = allocation.and_then(|allocation| allocation.peer(channel, now));
        match (allocation, peer, payload) {
            (Some(allocation), Some(peer), Some(payload)) => {
                Step::Relay(allocation.opening.number, peer, payload)
            }
            _ => Step::Refused,
        }
    }

    fn on_send<'a>(
        &self,
        program: SocketAddr,
        datagram: &'a [u8],
        message: &Message<'_>,
        now: Timestamp,
    ) -> Step<'a> {
        let known = [XorPeerAddress::TYPE, Data::TYPE];
        let is_understood = message.iter_attributes().all(|(_, attribute)| {
            let kind = attribute.get_type();
            !kind.comprehension_required() || known.contains(&kind)
        });
        let peer = message.attribute::<XorPeerAddress>().ok();
        let peer = peer.map(|peer| peer.addr(message.transaction_id()));
        let payload = message.raw_attribute_and_offset(Data::TYPE).and_then(|(offset, data)| {
            let from = offset + ATTRIBUTE_HEADER_BYTES;
            datagram.get(from..from + usize::from(data.length()))
        });
        let (Some(allocation), Some(peer), Some(payload)) = (self.own(program, now), peer, payload)
        else {
            return Step::Refused;
        };
        let may_leave = is_understood
            && allocation.permits(peer.ip(), now)
            && self.destinations.allows_foreign(peer);
        if may_leave {
            Step::Relay(allocation.opening.number, peer, payload)
        } else {
            Step::Refused
        }
    }
}

/// Tells a program its address, as any STUN server does.
fn bind(message: &Message<'_>, program: SocketAddr) -> Step<'static> {
    let transaction = message.transaction_id();
    let answer = Answer::success(BINDING, transaction);
    let answer = answer.with(&XorMappedAddress::new(program, transaction)).plain();
    answer.map_or(Step::Refused, Step::Answer)
}

/// The answer to an allocation's first request, however often it comes.
fn allocated(allocation: &Allocation, now: Timestamp) -> Option<Vec<u8>> {
    let Opening { program, transaction, key, .. } = &allocation.opening;
    let left = allocation.until.saturating_since(now);
    Answer::success(ALLOCATE, *transaction)
        .with(&XorRelayedAddress::new(allocation.relayed, *transaction))
        .with(&XorMappedAddress::new(*program, *transaction))
        .with(&Lifetime::new(seconds(left)))
        .signed(key)
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}
