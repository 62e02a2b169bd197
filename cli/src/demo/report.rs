//! The results, as written to the JSON file.

use packrat_emulation::path::PathReport;
use packrat_s2n_quic::AssistanceStats;
use serde::Serialize;

use super::options::{ArmName, GatewayKind, ProfileName};

/// A demo on one network.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DemoReport {
    /// The network.
    pub(crate) profile: ProfileName,
    /// Share of datagrams that the last mile loses.
    pub(crate) loss: f64,
    /// The program that ran the gateway's data plane.
    pub(crate) gateway: GatewayKind,
    /// The server.
    pub(crate) server: String,
    /// True if the client sends, and everything about the transfers is about that direction.
    pub(crate) upload: bool,
    /// Time after which the client of the download `packrat-moved` got another address, if it did.
    pub(crate) rebind_after_seconds: Option<f64>,
    /// Goodput of the download with a move as a share of the same download's without one.
    pub(crate) moved_to_unmoved: Option<f64>,
    /// Goodput of the download `packrat-flooded` as a share of the same download's without a flood.
    pub(crate) flooded_to_undisturbed: Option<f64>,
    /// The transfers, in the order in which they ran.
    pub(crate) arms: Vec<ArmReport>,
}

/// A transfer of the demo.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ArmReport {
    /// The arm.
    pub(crate) name: ArmName,
    /// Bytes of the file that arrived, per time: 10^6 bits per second.
    pub(crate) goodput_mbps: f64,
    /// Time from the first datagram of the handshake to the last byte.
    pub(crate) seconds: f64,
    /// Seconds from the request to the last byte.
    pub(crate) transfer_seconds: f64,
    /// True if the bytes that arrived are right: the whole file, or its beginning if the transfer
    /// was stopped.
    pub(crate) sha256_ok: bool,
    #[serde(flatten)]
    pub(crate) losses: LossFigures,
    #[serde(flatten)]
    pub(crate) gateway: GatewayFigures,
    /// Bytes of eACKs that the client sent.
    pub(crate) eack_bytes: u64,
    /// True if the whole file arrived; false if the transfer was stopped.
    pub(crate) complete: bool,
    /// Bytes of the file that arrived.
    pub(crate) bytes: u64,
    /// Goodput of an unassisted download beside it, while it lasted, 10^6 bits per second; `null` if
    /// there was none.
    pub(crate) neighbour_mbps: Option<f64>,
    /// Packets that the sender declared lost; `null` without a qlog of the server.
    pub(crate) declared_lost: Option<u64>,
    /// The client's other measurements; `null` if it has none.
    pub(crate) times: Option<TimesReport>,
    /// Effects of assistance, seen from the client; `null` if the client did not ask for it.
    pub(crate) assistance: Option<AssistanceReport>,
    #[serde(flatten)]
    pub(crate) path: PathFigures,
}

/// Losses on the last mile, and their repairs.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct LossFigures {
    /// Datagrams in the direction of the file that the last mile lost.
    pub(crate) lost_last_mile: u64,
    /// Datagrams that the gateway repaired, or that the client sent again to the gateway.
    pub(crate) repairs: u64,
    /// Repairs that arrived after the server had been able to notice the hole.
    pub(crate) repairs_late: u64,
    /// Packets that the server declared lost although they arrived; `null` without a qlog of the
    /// server.
    pub(crate) spurious: Option<u64>,
}

/// The gateway during a transfer.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct GatewayFigures {
    /// Times that the gateway moved the session to another address of its client.
    pub(crate) paths_moved: u64,
    /// Datagrams of the flood that were sent while the download lasted.
    pub(crate) flood_datagrams: u64,
    /// Control datagrams that the gateway has received: eACKs, and the datagrams of the flood that
    /// resemble them.
    pub(crate) control_received: u64,
    /// Resident memory of the gateway's process after the download less that before it, bytes;
    /// `null` if the system does not report it.
    pub(crate) gateway_memory_growth_bytes: Option<i64>,
    /// Resets of the set reconciliation, of either side.
    pub(crate) resets: u64,
    /// Most bytes that the gateway's cache held.
    pub(crate) cache_high_water_bytes: u64,
}

/// The emulated path of a transfer.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct PathFigures {
    /// True if the emulated path was on time: otherwise the figures describe the machine more than
    /// the path.
    pub(crate) on_time: bool,
    /// Counters of the far segment.
    pub(crate) far: PathReport,
    /// Counters of the last mile.
    pub(crate) last_mile: PathReport,
}

/// The times of something that a client did again and again.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TimesReport {
    /// Name of the operation.
    pub(crate) what: &'static str,
    /// Attempts of the client.
    pub(crate) attempted: u64,
    /// Attempts that the server answered; `null` if that is not known.
    pub(crate) answered: Option<u64>,
    /// Attempts that succeeded.
    pub(crate) completed: u64,
    /// Wrong outcomes.
    pub(crate) wrong: u64,
    /// Times that a video stood still, as the program counts them; `null` if it does not.
    pub(crate) freezes: Option<u64>,
    /// Median time of the attempts that succeeded, milliseconds.
    pub(crate) median_ms: f64,
    /// The time that 90 % did not exceed.
    pub(crate) p90_ms: f64,
    /// The time that 99 % did not exceed.
    pub(crate) p99_ms: f64,
    /// The time that 99.9 % did not exceed.
    pub(crate) p999_ms: f64,
}

impl TimesReport {
    /// The report of `attempted` attempts, and of the successful ones' times in milliseconds.
    pub(crate) fn new(
        what: &'static str,
        attempted: u64,
        answered: Option<u64>,
        wrong: u64,
        mut times: Vec<f64>,
    ) -> Self {
        times.sort_by(f64::total_cmp);
        // The nearest rank.
        let at = |share: f64| {
            let rank = (times.len() as f64 * share).ceil() as usize;
            times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        Self {
            what,
            attempted,
            answered,
            completed: times.len() as u64,
            wrong,
            freezes: None,
            median_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
        }
    }
}

/// Datagrams that were missing at the client, and their fate.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct HoleFigures {
    /// Datagrams that were missing when a later one arrived.
    pub(crate) holes: u64,
    /// Missing datagrams that arrived before the server could notice.
    pub(crate) filled_in_time: u64,
    /// Missing datagrams that arrived after the server had been able to notice.
    pub(crate) filled_late: u64,
    /// Missing datagrams that were given up because the hold time had expired.
    pub(crate) expired: u64,
    /// Missing datagrams that were given up because the gateway had no repair for them.
    pub(crate) settled: u64,
}

/// Assistance, seen from the client.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct AssistanceReport {
    /// Handshakes with the gateway.
    pub(crate) sessions: u64,
    /// eACKs sent.
    pub(crate) eacks: u64,
    /// Bytes of all control datagrams sent.
    pub(crate) control_bytes_sent: u64,
    /// Bytes of all control datagrams received.
    pub(crate) control_bytes_received: u64,
    /// Datagrams that arrived twice.
    pub(crate) duplicates: u64,
    #[serde(flatten)]
    pub(crate) holes: HoleFigures,
    /// Datagrams that came with the gateway's number.
    pub(crate) numbered: u64,
    /// Datagrams that waited below QUIC for one before them.
    pub(crate) kept: u64,
    /// Datagrams recovered from the gateway's symbols.
    pub(crate) recovered: u64,
    /// Last-mile round trip, milliseconds, as the client measured it.
    pub(crate) round_trip_ms: Option<f64>,
    /// Repairs sent, copies included.
    pub(crate) repair_transmissions: u64,
    /// Datagrams towards the server that the client numbered.
    pub(crate) upward_numbered: u64,
    /// Numbered datagrams towards the server that the gateway missed.
    pub(crate) upward_missing: u64,
    /// Missing datagrams that the gateway could not repair.
    pub(crate) unrepairable: u64,
    /// eACKs that the gateway could not decode.
    pub(crate) decode_failures: u64,
}

impl From<AssistanceStats> for AssistanceReport {
    fn from(stats: AssistanceStats) -> Self {
        let assist = stats.assist;
        Self {
            sessions: assist.sessions,
            eacks: assist.eacks,
            control_bytes_sent: assist.control_bytes_sent,
            control_bytes_received: assist.control_bytes_received,
            duplicates: assist.duplicates,
            holes: HoleFigures {
                holes: assist.holes,
                filled_in_time: assist.filled_in_time,
                filled_late: assist.filled_late,
                expired: assist.expired,
                settled: assist.settled,
            },
            numbered: stats.shim.numbered,
            kept: stats.shim.kept,
            recovered: stats.shim.recovered,
            round_trip_ms: assist.round_trip.map(|time| time.as_secs_f64() * 1e3),
            repair_transmissions: assist.gateway.repair_transmissions.into(),
            upward_numbered: assist.upward_numbered,
            upward_missing: assist.upward_missing,
            unrepairable: assist.gateway.unrepairable.into(),
            decode_failures: assist.gateway.decode_failures.into(),
        }
    }
}

impl DemoReport {
    /// Computes the ratios between downloads.
    pub(crate) fn compare(&mut self) {
        let goodput =
            |name| self.arms.iter().find(|arm| arm.name == name).map(|arm| arm.goodput_mbps);
        let share = |name| match (goodput(name), goodput(ArmName::Packrat)) {
            (Some(disturbed), Some(undisturbed)) if undisturbed > 0.0 => {
                Some(disturbed / undisturbed)
            }
            _ => None,
        };
        let (moved, flooded) = (share(ArmName::PackratMoved), share(ArmName::PackratFlooded));
        (self.moved_to_unmoved, self.flooded_to_undisturbed) = (moved, flooded);
    }
}

impl ArmReport {
    /// True if the arm showed its claim. A client with a planned move must have moved before the
    /// download ended.
    pub(crate) fn succeeded(&self) -> bool {
        let has_moved = self.name != ArmName::PackratMoved || self.gateway.paths_moved > 0;
        self.sha256_ok && has_moved && (self.complete || self.name.may_be_stopped())
    }
}

/// A line for arms whose path was late, and whose figures therefore cannot be trusted.
pub(crate) fn lateness(arms: &[ArmReport]) -> Option<String> {
    let late = arms.iter().filter(|arm| !arm.path.on_time);
    let late: Vec<_> = late.map(|arm| (arm.name, [arm.path.far, arm.path.last_mile])).collect();
    (!late.is_empty()).then(|| line(&late))
}

fn line(late: &[(ArmName, [PathReport; 2])]) -> String {
    let names: Vec<String> = late.iter().map(|(name, _)| name.to_string()).collect();
    let (mut count, mut total, mut most, mut dropped) = (0, 0, 0, 0);
    for path in late.iter().flat_map(|(_, paths)| paths) {
        for lateness in [path.upward.lateness, path.downward.lateness] {
            (count, total) = (count + lateness.late, total + lateness.total);
            most = most.max(lateness.max_micros);
        }
        dropped += path.socket_drops;
    }
    format!(
        "This machine is too busy to trust the figures of {}: the emulated path was late with {count} of {total} datagrams, by up to {:.0} ms, and the kernel dropped {dropped}",
        names.join(", "),
        most as f64 * 1e-3
    )
}

#[cfg(test)]
mod tests {
    use packrat_emulation::path::{DirectionReport, Lateness};

    use super::*;

    #[test]
    fn a_path_that_was_late_is_told_of_in_one_line() {
        let path = |late| {
            let lateness =
                Lateness { late, total: 1000, max_micros: 2000 * late, ..Lateness::default() };
            let downward = DirectionReport { lateness, ..DirectionReport::default() };
            PathReport { downward, socket_drops: 3, ..PathReport::default() }
        };
        let late = [(ArmName::Packrat, [path(20), path(5)]), (ArmName::EndToEnd, [path(0); 2])];
        assert_eq!(
            line(&late),
            "This machine is too busy to trust the figures of packrat, end-to-end: the emulated path was late with 25 of 4000 datagrams, by up to 40 ms, and the kernel dropped 12"
        );
    }

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let times =
            TimesReport::new("echoes", 12, None, 0, (1..=10).rev().map(f64::from).collect());
        let quantiles = (times.median_ms, times.p90_ms, times.p99_ms, times.p999_ms);
        assert_eq!((times.completed, quantiles), (10, (5.0, 9.0, 10.0, 10.0)));
        assert_eq!(TimesReport::new("echoes", 0, None, 0, Vec::new()).median_ms, 0.0);
    }
}
