//! The gateway on the path of one receiver: the real engine.

use std::net::SocketAddr;
use std::sync::Arc;

use packrat_engine::{Flow, FlowCounters, Gateway, GatewayConfig, Outbox, Received};
use packrat_wire::estimate::Timestamp;
use packrat_wire::is_control;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::Serialize;

use crate::simulation::randomness::bytes;

/// The time for which the cache is sampled at each datagram.
const SERIES_SECONDS: f64 = 10.0;

/// Totals of the gateway's work.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct GatewayTotals {
    /// Packets that the gateway repaired.
    pub repaired: u64,
    /// Early copies that it sent.
    pub early_copies: u64,
    /// eACKs of the client.
    pub eacks: u64,
    /// eACKs that could not be decoded.
    pub decode_failures: u64,
    /// Resets of both sides.
    pub resets: u64,
    /// Bytes cached, mean over the datagrams forwarded.
    pub cache_mean: f64,
    /// Bytes cached, at most.
    pub cache_max: u64,
}

/// A gateway with one flow.
pub(crate) struct OneFlow {
    gateway: Arc<Gateway>,
    flow: Flow,
    random: ChaCha8Rng,
    out: Outbox,
    counters: FlowCounters,
    /// Cached bytes, summed over the forwarded datagrams, and how many those were.
    cache: (u64, u64),
    /// Time and cached bytes at each datagram of the first ten seconds.
    pub(crate) series: Vec<(f64, u64)>,
    first: Option<Timestamp>,
}

impl OneFlow {
    pub(crate) fn new(config: GatewayConfig, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ 0x6761_7465_7761_7900);
        let gateway = Gateway::new(config, bytes(&mut random), bytes(&mut random));
        let flow = Flow::new(Arc::clone(&gateway));
        Self {
            gateway,
            flow,
            random,
            out: Outbox::new(),
            counters: FlowCounters::default(),
            cache: (0, 0),
            series: Vec::new(),
            first: None,
        }
    }

    /// A datagram passes towards the receiver.
    pub(crate) fn forward(&mut self, datagram: &[u8], now: Timestamp) {
        self.flow.forward(datagram, now);
        let cached = self.flow.gauges().cache_bytes;
        let elapsed = now.saturating_since(*self.first.get_or_insert(now)).as_secs_f64();
        if elapsed < SERIES_SECONDS {
            self.series.push((elapsed, cached));
        }
        self.cache.0 += cached;
        self.cache.1 += 1;
    }

    /// A datagram comes from the receiver; true when it belongs to the sender.
    pub(crate) fn passes(&mut self, datagram: &[u8], from: SocketAddr, now: Timestamp) -> bool {
        if !is_control(datagram) {
            return true;
        }
        match self.gateway.receive(datagram, from, now, &mut self.out) {
            Received::Done(_) => {}
            Received::Begin(begin) => {
                let fresh = bytes(&mut self.random);
                self.flow.begin(begin, fresh, now, &mut self.out);
            }
            Received::ForFlow => self.flow.control(datagram, now, &mut self.out),
        }
        false
    }

    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        self.flow.next_timeout()
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        self.flow.handle_timeout(now, &mut self.out);
    }

    /// The datagrams that the gateway itself sends to the receiver.
    pub(crate) fn take(&mut self) -> Vec<Vec<u8>> {
        let datagrams = self.out.datagrams().map(<[u8]>::to_vec).collect();
        self.out.clear();
        self.counters.add(&self.flow.take_counters());
        datagrams
    }

    /// The totals so far, with the client's eACKs.
    pub(crate) fn totals(&self, eacks: u64) -> GatewayTotals {
        GatewayTotals {
            repaired: self.counters.repairs,
            early_copies: self.counters.early_copies,
            eacks,
            decode_failures: self.counters.eacks_failed,
            resets: self.counters.resets_gateway + self.counters.resets_client,
            cache_mean: self.cache.0 as f64 / self.cache.1.max(1) as f64,
            cache_max: self.flow.gauges().cache_high_water_bytes,
        }
    }
}
