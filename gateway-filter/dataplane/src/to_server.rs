//! Forwarding to the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::dataplane::Environment;
use crate::log::Event;
use crate::metrics::Metric;
use crate::session::Session;
use crate::socket::{Ecn, Piece, Sender, send_connected};

/// Forwards what the client of `session` has sent. Never blocks, never fails: what cannot be forwarded is counted.
pub(crate) fn forward_to_server(
    environment: &Environment,
    session: &Arc<Session>,
    sender: &mut Sender,
    pieces: &[Piece<'_>],
) {
    let upstream = session.upstream();
    session.note_question(environment);
    let report = match pieces {
        [piece] if piece.ecn == Ecn::NOT_CAPABLE && piece.data.len() <= piece.segment_size => {
            send_connected(upstream.socket(), piece.data)
        }
        _ => sender.send(upstream.socket(), &upstream.offload, &upstream.destination(), pieces),
    };
    let metrics = session.route.metrics();
    metrics.add(Metric::UpstreamDatagrams, report.datagrams);
    metrics.add(Metric::UpstreamBytes, report.bytes);
    metrics.add(Metric::UpstreamDropped, report.dropped);
    metrics.add(Metric::TooLarge, report.too_large);
    metrics.add(Metric::UpstreamErrors, report.icmp_errors);
    session.totals.to_server_datagrams.fetch_add(report.datagrams, Ordering::Relaxed);
    session.totals.to_server_bytes.fetch_add(report.bytes, Ordering::Relaxed);
    if report.icmp_errors > 0 || report.error.is_some() {
        let error = report.error.map_or_else(|| "the endpoint refuses".to_owned(), |error| error.to_string());
        session.log(environment, Event::UpstreamError, || {
            [("endpoint", upstream.endpoint().to_string().into()), ("error", error.into())]
        });
        session.note_unreachable(environment);
    }
}
