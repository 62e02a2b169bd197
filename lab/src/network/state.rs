//! The movement of datagrams between the places of the network.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::task::Waker;

use packrat_emulation::path::{Fate, Verdict};
use packrat_emulation::scenario::Scenario;
use packrat_emulation::schedule::Schedule;
use packrat_wire::estimate::Timestamp;
use packrat_wire::{bundle, is_control};
use s2n_quic::provider::io::testing::network::{Buffers, Packet};
use s2n_quic_core::inet::ExplicitCongestionNotification::{self, Ce, NotEct};
use s2n_quic_core::inet::SocketAddress;
use s2n_quic_core::path::Tuple;

use super::batching::{Batch, Batching};
use super::gateway::{GatewayNode, Originated};
use super::links::{Crossing, LinkId, LinkName, LinkSet};
use super::oracle::{Oracle, Order, RECOVERY_DELAY, Told};
use super::place::Place;
use super::record::Record;
use super::shim::{Delivery, ShimNode};
use crate::simulation::clock::VirtualClock;

/// A datagram on a link, or in a host.
#[derive(Debug)]
struct UnderWay {
    to: Place,
    packet: Packet,
    /// True if the host at `to` has read it.
    read: bool,
    told: Told,
}

/// The hosts, the links between them, and the packets in flight.
pub(super) struct NetworkState {
    pub(super) clock: Option<VirtualClock>,
    pub(super) buffers: Option<Buffers>,
    pub(super) places: BTreeMap<SocketAddr, (Place, usize)>,
    pub(super) links: LinkSet,
    batching: Batching,
    /// True if links carry the ECN field.
    ecn: bool,
    pub(super) gateway: Option<GatewayNode>,
    pub(super) shims: BTreeMap<SocketAddr, ShimNode>,
    /// Knowledge of clients with a shim, and the packets to each client.
    pub(super) oracle: Option<Oracle>,
    towards: BTreeMap<SocketAddr, Order<(Packet, Told)>>,
    under_way: Schedule<UnderWay>,
    /// Wakes the task; when it will wake by itself.
    pub(super) waker: Option<Waker>,
    pub(super) armed: Option<Timestamp>,
    pub(super) record: Record,
}

impl NetworkState {
    pub(super) fn new(
        scenario: &Scenario,
        seed: u64,
        gateway: Option<GatewayNode>,
        tracing: bool,
    ) -> Self {
        Self {
            clock: None,
            buffers: None,
            places: BTreeMap::new(),
            links: LinkSet::new(scenario, seed),
            batching: Batching::new(scenario.batching),
            ecn: scenario.ecn,
            gateway,
            shims: BTreeMap::new(),
            oracle: None,
            towards: BTreeMap::new(),
            under_way: Schedule::new(),
            waker: None,
            armed: None,
            record: Record::new(tracing),
        }
    }

    /// A host sends a packet.
    pub(super) fn depart(&mut self, mut packet: Packet, now: Timestamp) {
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
        self.record.on_departure(&packet, from, to, now);
        self.travel(packet, from, to, false, now);
    }

    /// Sends a packet over a link in the direction of `to`.
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
        let client = SocketAddr::from(*packet.path.remote_address);
        let is_told = self.oracle.is_some() && next == Place::Client;
        let order = is_told.then(|| self.towards.entry(client).or_default().offer());
        let packet = Some(packet);
        let crossing = Crossing { packet, from, to, next, originated, offered: now, order };
        self.links.offer(link, crossing);
        self.settle(link);
    }

    /// The number of the links that a packet takes: the server knows its far segment's, the client
    /// its last mile's.
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

    /// Datagrams of a link whose fate is known.
    fn settle(&mut self, link: LinkId) {
        while let Some(Fate { datagram: crossing, verdict, marked }) = self.links.poll_fate(link) {
            self.end_crossing(crossing, verdict, marked);
        }
    }

    fn end_crossing(&mut self, mut crossing: Crossing, verdict: Verdict, marked: bool) {
        let Some(mut packet) = crossing.packet.take() else { return };
        if marked {
            packet.ecn = Ce;
        }
        let client = match crossing.to {
            Place::Client => SocketAddr::from(*packet.path.remote_address),
            _ => SocketAddr::from(*packet.path.local_address),
        };
        self.record.on_fate(client, &packet, &crossing, verdict, self.gateway.as_ref());
        let Crossing { next, order, originated, .. } = crossing;
        if let Verdict::Deliver { at } = verdict {
            if let Some(order) = order {
                self.towards.entry(client).or_default().on_arrival(order, at);
            }
            self.expect(packet, next, at, false);
        } else if let Some(order) = order {
            let is_told = !originated && self.shims.contains_key(&client);
            let told = self.told(verdict).filter(|_| is_told).map(|told| (packet, told));
            self.towards.entry(client).or_default().on_loss(order, told);
        }
        if order.is_some() {
            self.tell(client);
        }
    }

    /// Plans the losses of which this client hears now.
    fn tell(&mut self, client: SocketAddr) {
        while let Some((at, (packet, told))) =
            self.towards.get_mut(&client).and_then(Order::next_told)
        {
            let at = if told == Told::Recovered { at + RECOVERY_DELAY } else { at };
            self.under_way.plan(at, UnderWay { to: Place::Client, packet, read: true, told });
        }
    }

    /// The oracle's answer about a datagram of the base connection that the last mile has lost.
    fn told(&self, verdict: Verdict) -> Option<Told> {
        let oracle = self.oracle?;
        match verdict {
            Verdict::QueueDropped if oracle.classifies() => Some(Told::Shown),
            Verdict::Lost if oracle.repairs() => Some(Told::Recovered),
            _ => None,
        }
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
    pub(super) fn advance(&mut self, now: Timestamp) {
        let mut originated = Vec::new();
        loop {
            self.serve_shims(now);
            let arrival = self.under_way.next_at().filter(|at| *at <= now);
            let timeout =
                self.gateway.as_ref().and_then(GatewayNode::next_timeout).filter(|at| *at <= now);
            let service = self.links.next_service().filter(|(at, _)| *at <= now);
            if let Some((at, link)) = service
                && [arrival, timeout].into_iter().flatten().all(|other| at <= other)
            {
                self.offer_cross_traffic(at);
                self.links.serve(link, at);
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
                _ => gateway.note_upward(sender, now),
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

    /// The traffic of others until `now` goes into the links' queues.
    fn offer_cross_traffic(&mut self, now: Timestamp) {
        while let Some(link) = self.links.offer_cross_traffic(now) {
            self.settle(link);
        }
    }

    pub(super) fn next_due(&mut self) -> Option<Timestamp> {
        let arrival = self.under_way.next_at();
        let timeout = self.gateway.as_ref().and_then(GatewayNode::next_timeout);
        let service = self.links.next_service().map(|(at, _)| at);
        let shim = self.shims.values().filter_map(ShimNode::next_timeout).min();
        let batch = self.batching.next_timeout();
        [arrival, timeout, service, batch, shim].into_iter().flatten().min()
    }

    pub(super) fn wake_courier(&mut self) {
        let due = self.next_due();
        if due.is_some_and(|due| self.armed.is_none_or(|armed| due < armed))
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }
}
