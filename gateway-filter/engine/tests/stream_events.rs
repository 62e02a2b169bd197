//! Events of an observed subscriber of a stream: the same as a session's.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use packrat_client::{Assist, ClientConfig, Datagram, Live, PacketNumber};
use packrat_engine::{
    Event, Gateway, GatewayConfig, GiveUpReason, RepairRefusedReason, SessionEvent, Stream,
    StreamConfig, StreamOutbox, Target,
};
use packrat_wire::SessionId;
use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::IdentifierScheme;
use packrat_wire::seal::session_of;

const DELAY: Duration = Duration::from_millis(10);
const TICK: Duration = Duration::from_millis(1);
/// The packet that is lost.
const LOST: u64 = 100;

/// A client of the stream, at the other end of a last mile.
struct Member {
    address: SocketAddr,
    assist: Assist,
    session: Option<SessionId>,
    down: VecDeque<(Timestamp, Vec<u8>)>,
    up: VecDeque<(Timestamp, Vec<u8>)>,
}

struct World {
    now: Timestamp,
    stream: Stream,
    members: Vec<Member>,
    number: u64,
    /// True if repairs of [`LOST`] arrive.
    repairs_arrive: bool,
    events: Vec<(SessionId, SessionEvent)>,
}

fn packet(number: u64) -> Vec<u8> {
    let mut bytes = vec![0x80; 240];
    bytes[1..9].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number_of(packet: &[u8]) -> Option<u64> {
    (packet[0] == 0x80).then(|| u64::from_be_bytes(packet[1..9].try_into().unwrap()))
}

impl World {
    /// Two members without loss, which are not observed.
    fn new(config: GatewayConfig, repairs_arrive: bool) -> Self {
        let stream = StreamConfig { cache_bytes: 1 << 20, ..StreamConfig::default() };
        let member = |number: u8| {
            let live = Live {
                selective: false,
                subscribe: true,
                window: Duration::from_millis(200),
                tolerance: Duration::ZERO,
                symbols: false,
            };
            let config =
                ClientConfig::default().with_live(live).with_scheme(IdentifierScheme::Payload);
            Member {
                address: ([192, 0, 2, number], 1000).into(),
                assist: Assist::new(config, [number; 32], Timestamp::from_millis(1)),
                session: None,
                down: VecDeque::new(),
                up: VecDeque::new(),
            }
        };
        let mut world = Self {
            now: Timestamp::from_millis(1),
            stream: Stream::new(Gateway::new(config, [1; 32], [2; 32]), stream, [3; 32]),
            members: vec![member(1), member(2)],
            number: 0,
            repairs_arrive,
            events: Vec::new(),
        };
        world.run(300, false);
        world.run(50, true);
        assert_eq!((world.number, world.events.len()), (50, 0), "told without being observed");
        world
    }

    fn observed(config: GatewayConfig, repairs_arrive: bool) -> Self {
        let mut world = Self::new(config, repairs_arrive);
        assert!(world.stream.observe(world.members[0].session.unwrap(), true));
        world
    }

    /// Runs for this many milliseconds, with a packet each millisecond if the stream is on.
    fn run(&mut self, milliseconds: u64, on: bool) {
        let mut out = StreamOutbox::new();
        for _ in 0..milliseconds {
            self.now = self.now + TICK;
            let now = self.now;
            if on {
                self.stream.forward(&packet(self.number), now);
                for member in self.members.iter_mut().filter(|_| self.number != LOST) {
                    member.down.push_back((now + DELAY, packet(self.number)));
                }
                self.number += 1;
            }
            for member in &mut self.members {
                while let Some((_, bytes)) = member.down.pop_front_if(|(at, _)| *at <= now) {
                    if member.assist.on_datagram(&bytes, now) == Datagram::Base {
                        let number = PacketNumber::new(number_of(&bytes).unwrap());
                        member.assist.on_packet_number(number, now);
                    }
                }
                member.assist.handle_timeout(now);
                while let Some(bytes) = member.assist.poll_transmit(now) {
                    member.session = session_of(&bytes).or(member.session);
                    member.up.push_back((now + DELAY, bytes));
                }
                while let Some((_, bytes)) = member.up.pop_front_if(|(at, _)| *at <= now) {
                    self.stream.receive(&bytes, member.address, || [7; 32], now, &mut out);
                }
            }
            self.stream.handle_timeout(now, &mut out);
            for (target, bytes) in out.datagrams() {
                let Target::One(to) = target else { continue };
                let member = self.members.iter_mut().find(|member| member.address == to).unwrap();
                if self.repairs_arrive || number_of(bytes) != Some(LOST) {
                    member.down.push_back((now + DELAY, bytes.to_vec()));
                }
            }
            self.events.extend(out.take_events().into_iter().map(|event| match event {
                Event::Session { session, event } => (session, event),
                other => panic!("{other:?}"),
            }));
            out.clear();
        }
    }

    /// The events of the first member, which must be the only ones.
    fn told(&self) -> Vec<SessionEvent> {
        let session = self.members[0].session.unwrap();
        assert!(self.events.iter().all(|(of, _)| *of == session), "told of another one");
        self.events.iter().map(|(_, event)| *event).collect()
    }
}

#[test]
fn an_observed_subscribers_loss_is_found_and_repaired() {
    let mut world = World::observed(GatewayConfig::default(), true);
    world.run(500, true);
    let told = world.told();
    let of_it: Vec<_> = told
        .iter()
        .filter(|event| {
            matches!(
                event,
                SessionEvent::DatagramMissing { .. }
                    | SessionEvent::RepairSent { .. }
                    | SessionEvent::MissingArrived { .. }
                    | SessionEvent::GivenUp { .. }
            )
        })
        .collect();
    let datagram = match of_it[..] {
        [
            SessionEvent::DatagramMissing { datagram: missing, age: found },
            SessionEvent::RepairSent { datagram, transmission: 1, age: sent },
            SessionEvent::MissingArrived { datagram: arrived, transmissions: 1, age },
        ] if missing == datagram && arrived == datagram && found <= sent && sent < age => *datagram,
        _ => panic!("{of_it:?}"),
    };
    assert_eq!(datagram.get(), LOST, "the stream's first packet has number 0");
    assert!(told.iter().any(|event| matches!(
        event,
        SessionEvent::EackDecoded { newly_missing: 1, missing: 1, .. }
    )));
    // The member is not observed any more.
    let session = world.members[0].session.unwrap();
    assert!(world.stream.observe(session, false));
    world.run(3000, true);
    assert_eq!(world.events.len(), told.len());
    assert!(!world.stream.observe(SessionId::new(session.get().wrapping_add(1)), true));
}

#[test]
fn a_packet_that_no_repair_saves_is_given_up_for_a_reason() {
    let mut world = World::observed(GatewayConfig::default(), false);
    world.run(800, true);
    let reasons: Vec<_> = world
        .told()
        .iter()
        .filter_map(|event| match event {
            SessionEvent::GivenUp { datagram, transmissions, reason } => {
                assert!(datagram.is_some_and(|datagram| datagram.get() == LOST));
                assert!(*transmissions > 1, "{transmissions}");
                Some(*reason)
            }
            _ => None,
        })
        .collect();
    assert_eq!(reasons, [GiveUpReason::WindowOver]);
}

#[test]
fn without_a_budget_each_wanted_repair_is_refused() {
    let config = GatewayConfig { repair_budget: 0.0, ..GatewayConfig::default() };
    let mut world = World::observed(config, true);
    world.run(300, true);
    let told = world.told();
    let refused = |event: &&SessionEvent| match event {
        SessionEvent::RepairRefused { datagram, reason } => {
            datagram.get() == LOST && *reason == RepairRefusedReason::BudgetEmpty
        }
        _ => false,
    };
    assert!(told.iter().filter(refused).count() > 0, "{told:?}");
    assert!(!told.iter().any(|event| matches!(event, SessionEvent::RepairSent { .. })));
}

#[test]
fn a_move_is_challenged_and_validated() {
    let mut world = World::observed(GatewayConfig::default(), true);
    world.members[0].address = ([203, 0, 113, 5], 4000).into();
    world.run(1500, true);
    let told = world.told();
    let at = |wanted: SessionEvent| told.iter().position(|event| *event == wanted);
    assert!(at(SessionEvent::PathChallenged).unwrap() < at(SessionEvent::PathValidated).unwrap());
}
