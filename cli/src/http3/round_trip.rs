//! The round trip of a connection.

use s2n_quic::provider::event::events::RecoveryMetrics;
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The smallest round trip that s2n-quic has measured, in microseconds; 0: no measurement so far.
/// All clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SmallestRoundTrip(Arc<AtomicU64>);

impl SmallestRoundTrip {
    /// Duration of the smallest round trip.
    pub(crate) fn get(&self) -> Option<Duration> {
        let microseconds = self.0.load(Ordering::Relaxed);
        (microseconds > 0).then(|| Duration::from_micros(microseconds))
    }
}

impl Subscriber for SmallestRoundTrip {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_recovery_metrics(&mut self, (): &mut (), _: &ConnectionMeta, event: &RecoveryMetrics) {
        // Before the first sample it is a guess, which may be smaller than all that follow.
        let microseconds = u64::try_from(event.min_rtt.as_micros()).unwrap_or_default();
        self.0.store(microseconds, Ordering::Relaxed);
    }
}
