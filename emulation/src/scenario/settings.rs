//! Settings of a segment's links that change with time, or differ from the segment's others.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::Deserialize;

use super::checks::{Checked, require, within};
use crate::path::{
    AirtimeConfig, CoDelConfig, FqCoDelConfig, Jitter, JitterModel, OutageModel, QueueDiscipline,
    QueueManagement, RateRecording, RedConfig, bandwidth_delay_product,
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
    /// A rate that changes, instead of the one above.
    pub rate_changes: Option<RateChanges>,
    /// Factor of the segment's loss.
    pub loss_scale: Option<f64>,
    /// The queue instead of the scenario's.
    pub queue: Option<QueueSettings>,
}

/// A rate that changes at regular times.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "model", deny_unknown_fields)]
pub enum RateChanges {
    /// Rates in turn.
    Cycle {
        /// Rates, Mbit/s of IP.
        mbps: Vec<f64>,
        /// Time that each lasts, milliseconds.
        every_ms: u32,
    },
    /// A random walk between two rates, which each step multiplies or divides by up to 1.25.
    Walk {
        /// The lowest rate, Mbit/s of IP.
        least_mbps: f64,
        /// The highest rate, Mbit/s of IP.
        most_mbps: f64,
        /// Time of a step, milliseconds.
        every_ms: u32,
    },
}

/// Time after which a walk is repeated, milliseconds.
const WALK_MILLIS: u32 = 60_000;
/// Natural logarithm of the largest factor of a walk's step.
const WALK_STEP_LN: f64 = 0.223;

impl RateChanges {
    /// The opportunities to send, as a recording would have them.
    pub(super) fn recording(&self, seed: u64) -> RateRecording {
        match self {
            Self::Cycle { mbps, every_ms } => {
                RateRecording::of_rates(mbps.iter().map(|mbps| mbps * 1e6), *every_ms)
            }
            Self::Walk { least_mbps, most_mbps, every_ms } => {
                let mut random = ChaCha8Rng::seed_from_u64(seed);
                let (least, most) = (least_mbps * 1e6, most_mbps * 1e6);
                let mut rate = (least * most).sqrt();
                let rates = (0..WALK_MILLIS / every_ms).map(|_| {
                    let share = f64::from(random.next_u32()) / f64::from(u32::MAX);
                    rate = (rate * ((2.0 * share - 1.0) * WALK_STEP_LN).exp()).clamp(least, most);
                    rate
                });
                RateRecording::of_rates(rates, *every_ms)
            }
        }
    }

    pub(super) fn check(&self) -> Checked {
        let (rates, every_ms) = match self {
            Self::Cycle { mbps, every_ms } => (mbps.clone(), *every_ms),
            Self::Walk { least_mbps, most_mbps, every_ms } => {
                (vec![*least_mbps, *most_mbps], *every_ms)
            }
        };
        let are_rates = !rates.is_empty() && rates.iter().all(|it| (0.1..=100_000.0).contains(it));
        require(are_rates, "rate_changes: a rate is missing, or not in 0.1 to 100000")?;
        let is_range = rates.is_sorted() || matches!(self, Self::Cycle { .. });
        require(is_range, "rate_changes.least_mbps is above most_mbps")?;
        within("rate_changes.every_ms", every_ms, 1..=WALK_MILLIS)
    }
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
