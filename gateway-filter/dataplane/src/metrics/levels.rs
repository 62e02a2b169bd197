//! Sums over the sessions of a route, from which its levels are made.

use std::sync::atomic::{AtomicU64, Ordering};

use packrat_engine::FlowGauges;

use super::catalog::LEVEL_DEFINITIONS;
use super::counter::load;

/// The levels of one session, as far as they are part of the route's.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reported {
    assisted: u64,
    cache_bytes: u64,
    cache_entries: u64,
    measured: u64,
    round_trip_microseconds: u64,
    loss_ppm: u64,
}

impl Reported {
    fn of(gauges: &FlowGauges) -> Self {
        let measured = u64::from(gauges.round_trip_microseconds > 0);
        Self {
            assisted: gauges.assisted,
            cache_bytes: gauges.cache_bytes,
            cache_entries: gauges.cache_entries,
            measured,
            round_trip_microseconds: gauges.round_trip_microseconds,
            loss_ppm: gauges.loss_ppm * measured,
        }
    }
}

/// Sums of the levels of all sessions of a route.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    assisted: AtomicU64,
    cache_bytes: AtomicU64,
    cache_entries: AtomicU64,
    cache_high_water_bytes: AtomicU64,
    measured: AtomicU64,
    round_trip_microseconds: AtomicU64,
    loss_ppm: AtomicU64,
    far_measured: AtomicU64,
    far_round_trip_microseconds: AtomicU64,
    sessions_limit: AtomicU64,
    cache_limit_bytes: AtomicU64,
    repair_budget_ppm: AtomicU64,
    assist: AtomicU64,
}

/// Configured limits of a route, shown beside its levels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) sessions: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) repair_budget_ppm: u64,
    pub(crate) assist: bool,
}

impl Levels {
    /// Values of the levels, in the order of [`LEVEL_DEFINITIONS`].
    pub(super) fn values(&self) -> [u64; LEVEL_DEFINITIONS.len()] {
        let mean = |sum: &AtomicU64, count: &AtomicU64| load(sum) / load(count).max(1);
        [
            load(&self.assisted),
            load(&self.sessions_limit),
            load(&self.cache_bytes),
            load(&self.cache_entries),
            load(&self.cache_limit_bytes),
            load(&self.cache_high_water_bytes),
            mean(&self.round_trip_microseconds, &self.measured),
            mean(&self.loss_ppm, &self.measured),
            mean(&self.far_round_trip_microseconds, &self.far_measured),
            load(&self.repair_budget_ppm),
            load(&self.assist),
        ]
    }

    /// Replaces what one flow has reported before by its levels now.
    pub(crate) fn replace(&self, reported: &mut Reported, gauges: &FlowGauges) {
        let (before, now) = (*reported, Reported::of(gauges));
        for (sum, before, now) in [
            (&self.assisted, before.assisted, now.assisted),
            (&self.cache_bytes, before.cache_bytes, now.cache_bytes),
            (&self.cache_entries, before.cache_entries, now.cache_entries),
            (&self.measured, before.measured, now.measured),
            (
                &self.round_trip_microseconds,
                before.round_trip_microseconds,
                now.round_trip_microseconds,
            ),
            (&self.loss_ppm, before.loss_ppm, now.loss_ppm),
        ] {
            if now != before {
                // Wrapping arithmetic: one addition is right for both directions.
                sum.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
            }
        }
        self.cache_high_water_bytes.fetch_max(gauges.cache_high_water_bytes, Ordering::Relaxed);
        *reported = now;
    }

    /// A session has measured its far round trip.
    pub(crate) fn add_far_round_trip(&self, microseconds: u64) {
        self.far_measured.fetch_add(1, Ordering::Relaxed);
        self.far_round_trip_microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }

    /// A session that had measured it has ended.
    pub(crate) fn subtract_far_round_trip(&self, microseconds: u64) {
        self.far_measured.fetch_sub(1, Ordering::Relaxed);
        self.far_round_trip_microseconds.fetch_sub(microseconds, Ordering::Relaxed);
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        self.sessions_limit.store(limits.sessions, Ordering::Relaxed);
        self.cache_limit_bytes.store(limits.cache_bytes, Ordering::Relaxed);
        self.repair_budget_ppm.store(limits.repair_budget_ppm, Ordering::Relaxed);
        self.assist.store(limits.assist.into(), Ordering::Relaxed);
    }
}
