//! Events of an observed subscriber of a stream: the same as a session's.

use packrat_client::Live;
use packrat_engine::{
    Event, GatewayConfig, GiveUpReason, RepairRefusedReason, SessionEvent, StreamConfig,
};
use packrat_wire::SessionId;
use std::time::Duration;

use crate::audience::{LIVE, World};

/// The packet that is lost.
const LOST: u64 = 100;

/// A stream with two members, of which the first one is observed.
fn observed(config: GatewayConfig, repairs_arrive: bool) -> World {
    let stream = StreamConfig { cache_bytes: 1 << 20, ..StreamConfig::default() };
    let mut world = World::new(7, stream, config);
    world.loses = match repairs_arrive {
        true => |number, is_repair| number == LOST && !is_repair,
        false => |number, _| number == LOST,
    };
    let live = Live { selective: false, window: Duration::from_millis(200), ..LIVE };
    for number in [1, 2] {
        world.join_with(([192, 0, 2, number], 1000).into(), 0.0, live);
    }
    world.run(300, false);
    world.run(50, true);
    assert_eq!((world.number, world.events.len()), (50, 0), "told without being observed");
    assert!(world.stream.observe(session(&world), true));
    world
}

/// The session of the first member.
fn session(world: &World) -> SessionId {
    world.members[0].session.unwrap()
}

/// The events of the first member, which must be the only ones.
fn told(world: &World) -> Vec<SessionEvent> {
    let of_first = |event: &Event| match event {
        Event::Session { session: of, event } if *of == session(world) => *event,
        other => panic!("{other:?}"),
    };
    world.events.iter().map(of_first).collect()
}

#[test]
fn an_observed_subscribers_loss_is_found_and_repaired() {
    let mut world = observed(GatewayConfig::default(), true);
    world.run(500, true);
    let told = told(&world);
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
    let session = session(&world);
    assert!(world.stream.observe(session, false));
    world.run(3000, true);
    assert_eq!(world.events.len(), told.len());
    assert!(!world.stream.observe(SessionId::new(session.get().wrapping_add(1)), true));
}

#[test]
fn a_packet_that_no_repair_saves_is_given_up_for_a_reason() {
    let mut world = observed(GatewayConfig::default(), false);
    world.run(800, true);
    let reasons: Vec<_> = told(&world)
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
    let mut world = observed(config, true);
    world.run(300, true);
    let told = told(&world);
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
    let mut world = observed(GatewayConfig::default(), true);
    world.members[0].address = ([203, 0, 113, 5], 4000).into();
    world.run(1500, true);
    let told = told(&world);
    let at = |wanted: SessionEvent| told.iter().position(|event| *event == wanted);
    assert!(at(SessionEvent::PathChallenged).unwrap() < at(SessionEvent::PathValidated).unwrap());
}
