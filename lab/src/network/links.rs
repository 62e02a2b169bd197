//! The links of the path, and the traffic of others on them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

use packrat_emulation::path::{AnyLink, CrossTraffic, Fate};
use packrat_emulation::scenario::{Links, Scenario};
use packrat_wire::estimate::Timestamp;
use s2n_quic::provider::io::testing::network::Packet;
use s2n_quic_core::inet::ExplicitCongestionNotification::NotEct;

use super::place::Place;

/// One of the four links with this number, in the order in which they are served at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkId(pub(super) usize, pub(super) LinkName);

/// The name of one of the four links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinkName {
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

/// The number of the flow that is cross traffic.
const CROSS_TRAFFIC: u64 = u64::MAX;

/// The number of a packet's flow: the same in every process.
fn flow(packet: &Packet) -> u64 {
    let mut hasher = DefaultHasher::new();
    let [local, remote] = [*packet.path.local_address, *packet.path.remote_address];
    (SocketAddr::from(local), SocketAddr::from(remote)).hash(&mut hasher);
    hasher.finish()
}

/// A datagram that was offered to a link.
#[derive(Debug)]
pub(super) struct Crossing {
    /// `None`: of cross traffic, whose fate does not matter.
    pub(super) packet: Option<Packet>,
    pub(super) from: Place,
    pub(super) to: Place,
    /// The link's other end.
    pub(super) next: Place,
    pub(super) originated: bool,
    pub(super) offered: Timestamp,
    /// Place of the packet among all that go to its client, if the last mile reports its fate.
    pub(super) order: Option<u64>,
}

/// All links of a network.
pub(super) struct LinkSet {
    /// The shared links first, then the own links of flows.
    links: Vec<Links<AnyLink<Crossing>>>,
    /// Cross traffic of the far segment and of the last mile, towards the client.
    cross_traffic: [Option<CrossTraffic>; 2],
}

impl LinkSet {
    /// The links that are shared.
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Self {
        Self {
            links: vec![scenario.links(seed).map(AnyLink::new)],
            cross_traffic: scenario.cross_traffic(seed),
        }
    }

    /// Adds links like the shared ones, with losses of their own; their number.
    pub(super) fn add(&mut self, scenario: &Scenario, seed: u64) -> usize {
        let number = self.links.len();
        self.links.push(scenario.links(seed ^ ((number as u64) << 40)).map(AnyLink::new));
        number
    }

    /// The shared links.
    pub(super) fn shared(&self) -> &Links<AnyLink<Crossing>> {
        &self.links[0]
    }

    fn link(&mut self, LinkId(number, name): LinkId) -> &mut AnyLink<Crossing> {
        name.of(&mut self.links[number])
    }

    /// A packet comes to a link.
    pub(super) fn offer(&mut self, link: LinkId, crossing: Crossing) {
        let Some(packet) = &crossing.packet else { return };
        let (length, flow) = (packet.payload.len(), flow(packet));
        let ecn_capable = packet.ecn != NotEct;
        self.link(link).offer(crossing.offered, length, flow, ecn_capable, crossing);
    }

    /// Offers the next datagram of cross traffic until `now` to its link, and returns the link. The
    /// datagram's further way does not matter.
    pub(super) fn offer_cross_traffic(&mut self, now: Timestamp) -> Option<LinkId> {
        let names = [LinkName::FarDown, LinkName::LastMileDown];
        let (name, traffic) =
            names.into_iter().zip(&mut self.cross_traffic).find_map(|(name, traffic)| {
                Some((name, traffic.as_mut().filter(|it| it.next_at() <= now)?))
            })?;
        let (at, length) = (traffic.next_at(), traffic.take());
        let crossing = Crossing {
            packet: None,
            from: Place::Gateway,
            to: Place::Client,
            next: Place::Client,
            originated: false,
            offered: at,
            order: None,
        };
        let link = LinkId(0, name);
        self.link(link).offer(at, length, CROSS_TRAFFIC, false, crossing);
        Some(link)
    }

    /// The next datagram of a link whose fate is known.
    pub(super) fn poll_fate(&mut self, link: LinkId) -> Option<Fate<Crossing>> {
        self.link(link).poll_fate()
    }

    /// The time at which a link's transmitter takes its next datagram, and that link.
    pub(super) fn next_service(&mut self) -> Option<(Timestamp, LinkId)> {
        let service = |(number, links): (usize, &mut Links<AnyLink<Crossing>>)| {
            LinkName::ALL
                .into_iter()
                .filter_map(|name| Some((name.of(links).next_timeout()?, LinkId(number, name))))
                .min()
        };
        self.links.iter_mut().enumerate().filter_map(service).min()
    }

    /// The link's transmitter takes its next datagram.
    pub(super) fn serve(&mut self, link: LinkId, at: Timestamp) {
        self.link(link).handle_timeout(at);
    }
}
