//! From one gateway to the next: the client looks for it at once, and lets the server know where it
//! is.

#![allow(clippy::unwrap_used, clippy::panic)] // a test: clippy only excuses its #[test] functions

mod ends;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ends::hear;
use packrat_client::{Assist, AssistState, ClientConfig, PacketNumber};
use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox};
use packrat_wire::control::{Control, RefusalReason};
use packrat_wire::estimate::Timestamp;
use packrat_wire::message::GoodbyeReason;

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

/// Everything that the client has to say reaches the gateway, and the answers the client.
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
fn a_drained_gateway_is_replaced_within_seconds_and_the_server_hears_of_it() {
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

    // Then nothing comes any more.
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

    // The next gateway answers the next question; the server is told at once, whose datagrams still
    // go to the first one.
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
