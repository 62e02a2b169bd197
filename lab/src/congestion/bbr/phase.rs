//! The phases of BBR, and their gains.

/// Gains of the pace and of the window in Startup.
const STARTUP_GAINS: [f64; 2] = [2.77, 2.0];
/// Gains of the pace and of the window in Drain.
const DRAIN_GAINS: [f64; 2] = [0.5, 2.0];
/// Gains of the pace and of the window in ProbeBW_DOWN.
const DOWN_GAINS: [f64; 2] = [0.9, 2.0];
/// Gains of the pace and of the window in ProbeBW_CRUISE.
const CRUISE_GAINS: [f64; 2] = [1.0, 2.0];
/// Gains of the pace and of the window in ProbeBW_UP.
const UP_GAINS: [f64; 2] = [1.25, 2.25];
/// Gains of the pace and of the window in ProbeRTT.
const PROBE_ROUND_TRIP: [f64; 2] = [1.0, 0.5];

/// A phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRoundTrip,
}

impl Phase {
    /// Gains of the pace and of the window.
    pub(super) fn gains(self) -> [f64; 2] {
        match self {
            Self::Startup => STARTUP_GAINS,
            Self::Drain => DRAIN_GAINS,
            Self::Down => DOWN_GAINS,
            Self::Cruise | Self::Refill => CRUISE_GAINS,
            Self::Up => UP_GAINS,
            Self::ProbeRoundTrip => PROBE_ROUND_TRIP,
        }
    }

    /// True in the cycle that probes for bandwidth.
    pub(super) fn is_probing_bandwidth(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }
}
