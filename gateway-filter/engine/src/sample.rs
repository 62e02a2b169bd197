//! Samples: measurements that are read as a distribution.

use core::time::Duration;

/// One measurement; the data plane adds it to the histogram of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sample {
    /// A last-mile round trip that an eACK has shown.
    LastMileRoundTrip(Duration),
    /// From forwarding a datagram to sending it again for the first time.
    RepairSent(Duration),
    /// From forwarding a datagram that was sent again to the eACK that shows that it has arrived.
    RepairArrived(Duration),
    /// Coded symbols or power sums in an eACK.
    EackSymbols(u8),
    /// Datagrams that a decoded eACK has shown to be missing for the first time, if there are any.
    EackMissing(u64),
}
