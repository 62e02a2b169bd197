//! State of one base connection: its remote address, its core, and the packets that have arrived.

use crate::acknowledgements;
use crate::guard::{Guarded, Health};
use crate::header_protection::PacketNumbers;
use crate::host::Host;
use crate::interceptor::EndpointWaker;
use crate::received::ReceivedPacketNumbers;
use crate::tls::ConnectionKeys;
use packrat_client::{Assist, AssistStats, Datagram, PacketNumber, Token};
use packrat_wire::estimate::Timestamp;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Control datagrams sent at one go: a core that never runs dry must not starve the transport.
const TRANSMIT_BATCH: usize = 64;
/// The host is asked this often whether the network has changed.
const SOURCE_INTERVAL: Duration = Duration::from_millis(100);
/// Room in a packet that surely takes an ACK frame of one range.
const ACK_FRAME_ROOM: usize = 64;

/// The content of a datagram is known after this time at the latest, unless s2n-quic has dropped it
/// (a duplicate, an unknown key): it decrypts a datagram right after it was passed in. Reported
/// earlier, the newest datagram would be lacking from its own report.
const DECRYPTION_TIME: Duration = Duration::from_micros(500);

/// A repair must not be further behind the newest packet than this. s2n-quic drops what is more
/// than 128 behind; and a packet number of one byte, which a sender may use as long as fewer than
/// 128 packets are unacknowledged, means another packet, which cannot be decrypted, as soon
/// as it is 127 behind the newest one (RFC 9000, appendix A.3: numbers up to 127 below the *next*
/// are understood).
const RECEIVE_WINDOW: u64 = 126;

/// Outcome for a datagram that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It was Packrat's: consumed.
    Control,
    /// s2n-quic may see it at once.
    Pass,
    /// s2n-quic must not see it before [`AssistedPath::deliverable`] has reached its packet number.
    Withhold(u64),
}

/// One assisted base connection. Shared by the interceptor (which runs inside s2n-quic's endpoint),
/// the driver task and the application's handle.
#[derive(Debug)]
pub(crate) struct AssistedPath {
    remote: SocketAddr,
    host: Arc<dyn Host>,
    /// s2n-quic's endpoint, which keeps datagrams back.
    endpoint: EndpointWaker,
    state: Mutex<State>,
    /// Wakes the driver when its timer is too late.
    pub(crate) wake: Notify,
}

#[derive(Debug)]
struct State {
    core: Guarded,
    received: ReceivedPacketNumbers,
    numbers: PacketNumbers,
    /// The lowest packet number that is kept back from s2n-quic.
    withheld: Option<u64>,
    /// s2n-quic's internal identifier of the connection, once one of its packets was decrypted.
    connection: Option<u64>,
    /// The next packet must carry an ACK frame.
    force_ack: bool,
    /// When a datagram arrived of which s2n-quic has not told any packet yet.
    unopened: Option<Timestamp>,
    /// The address that datagrams leave from, and when the host was asked for it.
    source: Option<IpAddr>,
    source_asked: Option<Timestamp>,
    /// When the driver will wake by itself.
    armed: Option<Timestamp>,
    /// The application has its handle yet.
    held: bool,
    closed: bool,
    counters: ShellCounters,
}

/// Counters of the shell itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ShellCounters {
    pub(crate) base_received: u64,
    pub(crate) control_received: u64,
    pub(crate) control_sent: u64,
    pub(crate) control_send_failures: u64,
    pub(crate) acks_rewritten: u64,
    pub(crate) acks_forced: u64,
    pub(crate) rewrites_refused: u64,
}

/// Actions that the driver must take after [`AssistedPath::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// When to call again at the latest.
    pub(crate) next: Option<Timestamp>,
    /// Make s2n-quic send a packet.
    pub(crate) force_ack: bool,
    /// Nothing will ever happen again.
    pub(crate) ended: bool,
}

impl AssistedPath {
    /// A path without traffic so far.
    pub(crate) fn new(
        remote: SocketAddr,
        host: Arc<dyn Host>,
        core: Guarded,
        endpoint: EndpointWaker,
    ) -> Self {
        let state = State {
            core,
            received: ReceivedPacketNumbers::default(),
            numbers: PacketNumbers::default(),
            withheld: None,
            connection: None,
            force_ack: false,
            unopened: None,
            source: None,
            source_asked: None,
            armed: None,
            held: true,
            closed: false,
            counters: ShellCounters::default(),
        };
        Self { remote, host, endpoint, state: Mutex::new(state), wake: Notify::new() }
    }

    /// No code of ours panics while it holds the lock (the core is guarded), so a poisoned lock is
    /// still consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of the server, or of the gateway in front of it.
    pub(crate) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Where the connection runs.
    pub(crate) fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// True if no other connection may have the remote address: the application has its handle, and
    /// assistance has not ended.
    pub(crate) fn is_held(&self) -> bool {
        let state = self.lock();
        state.held && !state.closed
    }

    /// The application has dropped its handle; assistance goes on.
    pub(crate) fn let_go(&self) {
        self.lock().held = false;
    }

    /// True if assistance has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// A UDP payload has arrived from the remote address.
    ///
    /// ```text
    ///              control            passes at once          kept back, because it is authentic
    ///   arrives --+-------> consumed  +--------------> s2n-quic --+---> interceptor: decrypted, believed
    ///             +-------------------+                           +---> dropped: forgotten
    ///                                 +--------------> queue -----> s2n-quic, once it can use it
    /// ```
    pub(crate) fn arrive(&self, datagram: &[u8]) -> Arrival {
        let now = self.host.now();
        let state = &mut *self.lock();
        let kind = state
            .core
            .call("on_datagram", |core| core.on_datagram(datagram, now))
            .unwrap_or(Datagram::Base);
        if kind == Datagram::Control {
            state.counters.control_received += 1;
            self.settle(state, now);
            return Arrival::Control;
        }
        state.counters.base_received += 1;
        if !state.core.is_active() {
            return Arrival::Pass;
        }
        let reference = state
            .core
            .call("packet_number_reference", |core| core.packet_number_reference())
            .flatten()
            .map(PacketNumber::get);
        let number = state.numbers.read(datagram, reference);
        let unproven = number.filter(|number| {
            let number = PacketNumber::new(*number);
            let needs_proof = |core: &mut Assist| core.needs_proof(number, RECEIVE_WINDOW, now);
            state.core.call("needs_proof", needs_proof).unwrap_or(false)
        });
        let Some(number) = unproven.filter(|number| state.numbers.proves(datagram, *number)) else {
            state.unopened.get_or_insert(now);
            self.wake_in_time(state);
            return Arrival::Pass;
        };
        let authentic = PacketNumber::new(number);
        state.core.call("on_withheld", |core| core.on_withheld(authentic, now));
        self.settle(state, now);
        if number > deliverable(state) { Arrival::Withhold(number) } else { Arrival::Pass }
    }

    /// The highest packet number that s2n-quic may see now.
    pub(crate) fn deliverable(&self) -> u64 {
        deliverable(&mut self.lock())
    }

    /// A datagram that was kept back goes to s2n-quic.
    pub(crate) fn hand_over(&self, number: u64) {
        self.lock().numbers.hand_over(number);
    }

    /// The lowest packet number that is kept back from s2n-quic now.
    pub(crate) fn set_withheld(&self, number: Option<u64>) {
        self.lock().withheld = number;
    }

    /// True if the keys of 1-RTT packets are not known yet.
    pub(crate) fn wants_keys(&self) -> bool {
        !self.lock().numbers.has_keys()
    }

    /// The keys of this connection's 1-RTT packets.
    pub(crate) fn set_keys(&self, keys: ConnectionKeys) {
        self.lock().numbers.set_keys(keys.opener, keys.proofs);
    }

    /// s2n-quic decrypted a packet of connection `connection` out of the last datagram. The first
    /// connection that does so owns the path; `false` for any other.
    pub(crate) fn claim(&self, connection: u64) -> bool {
        *self.lock().connection.get_or_insert(connection) == connection
    }

    /// The transport uses other keys now.
    pub(crate) fn on_key_phase(&self, phase: bool) {
        self.lock().core.call("on_key_phase", |core| core.on_key_phase(phase));
    }

    /// A 1-RTT packet out of the last datagram was decrypted.
    pub(crate) fn on_packet_number(&self, number: u64) {
        let now = self.host.now();
        let state = &mut *self.lock();
        state.received.insert(number);
        if !state.numbers.confirm(number) {
            tracing::debug!(
                number,
                "a packet number was read wrongly; numbers are not read any more"
            );
        }
        let number = PacketNumber::new(number);
        state.core.call("on_packet_number", |core| core.on_packet_number(number, now));
        self.settle(state, now);
    }

    /// An Initial or Handshake packet out of the last datagram was decrypted.
    pub(crate) fn on_handshake_packet(&self) {
        let now = self.host.now();
        let state = &mut *self.lock();
        state.numbers.confirm_handshake();
        state.core.call("on_authentic", |core| core.on_authentic(now));
        // A 1-RTT packet may follow in the same datagram. Until the first one the core does without
        // packet numbers; afterwards the number comes first, or else the driver in a
        // moment.
        if state.received.is_empty() {
            self.settle(state, now);
        }
    }

    /// Rewrites the frames of an outgoing 1-RTT packet, of which at most `room` bytes may be used.
    /// `None`: send them as they are. What is returned is at least as long as `frames`:
    /// s2n-quic has already padded to its minimum.
    ///
    /// Also without a core, once one has withheld something: s2n-quic has forgotten part of what it
    /// believes to be acknowledged.
    pub(crate) fn rewrite(&self, frames: &[u8], room: usize) -> Option<Vec<u8>> {
        let now = self.host.now();
        let state = &mut *self.lock();
        let force_ack = state.force_ack;
        let rewritten = state
            .core
            .call("rewrite_frames", |core| core.rewrite_frames(frames, room, force_ack, now))
            .flatten();
        let rewritten = match rewritten {
            None if !state.core.is_active() && state.counters.acks_rewritten > 0 => {
                acknowledgements::complete(frames, room, &state.received)
            }
            rewritten => rewritten,
        };
        if force_ack && (rewritten.is_some() || room.saturating_sub(frames.len()) >= ACK_FRAME_ROOM)
        {
            state.force_ack = false;
        }
        let fitted = fit(rewritten?, frames.len(), room);
        state.counters.rewrites_refused += u64::from(fitted.is_none());
        state.counters.acks_rewritten += u64::from(fitted.is_some());
        fitted
    }

    /// Lets time pass: runs what is due, sends what is ready, says when to come back.
    pub(crate) fn step(&self) -> Step {
        let now = self.host.now();
        let state = &mut *self.lock();
        if state.closed || !state.core.is_active() {
            return Step { next: None, force_ack: false, ended: true };
        }
        let mut force_ack = false;
        let due = state.core.call("next_timeout", |core| core.next_timeout()).flatten();
        if due.is_some_and(|due| due <= now) {
            let actions = state.core.call("handle_timeout", |core| core.handle_timeout(now));
            force_ack = actions.is_some_and(|actions| actions.force_ack);
        }
        // The report of a datagram that is being decrypted waits for its packet number, which sends
        // it.
        if state.unopened.is_none_or(|arrived| now >= arrived + DECRYPTION_TIME) {
            state.unopened = None;
            self.transmit(state, now);
        }
        self.release(state);
        state.force_ack |= force_ack;
        state.counters.acks_forced += u64::from(force_ack);
        // What was not sent now is asked for again.
        let next =
            state.unopened.map(|arrived| arrived + DECRYPTION_TIME).or_else(|| deadline(state));
        state.armed = next;
        Step { next, force_ack, ended: false }
    }

    /// Sends what the core has ready, and wakes the driver when the core wants to be called before
    /// the driver would.
    fn settle(&self, state: &mut State, now: Timestamp) {
        // s2n-quic is through with the datagrams before.
        state.unopened = None;
        self.transmit(state, now);
        self.wake_in_time(state);
        self.release(state);
    }

    /// Wakes s2n-quic's endpoint when something that is kept back may pass.
    fn release(&self, state: &mut State) {
        if state.withheld.is_some_and(|number| number <= deliverable(state)) {
            // Once: the endpoint says anew what it keeps back.
            state.withheld = None;
            self.endpoint.wake();
        }
    }

    fn wake_in_time(&self, state: &mut State) {
        if let Some(next) = deadline(state)
            && state.armed.is_none_or(|armed| next < armed)
        {
            // Set at once: a burst of datagrams wakes the driver once.
            state.armed = Some(next);
            self.wake.notify_one();
        }
    }

    fn transmit(&self, state: &mut State, now: Timestamp) {
        self.follow_source(state, now);
        for _ in 0..TRANSMIT_BATCH {
            let Some(datagram) =
                state.core.call("poll_transmit", |core| core.poll_transmit(now)).flatten()
            else {
                return;
            };
            // The socket does not block. A datagram that finds no room is lost, as any datagram may
            // be.
            match self.host.send(&datagram, self.remote) {
                Ok(()) => state.counters.control_sent += 1,
                Err(error) => {
                    state.counters.control_send_failures += 1;
                    // The network may be another one.
                    state.source_asked = None;
                    tracing::debug!(%error, remote = %self.remote, "a control datagram could not be sent");
                }
            }
        }
    }

    /// Asks the host for the address that datagrams leave from; if it is another one, the core
    /// learns of it before it says anything from there.
    fn follow_source(&self, state: &mut State, now: Timestamp) {
        if state.source_asked.is_some_and(|asked| now < asked + SOURCE_INTERVAL) {
            return;
        }
        state.source_asked = Some(now);
        // No answer: there is no route now, and nothing leaves.
        let Some(source) = self.host.source(self.remote) else { return };
        if state.source.replace(source).is_some_and(|before| before != source) {
            state.core.call("on_network_change", |core| core.on_network_change(now));
        }
    }

    /// The application knows that the network has changed.
    pub(crate) fn on_network_change(&self) {
        let now = self.host.now();
        let state = &mut *self.lock();
        // What the host would notice by itself is this change.
        state.source = self.host.source(self.remote);
        state.core.call("on_network_change", |core| core.on_network_change(now));
        self.settle(state, now);
    }

    /// The application has got another token.
    pub(crate) fn set_token(&self, token: Token) {
        let now = self.host.now();
        let state = &mut *self.lock();
        state.core.call("set_token", |core| core.set_token(token, now));
        // A handshake may be due at once.
        self.transmit(state, now);
        self.wake_in_time(state);
    }

    /// The connection ends, or the application wants no more: says goodbye to the gateway and ends the driver. Idempotent.
    pub(crate) fn close(&self) {
        let now = self.host.now();
        let state = &mut *self.lock();
        if !state.closed {
            state.core.call("close", |core| core.close(now));
            self.transmit(state, now);
            // No repairs are requested from now on, so nothing must be withheld any more either.
            state.core.retire();
            state.closed = true;
            self.release(state);
            self.wake.notify_one();
        }
    }

    /// Accumulated figures of the core, `None` for a connection without assistance, and of the
    /// shell.
    pub(crate) fn stats(&self) -> (AssistStats, ShellCounters) {
        let state = &mut *self.lock();
        (state.core.stats(), state.counters)
    }

    /// The condition of the core.
    pub(crate) fn health(&self) -> Health {
        self.lock().core.health()
    }

    /// 1-RTT packet numbers received so far, as ascending inclusive ranges.
    pub(crate) fn received_packet_numbers(&self) -> Vec<(u64, u64)> {
        self.lock().received.ranges()
    }
}

/// Frames with PADDING up to `length`, if they are not longer than `room`.
fn fit(mut frames: Vec<u8>, length: usize, room: usize) -> Option<Vec<u8>> {
    if frames.len() > room {
        return None;
    }
    // PADDING (zero bytes) goes in front: a STREAM frame without a length runs to the end of the
    // packet.
    frames.splice(0..0, std::iter::repeat_n(0, length.saturating_sub(frames.len())));
    Some(frames)
}

/// The highest packet number that s2n-quic may see.
fn deliverable(state: &mut State) -> u64 {
    state
        .core
        .call("deliverable", |core| core.deliverable(RECEIVE_WINDOW))
        .map_or(u64::MAX, PacketNumber::get)
}

/// When the driver must call at the latest.
fn deadline(state: &mut State) -> Option<Timestamp> {
    let next = state.core.call("next_timeout", |core| core.next_timeout()).flatten()?;
    Some(state.unopened.map_or(next, |arrived| next.max(arrived + DECRYPTION_TIME)))
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
