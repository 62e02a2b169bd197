//! What clients send: control datagrams go to the engine, everything else to the server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use packrat_engine::{Begin, Flow, Outbox, Received};
use packrat_estimate::Timestamp;

use crate::assistance::guarded;
use crate::dataplane::Environment;
use crate::downstream::Slot;
use crate::log::Event;
use crate::metrics::{Metric, handshake};
use crate::route::{Route, random_bytes};
use crate::session::{ClientPath, Session, SessionTable, send_outbox};
use crate::socket::{Ecn, Piece, Sender, canonical, send_connected};
use crate::tokens::Tokens;

/// One datagram of a client, or several of the same size (the last may be shorter) that the kernel put together.
#[derive(Debug, Clone, Copy)]
pub struct ClientDatagrams<'a> {
    /// Who sent them.
    pub client: SocketAddr,
    /// The address that they were sent to; needed when the listener is bound to a wildcard address.
    pub local: Option<IpAddr>,
    /// Their ECN mark.
    pub ecn: Ecn,
    /// The datagrams, one after the other.
    pub data: &'a [u8],
    /// Bytes of each datagram but the last.
    pub segment_size: usize,
}

/// The entrance of one listener on one worker. Belongs to the thread that reads the listener's socket.
#[derive(Debug)]
pub struct Ingress {
    environment: Arc<Environment>,
    route: Arc<Route>,
    pub(crate) slot: Arc<Slot>,
    worker: usize,
    outbox: Outbox,
    sender: Sender,
}

impl Ingress {
    pub(crate) fn new(
        environment: Arc<Environment>,
        route: Arc<Route>,
        slot: Arc<Slot>,
        worker: usize,
    ) -> Self {
        Self { environment, route, slot, worker, outbox: Outbox::default(), sender: Sender::default() }
    }

    /// Whether [`ClientDatagrams::local`] is needed.
    pub fn needs_local_address(&self) -> bool {
        self.slot.listener().ip().is_unspecified()
    }

    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// Takes what a client sent. Never blocks, never fails: what cannot be forwarded is counted.
    pub fn receive(&mut self, datagrams: &ClientDatagrams<'_>) {
        let now = self.environment.now();
        let client = canonical(datagrams.client);
        let local = datagrams.local.filter(|_| self.needs_local_address());
        let path = ClientPath { slot: Arc::clone(&self.slot), local };
        let piece = Piece { data: datagrams.data, segment_size: datagrams.segment_size, ecn: datagrams.ecn };
        if !piece.datagrams().any(packrat_wire::is_control) {
            self.forward(client, &path, piece, now);
            return;
        }
        for datagram in piece.datagrams() {
            if packrat_wire::is_control(datagram) {
                self.control(client, &path, datagram, now);
            } else {
                self.forward(client, &path, Piece::single(datagram, datagrams.ecn), now);
            }
        }
    }

    fn forward(&mut self, client: SocketAddr, path: &ClientPath, piece: Piece<'_>, now: Timestamp) {
        let environment = &self.environment;
        let Some(session) =
            SessionTable::find_or_open(environment, &self.route, client, path, self.worker, now)
        else {
            return;
        };
        let upstream = session.upstream();
        let report = if piece.ecn == Ecn::NOT_CAPABLE && piece.data.len() <= piece.segment_size {
            send_connected(upstream.socket(), piece.data)
        } else {
            self.sender.send(upstream.socket(), &upstream.offload, &upstream.destination(), &[piece])
        };
        let metrics = self.route.metrics();
        metrics.add(Metric::UpstreamDatagrams, report.datagrams);
        metrics.add(Metric::UpstreamBytes, report.bytes);
        metrics.add(Metric::UpstreamDropped, report.dropped);
        metrics.add(Metric::TooLarge, report.too_large);
        metrics.add(Metric::UpstreamErrors, report.icmp_errors);
        session.totals.to_server_datagrams.fetch_add(report.datagrams, Ordering::Relaxed);
        session.totals.to_server_bytes.fetch_add(report.bytes, Ordering::Relaxed);
        if report.icmp_errors > 0 || report.error.is_some() {
            let error =
                report.error.map_or_else(|| "the endpoint refuses".to_owned(), |error| error.to_string());
            environment.logger.log(Event::UpstreamError, || {
                [
                    ("route", self.route.name().into()),
                    ("client", client.to_string().into()),
                    ("endpoint", upstream.endpoint().to_string().into()),
                    ("error", error.into()),
                ]
            });
        }
    }

    fn control(&mut self, client: SocketAddr, path: &ClientPath, datagram: &[u8], now: Timestamp) {
        let route = Arc::clone(&self.route);
        let environment = Arc::clone(&self.environment);
        route.metrics().add(Metric::ControlReceived, 1);
        let settings = route.settings();
        self.outbox.clear();
        // A panic leaves nothing behind that is used again: `receive` keeps no state, the outbox is cleared.
        let engine = Arc::clone(&settings.engine);
        if settings.config.tokens != Tokens::Off {
            engine.set_unix_origin(environment.unix_origin());
        }
        let outbox = &mut self.outbox;
        let received = guarded(&route, &environment.logger, || engine.receive(datagram, client, now, outbox));
        match received {
            Some(Received::Done(outcome)) => {
                route.metrics().add(handshake(outcome), 1);
                let ecn = Ecn::NOT_CAPABLE;
                send_outbox(&environment, &route, path, client, ecn, &mut self.sender, &self.outbox, false);
            }
            Some(Received::Begin(begin)) => self.begin(client, path, begin, now),
            Some(Received::ForFlow) => match route.sessions.find(&environment, client, path, now) {
                Some(session) => {
                    self.run(&session, |flow, outbox| flow.control(datagram, now, outbox));
                }
                None => self.drop_control(client, "no session of this client"),
            },
            None => self.drop_control(client, "fault in assistance"),
        }
        self.outbox.clear();
    }

    fn begin(&mut self, client: SocketAddr, path: &ClientPath, begin: Begin, now: Timestamp) {
        let seed = match random_bytes() {
            Ok(seed) => seed,
            Err(error) => return self.drop_control(client, &format!("no random bytes: {error}")),
        };
        let session =
            SessionTable::find_or_open(&self.environment, &self.route, client, path, self.worker, now);
        if let Some(session) = session {
            let outcome = self.run(&session, |flow, outbox| flow.begin(begin, seed, now, outbox));
            if let Some(outcome) = outcome {
                self.route.metrics().add(handshake(outcome), 1);
            }
        } else {
            self.route.metrics().add(Metric::ControlDropped, 1);
        }
    }

    /// Calls the engine for a session and sends what it has to say.
    fn run<R>(
        &mut self,
        session: &Arc<Session>,
        action: impl FnOnce(&mut Flow, &mut Outbox) -> R,
    ) -> Option<R> {
        let outbox = &mut self.outbox;
        outbox.clear();
        let result = session
            .assistance()
            .run(&self.route, &self.environment.logger, |flow| (action(flow, outbox), flow.next_timeout()));
        let (result, deadline) = result.unzip();
        session.request_deadline(&self.environment, deadline.flatten());
        session.send_outbox(&self.environment, &mut self.sender, outbox, false);
        result
    }

    fn drop_control(&self, client: SocketAddr, reason: &str) {
        self.route.metrics().add(Metric::ControlDropped, 1);
        self.environment.logger.log(Event::ControlDropped, || {
            [
                ("route", self.route.name().into()),
                ("client", client.to_string().into()),
                ("reason", reason.into()),
            ]
        });
    }
}
