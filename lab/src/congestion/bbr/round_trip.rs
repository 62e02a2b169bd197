//! The shortest round trips, and the probes for them.

use std::time::{Duration, Instant};

/// The shortest round trips.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RoundTrip {
    pub(super) shortest: Option<Duration>,
    pub(super) shortest_at: Option<Instant>,
    pub(super) recent_shortest: Option<Duration>,
    pub(super) recent_shortest_at: Option<Instant>,
    pub(super) probe: Option<RoundTripProbe>,
}

/// A probe for the shortest round trip.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundTripProbe {
    /// The window before it.
    pub(super) window: u64,
    pub(super) until: Option<Instant>,
    pub(super) round_done: bool,
}
