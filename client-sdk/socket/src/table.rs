//! The table of flows, sans-IO: which address belongs to which flow, and when each is due.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use packrat_client::{
    Access, ClientConfig, Condition, Counters, Input, LossMemory, NumberHeader, Shim, Timestamp,
};
use quinn_udp::EcnCodepoint;

use crate::batch::Mark;
use crate::flow::{Flow, Outlet, Size};

/// Limits of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Simultaneous flows. A program that would begin another one replaces the idlest, or is not
    /// served if all have been used recently.
    pub flows: usize,
    /// Simultaneous flows of one address, or of one /64 of IPv6, except for programs at a loopback
    /// address. A further flow replaces one of the same source, so that it cannot displace others.
    pub source_flows: usize,
    /// Time without a datagram after which a flow ends.
    pub idle: Duration,
    /// Bytes that may wait for repairs in one flow; above this limit, the first of them pass.
    pub flow_bytes: usize,
    /// Memory of all flows together, in bytes: waiting datagrams, and records of past ones. Above
    /// this limit, the idlest flows drop their records; if that is not enough, a flow's waiting
    /// datagrams are released.
    pub total_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            flows: 10_000,
            source_flows: 10_000,
            // RFC 4787, requirement 5, recommends five minutes to NATs.
            idle: Duration::from_secs(300),
            flow_bytes: 4 << 20,
            total_bytes: 256 << 20,
        }
    }
}

/// The name of a flow; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

/// Time without a datagram after which a flow may be replaced by another one: longer than the
/// pauses of a game, a call or a download.
const EVICTED_AFTER: Duration = Duration::from_secs(10);

/// Time without a datagram after which a flow returns the memory of past ones: longer than any
/// repair takes.
const TRIMMED_AFTER: Duration = Duration::from_secs(10);

/// A flow's figures.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FlowFigures {
    /// Far ends of the flow.
    pub peer: Peer,
    /// Condition of the flow.
    pub condition: Condition,
    /// Time since the last datagram.
    pub idle: Duration,
    /// Round trip to the gateway, as measured.
    pub round_trip: Option<Duration>,
    /// Counters of the flow.
    pub counters: Counters,
}

/// The far ends of a flow, which no other flow has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The number of the service.
    pub service: usize,
    /// The address of a program's socket, or of the peer that a socket sends to.
    pub address: SocketAddr,
    /// The number of the association through which the program sends, and the destination, if a
    /// program chooses that itself.
    pub through: Option<(usize, SocketAddr)>,
}

/// Flows of a source to examine for an unused one, if the source has its share.
const EXAMINED_FLOWS: usize = 16;

/// The source of an address: the address itself for IPv4, the /64 for IPv6, since a machine may
/// have all of it. `None`: a program of this host.
pub fn source_of(address: IpAddr) -> Option<IpAddr> {
    match address.to_canonical() {
        ip if ip.is_loopback() => None,
        IpAddr::V6(ip) => {
            let network = ip.to_bits() & !u128::from(u64::MAX);
            Some(Ipv6Addr::from_bits(network).into())
        }
        ip => Some(ip),
    }
}

/// The source of a peer's flows.
fn source(peer: &Peer) -> Option<IpAddr> {
    source_of(peer.address.ip())
}

/// The flows of one source.
#[derive(Debug, Default)]
struct OfSource {
    count: usize,
    /// Flows in the order in which they were last examined or begun, each with its last use at that
    /// time; ended flows may be among them.
    flows: VecDeque<(FlowId, Timestamp)>,
}

/// The flows of a shell, each of a service (settings) and an address: a program's at an agent, the
/// peer's at a socket. `M` belongs to an arriving datagram and passes through untouched, such as
/// its ECN mark.
///
/// A program's first datagram begins a flow: [`Self::room_for`] and [`Self::evict`] make room,
/// [`Self::begin`], [`Self::serve`]. When [`Self::next_timeout`] has come, call [`Self::next_due`]
/// and [`Self::handle_timeout`] until nothing is due.
pub struct Table<M> {
    limits: Limits,
    configs: Vec<ClientConfig>,
    flows: HashMap<FlowId, Flow<M>>,
    by_peer: HashMap<Peer, FlowId>,
    by_source: HashMap<IpAddr, OfSource>,
    deadlines: BTreeSet<(Timestamp, FlowId)>,
    /// Size of all flows.
    size: Size,
    next: u64,
    /// Before then no flow has been idle for long enough to be evicted.
    none_idle_before: Timestamp,
    refused: Vec<u64>,
    evicted: Vec<u64>,
    ended: Vec<Counters>,
    memory: LossMemory<LastMile>,
}

/// Key of a last mile: the service, and the address of the peer or of the destination.
type LastMile = (usize, IpAddr);

fn last_mile(peer: &Peer) -> LastMile {
    let address = peer.through.map_or(peer.address, |(_, destination)| destination);
    (peer.service, address.ip().to_canonical())
}

impl<M: Clone> Table<M> {
    /// A table for as many services as there are configurations.
    pub fn new(configs: Vec<ClientConfig>, limits: Limits) -> Self {
        Self {
            limits,
            none_idle_before: Timestamp::ZERO,
            refused: vec![0; configs.len()],
            evicted: vec![0; configs.len()],
            ended: vec![Counters::default(); configs.len()],
            configs,
            flows: HashMap::new(),
            by_peer: HashMap::new(),
            by_source: HashMap::new(),
            deadlines: BTreeSet::new(),
            size: Size::default(),
            next: 0,
            memory: LossMemory::default(),
        }
    }

    /// The flow that a peer has.
    pub fn find(&self, peer: Peer) -> Option<FlowId> {
        self.by_peer.get(&peer).copied()
    }

    /// Begins the flow of a peer that has none. `seed`: 32 fresh random bytes. Returns `None` if
    /// the limit of flows is reached, the service is unknown, or there is no seed.
    pub fn begin(&mut self, peer: Peer, now: Timestamp, seed: Option<[u8; 32]>) -> Option<FlowId> {
        let config = self.configs.get(peer.service).filter(|_| !self.is_full());
        let Some((config, seed)) = config.cloned().zip(seed) else {
            self.count_refused(peer.service, 1);
            return None;
        };
        let id = FlowId(self.next);
        self.next += 1;
        let mut shim = Shim::new(config, seed, now);
        shim.remember(self.memory.recall(last_mile(&peer), now));
        let flow = Flow::new(peer, shim, now);
        self.flows.insert(id, flow);
        self.by_peer.insert(peer, id);
        if let Some(source) = source(&peer) {
            let own = self.by_source.entry(source).or_default();
            own.count += 1;
            own.flows.push_back((id, now));
            if own.flows.len() > 2 * own.count + EXAMINED_FLOWS {
                own.flows.retain(|(id, _)| self.flows.contains_key(id));
            }
        }
        Some(id)
    }

    /// The flow to evict before a flow of this peer can begin: one of the same source, if the
    /// source has its share; the idlest of all, if the limit of flows is reached. `None`: there is
    /// room, or every flow has been used recently.
    pub fn room_for(&mut self, peer: Peer, now: Timestamp) -> Option<FlowId> {
        self.of_its_own(&peer).or_else(|| self.idlest(now))
    }

    /// A flow of a source that has its share: the first one without use since it was last examined,
    /// or one of the longest-lived.
    fn of_its_own(&mut self, peer: &Peer) -> Option<FlowId> {
        let own = self.by_source.get_mut(&source(peer)?)?;
        if own.count < self.limits.source_flows {
            return None;
        }
        let mut looked_at = 0;
        while let Some((id, seen)) = own.flows.pop_front() {
            let Some(flow) = self.flows.get(&id) else { continue };
            looked_at += 1;
            if flow.last_active <= seen || looked_at > EXAMINED_FLOWS {
                own.flows.push_front((id, seen));
                return Some(id);
            }
            own.flows.push_back((id, flow.last_active));
        }
        None
    }

    fn is_full(&self) -> bool {
        self.flows.len() >= self.limits.flows
    }

    /// The flow to evict before another one can begin, of any source: the idlest. `None`: there is
    /// room, or every flow has been used recently.
    pub fn idlest(&mut self, now: Timestamp) -> Option<FlowId> {
        if self.is_full() { self.longest_idle(now) } else { None }
    }

    /// The longest idle flow, whether or not the table is full: for a shell that has no more room
    /// itself.
    pub fn longest_idle(&mut self, now: Timestamp) -> Option<FlowId> {
        if now < self.none_idle_before {
            return None;
        }
        let (id, flow) = self.flows.iter().min_by_key(|(id, flow)| (flow.last_active, **id))?;
        let from = flow.last_active + EVICTED_AFTER;
        if now < from {
            // Until then a flood of new programs need not look through all flows each time.
            self.none_idle_before = from;
            return None;
        }
        Some(*id)
    }

    /// Ends a flow to make room: notifies the gateway, and releases the waiting datagrams.
    pub fn evict(&mut self, id: FlowId, now: Timestamp, outlet: &mut impl Outlet<M>) {
        if let Some(flow) = self.flows.get(&id)
            && let Some(evicted) = self.evicted.get_mut(flow.peer.service)
        {
            *evicted += 1;
        }
        self.close(id, now, outlet);
    }

    /// Datagrams of a program that are not served.
    pub fn count_refused(&mut self, service: usize, datagrams: u64) {
        if let Some(refused) = self.refused.get_mut(service) {
            *refused += datagrams;
        }
    }

    /// True if uploads are repaired in a service's new flows: [`ClientConfig::with_uploads`].
    pub fn repairs_uploads(&self, service: usize) -> bool {
        self.configs.get(service).is_some_and(|config| config.uploads)
    }

    /// True if the program's datagrams in a flow have had this ECN mark so far, as it is sent again.
    pub fn has_mark(&self, id: FlowId, mark: Mark) -> bool {
        self.flows.get(&id).is_some_and(|flow| flow.has_mark(mark))
    }

    /// Sets the ECN mark of the program's next datagrams in a flow. Waiting datagrams leave before,
    /// with their own mark. Call [`Self::serve`] afterwards.
    pub fn set_mark(
        &mut self,
        id: FlowId,
        mark: Mark,
        now: Timestamp,
        outlet: &mut impl Outlet<M>,
    ) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.set_mark(mark, now, outlet);
        }
    }

    /// Called when the program sends a datagram in a flow. Returns the number to put in front of
    /// it; `None` without [`ClientConfig::with_uploads`], or without a gateway that agrees. Also
    /// call it for datagrams that cannot carry a number: they are copied if the last mile is known
    /// to be lossy. If the datagram then does not leave, it counts as lost on the path.
    pub fn on_send(&mut self, id: FlowId, datagram: &[u8], now: Timestamp) -> Option<NumberHeader> {
        let header = self.flows.get_mut(&id)?.on_send(datagram, now);
        // The last datagram may have to be sent again.
        self.arm(id);
        header
    }

    /// Takes a datagram of the program that can leave together with others, as
    /// [`Shim::bundle`](packrat_client::Shim::bundle) does; the flow then sends it. Call it before
    /// [`Self::on_send`], and [`Self::serve`] afterwards. One whose mark reports congestion leaves
    /// alone: others bear the flow's mark.
    pub fn bundle(&mut self, id: FlowId, datagram: &[u8], mark: Mark, now: Timestamp) -> bool {
        let flow = self.flows.get_mut(&id).filter(|_| mark != Some(EcnCodepoint::Ce));
        let is_taken = flow.is_some_and(|flow| flow.bundle(datagram, now));
        if is_taken {
            self.arm(id);
        }
        is_taken
    }

    /// Called when the link refuses a datagram of this length (without its number) because of the
    /// number of [`Self::on_send`]; the caller sends it as it is.
    pub fn on_refused(&mut self, id: FlowId, length: usize, now: Timestamp) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.shim.handle(Input::NumberRefused { length }, now);
        }
    }

    /// Counts datagrams and bytes that the program has sent in a flow.
    pub fn on_sent(&mut self, id: FlowId, datagrams: u64, bytes: u64, now: Timestamp) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.on_sent(datagrams, bytes, now);
        }
    }

    /// True if a flow takes numbers off datagrams: its gateway has agreed to them.
    pub fn knows_numbers(&mut self, id: FlowId) -> bool {
        self.flows.get_mut(&id).is_some_and(|flow| flow.shim.knows_numbers())
    }

    /// Called when datagrams have arrived from upstream, in this order. Call [`Self::serve`]
    /// afterwards.
    pub fn on_received<'a>(
        &mut self,
        id: FlowId,
        datagrams: impl IntoIterator<Item = (&'a [u8], M)>,
        now: Timestamp,
        outlet: &mut impl Outlet<M>,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        for (datagram, metadata) in datagrams {
            flow.on_received(datagram, metadata, now, outlet);
        }
    }

    /// Releases the ready datagrams, and records the flow's next deadline.
    pub fn serve(&mut self, id: FlowId, now: Timestamp, outlet: &mut impl Outlet<M>) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.drain(now, outlet);
        flow.report();
        flow.count(&mut self.size);
        if flow.size.waiting > self.limits.flow_bytes {
            flow.shim.handle(Input::Crowded { most: self.limits.flow_bytes }, now);
            flow.drain(now, outlet);
            flow.count(&mut self.size);
        }
        if self.size.memory > self.limits.total_bytes
            && !self.forget_idlest(now)
            && let Some(flow) = self.flows.get_mut(&id)
        {
            flow.shim.handle(Input::Crowded { most: 0 }, now);
            flow.drain(now, outlet);
            flow.count(&mut self.size);
        }
        self.arm(id);
    }

    /// Drops records of past datagrams, of the idlest flows first, until an eighth of the room is
    /// free again. Returns false if that does not suffice.
    fn forget_idlest(&mut self, now: Timestamp) -> bool {
        let enough = self.limits.total_bytes / 8 * 7;
        let remembers = |flow: &Flow<M>| flow.size.memory > flow.size.waiting;
        let flows = self.flows.iter().filter(|(_, flow)| remembers(flow));
        let mut flows: Vec<_> = flows.map(|(id, flow)| (flow.last_active, *id)).collect();
        flows.sort_unstable();
        for (_, id) in flows {
            if self.size.memory <= enough {
                break;
            }
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.shim.handle(Input::Idle, now);
                flow.count(&mut self.size);
            }
        }
        self.size.memory <= enough
    }

    /// Notes when the flow is due next.
    fn arm(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let end = flow.last_active + self.limits.idle;
        let trim = (!flow.is_trimmed).then_some(flow.last_active + TRIMMED_AFTER);
        let due = [flow.shim.next_timeout(), trim].into_iter().flatten().fold(end, Timestamp::min);
        // A deadline that moves to a later time is re-examined at the earlier one.
        if flow.armed.is_none_or(|armed| due < armed) {
            if let Some(armed) = flow.armed.replace(due) {
                self.deadlines.remove(&(armed, id));
            }
            self.deadlines.insert((due, id));
        }
    }

    /// Time at which [`Self::next_due`] returns a flow.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A flow that is due: call [`Self::handle_timeout`].
    pub fn next_due(&mut self, now: Timestamp) -> Option<FlowId> {
        let (at, id) = *self.deadlines.first().filter(|(at, _)| *at <= now)?;
        self.deadlines.remove(&(at, id));
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.armed = None;
        }
        Some(id)
    }

    /// Runs a flow's timers that are due. Returns true if the flow is over, and forgotten.
    pub fn handle_timeout(
        &mut self,
        id: FlowId,
        now: Timestamp,
        outlet: &mut impl Outlet<M>,
    ) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else { return true };
        if now >= flow.last_active + self.limits.idle {
            self.close(id, now, outlet);
            return true;
        }
        if !flow.is_trimmed && now >= flow.last_active + TRIMMED_AFTER {
            flow.shim.handle(Input::Idle, now);
            flow.is_trimmed = true;
        }
        flow.shim.handle(Input::Timeout, now);
        self.serve(id, now, outlet);
        false
    }

    /// Reports that the network has changed: call it before a datagram is sent from there.
    pub fn on_network_change(&mut self, id: FlowId, now: Timestamp, outlet: &mut impl Outlet<M>) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.shim.handle(Input::NetworkChange, now);
        }
        self.serve(id, now, outlet);
    }

    /// Sets the access of a service's new flows. Existing flows get gateway key and token from
    /// [`Self::give_access`].
    pub fn set_access(&mut self, service: usize, access: Access) {
        if let Some(config) = self.configs.get_mut(service) {
            config.access = access;
        }
    }

    /// Gives a flow its service's gateway key and token: a session with another gateway ends.
    pub fn give_access(&mut self, id: FlowId, now: Timestamp, outlet: &mut impl Outlet<M>) {
        if let Some(flow) = self.flows.get_mut(&id)
            && let Some(config) = self.configs.get(flow.peer.service)
        {
            let Access { gateway_key, ref token, .. } = config.access;
            flow.shim.handle(Input::Access { gateway_key, token }, now);
        }
        self.serve(id, now, outlet);
    }

    /// Ends a flow: notifies the gateway, and releases the waiting datagrams.
    pub fn close(&mut self, id: FlowId, now: Timestamp, outlet: &mut impl Outlet<M>) {
        let Some(mut flow) = self.flows.remove(&id) else { return };
        flow.shim.handle(Input::Close, now);
        flow.drain(now, outlet);
        self.memory.note(last_mile(&flow.peer), flow.shim.experience(), now);
        self.forget(id, &mut flow);
    }

    /// Takes back a flow that could not be given an upstream socket.
    pub fn refuse(&mut self, id: FlowId) {
        let Some(mut flow) = self.flows.remove(&id) else { return };
        self.count_refused(flow.peer.service, 1);
        self.forget(id, &mut flow);
    }

    fn forget(&mut self, id: FlowId, flow: &mut Flow<M>) {
        self.by_peer.remove(&flow.peer);
        if let Some(source) = source(&flow.peer)
            && let Some(own) = self.by_source.get_mut(&source)
        {
            own.count = own.count.saturating_sub(1);
            if own.count == 0 {
                self.by_source.remove(&source);
            }
        }
        if let Some(armed) = flow.armed {
            self.deadlines.remove(&(armed, id));
        }
        self.size.waiting -= flow.size.waiting;
        self.size.memory -= flow.size.memory;
        if let Some(ended) = self.ended.get_mut(flow.peer.service) {
            ended.add(&flow.shim.counters());
        }
    }

    /// The peer of a flow.
    pub fn peer(&self, id: FlowId) -> Option<Peer> {
        self.flows.get(&id).map(|flow| flow.peer)
    }

    /// The flows of a service.
    pub fn flows_of(&self, service: usize) -> Vec<FlowId> {
        let of_service = self.flows.iter().filter(|(_, flow)| flow.peer.service == service);
        of_service.map(|(id, _)| *id).collect()
    }

    /// The flows of an association of a service.
    pub fn flows_through(&self, service: usize, association: usize) -> Vec<FlowId> {
        let is_through = |peer: &Peer| {
            peer.service == service && peer.through.is_some_and(|(own, _)| own == association)
        };
        let flows = self.flows.iter().filter(|(_, flow)| is_through(&flow.peer));
        flows.map(|(id, _)| *id).collect()
    }

    /// Flows that there are.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// True without flows.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Bytes that wait for repairs in all flows.
    pub fn waiting_bytes(&self) -> usize {
        self.size.waiting
    }

    /// Waiting bytes, and bytes of the flows' records of past datagrams.
    pub fn memory(&self) -> usize {
        self.size.memory
    }

    /// Datagrams of programs that were not served, of a service.
    pub fn refused(&self, service: usize) -> u64 {
        self.refused.get(service).copied().unwrap_or_default()
    }

    /// Flows of a service that were evicted.
    pub fn evicted(&self, service: usize) -> u64 {
        self.evicted.get(service).copied().unwrap_or_default()
    }

    /// The sums of a service's flows, including ended ones, and the number of flows in each
    /// condition.
    pub fn sums(&mut self, service: usize) -> (Counters, BTreeMap<Condition, u64>) {
        let mut sum = self.ended.get(service).copied().unwrap_or_default();
        let mut conditions = BTreeMap::new();
        for flow in self.flows.values_mut().filter(|flow| flow.peer.service == service) {
            sum.add(&flow.shim.counters());
            *conditions.entry(flow.shim.condition()).or_default() += 1;
        }
        (sum, conditions)
    }

    /// At most `limit` flows, with the largest traffic first.
    pub fn busiest(&mut self, limit: usize, now: Timestamp) -> Vec<FlowFigures> {
        let mut all: Vec<&mut Flow<M>> = self.flows.values_mut().collect();
        all.sort_by_key(|flow| std::cmp::Reverse(flow.shim.carried_bytes()));
        all.truncate(limit);
        all.into_iter().map(|flow| flow.figures(now)).collect()
    }

    /// The figures of one flow.
    pub fn figures(&mut self, id: FlowId, now: Timestamp) -> Option<FlowFigures> {
        self.flows.get_mut(&id).map(|flow| flow.figures(now))
    }
}
