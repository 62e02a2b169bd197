//! Keeps a token fresh: the clock and the network around the schedule.

use crate::document::AssistToken;
use crate::endpoint::TokenEndpoint;
use packrat_client::{RenewalSchedule, Timestamp};
use std::convert::Infallible;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Asks a token endpoint again before its token expires.
///
/// An existing session does not need the new token; the next handshake does, after a restart of the
/// gateway. Until then a failure has no consequence: the endpoint is asked again.
#[derive(Debug)]
pub struct Renewal {
    endpoint: TokenEndpoint,
    begun: Instant,
    schedule: RenewalSchedule,
}

impl Renewal {
    /// Keeps `token` fresh, which `endpoint` has issued now.
    pub fn new(endpoint: TokenEndpoint, token: &AssistToken) -> Self {
        let schedule = RenewalSchedule::new(token.expires, since_1970(), Timestamp::ZERO);
        Self { endpoint, begun: Instant::now(), schedule }
    }

    /// Does `work`, and passes each new token to `on_token` while the work runs, with the key of
    /// its gateway: a gateway that was set up again may have another key. Every SDK's `set_access`
    /// takes both.
    pub async fn during<T>(
        mut self,
        work: impl Future<Output = T>,
        on_token: impl FnMut(AssistToken),
    ) -> T {
        tokio::select! {
            biased;
            result = work => result,
            never = self.renew(on_token) => match never {},
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.begun.elapsed()
    }

    async fn renew(&mut self, mut on_token: impl FnMut(AssistToken)) -> Infallible {
        loop {
            let wait = self.schedule.next_timeout().saturating_since(self.now());
            tokio::time::sleep(wait).await;
            match self.endpoint.fetch().await {
                Ok(token) => {
                    self.schedule.on_token(token.expires, since_1970(), self.now());
                    on_token(token);
                }
                Err(_) => self.schedule.on_failure(self.now()),
            }
        }
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
