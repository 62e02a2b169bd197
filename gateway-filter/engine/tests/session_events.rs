//! Why a missing datagram was repaired or not, as both ends of an observed session report it: a
//! real client and a real flow, between which a test drops datagrams.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use packrat_client::{
    Assist, ClientConfig, ClientEvent, HoldEndedReason, Live, NotHeldReason, Observer,
    PacketNumber, ResetReason, SessionClosedReason,
};
use packrat_engine::{
    EackIgnoredReason, Event, Flow, FlowCounters, Gateway, GatewayConfig, GiveUpReason,
    NetworkPath, Outbox, PathEvent, PathUse, RepairRefusedReason, Sequence, SessionEvent, Side,
};
use packrat_wire::Epoch;
use packrat_wire::estimate::Timestamp;
use packrat_wire::is_control;
use packrat_wire::message::GoodbyeReason;

use crate::ends::hear;

const LENGTH: usize = 1200;
/// The datagram that is lost.
const LOST: u64 = 100;
const LOST_PACKET: PacketNumber = PacketNumber::new(LOST);

struct Pair {
    gateway: Arc<Gateway>,
    flow: Flow,
    client: Assist,
    now: Timestamp,
    number: u64,
    /// True if repairs arrive.
    repairs_arrive: bool,
    /// The time that datagrams of the server take to arrive.
    delay: Duration,
    under_way: Vec<(Timestamp, u64, Vec<u8>)>,
    /// Messages of the client, kept back to arrive in the wrong order.
    kept_back: Option<Vec<Vec<u8>>>,
    counters: FlowCounters,
    events: Vec<SessionEvent>,
    of_client: Arc<Mutex<Vec<ClientEvent>>>,
}

impl Pair {
    fn new(config: GatewayConfig, observed: bool) -> Self {
        Self::with_client(ClientConfig::default(), config, observed)
    }

    fn with_client(client: ClientConfig, config: GatewayConfig, observed: bool) -> Self {
        let now = Timestamp::from_millis(1000);
        let gateway = Gateway::new(config, [9; 32], [8; 32]);
        let mut flow = Flow::new(Arc::clone(&gateway));
        flow.observe(observed);
        let mut client = Assist::new(client, [7; 32], now);
        let of_client = Arc::new(Mutex::new(Vec::new()));
        if observed {
            let told = Arc::clone(&of_client);
            client.observe(Observer::new(move |_, event| told.lock().unwrap().push(*event)));
        }
        Self {
            flow,
            gateway,
            client,
            of_client,
            now,
            number: 0,
            repairs_arrive: true,
            delay: Duration::ZERO,
            under_way: Vec::new(),
            kept_back: None,
            counters: FlowCounters::default(),
            events: Vec::new(),
        }
    }

    /// Runs for this many milliseconds, each with a datagram of the server if it `sends`.
    fn run(&mut self, milliseconds: u64, sends: bool, arrives: impl Fn(u64) -> bool) {
        for _ in 0..milliseconds {
            self.now = self.now + Duration::from_millis(1);
            if sends {
                let mut bytes = vec![1; LENGTH];
                bytes[0] = 0x40;
                bytes[LENGTH - 16..LENGTH - 8].copy_from_slice(&(self.number + 1).to_be_bytes());
                bytes[LENGTH - 8..].copy_from_slice(&((self.number + 1) << 8).to_be_bytes());
                self.flow.forward(&bytes, self.now);
                if arrives(self.number) {
                    self.under_way.push((self.now + self.delay, self.number, bytes));
                }
                self.number += 1;
            }
            let now = self.now;
            let (due, later) =
                std::mem::take(&mut self.under_way).into_iter().partition(|(at, ..)| *at <= now);
            self.under_way = later;
            for (_, number, bytes) in due {
                self.client.on_datagram(&bytes, now);
                self.client.on_packet_number(PacketNumber::new(number), now);
            }
            self.talk();
        }
    }

    fn talk(&mut self) {
        let mut out = Outbox::new();
        if self.flow.next_timeout().is_some_and(|at| at <= self.now) {
            self.flow.handle_timeout(self.now, &mut out);
            self.deliver(&mut out);
        }
        self.client.handle_timeout(self.now);
        while let Some(said) = self.client.poll_transmit(self.now) {
            match &mut self.kept_back {
                Some(kept_back) => kept_back.push(said),
                None => self.hear(&said),
            }
        }
    }

    fn hear(&mut self, said: &[u8]) {
        let mut out = Outbox::new();
        let peer = SocketAddr::from(([192, 0, 2, 1], 5000));
        hear(&self.gateway, &mut self.flow, said, peer, [said[9]; 32], self.now, &mut out);
        self.deliver(&mut out);
    }

    fn deliver(&mut self, out: &mut Outbox) {
        self.counters.add(&self.flow.take_counters());
        for bytes in out.datagrams() {
            if is_control(bytes) {
                self.client.on_datagram(bytes, self.now);
            } else if self.repairs_arrive {
                self.client.on_datagram(bytes, self.now);
                let number = u64::from_be_bytes(bytes[LENGTH - 16..LENGTH - 8].try_into().unwrap());
                self.client.on_packet_number(PacketNumber::new(number - 1), self.now);
            }
        }
        self.events.extend(out.take_events().into_iter().filter_map(|event| match event {
            Event::Session { event, .. } => Some(event),
            _ => None,
        }));
        out.clear();
    }

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

    /// Gives the client `count` datagrams that the gateway has not forwarded.
    fn receive_foreign(&mut self, count: u64) {
        for number in 1_000_000..1_000_000 + count {
            let mut foreign = vec![0xee; LENGTH];
            foreign[0] = 0x40;
            foreign[LENGTH - 16..LENGTH - 8].copy_from_slice(&number.to_be_bytes());
            foreign[LENGTH - 8..].copy_from_slice(&(number << 8).to_be_bytes());
            self.client.on_datagram(&foreign, self.now);
            self.client.on_authentic(self.now);
        }
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
fn with_one_loss(config: GatewayConfig, observed: bool, repairs_arrive: bool) -> Pair {
    let mut pair = Pair::new(config, observed);
    pair.repairs_arrive = repairs_arrive;
    pair.run(600, true, |number| number != LOST);
    pair
}

#[test]
fn a_loss_is_found_repaired_and_arrives() {
    let pair = with_one_loss(GatewayConfig::default(), true, true);
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
    let pair = with_one_loss(GatewayConfig::default(), true, true);
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
    let unobserved = with_one_loss(GatewayConfig::default(), false, true);
    assert_eq!((unobserved.events, unobserved.of_client.lock().unwrap().len()), (vec![], 0));
    let observed = with_one_loss(GatewayConfig::default(), true, true);
    assert_eq!(unobserved.counters, observed.counters);
    assert_eq!(unobserved.client.stats(), observed.client.stats());
    // Observation ends as it began.
    let mut pair = observed;
    pair.flow.observe(false);
    pair.events.clear();
    pair.run(100, true, |number| number % 10 != 3);
    assert_eq!(pair.events, []);
}

#[test]
fn a_repair_without_budget_is_refused_until_the_loss_is_too_old() {
    let config = GatewayConfig { repair_budget: 0.0, ..GatewayConfig::default() };
    let pair = with_one_loss(config, true, true);
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
    let pair = with_one_loss(GatewayConfig::default(), true, false);
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
    let pair = with_one_loss(config, true, true);
    assert!(pair.reasons().contains(&GiveUpReason::BytesGone), "{:?}", pair.events);
    assert!(pair.counters.repairs_evicted > 0);
}

#[test]
fn a_loss_in_a_queue_that_stands_is_left_to_the_sender() {
    let mut pair = Pair::new(GatewayConfig::default(), true);
    pair.run(100, true, |_| true);
    for _ in 0..300 {
        pair.delay += Duration::from_micros(500);
        // The queue is full from 100 ms on.
        pair.run(1, true, |number| number < 300 || number % 10 != 7);
    }
    pair.run(200, true, |number| number % 10 != 7);
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
    let mut pair = Pair::new(GatewayConfig::default(), true);
    pair.run(100, true, |_| true);
    pair.repairs_arrive = false;
    pair.run(20, true, |number| number != LOST + 10);
    // The client is not heard any more: only time ends the repair.
    pair.kept_back = Some(Vec::new());
    // An outage of the last mile may have an end.
    pair.run(3000, false, |_| true);
    assert!(pair.reasons().is_empty(), "{:?}", pair.events);
    pair.run(9000, false, |_| true);
    assert_eq!(pair.reasons(), [GiveUpReason::Quiet], "{:?}", pair.events);
}

#[test]
fn eacks_that_are_not_looked_at_say_why() {
    let mut pair = Pair::new(GatewayConfig::default(), true);
    pair.run(100, true, |_| true);
    pair.kept_back = Some(Vec::new());
    pair.run(60, true, |_| true);
    for said in pair.kept_back.take().unwrap().iter().rev() {
        pair.hear(said);
    }
    let stale = pair.ignored();
    assert!(!stale.is_empty(), "{:?}", pair.events);
    assert_eq!(stale, vec![EackIgnoredReason::Stale; pair.counters.eacks_stale as usize]);
}

#[test]
fn eacks_of_an_epoch_that_is_over_are_not_looked_at() {
    let mut pair = Pair::new(GatewayConfig::default(), true);
    pair.run(100, true, |_| true);
    pair.kept_back = Some(Vec::new());
    pair.run(60, true, |_| true);
    let of_the_old_epoch = pair.kept_back.take().unwrap();
    pair.client.reset(pair.now);
    pair.run(60, true, |_| true);
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
    let mut pair = Pair::new(GatewayConfig::default(), true);
    pair.run(100, true, |_| true);
    pair.kept_back = Some(Vec::new());
    pair.receive_foreign(300);
    pair.run(400, true, |_| true);
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
    let live = Live {
        selective: false,
        subscribe: false,
        window: Duration::from_millis(30),
        tolerance: Duration::ZERO,
        symbols: false,
    };
    let client = ClientConfig::default().with_live(live);
    let mut pair = Pair::with_client(client, GatewayConfig::default(), true);
    pair.repairs_arrive = false;
    pair.run(300, true, |number| number != LOST);
    assert_eq!(pair.reasons(), [GiveUpReason::WindowOver], "{:?}", pair.events);
}

#[test]
fn a_new_path_is_challenged_and_validated() {
    let mut pair = Pair::new(GatewayConfig::default(), true);
    pair.run(100, true, |_| true);
    pair.kept_back = Some(Vec::new());
    pair.run(30, true, |_| true);
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
    let mut pair = Pair::new(GatewayConfig::default(), true);
    pair.run(100, true, |_| true);
    pair.receive_foreign(300);
    pair.run(300, true, |_| true);
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
    let mut pair = Pair::new(GatewayConfig::default(), true);
    pair.run(100, true, |_| true);
    let mut out = Outbox::new();
    pair.flow.close(GoodbyeReason::Idle, &mut out);
    pair.deliver(&mut out);
    let closed = pair.of_client(|event| match event {
        ClientEvent::SessionClosed { reason, .. } => Some(*reason),
        _ => None,
    });
    assert_eq!(closed, [SessionClosedReason::Goodbye]);
}
