//! The messages with which all routes of a process ask other gateways for the sessions of clients.

use std::time::Duration;

use packrat_wire::estimate::Timestamp;

use crate::sync::Mutex;

/// Messages of a process to other gateways within [`BUDGET_PERIOD`]: as many as four routes send which ask 63
/// gateways as often as a route may.
const MOST_MESSAGES: usize = 65_536;
/// Period in which the budget may be spent.
const BUDGET_PERIOD: Duration = Duration::from_secs(1);

/// The messages that a process has sent to other gateways since some time.
#[derive(Debug, Default)]
pub(crate) struct InquiryBudget(Mutex<(Timestamp, usize)>);

impl InquiryBudget {
    /// Takes this number of messages from the budget, if they are left.
    pub(crate) fn take(&self, messages: usize, now: Timestamp) -> bool {
        let mut guard = self.0.lock();
        let (since, sent) = &mut *guard;
        if now.saturating_since(*since) >= BUDGET_PERIOD {
            (*since, *sent) = (now, 0);
        }
        let has_room = *sent + messages <= MOST_MESSAGES;
        *sent += if has_room { messages } else { 0 };
        has_room
    }
}
