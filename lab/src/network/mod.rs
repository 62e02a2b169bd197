//! The path: hosts at three places, four links between them, a gateway in the middle.
//!
//! ```text
//!            far segment                    last mile
//!   server <--------------> gateway node <--------------> client
//! ```
//!
//! Datagrams that pass the gateway's place pass the gateway. All of them wait in one queue, ordered
//! by time and then by the order in which they were sent, so that the same seed gives the same
//! network in every process.

mod batching;
mod departure;
mod gateway;
mod links;
mod oracle;
mod place;
mod record;
mod shim;
mod state;

use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use packrat_client::AssistStats;
use packrat_emulation::scenario::Scenario;
use s2n_quic::provider::io::testing::network::{Buffers, Network};

use crate::observer::TraceEvent;
use crate::simulation::clock::VirtualClock;
pub(crate) use departure::Departure;
pub(crate) use gateway::{GatewayFigures, GatewayNode};
pub use oracle::Oracle;
pub(crate) use place::Place;
pub(crate) use record::PathCounters;
pub(crate) use shim::ShimNode;
use state::NetworkState;

/// The network of one trial, shared by the simulation's network and the task that moves datagrams.
#[derive(Clone)]
pub(crate) struct VirtualNetwork(Arc<Mutex<NetworkState>>);

impl VirtualNetwork {
    /// A network without hosts. `gateway`: `None` when the path has no gateway.
    pub(crate) fn new(
        scenario: &Scenario,
        seed: u64,
        gateway: Option<GatewayNode>,
        tracing: bool,
    ) -> Self {
        Self(Arc::new(Mutex::new(NetworkState::new(scenario, seed, gateway, tracing))))
    }

    fn lock(&self) -> MutexGuard<'_, NetworkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the network's clock; the returned task moves datagrams and must be spawned.
    pub(crate) fn start(&self, clock: VirtualClock) -> impl Future<Output = ()> + Send + use<> {
        self.lock().clock = Some(clock);
        Courier { network: self.clone(), clock, timer: None }
    }

    /// A host has this address, at the far segment or the last mile of this number.
    pub(crate) fn place(&self, address: SocketAddr, place: Place, links: usize) {
        self.lock().places.insert(address, (place, links));
    }

    /// Adds links like the shared ones, with losses of their own; their number.
    pub(crate) fn add_links(&self, scenario: &Scenario, seed: u64) -> usize {
        self.lock().links.add(scenario, seed)
    }

    /// The client at this address gets its datagrams through a shim.
    pub(crate) fn put_shim(&self, client: SocketAddr, shim: ShimNode) {
        self.lock().shims.insert(client, shim);
    }

    /// Sets the oracle for clients with a shim.
    pub(crate) fn ask(&self, oracle: Option<Oracle>) {
        self.lock().oracle = oracle;
    }

    /// The figures of a client's shim.
    pub(crate) fn shim_figures(&self, client: SocketAddr) -> Option<AssistStats> {
        self.lock().shims.get(&client).map(ShimNode::figures)
    }

    /// The client at this address is followed when tracing.
    pub(crate) fn follow(&self, client: SocketAddr) {
        let state = &mut *self.lock();
        state.record.follow(client);
        if let Some(gateway) = &mut state.gateway
            && state.record.is_tracing()
        {
            gateway.observe(client);
        }
    }

    /// The links' counters so far, and the counters of this client's datagrams.
    pub(crate) fn counters(&self, client: SocketAddr) -> PathCounters {
        let state = self.lock();
        let shared = state.links.shared();
        PathCounters {
            far_down: shared.far_down.counters(),
            far_up: shared.far_up.counters(),
            last_mile_down: shared.last_mile_down.counters(),
            last_mile_up: shared.last_mile_up.counters(),
            client: state.record.counters(client),
        }
    }

    /// The events on the last mile and at the gateway, when tracing, and the datagrams sent to the
    /// client, in order.
    pub(crate) fn take_trace(&self) -> (Vec<TraceEvent>, Vec<Departure>) {
        let state = &mut *self.lock();
        let (mut trace, departures) = state.record.take();
        trace.extend(state.gateway.iter_mut().flat_map(GatewayNode::take_trace));
        (trace, departures)
    }

    /// The gateway's counters and gauges of a client.
    pub(crate) fn gateway_figures(&self, client: SocketAddr) -> GatewayFigures {
        self.lock().gateway.as_ref().map(|gateway| gateway.figures(client)).unwrap_or_default()
    }
}

impl Network for VirtualNetwork {
    fn execute(&mut self, buffers: &Buffers) -> usize {
        let state = &mut *self.lock();
        let Some(clock) = state.clock else { return 0 };
        if state.buffers.is_none() {
            state.buffers = Some(buffers.clone());
        }
        // The ready-made way to drain the sockets walks a hash map in an order that differs between
        // processes.
        let mut senders = BTreeSet::new();
        buffers.pending_transmission(|packet| {
            senders.insert(SocketAddr::from(*packet.path.local_address));
        });
        if senders.is_empty() {
            return 0;
        }
        let now = clock.now();
        let mut packets = Vec::new();
        for sender in senders {
            buffers.tx(sender.into(), |queue| packets.extend(queue.drain()));
        }
        let count = packets.len();
        for packet in packets {
            state.depart(packet, now);
        }
        state.wake_courier();
        count
    }
}

/// Moves the datagrams that are due, for as long as the trial lasts.
struct Courier {
    network: VirtualNetwork,
    clock: VirtualClock,
    timer: Option<s2n_quic::provider::io::testing::time::Timer>,
}

impl Future for Courier {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let network = this.network.clone();
        let state = &mut *network.lock();
        loop {
            state.advance(this.clock.now());
            state.waker = Some(context.waker().clone());
            state.armed = state.next_due();
            let Some(at) = state.armed else {
                this.timer = None;
                return Poll::Pending;
            };
            let mut timer = this.clock.sleep_until(at);
            if Pin::new(&mut timer).poll(context).is_pending() {
                this.timer = Some(timer);
                return Poll::Pending;
            }
        }
    }
}
