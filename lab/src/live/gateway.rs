//! The gateway on the path of one receiver: the real engine.

use std::net::SocketAddr;
use std::sync::Arc;

use packrat_engine::{Flow, FlowCounters, FlowGauges, Gateway, GatewayConfig, Outbox, Received};
use packrat_wire::estimate::Timestamp;
use packrat_wire::is_control;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::simulation::randomness::bytes;

/// The time for which the cache is sampled at each datagram.
const SERIES_SECONDS: f64 = 10.0;

/// A gateway with one flow.
pub(crate) struct OneFlow {
    gateway: Arc<Gateway>,
    flow: Flow,
    random: ChaCha8Rng,
    out: Outbox,
    pub(crate) counters: FlowCounters,
    /// Cached bytes, summed over the forwarded datagrams, and how many those were.
    pub(crate) cache: (u64, u64),
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

    pub(crate) fn gauges(&self) -> FlowGauges {
        self.flow.gauges()
    }
}
