//! The engine at work for a session: calls of it, and their results.

use std::sync::Arc;

use packrat_engine::{Flow, Outbox};
use packrat_wire::estimate::Timestamp;

use super::deadlines::look_at;
use super::engine_events;
use super::state::Session;
use super::transfer::Losses;
use crate::metrics::Metric;
use crate::socket::{Sender, WhenFull};
use crate::sync::atomic::Ordering;

impl Session {
    /// True if the engine wants to see datagrams to the client: it records them, or sends some of
    /// them twice.
    pub(crate) fn is_followed(&self) -> bool {
        self.engine_side.records() || self.has_sparse_copies()
    }

    /// True if the engine wants to see datagrams from the client.
    pub(crate) fn is_heard(&self) -> bool {
        self.has_sparse_copies() && !self.is_assisted()
    }

    fn has_sparse_copies(&self) -> bool {
        self.engine_side.has_sparse_copies() && !self.is_relay()
    }

    /// Calls the engine for this session, and keeps the index of assisted sessions up to date;
    /// `None` after a fault in it, or when the session has ended.
    pub(crate) fn assist<R>(self: &Arc<Self>, action: impl FnOnce(&mut Flow) -> R) -> Option<R> {
        let (result, rescued) = self.engine_side.assist(self, &self.route, &self.transfer, action);
        self.forward_rescued(rescued);
        result
    }

    /// Calls the engine for this session for the last time.
    pub(crate) fn end_assistance(self: &Arc<Self>, action: impl FnOnce(&mut Flow)) {
        let rescued = self.engine_side.end(self, &self.route, &self.transfer, action);
        self.forward_rescued(rescued);
    }

    /// Forwards the datagrams that have waited in a flow that has failed.
    fn forward_rescued(&self, rescued: Option<Box<Outbox>>) {
        let Some(rescued) = rescued else { return };
        let (upstream, sender) = (self.upstream(), Sender::default());
        for (datagram, _) in rescued.datagrams_to_server() {
            let report = sender.send_connected(upstream.socket(), datagram);
            self.route.metrics.add(Metric::UpstreamDatagrams, report.datagrams);
            self.route.metrics.add(Metric::UpstreamBytes, report.bytes);
            self.route.metrics.add(Metric::UpstreamDropped, report.dropped);
            self.totals.to_server_datagrams.fetch_add(report.datagrams, Ordering::Relaxed);
            self.totals.to_server_bytes.fetch_add(report.bytes, Ordering::Relaxed);
        }
    }

    /// True if the engine wants to be called before the I/O thread looks at this session anyway:
    /// then the thread has to be notified.
    pub(crate) fn wants_earlier_look(&self, deadline: Option<Timestamp>) -> bool {
        deadline.is_some_and(|deadline| {
            // The clock is read only if it may decide.
            self.armed.is_later_than(deadline)
                && self.armed.is_later_than(look_at(deadline, self.route.environment.now()))
        })
    }

    /// Sends what the engine has for the client: control datagrams and repairs.
    pub(crate) fn send_outbox(
        &self,
        sender: &mut Sender,
        outbox: &mut Outbox,
        when_full: WhenFull,
    ) {
        let ecn = self.ecn();
        if !self.is_displaced() {
            let repairs = self.path().send_outbox(&self.route, sender, outbox, ecn, when_full);
            // Without a session, only copies of a sparse flow's datagrams are sent again.
            if self.is_assisted() {
                self.totals.repairs.fetch_add(repairs, Ordering::Relaxed);
            }
        }
        self.record_events(outbox);
        outbox.clear();
    }

    /// Writes the engine's events to the log, and its measurements to the metrics.
    pub(crate) fn record_events(&self, outbox: &mut Outbox) {
        if !engine_events::record(&self.route, self.id, self, outbox) {
            self.engine_side.observe(false);
        }
    }

    /// The last mile's losses, as the client has reported them.
    pub(crate) fn losses(&self) -> Losses {
        let (counters, ..) = self.engine_side.figures(&self.route);
        Losses {
            recorded: counters.datagrams_recorded,
            missing: counters.datagrams_missing,
            repaired: counters.repairs_arrived,
        }
    }
}
