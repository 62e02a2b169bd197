//! Handshakes that save the round trip of the cookie: that they do, and that an attacker who forges
//! an address has no advantage.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_client::{Assist, AssistState, ClientConfig, RefusalReason};
use packrat_engine::{Flow, Gateway, GatewayConfig, HandshakeOutcome, Outbox, Received};
use packrat_wire::MessageCounter;
use packrat_wire::control::Control;
use packrat_wire::estimate::Timestamp;

const START: Timestamp = Timestamp::from_millis(1000);

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

fn gateway(config: GatewayConfig) -> Arc<Gateway> {
    Gateway::new(config, [9; 32], [8; 32])
}

fn client(number: u8) -> Assist {
    Assist::new(ClientConfig::default(), [number; 32], START)
}

fn server_datagram(number: u64) -> Vec<u8> {
    let mut datagram = vec![0x40; 1200];
    datagram[1184..1192].copy_from_slice(&number.to_be_bytes());
    datagram[1192..].copy_from_slice(&(number + 1).to_be_bytes());
    datagram
}

/// Gives the gateway a control datagram; returns the outcome of a handshake, and the answers.
fn ask(
    gateway: &Arc<Gateway>,
    flow: &mut Flow,
    from: SocketAddr,
    question: &[u8],
    now: Timestamp,
) -> (Option<HandshakeOutcome>, Vec<Vec<u8>>) {
    let mut out = Outbox::new();
    let outcome = match gateway.receive(question, from, now, &mut out) {
        Received::Done(outcome) => Some(outcome),
        Received::Begin(begin) => Some(flow.begin(begin, [question[9]; 32], now, &mut out)),
        Received::ForFlow => {
            flow.control(question, now, &mut out);
            None
        }
    };
    (outcome, out.datagrams().map(<[u8]>::to_vec).collect())
}

/// Lets client and gateway exchange messages until the client has no more; returns the outcomes of
/// its handshakes.
fn meet(
    gateway: &Arc<Gateway>,
    flow: &mut Flow,
    client: &mut Assist,
    from: SocketAddr,
) -> Vec<HandshakeOutcome> {
    let mut outcomes = Vec::new();
    while let Some(question) = client.poll_transmit(START) {
        let (outcome, answers) = ask(gateway, flow, from, &question, START);
        outcomes.extend(outcome);
        answers.iter().for_each(|answer| {
            client.on_datagram(answer, START);
        });
    }
    outcomes
}

#[test]
fn a_gateway_that_is_not_busy_saves_the_client_a_round_trip() {
    let gateway = gateway(GatewayConfig::default());
    let (mut flow, mut client) = (Flow::new(Arc::clone(&gateway)), client(1));
    let discover = client.poll_transmit(START).unwrap();
    let (outcome, answers) = ask(&gateway, &mut flow, address(1), &discover, START);
    assert_eq!(outcome, Some(HandshakeOutcome::AcceptedWithoutCookie));
    assert!(answers.len() == 1 && answers[0].len() <= discover.len());
    assert!(!flow.is_assisted(), "nobody has proven anything");
    // The first flight passes meanwhile; of it the second datagram will be lost.
    let flight: Vec<_> = (0..3).map(server_datagram).collect();
    for datagram in &flight {
        let _ = flow.forward(datagram, START);
    }
    client.on_datagram(&answers[0], START);
    assert_eq!(client.stats().state, AssistState::Established);
    for number in [0, 2] {
        client.on_datagram(&flight[number], START);
        client.on_authentic(START);
    }
    let mut repaired = Vec::new();
    while let Some(eack) = client.poll_transmit(START) {
        let (_, answers) = ask(&gateway, &mut flow, address(1), &eack, START);
        repaired.extend(answers.into_iter().filter(|answer| Control::decode(answer).is_err()));
    }
    assert!(flow.is_assisted());
    assert_eq!(
        repaired,
        [flight[1].clone()],
        "what was lost before the client could say anything is repaired"
    );
}

#[test]
fn what_passes_before_a_lost_answer_is_repeated_is_not_missing() {
    let gateway = gateway(GatewayConfig::default());
    let (mut flow, mut client) = (Flow::new(Arc::clone(&gateway)), client(1));
    let discover = client.poll_transmit(START).unwrap();
    let (outcome, _) = ask(&gateway, &mut flow, address(1), &discover, START);
    assert_eq!(outcome, Some(HandshakeOutcome::AcceptedWithoutCookie));
    // The answer is lost, and the server has sent much until the client asks again.
    for number in 0..500 {
        let _ = flow.forward(&server_datagram(number), START);
    }
    let again = client.next_timeout().unwrap();
    client.handle_timeout(again);
    let discover = client.poll_transmit(again).unwrap();
    let (_, answers) = ask(&gateway, &mut flow, address(1), &discover, again);
    let flight: Vec<_> = (500..503).map(server_datagram).collect();
    for datagram in &flight {
        let _ = flow.forward(datagram, again);
    }
    client.on_datagram(&answers[0], again);
    assert_eq!(client.stats().state, AssistState::Established);
    for number in [0, 2] {
        client.on_datagram(&flight[number], again);
        client.on_authentic(again);
    }
    let mut repaired = Vec::new();
    while let Some(eack) = client.poll_transmit(again) {
        let (_, answers) = ask(&gateway, &mut flow, address(1), &eack, again);
        repaired.extend(answers.into_iter().filter(|answer| Control::decode(answer).is_err()));
    }
    assert_eq!(repaired, [flight[1].clone()]);
}

/// Such clients are compared with others: a forged address must be in no arm of the comparison.
#[test]
fn a_client_is_held_out_at_a_proven_address_only() {
    let gateway = gateway(GatewayConfig { holdout: 1.0, ..GatewayConfig::default() });
    let (mut flow, mut client) = (Flow::new(Arc::clone(&gateway)), client(1));
    let outcomes = meet(&gateway, &mut flow, &mut client, address(1));
    assert_eq!(outcomes, [HandshakeOutcome::Offered, HandshakeOutcome::RefusedHoldout]);
    assert_eq!(client.stats().refusal, Some(RefusalReason::Holdout));
    assert_eq!(gateway.sessions(), 0);
}

#[test]
fn above_the_threshold_and_without_one_a_cookie_is_demanded() {
    let limited = gateway(GatewayConfig {
        handshakes_per_second_without_cookie: 3,
        ..GatewayConfig::default()
    });
    let outcomes: Vec<_> = (1..=5u8)
        .map(|number| {
            let mut flow = Flow::new(Arc::clone(&limited));
            let mut client = client(number);
            let outcomes = meet(&limited, &mut flow, &mut client, address(number.into()));
            assert_eq!(client.stats().state, AssistState::Established);
            assert!(flow.is_assisted());
            outcomes
        })
        .collect();
    let saved = vec![HandshakeOutcome::AcceptedWithoutCookie];
    let proven = vec![HandshakeOutcome::Offered, HandshakeOutcome::Accepted];
    assert_eq!(outcomes, [saved.clone(), saved.clone(), saved, proven.clone(), proven.clone()]);

    let always = gateway(GatewayConfig {
        handshakes_per_second_without_cookie: 0,
        ..GatewayConfig::default()
    });
    let mut flow = Flow::new(Arc::clone(&always));
    assert_eq!(meet(&always, &mut flow, &mut client(9), address(9)), proven);
}

#[test]
fn a_forged_address_gets_no_more_bytes_and_no_repair() {
    let gateway = gateway(GatewayConfig::default());
    let mut flow = Flow::new(Arc::clone(&gateway));
    let discover = client(1).poll_transmit(START).unwrap();
    let (mut now, mut sent, mut received) = (START, 0, 0);
    // The same question again and again, and in between forged messages of the session, while the
    // server sends.
    let (_, answers) = ask(&gateway, &mut flow, address(1), &discover, now);
    let session = flow.sessions().next().unwrap();
    let mut said = answers;
    sent += discover.len();
    for number in 0..2000u64 {
        now = now + Duration::from_millis(2);
        flow.forward(&server_datagram(number), now);
        let mut forged = Vec::new();
        let counter = MessageCounter::new(number as u32);
        Control::Sealed { session, counter, ciphertext: &[7; 40] }.encode(&mut forged);
        let question = if number % 50 == 0 { &discover } else { &forged };
        sent += question.len();
        said.extend(ask(&gateway, &mut flow, address(1), question, now).1);
        if flow.next_timeout().is_some_and(|at| at <= now) {
            let mut out = Outbox::new();
            flow.handle_timeout(now, &mut out);
            said.extend(out.datagrams().map(<[u8]>::to_vec));
        }
        received = said.iter().map(Vec::len).sum();
        assert!(received <= sent, "{received} bytes for {sent}");
    }
    assert!(!flow.is_assisted());
    assert!(received > 0);
    assert!(
        said.iter()
            .all(|datagram| matches!(Control::decode(datagram), Ok(Control::InitAck { .. })))
    );
    assert_eq!(gateway.sessions(), 1);
    // No client confirms it: the session is forgotten by itself.
    let end = flow.next_timeout().unwrap();
    assert!(end <= START + Duration::from_secs(5));
    let mut out = Outbox::new();
    flow.handle_timeout(end, &mut out);
    assert!(out.is_empty(), "not even a Goodbye");
    assert_eq!((gateway.sessions(), flow.sessions().count(), flow.next_timeout()), (0, 0, None));
}

#[test]
fn forged_addresses_take_neither_their_owners_room_nor_all() {
    let gateway = gateway(GatewayConfig {
        maximum_sessions: 40,
        sessions_per_source: 2,
        handshakes_per_second_per_source: 2,
        ..GatewayConfig::default()
    });
    let mut forged: Vec<_> =
        (1..=60u8).map(|number| (client(number), Flow::new(Arc::clone(&gateway)))).collect();
    // Only the first question of each: the answers go to the owner of the address.
    let mut accepted = 0;
    for (number, (client, flow)) in forged.iter_mut().enumerate() {
        let discover = client.poll_transmit(START).unwrap();
        let (outcome, _) = ask(&gateway, flow, address(1000 + number as u16), &discover, START);
        accepted += usize::from(outcome == Some(HandshakeOutcome::AcceptedWithoutCookie));
    }
    assert_eq!(accepted, 20, "half of the room");
    for port in 1..=2 {
        let (mut flow, mut client) = (Flow::new(Arc::clone(&gateway)), client(100 + port as u8));
        meet(&gateway, &mut flow, &mut client, address(port));
        assert_eq!(client.stats().state, AssistState::Established, "the owner's session {port}");
        assert!(flow.is_assisted());
        // It stays, or it would not count.
        forged.push((client, flow));
    }
    // And a third one is beyond the limit of its source, cookie or not.
    let (mut flow, mut client) = (Flow::new(Arc::clone(&gateway)), client(103));
    let outcomes = meet(&gateway, &mut flow, &mut client, address(3));
    assert_eq!(outcomes, [HandshakeOutcome::Offered, HandshakeOutcome::RefusedFull]);
}

#[test]
fn a_sources_limit_holds_for_simultaneous_sessions() {
    let gateway = gateway(GatewayConfig { sessions_per_source: 2, ..GatewayConfig::default() });
    let mut prepared: Vec<_> = (1..=5u8)
        .map(|number| {
            let (mut flow, mut client) = (Flow::new(Arc::clone(&gateway)), client(number));
            let discover = client.poll_transmit(START).unwrap();
            let (_, answers) = ask(&gateway, &mut flow, address(number.into()), &discover, START);
            client.on_datagram(&answers[0], START);
            (flow, client)
        })
        .collect();
    assert_eq!(gateway.sessions(), 5);
    for ((flow, client), port) in prepared.iter_mut().zip(1..) {
        let eack = client.poll_transmit(START).unwrap();
        ask(&gateway, flow, address(port), &eack, START);
    }
    assert_eq!(prepared.iter().filter(|(flow, _)| flow.is_assisted()).count(), 2);
    assert_eq!(gateway.sessions(), 2);
}

#[test]
fn a_forged_question_displaces_nobody() {
    let gateway = gateway(GatewayConfig::default());
    let (mut flow, mut owner) = (Flow::new(Arc::clone(&gateway)), client(1));
    // The forger is first: the owner of the address is sent a cookie, and is assisted.
    let forged = client(2).poll_transmit(START).unwrap();
    let (outcome, _) = ask(&gateway, &mut flow, address(1), &forged, START);
    assert_eq!(outcome, Some(HandshakeOutcome::AcceptedWithoutCookie));
    let outcomes = meet(&gateway, &mut flow, &mut owner, address(1));
    assert_eq!(outcomes, [HandshakeOutcome::Offered, HandshakeOutcome::Accepted]);
    assert!(flow.is_assisted());
    assert_eq!(gateway.sessions(), 1, "what was prepared for the forger is gone");
    // The forger is last: the session goes on.
    let name = flow.sessions().next();
    let forged = client(3).poll_transmit(START).unwrap();
    let (outcome, _) = ask(&gateway, &mut flow, address(1), &forged, START);
    assert_eq!(outcome, Some(HandshakeOutcome::Offered));
    assert_eq!((flow.sessions().count(), flow.sessions().next()), (1, name));
}

#[test]
fn a_repeated_question_begins_nothing_new() {
    let gateway = gateway(GatewayConfig::default());
    let (mut flow, mut client) = (Flow::new(Arc::clone(&gateway)), client(1));
    let discover = client.poll_transmit(START).unwrap();
    let first = ask(&gateway, &mut flow, address(1), &discover, START).1;
    assert_eq!(ask(&gateway, &mut flow, address(1), &discover, START).1, first);
    assert_eq!(gateway.sessions(), 1);
}
