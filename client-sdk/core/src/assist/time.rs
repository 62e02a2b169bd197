//! The table of the timers' deadlines, and the action at each.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::{Assist, TimeoutActions};
use crate::events::{HoldEndedReason, SessionClosedReason};
use crate::liveness::{ECHO_INTERVAL, Silence};
use crate::reconnection::RECONNECT_AFTER;
use crate::timers::Timer;

/// Time without a datagram of a stream after which the gateway may have the wrong address of its
/// subscriber.
const QUIET_STREAM: Duration = Duration::from_millis(250);

impl Assist {
    /// Silence after which the client asks the gateway for an echo; `None`: it never asks.
    pub(super) fn quiet_after(&self) -> Option<Duration> {
        let session = self.session.as_ref()?;
        let echo = session.liveness.echo_wait(&self.path).max(ECHO_INTERVAL);
        match self.config.live {
            // A stream that stops may continue to an address that the subscriber has left.
            Some(live) if live.subscribe => Some(echo.max(QUIET_STREAM)),
            // A selective client reports at long intervals anyway.
            _ if self.is_selective() => None,
            _ => Some(echo),
        }
    }

    /// The deadline of a timer; `None` if it does not run.
    pub(super) fn deadline(&self, timer: Timer) -> Option<Timestamp> {
        let session = self.session.as_deref();
        if self.closed {
            return None;
        }
        match timer {
            Timer::Remind => self.remind.then_some(Timestamp::ZERO),
            Timer::Hold => self.hold.next_timeout(&self.path),
            Timer::Doubt => session?.liveness.doubt_deadline(),
            Timer::Reminder => self.reconnection.reminder_deadline(),
            Timer::Quiet => session?.liveness.quiet_deadline(),
            Timer::Echo => session?.liveness.echo_deadline(&self.path),
            Timer::Tail => session?.upward.as_deref()?.tail_deadline(),
            Timer::Copy => self.thin.next_timeout(),
            Timer::Handshake if session.is_none() => {
                let next = self.discovery.next_timeout()?;
                Some(self.question_from.map_or(next, |from| from.max(next)))
            }
            Timer::Handshake => None,
            Timer::Eack => {
                let eack = session?.scheduler.due(self.hold.held() > 0, self.path.round_trip());
                let Some(bundling) = &self.bundling else { return eack };
                eack.into_iter().chain(bundling.deadline()).min()
            }
        }
    }

    /// The time at which to call [`Self::handle_timeout`]. Only the other calls change it.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let mut next = None;
        for timer in &Timer::ALL {
            if let Some(at) = self.deadline(*timer) {
                next = Some(next.map_or(at, |next: Timestamp| next.min(at)));
            }
        }
        next
    }

    /// Handles the timers that are due. Afterwards call [`Self::poll_transmit`] until it is empty.
    pub fn handle_timeout(&mut self, now: Timestamp) -> TimeoutActions {
        if !self.closed {
            self.hold.expire(&self.path, now, &mut self.stats);
        }
        for timer in Timer::ALL {
            if self.deadline(timer).is_some_and(|at| now >= at) {
                self.on_timer(timer, now);
            }
        }
        TimeoutActions { remind: core::mem::take(&mut self.remind) && !self.closed }
    }

    fn on_timer(&mut self, timer: Timer, now: Timestamp) {
        match (timer, &mut self.session) {
            (Timer::Doubt, _) => {
                self.lose_gateway(SessionClosedReason::Unknown, Duration::ZERO, now);
            }
            (Timer::Reminder, _) => {
                self.remind |= self.reconnection.is_reminder_due(now);
            }
            (Timer::Quiet, Some(session)) => {
                if session.liveness.on_quiet() {
                    session.scheduler.on_urgent(now);
                }
            }
            (Timer::Echo, Some(session)) => {
                session.scheduler.on_urgent(now);
                match session.liveness.on_echo_overdue(now) {
                    Silence::Short => {}
                    Silence::Long => self.hold.give_up(HoldEndedReason::Silent, now),
                    Silence::Gone => {
                        self.lose_gateway(SessionClosedReason::Silent, RECONNECT_AFTER, now);
                    }
                }
            }
            (Timer::Tail, Some(session)) => {
                if let Some(upward) = &mut session.upward {
                    upward.on_tail(now);
                }
            }
            (Timer::Copy, session) => {
                if self.thin.take_reminder(now)
                    && let Some(session) = session
                {
                    session.scheduler.on_urgent(now);
                }
            }
            // Every call of `handle_timeout` or `poll_transmit` does the work of these timers.
            (Timer::Remind | Timer::Hold | Timer::Handshake | Timer::Eack, _) => {}
            (Timer::Quiet | Timer::Echo | Timer::Tail, None) => {}
        }
    }
}
