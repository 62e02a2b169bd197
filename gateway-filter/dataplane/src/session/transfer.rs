//! The transfer of a session: bytes and time, by the same measure for clients with and without
//! assistance, from forwarded datagrams alone.

use std::time::Duration;

use packrat_wire::estimate::Timestamp;

use crate::context::{Arm, Transferred};
use crate::metrics::{Distribution, Metric, Metrics};
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Time without a datagram beyond which it is a pause, and no part of a transfer.
const TRANSFER_PAUSE: Duration = Duration::from_secs(1);
/// Sessions with less are not counted: they take only a few round trips.
const LEAST_BYTES: u64 = 256_000;

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

/// The report of an assisted session's client.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Losses {
    /// Datagrams that it could report on.
    pub(crate) recorded: u64,
    /// Recorded datagrams that the last mile lost at first.
    pub(crate) missing: u64,
    /// Missing datagrams that a repair has brought.
    pub(crate) repaired: u64,
}

impl Transfer {
    /// Datagrams go to the client.
    pub(crate) fn note(&self, now: Timestamp) {
        let now = now.as_micros().max(1);
        let last = self.last.load(Ordering::Relaxed);
        self.last.store(now, Ordering::Relaxed);
        let gap = now.saturating_sub(last);
        if last != 0 && u128::from(gap) <= TRANSFER_PAUSE.as_micros() {
            let active = self.active_microseconds.load(Ordering::Relaxed);
            self.active_microseconds.store(active + gap, Ordering::Relaxed);
        }
    }

    /// The client is helped, or is not. One that has been assisted once counts as assisted.
    pub(crate) fn set_arm(&self, arm: Arm) {
        self.arm.fetch_max(arm as u8, Ordering::Relaxed);
    }

    /// True if the session is in an arm of the comparison.
    #[cfg(feature = "virtual-time")]
    pub(crate) fn is_compared(&self) -> bool {
        self.arm.load(Ordering::Relaxed) != 0
    }

    /// Ends the session after this number of bytes. Returns its transfer, if its arm is compared.
    pub(crate) fn count(
        &self,
        bytes: u64,
        losses: Losses,
        metrics: &Metrics,
    ) -> Option<Transferred> {
        let microseconds = self.active_microseconds.load(Ordering::Relaxed);
        if bytes < LEAST_BYTES || microseconds == 0 {
            return None;
        }
        let arm = match self.arm.load(Ordering::Relaxed) {
            arm if arm == Arm::Assisted as u8 => Some(Arm::Assisted),
            arm if arm == Arm::Holdout as u8 => Some(Arm::Holdout),
            _ => None,
        };
        let (sessions, of_bytes, of_time) = match arm {
            None => (Metric::TransfersPlain, Metric::TransferBytesPlain, Metric::TransferTimePlain),
            Some(Arm::Holdout) => (
                Metric::TransfersHoldout,
                Metric::TransferBytesHoldout,
                Metric::TransferTimeHoldout,
            ),
            Some(Arm::Assisted) => (
                Metric::TransfersAssisted,
                Metric::TransferBytesAssisted,
                Metric::TransferTimeAssisted,
            ),
        };
        metrics.add(sessions, 1);
        metrics.add(of_bytes, bytes);
        metrics.add(of_time, microseconds);
        let transferred =
            Transferred { arm: arm?, bytes, microseconds, missing: 0, recorded: losses.recorded };
        let missing = losses.missing.min(losses.recorded);
        let transferred = Transferred { missing, ..transferred };
        record(&transferred, losses, metrics);
        Some(transferred)
    }
}

/// Adds the session to the histograms of its arm.
fn record(transferred: &Transferred, losses: Losses, metrics: &Metrics) {
    use Distribution::{
        TransferGoodputAssisted, TransferGoodputHoldout, TransferLossLastMile, TransferLossSender,
        TransferTimeAssistedLarge, TransferTimeAssistedMiddle, TransferTimeAssistedSmall,
        TransferTimeHoldoutLarge, TransferTimeHoldoutMiddle, TransferTimeHoldoutSmall,
    };
    let (goodput, times) = match transferred.arm {
        Arm::Assisted => (
            TransferGoodputAssisted,
            [TransferTimeAssistedSmall, TransferTimeAssistedMiddle, TransferTimeAssistedLarge],
        ),
        Arm::Holdout => (
            TransferGoodputHoldout,
            [TransferTimeHoldoutSmall, TransferTimeHoldoutMiddle, TransferTimeHoldoutLarge],
        ),
    };
    metrics.record(goodput, transferred.bits_per_second() as u64);
    if let Some(time) = times.get(transferred.size()) {
        metrics.record(*time, transferred.microseconds);
    }
    if transferred.arm == Arm::Assisted && losses.recorded > 0 {
        let share = |part: u64| (part as f64 / losses.recorded as f64 * 1e6) as u64;
        metrics.record(TransferLossLastMile, share(transferred.missing));
        metrics
            .record(TransferLossSender, share(transferred.missing.saturating_sub(losses.repaired)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Summary;

    fn noted(milliseconds: &[u64]) -> Transfer {
        let transfer = Transfer::default();
        for at in milliseconds {
            transfer.note(Timestamp::from_millis(*at));
        }
        transfer
    }

    fn histogram(metrics: &Metrics, series: &str) -> Summary {
        let series = format!("packrat_{series}");
        metrics.summaries().into_iter().find(|summary| summary.series() == series).expect(&series)
    }

    #[test]
    fn pauses_are_no_part_of_a_transfer_and_small_sessions_are_none() {
        let metrics = Metrics::default();
        let transfer = noted(&[0, 200, 1200, 4000, 4500]);
        transfer.count(LEAST_BYTES - 1, Losses::default(), &metrics);
        assert_eq!(metrics.get(Metric::TransfersPlain), 0);
        transfer.count(LEAST_BYTES, Losses::default(), &metrics);
        assert_eq!(metrics.get(Metric::TransfersPlain), 1);
        assert_eq!(metrics.get(Metric::TransferBytesPlain), LEAST_BYTES);
        // The first began at a microsecond after zero.
        assert_eq!(metrics.get(Metric::TransferTimePlain), 1_699_999);
        noted(&[5]).count(LEAST_BYTES, Losses::default(), &metrics);
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
            let counted = transfer.count(LEAST_BYTES + more, Losses::default(), &metrics);
            assert_eq!(counted.map(|counted| counted.arm), arms.first().copied());
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

    #[test]
    fn a_session_is_in_the_histograms_of_its_arm_and_size() {
        let metrics = Metrics::default();
        let transfer = noted(&[100, 600, 1100]);
        transfer.set_arm(Arm::Assisted);
        // 8 Mbit in a second; 2 % lost, a quarter of it for good.
        let losses = Losses { recorded: 1000, missing: 20, repaired: 15 };
        transfer.count(1_000_000, losses, &metrics);
        let transfer = noted(&[100, 600]);
        transfer.set_arm(Arm::Holdout);
        transfer.count(300_000, Losses::default(), &metrics);
        for (series, count, sum) in [
            ("transfer_goodput_bits_per_second{assisted=\"yes\"}", 1, 8_000_000),
            ("transfer_goodput_bits_per_second{assisted=\"holdout\"}", 1, 4_800_000),
            ("transfer_duration_microseconds{assisted=\"yes\",size=\"1MB\"}", 1, 1_000_000),
            ("transfer_duration_microseconds{assisted=\"yes\",size=\"256kB\"}", 0, 0),
            ("transfer_duration_microseconds{assisted=\"holdout\",size=\"256kB\"}", 1, 500_000),
            ("transfer_loss_ppm{seen=\"last_mile\"}", 1, 20_000),
            ("transfer_loss_ppm{seen=\"sender\"}", 1, 5_000),
        ] {
            let summary = histogram(&metrics, series);
            assert_eq!((summary.count, summary.sum), (count, sum), "{series}");
        }
    }
}
