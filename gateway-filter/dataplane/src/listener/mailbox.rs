//! The way to the I/O threads.

use std::io;
use std::sync::Arc;

use packrat_engine::NetworkPath;
use packrat_wire::estimate::Timestamp;

use super::put_off::PutOff;
use crate::route::{Route, StreamChange};
use crate::session::Session;
use crate::socket::{Poller, Slot};
use crate::sync::Mutex;

/// An order to an I/O thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Read the upstream socket of this new session of the route.
    Open(Arc<Route>, Arc<Session>),
    /// Read the upstream socket that the session has now instead of its former one.
    Reconnect(Arc<Session>),
    /// Call the engine earlier than planned.
    Deadline(Arc<Session>),
    /// Close the session, which was taken out of the table: another client is at its address.
    Close(Arc<Session>),
    /// Read clients' datagrams from the listener of this slot.
    Listen(Arc<Route>, Arc<Slot>),
    /// Check this path at this time: its datagrams may have waited long enough, or the other
    /// gateways may have left a question about it unanswered.
    CheckPath(Arc<Route>, NetworkPath, Timestamp),
    /// Answer this handshake when there is time.
    PutOff(PutOff),
    /// Let every session take over the changed configuration of its route now.
    FollowRoutes,
    /// Read a stream, or do not read it any more.
    Stream(StreamChange),
    /// Try at this time to open the sockets of the route's stream again.
    RetryStream(Arc<Route>, Timestamp),
    /// End all sessions and the thread.
    Stop,
}

/// The commands for one I/O thread, and the poller that wakes it for them.
#[derive(Debug)]
pub(crate) struct Mailbox {
    commands: Mutex<Vec<Command>>,
    pub(crate) poller: Poller,
}

impl Mailbox {
    fn new() -> io::Result<Self> {
        Ok(Self { commands: Mutex::default(), poller: Poller::new()? })
    }

    pub(crate) fn post(&self, command: Command) {
        self.commands.lock().push(command);
        self.poller.wake();
    }

    pub(crate) fn take(&self) -> Vec<Command> {
        std::mem::take(&mut *self.commands.lock())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.commands.lock().is_empty()
    }
}

/// The mailboxes of all workers.
#[derive(Debug)]
pub(crate) struct Mailboxes(Vec<Mailbox>);

impl Mailboxes {
    /// Mailboxes for at least one worker; the error names the worker.
    pub(crate) fn new(workers: usize) -> Result<Self, (usize, io::Error)> {
        let mailbox = |worker| Mailbox::new().map_err(|error| (worker, error));
        Ok(Self((0..workers.max(1)).map(mailbox).collect::<Result<_, _>>()?))
    }

    /// The number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn of(&self, worker: usize) -> Option<&Mailbox> {
        // A worker that does not exist can come from a shell only; its sessions are served by one
        // that does.
        self.0.get(worker % self.0.len().max(1))
    }

    pub(crate) fn post(&self, worker: usize, command: Command) {
        if let Some(mailbox) = self.of(worker) {
            mailbox.post(command);
        }
    }

    pub(crate) fn post_to_all(&self, command: impl Fn() -> Command) {
        self.0.iter().for_each(|mailbox| mailbox.post(command()));
    }

    /// Lets the session's I/O thread read the upstream socket that the session has now.
    pub(crate) fn reconnect(&self, session: &Arc<Session>) {
        self.post(session.worker, Command::Reconnect(Arc::clone(session)));
    }

    /// Lets the session's I/O thread look at it at `deadline`, when it would do so later only.
    pub(crate) fn request_deadline(&self, session: &Arc<Session>, deadline: Option<Timestamp>) {
        if session.wants_earlier_look(deadline) {
            self.post(session.worker, Command::Deadline(Arc::clone(session)));
        }
    }

    /// Lets the I/O threads read the route's stream as it is configured, while it has listeners.
    pub(crate) fn follow_stream(&self, route: &Arc<Route>) {
        self.plan_retry(route, route.follow_stream(|change| self.change_stream(change)));
    }

    /// Tries again to open the sockets of the route's stream, as was `planned` for now.
    pub(crate) fn retry_stream(&self, route: &Arc<Route>, planned: Timestamp) {
        self.plan_retry(route, route.retry_stream(planned, |change| self.change_stream(change)));
    }

    fn change_stream(&self, change: StreamChange) {
        self.post(change.worker(), Command::Stream(change));
    }

    fn plan_retry(&self, route: &Arc<Route>, at: Option<Timestamp>) {
        if let Some(at) = at {
            self.post(0, Command::RetryStream(Arc::clone(route), at));
        }
    }
}
