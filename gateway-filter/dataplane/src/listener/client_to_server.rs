//! The way of clients' datagrams: the listener's socket or the shell, then the server.
//!
//! ```text
//!   Ingress::receive_run, Ingress::receive
//!     control datagram ------------------------------------> Control: the engine answers
//!     all others, whatever their form: Ingress::place
//!       another gateway has their client's session: they go there as they are, or wait until it has
//!         found the client here
//!       numbered datagram of a session: the engine takes the number off, and may keep it for a while
//!       bundle: taken apart, as if all in it had come alone
//!       any other, and without a session what only looks like one: Ingress::forward
//!         its path has a session -------------------------+
//!         it may belong to a client that has moved: kept  |
//!           until that client has proved to be there -----+--> Forwarder::send_to_server
//!         it is a new client's: a session is opened ------+
//! ```

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use packrat_engine::Outbox;
use packrat_wire::bundle::{self, Bundle};
use packrat_wire::estimate::Timestamp;
use packrat_wire::number;

use super::control::Control;
use super::forwarder::Forwarder;
use super::mailbox::Mailboxes;
use crate::log::Event;
use crate::metrics::Metric;
use crate::route::{Disposition, Route, may_have_moved};
use crate::session::{ClientPath, Session};
use crate::socket::{ClientAddress, Ecn, GsoBatch, PROBE_BYTES, ProbeReader, Slot, WhenFull};

/// One datagram of a client, or several of the same size (the last may be shorter) that the kernel
/// put together.
#[derive(Debug, Clone, Copy)]
pub struct ClientDatagrams<'a> {
    /// Sender of the datagrams.
    pub client: SocketAddr,
    /// The address that they were sent to; needed when the listener is bound to a wildcard
    /// address.
    pub local: Option<IpAddr>,
    /// ECN mark of the datagrams.
    pub ecn: Ecn,
    /// The datagrams, one after the other.
    pub data: &'a [u8],
    /// Bytes of each datagram but the last.
    pub segment_size: usize,
}

/// The place where datagrams of a path belong.
enum Place {
    /// Here: the session of the path, if it has one.
    Here(Option<Arc<Session>>),
    /// The datagrams have gone to another gateway.
    There,
    /// Perhaps at another gateway: they wait until it has found the client here.
    Unproven,
}

/// The entrance of one listener on one worker. Belongs to the thread that reads the listener's
/// socket.
#[derive(Debug)]
pub struct Ingress {
    route: Arc<Route>,
    pub(crate) slot: Arc<Slot>,
    pub(crate) forwarder: Forwarder,
    outbox: Outbox,
}

impl Ingress {
    pub(crate) fn new(
        mailboxes: Arc<Mailboxes>,
        route: Arc<Route>,
        slot: Arc<Slot>,
        worker: usize,
    ) -> Self {
        let forwarder = Forwarder::new(mailboxes, worker);
        Self { route, slot, forwarder, outbox: Outbox::default() }
    }

    /// True if [`ClientDatagrams::local`] is needed.
    pub fn needs_local_address(&self) -> bool {
        self.slot.listener().is_wildcard()
    }

    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// Takes what a client has sent in a row, and an I/O thread has read.
    pub(crate) fn receive_run(
        &mut self,
        client: SocketAddr,
        local: Option<IpAddr>,
        batches: &[GsoBatch<'_>],
    ) {
        if let Some(GsoBatch { data: [.., byte], segment_size: 1, .. }) = batches.last() {
            self.note_probe(client, *byte, ProbeReader::IoThread);
        }
        let is_control = |batch: &GsoBatch<'_>| batch.datagrams().any(packrat_wire::is_control);
        if batches.len() > 1 && !batches.iter().any(is_control) {
            let now = self.now();
            let path = self.path(client, local);
            match self.place(&path, now, |_| batches.to_vec()) {
                Place::Here(Some(session)) => return self.pass(&session, batches, now),
                Place::There | Place::Unproven => return,
                Place::Here(None) => {}
            }
        }
        for batch in batches {
            let GsoBatch { data, segment_size, ecn, .. } = *batch;
            self.take(&ClientDatagrams { client, local, ecn, data, segment_size });
        }
    }

    /// Takes what a client sent, and the shell has read. Never blocks, never fails: what cannot be
    /// forwarded is counted.
    pub fn receive(&mut self, datagrams: &ClientDatagrams<'_>) {
        if let [byte] = datagrams.data {
            self.note_probe(datagrams.client, *byte, ProbeReader::Shell);
        }
        self.take(datagrams);
    }

    fn note_probe(&self, client: SocketAddr, byte: u8, reader: ProbeReader) {
        if PROBE_BYTES.contains(&byte) {
            self.slot.note_probe(client.port(), byte, reader);
        }
    }

    fn take(&mut self, datagrams: &ClientDatagrams<'_>) {
        let now = self.now();
        let path = self.path(datagrams.client, datagrams.local);
        let batch = GsoBatch::plain(datagrams.data, datagrams.segment_size, datagrams.ecn);
        if !batch.datagrams().any(packrat_wire::is_control) {
            self.forward(&path, batch, now);
            return;
        }
        let is_numbered = |datagram: &&[u8]| number::split(datagram).is_some();
        let mut rest = batch.datagrams().peekable();
        while let Some(datagram) = rest.next() {
            if is_numbered(&datagram) {
                let run: Vec<&[u8]> = std::iter::once(datagram)
                    .chain(std::iter::from_fn(|| rest.next_if(is_numbered)))
                    .collect();
                self.receive_numbered(&path, &run, datagrams.ecn, now);
            } else if let Some(bundle) = bundle::split(datagram) {
                self.receive_bundle(&path, datagram, &bundle, datagrams.ecn, now);
            } else if self.is_for_engine(&path, datagram, now) {
                self.control(&path, datagram, now);
            } else {
                self.forward(&path, GsoBatch::single(datagram, datagrams.ecn), now);
            }
        }
    }

    /// Takes numbered datagrams of one client. If no session knows the numbers, because it is over
    /// or has not followed its client yet, the datagrams are forwarded without them.
    fn receive_numbered(&mut self, path: &ClientPath, run: &[&[u8]], ecn: Ecn, now: Timestamp) {
        let as_they_are = |_| run.iter().map(|data| GsoBatch::single(data, ecn)).collect();
        let Place::Here(session) = self.place(path, now, as_they_are) else { return };
        let mut rest = run;
        if let Some(session) = session.filter(|session| session.is_assisted()) {
            let outbox = &mut self.outbox;
            outbox.clear();
            let (mut refused, mut taken) = (Vec::new(), 0_usize);
            let deadline = session.assist(|flow| {
                for &datagram in run {
                    taken += 1;
                    if !flow.receive_upward(datagram, ecn.traffic_class(), now, outbox) {
                        refused.push(datagram);
                    }
                }
                flow.next_timeout()
            });
            if let Some(deadline) = deadline {
                self.forwarder.mailboxes.request_deadline(&session, deadline);
                self.forwarder.send_outbox(&session, outbox, WhenFull::Drop);
                // No type of the session's.
                refused.into_iter().for_each(|datagram| self.control(path, datagram, now));
                return;
            }
            // After a fault in the engine: the datagrams that waited there and the released ones
            // are sent, and the rest follows plain, beginning with the datagram at which it has
            // failed. That one may be sent twice.
            self.forwarder.send_outbox(&session, outbox, WhenFull::Drop);
            rest = run.get(taken.saturating_sub(1)..).unwrap_or_default();
        }
        for (_, base) in rest.iter().filter_map(|datagram| number::split(datagram)) {
            self.forward(path, GsoBatch::single(base, ecn), now);
        }
    }

    /// Takes a bundle apart and forwards each datagram in it as if it had come alone. If the client
    /// may not be at its address, only the last datagram is forwarded, which acknowledges the most:
    /// one datagram of an attacker never makes the gateway send more than one. `whole`: the bundle
    /// as it came.
    fn receive_bundle(
        &mut self,
        path: &ClientPath,
        whole: &[u8],
        bundle: &Bundle<'_>,
        ecn: Ecn,
        now: Timestamp,
    ) {
        let batches: Vec<_> = bundle.datagrams().map(|base| GsoBatch::single(base, ecn)).collect();
        // The gateway that has the session takes it apart. Its message may be the proof that the
        // datagrams in it wait for.
        let parts = |is_proven| match is_proven {
            true => vec![GsoBatch::single(whole, ecn)],
            false => batches.clone(),
        };
        match self.place(path, now, parts) {
            Place::There => return,
            Place::Unproven => {}
            Place::Here(Some(session)) if session.is_assured() => {
                self.pass(&session, &batches, now);
            }
            Place::Here(_) => {
                batches.last().into_iter().for_each(|last| self.forward(path, *last, now))
            }
        }
        if self.is_for_engine(path, bundle.message, now) {
            self.control(path, bundle.message, now);
        }
    }

    /// True if a datagram is for the engine. Without a session, a datagram that begins like a
    /// control datagram but is not one belongs to the base connection, whose protocol may be any.
    fn is_for_engine(&mut self, path: &ClientPath, datagram: &[u8], now: Timestamp) -> bool {
        packrat_wire::is_control(datagram)
            && (packrat_wire::control::Control::decode(datagram).is_ok()
                || packrat_wire::peer::is_peer(datagram)
                || self.route.stream().is_some()
                || (self.forwarder.find(&self.route, path, now))
                    .is_some_and(|session| session.is_assisted()))
    }

    fn now(&self) -> Timestamp {
        self.route.context.environment.now()
    }

    fn path(&self, client: SocketAddr, local: Option<IpAddr>) -> ClientPath {
        ClientPath {
            client: ClientAddress::new(client),
            slot: Arc::clone(&self.slot),
            local: local.filter(|_| self.needs_local_address()),
        }
    }

    fn control(&mut self, path: &ClientPath, datagram: &[u8], now: Timestamp) {
        let Self { route, forwarder, outbox, .. } = self;
        Control { route, forwarder, outbox, path, now }.receive(datagram);
    }

    fn forward(&mut self, path: &ClientPath, batch: GsoBatch<'_>, now: Timestamp) {
        let metrics = self.route.metrics();
        if self.route.is_stream_only() {
            // There is no server that could be asked about the stream.
            metrics.add(Metric::StreamRefused, GsoBatch::count(&[batch]));
            return;
        }
        let session = match self.place(path, now, |_| vec![batch]) {
            Place::There | Place::Unproven => return,
            Place::Here(Some(session)) => Some(session),
            Place::Here(None) if batch.datagrams().all(is_probe) => return,
            Place::Here(None) => self.session_of_unknown(path, batch, now),
        };
        if let Some(session) = session {
            self.pass(&session, &[batch], now);
        }
    }

    /// The place of datagrams that are no control datagrams. `datagrams`: called with true
    /// if they go to another gateway that has found the client here, with false if they wait for
    /// that.
    fn place<'a>(
        &mut self,
        path: &ClientPath,
        now: Timestamp,
        datagrams: impl Fn(bool) -> Vec<GsoBatch<'a>>,
    ) -> Place {
        let session = self.forwarder.find(&self.route, path, now);
        let Some(relay) = session.as_ref().filter(|session| session.is_relay()) else {
            return Place::Here(session);
        };
        if relay.server_side.is_unproven_relay() {
            if self.keep(path, &datagrams(false), now) {
                if !relay.server_side.is_unproven_relay() {
                    // The other gateway has just found the client; no other event would end the
                    // wait.
                    self.forwarder.claim_pending(&self.route, relay);
                }
                return Place::Unproven;
            }
            self.forwarder.end_wait_in_vain(&self.route, path.network(), Some(relay));
            if !relay.is_relay() {
                return Place::Here(session);
            }
        }
        self.forwarder.send_to_server(relay, &datagrams(true));
        Place::There
    }

    /// Lets datagrams wait that may belong to a client that has moved. False if there is no room.
    fn keep(&mut self, path: &ClientPath, batches: &[GsoBatch<'_>], now: Timestamp) -> bool {
        let route = &self.route;
        let Disposition::Pending(first) = route.pending.add(path, batches, now) else {
            return false;
        };
        route.metrics().add(Metric::DatagramsWaited, GsoBatch::count(batches));
        if let Some(until) = first {
            self.forwarder.plan_path_check(route, path.network(), until);
            route.context.log(Event::ClientWaiting, || {
                let logger = &route.context.environment.logger;
                [("client", logger.client(path.client.get()))]
            });
        }
        true
    }

    /// Datagrams of the base connection go to the session's server; the flow is informed if it
    /// follows them.
    fn pass(&mut self, session: &Arc<Session>, batches: &[GsoBatch<'_>], now: Timestamp) {
        session.look_at_received(batches);
        if session.is_heard() {
            session.assist(|flow| {
                for datagram in batches.iter().flat_map(|batch| batch.datagrams()) {
                    flow.hear(datagram, now);
                }
            });
        }
        self.forwarder.send_to_server(session, batches);
    }

    /// The session for datagrams of a path that has none yet; `None` while they wait, and when it
    /// is refused.
    fn session_of_unknown(
        &mut self,
        path: &ClientPath,
        batch: GsoBatch<'_>,
        now: Timestamp,
    ) -> Option<Arc<Session>> {
        let route = &self.route;
        let expects_clients = !route.sessions.assisted.is_empty()
            || (route.pending.expects_arrivals(now)
                && route.context.settings().expects_clients_of_others());
        let may_have_moved =
            expects_clients && batch.datagrams().next().is_some_and(may_have_moved);
        let first = batch.datagrams().next();
        if may_have_moved && self.keep(path, &[batch], now) {
            return None;
        }
        self.forwarder.open(&self.route, path, None, first, now)
    }
}

/// True if a datagram only asks whether the gateway is there: a single byte of the range that no
/// protocol beside QUIC uses (RFC 9443, section 2), which neither needs nor gets a session.
fn is_probe(datagram: &[u8]) -> bool {
    matches!(datagram, [byte] if PROBE_BYTES.contains(byte))
}
