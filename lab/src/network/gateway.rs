//! The gateway on the path: the real engine, fed by the simulation.

use crate::observer::TraceEvent;
use crate::simulation::randomness::{self, Stream};
use packrat_engine::{
    Event, Flow, FlowCounters, FlowGauges, Gateway, GatewayConfig, NumberHeader, Outbox, Received,
    SenderMemory,
};
use packrat_wire::estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// A client's flow through the gateway.
#[derive(Debug)]
struct Client {
    flow: Flow,
    /// `None` before the first control datagram.
    server: Option<SocketAddr>,
    /// Datagrams of the base connection that have come from it.
    heard: u64,
    /// When the first of these went to the server.
    asked: Option<Timestamp>,
    is_answered: bool,
    counters: FlowCounters,
    gauges: FlowGauges,
    /// Cached bytes, summed over the forwarded datagrams, and how many those were.
    cache_sum: u64,
    cache_samples: u64,
}

/// The gateway's counters and gauges of one client.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GatewayFigures {
    pub(crate) counters: FlowCounters,
    pub(crate) gauges: FlowGauges,
    pub(crate) cache_mean: f64,
}

/// A datagram that the gateway itself sends to a client, or that has waited there for the server.
#[derive(Debug)]
pub(crate) struct Originated {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    /// The congestion mark of one for the server.
    pub(crate) to_server: Option<u8>,
    pub(crate) bytes: Vec<u8>,
}

/// The gateway and its flows. Like the data plane in Envoy, without its sockets.
#[derive(Debug)]
pub(crate) struct GatewayNode {
    gateway: Arc<Gateway>,
    clients: BTreeMap<SocketAddr, Client>,
    random: ChaCha8Rng,
    /// The network that clients seem to be in.
    network: u8,
    out: Outbox,
    /// Only when tracing: the client whose session is observed, and its events.
    observed: Option<SocketAddr>,
    trace: Vec<TraceEvent>,
}

impl GatewayNode {
    /// Creates the node. `senders`: the findings of earlier trials; `network`: the network of this
    /// trial's clients.
    pub(crate) fn new(
        config: GatewayConfig,
        seed: u64,
        senders: Arc<SenderMemory>,
        network: u8,
    ) -> Self {
        let mut random = randomness::generator(seed, Stream::Gateway);
        let (key, secret) = (randomness::bytes(&mut random), randomness::bytes(&mut random));
        let gateway = Gateway::remembering(config, key, secret, Arc::default(), senders);
        Self {
            gateway,
            clients: BTreeMap::new(),
            random,
            network,
            out: Outbox::new(),
            observed: None,
            trace: Vec::new(),
        }
    }

    /// Keeps the events of this client's sessions, which have not begun yet.
    pub(crate) fn observe(&mut self, client: SocketAddr) {
        self.observed = Some(client);
    }

    /// The events of the client that is observed.
    pub(crate) fn take_trace(&mut self) -> Vec<TraceEvent> {
        std::mem::take(&mut self.trace)
    }

    /// A datagram of the base connection passes towards the client.
    /// Returns the number to put in front of it.
    pub(crate) fn forward(
        &mut self,
        client: SocketAddr,
        datagram: &[u8],
        now: Timestamp,
    ) -> Option<NumberHeader> {
        let client = self.clients.get_mut(&client)?;
        if let Some(asked) = client.asked.filter(|_| !client.is_answered) {
            client.flow.on_server_answered(now.saturating_since(asked));
            client.is_answered = true;
        }
        let number = client.flow.forward(datagram, now);
        client.gauges = client.flow.gauges();
        client.cache_sum += client.gauges.cache_bytes;
        client.cache_samples += 1;
        number
    }

    /// Bytes cached for a client.
    pub(crate) fn cache_bytes(&self, client: SocketAddr) -> u64 {
        self.clients.get(&client).map_or(0, |client| client.gauges.cache_bytes)
    }

    fn client<'a>(
        clients: &'a mut BTreeMap<SocketAddr, Client>,
        gateway: &Arc<Gateway>,
        observed: Option<SocketAddr>,
        from: SocketAddr,
    ) -> &'a mut Client {
        clients.entry(from).or_insert_with(|| {
            let mut flow = Flow::new(Arc::clone(gateway));
            flow.observe(observed == Some(from));
            Client {
                flow,
                server: None,
                heard: 0,
                asked: None,
                is_answered: false,
                counters: FlowCounters::default(),
                gauges: FlowGauges::default(),
                cache_sum: 0,
                cache_samples: 0,
            }
        })
    }

    /// A datagram of the base connection passes towards the server.
    pub(crate) fn note_upward(&mut self, from: SocketAddr, now: Timestamp) {
        let client = Self::client(&mut self.clients, &self.gateway, self.observed, from);
        client.heard += 1;
        client.asked.get_or_insert(now);
    }

    /// A control datagram came from the client of `server`.
    pub(crate) fn control(
        &mut self,
        from: SocketAddr,
        server: SocketAddr,
        datagram: &[u8],
        now: Timestamp,
        originated: &mut Vec<Originated>,
    ) {
        let client = Self::client(&mut self.clients, &self.gateway, self.observed, from);
        client.server = Some(server);
        let peer = match self.network {
            0 => from,
            network => SocketAddr::from(([10, network, 0, 1], from.port())),
        };
        match self.gateway.receive(datagram, peer, now, &mut self.out) {
            Received::Done(_) => {}
            Received::Begin(begin) => {
                let fresh = randomness::bytes(&mut self.random);
                client.flow.begin(begin.after(client.heard), fresh, now, &mut self.out);
            }
            Received::ForFlow => client.flow.control(datagram, now, &mut self.out),
        }
        keep(&mut self.out, now, &mut self.trace);
        client.drain(from, &mut self.out, originated);
    }

    /// Processes a datagram from the client of `server`. Returns false if it is not numbered.
    pub(crate) fn receive_upward(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        mark: u8,
        now: Timestamp,
        originated: &mut Vec<Originated>,
    ) -> bool {
        let Some(client) = self.clients.get_mut(&from) else { return false };
        let taken = client.flow.receive_upward(datagram, mark, now, &mut self.out);
        keep(&mut self.out, now, &mut self.trace);
        client.drain(from, &mut self.out, originated);
        taken
    }

    /// The time at which [`Self::handle_timeout`] must be called.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        self.clients.values().filter_map(|client| client.flow.next_timeout()).min()
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp, originated: &mut Vec<Originated>) {
        for (address, client) in &mut self.clients {
            if client.flow.next_timeout().is_some_and(|at| at <= now) {
                client.flow.handle_timeout(now, &mut self.out);
                keep(&mut self.out, now, &mut self.trace);
                client.drain(*address, &mut self.out, originated);
            }
        }
    }

    /// The counters and gauges of one client.
    pub(crate) fn figures(&self, client: SocketAddr) -> GatewayFigures {
        self.clients.get(&client).map_or_else(GatewayFigures::default, |client| GatewayFigures {
            counters: client.counters,
            gauges: client.gauges,
            cache_mean: client.cache_sum as f64 / client.cache_samples.max(1) as f64,
        })
    }
}

/// Keeps the events of a session that is observed.
fn keep(out: &mut Outbox, now: Timestamp, trace: &mut Vec<TraceEvent>) {
    trace.extend(out.take_events().into_iter().filter_map(|event| match event {
        Event::Session { event, .. } => {
            Some(TraceEvent::Gateway { at: now.as_secs_f64(), gateway: event })
        }
        _ => None,
    }));
}

impl Client {
    fn drain(&mut self, client: SocketAddr, out: &mut Outbox, originated: &mut Vec<Originated>) {
        let Some(server) = self.server else { return };
        originated.extend(out.datagrams().map(|bytes| Originated {
            client,
            server,
            to_server: None,
            bytes: bytes.to_vec(),
        }));
        originated.extend(out.datagrams_to_server().map(|(bytes, mark)| Originated {
            client,
            server,
            to_server: Some(mark),
            bytes: bytes.to_vec(),
        }));
        out.clear();
        self.counters.add(&self.flow.take_counters());
        if self.flow.is_assisted() {
            self.gauges = self.flow.gauges();
        }
    }
}
