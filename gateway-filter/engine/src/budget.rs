//! Repair budgets: token buckets of bytes, filled by forwarded datagrams (docs/POLICY.md, "The
//! budget follows the loss").
//!
//! Repairs are lost like other datagrams: at a loss of *p* they take *p* / (1 - *p*) of the
//! forwarded bytes even if each is sent only when it is needed. If that is more than the configured
//! share, the share rises with the measured loss, to twice the configured one at most.

use packrat_assist_token::token_bucket::TokenBucket;

use crate::sync::atomic::{AtomicI64, Ordering};

/// Bytes that a flow may spend before it has forwarded much: enough for the loss of a whole first
/// flight.
const FLOW_BURST_BYTES: f64 = 64.0 * 1024.0;
/// Bytes that a flow may have saved up: a long burst of loss takes all datagrams under way.
const FLOW_SAVINGS_BYTES: f64 = 512.0 * 1024.0;
/// Bytes that all flows of a gateway together may have saved up.
const GATEWAY_BURST_BYTES: i64 = 4 << 20;
/// Bytes of [`GATEWAY_BURST_BYTES`] that one source may have beyond its own flows' earnings: a
/// source that begins many sessions, or saves up in many, leaves the rest to others.
const SOURCE_SAVINGS_BYTES: i64 = 1_048_576;
/// Bytes of [`GATEWAY_BURST_BYTES`] that downloads leave to live streams, whose repairs cannot
/// wait.
const LIVE_RESERVE_BYTES: i64 = GATEWAY_BURST_BYTES / 4;

/// Factor by which the share exceeds the need at the measured loss: loss varies, and some repairs
/// are sent in copies.
const LOSS_MARGIN: f64 = 1.25;
/// Factor by which the share rises above the configured one, at most.
const MAXIMUM_RISE_FACTOR: f64 = 2.0;

/// Bytes of repairs that one flow may still send.
#[derive(Debug)]
pub(crate) struct FlowBudget {
    share: f64,
    tokens: TokenBucket,
}

impl FlowBudget {
    /// Without a share there are no repairs, not even for a first flight.
    pub(crate) fn new(share: f64) -> Self {
        let tokens = TokenBucket::new(if share > 0.0 { FLOW_BURST_BYTES } else { 0.0 });
        Self { share, tokens }
    }

    /// Follows the share of lost datagrams, as the client's eACKs show it, and the share of the
    /// bytes that is configured for repairs now. A client that lies about the loss gains repairs of
    /// its own datagrams, within the maximum.
    pub(crate) fn follow(&mut self, loss: f64, configured: f64) {
        let needed = LOSS_MARGIN * loss / (1.0 - loss.min(0.99));
        self.share = needed.clamp(configured, configured * MAXIMUM_RISE_FACTOR);
        if self.share <= 0.0 {
            // The saved bytes were for repairs.
            self.tokens.drain();
        }
    }

    /// The share of the forwarded bytes that repairs may take now.
    pub(crate) fn share(&self) -> f64 {
        self.share
    }

    /// Earns repairs for `bytes` that were forwarded.
    #[inline]
    pub(crate) fn earn(&mut self, bytes: usize) {
        self.tokens.earn(bytes as f64 * self.share, FLOW_SAVINGS_BYTES);
    }

    /// True if copies may be sent as well: the last bytes are for first transmissions.
    pub(crate) fn is_ample(&self) -> bool {
        self.tokens.covers(FLOW_BURST_BYTES / 2.0)
    }

    fn allows(&self, bytes: usize) -> bool {
        self.tokens.covers(bytes as f64)
    }

    fn spend(&mut self, bytes: usize) {
        self.tokens.charge(bytes as f64);
    }
}

/// Bytes of repairs that the flows of one source together may still send.
#[derive(Debug)]
pub(crate) struct SourceBudget(SharedBucket<SOURCE_SAVINGS_BYTES>);

impl SourceBudget {
    pub(crate) fn new() -> Self {
        Self(SharedBucket::full())
    }

    /// Earns `bytes` of repairs, which one of the source's flows has brought.
    pub(crate) fn earn(&self, bytes: f64) {
        self.0.earn(bytes as i64);
    }
}

/// A token bucket of whole bytes that many threads fill and take from without a lock.
#[derive(Debug)]
struct SharedBucket<const BURST: i64> {
    tokens: AtomicI64,
}

impl<const BURST: i64> SharedBucket<BURST> {
    fn full() -> Self {
        Self { tokens: AtomicI64::new(BURST) }
    }

    fn earn(&self, earned: i64) {
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tokens| {
            Some(tokens.saturating_add(earned).min(BURST))
        });
    }

    /// Takes `cost` if `reserve` is left then.
    fn take(&self, cost: i64, reserve: i64) -> bool {
        let enough = |tokens: i64| (tokens >= cost + reserve).then_some(tokens - cost);
        self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough).is_ok()
    }
}

/// Bytes of repairs that all flows together may still send. Flows report forwarded bytes at each
/// eACK, not at each datagram.
#[derive(Debug)]
pub(crate) struct GatewayBudget(SharedBucket<GATEWAY_BURST_BYTES>);

impl GatewayBudget {
    pub(crate) fn new() -> Self {
        Self(SharedBucket::full())
    }

    /// Earns repairs for `bytes` forwarded by flows whose repairs may take this share.
    pub(crate) fn earn(&self, bytes: u64, share: f64) {
        self.0.earn((bytes as f64 * share) as i64);
    }

    /// Earns repairs for `bytes` forwarded by a flow of this source whose repairs may take this
    /// share.
    pub(crate) fn earn_for(&self, source: &SourceBudget, bytes: u64, share: f64) {
        self.earn(bytes, share);
        source.earn(bytes as f64 * share);
    }

    /// Takes `bytes` from all three budgets, if each allows. `live`: for a live stream, which may
    /// take the last bytes.
    pub(crate) fn take(
        &self,
        source: &SourceBudget,
        flow: &mut FlowBudget,
        bytes: usize,
        live: bool,
    ) -> bool {
        let granted = flow.allows(bytes) && self.take_shared(source, bytes, live);
        if granted {
            flow.spend(bytes);
        }
        granted
    }

    /// Takes `bytes` for all receivers of a live stream, which no source pays for.
    pub(crate) fn take_live(&self, bytes: usize) -> bool {
        self.0.take(bytes as i64, 0)
    }

    /// Like [`Self::take`], without a flow's own budget.
    pub(crate) fn take_shared(&self, source: &SourceBudget, bytes: usize, live: bool) -> bool {
        let cost = bytes as i64;
        if !source.0.take(cost, 0) {
            return false;
        }
        let granted = self.0.take(cost, if live { 0 } else { LIVE_RESERVE_BYTES });
        if !granted {
            source.0.earn(cost);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_stay_below_their_share() {
        for (loss, share) in [(0.0, 0.25), (0.15, 0.25), (0.24, 0.395), (0.5, 0.5), (1.0, 0.5)] {
            let (gateway, source) = (GatewayBudget::new(), SourceBudget::new());
            let mut flow = FlowBudget::new(0.25);
            flow.follow(loss, 0.25);
            let (mut forwarded, mut repaired) = (0usize, 0usize);
            for _ in 0..10_000 {
                forwarded += 1200;
                flow.earn(1200);
                gateway.earn_for(&source, 1200, flow.share());
                while gateway.take(&source, &mut flow, 1200, false) {
                    repaired += 1200;
                }
            }
            let allowed = forwarded as f64 * share + FLOW_BURST_BYTES;
            assert!(
                repaired as f64 <= allowed && repaired as f64 > 0.9 * allowed,
                "{repaired} of {allowed}"
            );
        }
    }

    #[test]
    fn a_configuration_without_repairs_gets_none() {
        let (gateway, mut flow) = (GatewayBudget::new(), FlowBudget::new(0.0));
        flow.follow(0.5, 0.0);
        flow.earn(1 << 20);
        assert_eq!(flow.share(), 0.0);
        assert!(!gateway.take(&SourceBudget::new(), &mut flow, 1, true));
    }

    #[test]
    fn a_flow_follows_another_share() {
        let (gateway, source, mut flow) =
            (GatewayBudget::new(), SourceBudget::new(), FlowBudget::new(0.25));
        flow.follow(0.01, 0.0);
        assert!(!gateway.take(&source, &mut flow, 1, true), "what it had saved up is gone");
        flow.follow(0.01, 0.1);
        flow.earn(100_000);
        assert!(gateway.take(&source, &mut flow, 10_000, true));
        assert!(!gateway.take(&source, &mut flow, 1, true));
    }

    #[test]
    fn downloads_leave_something_to_live_streams() {
        let gateway = GatewayBudget::new();
        let drain = |live| {
            let mut taken = 0usize;
            while gateway.take(&SourceBudget::new(), &mut FlowBudget::new(0.25), 1000, live) {
                taken += 1000;
            }
            taken as i64
        };
        assert!((GATEWAY_BURST_BYTES - LIVE_RESERVE_BYTES - drain(false)).abs() <= 1000);
        assert!((LIVE_RESERVE_BYTES - drain(true)).abs() <= 1000);
    }

    #[test]
    fn one_source_spends_its_own_and_leaves_others_the_rest() {
        let (gateway, greedy) = (GatewayBudget::new(), SourceBudget::new());
        let drain = |source: &SourceBudget| {
            let mut taken = 0i64;
            while gateway.take(source, &mut FlowBudget::new(0.25), 1000, false) {
                taken += 1000;
            }
            taken
        };
        assert!((SOURCE_SAVINGS_BYTES - drain(&greedy)).abs() <= 1000);
        assert_eq!(drain(&greedy), 0);
        gateway.earn_for(&greedy, 400_000, 0.25);
        assert!((100_000 - drain(&greedy)).abs() <= 1000, "not what it has brought");
        assert!(
            (SOURCE_SAVINGS_BYTES - drain(&SourceBudget::new())).abs() <= 1000,
            "another one got less"
        );
    }

    #[test]
    fn a_refusal_takes_nothing() {
        let (gateway, source) = (GatewayBudget::new(), SourceBudget::new());
        let mut flow = FlowBudget::new(0.25);
        assert!(!gateway.take(&source, &mut flow, 1 << 20, false));
        assert!(gateway.take(&source, &mut flow, 60_000, false));
        let mut other = FlowBudget::new(0.25);
        assert!(
            gateway.take(&source, &mut other, 60_000, false),
            "one flow's refusal cost another's budget"
        );
        // If the shared budget is empty, the source keeps its own.
        while gateway.take_shared(&SourceBudget::new(), 1000, true) {}
        let before = source.0.tokens.load(Ordering::Relaxed);
        assert!(!gateway.take_shared(&source, 1000, true));
        assert_eq!(source.0.tokens.load(Ordering::Relaxed), before);
    }
}
