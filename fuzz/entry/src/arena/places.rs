//! Addresses, and who receives at them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::LazyLock;

use packrat_engine::NetworkPath;

use super::verdict::{Kept, Margins, Oracle};

/// A party of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    /// An assisted client.
    Honest(usize),
    /// A client without assistance.
    Plain,
    /// An attacker has begun this connection, in the name of this place.
    Stranger(usize),
    /// All attackers count as one: they share all their knowledge.
    Attacker,
    /// A host without any relation to the gateway.
    Bystander,
}

/// The addresses that the parties receive at. Anyone can send from each of them.
pub(super) const PLACES: [(&str, Party); 9] = [
    ("198.51.100.1:5000", Party::Attacker),
    ("198.51.100.1:5001", Party::Attacker),
    ("203.0.113.77:6000", Party::Attacker),
    ("192.0.2.1:4000", Party::Honest(0)),
    ("192.0.2.2:4001", Party::Honest(1)),
    ("192.0.2.2:4999", Party::Honest(1)),
    ("192.0.2.3:4100", Party::Plain),
    ("192.0.2.9:53", Party::Bystander),
    ("198.51.100.5:123", Party::Bystander),
];
/// The first of them that are the attackers' own.
pub(super) const OWN: usize = 3;
/// Places of the assisted clients, and the place to which a NAT takes the second one.
pub(super) const HONEST: [usize; 2] = [3, 4];
pub(super) const REBOUND: usize = 5;
pub(super) const PLAIN: usize = 6;

/// The gateway's addresses.
pub(super) const LISTENERS: [&str; 2] = ["192.0.2.250:443", "192.0.2.251:443"];

pub(super) fn address(text: &str) -> SocketAddr {
    text.parse().expect("a written address")
}

static ADDRESSES: LazyLock<[SocketAddr; PLACES.len()]> =
    LazyLock::new(|| PLACES.map(|(text, _)| address(text)));

pub(super) fn place(number: usize) -> SocketAddr {
    ADDRESSES[number % PLACES.len()]
}

/// An unused address.
pub(super) fn nowhere(number: u64) -> SocketAddr {
    let [high, low, port, more, ..] = number.to_be_bytes();
    SocketAddr::from(([198, 18, high, low], u16::from_be_bytes([port, more | 1])))
}

pub(super) fn party_at(client: SocketAddr) -> Option<Party> {
    let place = ADDRESSES.iter().position(|address| *address == client)?;
    Some(PLACES[place].1)
}

/// Bytes from and to each address until its owner has proved to receive there.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    accounts: HashMap<SocketAddr, Account>,
    /// Account of each path: a flow's copies follow from the datagrams of its own path.
    paths: HashMap<NetworkPath, PathAccount>,
}

#[derive(Debug, Default)]
struct Account {
    received: u64,
    /// Bytes of the gateway's own: handshakes, messages, repairs.
    sent: u64,
    /// Set once the owner has sent a datagram from there after receiving one.
    is_validated: bool,
}

#[derive(Debug, Default)]
struct PathAccount {
    received: u64,
    /// All bytes to the client, the server's among them.
    sent: u64,
    /// Set once the owner has sent a datagram on the path after receiving one.
    is_validated: bool,
}

impl Ledger {
    /// A datagram comes from an address. `is_owner`: from who receives there.
    pub(super) fn receive(&mut self, path: NetworkPath, length: usize, is_owner: bool) {
        let account = self.accounts.entry(path.client).or_default();
        account.received += length as u64;
        account.is_validated |= is_owner && account.sent > 0;
        let account = self.paths.entry(path).or_default();
        account.received += length as u64;
        account.is_validated |= is_owner && account.sent > 0;
    }

    /// A datagram of the server goes to an address.
    pub(super) fn forward(&mut self, path: NetworkPath, length: usize) {
        self.paths.entry(path).or_default().sent += length as u64;
    }

    /// Records that the gateway sends a server's datagram again, to a client without a session.
    pub(super) fn copy(&mut self, path: NetworkPath, length: usize, margins: &mut Margins) -> Kept {
        let account = self.paths.entry(path).or_default();
        account.sent += length as u64;
        if account.is_validated || self.is_validated(path.client) {
            return Ok(());
        }
        let PathAccount { sent, received, .. } = self.paths[&path];
        margins.copied = margins.copied.max(sent as f64 / received.max(1) as f64);
        Oracle::Addresses.is_kept(sent <= received * Margins::MOST_WITH_COPIES, || {
            let to = path.client;
            format!("{to}, which has proved nothing, was sent {sent} bytes, the last one a copy, for {received}")
        })
    }

    /// True if the owner of an address has proved to the gateway that it is there.
    pub(super) fn is_validated(&self, address: SocketAddr) -> bool {
        self.accounts.get(&address).is_some_and(|account| account.is_validated)
    }

    /// The gateway sends something of its own to an address.
    pub(super) fn send(&mut self, path: NetworkPath, length: usize, margins: &mut Margins) -> Kept {
        let to = path.client;
        self.paths.entry(path).or_default().sent += length as u64;
        let account = self.accounts.entry(to).or_default();
        account.sent += length as u64;
        if account.is_validated {
            return Ok(());
        }
        let (sent, received) = (account.sent, account.received);
        margins.note_amplification(sent, received);
        Oracle::Addresses.is_kept(sent <= received * Margins::MOST_AMPLIFICATION, || {
            format!("{to}, which has proved nothing, was sent {sent} bytes for {received}")
        })
    }
}
