//! Base connections: numbered datagrams with a tag that only their own ends can make, and the server.

use std::collections::BTreeMap;
use std::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::places::Party;
use super::verdict::{Oracle, Violation};

/// Length of a datagram.
const LENGTH: usize = 160;

/// Connection of the client without assistance, and the first one of the attackers.
pub(super) const PLAIN_CONNECTION: u16 = 50;
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

    /// The datagram. `header`: its first byte.
    pub(super) fn encode(&self, header: u8) -> Vec<u8> {
        let mut datagram = vec![0x5a; LENGTH];
        datagram[0] = header;
        datagram[1] = u8::from(self.to_server);
        datagram[2] = u8::from(self.is_reachable);
        datagram[3..5].copy_from_slice(&self.connection.to_be_bytes());
        datagram[5..13].copy_from_slice(&self.number.to_be_bytes());
        let tag = if self.is_authentic { self.tag() } else { self.tag() ^ (1 << 77 | 1) };
        datagram[LENGTH - 16..].copy_from_slice(&tag.to_be_bytes());
        datagram
    }

    /// The packet in a datagram; `None` if there is none.
    pub(super) fn decode(datagram: &[u8]) -> Option<Self> {
        if datagram.len() != LENGTH {
            return None;
        }
        let connection = u16::from_be_bytes(*datagram[3..].first_chunk()?);
        let number = u64::from_be_bytes(*datagram[5..].first_chunk()?);
        let (to_server, is_reachable) = (datagram[1] == 1, datagram[2] == 1);
        let packet = Self { connection, number, to_server, is_reachable, is_authentic: true };
        let is_authentic = *datagram.last_chunk::<16>()? == packet.tag().to_be_bytes();
        Some(Self { is_authentic, ..packet })
    }
}

/// The party whose connection it is.
pub(super) fn owner_of(connection: u16) -> Party {
    match connection {
        PLAIN_CONNECTION => Party::Plain,
        ATTACKERS_FIRST.. => Party::Attacker,
        number => Party::Honest(usize::from(number)),
    }
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

/// The server.
#[derive(Debug, Default)]
pub(super) struct Server {
    connections: BTreeMap<u16, Connection>,
    /// The party that a socket of the gateway stands for.
    spoken_for: BTreeMap<u64, Party>,
}

/// Time of a connection's datagram after the one at `at`: two of three clients receive in bursts.
fn after(connection: u16, at: Timestamp) -> Timestamp {
    match owner_of(connection) {
        Party::Honest(number) => {
            let next = at + Duration::from_millis(1 + number as u64);
            let period = 500_000;
            let phase = next.as_micros() % period;
            if phase > 150_000 { next + Duration::from_micros(period - phase) } else { next }
        }
        _ => at + Duration::from_millis(10),
    }
}

impl Server {
    /// A datagram has come through a socket of the gateway.
    pub(super) fn receive(
        &mut self,
        session: u64,
        datagram: &[u8],
        now: Timestamp,
    ) -> Result<(), Violation> {
        let Some(packet) = Packet::decode(datagram).filter(|packet| packet.to_server) else {
            return Ok(());
        };
        if !packet.is_authentic {
            return Ok(());
        }
        let owner = owner_of(packet.connection);
        // What an attacker sends in another's name stands for no one.
        if packet.is_reachable || owner != Party::Attacker {
            let stands_for = *self.spoken_for.entry(session).or_insert(owner);
            if stands_for != owner {
                return Err(Violation::new(
                    Oracle::Addresses,
                    format!("what {owner:?} says comes through the session of {stands_for:?}"),
                ));
            }
        }
        if !packet.is_reachable {
            return Ok(());
        }
        let connection = self.connections.entry(packet.connection).or_insert(Connection {
            session,
            received: 0,
            next: 0,
            next_at: after(packet.connection, now),
            burst: 0,
        });
        if packet.number >= connection.received {
            connection.received = packet.number;
            connection.session = session;
        }
        Ok(())
    }

    /// Has the server send so many datagrams more, at once.
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
        self.connections.values().map(at).min()
    }

    /// The next datagram that is due, and the gateway's socket that it goes to.
    pub(super) fn poll(&mut self, now: Timestamp) -> Option<(u64, Packet)> {
        let due = |connection: &Connection| connection.burst > 0 || connection.next_at <= now;
        let (&number, connection) =
            self.connections.iter_mut().find(|(_, connection)| due(connection))?;
        if connection.burst > 0 {
            connection.burst -= 1;
        } else {
            connection.next_at = after(number, connection.next_at);
        }
        let packet = Packet {
            connection: number,
            number: connection.next,
            to_server: false,
            is_reachable: true,
            is_authentic: true,
        };
        connection.next += 1;
        Some((connection.session, packet))
    }
}
