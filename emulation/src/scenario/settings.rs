//! Settings of a segment's links that change with time, or differ from the segment's others.

use std::time::Duration;

use serde::Deserialize;

use super::checks::{Checked, require, within};
use crate::path::{
    AirtimeConfig, CoDelConfig, FqCoDelConfig, Jitter, JitterModel, OutageModel, QueueDiscipline,
    QueueManagement, RedConfig, bandwidth_delay_product,
};

/// Differences of one direction of a segment from the segment.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DirectionSettings {
    /// Propagation delay, milliseconds.
    pub delay_ms: Option<f64>,
    /// Rate, Mbit/s of UDP payload.
    pub rate_mbps: Option<f64>,
    /// A recording of the rate in Mahimahi's format, in the folder of the traces. Without that
    /// folder the rate above stands for it.
    pub rate_recording: Option<String>,
    /// Factor of the segment's loss.
    pub loss_scale: Option<f64>,
    /// The queue instead of the scenario's.
    pub queue: Option<QueueSettings>,
}

/// A kind of queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueSettingsKind {
    /// Datagrams that do not fit are dropped.
    DropTail,
    /// The oldest datagrams make room.
    DropFront,
    /// Random early detection as published (Floyd93).
    Red,
    /// RFC 8289.
    #[serde(rename = "codel")]
    CoDel,
    /// RFC 8290.
    #[serde(rename = "fq-codel")]
    FqCoDel,
    /// A token bucket of `rate_mbps`; `bytes` or `ms` at that rate are its burst.
    Policer,
}

/// The queue of one direction. Its limit is one bandwidth-delay product of the whole path unless
/// `bytes` or `ms` is set.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSettings {
    /// Kind of queue.
    pub kind: QueueSettingsKind,
    /// Rate of a policer, Mbit/s of UDP payload.
    pub rate_mbps: Option<f64>,
    /// Bytes that fit.
    pub bytes: Option<usize>,
    /// Milliseconds at the mean rate that fit.
    pub ms: Option<f64>,
    /// Datagrams that fit; only of FQ-CoDel.
    pub datagrams: Option<usize>,
    /// Acceptable wait of CoDel, milliseconds.
    pub target_ms: Option<f64>,
    /// Interval of CoDel, milliseconds.
    pub interval_ms: Option<f64>,
    /// True if the queue marks ECN-capable datagrams instead of dropping them.
    #[serde(default)]
    pub ecn: bool,
}

impl QueueSettings {
    /// A drop-tail queue of `bytes` bytes.
    pub const fn drop_tail(bytes: usize) -> Self {
        Self {
            kind: QueueSettingsKind::DropTail,
            rate_mbps: None,
            bytes: Some(bytes),
            ms: None,
            datagrams: None,
            target_ms: None,
            interval_ms: None,
            ecn: false,
        }
    }

    /// The queue in front of a transmitter with a mean rate of `rate` bits per second, on a path
    /// with this round trip.
    pub(super) fn management(&self, rate: u64, round_trip: Duration) -> QueueManagement {
        let policed = self.rate_mbps.map(|mbps| (mbps * 1e6) as u64);
        let rate = policed.unwrap_or(rate);
        let limit = match (self.bytes, self.ms) {
            (Some(bytes), _) => bytes,
            (None, Some(ms)) => (rate as f64 / 8e3 * ms) as usize,
            (None, None) => bandwidth_delay_product(rate, round_trip),
        };
        let millis = |ms: Option<f64>, default: Duration| ms.map_or(default, milliseconds);
        let codel = CoDelConfig::new(limit);
        let target = millis(self.target_ms, codel.target);
        let interval = millis(self.interval_ms, codel.interval);
        match self.kind {
            QueueSettingsKind::DropTail => {
                QueueManagement::Arrival(QueueDiscipline::DropTail { limit })
            }
            QueueSettingsKind::Policer => {
                QueueManagement::Arrival(QueueDiscipline::Policer { rate, burst: limit })
            }
            QueueSettingsKind::DropFront => QueueManagement::DropFront { limit },
            QueueSettingsKind::Red => {
                QueueManagement::Red(RedConfig { ecn: self.ecn, ..RedConfig::new(limit) })
            }
            QueueSettingsKind::CoDel => {
                QueueManagement::CoDel(CoDelConfig { target, interval, ecn: self.ecn, limit })
            }
            QueueSettingsKind::FqCoDel => {
                let default = FqCoDelConfig::default();
                let limit = self.datagrams.unwrap_or(default.limit);
                QueueManagement::FqCoDel(FqCoDelConfig {
                    target,
                    interval,
                    ecn: self.ecn,
                    limit,
                    ..default
                })
            }
        }
    }

    pub(super) fn check(&self) -> Checked {
        let is_once = self.bytes.is_none() || self.ms.is_none();
        require(is_once, "queue has bytes and ms; keep one of them")?;
        let is_policer = self.kind == QueueSettingsKind::Policer;
        let fits = is_policer == self.rate_mbps.is_some();
        require(fits, "queue.rate_mbps is the rate of a policer, and of nothing else")?;
        within("queue.rate_mbps", self.rate_mbps, 0.01..=100_000.0)?;
        let has_room = self.bytes != Some(0) && self.datagrams != Some(0);
        require(has_room, "queue has room for nothing")?;
        within("queue.ms", self.ms, 0.01..=60_000.0)?;
        within("queue.target_ms", self.target_ms, 0.01..=60_000.0)?;
        within("queue.interval_ms", self.interval_ms, 0.01..=60_000.0)
    }
}

/// Another propagation delay from a time on, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayStep {
    /// Milliseconds from the beginning.
    pub at_ms: f64,
    /// The delay one way after this time, milliseconds.
    pub delay_ms: f64,
}

/// Delay on top of the propagation delay, drawn for each direction.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "model", deny_unknown_fields)]
pub enum JitterSettings {
    /// Exponential.
    Exponential {
        /// Mean, milliseconds.
        mean_ms: f64,
        /// Interval at which the delay is drawn again, milliseconds.
        #[serde(default = "twenty")]
        every_ms: f64,
    },
    /// A wireless LAN; see [`JitterModel::Wifi`].
    Wifi {
        /// Share of the time with a long wait, 0 to 1.
        late_share: f64,
        /// Interval at which the delay is drawn again, milliseconds.
        #[serde(default = "twenty")]
        every_ms: f64,
    },
}

fn twenty() -> f64 {
    20.0
}

impl JitterSettings {
    pub(super) fn jitter(self) -> Jitter {
        let (model, every_ms) = match self {
            Self::Exponential { mean_ms, every_ms } => {
                (JitterModel::Exponential { mean: milliseconds(mean_ms) }, every_ms)
            }
            Self::Wifi { late_share, every_ms } => (JitterModel::Wifi { late_share }, every_ms),
        };
        Jitter { model, every: milliseconds(every_ms) }
    }

    pub(super) fn check(self) -> Checked {
        let (Self::Exponential { every_ms, .. } | Self::Wifi { every_ms, .. }) = self;
        match self {
            Self::Exponential { mean_ms, .. } => within("jitter.mean_ms", mean_ms, 0.0..=10_000.0)?,
            Self::Wifi { late_share, .. } => within("jitter.late_share", late_share, 0.0..=1.0)?,
        }
        within("jitter.every_ms", every_ms, 1.0..=60_000.0)
    }
}

/// Times in which a segment loses everything, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "model", deny_unknown_fields)]
pub enum OutageSettings {
    /// Outages at regular times.
    Scheduled {
        /// Time between the beginnings of two outages, milliseconds.
        every_ms: f64,
        /// Length, milliseconds.
        length_ms: f64,
        /// The beginning of the first one, milliseconds.
        first_ms: f64,
    },
    /// Outages at random times, for random times, both exponential.
    Markov {
        /// Mean time between two outages, milliseconds.
        up_ms: f64,
        /// Mean length, milliseconds.
        down_ms: f64,
    },
}

impl OutageSettings {
    pub(super) fn model(self) -> OutageModel {
        match self {
            Self::Scheduled { every_ms, length_ms, first_ms } => OutageModel::Scheduled {
                first: milliseconds(first_ms),
                every: milliseconds(every_ms),
                length: milliseconds(length_ms),
            },
            Self::Markov { up_ms, down_ms } => {
                OutageModel::Markov { off: milliseconds(down_ms), on: milliseconds(up_ms) }
            }
        }
    }

    pub(super) fn check(self) -> Checked {
        let (times, is_right, mistake) = match self {
            Self::Scheduled { every_ms, length_ms, first_ms } => (
                [every_ms, length_ms, first_ms],
                length_ms < every_ms,
                "outages.length_ms is not below outages.every_ms",
            ),
            Self::Markov { up_ms, down_ms } => {
                ([up_ms, down_ms, 0.0], up_ms > 0.0, "outages.up_ms is not above 0")
            }
        };
        let in_range = times.iter().all(|time| (0.0..=1e9).contains(time));
        require(in_range, "outages: a time is below 0 or above 1e9 ms")?;
        require(is_right, mistake)
    }
}

/// A half-duplex segment: both directions take turns on the same air.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AirtimeSettings {
    /// Time that a turn costs besides its bytes, microseconds.
    #[serde(default)]
    pub access_us: f64,
    /// Datagrams of one turn, at most.
    #[serde(default = "single")]
    pub aggregate: usize,
}

fn single() -> usize {
    1
}

impl AirtimeSettings {
    pub(super) fn config(self) -> AirtimeConfig {
        AirtimeConfig { access: milliseconds(self.access_us * 1e-3), aggregate: self.aggregate }
    }

    pub(super) fn check(self) -> Checked {
        within("airtime.access_us", self.access_us, 0.0..=100_000.0)?;
        within("airtime.aggregate", self.aggregate, 1..=1024)
    }
}

/// Hosts that read in batches.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchingSettings {
    /// The gateway.
    pub gateway: Option<BatchSettings>,
    /// Every client.
    pub client: Option<BatchSettings>,
    /// Every server.
    pub server: Option<BatchSettings>,
}

/// Datagrams that arrive shortly after one another are read together: a network interface that
/// delays its interrupts, generic receive offload, a process that wakes up late.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchSettings {
    /// The longest time that the first datagram of a batch waits, microseconds.
    pub wait_us: f64,
    /// A batch of this many datagrams waits no longer.
    pub datagrams: usize,
    /// Time that the host works on a datagram, one after another, microseconds.
    #[serde(default)]
    pub each_us: f64,
}

impl BatchingSettings {
    pub(super) fn check(self) -> Checked {
        let hosts = [("gateway", self.gateway), ("client", self.client), ("server", self.server)];
        for (host, batch) in hosts {
            let Some(BatchSettings { wait_us, datagrams, each_us }) = batch else { continue };
            within(format!("batching.{host}.wait_us"), wait_us, 0.0..=100_000.0)?;
            within(format!("batching.{host}.each_us"), each_us, 0.0..=100_000.0)?;
            within(format!("batching.{host}.datagrams"), datagrams, 1..=1024)?;
        }
        Ok(())
    }
}

/// A duration of this many milliseconds, which must not be negative.
pub(super) fn milliseconds(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms * 1e-3).unwrap_or_default()
}
