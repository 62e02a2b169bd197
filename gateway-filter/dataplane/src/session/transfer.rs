//! The transfer of a session: bytes and time, by the same measure for clients that are assisted and for
//! those that are not, from forwarded datagrams alone.

use std::time::Duration;

use packrat_wire::estimate::Timestamp;

use crate::metrics::{Metric, Metrics};
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A longer time without a datagram is no part of a transfer: nothing was asked for.
const PAUSE: Duration = Duration::from_secs(1);
/// Sessions with less are not counted: their time is that of a few round trips.
const LEAST_BYTES: u64 = 256_000;

/// The part in the comparison of a session whose client asked for assistance; others, and those refused
/// for another reason, have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    /// It is left without assistance for comparison.
    Holdout = 1,
    /// It was assisted, at least for a while.
    Assisted = 2,
}

/// The time that a session has spent on bringing datagrams to its client. One thread at a time notes
/// them.
#[derive(Debug, Default)]
pub(crate) struct Transfer {
    /// An [`Arm`]; 0: none.
    arm: AtomicU8,
    /// The time of the last datagram, in microseconds; 0: there was none.
    last: AtomicU64,
    active_microseconds: AtomicU64,
}

impl Transfer {
    /// Datagrams go to the client.
    pub(crate) fn note(&self, now: Timestamp) {
        let now = now.as_micros().max(1);
        let last = self.last.load(Ordering::Relaxed);
        self.last.store(now, Ordering::Relaxed);
        let gap = now.saturating_sub(last);
        if last != 0 && u128::from(gap) <= PAUSE.as_micros() {
            let active = self.active_microseconds.load(Ordering::Relaxed);
            self.active_microseconds.store(active + gap, Ordering::Relaxed);
        }
    }

    /// The client is helped, or is not. One that has been assisted once counts as assisted.
    pub(crate) fn set_arm(&self, arm: Arm) {
        self.arm.fetch_max(arm as u8, Ordering::Relaxed);
    }

    /// The session ends, after so many bytes.
    pub(crate) fn count(&self, bytes: u64, metrics: &Metrics) {
        let microseconds = self.active_microseconds.load(Ordering::Relaxed);
        if bytes < LEAST_BYTES || microseconds == 0 {
            return;
        }
        let arm = self.arm.load(Ordering::Relaxed);
        let of_arm = |plain, assisted, holdout| match arm {
            arm if arm == Arm::Assisted as u8 => assisted,
            arm if arm == Arm::Holdout as u8 => holdout,
            _ => plain,
        };
        use Metric::{
            TransferBytesAssisted, TransferBytesHoldout, TransferBytesPlain, TransferTimeAssisted,
            TransferTimeHoldout, TransferTimePlain, TransfersAssisted, TransfersHoldout,
            TransfersPlain,
        };
        metrics.add(of_arm(TransfersPlain, TransfersAssisted, TransfersHoldout), 1);
        let of_bytes = of_arm(TransferBytesPlain, TransferBytesAssisted, TransferBytesHoldout);
        metrics.add(of_bytes, bytes);
        let of_time = of_arm(TransferTimePlain, TransferTimeAssisted, TransferTimeHoldout);
        metrics.add(of_time, microseconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(milliseconds: &[u64]) -> Transfer {
        let transfer = Transfer::default();
        for at in milliseconds {
            transfer.note(Timestamp::from_millis(*at));
        }
        transfer
    }

    #[test]
    fn pauses_are_no_part_of_a_transfer_and_small_sessions_are_none() {
        let metrics = Metrics::default();
        let transfer = noted(&[0, 200, 1200, 4000, 4500]);
        transfer.count(LEAST_BYTES - 1, &metrics);
        assert_eq!(metrics.get(Metric::TransfersPlain), 0);
        transfer.count(LEAST_BYTES, &metrics);
        assert_eq!(metrics.get(Metric::TransfersPlain), 1);
        assert_eq!(metrics.get(Metric::TransferBytesPlain), LEAST_BYTES);
        // The first began at a microsecond after zero.
        assert_eq!(metrics.get(Metric::TransferTimePlain), 1_699_999);
        noted(&[5]).count(LEAST_BYTES, &metrics);
        assert_eq!(metrics.get(Metric::TransfersPlain), 1, "nothing is known of its time");
    }

    #[test]
    fn each_arm_has_its_own_counts() {
        let metrics = Metrics::default();
        for (arms, more) in
            [(&[][..], 0), (&[Arm::Holdout], 1), (&[Arm::Assisted, Arm::Holdout], 2)]
        {
            let transfer = noted(&[1, 2]);
            arms.iter().for_each(|arm| transfer.set_arm(*arm));
            transfer.count(LEAST_BYTES + more, &metrics);
        }
        let counts = [
            (Metric::TransfersPlain, Metric::TransferBytesPlain),
            (Metric::TransfersHoldout, Metric::TransferBytesHoldout),
            (Metric::TransfersAssisted, Metric::TransferBytesAssisted),
        ];
        for (added, (sessions, bytes)) in (0..).zip(counts) {
            assert_eq!((metrics.get(sessions), metrics.get(bytes)), (1, LEAST_BYTES + added));
        }
    }
}
