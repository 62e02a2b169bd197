//! The way of servers' datagrams: upstream socket, engine, the listener's socket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use packrat_wire::estimate::Timestamp;
use packrat_wire::peer::{PeerKind, PeerMessage, is_peer};

use super::forwarder::Forwarder;
use super::gathered::{may_wait, send};
use super::numbering::Numbers;
use crate::log::Event;
use crate::metrics::{Metric, Stopwatch};
use crate::route::Route;
use crate::session::{Session, Upstream};
use crate::socket::{Ecn, GsoBatch, ReceiveBatch};

/// Messages (each up to 64 KiB of datagrams) that one receive call takes.
pub(crate) const MESSAGES_PER_RECEIVE: usize = 32;
/// Receive calls for one socket before the others get their turn.
pub(crate) const RECEIVES_PER_TURN: usize = 4;
/// Errors of one socket that are taken in one turn.
const ERRORS_PER_TURN: usize = 8;

/// Reads what the server of `session` has sent, records it for repair, and forwards it to the
/// client. `relaying`: the session's route, if the other end is no server but another gateway. Returns
/// the time at which the engine wants to be called, as far as it is known.
pub(crate) fn forward_to_client(
    forwarder: &mut Forwarder,
    received: &mut ReceiveBatch,
    relaying: Option<&Route>,
    session: &Arc<Session>,
    upstream: &Upstream,
) -> Option<Timestamp> {
    let metrics = &session.route.metrics;
    let mut errors = 0;
    let mut turns = 0;
    let mut deadline = None;
    while turns < RECEIVES_PER_TURN {
        if let Err(error) = received.receive(upstream.socket()) {
            if error.kind() == io::ErrorKind::WouldBlock {
                break;
            }
            note_error(forwarder, session, upstream, &error);
            errors += 1;
            if errors >= ERRORS_PER_TURN {
                break;
            }
            continue;
        }
        turns += 1;
        let mut batches = Vec::with_capacity(MESSAGES_PER_RECEIVE);
        for message in received.messages() {
            if message.truncated {
                metrics.add(Metric::Truncated, 1);
                continue;
            }
            session.remember_ecn(message.ecn);
            batches.push(message.batch());
        }
        if let Some(route) = relaying {
            batches = take_peer_messages(forwarder, route, session, batches);
        }
        deadline = if may_wait(&batches) && session.successor().is_none() && !session.is_displaced()
        {
            let (deadline, numbers) = record(session, &batches);
            let datagram = batches.first().copied();
            if let Some(datagram) = datagram {
                let Forwarder { gathered, sender, .. } = &mut *forwarder;
                gathered.gather(sender, session, datagram, numbers.only());
            }
            deadline
        } else {
            forwarder.send_gathered();
            pass_on(forwarder, session, &batches)
        };
        if !received.was_filled() {
            break;
        }
    }
    deadline
}

/// Takes what another gateway has to say from what it sends to the client; returns the rest.
pub(crate) fn take_peer_messages<'a>(
    forwarder: &mut Forwarder,
    route: &Route,
    session: &Arc<Session>,
    batches: Vec<GsoBatch<'a>>,
) -> Vec<GsoBatch<'a>> {
    let all = || batches.iter().flat_map(|batch| batch.datagrams());
    let Some(message) = all().find(|datagram| is_peer(datagram)) else { return batches };
    let message = session.route.engine.peer_message(message);
    // Datagrams that wait at the path of a relay that another session has displaced may be another
    // client's.
    let is_there =
        || route.sessions.peek(session.network()).is_some_and(|there| Arc::ptr_eq(&there, session));
    if let Some(PeerMessage { kind: PeerKind::Moved, nonce, session: id }) = message
        && is_there()
    {
        session.server_side.prove_relay((nonce, id));
        if !session.server_side.is_unproven_relay() {
            forwarder.claim_pending(route, session);
        }
    }
    let single = |batch: GsoBatch<'a>| {
        batch.datagrams().map(move |datagram| GsoBatch::single(datagram, batch.ecn))
    };
    batches.into_iter().flat_map(single).filter(|batch| !is_peer(batch.data)).collect()
}

/// Records what the server of `session` has sent, and forwards it to the client. Returns the time at
/// which the engine wants to be called, as far as it is known.
pub(crate) fn pass_on(
    forwarder: &mut Forwarder,
    session: &Arc<Session>,
    batches: &[GsoBatch<'_>],
) -> Option<Timestamp> {
    // The client's next datagram shows the server the other socket.
    if let Some(successor) = session.successor() {
        let now = session.route.environment.now();
        session.touch(now);
        session.note_answer(now);
        let deadline = pass_on(forwarder, &successor, batches);
        forwarder.mailboxes.request_deadline(&successor, deadline);
        return None;
    }
    let (deadline, numbers) = record(session, batches);
    if numbers.is_empty() {
        send(&mut forwarder.sender, session, batches);
    } else {
        send(&mut forwarder.sender, session, &numbers.in_front_of(batches));
    }
    deadline
}

/// Records the datagrams of the server of `session` before they are sent on: an eACK for them may
/// arrive on another thread at any time. Returns the time at which the engine wants to be called,
/// if it is known, and the numbers to put in front of the datagrams.
fn record(session: &Arc<Session>, batches: &[GsoBatch<'_>]) -> (Option<Timestamp>, Numbers) {
    let metrics = &session.route.metrics;
    let now = session.route.environment.now();
    session.touch(now);
    session.note_answer(now);
    session.look_at_sent(batches);
    let mut numbers = Numbers::default();
    // The other gateway counts it.
    if !session.is_relay() {
        session.transfer.note(now);
    }
    if !session.is_followed() {
        return (None, numbers);
    }
    let stopwatch = Stopwatch::start();
    let bytes: usize = batches.iter().map(|batch| batch.data.len()).sum();
    let deadline = session.assist(|flow| {
        flow.expect(bytes);
        if let Some(microseconds) = session.server_side.far_round_trip() {
            flow.on_server_answered(Duration::from_micros(microseconds));
        }
        for batch in batches {
            let congested = batch.ecn == Ecn::CONGESTION;
            for datagram in batch.datagrams() {
                numbers.push(flow.forward_marked(datagram, congested, now));
            }
        }
        flow.next_timeout()
    });
    metrics.add(Metric::ForwardNanoseconds, stopwatch.nanoseconds());
    (deadline.flatten(), numbers)
}

/// Counts an error that the upstream socket has reported; a server that is not configured any more
/// is left.
fn note_error(
    forwarder: &Forwarder,
    session: &Arc<Session>,
    upstream: &Upstream,
    error: &io::Error,
) {
    session.route.metrics.add(Metric::UpstreamErrors, 1);
    session.log(Event::UpstreamError, || {
        [("endpoint", upstream.endpoint().to_string().into()), ("error", error.to_string().into())]
    });
    if session.note_unreachable() {
        forwarder.mailboxes.reconnect(session);
    }
}
