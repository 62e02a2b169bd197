//! State of one path: its remote address and its shim.

use crate::host::Host;
use crate::released::ReleasedDatagrams;
use packrat_client::{
    AssistStats, GuardedShim, Health, Input, LossMemory, Shim, ShimStats, SourceAddress, Token,
    Verdict, bears_mark,
};
use packrat_wire::estimate::Timestamp;
use packrat_wire::number::NumberHeader;
use packrat_wire::{is_control, number};
use s2n_quic::connection::Handle;
use s2n_quic_core::inet::ExplicitCongestionNotification;
use s2n_quic_core::inet::datagram::Header;
use s2n_quic_core::path::Tuple;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Beside each datagram: both addresses, and its ECN codepoint.
pub(crate) type Metadata = Header<Tuple>;

/// The shim of a path.
pub(crate) type PathShim = Shim<Metadata>;
/// A shim whose failures cannot harm the connection.
pub(crate) type Guarded = GuardedShim<Metadata>;

/// One assisted path: an endpoint's port and a remote address. Shared by the I/O provider (which
/// runs inside s2n-quic's endpoint), the driver task and the application's handles.
#[derive(Debug)]
pub(crate) struct AssistedPath {
    remote: SocketAddr,
    host: Arc<dyn Host>,
    /// The way of held datagrams to s2n-quic's endpoint.
    released: ReleasedDatagrams,
    /// Memory of the last miles of this client.
    memory: Arc<LossMemory>,
    state: Mutex<State>,
    /// Wakes the driver when its timer is too late.
    pub(crate) wake: Notify,
}

#[derive(Debug)]
struct State {
    shim: Guarded,
    /// The ECN codepoint of s2n-quic's last datagram.
    ecn: ExplicitCongestionNotification,
    source: SourceAddress,
    /// Time at which the driver will wake by itself.
    armed: Option<Timestamp>,
    closed: bool,
    /// The first question for a gateway has not left.
    begins: bool,
    /// The connections whose handles of assistance the application has: only they can be made to
    /// send something.
    connections: Vec<(u64, Handle)>,
    counters: ShellCounters,
}

/// Counters of the shell itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ShellCounters {
    pub(crate) base_received: u64,
    pub(crate) control_received: u64,
    pub(crate) control_sent: u64,
    pub(crate) control_send_failures: u64,
}

/// The way of a datagram that s2n-quic sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The datagram leaves now, with this number in front.
    Now(Option<NumberHeader>),
    /// The datagram leaves with others, and not through s2n-quic's queue.
    WithOthers,
}

/// The driver's next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Call again at this time at the latest; `None`: when woken.
    Until(Option<Timestamp>),
    /// Make s2n-quic send something, and call again.
    Remind,
    /// The path has ended; no timer will fire.
    Ended,
}

impl AssistedPath {
    /// A path without traffic so far.
    pub(crate) fn new(
        remote: SocketAddr,
        host: Arc<dyn Host>,
        shim: Guarded,
        released: ReleasedDatagrams,
        memory: Arc<LossMemory>,
    ) -> Self {
        let state = State {
            shim,
            ecn: ExplicitCongestionNotification::NotEct,
            source: SourceAddress::default(),
            armed: None,
            closed: false,
            begins: true,
            connections: Vec::new(),
            counters: ShellCounters::default(),
        };
        Self { remote, host, released, memory, state: Mutex::new(state), wake: Notify::new() }
    }

    /// No code of ours panics while it holds the lock (the shim is guarded), so a poisoned lock is
    /// still consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of the server, or of the gateway in front of it.
    pub(crate) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Host of the path.
    pub(crate) fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// True if another connection can share it.
    pub(crate) fn is_usable(&self) -> bool {
        let state = self.lock();
        !state.closed && state.shim.health() != Health::Failed
    }

    /// True if assistance has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Processes a UDP payload from the remote address. If s2n-quic receives the datagram now,
    /// returns the number of leading bytes that are not s2n-quic's; datagrams for delivery behind
    /// it are in the queue of released datagrams.
    pub(crate) fn arrive(&self, datagram: &[u8], metadata: Metadata) -> Option<usize> {
        let now = self.host.now();
        let state = &mut *self.lock();
        let verdict = state.shim.on_datagram(datagram, metadata, now);
        // Also before this shim's session: a gateway numbers until it knows that the one before is gone.
        let base = number::split(datagram).map_or(datagram, |(_, base)| base);
        if is_control(base) && verdict == Verdict::Never {
            state.counters.control_received += 1;
        } else {
            state.counters.base_received += 1;
        }
        if !state.closed {
            self.transmit(state, now);
            self.wake_in_time(state);
        }
        self.take_released(state);
        match verdict {
            Verdict::Later | Verdict::Never => None,
            Verdict::Now { .. } => Some(datagram.len() - base.len()),
        }
    }

    /// Processes a datagram that s2n-quic sends.
    pub(crate) fn on_send(
        &self,
        datagram: &[u8],
        ecn: ExplicitCongestionNotification,
    ) -> Departure {
        let now = self.host.now();
        let state = &mut *self.lock();
        if state.closed {
            return Departure::Now(None);
        }
        if ecn != state.ecn {
            // Waiting datagrams bear the codepoint that they were sent with.
            state.shim.handle(Input::MarkChanges, now);
            self.transmit(state, now);
            state.ecn = ecn;
        }
        let departure = if state.shim.bundle(datagram, now) {
            self.transmit(state, now);
            Departure::WithOthers
        } else {
            Departure::Now(state.shim.on_send(datagram, now))
        };
        // The last datagram may have to be sent again.
        self.wake_in_time(state);
        departure
    }

    /// True until the first question for a gateway has left.
    pub(crate) fn begins(&self) -> bool {
        self.lock().begins
    }

    /// Called after s2n-quic's first flight has left: the shim's messages follow. `send` returns
    /// false if the datagram cannot leave now.
    pub(crate) fn end_first_flight(&self, mut send: impl FnMut(&[u8]) -> bool) {
        let now = self.host.now();
        let state = &mut *self.lock();
        state.begins = false;
        if state.closed {
            return;
        }
        state.shim.handle(Input::FirstFlightEnds, now);
        let State { shim, counters, ecn, .. } = state;
        shim.transmit(now, |datagram| {
            if send(&datagram) || self.send(&datagram, *ecn).is_ok() {
                counters.control_sent += 1;
            } else {
                counters.control_send_failures += 1;
            }
        });
        self.wake_in_time(state);
    }

    /// Lets time pass: runs due timers, sends ready datagrams, and returns the next deadline.
    pub(crate) fn step(&self) -> Step {
        let now = self.host.now();
        let state = &mut *self.lock();
        if state.closed || state.shim.health() != Health::Active {
            return Step::Ended;
        }
        let actions = state.shim.handle(Input::Timeout, now);
        self.settle(state, now);
        if actions.remind {
            return Step::Remind;
        }
        state.armed = state.shim.next_timeout();
        Step::Until(state.armed)
    }

    /// The handshake of a connection is complete; it is known by this number.
    pub(crate) fn add_connection(&self, number: u64, handle: Handle) {
        let before = {
            let connections = &mut self.lock().connections;
            let before = connections.iter().position(|(known, _)| *known == number);
            let before = before.map(|index| connections.swap_remove(index));
            connections.push((number, handle));
            before
        };
        drop(before);
    }

    /// The application has dropped its handle of the assistance.
    pub(crate) fn remove_connection(&self, number: u64) {
        let removed = {
            let connections = &mut self.lock().connections;
            let known = connections.iter().position(|(known, _)| *known == number);
            known.map(|index| connections.swap_remove(index))
        };
        // The last handle of a connection closes it: not under the lock.
        drop(removed);
    }

    /// Makes s2n-quic send a packet in each connection. An error means that it has ended, and the
    /// application learns that from its streams.
    pub(crate) fn remind(&self) {
        let connections = self.lock().connections.clone();
        for (_, mut handle) in connections {
            let _ = handle.ping();
        }
    }

    /// Sends the shim's ready datagrams, and passes on the released ones.
    fn settle(&self, state: &mut State, now: Timestamp) {
        self.transmit(state, now);
        if self.take_released(state) {
            self.released.wake();
        }
    }

    /// Moves the shim's released datagrams to the queue of s2n-quic's endpoint. Returns true if
    /// there were any.
    fn take_released(&self, state: &mut State) -> bool {
        let mut any = false;
        while let Some(released) = state.shim.poll_deliver() {
            self.released.push(released);
            any = true;
        }
        any
    }

    /// Wakes the driver when the shim wants to be called before the driver would.
    fn wake_in_time(&self, state: &mut State) {
        if let Some(next) = state.shim.next_timeout()
            && state.armed.is_none_or(|armed| next < armed)
        {
            // Set at once: a burst of datagrams wakes the driver once.
            state.armed = Some(next);
            self.wake.notify_one();
        }
    }

    /// Sends a datagram of the shim; if it carries s2n-quic's own, with the codepoint of s2n-quic's
    /// last datagram.
    fn send(&self, datagram: &[u8], ecn: ExplicitCongestionNotification) -> std::io::Result<()> {
        let own = if bears_mark(datagram) { ecn } else { ExplicitCongestionNotification::NotEct };
        self.host.send(datagram, self.remote, own)
    }

    fn transmit(&self, state: &mut State, now: Timestamp) {
        let State { shim, source, counters, ecn, .. } = state;
        // The shim learns of another address before it sends from there.
        if source.has_changed(now, || self.host.source(self.remote)) {
            shim.handle(Input::NetworkChange, now);
        }
        // The socket does not block. A datagram that finds no room is lost, as any datagram may be.
        shim.transmit(now, |control| match self.send(&control, *ecn) {
            Ok(()) => counters.control_sent += 1,
            Err(error) => {
                counters.control_send_failures += 1;
                source.doubt();
                tracing::debug!(%error, remote = %self.remote, "a control datagram could not be sent");
            }
        });
    }

    /// The application knows that the network has changed.
    pub(crate) fn on_network_change(&self) {
        let now = self.host.now();
        let state = &mut *self.lock();
        // The host would report the same change later by itself.
        state.source.set(self.host.source(self.remote));
        state.shim.handle(Input::NetworkChange, now);
        self.settle(state, now);
        self.wake_in_time(state);
    }

    /// The application has got another token, or accepts another gateway.
    pub(crate) fn set_access(&self, gateway_key: Option<[u8; 32]>, token: &Token) {
        let now = self.host.now();
        let state = &mut *self.lock();
        state.shim.handle(Input::Access { gateway_key, token }, now);
        // A handshake may be due at once.
        self.settle(state, now);
        self.wake_in_time(state);
    }

    /// Sends a Goodbye to the gateway and ends the driver, when the last connection ends or the
    /// application closes assistance. The shim remains because it knows the numbers of datagrams in
    /// flight. Idempotent.
    pub(crate) fn close(&self) {
        let now = self.host.now();
        let state = &mut *self.lock();
        if !state.closed {
            state.shim.handle(Input::Close, now);
            self.settle(state, now);
            state.closed = true;
            self.memory.note(self.remote.ip().to_canonical(), state.shim.experience(), now);
            self.wake.notify_one();
        }
    }

    /// Accumulated figures of the shim, zero for a path without assistance, and of the shell.
    pub(crate) fn stats(&self) -> (AssistStats, ShimStats, ShellCounters) {
        let state = &mut *self.lock();
        let (assist, shim) = state.shim.stats();
        (assist, shim, state.counters)
    }

    /// The condition of the shim.
    pub(crate) fn health(&self) -> Health {
        self.lock().shim.health()
    }

    /// Makes the shim panic at a following call.
    #[cfg(test)]
    pub(crate) fn fail_at(&self, call: u32) {
        self.lock().shim.fail_at(call);
    }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
