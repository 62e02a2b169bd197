//! Base connections: numbered datagrams with a tag that only their own ends can make, and the server.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::places::{PLACES, Party};
use super::verdict::{Kept, Oracle};

/// Length of a datagram.
const LENGTH: usize = 160;
/// Offset of the fields; the header of the protocol precedes them.
const FIELDS: usize = 40;

/// Connection of the client without assistance, connections that begin in the name of a place, and
/// the first one of the attackers.
pub(super) const PLAIN_CONNECTION: u16 = 50;
pub(super) const STRANGERS_FIRST: u16 = 60;
pub(super) const ATTACKERS_FIRST: u16 = 100;

/// A datagram of a base connection. Connection and number travel in the clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) connection: u16,
    pub(super) number: u64,
    pub(super) to_server: bool,
    /// The result of the server's own path validation, as the client alone knows it: it receives at
    /// the address that it sends this from.
    pub(super) is_reachable: bool,
    /// True if an end of the connection has made it.
    pub(super) is_authentic: bool,
}

fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Two words that follow from an input, scattered.
pub(super) fn scatter(input: u64) -> u64 {
    mix(input.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

impl Packet {
    fn tag(&self) -> u128 {
        let which = u64::from(self.connection) << 48 ^ u64::from(self.to_server) << 47;
        let first = scatter(which ^ self.number);
        u128::from(first) << 64 | u128::from(scatter(first))
    }

    /// The datagram. `header`: its first bytes.
    pub(super) fn encode(&self, header: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0x5a; LENGTH];
        let header = &header[..header.len().min(FIELDS)];
        datagram[..header.len()].copy_from_slice(header);
        let fields = &mut datagram[FIELDS..];
        fields[0] = u8::from(self.to_server);
        fields[1] = u8::from(self.is_reachable);
        fields[2..4].copy_from_slice(&self.connection.to_be_bytes());
        fields[4..12].copy_from_slice(&self.number.to_be_bytes());
        let tag = if self.is_authentic { self.tag() } else { self.tag() ^ (1 << 77 | 1) };
        datagram[LENGTH - 16..].copy_from_slice(&tag.to_be_bytes());
        datagram
    }

    /// The packet in a datagram, if there is one.
    pub(super) fn decode(datagram: &[u8]) -> Option<Self> {
        if datagram.len() != LENGTH {
            return None;
        }
        let fields = &datagram[FIELDS..];
        let connection = u16::from_be_bytes(*fields[2..].first_chunk()?);
        let number = u64::from_be_bytes(*fields[4..].first_chunk()?);
        let (to_server, is_reachable) = (fields[0] == 1, fields[1] == 1);
        let packet = Self { connection, number, to_server, is_reachable, is_authentic: true };
        let is_authentic = *datagram.last_chunk::<16>()? == packet.tag().to_be_bytes();
        Some(Self { is_authentic, ..packet })
    }
}

/// The party whose connection it is.
pub(super) fn owner_of(connection: u16) -> Party {
    match connection {
        PLAIN_CONNECTION => Party::Plain,
        STRANGERS_FIRST..ATTACKERS_FIRST => {
            Party::Stranger(usize::from(connection - STRANGERS_FIRST) % PLACES.len())
        }
        ATTACKERS_FIRST.. => Party::Attacker,
        number => Party::Honest(usize::from(number)),
    }
}

/// A header of QUIC's with the sender's connection ID (RFC 8999, section 5.1).
pub(super) fn long_header(destination: &[u8], source: &[u8]) -> Vec<u8> {
    let lengths = [&[destination.len() as u8][..], destination, &[source.len() as u8], source];
    [&[0xc1, 0, 0, 0, 1][..], &lengths.concat()].concat()
}

/// The connection IDs in such a header: the receiver's, and the sender's.
pub(super) fn connection_ids(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = datagram.strip_prefix(&[0xc1, 0, 0, 0, 1])?;
    let (&length, rest) = rest.split_first()?;
    let (destination, rest) = rest.split_at_checked(usize::from(length))?;
    let (&length, rest) = rest.split_first()?;
    Some((destination, rest.get(..usize::from(length))?))
}

/// The first bytes of a STUN message (RFC 8489, section 5).
pub(super) fn stun_header(kind: u16, transaction: &[u8; 12]) -> Vec<u8> {
    let [high, low] = kind.to_be_bytes();
    [&[high, low, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], transaction].concat()
}

/// The connection ID that the server chooses, at random.
fn server_connection_id(connection: u16) -> [u8; 8] {
    scatter(0x5e7e_7000_0000_0000 ^ u64::from(connection)).to_be_bytes()
}

/// The server's first datagrams, from which a client learns that connection ID.
const OPENING: u64 = 4;
/// Bytes that the server sends to an unproven address, for each byte from there (RFC 9000, section
/// 8.1).
const SERVERS_FACTOR: u64 = 3;

/// A connection whose client's address is unproven for the server.
#[derive(Debug, Default)]
struct Unproven {
    received: u64,
    sent: u64,
    next: u64,
}

/// The server's end of a connection.
#[derive(Debug)]
struct Connection {
    /// The gateway's socket through which it speaks with its client.
    session: u64,
    /// The highest number that it has received.
    received: u64,
    next: u64,
    next_at: Timestamp,
    /// Datagrams to send at once.
    burst: u64,
}

/// Paces of the server's connections.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Flows {
    /// The first client gets enough datagrams that symbols are worth their bytes.
    pub(super) fast: bool,
    /// The client without assistance is sent so little that copies of all of it may follow.
    pub(super) sparse: bool,
}

/// The server.
#[derive(Debug, Default)]
pub(super) struct Server {
    connections: BTreeMap<u16, Connection>,
    /// The party that a socket of the gateway stands for.
    spoken_for: BTreeMap<u64, Party>,
    unproven: BTreeMap<u16, Unproven>,
    /// Datagrams to them, and the gateway's socket that each goes to.
    answers: VecDeque<(u64, Vec<u8>)>,
    flows: Flows,
}

/// Time of a connection's datagram after the one at `at`: two of three clients receive in bursts.
fn after(connection: u16, at: Timestamp, flows: Flows) -> Timestamp {
    match owner_of(connection) {
        Party::Plain if flows.sparse => at + Duration::from_millis(20),
        Party::Honest(number) => {
            let interval = match number == 0 && flows.fast {
                true => Duration::from_micros(300),
                false => Duration::from_millis(1 + number as u64),
            };
            let next = at + interval;
            let period = 500_000;
            let phase = next.as_micros() % period;
            if phase > 150_000 { next + Duration::from_micros(period - phase) } else { next }
        }
        _ => at + Duration::from_millis(10),
    }
}

impl Server {
    pub(super) fn new(flows: Flows) -> Self {
        Self { flows, ..Self::default() }
    }

    /// A datagram has come through a socket of the gateway.
    pub(super) fn receive(&mut self, session: u64, datagram: &[u8], now: Timestamp) -> Kept {
        let Some(packet) = Packet::decode(datagram).filter(|packet| packet.to_server) else {
            return Ok(());
        };
        if !packet.is_authentic {
            return Ok(());
        }
        let owner = owner_of(packet.connection);
        if let Party::Stranger(_) = owner {
            self.answer_stranger(session, datagram, packet);
            return Ok(());
        }
        // An attacker's datagram in another's name represents no party.
        if packet.is_reachable || owner != Party::Attacker {
            let stands_for = *self.spoken_for.entry(session).or_insert(owner);
            Oracle::Addresses.is_kept(stands_for == owner, || {
                format!("what {owner:?} says comes through the session of {stands_for:?}")
            })?;
        }
        if !packet.is_reachable {
            return Ok(());
        }
        let connection = self.connections.entry(packet.connection).or_insert(Connection {
            session,
            received: 0,
            next: 0,
            next_at: after(packet.connection, now, self.flows),
            burst: 0,
        });
        if packet.number >= connection.received {
            connection.received = packet.number;
            connection.session = session;
        }
        Ok(())
    }

    /// Answers the beginning of a connection whose client may be anywhere. It takes the client's
    /// name for itself if the number is odd, and an agent of ICE sends a question of its client's
    /// back.
    fn answer_stranger(&mut self, session: u64, datagram: &[u8], packet: Packet) {
        let unproven = self.unproven.entry(packet.connection).or_default();
        unproven.received += datagram.len() as u64;
        let header = match connection_ids(datagram) {
            Some((destination, source)) if packet.number & 1 == 1 => {
                long_header(source, destination)
            }
            Some((_, source)) => long_header(source, &server_connection_id(packet.connection)),
            None => datagram[..20].to_vec(),
        };
        while unproven.sent + LENGTH as u64 <= unproven.received * SERVERS_FACTOR {
            let answer = Packet { number: unproven.next, to_server: false, ..packet };
            unproven.next += 1;
            unproven.sent += LENGTH as u64;
            self.answers.push_back((session, answer.encode(&header)));
            // One answers one question, and a flight the first of them.
            if unproven.next > 3 {
                break;
            }
        }
    }

    /// Makes the server send this many more datagrams, at once.
    pub(super) fn ask(&mut self, connection: u16, datagrams: u64) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.burst += datagrams;
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        let at = |connection: &Connection| match connection.burst {
            0 => connection.next_at,
            _ => Timestamp::ZERO,
        };
        let answer = self.answers.front().map(|_| Timestamp::ZERO);
        self.connections.values().map(at).chain(answer).min()
    }

    /// The next datagram that is due, and the gateway's socket that it goes to.
    pub(super) fn poll(&mut self, now: Timestamp) -> Option<(u64, Vec<u8>)> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        let due = |connection: &Connection| connection.burst > 0 || connection.next_at <= now;
        let (&number, connection) =
            self.connections.iter_mut().find(|(_, connection)| due(connection))?;
        if connection.burst > 0 {
            connection.burst -= 1;
        } else {
            connection.next_at = after(number, connection.next_at, self.flows);
        }
        let packet = Packet {
            connection: number,
            number: connection.next,
            to_server: false,
            is_reachable: true,
            is_authentic: true,
        };
        connection.next += 1;
        let header = match packet.number {
            0..OPENING => long_header(&[], &server_connection_id(number)),
            _ => vec![0x41],
        };
        Some((connection.session, packet.encode(&header)))
    }
}
