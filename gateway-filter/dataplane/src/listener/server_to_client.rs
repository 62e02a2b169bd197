//! The way of what servers send: upstream socket, engine, the listener's socket.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use packrat_wire::estimate::Timestamp;

use super::forwarder::Forwarder;
use super::numbering::Numbers;
use crate::log::Event;
use crate::metrics::{Distribution, Metric, Stopwatch};
use crate::session::{Session, Upstream};
use crate::socket::{GsoBatch, ReceiveBatch, WhenFull};

/// Messages (each up to 64 KiB of datagrams) that one receive call takes.
pub(crate) const MESSAGES_PER_RECEIVE: usize = 32;
/// Receive calls for one socket before the others get their turn.
pub(crate) const RECEIVES_PER_TURN: usize = 4;
/// Errors of one socket that are taken in one turn.
const ERRORS_PER_TURN: usize = 8;

/// Reads what the server of `session` has sent, records it for repair, and forwards it to the
/// client. Returns the time at which the engine wants to be called, as far as it is known.
pub(crate) fn forward_to_client(
    forwarder: &mut Forwarder,
    received: &mut ReceiveBatch,
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
        deadline = pass_on(forwarder, session, &batches);
        if !received.was_filled() {
            break;
        }
    }
    deadline
}

/// Records what the server of `session` has sent, and forwards it to the client. Returns the time at
/// which the engine wants to be called, as far as it is known.
pub(crate) fn pass_on(
    forwarder: &mut Forwarder,
    session: &Arc<Session>,
    batches: &[GsoBatch<'_>],
) -> Option<Timestamp> {
    let metrics = &session.route.metrics;
    let now = session.route.environment.now();
    session.touch(now);
    session.note_answer(now);
    // The client's next datagram tells the server of the other socket.
    if let Some(successor) = session.successor() {
        let deadline = pass_on(forwarder, &successor, batches);
        forwarder.mailboxes.request_deadline(&successor, deadline);
        return None;
    }
    session.transfer.note(now);
    // The engine first: an eACK for these datagrams may arrive on another thread while they are
    // being sent.
    let mut deadline = None;
    let mut numbers = Numbers::default();
    if session.is_followed() {
        let stopwatch = Stopwatch::start();
        let bytes: usize = batches.iter().map(|batch| batch.data.len()).sum();
        deadline = session.assist(|flow| {
            flow.expect(bytes);
            for datagram in batches.iter().flat_map(|batch| batch.datagrams()) {
                numbers.push(flow.forward(datagram, now));
            }
            flow.next_timeout()
        });
        metrics.add(Metric::ForwardNanoseconds, stopwatch.nanoseconds());
    }
    let report = if numbers.is_empty() {
        session.send_to_client(&mut forwarder.sender, batches, WhenFull::Wait)
    } else {
        let numbered = numbers.in_front_of(batches);
        session.send_to_client(&mut forwarder.sender, &numbered, WhenFull::Wait)
    };
    if let Some(length) = report.number_refused {
        session.assist(|flow| flow.refuse_numbers(length));
    }
    metrics.add(Metric::DownstreamDatagrams, report.datagrams);
    metrics.add(Metric::DownstreamBytes, report.bytes);
    if report.datagrams > 0 {
        metrics.record(Distribution::Batch, report.datagrams);
    }
    session.totals.to_client_datagrams.fetch_add(report.datagrams, Ordering::Relaxed);
    session.totals.to_client_bytes.fetch_add(report.bytes, Ordering::Relaxed);
    deadline.flatten()
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
