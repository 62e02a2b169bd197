//! Outbox of a stream: datagrams and their targets, and events of observed subscribers.

use std::net::SocketAddr;

use super::subscriber::Subscriber;
use crate::event::Event;
use crate::outbox::Outbox;
use crate::session_event::SessionEvent;

/// Target of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To one subscriber.
    One(SocketAddr),
    /// To all of them at once.
    Group,
}

/// Datagrams of a stream beside the stream itself: repairs, control; and events of observed
/// subscribers. Reused between calls; the caller drains it.
#[derive(Debug, Default)]
pub struct StreamOutbox {
    inner: Outbox,
    targets: Vec<Target>,
}

impl StreamOutbox {
    /// An empty outbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Each datagram, in order, and its target.
    pub fn datagrams(&self) -> impl Iterator<Item = (Target, &[u8])> {
        self.targets.iter().copied().zip(self.inner.datagrams())
    }

    /// Takes the events that happened.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.inner.take_events()
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.inner.clear();
        self.targets.clear();
    }

    /// Reports an event of a subscriber's session, if it is observed.
    #[inline]
    pub(super) fn tell(&mut self, subscriber: &Subscriber, event: impl FnOnce() -> SessionEvent) {
        if subscriber.observed {
            let session = subscriber.channel.session();
            self.inner.event(Event::Session { session, event: event() });
        }
    }

    /// For datagrams whose address follows with [`Self::address`].
    pub(super) fn for_one(&mut self) -> &mut Outbox {
        &mut self.inner
    }

    /// Whatever has no address yet goes there.
    pub(super) fn address(&mut self, to: SocketAddr) {
        self.targets.resize(self.inner.datagrams().count(), Target::One(to));
    }

    /// Everything before must have its address.
    pub(super) fn send(&mut self, target: Target, write: impl FnOnce(&mut Vec<u8>)) {
        self.inner.send(write);
        self.targets.resize(self.inner.datagrams().count(), target);
    }
}
