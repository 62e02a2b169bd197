//! How many bytes of repairs may be sent: a token bucket fed by what is forwarded (design section 5).

use std::sync::atomic::{AtomicI64, Ordering};

/// What a flow may spend before it has forwarded much: enough for the loss of a whole first flight.
const FLOW_BURST: f64 = 64.0 * 1024.0;
/// The same for all flows of a gateway together.
const GATEWAY_BURST: i64 = 4 << 20;
/// What of it downloads leave to live streams, whose repairs can't wait.
const LIVE_RESERVE: i64 = GATEWAY_BURST / 4;

/// Bytes of repairs that one flow may still send.
#[derive(Debug)]
pub(crate) struct FlowBudget {
    share: f64,
    tokens: f64,
}

impl FlowBudget {
    pub(crate) fn new(share: f64) -> Self {
        Self { share, tokens: FLOW_BURST }
    }

    /// `bytes` were forwarded.
    #[inline]
    pub(crate) fn earn(&mut self, bytes: usize) {
        self.tokens = (self.tokens + bytes as f64 * self.share).min(FLOW_BURST);
    }

    /// Whether copies may be sent, too: what is left beyond half belongs to first transmissions.
    pub(crate) fn is_ample(&self) -> bool {
        self.tokens >= FLOW_BURST / 2.0
    }

    fn allows(&self, bytes: usize) -> bool {
        self.tokens >= bytes as f64
    }

    fn spend(&mut self, bytes: usize) {
        self.tokens -= bytes as f64;
    }
}

/// Bytes of repairs that all flows together may still send. Flows report what they forwarded at each eACK, not at each datagram.
#[derive(Debug)]
pub(crate) struct GatewayBudget {
    share: f64,
    tokens: AtomicI64,
}

impl GatewayBudget {
    pub(crate) fn new(share: f64) -> Self {
        Self { share, tokens: AtomicI64::new(GATEWAY_BURST) }
    }

    pub(crate) fn earn(&self, bytes: u64) {
        let earned = (bytes as f64 * self.share) as i64;
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tokens| {
            Some(tokens.saturating_add(earned).min(GATEWAY_BURST))
        });
    }

    /// Takes `bytes` from both budgets, or from neither. `live`: for a live stream, which may take the last of it.
    pub(crate) fn take(&self, flow: &mut FlowBudget, bytes: usize, live: bool) -> bool {
        let granted = flow.allows(bytes) && self.take_shared(bytes, live);
        if granted {
            flow.spend(bytes);
        }
        granted
    }

    /// The same, without a flow's own budget.
    pub(crate) fn take_shared(&self, bytes: usize, live: bool) -> bool {
        let (cost, reserve) = (bytes as i64, if live { 0 } else { LIVE_RESERVE });
        let enough = |tokens: i64| (tokens >= cost + reserve).then_some(tokens - cost);
        self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_stay_below_their_share() {
        let gateway = GatewayBudget::new(0.25);
        let mut flow = FlowBudget::new(0.25);
        let (mut forwarded, mut repaired) = (0usize, 0usize);
        for _ in 0..10_000 {
            forwarded += 1200;
            flow.earn(1200);
            gateway.earn(1200);
            while gateway.take(&mut flow, 1200, false) {
                repaired += 1200;
            }
        }
        let allowed = forwarded as f64 * 0.25 + FLOW_BURST;
        assert!(repaired as f64 <= allowed && repaired as f64 > 0.9 * allowed, "{repaired} of {allowed}");
    }

    #[test]
    fn downloads_leave_something_to_live_streams() {
        let gateway = GatewayBudget::new(0.0);
        let drain = |live| {
            let mut taken = 0usize;
            while gateway.take(&mut FlowBudget::new(0.0), 1000, live) {
                taken += 1000;
            }
            taken as i64
        };
        assert!((GATEWAY_BURST - LIVE_RESERVE - drain(false)).abs() <= 1000);
        assert!((LIVE_RESERVE - drain(true)).abs() <= 1000);
    }

    #[test]
    fn a_refusal_takes_nothing() {
        let gateway = GatewayBudget::new(0.0);
        let mut flow = FlowBudget::new(0.0);
        assert!(!gateway.take(&mut flow, 1 << 20, false));
        assert!(gateway.take(&mut flow, 60_000, false));
        let mut other = FlowBudget::new(0.0);
        assert!(gateway.take(&mut other, 60_000, false), "one flow's refusal cost another's budget");
    }
}
