//! A live stream and its subscribers in virtual time, with a lossy last mile to each.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use packrat_client::{Assist, ClientConfig, Datagram, Live, PacketNumber, Token};
use packrat_engine::{
    Event, Gateway, GatewayConfig, Stream, StreamConfig, StreamCounters, StreamOutbox, Target,
};
use packrat_wire::SessionId;
use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::IdentifierScheme;
use packrat_wire::seal::session_of;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const DELAY: Duration = Duration::from_millis(10);
const TICK: Duration = Duration::from_millis(1);
/// Subscription to a live stream whose packets are useless after 400 ms.
pub(crate) const LIVE: Live = Live {
    selective: true,
    subscribe: true,
    window: Duration::from_millis(400),
    tolerance: Duration::ZERO,
    symbols: false,
};

/// Fate of symbols on their way to one receiver.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Symbols {
    Pass,
    Lost,
    /// A bit is another one: as from an attacker without the key.
    Forged,
}

/// A subscriber at the other end of a lossy last mile.
pub(crate) struct Member {
    pub(crate) address: SocketAddr,
    pub(crate) assist: Assist,
    pub(crate) session: Option<SessionId>,
    pub(crate) loss: f64,
    /// Most milliseconds by which datagrams are late.
    pub(crate) jitter: u32,
    pub(crate) symbols: Symbols,
    pub(crate) received: BTreeSet<u64>,
    /// Number of its first packet.
    pub(crate) first: Option<u64>,
    pub(crate) lost: u64,
    /// Packets sent to it, the lost ones among them.
    pub(crate) packets: u64,
    pub(crate) duplicates: u64,
    /// True if it reports received packets to its client core.
    pub(crate) honest: bool,
}

pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) random: ChaCha8Rng,
    pub(crate) stream: Stream,
    pub(crate) members: Vec<Member>,
    down: Vec<(Timestamp, SocketAddr, Vec<u8>)>,
    up: VecDeque<(Timestamp, SocketAddr, Vec<u8>)>,
    /// Packets of the stream so far, and bytes of each.
    pub(crate) number: u64,
    pub(crate) length: usize,
    /// True for the packets, by number, and repairs of them that no member gets.
    pub(crate) loses: fn(u64, bool) -> bool,
    pub(crate) counters: StreamCounters,
    pub(crate) events: Vec<Event>,
    pub(crate) out: StreamOutbox,
    /// Token of the members that join.
    pub(crate) token: Vec<u8>,
}

/// The packet with a number: random to the eye, the same each time.
pub(crate) fn packet(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    ChaCha8Rng::seed_from_u64(number).fill_bytes(&mut bytes);
    bytes[0] = 0x80;
    bytes[1..9].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The number of a packet; `None` for a control datagram.
fn number_of(bytes: &[u8]) -> Option<u64> {
    (bytes[0] == 0x80).then(|| u64::from_be_bytes(bytes[1..9].try_into().unwrap()))
}

impl World {
    pub(crate) fn new(seed: u64, config: StreamConfig, limits: GatewayConfig) -> Self {
        let gateway = Gateway::new(limits, [1; 32], [2; 32]);
        Self {
            now: Timestamp::from_millis(1),
            random: ChaCha8Rng::seed_from_u64(seed),
            stream: Stream::new(gateway, config, [3; 32]),
            members: Vec::new(),
            down: Vec::new(),
            up: VecDeque::new(),
            number: 0,
            length: 240,
            loses: |_, _| false,
            counters: StreamCounters::default(),
            events: Vec::new(),
            out: StreamOutbox::new(),
            token: Vec::new(),
        }
    }

    pub(crate) fn join(&mut self, address: SocketAddr, loss: f64) -> usize {
        self.join_with(address, loss, LIVE)
    }

    pub(crate) fn join_with(&mut self, address: SocketAddr, loss: f64, live: Live) -> usize {
        let seed = self.seed();
        let config = ClientConfig::default()
            .with_live(live)
            .with_scheme(IdentifierScheme::Payload)
            .with_token(Token::new(self.token.clone()).unwrap());
        self.members.push(Member {
            address,
            assist: Assist::new(config, seed, self.now),
            session: None,
            loss,
            jitter: 0,
            symbols: Symbols::Pass,
            received: BTreeSet::new(),
            first: None,
            lost: 0,
            packets: 0,
            duplicates: 0,
            honest: true,
        });
        self.members.len() - 1
    }

    fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.random.fill_bytes(&mut seed);
        seed
    }

    fn chance(&mut self, probability: f64) -> bool {
        f64::from(self.random.next_u32()) < probability * f64::from(u32::MAX)
    }

    fn deliver(&mut self, to: SocketAddr, bytes: &[u8], is_repair: bool) {
        let Some(index) = self.members.iter().position(|member| member.address == to) else {
            return;
        };
        let (mut bytes, number) = (bytes.to_vec(), number_of(bytes));
        let Member { jitter, loss, symbols, .. } = self.members[index];
        match symbols {
            _ if number.is_some() => {}
            Symbols::Lost if is_repair => return,
            Symbols::Forged if is_repair => bytes[40] ^= 1,
            _ => {}
        }
        let late = self.random.next_u32() % (jitter + 1);
        self.members[index].packets += u64::from(number.is_some());
        if self.chance(loss) || number.is_some_and(|number| (self.loses)(number, is_repair)) {
            self.members[index].lost += u64::from(number.is_some());
        } else {
            self.down.push((self.now + DELAY + TICK * late, to, bytes));
        }
    }

    fn drain(&mut self) {
        self.events.extend(self.out.take_events());
        let sent: Vec<(Target, Vec<u8>)> =
            self.out.datagrams().map(|(target, bytes)| (target, bytes.to_vec())).collect();
        self.out.clear();
        for (target, bytes) in sent {
            match target {
                // An answer, or a repair.
                Target::One(to) => self.deliver(to, &bytes, number_of(&bytes).is_some()),
                Target::Group => self.deliver_to_all(&bytes, true),
            }
        }
        self.counters.add(&self.stream.take_counters());
    }

    fn deliver_to_all(&mut self, bytes: &[u8], is_repair: bool) {
        for to in self.stream.subscribers().collect::<BTreeSet<_>>() {
            self.deliver(to, bytes, is_repair);
        }
    }

    pub(crate) fn receive(&mut self, from: SocketAddr, bytes: &[u8]) {
        let seed = self.seed();
        self.stream.receive(bytes, from, || seed, self.now, &mut self.out);
        self.drain();
    }

    /// Runs for this many milliseconds, with a packet in each if the stream is on.
    pub(crate) fn run(&mut self, milliseconds: u64, on: bool) {
        for _ in 0..milliseconds {
            self.now = self.now + TICK;
            let now = self.now;
            if on {
                let bytes = packet(self.number, self.length);
                self.number += 1;
                self.stream.forward(&bytes, now);
                self.deliver_to_all(&bytes, false);
                self.stream.send_symbols(now, &mut self.out);
                self.drain();
            }
            while let Some((_, from, bytes)) = self.up.pop_front_if(|(at, ..)| *at <= now) {
                self.receive(from, &bytes);
            }
            let due;
            (due, self.down) = self.down.drain(..).partition(|(at, ..)| *at <= now);
            for (_, to, bytes) in due {
                if let Some(member) = self.members.iter_mut().find(|one| one.address == to) {
                    member.arrive(bytes, now);
                }
            }
            self.stream.handle_timeout(now, &mut self.out);
            self.drain();
            for index in 0..self.members.len() {
                self.speak(index);
            }
        }
    }

    fn speak(&mut self, index: usize) {
        let member = &mut self.members[index];
        member.assist.handle_timeout(self.now);
        let (from, loss) = (member.address, member.loss);
        while let Some(bytes) = self.members[index].assist.poll_transmit(self.now) {
            let member = &mut self.members[index];
            member.session = session_of(&bytes).or(member.session);
            if !self.chance(loss) {
                self.up.push_back((self.now + DELAY, from, bytes));
            }
        }
    }

    /// Packets that a member misses, from its first one until a while ago.
    pub(crate) fn missing(&self, member: usize) -> usize {
        let first = self.members[member].first;
        first.map_or(usize::MAX, |first| self.missing_of(member, first..self.number - 200))
    }

    /// Packets among these that a member misses.
    pub(crate) fn missing_of(&self, member: usize, mut range: std::ops::Range<u64>) -> usize {
        let received = &self.members[member].received;
        range.by_ref().filter(|number| !received.contains(number)).count()
    }
}

impl Member {
    fn arrive(&mut self, bytes: Vec<u8>, now: Timestamp) {
        if number_of(&bytes).is_some() && !self.honest {
            return;
        }
        let mut arrived = Some(bytes);
        while let Some(bytes) = arrived {
            if self.assist.on_datagram(&bytes, now) == Datagram::Base {
                let number = number_of(&bytes).unwrap();
                assert_eq!(bytes, packet(number, bytes.len()), "not an exact copy");
                let first = *self.first.get_or_insert(number);
                self.duplicates += u64::from(!self.received.insert(number));
                if let Some(place) = number.checked_sub(first) {
                    self.assist.on_packet_number(PacketNumber::new(place), now);
                }
            }
            arrived = self.assist.poll_recovered();
        }
    }
}
