//! The path: hosts at three places, four links between them, a gateway in the middle.
//!
//! ```text
//!            far segment                    last mile
//!   server <--------------> gateway node <--------------> client
//! ```
//!
//! Datagrams that pass the gateway's place pass the gateway. All of them wait in one queue, ordered
//! by time and then by the order in which they were sent, so that the same seed gives the same
//! world in every process.

use crate::batching::{Batch, Batching};
use crate::clock::VirtualClock;
use crate::gateway_node::{GatewayFigures, GatewayNode, Originated};
use crate::observer::{DatagramKind, TraceEvent};
use crate::oracle::{Oracle, RECOVERY, Told};
use crate::shim_node::{Delivery, ShimNode};
use crate::trace::{self, Departure};
use packrat_client::AssistStats;
use packrat_emulation::path::{AnyLink, CrossTraffic, Fate, LinkCounters, Verdict};
use packrat_emulation::scenario::{Links, Scenario};
use packrat_emulation::schedule::Schedule;
use packrat_wire::estimate::Timestamp;
use packrat_wire::{bundle, is_control, number};
use s2n_quic::provider::io::testing::network::{Buffers, Network, Packet};
use s2n_quic_core::inet::ExplicitCongestionNotification::{self, Ce, NotEct};
use s2n_quic_core::inet::SocketAddress;
use s2n_quic_core::path::Tuple;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The place of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Server,
    Gateway,
    Client,
}

/// One of the four links of a number, in the order in which they are served at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LinkId(usize, LinkName);

/// The name of one of the four links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LinkName {
    FarDown,
    FarUp,
    LastMileDown,
    LastMileUp,
}

impl LinkName {
    const ALL: [Self; 4] = [Self::FarDown, Self::FarUp, Self::LastMileDown, Self::LastMileUp];

    fn of<T>(self, links: &mut Links<T>) -> &mut T {
        match self {
            Self::FarDown => &mut links.far_down,
            Self::FarUp => &mut links.far_up,
            Self::LastMileDown => &mut links.last_mile_down,
            Self::LastMileUp => &mut links.last_mile_up,
        }
    }
}

/// A radio that has sent is ready for the next datagram for so long.
const AWAKE: Duration = Duration::from_millis(1);
/// The number of the flow that is cross traffic.
const CROSS_TRAFFIC: u64 = u64::MAX;

/// The number of a packet's flow: the same in every process.
fn flow(packet: &Packet) -> u64 {
    let mut hasher = DefaultHasher::new();
    let [local, remote] = [*packet.path.local_address, *packet.path.remote_address];
    (SocketAddr::from(local), SocketAddr::from(remote)).hash(&mut hasher);
    hasher.finish()
}

/// The links' counters, and those of one client's datagrams on the way to it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PathCounters {
    pub(crate) far_down: LinkCounters,
    pub(crate) far_up: LinkCounters,
    pub(crate) last_mile_down: LinkCounters,
    pub(crate) last_mile_up: LinkCounters,
    pub(crate) client: ClientCounters,
}

/// The fates of one client's datagrams.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientCounters {
    /// Offered to the last mile, bytes.
    pub(crate) last_mile_bytes: u64,
    /// Datagrams that it has sent, when it had sent none for [`AWAKE`] before: its radio wakes up for them.
    pub(crate) wake_ups: u64,
    /// When it sent last.
    sent: Option<Timestamp>,
    /// Those on the way to the client...
    pub(crate) down: WayCounters,
    /// ...and from it.
    pub(crate) up: WayCounters,
}

/// The fates of datagrams in one direction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WayCounters {
    /// Lost by a medium.
    pub(crate) lost: u64,
    /// Dropped by a queue.
    pub(crate) queue_dropped: u64,
}

/// The world of one trial, shared by the simulation's network and the task that moves datagrams.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

struct State {
    clock: Option<VirtualClock>,
    buffers: Option<Buffers>,
    places: BTreeMap<SocketAddr, (Place, usize)>,
    /// Those that are shared first, then those of flows that have their own.
    links: Vec<Links<AnyLink<Crossing>>>,
    batching: Batching,
    /// True if links carry the ECN field.
    ecn: bool,
    /// Of the far segment and of the last mile, towards the client.
    cross_traffic: [Option<CrossTraffic>; 2],
    clients: BTreeMap<SocketAddr, ClientCounters>,
    gateway: Option<GatewayNode>,
    shims: BTreeMap<SocketAddr, ShimNode>,
    /// Knowledge of clients with a shim, and the last arrival at each client, past or to come.
    oracle: Option<Oracle>,
    expected: BTreeMap<SocketAddr, Timestamp>,
    under_way: Schedule<UnderWay>,
    /// Wakes the task; when it will wake by itself.
    waker: Option<Waker>,
    armed: Option<Timestamp>,
    /// Only when tracing: the client whose datagrams are followed, and their fate.
    traced: Option<SocketAddr>,
    departures: Vec<Departure>,
    trace: Option<Vec<TraceEvent>>,
}

/// A datagram that was offered to a link.
#[derive(Debug)]
struct Crossing {
    /// `None`: of cross traffic, whose fate does not matter.
    packet: Option<Packet>,
    from: Place,
    to: Place,
    /// The link's other end.
    next: Place,
    originated: bool,
    offered: Timestamp,
}

/// A datagram on a link, or in a host.
#[derive(Debug)]
struct UnderWay {
    to: Place,
    packet: Packet,
    /// True if the host at `to` has read it.
    read: bool,
    told: Told,
}

impl World {
    /// A world without hosts. `gateway`: `None` when the path has no gateway.
    pub(crate) fn new(
        scenario: &Scenario,
        seed: u64,
        gateway: Option<GatewayNode>,
        tracing: bool,
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            clock: None,
            buffers: None,
            places: BTreeMap::new(),
            links: vec![scenario.links(seed).map(AnyLink::new)],
            batching: Batching::new(scenario.batching),
            ecn: scenario.ecn,
            cross_traffic: scenario.cross_traffic(seed),
            clients: BTreeMap::new(),
            gateway,
            shims: BTreeMap::new(),
            oracle: None,
            expected: BTreeMap::new(),
            under_way: Schedule::new(),
            waker: None,
            armed: None,
            traced: None,
            departures: Vec::new(),
            trace: tracing.then(Vec::new),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the world's clock; the returned task moves datagrams and must be spawned.
    pub(crate) fn start(&self, clock: VirtualClock) -> impl Future<Output = ()> + Send + use<> {
        self.lock().clock = Some(clock);
        Courier { world: self.clone(), clock, timer: None }
    }

    /// A host has this address, at the far segment or the last mile of this number.
    pub(crate) fn place(&self, address: SocketAddr, place: Place, links: usize) {
        self.lock().places.insert(address, (place, links));
    }

    /// Adds links like the shared ones, with losses of their own; their number.
    pub(crate) fn add_links(&self, scenario: &Scenario, seed: u64) -> usize {
        let links = &mut self.lock().links;
        let number = links.len();
        links.push(scenario.links(seed ^ ((number as u64) << 40)).map(AnyLink::new));
        number
    }

    /// The client at this address gets its datagrams through a shim.
    pub(crate) fn put_shim(&self, client: SocketAddr, shim: ShimNode) {
        self.lock().shims.insert(client, shim);
    }

    /// Clients with a shim are told this.
    pub(crate) fn ask(&self, oracle: Option<Oracle>) {
        self.lock().oracle = oracle;
    }

    /// The figures of a client's shim.
    pub(crate) fn shim_figures(&self, client: SocketAddr) -> Option<AssistStats> {
        self.lock().shims.get(&client).map(ShimNode::figures)
    }

    /// The client at this address is the one that is followed when tracing.
    pub(crate) fn follow(&self, client: SocketAddr) {
        let state = &mut *self.lock();
        state.traced = Some(client);
        if let (Some(gateway), Some(_)) = (&mut state.gateway, &state.trace) {
            gateway.observe(client);
        }
    }

    /// The links' counters so far, and those of this client's datagrams.
    pub(crate) fn counters(&self, client: SocketAddr) -> PathCounters {
        let state = self.lock();
        let shared = &state.links[0];
        PathCounters {
            far_down: shared.far_down.counters(),
            far_up: shared.far_up.counters(),
            last_mile_down: shared.last_mile_down.counters(),
            last_mile_up: shared.last_mile_up.counters(),
            client: state.clients.get(&client).copied().unwrap_or_default(),
        }
    }

    /// The events on the last mile and at the gateway, when tracing, and the datagrams sent to the
    /// client, in order.
    pub(crate) fn take_trace(&self) -> (Vec<TraceEvent>, Vec<Departure>) {
        let state = &mut *self.lock();
        let mut trace = state.trace.take().unwrap_or_default();
        trace.extend(state.gateway.iter_mut().flat_map(GatewayNode::take_trace));
        (trace, std::mem::take(&mut state.departures))
    }

    /// The gateway's counters and gauges of a client.
    pub(crate) fn gateway_figures(&self, client: SocketAddr) -> GatewayFigures {
        self.lock().gateway.as_ref().map(|gateway| gateway.figures(client)).unwrap_or_default()
    }
}

impl Network for World {
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

impl State {
    /// A host sends a packet.
    fn depart(&mut self, mut packet: Packet, now: Timestamp) {
        let place = |address: SocketAddr| self.places.get(&address).map(|(place, _)| *place);
        let from = place(SocketAddr::from(*packet.path.local_address));
        let to = place(SocketAddr::from(*packet.path.remote_address));
        let (Some(from), Some(to)) = (from, to) else { return };
        if let Some(shim) = self.shims.get_mut(&SocketAddr::from(*packet.path.local_address))
            && !shim.send(&mut packet, now)
        {
            return;
        }
        self.leave(packet, from, to, now);
    }

    /// A packet leaves its host.
    fn leave(&mut self, packet: Packet, from: Place, to: Place, now: Timestamp) {
        if from == Place::Client {
            let client =
                self.clients.entry(SocketAddr::from(*packet.path.local_address)).or_default();
            let awake = client.sent.is_some_and(|sent| now.saturating_since(sent) < AWAKE);
            client.wake_ups += u64::from(!awake);
            client.sent = Some(now);
        }
        if self.trace.is_some()
            && to == Place::Client
            && self.traced == Some(SocketAddr::from(*packet.path.remote_address))
        {
            self.departures.push(Departure::of(&packet.payload));
        }
        self.travel(packet, from, to, false, now);
    }

    /// One link in the direction of `to`.
    fn travel(
        &mut self,
        mut packet: Packet,
        from: Place,
        to: Place,
        originated: bool,
        now: Timestamp,
    ) {
        // Datagrams of cross traffic that came before go first.
        self.offer_cross_traffic(now);
        let (name, next) = match (from, to) {
            (Place::Server, Place::Gateway | Place::Client) => (LinkName::FarDown, Place::Gateway),
            (Place::Gateway, Place::Client) => (LinkName::LastMileDown, Place::Client),
            (Place::Client, Place::Gateway | Place::Server) => {
                (LinkName::LastMileUp, Place::Gateway)
            }
            (Place::Gateway, Place::Server) => (LinkName::FarUp, Place::Server),
            // Neighbours at the same place have no network between them here.
            (Place::Server, Place::Server)
            | (Place::Gateway, Place::Gateway)
            | (Place::Client, Place::Client) => return,
        };
        if !self.ecn {
            // The emulated path between real sockets does not carry ECN either.
            packet.ecn = NotEct;
        }
        let link = LinkId(self.links_of(&packet, name), name);
        let (length, flow) = (packet.payload.len(), flow(&packet));
        let ecn_capable = packet.ecn != NotEct;
        let crossing = Crossing { packet: Some(packet), from, to, next, originated, offered: now };
        self.link(link).offer(now, length, flow, ecn_capable, crossing);
        self.settle(link);
    }

    /// The number of the links that a packet takes: the server knows that of its far segment, the
    /// client that of its last mile.
    fn links_of(&self, packet: &Packet, name: LinkName) -> usize {
        let end = match name {
            LinkName::FarDown | LinkName::FarUp => Place::Server,
            LinkName::LastMileDown | LinkName::LastMileUp => Place::Client,
        };
        [*packet.path.local_address, *packet.path.remote_address]
            .into_iter()
            .filter_map(|address| self.places.get(&SocketAddr::from(address)))
            .find(|(place, _)| *place == end)
            .map_or(0, |(_, links)| *links)
    }

    fn link(&mut self, LinkId(number, name): LinkId) -> &mut AnyLink<Crossing> {
        name.of(&mut self.links[number])
    }

    /// Datagrams of a link whose fate is known.
    fn settle(&mut self, link: LinkId) {
        while let Some(Fate { datagram: crossing, verdict, marked }) = self.link(link).poll_fate() {
            self.end_crossing(crossing, verdict, marked);
        }
    }

    fn end_crossing(&mut self, crossing: Crossing, verdict: Verdict, marked: bool) {
        let Crossing { packet, from, to, next, originated, offered } = crossing;
        let Some(mut packet) = packet else { return };
        if marked {
            packet.ecn = Ce;
        }
        let client = match to {
            Place::Client => SocketAddr::from(*packet.path.remote_address),
            _ => SocketAddr::from(*packet.path.local_address),
        };
        let counters = self.clients.entry(client).or_default();
        let way = if to == Place::Client { &mut counters.down } else { &mut counters.up };
        way.lost += u64::from(verdict == Verdict::Lost);
        way.queue_dropped += u64::from(verdict == Verdict::QueueDropped);
        if next == Place::Client {
            counters.last_mile_bytes += packet.payload.len() as u64;
        }
        if let Some(trace) = &mut self.trace
            && self.traced == Some(client)
            && (from == Place::Client || next == Place::Client)
        {
            let is_numbered = number::split(&packet.payload).is_some();
            let is_control = is_control(&packet.payload) && !is_numbered;
            let kind = match (is_control, originated) {
                (true, _) => DatagramKind::Control,
                (false, true) => DatagramKind::Repair,
                (false, false) => DatagramKind::Base,
            };
            let arrives = match verdict {
                Verdict::Deliver { at } => Some(at.as_secs_f64()),
                _ => None,
            };
            trace.push(TraceEvent::LastMile {
                at: offered.as_secs_f64(),
                down: next == Place::Client,
                kind,
                bytes: packet.payload.len(),
                lost: arrives.is_none(),
                arrives,
                number: None,
                cache_bytes: self.gateway.as_ref().map(|gateway| gateway.cache_bytes(client)),
                identity: trace::identity(&packet.payload),
            });
        }
        if let Verdict::Deliver { at } = verdict {
            if next == Place::Client {
                self.expected.insert(client, at);
            }
            self.expect(packet, next, at, false);
        } else if next == Place::Client && !originated {
            self.tell(packet, client, verdict);
        }
    }

    /// The last mile has lost a datagram of the base connection, and may tell its client.
    fn tell(&mut self, packet: Packet, client: SocketAddr, verdict: Verdict) {
        let Some(oracle) = self.oracle.filter(|_| self.shims.contains_key(&client)) else { return };
        let Some(at) = self.expected.get(&client).copied() else { return };
        let (at, told) = match verdict {
            Verdict::QueueDropped if oracle.classifies() => (at, Told::Shown),
            Verdict::Lost if oracle.repairs() => (at + RECOVERY, Told::Recovered),
            _ => return,
        };
        self.under_way.plan(at, UnderWay { to: Place::Client, packet, read: true, told });
    }

    /// A datagram comes at `at`.
    fn expect(&mut self, packet: Packet, to: Place, at: Timestamp, read: bool) {
        self.under_way.plan(at, UnderWay { to, packet, read, told: Told::Arrives });
    }

    /// A host reads these datagrams, as fast as it can.
    fn read(&mut self, batch: Batch<Packet>) {
        let Batch { host, place, datagrams, now } = batch;
        for packet in datagrams {
            let at = self.batching.work(place, host, now);
            self.expect(packet, place, at, true);
        }
    }

    /// Everything that is due.
    fn advance(&mut self, now: Timestamp) {
        let mut originated = Vec::new();
        loop {
            self.serve_shims(now);
            let arrival = self.under_way.next_at().filter(|at| *at <= now);
            let timeout =
                self.gateway.as_ref().and_then(GatewayNode::next_timeout).filter(|at| *at <= now);
            let service = self.next_service().filter(|(at, _)| *at <= now);
            if let Some((at, link)) = service
                && [arrival, timeout].into_iter().flatten().all(|other| at <= other)
            {
                self.offer_cross_traffic(at);
                self.link(link).handle_timeout(at);
                self.settle(link);
            } else if let Some(batch) = self.batching.due(now, arrival.or(timeout)) {
                self.read(batch);
            } else if timeout.is_some_and(|timeout| arrival.is_none_or(|arrival| timeout < arrival))
            {
                if let Some(gateway) = &mut self.gateway {
                    gateway.handle_timeout(now, &mut originated);
                }
            } else if arrival.is_some() {
                let Some((at, UnderWay { to, packet, read, told })) = self.under_way.pop() else {
                    return;
                };
                if !read && self.batching.has(to) {
                    let host = SocketAddr::from(*packet.path.remote_address);
                    if let Some(batch) = self.batching.add(to, host, at, packet) {
                        self.read(batch);
                    }
                } else {
                    self.arrive(packet, to, told, now, &mut originated);
                }
            } else {
                return;
            }
            for Originated { client, server, to_server, bytes } in originated.drain(..) {
                let [client, server] = [client, server].map(SocketAddress::from);
                let (local, remote, to) = match to_server {
                    None => (server, client, Place::Client),
                    Some(_) => (client, server, Place::Server),
                };
                let path = Tuple { local_address: local.into(), remote_address: remote.into() };
                let ecn = to_server.map_or(NotEct, ExplicitCongestionNotification::new);
                let packet = Packet { path, ecn, payload: bytes };
                self.travel(packet, Place::Gateway, to, to_server.is_none(), now);
            }
        }
    }

    fn arrive(
        &mut self,
        mut packet: Packet,
        at: Place,
        told: Told,
        now: Timestamp,
        originated: &mut Vec<Originated>,
    ) {
        let sender = SocketAddr::from(*packet.path.local_address);
        let receiver = SocketAddr::from(*packet.path.remote_address);
        let Some((destination, _)) = self.places.get(&receiver).copied() else { return };
        if destination == at {
            packet.switch();
            match self.shims.get_mut(&receiver) {
                Some(shim) => shim.receive(packet, told, now),
                None => self.deliver(packet),
            }
            return;
        }
        if self.gateway.is_some()
            && let Some(bundle) = bundle::split(&packet.payload)
        {
            let Packet { path, ecn, .. } = packet;
            let inside = bundle.datagrams().chain([bundle.message]);
            for part in inside.filter(|part| !part.is_empty()) {
                let part = Packet { path, ecn, payload: part.to_vec() };
                self.arrive(part, at, told, now, originated);
            }
            return;
        }
        if let Some(gateway) = &mut self.gateway {
            match destination {
                Place::Client => {
                    if let Some(number) = gateway.forward(receiver, &packet.payload, now) {
                        drop(packet.payload.splice(..0, number));
                    }
                }
                _ if gateway.receive_upward(
                    sender,
                    &packet.payload,
                    packet.ecn as u8,
                    now,
                    originated,
                ) =>
                {
                    return;
                }
                _ if is_control(&packet.payload) => {
                    gateway.control(sender, receiver, &packet.payload, now, originated);
                    return;
                }
                _ => gateway.note_upward(sender),
            }
        }
        self.travel(packet, at, destination, false, now);
    }

    /// A packet reaches its host; its path is the host's.
    fn deliver(&self, packet: Packet) {
        let host = *packet.path.local_address;
        if let Some(buffers) = &self.buffers {
            buffers.rx(host, |queue| queue.enqueue(packet));
        }
    }

    /// Takes from the shims their datagrams for the clients and for the gateway.
    fn serve_shims(&mut self, now: Timestamp) {
        let mut deliveries = Vec::new();
        for shim in self.shims.values_mut() {
            shim.serve(now, &mut deliveries);
        }
        for delivery in deliveries {
            match delivery {
                Delivery::ToClient(packet) => self.deliver(packet),
                Delivery::ToGateway(packet) => {
                    self.leave(packet, Place::Client, Place::Server, now);
                }
            }
        }
    }

    /// The traffic of others until `now` goes into the links' queues; where it goes then does not
    /// matter.
    fn offer_cross_traffic(&mut self, now: Timestamp) {
        let links = [LinkName::FarDown, LinkName::LastMileDown];
        for (index, link) in links.into_iter().enumerate() {
            while let Some(traffic) = &mut self.cross_traffic[index]
                && traffic.next_at() <= now
            {
                let (at, length) = (traffic.next_at(), traffic.take());
                let crossing = Crossing {
                    packet: None,
                    from: Place::Gateway,
                    to: Place::Client,
                    next: Place::Client,
                    originated: false,
                    offered: at,
                };
                let link = LinkId(0, link);
                self.link(link).offer(at, length, CROSS_TRAFFIC, false, crossing);
                self.settle(link);
            }
        }
    }

    /// The time at which a link's transmitter takes its next datagram, and that link.
    fn next_service(&mut self) -> Option<(Timestamp, LinkId)> {
        let service = |(number, links): (usize, &mut Links<AnyLink<Crossing>>)| {
            LinkName::ALL
                .into_iter()
                .filter_map(|name| Some((name.of(links).next_timeout()?, LinkId(number, name))))
                .min()
        };
        self.links.iter_mut().enumerate().filter_map(service).min()
    }

    fn next_due(&mut self) -> Option<Timestamp> {
        let arrival = self.under_way.next_at();
        let timeout = self.gateway.as_ref().and_then(GatewayNode::next_timeout);
        let service = self.next_service().map(|(at, _)| at);
        let shim = self.shims.values().filter_map(ShimNode::next_timeout).min();
        let batch = self.batching.next_timeout();
        [arrival, timeout, service, batch, shim].into_iter().flatten().min()
    }

    fn wake_courier(&mut self) {
        let due = self.next_due();
        if due.is_some_and(|due| self.armed.is_none_or(|armed| due < armed))
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }
}

/// Moves the datagrams that are due, for as long as the trial lasts.
struct Courier {
    world: World,
    clock: VirtualClock,
    timer: Option<s2n_quic::provider::io::testing::time::Timer>,
}

impl Future for Courier {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let world = this.world.clone();
        let state = &mut *world.lock();
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
