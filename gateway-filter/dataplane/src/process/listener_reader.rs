//! Reading clients' datagrams from one listener.

use std::io;
use std::sync::Arc;

use packrat_wire::estimate::Timestamp;

use crate::listener::{Ingress, MESSAGES_PER_RECEIVE, RECEIVES_PER_TURN, ReadCoalescing};
use crate::metrics::Metric;
use crate::socket::{Message, Poller, ReceiveBatch, Slot};

/// A listener that an I/O thread reads.
#[derive(Debug)]
pub(super) struct ListenerReader {
    pub(super) ingress: Ingress,
    pub(super) coalescing: ReadCoalescing,
}

/// The listener's socket is gone.
#[derive(Debug)]
pub(super) struct Gone;

/// The end of a turn at a listener.
struct Turn {
    /// Messages that were read.
    messages: usize,
    /// True if there may be more.
    has_more: bool,
}

impl ListenerReader {
    pub(super) fn new(ingress: Ingress) -> Self {
        Self { ingress, coalescing: ReadCoalescing::default() }
    }

    pub(super) fn slot(&self) -> &Arc<Slot> {
        &self.ingress.slot
    }

    /// Forwards clients' datagrams, and lets the poller wake the thread for this listener, or not,
    /// as [`ReadCoalescing`] wants it. `report` is called with errors.
    pub(super) fn read(
        &mut self,
        poller: &Poller,
        number: u64,
        received: &mut ReceiveBatch,
        now: impl FnOnce() -> Timestamp,
        report: impl Fn(&'static str, &io::Error),
    ) -> Result<(), Gone> {
        let turn = self.forward(received, &report).ok_or(Gone)?;
        if !self.coalescing.note(turn.messages, turn.has_more, now()) {
            return Ok(());
        }
        let is_watched = !self.coalescing.is_on();
        let watched =
            self.slot().with(|downstream| poller.watch(downstream.socket(), number, is_watched));
        if let Some(Err(error)) = watched {
            report("a listener cannot be watched", &error);
        }
        Ok(())
    }

    /// Reads clients' datagrams and forwards them; `None` when the socket is gone.
    fn forward(
        &mut self,
        received: &mut ReceiveBatch,
        report: impl Fn(&'static str, &io::Error),
    ) -> Option<Turn> {
        let slot = Arc::clone(self.slot());
        let mut messages = 0;
        for _ in 0..RECEIVES_PER_TURN {
            if let Err(error) = slot.with(|downstream| received.receive(downstream.socket()))? {
                if error.kind() != io::ErrorKind::WouldBlock {
                    report("receiving from clients failed", &error);
                }
                return Some(Turn { messages, has_more: false });
            }
            messages += received.messages().len();
            self.forward_runs(received);
            if !received.was_filled() {
                return Some(Turn { messages, has_more: false });
            }
        }
        Some(Turn { messages, has_more: true })
    }

    /// Forwards what one client has sent in a row with one call.
    fn forward_runs(&mut self, received: &ReceiveBatch) {
        let mut messages = received.messages().peekable();
        let mut run = Vec::with_capacity(MESSAGES_PER_RECEIVE);
        while let Some(message) = messages.next() {
            let Some(client) = message.source else { continue };
            if message.truncated {
                self.ingress.route().metrics().add(Metric::Truncated, 1);
                continue;
            }
            run.push(message.batch());
            let goes_on = |next: &Message<'_>| {
                next.source == message.source && next.local == message.local && !next.truncated
            };
            if !messages.peek().is_some_and(goes_on) {
                self.ingress.receive_run(client, message.local, &run);
                run.clear();
            }
        }
    }
}
