//! A client's core and a flow, between which a test drops datagrams: each millisecond of their life
//! is a step.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use packrat_client::{Assist, ClientConfig, ClientEvent, Observer, PacketNumber, Timestamp};
use packrat_engine::{Event, Flow, FlowCounters, Gateway, GatewayConfig, Outbox, SessionEvent};
use packrat_wire::is_control;

use super::hear;

const LENGTH: usize = 1200;

pub(crate) struct Pair {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) flow: Flow,
    pub(crate) client: Assist,
    pub(crate) address: SocketAddr,
    owner: u8,
    pub(crate) now: Timestamp,
    /// Datagrams of the server so far.
    pub(crate) number: u64,
    pub(crate) forwarded: BTreeSet<Vec<u8>>,
    /// True if messages arrive, and datagrams of the gateway.
    pub(crate) up: bool,
    pub(crate) down: bool,
    /// True if repairs arrive.
    pub(crate) repairs_arrive: bool,
    /// No datagram arrives at the client from the gateway's next Reset on.
    pub(crate) loses_resets: bool,
    /// The time that datagrams of the server take to arrive.
    pub(crate) delay: Duration,
    under_way: Vec<(Timestamp, u64, Vec<u8>)>,
    /// Messages of the client, kept back to arrive in the wrong order.
    pub(crate) kept_back: Option<Vec<Vec<u8>>>,
    pub(crate) counters: FlowCounters,
    pub(crate) events: Vec<SessionEvent>,
    pub(crate) of_client: Arc<Mutex<Vec<ClientEvent>>>,
}

/// A gateway with this configuration.
pub(crate) fn gateway(config: GatewayConfig) -> Arc<Gateway> {
    Gateway::new(config, [9; 32], [8; 32])
}

fn datagram(owner: u8, number: u64) -> Vec<u8> {
    let mut datagram = vec![owner; LENGTH];
    datagram[0] = 0x40;
    datagram[LENGTH - 16..LENGTH - 8].copy_from_slice(&(number + 1).to_be_bytes());
    datagram[LENGTH - 8..].copy_from_slice(&((number + 1) << 8 | u64::from(owner)).to_be_bytes());
    datagram
}

impl Pair {
    pub(crate) fn new(gateway: &Arc<Gateway>, client: ClientConfig, owner: u8) -> Self {
        let now = Timestamp::from_millis(1000);
        Self {
            flow: Flow::new(Arc::clone(gateway)),
            gateway: Arc::clone(gateway),
            client: Assist::new(client, [owner; 32], now),
            address: ([192, 0, 2, owner], 5000).into(),
            owner,
            now,
            number: 0,
            forwarded: BTreeSet::new(),
            up: true,
            down: true,
            repairs_arrive: true,
            loses_resets: false,
            delay: Duration::ZERO,
            under_way: Vec::new(),
            kept_back: None,
            counters: FlowCounters::default(),
            events: Vec::new(),
            of_client: Arc::default(),
        }
    }

    /// Both ends report events.
    pub(crate) fn observe(&mut self) {
        self.flow.observe(true);
        let told = Arc::clone(&self.of_client);
        self.client.observe(Observer::new(move |_, event| told.lock().unwrap().push(*event)));
    }

    /// Runs for this many milliseconds, each with a datagram of the server, which arrives or not.
    pub(crate) fn run(&mut self, milliseconds: u64, arrives: impl Fn(u64) -> bool) {
        for _ in 0..milliseconds {
            let (number, at) = (self.number, self.now + Duration::from_millis(1));
            let bytes = datagram(self.owner, number);
            self.flow.forward(&bytes, at);
            if arrives(number) {
                self.under_way.push((at + self.delay, number, bytes.clone()));
            }
            self.forwarded.insert(bytes);
            self.number += 1;
            self.rest(1);
        }
    }

    /// Runs for this many milliseconds without datagrams of the server.
    pub(crate) fn rest(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.now = self.now + Duration::from_millis(1);
            let now = self.now;
            let due;
            (due, self.under_way) = self.under_way.drain(..).partition(|(at, ..)| *at <= now);
            for (_, number, bytes) in due {
                self.client.on_datagram(&bytes, now);
                self.client.on_packet_number(PacketNumber::new(number), now);
            }
            self.talk();
        }
    }

    /// Handles the timers and messages that are due in both directions.
    pub(crate) fn talk(&mut self) {
        let mut out = Outbox::new();
        if self.flow.next_timeout().is_some_and(|at| at <= self.now) {
            self.flow.handle_timeout(self.now, &mut out);
            self.deliver(&mut out);
        }
        self.client.handle_timeout(self.now);
        while let Some(said) = self.client.poll_transmit(self.now) {
            match &mut self.kept_back {
                Some(kept_back) => kept_back.push(said),
                None if self.up => self.hear(&said),
                None => {}
            }
        }
    }

    /// The gateway hears a message, and is answered.
    pub(crate) fn hear(&mut self, said: &[u8]) {
        let mut out = Outbox::new();
        let random = [said[9]; 32];
        hear(&self.gateway, &mut self.flow, said, self.address, random, self.now, &mut out);
        self.deliver(&mut out);
    }

    /// Delivers the gateway's datagrams to the client, unless they are to be lost.
    pub(crate) fn deliver(&mut self, out: &mut Outbox) {
        let new = self.flow.take_counters();
        self.down &= !(self.loses_resets && new.resets_gateway > 0);
        self.counters.add(&new);
        for bytes in out.datagrams() {
            let is_repair = !is_control(bytes);
            assert!(!is_repair || self.forwarded.contains(bytes), "never forwarded to this client");
            if !self.down || is_repair && !self.repairs_arrive {
                continue;
            }
            self.client.on_datagram(bytes, self.now);
            if is_repair {
                let number = u64::from_be_bytes(*bytes[LENGTH - 16..].first_chunk().unwrap());
                self.client.on_packet_number(PacketNumber::new(number - 1), self.now);
            }
        }
        self.events.extend(out.take_events().into_iter().filter_map(|event| match event {
            Event::Session { event, .. } => Some(event),
            _ => None,
        }));
        out.clear();
    }

    /// Gives the client `count` datagrams that the gateway has not forwarded.
    pub(crate) fn receive_foreign(&mut self, count: u64) {
        for number in 0..count {
            let foreign = datagram(0xee, 1_000_000 + self.number * 1000 + number);
            self.client.on_datagram(&foreign, self.now);
            self.client.on_authentic(self.now);
        }
    }
}
