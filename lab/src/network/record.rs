//! The record of a trial's path: the fates of each client's datagrams, counted, and the fates of
//! one client's in detail.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use packrat_emulation::path::{LinkCounters, Verdict};
use packrat_wire::estimate::Timestamp;
use packrat_wire::{is_control, number};
use s2n_quic::provider::io::testing::network::Packet;

use super::departure::{self, Departure};
use super::gateway::GatewayNode;
use super::links::Crossing;
use super::place::Place;
use crate::observer::{DatagramKind, TraceEvent};

/// Time after sending for which a radio is ready for the next datagram.
const AWAKE_TIME: Duration = Duration::from_millis(1);

/// The links' counters, and the counters of one client's datagrams on the way to it.
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
    /// Datagrams that the client has sent after a pause of [`AWAKE_TIME`]: its radio wakes up for them.
    pub(crate) wake_ups: u64,
    /// Time at which the client sent last.
    sent: Option<Timestamp>,
    /// Datagrams on the way to the client.
    pub(crate) down: WayCounters,
    /// Datagrams on the way from the client.
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

/// The record of one trial.
#[derive(Default)]
pub(super) struct Record {
    clients: BTreeMap<SocketAddr, ClientCounters>,
    /// Only when tracing: the client whose datagrams are followed, and their fate.
    traced: Option<SocketAddr>,
    departures: Vec<Departure>,
    trace: Option<Vec<TraceEvent>>,
}

impl Record {
    pub(super) fn new(tracing: bool) -> Self {
        Self { trace: tracing.then(Vec::new), ..Self::default() }
    }

    pub(super) fn is_tracing(&self) -> bool {
        self.trace.is_some()
    }

    /// The client at this address is followed when tracing.
    pub(super) fn follow(&mut self, client: SocketAddr) {
        self.traced = Some(client);
    }

    pub(super) fn counters(&self, client: SocketAddr) -> ClientCounters {
        self.clients.get(&client).copied().unwrap_or_default()
    }

    /// The events on the last mile, when tracing, and the datagrams sent to the client, in order.
    pub(super) fn take(&mut self) -> (Vec<TraceEvent>, Vec<Departure>) {
        (self.trace.take().unwrap_or_default(), std::mem::take(&mut self.departures))
    }

    /// A host sends a packet.
    pub(super) fn on_departure(&mut self, packet: &Packet, from: Place, to: Place, now: Timestamp) {
        if from == Place::Client {
            let client =
                self.clients.entry(SocketAddr::from(*packet.path.local_address)).or_default();
            let awake = client.sent.is_some_and(|sent| now.saturating_since(sent) < AWAKE_TIME);
            client.wake_ups += u64::from(!awake);
            client.sent = Some(now);
        }
        if self.trace.is_some()
            && to == Place::Client
            && self.traced == Some(SocketAddr::from(*packet.path.remote_address))
        {
            self.departures.push(Departure::of(&packet.payload));
        }
    }

    /// A link has decided the fate of a client's packet.
    pub(super) fn on_fate(
        &mut self,
        client: SocketAddr,
        packet: &Packet,
        crossing: &Crossing,
        verdict: Verdict,
        gateway: Option<&GatewayNode>,
    ) {
        let Crossing { from, to, next, originated, offered, .. } = *crossing;
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
            let numbered = number::split(&packet.payload).map(|(_, base)| base);
            let is_control = is_control(&packet.payload) && numbered.is_none();
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
                cache_bytes: gateway.map(|gateway| gateway.cache_bytes(client)),
                identity: departure::identity(numbered.unwrap_or(&packet.payload)),
            });
        }
    }
}
