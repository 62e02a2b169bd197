//! Contact with the API server: while it is lost, the replica's snapshot may be old.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Time without an answer after which the contact is lost.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time in which a replica that is not ready leaves the Service: gateways that connect again then
/// reach another one, if there is one.
const LEAVING_TIME: Duration = Duration::from_secs(10);

/// The contact of a replica with the API server.
#[derive(Debug)]
pub struct Contact {
    answered: Mutex<Instant>,
    loss: watch::Sender<Loss>,
}

/// Loss of the contact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    #[default]
    None,
    /// The replica is not ready any more.
    Lost,
    /// The replica has had the time to leave the Service.
    Left,
}

impl Default for Contact {
    fn default() -> Self {
        Self { answered: Mutex::new(Instant::now()), loss: watch::Sender::default() }
    }
}

impl Contact {
    /// Notes the outcome of a request at `now`: true if the API server has answered.
    pub(super) fn note(&self, answered: bool, now: Instant) {
        let mut last = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if answered {
            *last = now;
        }
        let loss = match now.saturating_duration_since(*last) {
            silent if silent > PATIENCE + LEAVING_TIME => Loss::Left,
            silent if silent > PATIENCE => Loss::Lost,
            _ => Loss::None,
        };
        self.loss.send_if_modified(|before| {
            let differs = *before != loss;
            if differs {
                tracing::warn!(event = "api_server", contact = ?loss);
            }
            *before = loss;
            differs
        });
    }

    pub(super) fn is_lost(&self) -> bool {
        *self.loss.borrow() > Loss::None
    }

    /// Ends when the replica has left the Service since this call. A stream that begins afterwards
    /// stays: no other replica has taken it.
    pub(super) async fn until_left(&self) {
        let mut loss = self.loss.subscribe();
        // The sender lives as long as this.
        while loss.changed().await.is_ok() && *loss.borrow_and_update() != Loss::Left {}
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn streams_leave_a_replica_once_that_has_lost_the_api_server() {
        let contact = Contact::default();
        let begun = Instant::now();
        let mut seconds = 0;
        let mut pass = |number: u64, answers: bool| {
            for _ in 0..number {
                seconds += 1;
                contact.note(answers, begun + Duration::from_secs(seconds));
            }
        };
        let mut early = std::pin::pin!(contact.until_left());
        assert_eq!(early.as_mut().now_or_never(), None);
        pass(100, true);
        pass(15, false);
        assert!(!contact.is_lost(), "it may be a restart");
        pass(1, false);
        assert!(contact.is_lost());
        // A short outage: the stream stays.
        pass(5, false);
        pass(1, true);
        assert!(!contact.is_lost());
        assert_eq!(early.as_mut().now_or_never(), None);
        pass(26, false);
        assert_eq!(early.as_mut().now_or_never(), Some(()), "another replica is not cut off");
        let mut late = std::pin::pin!(contact.until_left());
        assert_eq!(late.as_mut().now_or_never(), None);
        pass(300, false);
        assert_eq!(late.as_mut().now_or_never(), None, "there is no other replica");
        // The next loss counts.
        pass(1, true);
        pass(26, false);
        assert_eq!(late.as_mut().now_or_never(), Some(()));
    }
}
