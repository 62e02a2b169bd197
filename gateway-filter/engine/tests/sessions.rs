//! State that the end of a session and its epochs leave behind at either end, and its effect on the
//! sessions of other clients: a real client and a real flow, between which a test drops datagrams.

use std::sync::Arc;

use packrat_client::{AssistState, ClientConfig, PacketNumber};
use packrat_engine::{Gateway, GatewayConfig, NetworkPath, Outbox, PathEvent, PathUse};
use packrat_wire::message::GoodbyeReason;

use crate::ends::pair::{Pair, gateway};

/// More than any sketch decodes.
const TOO_MANY: u64 = 300;

/// A client with an assisted flow.
fn pair(gateway: &Arc<Gateway>, owner: u8) -> Pair {
    let mut pair = Pair::new(gateway, ClientConfig::default(), owner);
    pair.run(20, |_| true);
    assert_eq!(pair.client.stats().state, AssistState::Established);
    assert!(pair.flow.is_assisted());
    pair
}

impl Pair {
    fn repairs_work(&mut self) {
        let before = self.client.stats().filled_in_time;
        self.run(200, |number| number % 10 != 3);
        assert!(self.client.stats().filled_in_time > before + 10, "{:?}", self.client.stats());
    }
}

#[test]
fn a_reset_is_repeated_until_heard_and_counts_once() {
    let mut pair = self::pair(&gateway(GatewayConfig::default()), 1);
    pair.run(50, |_| true);
    // The gateway's Resets are lost for a while.
    pair.loses_resets = true;
    pair.receive_foreign(TOO_MANY);
    pair.run(300, |_| true);
    assert!(!pair.down, "there was none: {:?} {:?}", pair.counters, pair.client.stats());
    assert_eq!(
        (pair.counters.resets_gateway, pair.counters.resets_client),
        (1, 0),
        "{:?}",
        pair.counters
    );
    let failed = pair.counters.eacks_failed;
    assert!(failed >= 2, "{failed}");
    (pair.down, pair.loses_resets) = (true, false);
    pair.run(100, |_| true);
    pair.repairs_work();
    assert_eq!(
        (pair.counters.resets_gateway, pair.counters.resets_client),
        (1, 0),
        "{:?}",
        pair.counters
    );
    assert!(pair.counters.eacks_other_epoch > 0, "{:?}", pair.counters);
    assert_eq!(pair.client.stats().sessions, 1);
}

#[test]
fn resets_that_cross_are_one() {
    let mut pair = self::pair(&gateway(GatewayConfig::default()), 1);
    pair.run(50, |_| true);
    // The gateway wants a Reset, and the client does not receive it; then the client wants one, and
    // the gateway does not receive it.
    pair.loses_resets = true;
    pair.receive_foreign(TOO_MANY);
    pair.run(200, |_| true);
    assert_eq!((pair.counters.resets_gateway, pair.down), (1, false));
    pair.client.reset(pair.now);
    pair.up = false;
    pair.talk();
    pair.run(5, |_| true);
    (pair.up, pair.down, pair.loses_resets) = (true, true, false);
    pair.run(50, |_| true);
    pair.repairs_work();
    // Both meant the same new epoch: no other one followed.
    let resets = pair.counters.resets_gateway + pair.counters.resets_client;
    assert!(resets <= 2 && pair.counters.resets_gateway == 1, "{:?}", pair.counters);
    assert_eq!(pair.client.stats().sessions, 1);

    // The other way round: the client's is on its way when the gateway's own comes.
    pair.loses_resets = true;
    pair.receive_foreign(TOO_MANY);
    pair.run(200, |_| true);
    assert_eq!((pair.counters.resets_gateway, pair.down), (2, false));
    pair.client.reset(pair.now);
    let crossing = pair.client.poll_transmit(pair.now).unwrap();
    (pair.down, pair.loses_resets) = (true, false);
    pair.run(20, |_| true);
    pair.hear(&crossing);
    pair.repairs_work();
    assert_eq!(pair.counters.resets_gateway, 2, "{:?}", pair.counters);
}

#[test]
fn a_goodbye_of_the_client_frees_everything_at_the_gateway() {
    let gateway = gateway(GatewayConfig::default());
    let mut pair = self::pair(&gateway, 1);
    pair.run(100, |number| number % 3 != 0);
    assert!(pair.flow.gauges().cache_bytes > 0 && gateway.sessions() == 1);
    pair.client.close(pair.now);
    pair.talk();
    assert!(!pair.flow.is_assisted());
    assert_eq!((pair.flow.gauges().cache_bytes, gateway.sessions()), (0, 0));
    assert_eq!(pair.flow.next_timeout(), None);
    assert_eq!(pair.client.next_timeout(), None);
    // As many as a source may have can begin after it.
    let limit = GatewayConfig { sessions_per_source: 1, ..GatewayConfig::default() };
    let gateway = self::gateway(limit);
    for _ in 0..3 {
        let mut pair = self::pair(&gateway, 1);
        pair.client.close(pair.now);
        pair.talk();
    }
}

#[test]
fn a_goodbye_of_the_gateway_ends_all_waiting_at_once() {
    for reason in [GoodbyeReason::Draining, GoodbyeReason::Idle, GoodbyeReason::Done] {
        let gateway = gateway(GatewayConfig::default());
        let mut pair = self::pair(&gateway, 1);
        pair.repairs_work();
        // A hole that is being waited for.
        pair.down = false;
        let hole = pair.number;
        pair.run(3, |number| number != hole);
        pair.down = true;
        assert!(
            pair.client.is_awaited(PacketNumber::new(hole))
                && pair.client.deliverable() == PacketNumber::new(hole)
        );
        let mut out = Outbox::new();
        pair.flow.close(reason, &mut out);
        pair.deliver(&mut out);
        assert!(
            !pair.client.is_awaited(PacketNumber::new(hole))
                && pair.client.deliverable() == PacketNumber::MAX
        );
        assert_ne!(pair.client.stats().state, AssistState::Established);
        assert_eq!((pair.flow.gauges().cache_bytes, gateway.sessions()), (0, 0));
    }
}

#[test]
fn nobody_gets_what_was_forwarded_to_somebody_else() {
    let gateway = gateway(GatewayConfig::default());
    let (mut victim, mut thief) = (pair(&gateway, 1), pair(&gateway, 2));
    // The victim's datagrams are in the cache: they do not arrive, and neither does a repair.
    victim.down = false;
    victim.run(50, |_| false);
    // The thief has seen them on the air, claims to have four of five, and names one of them as the
    // newest. `deliver` checks all that it gets for it.
    let seen: Vec<_> = victim.forwarded.iter().cloned().collect();
    for (number, bytes) in seen.iter().enumerate().filter(|(number, _)| number % 5 != 0) {
        thief.client.on_datagram(bytes, thief.now);
        thief.client.on_packet_number(PacketNumber::new(10_000 + number as u64), thief.now);
    }
    thief.run(50, |_| true);
    // Its own messages, as if the victim's session were its own.
    thief.client.on_overdue(PacketNumber::new(20_000), thief.now);
    let said = thief.client.poll_transmit(thief.now).unwrap();
    let mut out = Outbox::new();
    let path = NetworkPath { client: thief.address, gateway: "192.0.2.1:443".parse().unwrap() };
    let (random, decide) = (|| [7; 8], || PathUse::Free);
    let now = victim.now;
    let event = victim.flow.control_on_new_path(&said, path, random, decide, now, &mut out);
    assert_eq!(event, PathEvent::Rejected);
    assert!(out.is_empty());
    let session = victim.flow.sessions().next().unwrap();
    let mut renamed = said.clone();
    renamed[5..9].copy_from_slice(&session.get().to_be_bytes());
    let event = victim.flow.control_on_new_path(&renamed, path, random, decide, now, &mut out);
    assert_eq!(event, PathEvent::Rejected);
    victim.flow.control(&renamed, victim.now, &mut out);
    assert!(out.is_empty());
    // And the victim's own repairs go on.
    victim.down = true;
    victim.run(400, |_| true);
    assert!(victim.counters.repairs > 0);
}
