//! Why a missing datagram was repaired or not, as both ends of an observed session report it: a
//! real client and a real flow, between which a test drops datagrams.

use std::net::SocketAddr;
use std::time::Duration;

use packrat_client::{
    ClientConfig, ClientEvent, HoldEndedReason, Live, NotHeldReason, PacketNumber, ResetReason,
    SessionClosedReason,
};
use packrat_engine::{
    EackIgnoredReason, GatewayConfig, GiveUpReason, NetworkPath, Outbox, PathEvent, PathUse,
    RepairRefusedReason, Sequence, SessionEvent, Side,
};
use packrat_wire::Epoch;
use packrat_wire::message::GoodbyeReason;

use crate::ends::pair::{Pair, gateway};

/// The datagram that is lost.
const LOST: u64 = 100;
const LOST_PACKET: PacketNumber = PacketNumber::new(LOST);

/// A client and its flow, observed at both ends.
fn observed(client: ClientConfig, config: GatewayConfig) -> Pair {
    let mut pair = Pair::new(&gateway(config), client, 1);
    pair.observe();
    pair
}

/// The same with the default configurations, after a tenth of a second without a loss.
fn at_work() -> Pair {
    let mut pair = observed(ClientConfig::default(), GatewayConfig::default());
    pair.run(100, |_| true);
    pair
}

impl Pair {
    /// The sequence number of the datagram that was found to be missing first.
    fn missing(&self) -> Sequence {
        let missing = self.events.iter().find_map(|event| match event {
            SessionEvent::DatagramMissing { datagram, .. } => Some(*datagram),
            _ => None,
        });
        missing.unwrap_or_else(|| panic!("nothing is missing: {:?}", self.events))
    }

    /// The client's events for which there is an answer, in order.
    fn of_client<T>(&self, choose: impl Fn(&ClientEvent) -> Option<T>) -> Vec<T> {
        self.of_client.lock().unwrap().iter().filter_map(choose).collect()
    }

    /// Reasons for ignored eACKs.
    fn ignored(&self) -> Vec<EackIgnoredReason> {
        let ignored = self.events.iter().filter_map(|event| match event {
            SessionEvent::EackIgnored { reason, .. } => Some(*reason),
            _ => None,
        });
        ignored.collect()
    }

    fn reasons(&self) -> Vec<GiveUpReason> {
        let given_up = self.events.iter().filter_map(|event| match event {
            SessionEvent::GivenUp { reason, .. } => Some(*reason),
            _ => None,
        });
        given_up.collect()
    }
}

/// A session in which one datagram is lost.
fn with_one_loss(config: GatewayConfig, repairs_arrive: bool) -> Pair {
    let mut pair = observed(ClientConfig::default(), config);
    pair.repairs_arrive = repairs_arrive;
    lose_one(pair)
}

fn lose_one(mut pair: Pair) -> Pair {
    pair.run(600, |number| number != LOST);
    pair
}

#[test]
fn a_loss_is_found_repaired_and_arrives() {
    let pair = with_one_loss(GatewayConfig::default(), true);
    let lost = pair.missing();
    let of_it: Vec<&SessionEvent> = pair
        .events
        .iter()
        .filter(|event| match event {
            SessionEvent::DatagramMissing { datagram, .. }
            | SessionEvent::RepairSent { datagram, .. }
            | SessionEvent::MissingArrived { datagram, .. } => *datagram == lost,
            _ => false,
        })
        .collect();
    assert!(
        matches!(
            of_it[..],
            [
                SessionEvent::DatagramMissing { .. },
                SessionEvent::RepairSent { transmission: 1, .. },
                SessionEvent::MissingArrived { transmissions: 1, .. },
            ]
        ),
        "{of_it:?}"
    );
    assert!(matches!(pair.events[0], SessionEvent::EpochAnchored { .. }), "{:?}", pair.events[0]);
    assert!(pair.events.iter().any(|event| matches!(
        event,
        SessionEvent::EackDecoded { newly_missing: 1, missing: 1, .. }
    )));
    assert_eq!(pair.reasons(), []);
}

#[test]
fn the_client_tells_of_the_same_loss() {
    let pair = with_one_loss(GatewayConfig::default(), true);
    let told = pair.of_client(|event| match event {
        ClientEvent::SessionOpened { .. }
        | ClientEvent::HoleOpened { .. }
        | ClientEvent::MissingArrived { .. }
        | ClientEvent::HoldEnded { .. } => Some(*event),
        _ => None,
    });
    assert!(
        matches!(
            told[..],
            [
                ClientEvent::SessionOpened { .. },
                ClientEvent::HoleOpened { first: LOST_PACKET, last: LOST_PACKET, not_held: None },
                ClientEvent::MissingArrived { packet_number: LOST_PACKET, held: true, .. },
            ]
        ),
        "{told:?}"
    );
    // The client has received each Report of the gateway's events.
    let heard = pair.of_client(|event| match event {
        ClientEvent::ReportReceived { eack, queue_stands, .. } => Some((*eack, *queue_stands)),
        _ => None,
    });
    let reported = pair.events.iter().filter_map(|event| match event {
        SessionEvent::ReportSent { eack, queue_stands, .. } => Some((*eack, *queue_stands)),
        _ => None,
    });
    assert_eq!(reported.collect::<Vec<_>>(), heard);
    assert!(!heard.is_empty());
    // Each eACK that the gateway decoded is one that the client sent.
    let sent = pair.of_client(|event| match event {
        ClientEvent::EackSent { eack, .. } => Some(*eack),
        _ => None,
    });
    let decoded = pair.events.iter().filter_map(|event| match event {
        SessionEvent::EackDecoded { eack, .. } => Some(*eack),
        _ => None,
    });
    assert_eq!(decoded.collect::<Vec<_>>(), sent);
    assert_eq!(sent.len() as u64, pair.client.stats().eacks);
}

#[test]
fn an_unobserved_session_tells_nothing_and_works_the_same() {
    let unobserved =
        lose_one(Pair::new(&gateway(GatewayConfig::default()), ClientConfig::default(), 1));
    assert_eq!((unobserved.events, unobserved.of_client.lock().unwrap().len()), (vec![], 0));
    let observed = with_one_loss(GatewayConfig::default(), true);
    assert_eq!(unobserved.counters, observed.counters);
    assert_eq!(unobserved.client.stats(), observed.client.stats());
    // Observation ends as it began.
    let mut pair = observed;
    pair.flow.observe(false);
    pair.events.clear();
    pair.run(100, |number| number % 10 != 3);
    assert_eq!(pair.events, []);
}

#[test]
fn a_repair_without_budget_is_refused_until_the_loss_is_too_old() {
    let config = GatewayConfig { repair_budget: 0.0, ..GatewayConfig::default() };
    let pair = with_one_loss(config, true);
    let refused = SessionEvent::RepairRefused {
        datagram: pair.missing(),
        reason: RepairRefusedReason::BudgetEmpty,
    };
    assert!(pair.counters.budget_refusals > 0, "{:?}", pair.counters);
    assert!(pair.events.contains(&refused), "{:?}", pair.events);
    assert!(pair.reasons().contains(&GiveUpReason::TooOld), "{:?}", pair.events);
}

#[test]
fn repairs_that_never_arrive_are_given_up() {
    let pair = with_one_loss(GatewayConfig::default(), false);
    let given_up = pair.events.iter().find_map(|event| match event {
        SessionEvent::GivenUp { datagram: Some(datagram), transmissions, reason }
            if *datagram == pair.missing() =>
        {
            Some((*transmissions, *reason))
        }
        _ => None,
    });
    let (transmissions, reason) = given_up.unwrap_or_else(|| panic!("{:?}", pair.events));
    assert!(transmissions > 1, "{transmissions}");
    assert!(matches!(reason, GiveUpReason::TooOld | GiveUpReason::TooManyRepairs), "{reason:?}");
    assert_eq!(pair.counters.repairs_late as usize, pair.reasons().len());
    let ended = pair.of_client(|event| match event {
        ClientEvent::HoldEnded { first, last, reason, .. } => Some((*first, *last, *reason)),
        _ => None,
    });
    let settled = (LOST_PACKET, LOST_PACKET, HoldEndedReason::Settled);
    assert_eq!(ended, [settled], "the gateway has told the client");
}

#[test]
fn a_loss_that_the_cache_has_lost_is_given_up_for_that() {
    // So little that a datagram is gone before the client's next eACK.
    let config = GatewayConfig { cache_bytes_per_flow: 1500, ..GatewayConfig::default() };
    let pair = with_one_loss(config, true);
    assert!(pair.reasons().contains(&GiveUpReason::BytesGone), "{:?}", pair.events);
    assert!(pair.counters.repairs_evicted > 0);
}

#[test]
fn a_loss_in_a_queue_that_stands_is_left_to_the_sender() {
    let mut pair = at_work();
    for _ in 0..300 {
        pair.delay += Duration::from_micros(500);
        // The queue is full from 100 ms on.
        pair.run(1, |number| number < 300 || number % 10 != 7);
    }
    pair.run(200, |number| number % 10 != 7);
    assert!(pair.reasons().contains(&GiveUpReason::QueueStands), "{:?}", pair.reasons());
    assert!(pair.counters.losses_shown > 0);
    let not_held = pair.of_client(|event| match event {
        ClientEvent::HoleOpened { not_held, .. } => *not_held,
        _ => None,
    });
    assert!(not_held.contains(&NotHeldReason::QueueStands), "{not_held:?}");
}

#[test]
fn a_loss_before_a_silence_is_given_up_when_the_flow_is_quiet() {
    let mut pair = at_work();
    pair.repairs_arrive = false;
    pair.run(20, |number| number != LOST + 10);
    // The client is not heard any more: only time ends the repair.
    pair.kept_back = Some(Vec::new());
    // An outage of the last mile may have an end.
    pair.rest(3000);
    assert!(pair.reasons().is_empty(), "{:?}", pair.events);
    pair.rest(9000);
    assert_eq!(pair.reasons(), [GiveUpReason::Quiet], "{:?}", pair.events);
}

#[test]
fn eacks_that_are_not_looked_at_say_why() {
    let mut pair = at_work();
    pair.kept_back = Some(Vec::new());
    pair.run(60, |_| true);
    for said in pair.kept_back.take().unwrap().iter().rev() {
        pair.hear(said);
    }
    let stale = pair.ignored();
    assert!(!stale.is_empty(), "{:?}", pair.events);
    assert_eq!(stale, vec![EackIgnoredReason::Stale; pair.counters.eacks_stale as usize]);
}

#[test]
fn eacks_of_an_epoch_that_is_over_are_not_looked_at() {
    let mut pair = at_work();
    pair.kept_back = Some(Vec::new());
    pair.run(60, |_| true);
    let of_the_old_epoch = pair.kept_back.take().unwrap();
    pair.client.reset(pair.now);
    pair.run(60, |_| true);
    assert_eq!(pair.ignored(), []);
    for said in &of_the_old_epoch {
        pair.hear(said);
    }
    assert_eq!(pair.ignored(), vec![EackIgnoredReason::OtherEpoch; of_the_old_epoch.len()]);
    let reset = SessionEvent::Reset {
        epoch: Epoch::FIRST.next(),
        side: Side::Client,
        reason: ResetReason::ClientOverflow,
    };
    assert!(pair.events.contains(&reset), "{:?}", pair.events);
}

#[test]
fn a_client_with_undecodable_eacks_is_ignored_for_a_while() {
    let mut pair = at_work();
    pair.kept_back = Some(Vec::new());
    pair.receive_foreign(300);
    pair.run(400, |_| true);
    for said in &pair.kept_back.take().unwrap() {
        pair.hear(said);
    }
    let limited = pair.ignored();
    assert!(limited.contains(&EackIgnoredReason::Limited), "{:?}", pair.events);
    let count = limited.iter().filter(|reason| **reason == EackIgnoredReason::Limited).count();
    assert_eq!(count as u64, pair.counters.eacks_limited);
}

#[test]
fn a_loss_that_a_live_stream_has_no_use_for_is_given_up() {
    let live = Live { window: Duration::from_millis(30), ..Live::default() };
    let client = ClientConfig::default().with_live(live);
    let mut pair = observed(client, GatewayConfig::default());
    pair.repairs_arrive = false;
    pair.run(300, |number| number != LOST);
    assert_eq!(pair.reasons(), [GiveUpReason::WindowOver], "{:?}", pair.events);
}

#[test]
fn a_new_path_is_challenged_and_validated() {
    let mut pair = at_work();
    pair.kept_back = Some(Vec::new());
    pair.run(30, |_| true);
    let said = pair.kept_back.take().unwrap();
    let moved_to = NetworkPath {
        client: SocketAddr::from(([192, 0, 2, 2], 5000)),
        gateway: SocketAddr::from(([192, 0, 2, 1], 443)),
    };
    let free = || PathUse::Free;
    let mut out = Outbox::new();
    let event =
        pair.flow.control_on_new_path(&said[0], moved_to, || [1; 8], free, pair.now, &mut out);
    assert_eq!(event, PathEvent::Challenged);
    pair.deliver(&mut out);
    let answer = pair.client.poll_transmit(pair.now).unwrap();
    pair.flow.control_on_new_path(&answer, moved_to, || [2; 8], free, pair.now, &mut out);
    pair.deliver(&mut out);
    let told = |wanted| pair.events.iter().filter(|event| **event == wanted).count();
    assert_eq!(told(SessionEvent::PathChallenged), 1, "{:?}", pair.events);
    assert_eq!(told(SessionEvent::PathValidated), 1, "{:?}", pair.events);
    assert_eq!(
        pair.of_client(|event| (*event == ClientEvent::PathChallenged).then_some(())).len(),
        1
    );
}

#[test]
fn a_difference_beyond_the_sketch_fails_and_resets() {
    let mut pair = at_work();
    pair.receive_foreign(300);
    pair.run(300, |_| true);
    let failed = |resets: bool| {
        let is = |event: &&SessionEvent| matches!(event, SessionEvent::EackFailed { resets: done, .. } if *done == resets);
        pair.events.iter().filter(is).count() as u64
    };
    assert_eq!(failed(true), pair.counters.resets_gateway);
    assert_eq!(failed(true) + failed(false), pair.counters.eacks_failed);
    assert!(failed(true) > 0, "{:?}", pair.counters);
    let anchored = pair
        .events
        .iter()
        .filter(|event| matches!(event, SessionEvent::EpochAnchored { .. }))
        .count();
    assert_eq!(anchored, 2);
    let resets = pair.of_client(|event| match event {
        ClientEvent::Reset { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(resets, [ResetReason::DecodeFailed]);
}

#[test]
fn a_goodbye_ends_the_session_at_both_ends() {
    let mut pair = at_work();
    let mut out = Outbox::new();
    pair.flow.close(GoodbyeReason::Idle, &mut out);
    pair.deliver(&mut out);
    let closed = pair.of_client(|event| match event {
        ClientEvent::SessionClosed { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(closed, [SessionClosedReason::Goodbye]);
}
