//! The flows of one socket, by the peer's address.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use packrat_client::{
    Access, Condition, Counters, NumberHeader, SourceAddress, Timestamp, base_of,
};

use crate::batch::Mark;
use crate::config::SocketConfig;
use crate::flow::Outlet;
use crate::source::same_peer;
use crate::table::{FlowFigures, FlowId, Limits, Peer, Table};

/// Service of all flows of a socket.
const ONLY_SERVICE: usize = 0;

/// Time for which the gateway of a peer without a flow may still number, if the goodbye is lost:
/// longer than the idle timeout of sessions.
const NUMBERING_TIME: Duration = Duration::from_secs(180);
/// Most former peers that are known.
const FORMER_PEERS: usize = 10_000;

/// The socket, and the program that reads it.
pub trait Wire<M> {
    /// A datagram of the peer's for the program.
    fn deliver(&mut self, peer: SocketAddr, datagram: &[u8], metadata: M);
    /// Sends a control datagram to the peer from the program's own socket, without waiting. One that
    /// could not be sent is lost, as any datagram may be.
    fn transmit(&mut self, peer: SocketAddr, control: &[u8]);
    /// A datagram of the program's own again, as [`Outlet::repeat`].
    fn repeat(&mut self, peer: SocketAddr, datagram: &[u8], _: Mark) {
        self.transmit(peer, datagram);
    }
    /// The address that a datagram to the peer would leave from now, if the host can find out.
    fn source(&self, peer: SocketAddr) -> Option<IpAddr>;
}

/// A flow's part of the wire.
struct Line<'a, W> {
    peer: SocketAddr,
    wire: &'a mut W,
}

impl<M, W: Wire<M>> Outlet<M> for Line<'_, W> {
    fn deliver(&mut self, datagram: &[u8], metadata: M) {
        self.wire.deliver(self.peer, datagram, metadata);
    }

    fn transmit(&mut self, control: &[u8]) {
        self.wire.transmit(self.peer, control);
    }

    fn repeat(&mut self, datagram: &[u8], mark: Mark) {
        self.wire.repeat(self.peer, datagram, mark);
    }
}

/// The assistance of a program's socket. The program is the client of every peer that it sends to:
/// the first datagram to a peer begins a flow, and the search for a gateway.
///
/// Call [`Self::on_sending`] before the program's datagrams leave, [`Self::on_send`] with each if
/// uploads are repaired, [`Self::on_received`] with arriving datagrams, and
/// [`Self::handle_timeout`] at [`Self::next_timeout`]. `M` belongs to a datagram and passes through
/// untouched.
pub struct Peers<M> {
    table: Table<M>,
    flows: HashMap<FlowId, Remote>,
    /// Peers whose flows are over, and until when their gateways may number.
    former: HashMap<SocketAddr, Timestamp>,
}

struct Remote {
    /// As the program has it, which may be IPv4 in a socket of IPv6.
    address: SocketAddr,
    source: SourceAddress,
}

impl<M: Clone> Peers<M> {
    /// Creates the assistance of a socket without peers. The program's datagrams leave unchanged,
    /// or, with [`SocketConfig::with_uploads`], behind the number that [`Self::on_send`] returns.
    pub fn new(config: SocketConfig, limits: Limits) -> Self {
        Self {
            table: Table::new(vec![config.into()], limits),
            flows: HashMap::new(),
            former: HashMap::new(),
        }
    }

    /// Call before the program sends datagrams to a peer, with their ECN mark as far as the shell
    /// knows it. Beyond the limit of flows they are not assisted.
    pub fn on_sending(
        &mut self,
        peer: SocketAddr,
        mark: Mark,
        now: Timestamp,
        wire: &mut impl Wire<M>,
    ) {
        let known = self.table.find(key(peer));
        if let Some(id) = known.or_else(|| self.begin(peer, now, wire))
            && let Some(peer) = self.follow(id, now, wire)
        {
            let line = &mut Line { peer, wire };
            self.table.set_mark(id, mark, now, line);
            self.table.serve(id, now, line);
        }
    }

    /// Begins the flow of a peer, which replaces the idlest one if there is no room.
    fn begin(
        &mut self,
        peer: SocketAddr,
        now: Timestamp,
        wire: &mut impl Wire<M>,
    ) -> Option<FlowId> {
        if let Some(idlest) = self.table.room_for(key(peer), now)
            && let Some(Remote { address, .. }) = self.flows.remove(&idlest)
        {
            self.table.evict(idlest, now, &mut Line { peer: address, wire });
            self.is_former(address, now);
        }
        let id = self.table.begin(key(peer), now, seed())?;
        self.flows.insert(id, Remote { address: peer, source: SourceAddress::default() });
        Some(id)
    }

    /// The flow of a peer is over.
    fn is_former(&mut self, address: SocketAddr, now: Timestamp) {
        if self.former.len() >= FORMER_PEERS {
            self.former.retain(|_, until| now < *until);
        }
        if self.former.len() < FORMER_PEERS {
            self.former.insert(same_peer(address), now + NUMBERING_TIME);
        }
    }

    /// Called when the program sends a datagram to a peer, after [`Self::on_sending`]. Returns the
    /// number to put in front of it, as [`Table::on_send`] does.
    pub fn on_send(
        &mut self,
        peer: SocketAddr,
        datagram: &[u8],
        now: Timestamp,
    ) -> Option<NumberHeader> {
        let id = self.table.find(key(peer))?;
        self.table.on_send(id, datagram, now)
    }

    /// Takes a datagram of the program that can leave with others, as [`Table::bundle`] does.
    pub fn bundle(&mut self, peer: SocketAddr, datagram: &[u8], now: Timestamp) -> bool {
        self.table.find(key(peer)).is_some_and(|id| self.table.bundle(id, datagram, None, now))
    }

    /// Called when the link refuses a datagram of this length because of its number, as
    /// [`Table::on_refused`] is.
    pub fn on_refused(&mut self, peer: SocketAddr, length: usize, now: Timestamp) {
        if let Some(id) = self.table.find(key(peer)) {
            self.table.on_refused(id, length, now);
        }
    }

    /// Counts datagrams and bytes that the program has sent to a peer.
    pub fn on_sent(&mut self, peer: SocketAddr, datagrams: u64, bytes: u64, now: Timestamp) {
        if let Some(id) = self.table.find(key(peer)) {
            self.table.on_sent(id, datagrams, bytes, now);
        }
    }

    /// Datagrams of a peer's, which arrived together.
    pub fn on_received<'a>(
        &mut self,
        peer: SocketAddr,
        datagrams: impl IntoIterator<Item = (&'a [u8], M)>,
        now: Timestamp,
        wire: &mut impl Wire<M>,
    ) {
        let was_peer = self.former.get(&same_peer(peer)).is_some_and(|until| now < *until);
        let Some(id) = self.table.find(key(peer)) else {
            for (datagram, metadata) in datagrams {
                let base = if was_peer { base_of(datagram) } else { Some(datagram) };
                if let Some(base) = base {
                    wire.deliver(peer, base, metadata);
                }
            }
            return;
        };
        // Numbers of a session that this flow does not know; messages of the gateway's are its own.
        let take_off = was_peer && !self.table.knows_numbers(id);
        let datagrams = datagrams.into_iter().map(|(datagram, metadata)| {
            let base = base_of(datagram).filter(|_| take_off);
            (base.unwrap_or(datagram), metadata)
        });
        self.table.on_received(id, datagrams, now, &mut Line { peer, wire });
        self.serve(id, now, wire);
    }

    /// Latest time for the next call of [`Self::handle_timeout`].
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.table.next_timeout()
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Timestamp, wire: &mut impl Wire<M>) {
        // Each peer once: one with more datagrams has its turn after the socket.
        let due: Vec<FlowId> = std::iter::from_fn(|| self.table.next_due(now)).collect();
        for id in due {
            let Some(peer) = self.follow(id, now, wire) else { continue };
            if self.table.handle_timeout(id, now, &mut Line { peer, wire }) {
                self.flows.remove(&id);
                self.is_former(peer, now);
            }
        }
    }

    /// Sets the gateway to accept (`None`: any, on first use) and another token: a session with
    /// another gateway ends.
    pub fn set_access(&mut self, access: Access, now: Timestamp, wire: &mut impl Wire<M>) {
        self.table.set_access(ONLY_SERVICE, access);
        for id in self.table.flows_of(ONLY_SERVICE) {
            let Some(peer) = self.follow(id, now, wire) else { continue };
            self.table.give_access(id, now, &mut Line { peer, wire });
        }
    }

    /// Reports that the network has changed: call it before a datagram is sent from there. A change
    /// of the host's own address is detected without this call.
    pub fn on_network_change(&mut self, now: Timestamp, wire: &mut impl Wire<M>) {
        for id in self.table.flows_of(ONLY_SERVICE) {
            let Some(flow) = self.flows.get_mut(&id) else { continue };
            // The host would report the same change later by itself.
            flow.source.set(wire.source(flow.address));
            let peer = flow.address;
            self.table.on_network_change(id, now, &mut Line { peer, wire });
        }
    }

    /// Closes the socket: notifies the gateways, and releases the waiting datagrams.
    pub fn close(&mut self, now: Timestamp, wire: &mut impl Wire<M>) {
        for id in self.table.flows_of(ONLY_SERVICE) {
            let Some(flow) = self.flows.remove(&id) else { continue };
            self.table.close(id, now, &mut Line { peer: flow.address, wire });
        }
    }

    /// Returns the figures of a peer's flow, or `None` if no datagram was sent to the peer
    /// recently.
    pub fn figures(&mut self, peer: SocketAddr, now: Timestamp) -> Option<FlowFigures> {
        let id = self.table.find(key(peer))?;
        self.table.figures(id, now)
    }

    /// The sums of all flows, including ended ones.
    pub fn counters(&mut self) -> Counters {
        self.table.sums(ONLY_SERVICE).0
    }

    /// Flows in this condition.
    pub fn flows_in(&mut self, condition: Condition) -> u64 {
        self.table.sums(ONLY_SERVICE).1.get(&condition).copied().unwrap_or_default()
    }

    fn serve(&mut self, id: FlowId, now: Timestamp, wire: &mut impl Wire<M>) {
        if let Some(peer) = self.follow(id, now, wire) {
            self.table.serve(id, now, &mut Line { peer, wire });
        }
    }

    /// The peer of a flow, whose gateway learns of another network before it hears anything else.
    fn follow(
        &mut self,
        id: FlowId,
        now: Timestamp,
        wire: &mut impl Wire<M>,
    ) -> Option<SocketAddr> {
        let Remote { address, source } = self.flows.get_mut(&id)?;
        let peer = *address;
        if source.has_changed(now, || wire.source(peer)) {
            self.table.on_network_change(id, now, &mut Line { peer, wire });
        }
        Some(peer)
    }
}

impl<M> std::fmt::Debug for Peers<M> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Peers").field("flows", &self.flows.len()).finish_non_exhaustive()
    }
}

fn key(peer: SocketAddr) -> Peer {
    Peer { service: ONLY_SERVICE, address: same_peer(peer), through: None }
}

fn seed() -> Option<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).ok().map(|()| seed)
}
