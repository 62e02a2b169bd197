//! From an EdgeGateway to the configuration of its routes.

use packrat_api::route::{RouteConfig, share_of_million, share_of_percent};

use super::edge_gateway::EdgeGatewaySpec;
use crate::size::parse_size;

impl EdgeGatewaySpec {
    /// Puts the gateway's settings into the configuration of a route. A size that the schema would
    /// not let in is left at its default.
    pub fn apply(&self, route: &mut RouteConfig) {
        let count = |value: i32| u64::try_from(value).unwrap_or_default();
        route.assist = self.assist;
        let small = |value: i32| u32::try_from(value).unwrap_or_default();
        if let Ok(bytes) = parse_size(&self.cache.bytes_per_session) {
            route.cache_bytes_per_session = bytes;
        }
        if let Ok(bytes) = parse_size(&self.cache.bytes_total) {
            route.cache_bytes_total = bytes;
        }
        route.repair_budget = share_of_percent(small(self.repair.budget_percent));
        route.sparse_copies = self.repair.sparse_copies;
        route.residual_loss_target =
            share_of_million(small(self.last_mile.residual_loss_per_million));
        route.idle_timeout_seconds = count(self.sessions.idle_timeout_seconds);
        route.maximum_sessions = count(self.sessions.maximum);
        route.sessions_per_source = small(self.sessions.per_source);
        route.handshakes_per_second_per_source =
            small(self.sessions.handshakes_per_second_per_source);
        route.affinity = self.sessions.affinity;
        route.holdout = share_of_percent(small(self.sessions.holdout_percent));
        route.sender = self.sender;
        route.tokens = self.tokens.policy;
    }
}
