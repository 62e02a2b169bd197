//! The live streams that an I/O thread reads.

use std::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::IoThread;
use crate::listener::Mailbox;
use crate::route::StreamChange;

/// Time until a stream without subscribers is looked at again.
const STREAM_INTERVAL: Duration = Duration::from_secs(1);

impl IoThread {
    pub(super) fn change_stream(&mut self, mailbox: &Mailbox, change: StreamChange) {
        match change {
            StreamChange::Open(stream, upstream) => {
                match mailbox.poller.add(upstream.socket(), upstream.number) {
                    Ok(()) => {
                        self.streams.insert(upstream.number, (stream, upstream));
                    }
                    Err(error) => self.report("a stream cannot be watched", &error),
                }
            }
            StreamChange::Close(upstream) => {
                if self.streams.remove(&upstream.number).is_some()
                    && let Err(error) = mailbox.poller.remove(upstream.socket(), upstream.number)
                {
                    self.report("a stream's socket could not be given back", &error);
                }
            }
        }
    }

    /// Tries again to open the sockets of streams, if it is time.
    pub(super) fn retry_streams(&mut self) {
        if self.stream_retries.is_empty() {
            return;
        }
        let now = self.environment.now();
        let (due, later): (Vec<_>, Vec<_>) =
            self.stream_retries.drain(..).partition(|(at, _)| *at <= now);
        self.stream_retries = later;
        for (planned, route) in due {
            self.forwarder.mailboxes.retry_stream(&route, planned);
        }
    }

    /// Lets the streams look at their subscribers when it is time; returns the next time.
    pub(super) fn run_streams(&mut self) -> Option<Timestamp> {
        let now = self.environment.now();
        let mut next = None;
        for (stream, _) in self.streams.values() {
            stream.handle_timeout(&mut self.forwarder.sender, now);
            next = stream.next_timeout().into_iter().chain(next).min();
        }
        // Another thread may get a subscriber while this one sleeps.
        if self.streams.is_empty() { None } else { next.or(Some(now + STREAM_INTERVAL)) }
    }
}
