//! State that the end of a session and its epochs leave behind at either end, and its effect on the
//! sessions of other clients: a real client and a real flow, between which a test drops datagrams.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_client::{Assist, AssistState, ClientConfig, PacketNumber};
use packrat_engine::{
    Flow, FlowCounters, Gateway, GatewayConfig, NetworkPath, Outbox, PathEvent, PathUse,
};
use packrat_wire::estimate::Timestamp;
use packrat_wire::is_control;
use packrat_wire::message::GoodbyeReason;

use crate::ends::hear;

const LENGTH: usize = 1200;
/// More than any sketch decodes.
const TOO_MANY: u64 = 300;

struct Pair {
    gateway: Arc<Gateway>,
    flow: Flow,
    client: Assist,
    address: SocketAddr,
    now: Timestamp,
    number: u64,
    forwarded: BTreeSet<Vec<u8>>,
    /// True if messages arrive.
    up: bool,
    down: bool,
    /// No datagram arrives at the client from the gateway's next Reset on.
    loses_resets: bool,
    counters: FlowCounters,
}

fn datagram(owner: u8, number: u64) -> Vec<u8> {
    let mut datagram = vec![owner; LENGTH];
    datagram[0] = 0x40;
    datagram[LENGTH - 16..LENGTH - 8].copy_from_slice(&(number + 1).to_be_bytes());
    datagram[LENGTH - 8..].copy_from_slice(&((number + 1) << 8 | u64::from(owner)).to_be_bytes());
    datagram
}

impl Pair {
    /// A client with an assisted flow.
    fn new(gateway: &Arc<Gateway>, owner: u8) -> Self {
        let now = Timestamp::from_millis(1000);
        let mut pair = Self {
            gateway: Arc::clone(gateway),
            flow: Flow::new(Arc::clone(gateway)),
            client: Assist::new(ClientConfig::default(), [owner; 32], now),
            address: SocketAddr::from(([192, 0, 2, owner], 5000)),
            now,
            number: 0,
            forwarded: BTreeSet::new(),
            up: true,
            down: true,
            loses_resets: false,
            counters: FlowCounters::default(),
        };
        pair.run(20, |_| true);
        assert_eq!(pair.client.stats().state, AssistState::Established);
        assert!(pair.flow.is_assisted());
        pair
    }

    /// Delivers the gateway's datagrams to the client, unless they are to be lost.
    fn deliver(&mut self, out: &mut Outbox) {
        let new = self.flow.take_counters();
        self.down &= !(self.loses_resets && new.resets_gateway > 0);
        self.counters.add(&new);
        for bytes in out.datagrams() {
            assert!(
                is_control(bytes) || self.forwarded.contains(bytes),
                "never forwarded to this client"
            );
            if self.down {
                self.client.on_datagram(bytes, self.now);
                if !is_control(bytes) {
                    let number =
                        u64::from_be_bytes(bytes[LENGTH - 16..LENGTH - 8].try_into().unwrap());
                    self.client.on_packet_number(PacketNumber::new(number - 1), self.now);
                }
            }
        }
        out.clear();
    }

    /// Lets messages and time pass for this many milliseconds, with a datagram of the server each.
    /// `arrives`: by its number.
    fn run(&mut self, milliseconds: u64, arrives: impl Fn(u64) -> bool) {
        for _ in 0..milliseconds {
            self.now = self.now + Duration::from_millis(1);
            let bytes = datagram(self.owner(), self.number);
            self.flow.forward(&bytes, self.now);
            if arrives(self.number) {
                self.client.on_datagram(&bytes, self.now);
                self.client.on_packet_number(PacketNumber::new(self.number), self.now);
            }
            self.forwarded.insert(bytes);
            self.number += 1;
            self.talk();
        }
    }

    fn owner(&self) -> u8 {
        match self.address.ip() {
            std::net::IpAddr::V4(address) => address.octets()[3],
            std::net::IpAddr::V6(_) => 0,
        }
    }

    /// Handles the timers and messages that are due in both directions.
    fn talk(&mut self) {
        let mut out = Outbox::new();
        if self.flow.next_timeout().is_some_and(|at| at <= self.now) {
            self.flow.handle_timeout(self.now, &mut out);
            self.deliver(&mut out);
        }
        self.client.handle_timeout(self.now);
        while let Some(said) = self.client.poll_transmit(self.now) {
            if self.up {
                self.hear(&said, &mut out);
                self.deliver(&mut out);
            }
        }
    }

    fn hear(&mut self, said: &[u8], out: &mut Outbox) {
        hear(&self.gateway, &mut self.flow, said, self.address, [said[9]; 32], self.now, out);
    }

    /// Gives the client more datagrams that the gateway has not forwarded than eACKs can decode.
    fn confuse(&mut self) {
        for number in 0..TOO_MANY {
            self.client
                .on_datagram(&datagram(0xee, 1_000_000 + self.number * 1000 + number), self.now);
            self.client.on_authentic(self.now);
        }
    }

    fn repairs_work(&mut self) {
        let before = self.client.stats().filled_in_time;
        self.run(200, |number| number % 10 != 3);
        assert!(self.client.stats().filled_in_time > before + 10, "{:?}", self.client.stats());
    }
}

fn gateway() -> Arc<Gateway> {
    Gateway::new(GatewayConfig::default(), [9; 32], [8; 32])
}

#[test]
fn a_reset_is_repeated_until_heard_and_counts_once() {
    let mut pair = Pair::new(&gateway(), 1);
    pair.run(50, |_| true);
    // The gateway's Resets are lost for a while.
    pair.loses_resets = true;
    pair.confuse();
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
    let mut pair = Pair::new(&gateway(), 1);
    pair.run(50, |_| true);
    // The gateway wants a Reset, and the client does not receive it; then the client wants one, and
    // the gateway does not receive it.
    pair.loses_resets = true;
    pair.confuse();
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
    pair.confuse();
    pair.run(200, |_| true);
    assert_eq!((pair.counters.resets_gateway, pair.down), (2, false));
    pair.client.reset(pair.now);
    let crossing = pair.client.poll_transmit(pair.now).unwrap();
    (pair.down, pair.loses_resets) = (true, false);
    pair.run(20, |_| true);
    let mut out = Outbox::new();
    pair.hear(&crossing, &mut out);
    pair.deliver(&mut out);
    pair.repairs_work();
    assert_eq!(pair.counters.resets_gateway, 2, "{:?}", pair.counters);
}

#[test]
fn messages_of_an_old_epoch_change_nothing() {
    let mut pair = Pair::new(&gateway(), 1);
    pair.run(50, |_| true);
    // An eACK that is late, from before the Reset.
    pair.run(1, |_| false);
    pair.run(1, |_| true);
    pair.up = false;
    pair.client.on_overdue(PacketNumber::new(pair.number), pair.now);
    let late = pair.client.poll_transmit(pair.now);
    pair.up = true;
    pair.client.reset(pair.now);
    pair.run(50, |_| true);
    let before = pair.counters;
    let mut out = Outbox::new();
    if let Some(late) = late {
        pair.hear(&late, &mut out);
    }
    pair.deliver(&mut out);
    assert_eq!(pair.counters.repairs, before.repairs);
    assert_eq!(pair.counters.resets_gateway, 0);
    pair.repairs_work();
}

#[test]
fn a_goodbye_of_the_client_frees_everything_at_the_gateway() {
    let gateway = gateway();
    let mut pair = Pair::new(&gateway, 1);
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
    let gateway = Gateway::new(limit, [9; 32], [8; 32]);
    for _ in 0..3 {
        let mut pair = Pair::new(&gateway, 1);
        pair.client.close(pair.now);
        pair.talk();
    }
}

#[test]
fn a_goodbye_of_the_gateway_ends_all_waiting_at_once() {
    for reason in [GoodbyeReason::Draining, GoodbyeReason::Idle, GoodbyeReason::Done] {
        let gateway = gateway();
        let mut pair = Pair::new(&gateway, 1);
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
    let gateway = gateway();
    let (mut victim, mut thief) = (Pair::new(&gateway, 1), Pair::new(&gateway, 2));
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
