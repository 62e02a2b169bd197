//! A route's live stream: what arrives at one address goes to everybody who subscribes at the route's listeners.
//!
//! ```text
//!   sender --unicast or multicast--> upstream socket --> engine's Stream: cache
//!                                        (I/O thread)         |
//!                       listeners' sockets  <-- copies, with GSO for each subscriber's batch; or once to a group
//!                          ^   |
//!         handshakes, eACKs +   +--> repairs                (whichever thread reads the listener)
//! ```
//!
//! The engine is behind one lock, which is never held while something is sent. What subscribers send beside control datagrams (requests to
//! the stream's server, say) is forwarded to the route's endpoints as everywhere, if there are any.

mod config;
mod upstream;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use packrat_engine::{Gateway, Stream, StreamOutbox, Target};
use packrat_estimate::Timestamp;
use packrat_wire::message::GoodbyeReason;

use crate::assistance::guarded;
use crate::configuration::{ConfigurationError, RouteConfig};
use crate::dataplane::Environment;
use crate::downstream::Slot;
use crate::log::Event;
use crate::metrics::{Metric, handshake};
use crate::route::{Route, random_bytes};
use crate::session::{ClientPath, count_unsent, send_to_client};
use crate::socket::{Destination, Ecn, Piece, ReceiveBatch, Sender};
use crate::worker::Command;

pub use config::{StreamRoute, StreamSummary};
pub(crate) use upstream::StreamUpstream;

/// Receive calls for the stream before others get their turn.
const RECEIVES_PER_TURN: usize = 4;

/// A route's stream and its subscribers; survives every update of the configuration that leaves cache and key alone.
pub(crate) struct RouteStream {
    state: Mutex<State>,
    upstream: Mutex<Option<Arc<StreamUpstream>>>,
}

impl std::fmt::Debug for RouteStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RouteStream").finish_non_exhaustive()
    }
}

struct State {
    engine: Stream,
    /// Random bytes that nothing has used yet: few datagrams need any.
    seed: Option<[u8; 32]>,
    /// Who is sent a copy, by the socket that it is sent from; of the engine's version.
    recipients: Arc<Vec<Recipients>>,
    version: u64,
}

/// Subscribers that are reached through the same socket.
#[derive(Debug, Clone)]
struct Recipients {
    slot: Arc<Slot>,
    local: Option<IpAddr>,
    clients: Vec<SocketAddr>,
}

impl Recipients {
    fn path(&self, client: SocketAddr) -> ClientPath {
        ClientPath { client, slot: Arc::clone(&self.slot), local: self.local }
    }

    /// Sends a copy to each of them.
    fn send(&self, environment: &Environment, route: &Route, sender: &mut Sender, pieces: &[Piece<'_>]) {
        let (mut datagrams, mut bytes) = (0, 0);
        let sent = self.slot.with(|downstream| {
            let destination = |client: &SocketAddr| downstream.destination(*client, self.local, false);
            let destinations: Vec<Destination> = self.clients.iter().map(destination).collect();
            let (socket, offload) = (downstream.socket(), &downstream.offload);
            sender.send_to_each(socket, offload, &destinations, pieces, |destination, report| {
                datagrams += report.datagrams;
                bytes += report.bytes;
                let failed = report.error.is_some() || report.offload_refused;
                if let Some(client) = destination.address.filter(|_| failed) {
                    count_unsent(environment, route, &self.path(client), &report);
                }
            });
        });
        if sent.is_none() {
            let each: u64 = pieces.iter().map(|piece| piece.datagrams().count() as u64).sum();
            route.metrics().add(Metric::DownstreamDropped, each * self.clients.len() as u64);
        }
        route.metrics().add(Metric::DownstreamDatagrams, datagrams);
        route.metrics().add(Metric::DownstreamBytes, bytes);
    }
}

impl State {
    /// Brings the recipients up to date. `path`: of whoever has just come or moved.
    fn follow(&mut self, path: Option<&ClientPath>, route: &Route) {
        if self.version == self.engine.version() {
            return;
        }
        self.version = self.engine.version();
        let mut now: std::collections::HashSet<SocketAddr> = self.engine.subscribers().collect();
        let mut recipients: Vec<Recipients> = Vec::clone(&self.recipients);
        for group in &mut recipients {
            group.clients.retain(|client| now.remove(client));
        }
        recipients.retain(|group| !group.clients.is_empty());
        if let Some(path) = path {
            for client in now {
                let is_same = |group: &&mut Recipients| {
                    Arc::ptr_eq(&group.slot, &path.slot) && group.local == path.local
                };
                match recipients.iter_mut().find(is_same) {
                    Some(group) => group.clients.push(client),
                    None => recipients.push(Recipients {
                        slot: Arc::clone(&path.slot),
                        local: path.local,
                        clients: vec![client],
                    }),
                }
            }
        }
        self.recipients = Arc::new(recipients);
        route.metrics().set_stream_levels(&self.engine.gauges());
    }

    fn path_of(&self, client: SocketAddr) -> Option<ClientPath> {
        let group = self.recipients.iter().find(|group| group.clients.contains(&client))?;
        Some(group.path(client))
    }
}

impl RouteStream {
    fn new(config: &StreamRoute, gateway: Arc<Gateway>) -> Result<Self, ConfigurationError> {
        let key = match config.read_key()? {
            Some(key) => key,
            None => random_bytes().map_err(ConfigurationError::Random)?,
        };
        let engine = Stream::new(gateway, config.engine(), key);
        let state = State { engine, seed: None, recipients: Arc::default(), version: 0 };
        Ok(Self { state: Mutex::new(state), upstream: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn upstream(&self) -> MutexGuard<'_, Option<Arc<StreamUpstream>>> {
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the stream arrives, while it does.
    pub(crate) fn upstream_address(&self) -> Option<SocketAddr> {
        self.upstream().as_ref().and_then(|upstream| upstream.local_address())
    }

    /// A control datagram of somebody who is, or wants to be, a subscriber.
    pub(crate) fn control(
        &self,
        environment: &Environment,
        route: &Route,
        path: &ClientPath,
        datagram: &[u8],
        sender: &mut Sender,
        now: Timestamp,
    ) {
        let mut out = StreamOutbox::new();
        let received = {
            let mut state = self.state();
            let Some(seed) = state.seed.take().or_else(|| random_bytes().ok()) else {
                route.metrics().add(Metric::ControlDropped, 1);
                return;
            };
            let mut spare = Some(seed);
            let received = guarded(route, &environment.logger, || {
                let fresh = || {
                    spare = None;
                    seed
                };
                state.engine.receive(datagram, path.client, fresh, now, &mut out)
            });
            state.seed = spare;
            route.metrics().add_stream(&state.engine.take_counters());
            state.follow(Some(path), route);
            received
        };
        match received {
            Some(Some(outcome)) => route.metrics().add(handshake(outcome), 1),
            Some(None) => {}
            None => return route.metrics().add(Metric::ControlDropped, 1),
        }
        self.send(environment, route, Some(path), &out, sender);
    }

    /// Sends what the engine has to say.
    fn send(
        &self,
        environment: &Environment,
        route: &Route,
        path: Option<&ClientPath>,
        out: &StreamOutbox,
        sender: &mut Sender,
    ) {
        for (target, datagram) in out.datagrams() {
            route.metrics().add(Metric::ControlSent, u64::from(packrat_wire::is_control(datagram)));
            let piece = [Piece::single(datagram, Ecn::NOT_CAPABLE)];
            match target {
                Target::One(client) => {
                    let path = match path.filter(|path| path.client == client) {
                        Some(path) => Some(path.clone()),
                        None => self.state().path_of(client),
                    };
                    if let Some(path) = path {
                        send_to_client(environment, route, &path, sender, &piece, false);
                    }
                }
                Target::Group => {
                    let upstream = self.upstream().clone();
                    if let Some(upstream) = upstream {
                        send_to_group(route, &upstream, sender, &piece);
                    }
                }
            }
        }
    }

    /// Reads what the stream's server has sent, records it, and sends it on.
    pub(crate) fn forward(
        &self,
        environment: &Environment,
        upstream: &StreamUpstream,
        batch: &mut ReceiveBatch,
        sender: &mut Sender,
    ) {
        let route = &upstream.route;
        for _ in 0..RECEIVES_PER_TURN {
            // An error is that of a datagram sent before.
            if batch.receive(upstream.socket()).is_err() {
                return;
            }
            let now = environment.now();
            let settings = route.settings();
            let mut pieces = Vec::new();
            for message in batch.messages() {
                if message.truncated {
                    route.metrics().add(Metric::Truncated, 1);
                } else if !accepts(&settings.config, message.source.map(|source| source.ip())) {
                    route.metrics().add(Metric::StreamRefused, message.datagrams().count() as u64);
                } else {
                    let Some(first) = message.datagrams().next() else { continue };
                    // What looks like Packrat's own is nobody's stream.
                    if !packrat_wire::is_control(first) {
                        let (data, segment_size, ecn) = (message.data, message.segment_size, message.ecn);
                        pieces.push(Piece { data, segment_size, ecn });
                    }
                }
            }
            // The engine first: an eACK for these datagrams may arrive on another thread while they are being sent.
            let recipients = {
                let mut state = self.state();
                guarded(route, &environment.logger, || {
                    for datagram in pieces.iter().flat_map(|piece| piece.datagrams()) {
                        state.engine.forward(datagram, now);
                    }
                });
                route.metrics().add_stream(&state.engine.take_counters());
                Arc::clone(&state.recipients)
            };
            if upstream.config.group.is_some() {
                send_to_group(route, upstream, sender, &pieces);
            } else {
                for group in recipients.iter() {
                    group.send(environment, route, sender, &pieces);
                }
            }
            if !batch.was_filled() {
                return;
            }
        }
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        self.state().engine.next_timeout()
    }

    /// Time has passed: silent subscribers are told that they are forgotten.
    pub(crate) fn handle_timeout(
        &self,
        environment: &Environment,
        route: &Route,
        sender: &mut Sender,
        now: Timestamp,
    ) {
        let mut out = StreamOutbox::new();
        let paths = {
            let mut state = self.state();
            if state.engine.next_timeout().is_none_or(|at| at > now) {
                return;
            }
            let before = Arc::clone(&state.recipients);
            state.engine.handle_timeout(now, &mut out);
            route.metrics().add_stream(&state.engine.take_counters());
            state.follow(None, route);
            route.metrics().set_stream_levels(&state.engine.gauges());
            before
        };
        send_goodbyes(environment, route, &paths, &out, sender);
    }

    /// The stream ends here: subscribers are told.
    pub(crate) fn close(&self, environment: &Environment, route: &Route, sender: &mut Sender) {
        let mut out = StreamOutbox::new();
        let paths = {
            let mut state = self.state();
            let before = Arc::clone(&state.recipients);
            state.engine.close(GoodbyeReason::Idle, &mut out);
            route.metrics().add_stream(&state.engine.take_counters());
            state.follow(None, route);
            before
        };
        send_goodbyes(environment, route, &paths, &out, sender);
    }
}

/// The only hosts that may send the stream; empty: whoever reaches its address.
fn senders(config: &RouteConfig) -> impl Iterator<Item = IpAddr> {
    let sources = config.stream.as_ref().map_or(&[][..], |stream| &stream.sources);
    let endpoints = config.endpoints.iter().map(|endpoint| endpoint.ip()).filter(|_| sources.is_empty());
    sources.iter().copied().chain(endpoints).map(|sender| sender.to_canonical())
}

/// Whether a host may send the stream.
fn accepts(config: &RouteConfig, from: Option<IpAddr>) -> bool {
    let mut senders = senders(config).peekable();
    let Some(from) = from.map(|from| from.to_canonical()) else { return senders.peek().is_none() };
    senders.peek().is_none() || senders.any(|sender| sender == from)
}

fn send_to_group(route: &Route, upstream: &StreamUpstream, sender: &mut Sender, pieces: &[Piece<'_>]) {
    let Some(report) = upstream.send_to_group(sender, pieces) else { return };
    route.metrics().add(Metric::DownstreamDatagrams, report.datagrams);
    route.metrics().add(Metric::DownstreamBytes, report.bytes);
    route.metrics().add(Metric::DownstreamDropped, report.dropped);
    route.metrics().add(Metric::TooLarge, report.too_large);
}

/// Last words for those who are no recipients any more.
fn send_goodbyes(
    environment: &Environment,
    route: &Route,
    before: &[Recipients],
    out: &StreamOutbox,
    sender: &mut Sender,
) {
    for (target, datagram) in out.datagrams() {
        let Target::One(client) = target else { continue };
        if let Some(group) = before.iter().find(|group| group.clients.contains(&client)) {
            route.metrics().add(Metric::ControlSent, 1);
            let piece = [Piece::single(datagram, Ecn::NOT_CAPABLE)];
            send_to_client(environment, route, &group.path(client), sender, &piece, false);
        }
    }
}

impl Route {
    /// Brings the route's stream into the state that is configured: its engine always, its sockets while there are listeners.
    pub(crate) fn follow_stream(self: &Arc<Self>, environment: &Environment) {
        let settings = self.settings();
        self.stream_only.store(settings.config.endpoints.is_empty(), Ordering::Relaxed);
        let mut current = self.stream.write().unwrap_or_else(PoisonError::into_inner);
        let Some(config) = &settings.config.stream else {
            if let Some((_, stream)) = current.take() {
                stream.end(environment, self);
            }
            return;
        };
        let stream = match current.as_ref().filter(|(before, _)| !before.needs_another_engine(config)) {
            Some((_, stream)) => {
                stream.state().engine.reconfigure(Arc::clone(&settings.engine), config.engine());
                Arc::clone(stream)
            }
            None => {
                if let Some((_, stream)) = current.take() {
                    stream.end(environment, self);
                }
                match RouteStream::new(config, Arc::clone(&settings.engine)) {
                    Ok(stream) => Arc::new(stream),
                    Err(error) => return self.report_stream(environment, config, &error.to_string()),
                }
            }
        };
        *current = Some((config.clone(), Arc::clone(&stream)));
        drop(current);
        let wanted = self.has_listener();
        let mut upstream = stream.upstream();
        let senders: Vec<IpAddr> = senders(&settings.config).collect();
        let is_open = |open: &Arc<StreamUpstream>| {
            let joins_others = config.upstream.ip().is_multicast() && open.senders != senders;
            !open.config.needs_other_sockets(config) && !joins_others
        };
        if wanted && upstream.as_ref().is_some_and(is_open) {
            return;
        }
        upstream.take().inspect(|open| open.close(environment));
        if !wanted {
            return;
        }
        match StreamUpstream::open(environment.next_number(), self, &stream, config, senders) {
            Ok(open) => {
                let open = Arc::new(open);
                *upstream = Some(Arc::clone(&open));
                environment.command(open.worker(), Command::OpenStream(open));
            }
            Err(error) => self.report_stream(environment, config, &error.to_string()),
        }
    }

    fn report_stream(&self, environment: &Environment, config: &StreamRoute, error: &str) {
        environment.logger.about(Event::StreamUnavailable, self, || {
            [
                ("upstream", config.upstream.to_string().into()),
                ("group", config.group.map(|group| group.to_string()).into()),
                ("error", error.into()),
            ]
        });
    }

    /// Whether there is nobody to forward to what subscribers send.
    pub(crate) fn is_stream_only(&self) -> bool {
        self.stream_only.load(Ordering::Relaxed)
    }

    /// The route's stream, if it has one.
    pub(crate) fn stream(&self) -> Option<Arc<RouteStream>> {
        let stream = self.stream.read().unwrap_or_else(PoisonError::into_inner);
        stream.as_ref().map(|(_, stream)| Arc::clone(stream))
    }

    /// Where the route's stream arrives; `None` when it has none, or no listener.
    pub fn stream_upstream(&self) -> Option<SocketAddr> {
        self.stream()?.upstream_address()
    }
}

impl RouteStream {
    /// The route has no such stream any more.
    fn end(&self, environment: &Environment, route: &Route) {
        self.upstream().take().inspect(|open| open.close(environment));
        self.close(environment, route, &mut Sender::default());
    }
}

impl StreamUpstream {
    /// The worker whose I/O thread reads it: streams are spread over them.
    fn worker(&self) -> usize {
        usize::try_from(self.number).unwrap_or_default()
    }

    fn close(&self, environment: &Environment) {
        environment.command(self.worker(), Command::CloseStream(self.number));
    }
}
