//! From a client's path to its session, and through its upstream socket to the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use packrat_engine::{NetworkPath, Outbox};
use packrat_wire::estimate::Timestamp;
use packrat_wire::number;

use super::gathered::Gathered;
use super::mailbox::{Command, Mailboxes};
use crate::log::Event;
use crate::metrics::Metric;
use crate::route::{Expired, Opened, PendingDatagram, Route};
use crate::session::{ClientPath, Followed, Session};
use crate::socket::{Ecn, EndpointAddress, GsoBatch, Sender, WhenFull};

/// The server that a client's first datagram names in its connection ID. `first`: that datagram;
/// `None` while it waits.
fn named_server(route: &Route, path: &ClientPath, first: Option<&[u8]>) -> Option<EndpointAddress> {
    let settings = route.context.settings();
    if settings.named_servers.is_empty() {
        return None;
    }
    match first {
        Some(first) => settings.named_servers.server_of(first),
        None => settings.named_servers.server_of(&route.pending.first(path.network())?),
    }
}

/// Sockets and buffers with which a thread forwards clients' datagrams.
#[derive(Debug)]
pub(crate) struct Forwarder {
    pub(crate) mailboxes: Arc<Mailboxes>,
    /// The worker that the sessions opened here belong to.
    pub(crate) worker: usize,
    pub(crate) sender: Sender,
    pub(super) gathered: Gathered,
}

impl Forwarder {
    pub(crate) fn new(mailboxes: Arc<Mailboxes>, worker: usize) -> Self {
        let (sender, gathered) = (Sender::default(), Gathered::default());
        Self { mailboxes, worker, sender, gathered }
    }

    /// Sends the single datagrams that wait for others of other sessions.
    pub(crate) fn send_gathered(&mut self) {
        self.gathered.send(&mut self.sender);
    }

    /// The session of a client, which counts as active now.
    pub(crate) fn find(
        &mut self,
        route: &Route,
        path: &ClientPath,
        now: Timestamp,
    ) -> Option<Arc<Session>> {
        let session = route.sessions.find(path.network(), now)?;
        self.follow(&session, path);
        Some(session)
    }

    /// Has a session follow a listener or a configuration that has changed.
    pub(crate) fn follow(&mut self, session: &Arc<Session>, path: &ClientPath) {
        if let Some(followed) = session.follow(path) {
            self.finish(session, followed);
        }
    }

    /// Has a session follow a configuration that has changed.
    pub(crate) fn follow_route(&mut self, session: &Arc<Session>) {
        if let Some(followed) = session.follow_route() {
            self.finish(session, followed);
        }
    }

    fn finish(&mut self, session: &Arc<Session>, followed: Followed) {
        let Followed { has_moved, mut outbox } = followed;
        if has_moved {
            self.mailboxes.reconnect(session);
        }
        self.send_outbox(session, &mut outbox, WhenFull::Drop);
    }

    /// The session of a client, opened if it has none, with the endpoint `known` from an earlier
    /// session, or else the endpoint that its `first` datagram names. `None` when the session is
    /// refused; that is counted and logged.
    pub(crate) fn find_or_open(
        &mut self,
        route: &Arc<Route>,
        path: &ClientPath,
        known: Option<EndpointAddress>,
        first: Option<&[u8]>,
        now: Timestamp,
    ) -> Option<Arc<Session>> {
        if let Some(session) = self.find(route, path, now) {
            return Some(session);
        }
        let named = if known.is_none() { named_server(route, path, first) } else { None };
        let opened =
            route.sessions.open(&route.context, path, known.or(named), self.worker, now)?;
        let session = match opened {
            Opened::Before(session) => return Some(session),
            Opened::Now(session) => session,
        };
        let upstream = session.upstream();
        route.metrics().add(Metric::SessionsOpened, 1);
        route.metrics().add(Metric::SessionsNamed, named.is_some().into());
        self.mailboxes.post(session.worker, Command::Open(Arc::clone(route), Arc::clone(&session)));
        route.context.environment.note_receive_buffer(upstream.receive_buffer_bytes());
        session.log(Event::SessionOpened, || {
            [("endpoint", upstream.endpoint().to_string().into()), ("worker", self.worker.into())]
        });
        Some(session)
    }

    /// Opens the session of a client that has none, with the datagrams that it has sent so far.
    pub(crate) fn open(
        &mut self,
        route: &Arc<Route>,
        path: &ClientPath,
        known: Option<EndpointAddress>,
        first: Option<&[u8]>,
        now: Timestamp,
    ) -> Option<Arc<Session>> {
        let session = self.find_or_open(route, path, known, first, now)?;
        if !route.pending.is_empty() && !session.server_side.is_unproven_relay() {
            self.send_pending(&session, &route.pending.take(path.network()));
        }
        Some(session)
    }

    /// Forwards datagrams of the client of `session`. Never blocks, never fails: a datagram that
    /// cannot be forwarded is counted. A gateway that has not found the client here gets no
    /// datagrams.
    pub(crate) fn send_to_server(&mut self, session: &Arc<Session>, batches: &[GsoBatch<'_>]) {
        if session.server_side.is_unproven_relay() {
            session.route.metrics.add(Metric::UpstreamDropped, GsoBatch::count(batches));
        } else {
            self.send_upstream(session, batches);
        }
    }

    /// Forwards sealed messages, by which another gateway finds the client here.
    pub(super) fn send_upstream(&mut self, session: &Arc<Session>, batches: &[GsoBatch<'_>]) {
        let upstream = session.upstream();
        session.note_question();
        let report = match batches {
            [batch] if batch.ecn == Ecn::NOT_CAPABLE && batch.data.len() <= batch.segment_size => {
                self.sender.send_connected(upstream.socket(), batch.data)
            }
            _ => {
                let destination = upstream.destination();
                self.sender.send(upstream.socket(), &upstream.offload, &destination, batches)
            }
        };
        let metrics = &session.route.metrics;
        metrics.add(Metric::UpstreamDatagrams, report.datagrams);
        metrics.add(Metric::UpstreamBytes, report.bytes);
        metrics.add(Metric::UpstreamDropped, report.dropped);
        metrics.add(Metric::TooLarge, report.too_large);
        metrics.add(Metric::UpstreamErrors, report.icmp_errors);
        session.totals.to_server_datagrams.fetch_add(report.datagrams, Ordering::Relaxed);
        session.totals.to_server_bytes.fetch_add(report.bytes, Ordering::Relaxed);
        if report.icmp_errors > 0 || report.error.is_some() {
            let error = report
                .error
                .map_or_else(|| "the endpoint refuses".to_owned(), |error| error.to_string());
            session.log(Event::UpstreamError, || {
                [("endpoint", upstream.endpoint().to_string().into()), ("error", error.into())]
            });
            if session.note_unreachable() {
                self.mailboxes.reconnect(session);
            }
        }
    }

    /// Sends what the engine has for a session's client, and what it has released for the server.
    pub(crate) fn send_outbox(
        &mut self,
        session: &Arc<Session>,
        outbox: &mut Outbox,
        when_full: WhenFull,
    ) {
        let released: Vec<GsoBatch<'_>> = outbox
            .datagrams_to_server()
            .map(|(datagram, mark)| GsoBatch::single(datagram, Ecn::from_traffic_class(mark)))
            .collect();
        if !released.is_empty() {
            self.send_to_server(session, &released);
        }
        session.send_outbox(&mut self.sender, outbox, when_full);
    }

    /// Forwards datagrams that have waited until their session was known. Datagrams that have
    /// waited for another gateway go to the server without their numbers.
    pub(crate) fn send_pending(&mut self, session: &Arc<Session>, pending: &[PendingDatagram]) {
        for datagram in pending {
            let batch = datagram.batch();
            let data = match number::split(batch.data) {
                Some((_, base)) if !session.is_relay() => base,
                _ => batch.data,
            };
            self.send_to_server(session, &[GsoBatch::single(data, batch.ecn)]);
        }
    }

    /// Forwards the datagrams that have waited at a session's path, which has turned out to be its
    /// client's.
    pub(crate) fn claim_pending(&mut self, route: &Route, session: &Arc<Session>) {
        let pending = route.pending.take(session.network());
        route.metrics().add(Metric::DatagramsClaimed, pending.len() as u64);
        self.send_pending(session, &pending);
    }

    /// Lets the I/O thread look at a path at `until`: at its pending datagrams, and whether the
    /// other gateways have left a question about it unanswered.
    pub(crate) fn plan_path_check(&self, route: &Arc<Route>, path: NetworkPath, until: Timestamp) {
        self.mailboxes.post(self.worker, Command::CheckPath(Arc::clone(route), path, until));
    }

    /// Looks at the pending datagrams of a path: if no client has moved there in time, they get a
    /// session of their own. Returns the time of the next look, if there is one.
    pub(crate) fn expire_pending(
        &mut self,
        route: &Arc<Route>,
        network: NetworkPath,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let path = match route.pending.expire(network, now) {
            Expired::Gone => return None,
            Expired::Later(until) => return Some(until),
            Expired::Unclaimed(path) => path,
        };
        // The session is opened first: datagrams that arrive in between must find it, or they would
        // wait in turn.
        let session = self.find_or_open(route, &path, None, None, now);
        self.end_wait_in_vain(route, network, session.as_ref());
        None
    }

    /// Forwards the datagrams that have waited at a path to which no client has moved: through its
    /// session, which then does not relay to a gateway that has not found its client there.
    pub(crate) fn end_wait_in_vain(
        &mut self,
        route: &Route,
        network: NetworkPath,
        session: Option<&Arc<Session>>,
    ) {
        let waited = route.pending.take(network);
        route.metrics().add(Metric::DatagramsWaitedInVain, waited.len() as u64);
        route.context.log(Event::ClientWaitedInVain, || {
            let client = route.context.environment.logger.client(network.client);
            [("client", client), ("datagrams", waited.len().into())]
        });
        let Some(session) = session else { return };
        if session.server_side.is_unproven_relay() && session.stop_relaying() {
            self.mailboxes.reconnect(session);
        }
        self.send_pending(session, &waited);
    }
}
