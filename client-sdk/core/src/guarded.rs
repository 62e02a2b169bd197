//! Keeps a failing shim away from the base connection.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use packrat_wire::control::is_control;
use packrat_wire::estimate::Timestamp;
use packrat_wire::number::{NumberHeader, split};

use crate::assist::TimeoutActions;
use crate::counters::{Condition, Counters};
use crate::loss_memory::Experience;
use crate::shim::{Input, Released, Shim, ShimStats, Verdict};
use crate::stats::AssistStats;

/// Control datagrams sent at one go: a shim that never runs dry must not starve the transport.
const TRANSMIT_DATAGRAMS: usize = 64;

/// The condition of a guarded shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// The shim is at work.
    Active,
    /// There is no shim.
    Off,
    /// The shim panicked and was removed.
    Failed,
}

/// A shim that is removed for good when it panics; its waiting datagrams still come out. After
/// that, and for a connection without assistance, the shim is not called any more, and datagrams
/// pass. It has the figures of its flow.
pub struct GuardedShim<M> {
    shim: Option<Box<Shim<M>>>,
    last_stats: (AssistStats, ShimStats),
    /// Datagrams that waited in a shim which has failed.
    rescued: VecDeque<Released<M>>,
    failed: bool,
    /// The shell's counters; the shim's own are added on request.
    counters: Counters,
    #[cfg(feature = "fault-injection")]
    fails_at: Option<u32>,
}

impl<M: Clone> GuardedShim<M> {
    /// Guards `shim`; `None` is a connection without assistance.
    pub fn new(shim: Option<Box<Shim<M>>>) -> Self {
        Self {
            shim,
            last_stats: Default::default(),
            rescued: VecDeque::new(),
            failed: false,
            counters: Counters::default(),
            #[cfg(feature = "fault-injection")]
            fails_at: None,
        }
    }

    /// Calls the shim; returns `None` if there is no shim (any more). `what`: the call, for the
    /// log.
    pub fn call<R>(
        &mut self,
        what: &'static str,
        call: impl FnOnce(&mut Shim<M>) -> R,
    ) -> Option<R> {
        let shim = self.shim.as_mut()?;
        #[cfg(feature = "fault-injection")]
        let call = {
            let fails_at = self.fails_at.as_mut();
            let fails = fails_at.is_some_and(|left| {
                *left -= 1;
                *left == 0
            });
            move |shim: &mut Shim<M>| {
                assert!(!fails, "as the test wants it");
                call(shim)
            }
        };
        // After a panic the shim is dropped, and only its waiting datagrams are taken: losing them
        // would be no worse than a loss on the path.
        match catch_unwind(AssertUnwindSafe(|| call(shim))) {
            Ok(result) => Some(result),
            Err(_) => {
                self.failed = true;
                if let Some(broken) = self.shim.take() {
                    let waiting = catch_unwind(AssertUnwindSafe(move || all_that_waits(*broken)));
                    self.rescued.extend(waiting.unwrap_or_default());
                }
                tracing::error!(
                    what,
                    "assistance failed and is off for this connection, which goes on without it"
                );
                None
            }
        }
    }

    /// Processes an arrived UDP payload, as [`Shim::on_datagram`] does. Without a shim, every
    /// datagram passes except the gateway's: its numbers are removed, as it numbers until it learns
    /// that a session has ended, and its messages end here if there was a shim.
    pub fn on_datagram(&mut self, datagram: &[u8], metadata: M, now: Timestamp) -> Verdict<M> {
        let passed = metadata.clone();
        let verdict = self.call("on_datagram", |shim| shim.on_datagram(datagram, passed, now));
        let verdict = verdict.unwrap_or_else(|| {
            let base = split(datagram).map_or(datagram, |(_, base)| base);
            if self.failed && is_control(base) {
                Verdict::Never
            } else {
                Verdict::Now { skip: datagram.len() - base.len(), metadata }
            }
        });
        if let Verdict::Now { skip, .. } = verdict {
            self.count_delivered(datagram.get(skip..).unwrap_or_default());
        }
        verdict
    }

    fn count_delivered(&mut self, datagram: &[u8]) {
        self.counters.delivered_datagrams += 1;
        self.counters.delivered_bytes += datagram.len() as u64;
    }

    /// The next datagram for the transport.
    pub fn poll_deliver(&mut self) -> Option<Released<M>> {
        let released = self.call("poll_deliver", Shim::poll_deliver).flatten();
        let released = released.or_else(|| self.rescued.pop_front())?;
        self.count_delivered(&released.datagram);
        Some(released)
    }

    /// Called when the program sends a datagram, as [`Shim::on_send`] is. Returns the number to put
    /// in front of it.
    pub fn on_send(&mut self, datagram: &[u8], now: Timestamp) -> Option<NumberHeader> {
        self.call("on_send", |shim| shim.on_send(datagram, now)).flatten()
    }

    /// Takes a datagram of the program that can leave with others, as [`Shim::bundle`] does.
    pub fn bundle(&mut self, datagram: &[u8], now: Timestamp) -> bool {
        self.call("bundle", |shim| shim.bundle(datagram, now)).unwrap_or(false)
    }

    /// Takes notice of an event, as [`Shim::handle`] does; of a timeout only if it is due.
    pub fn handle(&mut self, input: Input<'_>, now: Timestamp) -> TimeoutActions {
        let actions = self.call("handle", |shim| match input {
            Input::Timeout if shim.next_timeout().is_none_or(|at| at > now) => None,
            _ => Some(shim.handle(input, now)),
        });
        actions.flatten().unwrap_or_default()
    }

    /// Observations of the last mile so far, as for [`Shim::experience`].
    pub fn experience(&mut self) -> Experience {
        self.call("experience", |shim| shim.experience()).unwrap_or_default()
    }

    /// Counts this number of datagrams and bytes sent by the program, for the figures.
    pub fn on_sent(&mut self, datagrams: u64, bytes: u64) {
        self.counters.sent_datagrams += datagrams;
        self.counters.sent_bytes += bytes;
    }

    /// The next control datagram to send to the peer's address, from the transport's own socket.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        self.call("poll_transmit", |shim| shim.poll_transmit(now)).flatten()
    }

    /// Hands `send` the control datagrams that are ready, as many as may leave at one go.
    pub fn transmit(&mut self, now: Timestamp, mut send: impl FnMut(Vec<u8>)) {
        for _ in 0..TRANSMIT_DATAGRAMS {
            let Some(control) = self.poll_transmit(now) else { return };
            send(control);
        }
    }

    /// True if numbers are removed, as for [`Shim::knows_numbers`], or if there is no shim.
    pub fn knows_numbers(&mut self) -> bool {
        self.call("knows_numbers", |shim| shim.knows_numbers()).unwrap_or(true)
    }

    /// Bytes of the datagrams that wait now.
    pub fn waiting_bytes(&mut self) -> usize {
        self.call("waiting_bytes", |shim| shim.waiting_bytes()).unwrap_or_default()
    }

    /// Memory that grows with the traffic, in bytes, as for [`Shim::memory`].
    pub fn memory(&mut self) -> usize {
        self.call("memory", |shim| shim.memory()).unwrap_or_default()
    }

    /// Latest time for the next call of the shim.
    pub fn next_timeout(&mut self) -> Option<Timestamp> {
        self.call("next_timeout", |shim| shim.next_timeout()).flatten()
    }

    /// Accumulated figures. If the shim has failed, the last ones read before.
    pub fn stats(&mut self) -> (AssistStats, ShimStats) {
        if let Some(stats) = self.call("stats", |shim| (shim.assistance(), shim.stats())) {
            self.last_stats = stats;
        }
        self.last_stats
    }

    /// The condition of the shim.
    pub fn health(&self) -> Health {
        match &self.shim {
            Some(_) => Health::Active,
            None if self.failed => Health::Failed,
            None => Health::Off,
        }
    }

    /// The condition of the assistance.
    pub fn condition(&mut self) -> Condition {
        let (assist, _) = self.stats();
        match self.health() {
            Health::Active => assist.into(),
            Health::Failed => Condition::Failed,
            Health::Off => Condition::NoGateway,
        }
    }

    /// The figures of the flow.
    pub fn counters(&mut self) -> Counters {
        let (assist, shim) = self.stats();
        self.counters.with(&assist, &shim)
    }

    /// Bytes that have passed, in both directions.
    pub const fn carried_bytes(&self) -> u64 {
        self.counters.delivered_bytes + self.counters.sent_bytes
    }

    /// Makes the shim panic at this call, counted from 1: for tests of shells.
    #[cfg(feature = "fault-injection")]
    pub fn fail_at(&mut self, call: u32) {
        self.fails_at = Some(call);
    }
}

fn all_that_waits<M: Clone>(mut shim: Shim<M>) -> Vec<Released<M>> {
    shim.handle(Input::Crowded { most: 0 }, Timestamp::ZERO);
    std::iter::from_fn(|| shim.poll_deliver()).collect()
}

impl<M: Clone> std::fmt::Debug for GuardedShim<M> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("GuardedShim")
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
