//! Outbox of a stream: datagrams and their targets.

use std::net::SocketAddr;

use crate::outbox::Outbox;

/// Target of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To one subscriber.
    One(SocketAddr),
    /// To all of them at once.
    Group,
}

/// Datagrams of a stream that are not the stream itself: repairs, control. Reused between calls;
/// the caller drains it.
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

    /// Each datagram, in order, and where it goes.
    pub fn datagrams(&self) -> impl Iterator<Item = (Target, &[u8])> {
        self.targets.iter().copied().zip(self.inner.datagrams())
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.inner.clear();
        self.targets.clear();
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
