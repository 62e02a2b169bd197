//! An honest client: the client's core, and a transport above it that authenticates its datagrams.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use packrat_client::{
    Assist, AssistState, AssistStats, ClientConfig, Datagram, Input, PacketNumber, RefusalReason,
    Shim, Verdict,
};
use packrat_wire::estimate::Timestamp;

use super::base::{PLAIN_CONNECTION, Packet, connection_ids};
use super::verdict::{Kept, Margins, Oracle};

const MAXIMUM_HOLD: Duration = Margins::LONGEST_HOLD;
/// Timers are late by as much, at most.
const GRACE: Duration = Duration::from_millis(2);
/// Time after which it asks again, as long as it has no answer.
const REPEAT: Duration = Duration::from_millis(200);
/// Datagrams per answer.
const ANSWERED: usize = 8;

/// Part of Packrat that a client has.
#[derive(Debug)]
enum Core {
    /// No assistance.
    Plain,
    /// The transport authenticates datagrams before the client believes them.
    Assist(Box<Assist>),
    /// A shim, which takes numbers and symbols. The time of arrival belongs to each datagram.
    Shim(Box<Shim<Timestamp>>),
}

impl Core {
    fn stats(&self) -> Option<AssistStats> {
        match self {
            Self::Plain => None,
            Self::Assist(assist) => Some(assist.stats()),
            Self::Shim(shim) => Some(shim.assistance()),
        }
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        match self {
            Self::Plain => None,
            Self::Assist(assist) => assist.next_timeout(),
            Self::Shim(shim) => shim.next_timeout(),
        }
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        if self.next_timeout().is_none_or(|at| at > now) {
            return;
        }
        match self {
            Self::Plain => {}
            Self::Assist(assist) => drop(assist.handle_timeout(now)),
            Self::Shim(shim) => drop(shim.handle(Input::Timeout, now)),
        }
    }

    fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        match self {
            Self::Plain => None,
            Self::Assist(assist) => assist.poll_transmit(now),
            Self::Shim(shim) => shim.poll_transmit(now),
        }
    }
}

/// A client of the base connection, with the core of a client of Packrat or without.
#[derive(Debug)]
pub(super) struct Honest {
    pub(super) connection: u16,
    /// Address of the client.
    pub(super) place: usize,
    core: Core,
    next_up: u64,
    /// The connection ID that its server has chosen.
    server_id: Vec<u8>,
    /// Time at which the client sends again if it has no answer by then.
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
    /// Times in which forged datagrams may cost it repairs: see [`Self::note_forged`].
    forged: Vec<(Timestamp, Timestamp)>,
    /// Time since which the client's flow brings another's datagrams: without a session it is not
    /// sparse any more.
    crowded: Option<Timestamp>,
    questioned: Option<Timestamp>,
}

impl Honest {
    /// Creates a client. `codes`: it takes numbers and symbols.
    pub(super) fn new(connection: u16, place: usize, codes: bool, now: Timestamp) -> Self {
        let config = ClientConfig::default().with_maximum_hold(MAXIMUM_HOLD);
        let seed = [connection as u8 + 1; 32];
        let core = match (connection, codes) {
            (PLAIN_CONNECTION, _) => Core::Plain,
            (_, true) => Core::Shim(Box::new(Shim::new(config, seed, now))),
            (_, false) => Core::Assist(Box::new(Assist::new(config, seed, now))),
        };
        Self {
            connection,
            place,
            core,
            next_up: 0,
            server_id: Vec::new(),
            repeats: now + REPEAT,
            unanswered: 0,
            kept: BTreeMap::new(),
            missing: BTreeMap::new(),
            expected: 0,
            delivered: BTreeMap::new(),
            lost: BTreeSet::new(),
            outgoing: VecDeque::new(),
            forged: Vec::new(),
            crowded: None,
            questioned: None,
        }
    }

    /// Sends a datagram in the base connection. `header`: the first byte.
    pub(super) fn speak(&mut self, header: u8) {
        let packet = Packet {
            connection: self.connection,
            number: self.next_up,
            to_server: true,
            is_reachable: true,
            is_authentic: true,
        };
        self.next_up += 1;
        let header = [&[header][..], &self.server_id].concat();
        self.outgoing.push_back(packet.encode(&header));
    }

    pub(super) fn is_assisted(&self) -> bool {
        let state = self.core.stats().map(|stats| stats.state);
        state == Some(AssistState::Established)
    }

    /// True if the gateway has left it without assistance for comparison.
    pub(super) fn is_held_out(&self) -> bool {
        self.core.stats().and_then(|stats| stats.refusal) == Some(RefusalReason::Holdout)
    }

    /// Records that a datagram of the connection was forged, in the gateway's name. A client that
    /// authenticates datagrams before belief is unaffected. One that takes numbers believes
    /// unnumbered datagrams, until they have cost it an epoch for the second time.
    pub(super) fn note_forged(&mut self, now: Timestamp) {
        if !matches!(self.core, Core::Shim(_)) {
            return;
        }
        let until = now + Margins::LONGEST_DOUBT;
        match self.forged.last_mut() {
            Some((_, end)) if *end >= now => *end = until,
            _ => self.forged.push((now, until)),
        }
    }

    /// Records that the server answers another party in the client's name. Without a session the
    /// client gets copies of sparse datagrams: its flow is not sparse any more. With a session, it
    /// lacks the other's datagrams, and the gateway has to learn their number.
    pub(super) fn note_stranger(&mut self, now: Timestamp) {
        self.crowded.get_or_insert(now);
    }

    /// Lateness from which a repair that would be at this time counts as lost.
    pub(super) fn tolerated(&self, at: Timestamp) -> Duration {
        match self.crowded.is_some_and(|since| since <= at) {
            true => Margins::LATE_AMID_OTHERS,
            false => Margins::LATE,
        }
    }

    /// Records that another party has asked for a session in the client's name: the client's own
    /// begins a round trip later, if it has none.
    pub(super) fn note_question(&mut self, now: Timestamp) {
        if !self.is_assisted() && matches!(self.core, Core::Shim(_)) && self.questioned.is_none() {
            self.questioned = Some(now);
        }
    }

    /// True for repairs at this time that are not promised.
    pub(super) fn is_doubtful(&self, at: Timestamp) -> bool {
        let begins_late = |asked: Timestamp| asked <= at && at < asked + Margins::LATE_BEGIN;
        let crowds_out = |since: Timestamp| since <= at && !self.is_assisted();
        self.crowded.is_some_and(crowds_out) || self.questioned.is_some_and(begins_late)
    }

    /// True if forged datagrams may have cost the client a repair at this time, or one that was
    /// late already, once their total cost is within [`Margins::MOST_DOUBTS`] times.
    pub(super) fn may_have_believed(&self, at: Timestamp) -> bool {
        let late = at + self.tolerated(at);
        self.forged.iter().any(|(from, until)| *from <= late && at < *until)
    }

    /// Datagrams that it has recovered from symbols.
    pub(super) fn recovered(&self) -> u64 {
        match &self.core {
            Core::Shim(shim) => shim.stats().recovered,
            _ => 0,
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        let repeats = self.delivered.is_empty().then_some(self.repeats);
        repeats.into_iter().chain(self.core.next_timeout()).min()
    }

    /// A datagram has arrived, from the gateway or in its name.
    pub(super) fn receive(
        &mut self,
        datagram: &[u8],
        now: Timestamp,
        margins: &mut Margins,
    ) -> Kept {
        let assist = match &mut self.core {
            Core::Plain => return self.take(datagram, now, now, margins),
            Core::Shim(shim) => {
                if let Verdict::Now { skip, metadata } = shim.on_datagram(datagram, now, now) {
                    self.take(&datagram[skip..], metadata, now, margins)?;
                }
                return self.look_after(now, margins);
            }
            Core::Assist(assist) => assist,
        };
        if assist.on_datagram(datagram, now) == Datagram::Control {
            return self.look_after(now, margins);
        }
        // Unauthentic datagrams are dropped: the client forgets them.
        if let Some(packet) = authentic(self.connection, datagram) {
            assist.on_packet_number(PacketNumber::new(packet.number), now);
            if let Some((_, server_id)) = connection_ids(datagram) {
                self.server_id = server_id.to_vec();
            }
            self.note_arrival(packet.number, now);
            self.kept.entry(packet.number).or_insert(now);
        }
        self.look_after(now, margins)
    }

    /// The transport is given a datagram.
    fn take(
        &mut self,
        datagram: &[u8],
        arrived: Timestamp,
        now: Timestamp,
        margins: &mut Margins,
    ) -> Kept {
        let Some(packet) = authentic(self.connection, datagram) else { return Ok(()) };
        if let Some((_, server_id)) = connection_ids(datagram) {
            self.server_id = server_id.to_vec();
        }
        self.deliver(packet.number, arrived, now, margins)
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
    ) -> Kept {
        self.note_arrival(number, now);
        let kept = now.saturating_since(arrived);
        margins.kept = margins.kept.max(kept);
        Oracle::Delay.is_kept(kept <= MAXIMUM_HOLD + GRACE, || {
            format!("{number} of {} was kept for {kept:?}", self.connection)
        })?;
        if let Entry::Vacant(vacant) = self.delivered.entry(number) {
            vacant.insert(arrived);
            self.unanswered += 1;
            if self.unanswered == ANSWERED {
                self.unanswered = 0;
                self.speak(0x41);
            }
        }
        Ok(())
    }

    /// Gives the transport its datagrams, and checks that it need not wait for the rest.
    fn look_after(&mut self, now: Timestamp, margins: &mut Margins) -> Kept {
        let assist = match &mut self.core {
            Core::Plain => return Ok(()),
            Core::Shim(shim) => {
                let released: Vec<_> = std::iter::from_fn(|| shim.poll_deliver()).collect();
                for released in released {
                    self.take(&released.datagram, released.metadata, now, margins)?;
                }
                return Ok(());
            }
            Core::Assist(assist) => assist,
        };
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
        Oracle::Delay.is_kept(awaited.is_none(), || {
            format!("a datagram of {} is waited for: {awaited:?}", self.connection)
        })?;
        self.missing.retain(|_, since| now.saturating_since(*since) < MAXIMUM_HOLD * 4);
        for (number, arrived) in delivered {
            self.deliver(number, arrived, now, margins)?;
        }
        Ok(())
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now: Timestamp, margins: &mut Margins) -> Kept {
        if self.delivered.is_empty() && self.repeats <= now {
            self.repeats = now + REPEAT;
            self.speak(0xc1);
        }
        self.core.handle_timeout(now);
        self.look_after(now, margins)
    }

    /// The next datagram to send.
    pub(super) fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        self.outgoing.pop_front().or_else(|| self.core.poll_transmit(now))
    }

    /// Repairs: numbers that were lost and have arrived all the same, and when.
    pub(super) fn repairs(&self) -> BTreeMap<u64, Timestamp> {
        let arrived = |number: &u64| self.delivered.get(number).map(|at| (*number, *at));
        self.lost.iter().filter_map(arrived).collect()
    }
}

/// The packet in a datagram, if the server has sent it to this connection.
fn authentic(connection: u16, datagram: &[u8]) -> Option<Packet> {
    let is_own = |packet: &Packet| {
        packet.is_authentic && packet.connection == connection && !packet.to_server
    };
    Packet::decode(datagram).filter(is_own)
}
