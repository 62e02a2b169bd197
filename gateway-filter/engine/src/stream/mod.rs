//! One stream, many receivers (Packrat26, section 6.1): one cache and one sketch for all of them.
//!
//! ```text
//!                      forward(): once per packet, whatever the number of subscribers
//!   upstream --------> shared cache, head = sums of everything sent
//!                        |
//!   eACK of a subscriber: head - packets under way - (its sums + base + missing) --decode-->  changes since its last eACK
//!                        |                                            |
//!                        |            missing now: repair it, or base += it  +  arrived after all: base -= it
//!                        v
//!   repairs: to the subscriber that misses it, or once to all if several miss it in a round trip
//!   symbols: to all, if several lose packets: each repairs another packet at each of them
//! ```
//!
//! A subscriber's *base* holds the identifiers of the packets that it lacks for good: all before
//! its subscription, and given-up ones. With the packets under repair, an eACK only has to show the
//! difference to the one before. The base takes as much memory as the rest of a subscriber, so it
//! is handed over: the subscriber is asked to count it as received (a Baseline), and from the first
//! eACK that confirms this the gateway keeps no base. Per packet and subscriber, only packets under
//! repair are kept ([`subscriber`]).

mod eacks;
mod group;
mod membership;
mod outbox;
mod repairs;
mod subscriber;
mod sums;
mod symbols;

use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use packrat_eack::{Decoder, Encoding, Identifier, Sketch, SketchKey, SketchLimits};
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::GatewayParams;
use packrat_wire::identifier::{IdentifierKey, IdentifierScheme};
use packrat_wire::is_control;
use packrat_wire::message::{Message, Report, ResetReason, Totals};
use packrat_wire::{Epoch, MessageCounter, SessionId};
use zeroize::Zeroizing;

use crate::counters::{StreamCounters, StreamGauges};
use crate::gateway::Gateway;
use crate::history::{History, Pushed, SELECTIVE_ENTRIES, SETTLED_ENTRIES};
use crate::path_validation::PathValidation;
use crate::sequence::Sequence;
use crate::session_event::SessionEvent;
use group::{GroupRepairs, Missed};
use membership::Pending;
pub use outbox::{StreamOutbox, Target};
use subscriber::Subscriber;
use sums::{SUM_COUNT, Sums};
use symbols::Symbols;

/// Packets of the stream between two remembered states of its sums.
const CHECKPOINT_PACKETS: u64 = 32;
/// Work of an identifier in one sum.
const INSERTION_WORK: u64 = 5;
/// Subscriptions of one address, beyond the subscriptions that its source has in any case. An IPv6
/// /64 may be a whole LAN: each of its hosts has proven one address.
const SUBSCRIPTIONS_PER_ADDRESS: usize = 4;
/// Interval of looking for subscribers that are silent.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Limits and policies of one stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamConfig {
    /// Scheme by which its packets get their identifiers.
    pub scheme: IdentifierScheme,
    /// Bytes of packets that are kept for repair, for all subscribers together.
    pub cache_bytes: usize,
    /// Subscribers at the same time.
    pub maximum_subscribers: usize,
    /// A subscriber that is silent for this long is forgotten.
    pub silence: Duration,
    /// Subscribers of one source (an address, IPv6: a /64) at the same time, if there is a group:
    /// each may have repairs of its own. Further ones at addresses of their own are taken, four at
    /// each, as long as the source and its networks leave as much room as they use.
    pub subscriptions_per_source: usize,
    /// Number of addresses whose subscribers must miss the same packet within a round trip for its
    /// repair to go to the group, within the group's budget. `None`: there is no group.
    pub group_repairs_from: Option<u32>,
    /// Sends symbols to subscribers that take them, if there is a group.
    pub group_symbols: bool,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            scheme: IdentifierScheme::Payload,
            cache_bytes: 64 * 1024,
            maximum_subscribers: 10_000,
            subscriptions_per_source: 64,
            silence: Duration::from_secs(30),
            group_repairs_from: None,
            group_symbols: true,
        }
    }
}

impl StreamConfig {
    /// True if subscribers that take them get symbols.
    fn sends_symbols(&self) -> bool {
        self.group_symbols && self.group_repairs_from.is_some()
    }
}

/// Difference between an eACK and the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Changes {
    missing: Vec<Identifier>,
    arrived: Vec<Identifier>,
}

/// One stream and its subscribers. The shell sends it to them: see [`Stream::subscribers`].
pub struct Stream {
    gateway: Arc<Gateway>,
    config: StreamConfig,
    secret: Zeroizing<[u8; 32]>,
    key: IdentifierKey,
    history: History,
    head: Sketch,
    /// Sums before the packet with this number, in ascending order.
    checkpoints: VecDeque<(u64, Sums)>,
    decoder: Decoder,
    subscribers: Vec<Subscriber>,
    /// Index of each subscriber, by the ID of its session.
    places: HashMap<SessionId, u32>,
    /// Grows whenever a subscriber comes, goes or moves.
    version: u64,
    /// Handshakes whose subscriptions have not been used yet, by address.
    pending: HashMap<SocketAddr, Pending>,
    /// Challenges of new addresses of subscribers, by the id of the session.
    path_validation: HashMap<SessionId, PathValidation<SocketAddr>>,
    missed: HashMap<u64, Missed>,
    group_repairs: GroupRepairs,
    symbols: Symbols,
    bytes: u64,
    sweep_at: Option<Timestamp>,
    counters: StreamCounters,
    plaintext: Vec<u8>,
    message: Vec<u8>,
    set: Vec<u8>,
}

impl core::fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let subscribers = self.subscribers.len();
        formatter.debug_struct("Stream").field("subscribers", &subscribers).finish_non_exhaustive()
    }
}

impl Stream {
    /// `secret`: 32 fresh random bytes, which every subscriber learns.
    pub fn new(gateway: Arc<Gateway>, config: StreamConfig, secret: [u8; 32]) -> Self {
        let gateway_params =
            gateway_params(SessionId::new(0), config.scheme, 0, [0; 32], secret, None);
        Self {
            key: gateway_params.identifier_key(),
            head: Sketch::new(SketchKey::new([0, 0]), limits()),
            history: History::new(config.cache_bytes, SELECTIVE_ENTRIES),
            checkpoints: VecDeque::new(),
            decoder: Decoder::new(),
            subscribers: Vec::new(),
            places: HashMap::new(),
            version: 0,
            pending: HashMap::new(),
            path_validation: HashMap::new(),
            missed: HashMap::new(),
            group_repairs: GroupRepairs::new(),
            symbols: Symbols::new(),
            bytes: 0,
            sweep_at: None,
            counters: StreamCounters::default(),
            plaintext: Vec::new(),
            message: Vec::new(),
            set: Vec::new(),
            gateway,
            config,
            secret: Zeroizing::new(secret),
        }
    }

    /// Addresses that get a copy of every packet.
    pub fn subscribers(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.subscribers.iter().map(|subscriber| subscriber.address.get())
    }

    /// A number that grows whenever the result of [`Self::subscribers`] changes.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Switches the events of a subscriber on or off ([`crate::Event::Session`]). They are off at
    /// first, at no cost. False if no subscriber has this session.
    pub fn observe(&mut self, session: SessionId, observed: bool) -> bool {
        let place = self.places.get(&session).copied();
        let known = place.and_then(|place| self.subscribers.get_mut(place as usize));
        known.map(|subscriber| subscriber.observed = observed).is_some()
    }

    /// Records a packet of the stream, before it is sent to the subscribers. [`Self::send_symbols`]
    /// follows when it has been sent.
    pub fn forward(&mut self, datagram: &[u8], now: Timestamp) {
        if is_control(datagram) {
            return;
        }
        let identifier = self.key.identify(self.config.scheme, datagram);
        self.history.make_room(datagram.len(), |_| true);
        let next = self.history.next();
        match self.history.push(identifier, datagram, now) {
            Pushed::Duplicate => self.counters.stream_duplicates += 1,
            Pushed::Cached | Pushed::Uncached => {
                if next.is_multiple_of(CHECKPOINT_PACKETS)
                    && let Some(sums) = Sums::of(&self.head)
                {
                    self.checkpoints.push_back((next, sums));
                }
                self.head.insert(identifier);
                self.bytes += datagram.len() as u64;
                self.counters.stream_packets += 1;
                let copies = self.subscribers.len().max(1) as u64;
                let share = self.gateway.config().repair_budget;
                self.gateway.budget.earn(datagram.len() as u64 * copies, share);
                if let Some(threshold) = self.config.group_repairs_from {
                    self.group_repairs.earn(datagram.len() as f64 * share, threshold);
                }
                self.symbols.on_forward(next + 1, now);
            }
        }
        self.history.trim(SETTLED_ENTRIES, |_, _| {});
        while self.checkpoints.get(1).is_some_and(|(at, _)| *at <= self.history.first()) {
            self.checkpoints.pop_front();
        }
    }

    fn send_reset(&mut self, subscriber: &mut Subscriber, out: &mut StreamOutbox) {
        if subscriber.reset_pending {
            let epoch = subscriber.epoch.next();
            self.send(
                subscriber,
                &Message::Reset { epoch, reason: ResetReason::DecodeFailed },
                out,
            );
        }
    }

    fn report(
        &mut self,
        subscriber: &mut Subscriber,
        echo: MessageCounter,
        wanted: Option<Encoding>,
        out: &mut StreamOutbox,
    ) {
        // The settled packet is the last one before all packets under repair, or before the
        // horizon.
        let first = subscriber.outstanding().iter().map(|one| one.sequence).min();
        let settled = first.unwrap_or(subscriber.horizon).checked_sub(1);
        out.tell(subscriber, || SessionEvent::ReportSent {
            eack: echo,
            settled: settled.filter(|at| self.history.get(*at).is_some()).map(Sequence::new),
            wanted_symbols: wanted.map(Encoding::count),
            queue_stands: false,
        });
        let report = Report {
            epoch: subscriber.epoch,
            echo,
            echo_age: Duration::ZERO,
            missing: u16::try_from(subscriber.outstanding().len()).unwrap_or(u16::MAX),
            settled: settled.and_then(|at| self.history.get(at)).map(|entry| entry.identifier),
            wanted,
            round_trip: subscriber.round_trip.get().smoothed().unwrap_or_default(),
            loss: 0,
            queueing: Duration::ZERO,
            totals: Totals::default(),
        };
        self.send(subscriber, &Message::Report(report), out);
    }

    fn send(&mut self, subscriber: &mut Subscriber, message: &Message<'_>, out: &mut StreamOutbox) {
        self.message.clear();
        message.encode(&mut self.message);
        // A used-up counter costs the message: the subscriber comes again when it gets no answer.
        let _ = out.for_one().send(|bytes| subscriber.channel.seal(&self.message, bytes));
    }

    /// Counters since the last call.
    pub fn take_counters(&mut self) -> StreamCounters {
        core::mem::take(&mut self.counters)
    }

    /// Levels now. Looks at every subscriber.
    pub fn gauges(&self) -> StreamGauges {
        let outstanding = self.subscribers.iter().map(|subscriber| subscriber.outstanding().len());
        let held = self.subscribers.iter().map(Subscriber::memory).sum::<usize>();
        let known =
            self.subscribers.len() * (size_of::<Subscriber>() + size_of::<(SessionId, u32)>());
        StreamGauges {
            stream_subscribers: self.subscribers.len() as u64,
            stream_cache_bytes: self.history.cache().len() as u64,
            stream_outstanding: outstanding.sum::<usize>() as u64,
            stream_state_bytes: (held + known) as u64,
        }
    }
}

fn enter_epoch(subscriber: &mut Subscriber, epoch: Epoch) {
    subscriber.epoch = epoch;
    subscriber.anchored = false;
    subscriber.reset_pending = false;
    subscriber.failures = 0;
    subscriber.set_outstanding(Vec::new());
    subscriber.set_base(Sums::ZERO);
}

fn limits() -> SketchLimits {
    SketchLimits { coded_symbols: 0, power_sums: SUM_COUNT as u8 }
}

fn gateway_params(
    session: SessionId,
    scheme: IdentifierScheme,
    cache_bytes: usize,
    secret: [u8; 32],
    stream: [u8; 32],
    symbols: Option<[u8; 32]>,
) -> GatewayParams {
    GatewayParams {
        session,
        scheme,
        limits: limits(),
        cache_bytes: u32::try_from(cache_bytes).unwrap_or(u32::MAX),
        secret: Zeroizing::new(secret),
        stream: Some(Zeroizing::new(stream)),
        symbols: symbols.map(Zeroizing::new),
        numbered: None,
        hint: Default::default(),
        ticket: None,
        bundles: false,
        distinct: false,
    }
}
