//! The sans-IO gateway (stub of the interface; being written).
#![forbid(unsafe_code)]
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use packrat_estimate::Timestamp;

/// Limits and policies, the same for every flow of a route.
#[derive(Debug, Clone)]
pub struct GatewayConfig {
    /// Bytes of datagrams that one flow may keep for repair.
    pub cache_bytes_per_flow: usize,
    /// Bytes that all flows together may keep.
    pub cache_bytes_total: usize,
    /// Repairs as a share of the forwarded bytes (0.25 = 25 %).
    pub repair_budget: f64,
    /// Probability that a repaired datagram may still be missing when it is needed.
    pub residual_loss_target: f64,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self { cache_bytes_per_flow: 1 << 20, cache_bytes_total: 256 << 20, repair_budget: 0.25, residual_loss_target: 1e-5 }
    }
}

/// What every flow of a process shares: static key, cookie key, limits, total cache use. One per process (or route).
#[derive(Debug)]
pub struct Gateway {}

/// Datagrams to send to the client of the flow, and events to log. Reused between calls; the caller drains it.
#[derive(Debug, Default)]
pub struct Outbox { datagrams: Vec<Vec<u8>> }

impl Outbox {
    /// Takes each datagram that is to be sent to the client now, in order.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> { self.datagrams.iter().map(|d| d.as_slice()) }
    /// Takes the events that happened.
    pub fn take_events(&mut self) -> Vec<Event> { Vec::new() }
    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) { self.datagrams.clear() }
}

/// Something an operator may want a log line for.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {}

/// What to do with a control datagram after [`Gateway::receive`].
#[derive(Debug)]
pub enum Received {
    /// Nothing more: it was answered (the answer is in the outbox) or dropped; counted under this name.
    Done(HandshakeOutcome),
    /// A validated Init: find or make the flow of this client address and call [`Flow::begin`].
    Begin(Begin),
    /// Belongs to the flow of this client address: call [`Flow::control`]; without such a flow drop it.
    ForFlow,
}

/// How a handshake datagram ended; the label of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeOutcome { /// A Discover was answered with an Offer.
 Offered, /// Dropped: malformed.
 Malformed }

/// A validated Init.
#[derive(Debug)]
pub struct Begin {}

impl Gateway {
    /// `static_key`: the 32-byte X25519 private key; `secret`: 32 random bytes for cookies.
    pub fn new(_config: GatewayConfig, _static_key: [u8; 32], _secret: [u8; 32]) -> Arc<Self> { Arc::new(Self {}) }
    /// First look at a control datagram (one for which `packrat_wire::is_control` holds). Keeps no state.
    pub fn receive(&self, _datagram: &[u8], _peer: SocketAddr, _now: Timestamp, _out: &mut Outbox) -> Received { Received::ForFlow }
}

/// Counters of one flow since the last [`Flow::take_counters`]; add them up per route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowCounters {
    /// Repairs sent, first transmissions of them.
    pub repairs: u64,
}

/// Levels of one flow, now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowGauges {
    /// Bytes cached.
    pub cache_bytes: u64,
}

/// One client flow (4-tuple) through the gateway, assisted or not. Plain forwarding never depends on it.
#[derive(Debug)]
pub struct Flow {}

impl Flow {
    /// A flow without assistance: [`Flow::forward`] costs nothing until [`Flow::begin`].
    pub fn new(_gateway: Arc<Gateway>) -> Self { Self {} }
    /// Starts (or restarts) assistance; `seed`: 32 fresh random bytes from the operating system. The InitAck is in the outbox.
    pub fn begin(&mut self, _begin: Begin, _seed: [u8; 32], _now: Timestamp, _out: &mut Outbox) {}
    /// Whether assistance is on.
    pub fn is_assisted(&self) -> bool { false }
    /// A datagram of the base connection passes from the server to the client.
    pub fn forward(&mut self, _datagram: &[u8], _now: Timestamp) {}
    /// A control datagram that [`Gateway::receive`] gave to this flow.
    pub fn control(&mut self, _datagram: &[u8], _now: Timestamp, _out: &mut Outbox) {}
    /// When [`Flow::handle_timeout`] wants to be called, if at all.
    pub fn next_timeout(&self) -> Option<Timestamp> { None }
    /// Time has passed: tail probes, spaced copies of repairs.
    pub fn handle_timeout(&mut self, _now: Timestamp, _out: &mut Outbox) {}
    /// The flow ends (idle, drained): frees the cache, puts a Goodbye into the outbox when assisted.
    pub fn close(&mut self, _now: Timestamp, _out: &mut Outbox) {}
    /// Counters since the last call.
    pub fn take_counters(&mut self) -> FlowCounters { FlowCounters::default() }
    /// Levels now.
    pub fn gauges(&self) -> FlowGauges { FlowGauges::default() }
    /// Idle time after which a flow without datagrams should be closed.
    pub fn default_idle_timeout() -> Duration { Duration::from_secs(120) }
}
