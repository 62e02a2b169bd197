//! The arena: a gateway in virtual time, its server, honest clients a round trip of 20 ms away, and
//! whatever attackers send.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use packrat_api::route::Hidden;
use packrat_dataplane::RouteConfig;
use packrat_dataplane::virtual_time::{Sent, VirtualGateway};
use packrat_eack::operations::counted_insertions;
use packrat_engine::NetworkPath;
use packrat_wire::control::{Control, RefusalReason};
use packrat_wire::estimate::Timestamp;
use packrat_wire::is_control;
use packrat_wire::number::split;

use super::base::{Flows, PLAIN_CONNECTION, Packet, Server, owner_of, scatter};
use super::honest::Honest;
use super::places::{HONEST, LISTENERS, Ledger, PLAIN, Party, REBOUND, address, party_at, place};
use super::verdict::{Kept, Margins, Oracle};

/// Operations of the gateway's so far: of sketches and messages, and of symbols.
fn counted() -> u64 {
    packrat_eack::operations::counted() + packrat_code::operations::counted()
}

/// Each way of the honest clients' last mile.
const DELAY: Duration = Duration::from_millis(10);
/// Time between two looks at anything.
const STEP: Duration = Duration::from_micros(100);
const BEGIN: Timestamp = Timestamp::from_millis(1000);
/// The client without assistance begins then, the second one with it gets another port.
const PLAIN_BEGINS: Timestamp = Timestamp::from_millis(1350);
const REBINDS: Timestamp = Timestamp::from_millis(1720);
/// Longest time until it has an answer: its first datagram may wait for a second, as another client
/// may have moved to its address.
const NEWCOMER_WAITS: Duration = Duration::from_millis(1100);
/// Sessions that there is room for: few, so that it becomes tight.
const SESSIONS: u64 = 24;

/// Conditions of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Conditions {
    /// The gateway always demands a cookie.
    cookie_always: bool,
    /// A NAT gives the second client another port.
    rebinds: bool,
    /// The last mile loses datagrams in a row.
    bursts: bool,
    /// The first client, and attackers, take numbers and symbols.
    pub(super) codes: bool,
    /// The route sends sparse flows twice to clients without a session.
    pub(super) copies: bool,
    /// The route leaves some clients without assistance: the second one, and an attacker's address.
    pub(super) holds_out: bool,
}

/// A key of a route whose holdout of a half contains the second client, and one of the attackers'
/// addresses.
const HOLDOUT_KEY: &str = "0909090909090909090909090909090909090909090909090909090909090909";

impl Conditions {
    pub(super) fn new(bits: u8) -> Self {
        let bit = |bit: u8| bits >> bit & 1 != 0;
        Self {
            cookie_always: bit(0),
            rebinds: bit(1),
            bursts: bit(2),
            codes: bit(3),
            copies: bit(4),
            holds_out: bit(5),
        }
    }

    /// True if there is more than sessions that do not code.
    pub(super) fn has_more(self) -> bool {
        self.codes || self.copies || self.holds_out
    }

    fn loses(self, connection: u16, number: u64) -> bool {
        match self.bursts {
            true => number % 90 >= 80 && number > 30,
            false => scatter(u64::from(connection) << 32 ^ number).is_multiple_of(20),
        }
    }
}

/// The reason for which the gateway does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A datagram of an attacker's, or of anyone else's.
    Attacker,
    Other,
    /// Time has passed.
    Time,
}

/// Largest number of operations that inserting past datagrams into sketches still takes: an eACK
/// that covers a datagram inserts it, once, and the datagram has paid for it. An attacker's
/// messages only insert datagrams that were sent to attackers.
#[derive(Debug, Default)]
struct Insertions {
    of_attackers: u64,
    of_others: u64,
}

impl Insertions {
    /// A datagram of the server has passed.
    fn owe(&mut self, owner: Party) {
        let owed = match owner {
            Party::Attacker => &mut self.of_attackers,
            _ => &mut self.of_others,
        };
        *owed += Margins::INSERTION;
    }

    /// Subtracts the paid operations; returns the rest.
    fn pay(&mut self, cause: Cause, work: u64) -> u64 {
        let Self { of_attackers, of_others } = self;
        let mut rest = work;
        let mut take = |owed: &mut u64| {
            let paid = rest.min(*owed);
            *owed -= paid;
            rest -= paid;
        };
        if cause != Cause::Other {
            take(of_attackers);
        }
        if cause != Cause::Attacker {
            take(of_others);
        }
        rest
    }
}

/// Everything but the attackers.
pub(super) struct World {
    pub(super) conditions: Conditions,
    gateway: VirtualGateway,
    pub(super) server: Server,
    pub(super) honest: Vec<Honest>,
    ledger: Ledger,
    pub(super) now: Timestamp,
    down: VecDeque<(Timestamp, SocketAddr, Vec<u8>)>,
    up: VecDeque<(Timestamp, usize, Vec<u8>)>,
    /// Datagrams of the server that have passed.
    forwarded: HashSet<(u16, u64)>,
    insertions: Insertions,
    /// Datagrams that have arrived at attackers' addresses.
    pub(super) overheard: VecDeque<(SocketAddr, Vec<u8>)>,
    pub(super) margins: Margins,
}

impl World {
    pub(super) fn new(conditions: Conditions) -> Self {
        let mut config = RouteConfig::new("arena", [address("127.0.0.1:9")]).expect("a route");
        if conditions.cookie_always {
            config.handshakes_per_second_without_cookie = 0;
        }
        config.sparse_copies = conditions.copies;
        if conditions.holds_out {
            config.holdout = 0.5;
            config.static_key = Some(Hidden::new(HOLDOUT_KEY.to_owned()));
        }
        let gateway = VirtualGateway::new(config, &LISTENERS.map(address), SESSIONS, 7);
        let mut gateway = gateway.expect("descriptors for a gateway");
        gateway.handle_timeout(BEGIN);
        let client =
            |(number, place)| Honest::new(number, place, conditions.codes && number == 0, BEGIN);
        let mut honest: Vec<Honest> = (0..).zip(HONEST).map(client).collect();
        honest.iter_mut().for_each(|client| client.speak(0xc1));
        Self {
            conditions,
            gateway,
            server: Server::new(Flows { fast: conditions.codes, sparse: conditions.copies }),
            honest,
            ledger: Ledger::default(),
            now: BEGIN,
            down: VecDeque::new(),
            up: VecDeque::new(),
            forwarded: HashSet::new(),
            insertions: Insertions::default(),
            overheard: VecDeque::new(),
            margins: Margins::default(),
        }
    }

    /// Makes the gateway process an event, and checks its actions. `is_charged`: a party pays for
    /// it.
    fn with_gateway(
        &mut self,
        is_charged: bool,
        cause: Cause,
        action: impl FnOnce(&mut VirtualGateway),
    ) -> Kept {
        let spent = |gateway: &VirtualGateway| if is_charged { gateway.work() } else { 0 };
        let (done, inserted, charged) = (counted(), counted_insertions(), spent(&self.gateway));
        let coded = packrat_code::operations::counted();
        action(&mut self.gateway);
        let (done, inserted) = (counted() - done, counted_insertions() - inserted);
        let charged = spent(&self.gateway) - charged;
        let coded = packrat_code::operations::counted() - coded;
        Oracle::Work.is_kept(coded <= charged * Margins::MOST_WORK, || {
            format!("{coded} operations of symbols are charged as {charged}")
        })?;
        let unpaid = self.insertions.pay(cause, inserted);
        let paid = inserted - unpaid;
        self.margins.inserted = self.margins.inserted.max(paid / Margins::INSERTION);
        Oracle::Work.is_kept(paid <= Margins::MOST_INSERTED * Margins::INSERTION, || {
            format!("{paid} operations insert datagrams in one step")
        })?;
        let unpaid = unpaid / Margins::AT_ONCE;
        let free = match cause {
            Cause::Time => Margins::FREE_WORK_OF_TIME,
            _ => Margins::FREE_WORK,
        };
        let owed = (done - inserted + unpaid).saturating_sub(free);
        self.margins.work = self.margins.work.max(owed as f64 / charged.max(1) as f64);
        Oracle::Work.is_kept(owed <= charged * Margins::MOST_WORK, || {
            format!("{done} operations in one step are charged as {charged}")
        })?;
        for sent in self.gateway.take_sent() {
            match sent {
                Sent::ToClient { path, datagram } => self.leave(path, datagram)?,
                Sent::ToServer { session, datagram } => {
                    self.server.receive(session, &datagram, self.now)?;
                }
            }
        }
        Ok(())
    }

    /// A datagram leaves the gateway for a client.
    fn leave(&mut self, path: NetworkPath, datagram: Vec<u8>) -> Kept {
        let to = path.client;
        let receiver = party_at(to);
        let mut is_lost = false;
        let base = split(&datagram).map(|(_, base)| base);
        if base.is_none() && is_control(&datagram) {
            self.ledger.send(path, datagram.len(), &mut self.margins)?;
            self.check_refusal(to, &datagram)?;
        } else {
            let Some(packet) = Packet::decode(base.unwrap_or(&datagram)) else {
                return Oracle::Addresses
                    .is_kept(false, || format!("{to} was sent what no server has said"));
            };
            let owner = owner_of(packet.connection);
            let is_theirs = match owner {
                // The server answers who seems to ask.
                Party::Stranger(number) => place(number) == to,
                _ => receiver == Some(owner),
            };
            Oracle::Addresses
                .is_kept(is_theirs, || format!("{to} was sent what is {owner:?}'s"))?;
            let is_first = self.forwarded.insert((packet.connection, packet.number));
            if is_first {
                self.insertions.owe(owner);
                self.ledger.forward(path, datagram.len());
            } else if self.conditions.copies {
                self.ledger.copy(path, datagram.len(), &mut self.margins)?;
                self.margins.copies += u64::from(matches!(owner, Party::Stranger(_)));
            } else {
                self.ledger.send(path, datagram.len(), &mut self.margins)?;
            }
            let is_lossy = match owner {
                Party::Honest(_) => true,
                Party::Plain => self.conditions.copies,
                _ => false,
            };
            let of_connection = |client: &&mut Honest| client.connection == packet.connection;
            if is_first
                && is_lossy
                && self.conditions.loses(packet.connection, packet.number)
                && let Some(client) = self.honest.iter_mut().find(of_connection)
            {
                is_lost = true;
                client.lost.insert(packet.number);
            }
        }
        match receiver {
            Some(Party::Attacker) => self.overheard.push_back((to, datagram)),
            // Their sockets accept datagrams only from the address that they send to.
            Some(Party::Honest(_) | Party::Plain)
                if !is_lost && path.gateway == address(LISTENERS[0]) =>
            {
                self.down.push_back((self.now + DELAY, to, datagram));
            }
            _ => {}
        }
        Ok(())
    }

    /// A client is left without assistance for comparison at an address only that is proven to be its own.
    fn check_refusal(&mut self, to: SocketAddr, datagram: &[u8]) -> Kept {
        let Ok(Control::Refusal { reason: RefusalReason::Holdout, .. }) = Control::decode(datagram)
        else {
            return Ok(());
        };
        self.margins.held_out += u64::from(party_at(to) == Some(Party::Attacker));
        Oracle::Addresses.is_kept(self.ledger.is_validated(to), || {
            format!("{to}, which has proved nothing, was told that it is held out")
        })
    }

    /// Sees that the gateway compares clients at addresses of their own, in the arms that they are in.
    pub(super) fn check_arms(&self) -> Kept {
        for client in self.gateway.compared() {
            Oracle::Neighbours.is_kept(self.ledger.is_validated(client), || {
                format!("{client}, which has proved nothing, is compared")
            })?;
        }
        let is_told = !self.conditions.holds_out || self.honest[1].is_held_out();
        Oracle::Neighbours
            .is_kept(is_told, || "a client that is held out was told something else".to_owned())
    }

    /// A datagram of an attacker's arrives at the gateway. `is_owner`: from who receives at that
    /// address.
    pub(super) fn arrive(
        &mut self,
        from: SocketAddr,
        listener: usize,
        datagram: &[u8],
        is_owner: bool,
    ) -> Kept {
        self.receive(from, listener, datagram, is_owner, Cause::Attacker)
    }

    fn receive(
        &mut self,
        from: SocketAddr,
        listener: usize,
        datagram: &[u8],
        is_owner: bool,
        cause: Cause,
    ) -> Kept {
        let listener = listener % LISTENERS.len();
        let path = NetworkPath { client: from, gateway: address(LISTENERS[listener]) };
        self.ledger.receive(path, datagram.len(), is_owner);
        self.with_gateway(is_control(datagram), cause, |gateway| {
            gateway.receive_from_client(from, listener, datagram);
        })
    }

    /// A datagram arrives at an honest client in the gateway's name.
    pub(super) fn arrive_at_client(&mut self, number: usize, datagram: &[u8]) -> Kept {
        let count = self.honest.len();
        let now = self.now;
        if !is_control(datagram) {
            self.honest[number % count].note_forged(now);
        }
        self.honest[number % count].receive(datagram, now, &mut self.margins)?;
        self.listen(number % count);
        Ok(())
    }

    /// A question for a session, in the name of a place.
    pub(super) fn note_question(&mut self, from: usize) {
        let now = self.now;
        let is_there = |client: &&mut Honest| client.place == from;
        self.honest.iter_mut().filter(is_there).for_each(|client| client.note_question(now));
    }

    /// The server answers a question that is no client's, in the name of a place.
    pub(super) fn note_stranger(&mut self, from: usize) {
        let now = self.now;
        let is_there = |client: &&mut Honest| client.place == from;
        self.honest.iter_mut().filter(is_there).for_each(|client| client.note_stranger(now));
    }

    /// Takes the datagrams that an honest client sends.
    fn listen(&mut self, number: usize) {
        let client = &mut self.honest[number];
        for _ in 0..100 {
            let Some(datagram) = client.poll_transmit(self.now) else { return };
            self.up.push_back((self.now + DELAY, client.place, datagram));
        }
        panic!("a client talks without end");
    }

    fn next_event(&self) -> Option<Timestamp> {
        let down = self.down.front().map(|(at, ..)| *at);
        let up = self.up.front().map(|(at, ..)| *at);
        let clients = self.honest.iter().filter_map(Honest::next_timeout);
        let others = [down, up, self.server.next_timeout(), self.gateway.next_timeout()];
        others.into_iter().flatten().chain(clients).min()
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, time: Duration) -> Kept {
        let until = self.now + time;
        while let Some(next) = self.next_event().filter(|next| *next <= until) {
            let now = next.max(self.now + STEP);
            if now > until {
                break;
            }
            self.advance(now)?;
        }
        self.advance(until)
    }

    fn advance(&mut self, now: Timestamp) -> Kept {
        let before = std::mem::replace(&mut self.now, now);
        let passes = |at: Timestamp| before < at && at <= now;
        if passes(PLAIN_BEGINS) {
            let mut plain = Honest::new(PLAIN_CONNECTION, PLAIN, false, now);
            // As a client whose connection is older than its address: its datagrams may have to
            // wait.
            plain.speak(0x41);
            self.honest.push(plain);
        }
        if self.conditions.rebinds && passes(REBINDS) {
            self.honest[1].place = REBOUND;
            self.honest[1].speak(0x41);
        }
        // Symbols are charged when they are made, and messages about holes.
        let codes = self.conditions.codes;
        self.with_gateway(true, Cause::Time, |gateway| gateway.handle_timeout(now))?;
        while let Some((session, datagram)) = self.server.poll(now) {
            self.with_gateway(codes, Cause::Other, |gateway| {
                gateway.receive_from_server(session, &datagram);
            })?;
        }
        while self.up.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, from, datagram)) = self.up.pop_front() else { break };
            self.receive(place(from), 0, &datagram, true, Cause::Other)?;
        }
        while self.down.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, to, datagram)) = self.down.pop_front() else { break };
            let is_there = |client: &Honest| place(client.place) == to;
            if let Some(number) = self.honest.iter().position(is_there) {
                self.honest[number].receive(&datagram, now, &mut self.margins)?;
            }
        }
        for number in 0..self.honest.len() {
            self.honest[number].handle_timeout(now, &mut self.margins)?;
            self.listen(number);
        }
        Ok(())
    }

    /// A new client gets an answer, also beside attackers.
    pub(super) fn check_newcomer(&self) -> Kept {
        let waits = self.now.saturating_since(PLAIN_BEGINS) > NEWCOMER_WAITS;
        let is_answered =
            |client: &Honest| client.connection != PLAIN_CONNECTION || !client.delivered.is_empty();
        let is_kept = !waits || self.honest.iter().all(is_answered);
        Oracle::Neighbours.is_kept(is_kept, || "a new client is not answered".to_owned())
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.now.saturating_since(BEGIN)
    }

    /// The repairs of each honest client.
    pub(super) fn repairs(&self) -> Vec<BTreeMap<u64, Timestamp>> {
        self.honest.iter().map(Honest::repairs).collect()
    }
}
