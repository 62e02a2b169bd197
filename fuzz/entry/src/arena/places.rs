//! Addresses, and who receives at them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::LazyLock;

use super::verdict::{Margins, Oracle, Violation};

/// A party of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    /// An assisted client.
    Honest(usize),
    /// A client without assistance.
    Plain,
    /// All attackers are one: they tell each other everything.
    Attacker,
    /// A host that has nothing to do with the gateway.
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
/// Where the assisted clients are, and where a NAT takes the second one.
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

/// An address that no one has.
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
pub(super) struct Ledger(HashMap<SocketAddr, Account>);

#[derive(Debug, Default)]
struct Account {
    received: u64,
    /// Bytes of the gateway's own: handshakes, messages, repairs.
    sent: u64,
    /// Its owner has sent something from there after something had been sent to it.
    is_validated: bool,
}

impl Ledger {
    /// A datagram comes from an address. `is_owner`: from who receives there.
    pub(super) fn receive(&mut self, from: SocketAddr, length: usize, is_owner: bool) {
        let account = self.0.entry(from).or_default();
        account.received += length as u64;
        account.is_validated |= is_owner && account.sent > 0;
    }

    /// The gateway sends something of its own to an address.
    pub(super) fn send(
        &mut self,
        to: SocketAddr,
        length: usize,
        margins: &mut Margins,
    ) -> Result<(), Violation> {
        let account = self.0.entry(to).or_default();
        account.sent += length as u64;
        if account.is_validated {
            return Ok(());
        }
        let (sent, received) = (account.sent, account.received);
        margins.note_amplification(sent, received);
        if sent > received * Margins::MOST_AMPLIFICATION {
            return Err(Violation::new(
                Oracle::Addresses,
                format!("{to}, which has proved nothing, was sent {sent} bytes for {received}"),
            ));
        }
        Ok(())
    }
}
