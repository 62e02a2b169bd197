//! An honest client: the client's core, and a transport above it that authenticates what it is
//! given.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use packrat_client::{Assist, AssistState, ClientConfig, Datagram, PacketNumber};
use packrat_wire::estimate::Timestamp;

use super::base::{PLAIN_CONNECTION, Packet};
use super::verdict::{Margins, Oracle, Violation};

const MAXIMUM_HOLD: Duration = Margins::LONGEST_HOLD;
/// Timers are late by as much, at most.
const GRACE: Duration = Duration::from_millis(2);
/// Time after which it asks again, as long as it has no answer.
const REPEAT: Duration = Duration::from_millis(200);
/// Datagrams that it answers with one of its own.
const ANSWERED: usize = 8;

/// A client of the base connection, with the core of a client of Packrat or without.
#[derive(Debug)]
pub(super) struct Honest {
    pub(super) connection: u16,
    /// Where it is.
    pub(super) place: usize,
    assist: Option<Assist>,
    next_up: u64,
    /// When it speaks again if it has no answer by then.
    repeats: Timestamp,
    unanswered: usize,
    /// Authentic datagrams that the transport has not been given yet: number, arrival.
    kept: BTreeMap<u64, Timestamp>,
    /// Numbers that are missing, since a higher one arrived.
    missing: BTreeMap<u64, Timestamp>,
    expected: u64,
    /// Numbers that were delivered, and when.
    pub(super) delivered: BTreeMap<u64, Timestamp>,
    /// Numbers whose first copy the last mile has lost.
    pub(super) lost: BTreeSet<u64>,
    outgoing: VecDeque<Vec<u8>>,
}

impl Honest {
    pub(super) fn new(connection: u16, place: usize, now: Timestamp) -> Self {
        let config = ClientConfig::default().with_maximum_hold(MAXIMUM_HOLD);
        let seed = [connection as u8 + 1; 32];
        let assist = (connection != PLAIN_CONNECTION).then(|| Assist::new(config, seed, now));
        Self {
            connection,
            place,
            assist,
            next_up: 0,
            repeats: now + REPEAT,
            unanswered: 0,
            kept: BTreeMap::new(),
            missing: BTreeMap::new(),
            expected: 0,
            delivered: BTreeMap::new(),
            lost: BTreeSet::new(),
            outgoing: VecDeque::new(),
        }
    }

    /// Says something in the base connection. `header`: the first byte.
    pub(super) fn speak(&mut self, header: u8) {
        let packet = Packet {
            connection: self.connection,
            number: self.next_up,
            to_server: true,
            is_reachable: true,
            is_authentic: true,
        };
        self.next_up += 1;
        self.outgoing.push_back(packet.encode(header));
    }

    pub(super) fn is_assisted(&self) -> bool {
        let state = self.assist.as_ref().map(|assist| assist.stats().state);
        state == Some(AssistState::Established)
    }

    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        let repeats = self.delivered.is_empty().then_some(self.repeats);
        let assist = self.assist.as_ref().and_then(Assist::next_timeout);
        repeats.into_iter().chain(assist).min()
    }

    /// A datagram has arrived, from the gateway or in its name.
    pub(super) fn receive(
        &mut self,
        datagram: &[u8],
        now: Timestamp,
        margins: &mut Margins,
    ) -> Result<(), Violation> {
        let Some(assist) = &mut self.assist else {
            if let Some(packet) = authentic(self.connection, datagram) {
                self.deliver(packet.number, now, now, margins)?;
            }
            return Ok(());
        };
        if assist.on_datagram(datagram, now) == Datagram::Control {
            return self.look_after(now, margins);
        }
        // What is not authentic is dropped: the client forgets it.
        if let Some(packet) = authentic(self.connection, datagram) {
            assist.on_packet_number(PacketNumber::new(packet.number), now);
            self.note_arrival(packet.number, now);
            self.kept.entry(packet.number).or_insert(now);
        }
        self.look_after(now, margins)
    }

    fn note_arrival(&mut self, number: u64, now: Timestamp) {
        for missing in self.expected..number {
            self.missing.insert(missing, now);
        }
        self.expected = self.expected.max(number + 1);
        self.missing.remove(&number);
    }

    fn deliver(
        &mut self,
        number: u64,
        arrived: Timestamp,
        now: Timestamp,
        margins: &mut Margins,
    ) -> Result<(), Violation> {
        self.note_arrival(number, now);
        let kept = now.saturating_since(arrived);
        margins.kept = margins.kept.max(kept);
        if kept > MAXIMUM_HOLD + GRACE {
            let text = format!("{number} of {} was kept for {kept:?}", self.connection);
            return Err(Violation::new(Oracle::Delay, text));
        }
        if self.delivered.insert(number, arrived).is_none() {
            self.unanswered += 1;
            if self.unanswered == ANSWERED {
                self.unanswered = 0;
                self.speak(0x41);
            }
        }
        Ok(())
    }

    /// Gives the transport what it may have, and sees that it need not wait for the rest.
    fn look_after(&mut self, now: Timestamp, margins: &mut Margins) -> Result<(), Violation> {
        let Some(assist) = &mut self.assist else { return Ok(()) };
        let mut delivered = Vec::new();
        while let Some((&number, &arrived)) = self.kept.first_key_value() {
            let packet = PacketNumber::new(number);
            if packet > assist.deliverable() {
                break;
            }
            self.kept.pop_first();
            delivered.push((number, arrived));
        }
        let awaited = self.missing.iter().find(|(number, since)| {
            now.saturating_since(**since) > MAXIMUM_HOLD + GRACE
                && assist.is_awaited(PacketNumber::new(**number))
        });
        if let Some((number, since)) = awaited {
            let waited = now.saturating_since(*since);
            let text = format!("{number} of {} is waited for since {waited:?}", self.connection);
            return Err(Violation::new(Oracle::Delay, text));
        }
        self.missing.retain(|_, since| now.saturating_since(*since) < MAXIMUM_HOLD * 4);
        for (number, arrived) in delivered {
            self.deliver(number, arrived, now, margins)?;
        }
        Ok(())
    }

    /// Time has passed.
    pub(super) fn handle_timeout(
        &mut self,
        now: Timestamp,
        margins: &mut Margins,
    ) -> Result<(), Violation> {
        if self.delivered.is_empty() && self.repeats <= now {
            self.repeats = now + REPEAT;
            self.speak(0xc1);
        }
        let Some(assist) = &mut self.assist else { return Ok(()) };
        if assist.next_timeout().is_some_and(|at| at <= now) {
            assist.handle_timeout(now);
        }
        self.look_after(now, margins)
    }

    /// The next datagram to send.
    pub(super) fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        self.outgoing.pop_front().or_else(|| self.assist.as_mut()?.poll_transmit(now))
    }

    /// Repairs: numbers that were lost and have arrived all the same, and when.
    pub(super) fn repairs(&self) -> BTreeMap<u64, Timestamp> {
        let arrived = |number: &u64| self.delivered.get(number).map(|at| (*number, *at));
        self.lost.iter().filter_map(arrived).collect()
    }
}

/// The packet in a datagram, if it is one of the server's to this connection.
fn authentic(connection: u16, datagram: &[u8]) -> Option<Packet> {
    let is_own = |packet: &Packet| {
        packet.is_authentic && packet.connection == connection && !packet.to_server
    };
    Packet::decode(datagram).filter(is_own)
}
