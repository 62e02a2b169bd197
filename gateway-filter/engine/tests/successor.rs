//! From one gateway to the next: the client looks for it at once, and has the server learn its new
//! path.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_client::{Assist, AssistState, ClientConfig, PacketNumber};
use packrat_emulation::schedule::Schedule;
use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox};
use packrat_wire::control::{Control, RefusalReason};
use packrat_wire::estimate::Timestamp;
use packrat_wire::message::GoodbyeReason;
use packrat_wire::seal::session_of;

use crate::ends::hear;

const START: Timestamp = Timestamp::from_millis(1000);

fn datagram(number: u64) -> Vec<u8> {
    let mut datagram = vec![0x40; 1200];
    datagram[1184..1192].copy_from_slice(&number.to_be_bytes());
    datagram
}

/// A gateway and its flow.
fn gateway(secret: u8) -> (Arc<Gateway>, Flow) {
    let gateway = Gateway::new(GatewayConfig::default(), [secret; 32], [secret; 32]);
    (Arc::clone(&gateway), Flow::new(gateway))
}

/// Delivers all messages of the client to the gateway, and the answers to the client.
fn meet((gateway, flow): &mut (Arc<Gateway>, Flow), client: &mut Assist, now: Timestamp) {
    let from = SocketAddr::from(([192, 0, 2, 1], 1));
    while let Some(question) = client.poll_transmit(now) {
        let mut out = Outbox::new();
        hear(gateway, flow, &question, from, [7; 32], now, &mut out);
        for answer in out.datagrams() {
            client.on_datagram(answer, now);
        }
    }
}

#[test]
fn a_drained_gateway_is_replaced_and_the_server_told() {
    let (mut first, mut second) = (gateway(1), gateway(2));
    let mut client = Assist::new(ClientConfig::default(), [3; 32], START);
    meet(&mut first, &mut client, START);
    assert_eq!(client.stats().state, AssistState::Established);
    client.on_packet_number(PacketNumber::new(0), START);

    let mut out = Outbox::new();
    first.1.close(GoodbyeReason::Draining, &mut out);
    out.datagrams().for_each(|goodbye| {
        client.on_datagram(goodbye, START);
    });
    assert_ne!(client.stats().state, AssistState::Established);

    // For ten seconds it forwards, and refuses.
    let (mut now, mut refusals, mut number) = (START, 0, 0);
    while now < START + Duration::from_secs(10) {
        now = client.next_timeout().unwrap().max(now + Duration::from_millis(1));
        assert!(!client.handle_timeout(now).remind, "datagrams come: nobody needs to be reminded");
        while let Some(question) = client.poll_transmit(now) {
            let Ok(Control::Discover { nonce, .. }) = Control::decode(&question) else {
                panic!("no question")
            };
            let mut refusal = Vec::new();
            Control::Refusal { nonce, reason: RefusalReason::Disabled, versions: &[1] }
                .encode(&mut refusal);
            client.on_datagram(&refusal, now);
            refusals += 1;
        }
        number += 1;
        client.on_datagram(&datagram(number), now);
        client.on_authentic(now);
    }
    assert!((5..30).contains(&refusals), "{refusals} questions in ten seconds");

    // Then no datagrams come any more.
    let silent_since = now;
    let mut reminded = None;
    while reminded.is_none() {
        now = client.next_timeout().unwrap().max(now);
        if client.handle_timeout(now).remind {
            reminded = Some(now);
        }
        while client.poll_transmit(now).is_some() {}
    }
    assert!(reminded.unwrap() <= silent_since + Duration::from_secs(1));

    // The next gateway answers the next question; the server, whose datagrams still go to the first
    // one, is reminded at once.
    let since = now;
    while client.stats().state != AssistState::Established {
        now = client.next_timeout().unwrap().max(now + Duration::from_millis(1));
        client.handle_timeout(now);
        meet(&mut second, &mut client, now);
    }
    assert!(now <= since + Duration::from_secs(2), "{:?}", now.saturating_since(since));
    assert!(client.handle_timeout(now).remind);
    assert!(!client.handle_timeout(now).remind, "once");
}

/// A datagram under way.
enum UnderWay {
    ToGateway(Vec<u8>),
    ToClient(Vec<u8>),
}

/// A client downloads, and then all datagrams are lost for a while. After that its gateway is there
/// again, or another one in its place, which refuses the session `refuses` milliseconds after the
/// first sealed message. Returns the time until the client gets a Report, and the number of its
/// sessions so far.
fn after_outage(round_trip: u64, outage: u64, refuses: Option<u64>) -> (Duration, u64) {
    const EVERY: Duration = Duration::from_millis(5);
    let delay = Duration::from_millis(round_trip) / 2;
    let lost = START + Duration::from_secs(2);
    let back = lost + Duration::from_secs(outage);
    let mut gateway_of_now = gateway(1);
    let mut client = Assist::new(ClientConfig::default(), [3; 32], START);
    let mut schedule: Schedule<UnderWay> = Schedule::new();
    let from = SocketAddr::from(([192, 0, 2, 1], 1));
    let (mut now, mut number, mut serves_at, mut unknown) = (START, 0, START, None);
    let mut reports = 0;
    while now < back || client.stats().reports <= reports {
        if now < back {
            reports = client.stats().reports;
        }
        let of_server = (serves_at < lost).then_some(serves_at);
        let next =
            [schedule.next_at(), client.next_timeout(), of_server, (now < back).then_some(back)];
        now = next.into_iter().flatten().min().unwrap().max(now);
        assert!(now < back + Duration::from_secs(20), "no gateway has reported");
        client.handle_timeout(now);
        if of_server.is_some_and(|at| at <= now) {
            serves_at = now + EVERY;
            let bytes = datagram(number);
            number += 1;
            gateway_of_now.1.forward(&bytes, now);
            schedule.plan(now + delay, UnderWay::ToClient(bytes));
        }
        if refuses.is_some() && now >= lost && now < back {
            gateway_of_now = gateway(1);
        }
        while schedule.next_at().is_some_and(|at| at <= now) {
            match schedule.pop().unwrap().1 {
                UnderWay::ToClient(bytes) => {
                    client.on_datagram(&bytes, now);
                    if bytes[0] == 0x40 {
                        client.on_packet_number(PacketNumber::new(number), now);
                    }
                }
                UnderWay::ToGateway(_) if (lost..back).contains(&now) => {}
                UnderWay::ToGateway(said) => {
                    let (gateway, flow) = &mut gateway_of_now;
                    let (mut out, mut after) = (Outbox::new(), delay);
                    let is_unknown = refuses.is_some()
                        && now >= back
                        && session_of(&said).is_some_and(|id| !flow.answers_to(id));
                    if !is_unknown {
                        hear(gateway, flow, &said, from, [7; 32], now, &mut out);
                    } else if unknown.is_none_or(|until| until <= now) {
                        let wait = refuses.filter(|_| unknown.is_none()).unwrap_or_default();
                        unknown.get_or_insert(now + Duration::from_millis(wait));
                        after += Duration::from_millis(wait);
                        gateway.refuse_session(&said, &mut out);
                    }
                    for answer in out.datagrams() {
                        schedule.plan(now + after, UnderWay::ToClient(answer.to_vec()));
                    }
                }
            }
        }
        while let Some(said) = client.poll_transmit(now) {
            schedule.plan(now + delay, UnderWay::ToGateway(said));
        }
    }
    (now.saturating_since(back), client.stats().sessions)
}

/// The gateway's host is gone without a word, which looks like an outage of the last mile. A
/// gateway with peers waits for the silent ones before it refuses.
#[test]
fn a_client_of_a_lost_gateway_joins_the_next_one_at_once() {
    for round_trip in [20, 40, 100, 200, 600] {
        for (outage, refuses) in [(5, 0), (10, 250), (25, 250)] {
            let (time, sessions) = after_outage(round_trip, outage, Some(refuses));
            let case = format!("{round_trip} ms, {outage} s, refused after {refuses} ms: {time:?}");
            assert_eq!(sessions, 2, "{case}");
            assert!(time <= Duration::from_millis(8 * round_trip + 500), "{case}");
        }
    }
}

#[test]
fn a_client_keeps_its_session_over_an_outage_of_the_last_mile() {
    for round_trip in [20, 40, 100, 200, 600] {
        for outage in [1, 5, 20] {
            let (time, sessions) = after_outage(round_trip, outage, None);
            let case = format!("{round_trip} ms, {outage} s: {time:?}");
            assert_eq!(sessions, 1, "{case}");
            assert!(time <= Duration::from_millis(4 * round_trip + 200), "{case}");
        }
    }
}
