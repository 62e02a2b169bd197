//! The order of a client, and its outcome.

use crate::connection::Outcome;
use crate::traffic::{Arrivals, Work, WorkOutcome, Working};
use packrat_s2n_quic::AssistanceStats;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The work of a client, and its time limit.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// The transfers asked for.
    pub(crate) work: Work,
    /// Longest time from the request on.
    pub(crate) limit: Duration,
    /// The bytes that arrive, at the client or, of uploads, at the server.
    pub(crate) arrivals: Arc<Arrivals>,
}

/// The outcome of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Download {
    /// Time from the request to the last byte.
    pub(crate) seconds: f64,
    /// Time from the beginning of the connection to the first byte of an answer.
    pub(crate) first_byte: Option<f64>,
    pub(crate) received: u64,
    /// The objects, pages and videos among it.
    pub(crate) work: WorkOutcome,
    /// Received bytes since the path has settled, and the length of that time.
    pub(crate) counted: u64,
    pub(crate) counted_seconds: f64,
    /// The reason why the connection ended early, if it did.
    pub(crate) failure: Option<String>,
    pub(crate) assistance: AssistanceStats,
    /// 1-RTT packet numbers that arrived, as ascending inclusive ranges.
    pub(crate) packet_numbers: Vec<(u64, u64)>,
}

impl Download {
    /// The outcome of work that ends now.
    pub(crate) fn of(working: Working, result: Outcome) -> Self {
        let (now, begun) = (working.clock.now(), working.begun());
        let arrivals = Arc::clone(&working.arrivals);
        Self {
            seconds: now.saturating_since(begun).as_secs_f64(),
            first_byte: arrivals
                .first_at()
                .map(|at| at.saturating_since(working.connected_from).as_secs_f64()),
            received: arrivals.all(),
            counted: arrivals.counted(),
            counted_seconds: now.saturating_since(begun.max(arrivals.settled_at())).as_secs_f64(),
            failure: result.err().map(|error| error.to_string()),
            work: working.outcome(),
            ..Self::default()
        }
    }

    /// The outcome of a connection whose turn came after the end of the trial.
    pub(crate) fn never_begun() -> Self {
        Self {
            failure: Some("the trial ended before it could begin".to_owned()),
            ..Self::default()
        }
    }

    /// Mbit/s of the bytes that count.
    pub(crate) fn goodput_mbps(&self) -> f64 {
        if self.counted_seconds > 0.0 {
            self.counted as f64 * 8e-6 / self.counted_seconds
        } else {
            0.0
        }
    }

    /// True if this 1-RTT packet has arrived.
    pub(crate) fn has_received(&self, number: u64) -> bool {
        let after = self.packet_numbers.partition_point(|(first, _)| *first <= number);
        after > 0 && self.packet_numbers[after - 1].1 >= number
    }

    /// The number of these 1-RTT packets that have arrived.
    pub(crate) fn received_of(&self, numbers: &BTreeSet<u64>) -> u64 {
        numbers.iter().filter(|number| self.has_received(**number)).count() as u64
    }
}
