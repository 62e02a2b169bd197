//! The way of a stream: datagrams that arrive at one address go to all subscribers at the route's
//! listeners.
//!
//! ```text
//!   sender --unicast or multicast--> upstream socket --> engine's Stream: cache
//!                                        (I/O thread)         |
//!                       listeners' sockets  <-- copies, with GSO for each subscriber's batch; or once to a group
//!                          ^   |
//!         handshakes, eACKs +   +--> repairs                (any thread that reads the listener)
//! ```
//!
//! The engine is behind one lock, which is never held while a datagram is sent. Subscribers'
//! datagrams other than control datagrams (requests to the stream's server, say) are forwarded to
//! the route's endpoints as everywhere, if there are any.

use std::net::SocketAddr;
use std::sync::Arc;

use packrat_engine::{Stream, StreamOutbox, Target};
use packrat_wire::estimate::Timestamp;
use packrat_wire::message::GoodbyeReason;

use super::recipients::{Recipients, path_to, update};
use super::upstream::{StreamUpstream, accepts};
use crate::configuration::ConfigurationError;
use crate::context::RouteContext;
use crate::metrics::{Metric, handshake};
use crate::session::{ClientPath, guarded};
use crate::socket::{ClientAddress, Ecn, GsoBatch, ReceiveBatch, Sender, WhenFull};
use crate::stream::config as settings;
use crate::sync::{Mutex, MutexGuard};
use packrat_api::route::StreamRoute;

/// Receive calls for the stream before others get their turn.
const RECEIVES_PER_TURN: usize = 4;

/// A route's stream and its subscribers; survives every update of the configuration that leaves
/// its key alone.
pub(crate) struct RouteStream {
    route: Arc<RouteContext>,
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
    /// Random bytes that are unused so far: few datagrams need any.
    seed: Option<[u8; 32]>,
    /// The subscribers that are sent a copy; of the engine's version.
    recipients: Arc<Vec<Recipients>>,
    version: u64,
}

impl State {
    /// Brings the recipients up to date. `path`: of the client that has just come or moved.
    fn follow(&mut self, path: Option<&ClientPath>, route: &RouteContext) {
        if self.version == self.engine.version() {
            return;
        }
        self.version = self.engine.version();
        let now = self.engine.subscribers().map(ClientAddress::new).collect();
        let mut recipients = Vec::clone(&self.recipients);
        update(&mut recipients, now, path);
        self.recipients = Arc::new(recipients);
        route.metrics.set_stream_levels(&self.engine.gauges());
    }
}

impl RouteStream {
    pub(super) fn new(
        route: &Arc<RouteContext>,
        config: &StreamRoute,
    ) -> Result<Self, ConfigurationError> {
        let key = match settings::read_key(config) {
            Some(key) => key,
            None => route.environment.random.bytes().map_err(ConfigurationError::Random)?,
        };
        let engine = Stream::new(Arc::clone(&route.engine), settings::engine(config), key);
        let state = State { engine, seed: None, recipients: Arc::default(), version: 0 };
        Ok(Self { route: Arc::clone(route), state: Mutex::new(state), upstream: Mutex::default() })
    }

    /// Takes over a changed configuration that leaves the key alone.
    pub(super) fn reconfigure(&self, config: &StreamRoute) {
        self.state.lock().engine.reconfigure(settings::engine(config));
    }

    /// The sockets of the stream, while it arrives.
    pub(super) fn upstream(&self) -> MutexGuard<'_, Option<Arc<StreamUpstream>>> {
        self.upstream.lock()
    }

    /// The address at which the stream arrives, while it does.
    pub(crate) fn upstream_address(&self) -> Option<SocketAddr> {
        self.upstream().as_ref().and_then(|upstream| upstream.local_address())
    }

    /// Answers a control datagram of a client that is, or wants to be, a subscriber.
    pub(crate) fn control(
        &self,
        path: &ClientPath,
        datagram: &[u8],
        sender: &mut Sender,
        now: Timestamp,
    ) {
        let route = &*self.route;
        let mut out = StreamOutbox::new();
        let received = {
            let mut state = self.state.lock();
            let Some(seed) = state.seed.take().or_else(|| route.environment.random.bytes().ok())
            else {
                route.metrics.add(Metric::ControlDropped, 1);
                return;
            };
            let mut spare = Some(seed);
            let received = guarded(route, || {
                let fresh = || {
                    spare = None;
                    seed
                };
                state.engine.receive(datagram, path.client.get(), fresh, now, &mut out)
            });
            state.seed = spare;
            route.metrics.add_stream(&state.engine.take_counters());
            state.follow(Some(path), route);
            received
        };
        match received {
            Some(Some(outcome)) => route.metrics.add(handshake(outcome), 1),
            Some(None) => {}
            None => return route.metrics.add(Metric::ControlDropped, 1),
        }
        self.send(path, &out, sender);
    }

    /// Sends what the engine has to say.
    fn send(&self, path: &ClientPath, out: &StreamOutbox, sender: &mut Sender) {
        let route = &*self.route;
        for (target, datagram) in out.datagrams() {
            route.metrics.add(Metric::ControlSent, u64::from(packrat_wire::is_control(datagram)));
            let batch = [GsoBatch::single(datagram, Ecn::NOT_CAPABLE)];
            match target {
                Target::One(client) if client == path.client.get() => {
                    path.send(route, sender, &batch, WhenFull::Drop);
                }
                Target::One(client) => {
                    let recipients = Arc::clone(&self.state.lock().recipients);
                    if let Some(path) = path_to(&recipients, ClientAddress::new(client)) {
                        path.send(route, sender, &batch, WhenFull::Drop);
                    }
                }
                Target::Group => {
                    let upstream = self.upstream().clone();
                    if let Some(upstream) = upstream {
                        send_to_group(route, &upstream, sender, &batch);
                    }
                }
            }
        }
    }

    /// Reads what the stream's server has sent, records it, and sends it on.
    pub(crate) fn forward(
        &self,
        upstream: &StreamUpstream,
        received: &mut ReceiveBatch,
        sender: &mut Sender,
    ) {
        let route = &*self.route;
        for _ in 0..RECEIVES_PER_TURN {
            // The error belongs to a datagram sent before.
            if received.receive(upstream.socket()).is_err() {
                return;
            }
            let now = route.environment.now();
            let settings = route.settings();
            let mut batches = Vec::new();
            for message in received.messages() {
                if message.truncated {
                    route.metrics.add(Metric::Truncated, 1);
                } else if !accepts(&settings.config, message.source.map(|source| source.ip())) {
                    route.metrics.add(Metric::StreamRefused, message.datagrams().count() as u64);
                } else {
                    let Some(first) = message.datagrams().next() else { continue };
                    // A datagram that looks like Packrat's own is no part of the stream.
                    if !packrat_wire::is_control(first) {
                        batches.push(message.batch());
                    }
                }
            }
            // The engine first: an eACK for these datagrams may arrive on another thread while they
            // are being sent.
            let mut symbols = StreamOutbox::new();
            let recipients = {
                let mut state = self.state.lock();
                guarded(route, || {
                    for datagram in batches.iter().flat_map(|batch| batch.datagrams()) {
                        state.engine.forward(datagram, now);
                    }
                    state.engine.send_symbols(now, &mut symbols);
                });
                route.metrics.add_stream(&state.engine.take_counters());
                Arc::clone(&state.recipients)
            };
            if upstream.config.group.is_some() {
                send_to_group(route, upstream, sender, &batches);
                // For the group all of them.
                for (_, symbol) in symbols.datagrams() {
                    route.metrics.add(Metric::ControlSent, 1);
                    let batch = [GsoBatch::single(symbol, Ecn::NOT_CAPABLE)];
                    send_to_group(route, upstream, sender, &batch);
                }
            } else {
                for group in recipients.iter() {
                    group.send(route, sender, &batches);
                }
            }
            if !received.was_filled() {
                return;
            }
        }
    }

    /// The time at which [`Self::handle_timeout`] wants to be called.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        self.state.lock().engine.next_timeout()
    }

    /// Forgets silent subscribers, and notifies them.
    pub(crate) fn handle_timeout(&self, sender: &mut Sender, now: Timestamp) {
        let route = &*self.route;
        let mut out = StreamOutbox::new();
        let paths = {
            let mut state = self.state.lock();
            if state.engine.next_timeout().is_none_or(|at| at > now) {
                return;
            }
            let before = Arc::clone(&state.recipients);
            state.engine.handle_timeout(now, &mut out);
            route.metrics.add_stream(&state.engine.take_counters());
            state.follow(None, route);
            route.metrics.set_stream_levels(&state.engine.gauges());
            before
        };
        send_goodbyes(route, &paths, &out, sender);
    }

    /// Ends the stream, and notifies the subscribers.
    pub(crate) fn close(&self, sender: &mut Sender) {
        let route = &*self.route;
        let mut out = StreamOutbox::new();
        let paths = {
            let mut state = self.state.lock();
            let before = Arc::clone(&state.recipients);
            state.engine.close(GoodbyeReason::Idle, &mut out);
            route.metrics.add_stream(&state.engine.take_counters());
            state.follow(None, route);
            before
        };
        send_goodbyes(route, &paths, &out, sender);
    }
}

fn send_to_group(
    route: &RouteContext,
    upstream: &StreamUpstream,
    sender: &mut Sender,
    batches: &[GsoBatch<'_>],
) {
    let Some(report) = upstream.send_to_group(sender, batches) else { return };
    route.metrics.add(Metric::DownstreamDatagrams, report.datagrams);
    route.metrics.add(Metric::DownstreamBytes, report.bytes);
    route.metrics.add(Metric::DownstreamDropped, report.dropped);
    route.metrics.add(Metric::TooLarge, report.too_large);
}

/// Sends their last datagrams to subscribers that are no recipients any more.
fn send_goodbyes(
    route: &RouteContext,
    before: &[Recipients],
    out: &StreamOutbox,
    sender: &mut Sender,
) {
    for (target, datagram) in out.datagrams() {
        let Target::One(client) = target else { continue };
        if let Some(path) = path_to(before, ClientAddress::new(client)) {
            route.metrics.add(Metric::ControlSent, 1);
            let batch = [GsoBatch::single(datagram, Ecn::NOT_CAPABLE)];
            path.send(route, sender, &batch, WhenFull::Drop);
        }
    }
}
