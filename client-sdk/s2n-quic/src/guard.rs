//! Keeps a failing core away from the base connection.

use packrat_client::{Assist, AssistStats, Datagram, PacketNumber, TimeoutActions, Token};
use packrat_wire::estimate::Timestamp;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The calls of [`Assist`] that the shell makes, so that tests can put a scripted core in its
/// place.
pub(crate) trait Core: Send {
    /// See [`Assist::on_datagram`].
    fn on_datagram(&mut self, datagram: &[u8], now: Timestamp) -> Datagram;
    /// See [`Assist::on_key_phase`].
    fn on_key_phase(&mut self, _phase: bool) {}
    /// See [`Assist::on_packet_number`].
    fn on_packet_number(&mut self, packet_number: PacketNumber, now: Timestamp);
    /// See [`Assist::on_expected_packet_number`].
    fn on_expected_packet_number(&mut self, _packet_number: PacketNumber, _now: Timestamp) {}
    /// See [`Assist::packet_number_reference`].
    fn packet_number_reference(&self) -> Option<PacketNumber> {
        None
    }
    /// See [`Assist::deliverable`].
    fn deliverable(&self, _window: u64) -> PacketNumber {
        PacketNumber::MAX
    }
    /// See [`Assist::rewrite_frames`].
    fn rewrite_frames(
        &mut self,
        frames: &[u8],
        room: usize,
        force_ack: bool,
        now: Timestamp,
    ) -> Option<Vec<u8>>;
    /// See [`Assist::poll_transmit`].
    fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>>;
    /// See [`Assist::next_timeout`].
    fn next_timeout(&self) -> Option<Timestamp>;
    /// See [`Assist::handle_timeout`].
    fn handle_timeout(&mut self, now: Timestamp) -> TimeoutActions;
    /// See [`Assist::set_token`].
    fn set_token(&mut self, _token: Token, _now: Timestamp) {}
    /// See [`Assist::close`].
    fn close(&mut self, now: Timestamp);
    /// See [`Assist::stats`].
    fn stats(&self) -> AssistStats;
}

impl Core for Assist {
    fn on_datagram(&mut self, datagram: &[u8], now: Timestamp) -> Datagram {
        Assist::on_datagram(self, datagram, now)
    }
    fn on_key_phase(&mut self, phase: bool) {
        Assist::on_key_phase(self, phase);
    }
    fn on_packet_number(&mut self, packet_number: PacketNumber, now: Timestamp) {
        Assist::on_packet_number(self, packet_number, now);
    }
    fn on_expected_packet_number(&mut self, packet_number: PacketNumber, now: Timestamp) {
        Assist::on_expected_packet_number(self, packet_number, now);
    }
    fn packet_number_reference(&self) -> Option<PacketNumber> {
        Assist::packet_number_reference(self)
    }
    fn deliverable(&self, window: u64) -> PacketNumber {
        Assist::deliverable(self, window)
    }
    fn rewrite_frames(
        &mut self,
        frames: &[u8],
        room: usize,
        force_ack: bool,
        now: Timestamp,
    ) -> Option<Vec<u8>> {
        Assist::rewrite_frames(self, frames, room, force_ack, now)
    }
    fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        Assist::poll_transmit(self, now)
    }
    fn next_timeout(&self) -> Option<Timestamp> {
        Assist::next_timeout(self)
    }
    fn handle_timeout(&mut self, now: Timestamp) -> TimeoutActions {
        Assist::handle_timeout(self, now)
    }
    fn set_token(&mut self, token: Token, now: Timestamp) {
        Assist::set_token(self, token, now);
    }
    fn close(&mut self, now: Timestamp) {
        Assist::close(self, now);
    }
    fn stats(&self) -> AssistStats {
        Assist::stats(self)
    }
}

/// The condition of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// It is at work.
    Active,
    /// There is none, or none any more.
    Off,
    /// It panicked and was put away.
    Failed,
}

/// A core that is put away for good when it panics.
pub(crate) struct Guarded {
    core: Option<Box<dyn Core>>,
    last_stats: AssistStats,
    failed: bool,
}

impl Guarded {
    /// Guards `core`; `None` is a connection without assistance.
    pub(crate) fn new(core: Option<Box<dyn Core>>) -> Self {
        Self { core, last_stats: AssistStats::default(), failed: false }
    }

    /// Calls the core; `None` when there is none (any more).
    pub(crate) fn call<R>(
        &mut self,
        what: &'static str,
        call: impl FnOnce(&mut dyn Core) -> R,
    ) -> Option<R> {
        let core = self.core.as_mut()?;
        // The core is dropped when it panics, so its broken state is never looked at again.
        match catch_unwind(AssertUnwindSafe(|| call(core.as_mut()))) {
            Ok(result) => Some(result),
            Err(_) => {
                self.failed = true;
                if let Some(broken) = self.core.take() {
                    // Its destructor may panic as well.
                    let _ = catch_unwind(AssertUnwindSafe(move || drop(broken)));
                }
                tracing::error!(
                    what,
                    "assistance failed and is off for this connection, which goes on without it"
                );
                None
            }
        }
    }

    /// Accumulated figures: those of the last look when the core has failed since.
    pub(crate) fn stats(&mut self) -> AssistStats {
        if let Some(stats) = self.call("stats", |core| core.stats()) {
            self.last_stats = stats;
        }
        self.last_stats
    }

    /// Puts the core away because it is not needed any more; its figures stay.
    pub(crate) fn retire(&mut self) {
        self.stats();
        if let Some(core) = self.core.take() {
            let _ = catch_unwind(AssertUnwindSafe(move || drop(core)));
        }
    }

    /// True if a core is at work.
    pub(crate) fn is_active(&self) -> bool {
        self.core.is_some()
    }

    /// Condition of the core.
    pub(crate) fn health(&self) -> Health {
        match &self.core {
            Some(_) => Health::Active,
            None if self.failed => Health::Failed,
            None => Health::Off,
        }
    }
}

impl std::fmt::Debug for Guarded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Guarded")
            .field("active", &self.is_active())
            .field("failed", &self.failed)
            .finish()
    }
}
