//! An honest client, a round trip of 20 ms from the gateway.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_client::{Assist, ClientConfig, PacketNumber};
use packrat_engine::{Flow, FlowCounters, Gateway, Outbox};
use packrat_wire::estimate::Timestamp;
use packrat_wire::is_control;

use crate::ends::hear;

const LENGTH: usize = 1200;
const DELAY: Duration = Duration::from_millis(10);

/// The datagram with a number, whose end looks encrypted.
pub(crate) fn datagram(number: u64) -> Vec<u8> {
    let mut datagram = vec![7; LENGTH];
    datagram[0] = 0x40;
    datagram[LENGTH - 16..LENGTH - 8].copy_from_slice(&(number + 1).to_be_bytes());
    let scattered = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    datagram[LENGTH - 8..].copy_from_slice(&scattered.to_be_bytes());
    datagram
}

fn number_of(datagram: &[u8]) -> u64 {
    u64::from_be_bytes(datagram[LENGTH - 16..LENGTH - 8].try_into().unwrap()) - 1
}

/// Losses of the last mile.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Losses {
    /// Each fiftieth datagram, of one per millisecond.
    EachFiftieth,
    /// 60 ms in each two seconds, of four per millisecond.
    Bursts,
    /// Bursts of losses, at this address.
    BurstsAt([u8; 4]),
}

impl Losses {
    fn per_tick(self) -> u64 {
        if matches!(self, Self::EachFiftieth) { 1 } else { 4 }
    }

    fn loses(self, number: u64, tick: u64) -> bool {
        match self {
            Self::EachFiftieth => number % 50 == 49,
            Self::Bursts | Self::BurstsAt(_) => tick > 5000 && tick % 2000 < 60,
        }
    }

    fn address(self) -> SocketAddr {
        match self {
            Self::BurstsAt(address) => (address, 4000).into(),
            _ => ([192, 0, 2, 1], 5000).into(),
        }
    }
}

pub(crate) struct Neighbour {
    flow: Flow,
    client: Assist,
    losses: Losses,
    up: VecDeque<(Timestamp, Vec<u8>)>,
    down: VecDeque<(Timestamp, Vec<u8>)>,
    number: u64,
    lost: u64,
    repaired: u64,
    missing: BTreeSet<u64>,
    pub(crate) counters: FlowCounters,
}

impl Neighbour {
    pub(crate) fn new(gateway: &Arc<Gateway>, losses: Losses, now: Timestamp) -> Self {
        Self {
            flow: Flow::new(Arc::clone(gateway)),
            client: Assist::new(ClientConfig::default(), [99; 32], now),
            losses,
            up: VecDeque::new(),
            down: VecDeque::new(),
            number: 0,
            lost: 0,
            repaired: 0,
            missing: BTreeSet::new(),
            counters: FlowCounters::default(),
        }
    }

    /// Datagrams lost, and repaired.
    pub(crate) fn fate(&self) -> (u64, u64) {
        (self.lost, self.repaired)
    }

    pub(crate) fn tick(&mut self, gateway: &Arc<Gateway>, tick: u64, now: Timestamp) {
        let mut out = Outbox::new();
        if tick > 200 {
            for _ in 0..self.losses.per_tick() {
                let bytes = datagram(self.number);
                self.flow.forward(&bytes, now);
                if self.losses.loses(self.number, tick) {
                    self.lost += 1;
                    self.missing.insert(self.number);
                } else {
                    self.down.push_back((now + DELAY, bytes));
                }
                self.number += 1;
            }
        }
        if self.flow.next_timeout().is_some_and(|at| at <= now) {
            self.flow.handle_timeout(now, &mut out);
        }
        while self.up.front().is_some_and(|(at, _)| *at <= now) {
            let (_, said) = self.up.pop_front().unwrap();
            let from = self.losses.address();
            hear(gateway, &mut self.flow, &said, from, [said[9]; 32], now, &mut out);
        }
        self.down.extend(out.datagrams().map(|bytes| (now + DELAY, bytes.to_vec())));
        self.counters.add(&self.flow.take_counters());
        while self.down.front().is_some_and(|(at, _)| *at <= now) {
            let (_, bytes) = self.down.pop_front().unwrap();
            self.client.on_datagram(&bytes, now);
            if !is_control(&bytes) {
                let number = number_of(&bytes);
                let packet = PacketNumber::new(number);
                self.client.on_packet_number(packet, now);
                self.repaired += u64::from(self.missing.remove(&number));
            }
        }
        self.client.handle_timeout(now);
        while let Some(said) = self.client.poll_transmit(now) {
            self.up.push_back((now + DELAY, said));
        }
    }
}
