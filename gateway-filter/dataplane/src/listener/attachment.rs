//! The sockets that a shell lends the data plane.

use std::collections::HashSet;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use super::mailbox::{Command, Mailboxes};
use super::steering::Steering;
use crate::context::Environment;
use crate::log::Event;
use crate::route::Route;
use crate::socket::{Descriptors, ListenerAddress, Reader, Slot};

/// The state that the listeners of all routes share.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) mailboxes: Arc<Mailboxes>,
    descriptors: Descriptors,
    steering: Arc<Steering>,
}

impl Listeners {
    pub(crate) fn new(environment: &Arc<Environment>, mailboxes: Arc<Mailboxes>) -> Self {
        let steering = Steering::new(Arc::clone(environment), mailboxes.workers());
        Self { mailboxes, descriptors: Descriptors::default(), steering: Arc::new(steering) }
    }
}

/// Ownership of a filled slot. Dropping it closes the socket, unless a newer owner has replaced it
/// already.
#[derive(Debug)]
pub struct Attachment {
    listeners: Arc<Listeners>,
    route: Arc<Route>,
    pub(crate) slot: Arc<Slot>,
    owner: u64,
    worker: usize,
}

impl Attachment {
    /// Fills the slot of (`route`, `listener`, `worker`) with what `open` returns, and has it read.
    /// `open` is given the descriptors of all filled slots of the process.
    pub(crate) fn new(
        listeners: &Arc<Listeners>,
        route: &Arc<Route>,
        listener: ListenerAddress,
        worker: usize,
        reader: Reader,
        open: impl FnOnce(&HashSet<RawFd>) -> io::Result<OwnedFd>,
    ) -> io::Result<Self> {
        let Listeners { mailboxes, descriptors, steering } = &**listeners;
        let slot = route.slot(listener, worker);
        route.context.environment.source_ports.exclude(listener.get().port());
        let owner = route.context.environment.next_number();
        let filled = slot.fill(descriptors, owner, reader, open)?;
        if let Some(error) = filled.refused {
            steering.note_refused(listener, &error);
        }
        route.context.log(Event::ListenerAttached, || {
            [("listener", listener.to_string().into()), ("worker", worker.into())]
        });
        // A stream arrives as long as there are listeners to send it from.
        mailboxes.follow_stream(route);
        if filled.is_newly_read_here {
            mailboxes.post(worker, Command::Listen(Arc::clone(route), Arc::clone(&slot)));
            if reader == Reader::Both {
                steering.join(&slot);
            }
        }
        Ok(Self { listeners: Arc::clone(listeners), route: Arc::clone(route), slot, owner, worker })
    }

    /// Notes that the shell has read a datagram itself. If the gateway reads beside it, that is
    /// unexpected, and the kernel's steering is set up again.
    pub fn note_read_elsewhere(&self) {
        if self.slot.is_read_here() {
            self.listeners.steering.note_stray(self.slot.listener());
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if !self.slot.release(&self.listeners.descriptors, self.owner) {
            return;
        }
        self.listeners.mailboxes.follow_stream(&self.route);
        self.route.context.log(Event::ListenerReleased, || {
            [("listener", self.slot.listener().to_string().into()), ("worker", self.worker.into())]
        });
    }
}
