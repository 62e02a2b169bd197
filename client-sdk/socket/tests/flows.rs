//! The table of flows in virtual time, with the real gateway's engine at the other end of a last
//! mile that loses datagrams.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_assist_token::{Claims, Key, Keys, RouteHash};
use packrat_client::{Access, ClientConfig, Condition, IdentifierScheme, Timestamp, Token};
use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox, Received, TokenAdmission, TokenCheck};
use packrat_socket::{FlowId, Limits, Mark, Outlet, Peer, Table};
use packrat_wire::bundle;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const STEP: Duration = Duration::from_millis(1);
const ONE_WAY: u64 = 5;

fn program(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 10_000 + number))
}

fn peer(number: u16) -> Peer {
    Peer { service: 0, address: program(number), through: None }
}

/// A datagram that contains its number.
fn datagram(number: u64) -> Vec<u8> {
    let mut bytes = vec![0x40; 1200];
    ChaCha8Rng::seed_from_u64(number).fill_bytes(&mut bytes[9..]);
    bytes[1..9].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The mark that a datagram bears, whatever has been put in front of it.
fn mark_of(bytes: &[u8]) -> u8 {
    bytes.last().copied().unwrap_or_default()
}

#[derive(Default)]
struct Taken {
    delivered: Vec<Vec<u8>>,
    control: Vec<Vec<u8>>,
    marks: Vec<u8>,
    /// The program's own, with the ECN mark that they bear.
    again: Vec<(Vec<u8>, Mark)>,
}

impl Outlet<u8> for Taken {
    fn deliver(&mut self, datagram: &[u8], mark: u8) {
        self.delivered.push(datagram.to_vec());
        self.marks.push(mark);
    }

    fn transmit(&mut self, control: &[u8]) {
        self.control.push(control.to_vec());
    }

    fn repeat(&mut self, datagram: &[u8], mark: Mark) {
        let message = bundle::split(datagram).map_or(&[][..], |bundle| bundle.message);
        self.control.extend((!message.is_empty()).then(|| message.to_vec()));
        self.again.push((datagram.to_vec(), mark));
    }
}

/// The gateway's side of one flow: the datagrams in flight in both directions, with the time of
/// arrival.
struct Side {
    id: FlowId,
    flow: Flow,
    down: Vec<(Timestamp, Vec<u8>)>,
    up: Vec<(Timestamp, Vec<u8>)>,
    taken: Taken,
    random: ChaCha8Rng,
    lost: u64,
}

struct World {
    now: Timestamp,
    table: Table<u8>,
    gateway: Option<Arc<Gateway>>,
    sides: Vec<Side>,
    /// Loss of the last mile, per 1000, towards the agent.
    loss: u32,
}

impl World {
    fn new(limits: Limits, with_gateway: bool, loss: u32) -> Self {
        let config = ClientConfig::default().with_scheme(IdentifierScheme::Payload);
        let gateway = || Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
        Self {
            now: Timestamp::from_millis(1000),
            table: Table::new(vec![config], limits),
            gateway: with_gateway.then(gateway),
            sides: Vec::new(),
            loss,
        }
    }

    /// A program sends its first datagram.
    fn begin(&mut self, number: u16) -> FlowId {
        assert_eq!(self.table.find(peer(number)), None);
        let id = self.table.begin(peer(number), self.now, Some([number as u8; 32])).unwrap();
        self.table.on_sent(id, 1, 100, self.now);
        let gateway = Arc::clone(
            self.gateway
                .get_or_insert_with(|| Gateway::new(GatewayConfig::default(), [3; 32], [4; 32])),
        );
        let mut side = Side {
            id,
            flow: Flow::new(gateway),
            down: Vec::new(),
            up: Vec::new(),
            taken: Taken::default(),
            random: ChaCha8Rng::seed_from_u64(u64::from(number)),
            lost: 0,
        };
        self.table.serve(id, self.now, &mut side.taken);
        self.sides.push(side);
        id
    }

    /// A server sends a datagram, which passes the gateway.
    fn serve(&mut self, side: usize, number: u64) {
        let (now, loss) = (self.now, self.loss);
        let side = &mut self.sides[side];
        let mut bytes = datagram(number);
        if let Some(header) = side.flow.forward(&bytes, now) {
            bytes.splice(..0, header);
        }
        side.send_down(bytes, now, loss);
    }

    /// A millisecond passes. `gateway_answers`: control datagrams reach it.
    fn step(&mut self, gateway_answers: bool) {
        self.now = self.now + STEP;
        let (now, loss) = (self.now, self.loss);
        for side in &mut self.sides {
            let control: Vec<_> = side.taken.control.drain(..).collect();
            side.up.extend(control.into_iter().map(|bytes| (now + STEP * ONE_WAY as u32, bytes)));
            for said in due(&mut side.up, now) {
                if gateway_answers {
                    let gateway = self.gateway.as_ref().unwrap();
                    let mut out = Outbox::new();
                    match gateway.receive(&said, program(0), now, &mut out) {
                        Received::Done(_) => {}
                        Received::Begin(begin) => {
                            side.flow.begin(begin, [5; 32], now, &mut out);
                        }
                        Received::ForFlow => side.flow.control(&said, now, &mut out),
                    }
                    for bytes in out.datagrams().map(<[u8]>::to_vec).collect::<Vec<_>>() {
                        side.send_down(bytes, now, loss);
                    }
                }
            }
            let arrived = due(&mut side.down, now);
            let datagrams = arrived.iter().map(|bytes| (bytes.as_slice(), mark_of(bytes)));
            self.table.on_received(side.id, datagrams, now, &mut side.taken);
            self.table.serve(side.id, now, &mut side.taken);
        }
        while let Some(id) = self.table.next_due(now) {
            let side = self.sides.iter_mut().find(|side| side.id == id).unwrap();
            self.table.handle_timeout(id, now, &mut side.taken);
        }
    }

    fn steps(&mut self, count: u64, gateway_answers: bool) {
        (0..count).for_each(|_| self.step(gateway_answers));
    }

    fn delivered(&self, side: usize) -> Vec<u64> {
        let number = |bytes: &Vec<u8>| u64::from_be_bytes(bytes[1..9].try_into().unwrap());
        let delivered = &self.sides[side].taken.delivered;
        for bytes in delivered {
            assert_eq!(*bytes, datagram(number(bytes)), "changed on the way");
        }
        delivered.iter().map(number).collect()
    }
}

impl Side {
    fn send_down(&mut self, bytes: Vec<u8>, now: Timestamp, loss: u32) {
        if self.random.next_u32() % 1000 < loss {
            self.lost += 1;
        } else {
            self.down.push((now + STEP * ONE_WAY as u32, bytes));
        }
    }
}

fn due(queue: &mut Vec<(Timestamp, Vec<u8>)>, now: Timestamp) -> Vec<Vec<u8>> {
    let (due, later) = std::mem::take(queue).into_iter().partition(|(at, _)| *at <= now);
    *queue = later;
    due.into_iter().map(|(_, bytes): (_, Vec<u8>)| bytes).collect()
}

#[test]
fn what_waits_leaves_with_the_mark_that_it_was_sent_with() {
    use quinn_udp::EcnCodepoint::{Ce, Ect0};
    let mut world = World::new(Limits::default(), true, 0);
    let id = world.begin(1);
    world.steps(50, true);
    let acknowledgement = |number: u8| [&[0x41, 7, 7, number][..], &[9; 30]].concat();
    // A request, and a download that is as fast as it gets.
    let (of_server, mark) = (40, Some(Ect0));
    world.table.set_mark(id, mark, world.now, &mut world.sides[0].taken);
    world.table.on_send(id, &[0x41; 90], world.now);
    world.steps(of_server, true);
    // A handshake of QUIC between two connection IDs that are equal.
    let handshake: &[u8] = &[0xc0, 0, 0, 0, 1, 2, 7, 7, 2, 7, 7, 0];
    world.table.on_received(id, [(handshake, 0)], world.now, &mut world.sides[0].taken);
    world.table.on_send(id, handshake, world.now);
    for number in 0..200 {
        if number == 20 {
            world.table.bundle(id, &acknowledgement(0), mark, world.now);
        }
        world.serve(0, number);
        world.steps(4, true);
    }
    let (table, now, taken) = (&mut world.table, world.now, &mut world.sides[0].taken);
    taken.again.clear();
    // A report of congestion belongs to one datagram, and would be lost among others.
    for (number, mark) in [(1, Some(Ect0)), (9, Some(Ce)), (2, Some(Ect0))] {
        assert!(table.has_mark(id, mark));
        table.set_mark(id, mark, now, taken);
        assert_eq!(table.bundle(id, &acknowledgement(number), mark, now), mark != Some(Ce));
        table.serve(id, now, taken);
        assert!(taken.again.is_empty(), "it waits");
    }
    assert!(!table.has_mark(id, None));
    table.set_mark(id, None, now, taken);
    let [(together, Some(Ect0))] = taken.again.as_slice() else { panic!("{:?}", taken.again) };
    let together = bundle::split(together).unwrap();
    assert!(together.datagrams().eq([acknowledgement(1), acknowledgement(2)]));
    taken.again.clear();
    assert!(table.bundle(id, &acknowledgement(3), None, now));
    world.steps(20, true);
    let taken = &world.sides[0].taken;
    let Some((_, None)) = taken.again.first() else { panic!("{:?}", taken.again) };
}

/// Two programs receive all datagrams in order over a last mile that loses a twentieth.
#[test]
fn two_programs_get_all_in_order_over_a_last_mile_with_losses() {
    let mut world = World::new(Limits::default(), true, 50);
    world.begin(1);
    world.begin(2);
    world.steps(200, true);
    let (sums, conditions) = world.table.sums(0);
    assert_eq!(conditions.get(&Condition::Assisted), Some(&2), "{sums:?}");
    for number in 0..3000 {
        world.serve(0, number);
        world.serve(1, 1_000_000 + number);
        world.step(true);
    }
    // The last datagrams may be lost without a later one to reveal it: the gateway repairs these.
    world.steps(1000, true);
    assert_eq!(world.delivered(0), (0..3000).collect::<Vec<_>>());
    assert_eq!(world.delivered(1), (1_000_000..1_003_000).collect::<Vec<_>>());
    let (sums, _) = world.table.sums(0);
    assert!(world.sides.iter().all(|side| side.lost > 100));
    assert!(sums.repaired_in_time >= 250 && sums.kept > 500, "{sums:?}");
    assert_eq!((sums.delivered_datagrams, sums.given_up), (6000, 0), "{sums:?}");
    assert_eq!(world.table.waiting_bytes(), 0);
    // A recovered datagram has arrived without a mark of its own.
    let strange = |side: &Side| {
        let Taken { delivered, marks, .. } = &side.taken;
        delivered.iter().zip(marks).filter(|(bytes, mark)| mark_of(bytes) != **mark).count()
    };
    let strange: usize = world.sides.iter().map(strange).sum();
    assert!(strange as u64 <= sums.recovered, "{strange} have the mark of another one: {sums:?}");
}

/// Programs that act upon each datagram, with datagrams that wait for others and without.
#[test]
fn a_program_gets_each_datagram_once() {
    for hold in [Duration::ZERO, Duration::from_secs(1)] {
        let mut world = World::new(Limits::default(), true, 0);
        let config = ClientConfig::default().with_scheme(IdentifierScheme::Payload);
        let config = config.with_maximum_hold(hold);
        world.table = Table::new(vec![config], Limits::default());
        world.begin(1);
        world.steps(200, true);
        world.loss = 30;
        for number in 0..1500 {
            world.serve(0, number);
            // The network copies some, as repairs and tail probes do.
            let copy = world.sides[0].down.last().filter(|_| number % 40 == 9).cloned();
            world.sides[0].down.extend(copy);
            world.steps(2, true);
        }
        world.steps(1000, true);
        let (sums, _) = world.table.sums(0);
        let mut delivered = world.delivered(0);
        delivered.sort_unstable();
        let once: BTreeSet<u64> = delivered.iter().copied().collect();
        assert_eq!(delivered, once.iter().copied().collect::<Vec<_>>(), "{hold:?}: {sums:?}");
        assert!(once.len() > 1490 && world.sides[0].lost > 30, "{hold:?}: {sums:?}");
        assert!(sums.duplicates > 0, "{hold:?}: no copy has come: {sums:?}");
    }
}

#[test]
fn without_a_gateway_everything_passes_at_once_and_as_it_comes() {
    let mut world = World::new(Limits::default(), true, 0);
    world.begin(1);
    for number in [3, 1, 2, 2] {
        world.serve(0, number);
        world.steps(ONE_WAY, false);
        assert_eq!(world.delivered(0).last(), Some(&number));
    }
    world.steps(30_000, false);
    assert_eq!(world.delivered(0), [3, 1, 2, 2]);
    assert_eq!(world.table.sums(0).1.get(&Condition::NoGateway), Some(&1));
}

/// The gateway is lost with its memory while datagrams wait for repairs.
#[test]
fn nothing_is_kept_back_for_long_when_the_gateway_has_gone() {
    let mut world = World::new(Limits::default(), true, 0);
    world.begin(1);
    world.steps(200, true);
    (0..50).for_each(|number| {
        world.serve(0, number);
        world.step(true);
    });
    world.steps(20, true);
    // One datagram is lost, and stays unrepaired.
    world.loss = 1000;
    world.serve(0, 50);
    world.loss = 0;
    (51..60).for_each(|number| {
        world.serve(0, number);
        world.step(false);
    });
    world.steps(4, false);
    assert_eq!(world.delivered(0).len(), 50, "they wait for the missing one");
    assert!(world.table.waiting_bytes() > 0);
    world.steps(1000, false);
    let expected: Vec<u64> = (0..50).chain(51..60).collect();
    assert_eq!(world.delivered(0), expected);
    assert_eq!(world.table.waiting_bytes(), 0);
}

#[test]
fn what_waits_is_bounded() {
    let limits = Limits { flow_bytes: 5 * 1200, ..Limits::default() };
    let mut world = World::new(limits, true, 0);
    world.begin(1);
    world.steps(200, true);
    (0..20).for_each(|number| {
        world.serve(0, number);
        world.step(true);
    });
    world.steps(20, true);
    world.loss = 1000;
    world.serve(0, 20);
    world.loss = 0;
    (21..26).for_each(|number| world.serve(0, number));
    world.steps(ONE_WAY, false);
    assert_eq!(world.delivered(0).len(), 20);
    assert_eq!(world.table.waiting_bytes(), 5 * 1200);
    world.serve(0, 26);
    world.steps(ONE_WAY, false);
    assert_eq!(world.delivered(0)[20..], [21], "the first of them passes");
    assert_eq!(world.table.waiting_bytes(), 5 * 1200);
}

#[test]
fn the_memory_of_all_flows_is_bounded_and_repair_continues() {
    let limits = Limits { total_bytes: 1 << 20, ..Limits::default() };
    let mut world = World::new(limits, true, 50);
    for number in 1..5 {
        world.begin(number);
    }
    world.steps(200, true);
    for number in 0..2000 {
        (0..4).for_each(|side| world.serve(side, number));
        world.step(true);
        let memory = world.table.memory();
        assert!(memory <= limits.total_bytes, "{memory} bytes after {number} datagrams each");
    }
    world.steps(1000, true);
    let (sums, _) = world.table.sums(0);
    let lost: u64 = world.sides.iter().map(|side| side.lost).sum();
    assert!(sums.repaired_in_time * 2 > lost, "{lost} lost: {sums:?}");
    for side in 0..4 {
        let delivered = world.delivered(side).len();
        assert!(delivered > 1950, "{delivered}: {sums:?}");
    }
}

#[test]
fn flows_have_a_limit_and_an_idle_one_makes_room() {
    let limits = Limits { flows: 2, idle: Duration::from_secs(60), ..Limits::default() };
    let mut world = World::new(limits, true, 0);
    let first = world.begin(1);
    world.begin(2);
    let seed = Some([9; 32]);
    assert_eq!(world.table.begin(peer(3), world.now, seed), None);
    assert_eq!(world.table.find(peer(1)), Some(first));
    assert_eq!((world.table.refused(0), world.table.len()), (1, 2));
    // The second one is used, the first one is not.
    for _ in 0..70 {
        world.steps(1000, true);
        world.table.on_sent(world.sides[1].id, 1, 100, world.now);
        let side = &mut world.sides[1];
        world.table.serve(side.id, world.now, &mut side.taken);
    }
    assert_eq!(world.table.len(), 1);
    assert_eq!(world.table.peer(first), None);
    assert!(world.table.begin(peer(3), world.now, seed).is_some());
    assert_eq!(world.table.sums(0).0.sent_datagrams, 2 + 70, "those that are over count too");
}

/// A flow that could not be opened is forgotten; a flow without randomness does not begin.
#[test]
fn failed_flows_are_forgotten_and_flows_need_randomness() {
    let mut table: Table<u8> = Table::new(vec![ClientConfig::default()], Limits::default());
    let now = Timestamp::from_millis(1000);
    assert_eq!(table.begin(peer(1), now, None), None);
    let id = table.begin(peer(1), now, Some([1; 32])).unwrap();
    table.refuse(id);
    assert_eq!((table.len(), table.refused(0), table.next_timeout()), (0, 2, None));
    assert_eq!(
        table.begin(Peer { service: 7, ..peer(1) }, now, Some([1; 32])),
        None,
        "no such service"
    );
}

/// Programs that come and go, each with a new port, leave room for later ones, and displace no flow
/// in use.
#[test]
fn a_full_table_evicts_the_idlest_flow_and_no_used_one() {
    let mut world = World::new(Limits { flows: 3, ..Limits::default() }, true, 0);
    let ids = [1, 2, 3].map(|number| {
        world.steps(1000, true);
        world.begin(number)
    });
    assert_eq!(world.table.idlest(world.now), None, "all were used within ten seconds");
    let use_first = |world: &mut World| {
        world.table.on_sent(ids[0], 1, 100, world.now);
        let side = &mut world.sides[0];
        world.table.serve(side.id, world.now, &mut side.taken);
    };
    (0..10).for_each(|_| {
        use_first(&mut world);
        world.steps(1000, true);
    });
    let idlest = world.table.idlest(world.now);
    assert_eq!(idlest, Some(ids[1]), "the first one began earlier, and is in use");
    let side = &mut world.sides[1];
    side.taken.control.clear();
    world.table.evict(ids[1], world.now, &mut side.taken);
    assert_eq!(side.taken.control.len(), 1, "a goodbye");
    world.sides.remove(1);
    assert_eq!((world.table.idlest(world.now), world.table.evicted(0)), (None, 1), "there is room");
    world.begin(4);
    assert_eq!(world.table.idlest(world.now), None, "the third one is used for a second more");
    world.steps(2000, true);
    assert_eq!(world.table.idlest(world.now), Some(ids[2]));
}

/// One machine of many begins flow after flow: it displaces only its own, and others are served.
#[test]
fn a_source_with_its_share_makes_room_by_its_own_flows() {
    let limits = Limits { flows: 8, source_flows: 4, ..Limits::default() };
    let mut table: Table<u8> = Table::new(vec![ClientConfig::default()], limits);
    let mut outlet = Taken::default();
    let now = Timestamp::from_millis(1000);
    let of = |address: &str, port: u16| Peer {
        address: SocketAddr::new(address.parse().unwrap(), port),
        ..peer(1)
    };
    let mut begin = |table: &mut Table<u8>, peer: Peer, now: Timestamp| {
        if let Some(room) = table.room_for(peer, now) {
            table.evict(room, now, &mut outlet);
        }
        table.begin(peer, now, Some([1; 32]))
    };
    let first = begin(&mut table, of("192.0.2.1", 1), now).unwrap();
    for port in 2..200 {
        table.on_sent(first, 1, 100, now + Duration::from_millis(u64::from(port)));
        assert!(begin(&mut table, of("192.0.2.1", port), now).is_some());
        // Of IPv6 a machine has a /64.
        let other = format!("2001:db8::{port}");
        assert!(begin(&mut table, of(&other, port), now).is_some());
    }
    assert_eq!(table.len(), 8);
    assert!(table.peer(first).is_some(), "it is in use");
    assert!(table.find(of("192.0.2.1", 199)).is_some(), "the newest has its place");
    // Programs of this host share no last mile.
    let mut table: Table<u8> = Table::new(vec![ClientConfig::default()], limits);
    for port in 1..=8 {
        assert!(begin(&mut table, of("127.0.0.1", port), now).is_some());
    }
    assert_eq!((table.len(), table.evicted(0)), (8, 0));
}

/// A gateway that wants a token refuses, until there is one; datagrams pass all the same.
#[test]
fn a_token_reaches_the_flows_that_there_are() {
    let mut world = World::new(Limits::default(), true, 0);
    let (key, route) = (|| Key::new(1, [1; 32]), RouteHash::of("web"));
    let check = TokenCheck { keys: Keys { current: key(), previous: None }, route };
    let gateway = world.gateway.as_ref().unwrap();
    gateway.set_unix_origin(Duration::from_secs(1_800_000_000));
    gateway.set_tokens(TokenAdmission::Required(check));
    let id = world.begin(1);
    world.steps(200, true);
    assert_eq!(world.table.sums(0).1.get(&Condition::Refused), Some(&1));
    world.serve(0, 1);
    world.steps(ONE_WAY, true);
    assert_eq!(world.delivered(0), [1]);
    let claims = Claims { expires: 1_800_000_300, route, binding: None, nonce: 5 };
    let token = Token::new(key().issue(&claims)).unwrap();
    world.table.set_access(0, Access::default().with_token(token));
    world.table.give_access(id, world.now, &mut world.sides[0].taken);
    world.steps(200, true);
    assert_eq!(world.table.sums(0).1.get(&Condition::Assisted), Some(&1));
}

/// The gateway's key comes with the token, after flows have begun: afterwards these flows are also
/// assisted by that gateway only.
#[test]
fn a_gateway_key_reaches_the_flows_that_there_are() {
    let token = || Token::new([7; 60]).unwrap();
    let right = packrat_wire::handshake::public_key(&[3; 32]).unwrap();
    for (key, at_begin) in [
        // A session with another gateway ends, and none begins.
        ([9; 32], 200),
        // A handshake in progress with another gateway fails.
        ([9; 32], ONE_WAY),
        // A session with the right gateway continues, or begins.
        (right, 200),
        (right, ONE_WAY),
    ] {
        let mut world = World::new(Limits::default(), true, 0);
        let id = world.begin(1);
        world.steps(at_begin, true);
        let sessions = world.table.sums(0).0.sessions;
        let access = Access::default().with_gateway_key(key).with_token(token());
        world.table.set_access(0, access);
        world.table.give_access(id, world.now, &mut world.sides[0].taken);
        world.steps(5000, true);
        let (sums, conditions) = world.table.sums(0);
        let (expected, assisted) = if key == right { (1, Some(&1)) } else { (sessions, None) };
        assert_eq!(sums.sessions, expected, "{key:?} {at_begin}");
        assert_eq!(conditions.get(&Condition::Assisted), assisted, "{key:?} {at_begin}");
        // Datagrams to the gateway that is no longer accepted still pass.
        world.serve(0, 1);
        world.steps(ONE_WAY, true);
        assert_eq!(world.delivered(0), [1]);
    }
}

#[test]
fn a_flow_that_is_closed_says_goodbye_and_lets_everything_go() {
    let mut world = World::new(Limits::default(), true, 0);
    let id = world.begin(1);
    world.steps(200, true);
    world.serve(0, 0);
    world.steps(20, true);
    world.loss = 1000;
    world.serve(0, 1);
    world.loss = 0;
    world.serve(0, 2);
    world.steps(ONE_WAY, false);
    assert_eq!(world.delivered(0), [0]);
    let side = &mut world.sides[0];
    side.taken.control.clear();
    world.table.close(id, world.now, &mut side.taken);
    assert_eq!(side.taken.control.len(), 1, "a goodbye");
    assert_eq!(world.delivered(0), [0, 2]);
    assert_eq!((world.table.len(), world.table.next_timeout()), (0, None));
    assert_eq!(world.table.waiting_bytes(), 0);
}

/// After a change of the network the session continues from another address.
#[test]
fn a_change_of_the_network_is_told_at_once() {
    let mut world = World::new(Limits::default(), true, 0);
    let id = world.begin(1);
    world.steps(200, true);
    let side = &mut world.sides[0];
    side.taken.control.clear();
    world.table.on_network_change(id, world.now, &mut side.taken);
    assert_eq!(side.taken.control.len(), 1, "a message from the new address");
}
