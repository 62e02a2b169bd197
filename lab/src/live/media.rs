//! A stream with one receiver.

use std::time::Duration;

use packrat_emulation::path::LinkCounters;
use packrat_emulation::scenario::{Links, Scenario};
use packrat_engine::GatewayConfig;
use packrat_media::{Assistance, Counts};
use packrat_wire::estimate::Timestamp;
use serde::Serialize;

use super::gateway::GatewayTotals;
use super::player::{Experience, Played, play};
use super::stream::Stream;

/// Source of the stream's packets.
pub(crate) const STREAM_SOURCE: u32 = 0x5061_636b;
/// Bytes of IP and UDP headers, which the counters of Packrat26 include.
const HEADER_BYTES: u64 = 28;
/// The stream begins when the client has had the time to find its gateway.
pub(crate) const STREAM_BEGIN: Timestamp = Timestamp::from_millis(1000);
/// Time after the last packet in which packets in flight may arrive.
pub(crate) const ARRIVAL_TIME: Duration = Duration::from_secs(2);

/// The means against loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arm {
    /// The receiver asks the sender.
    EndToEnd,
    /// The gateway repairs, and the receiver asks the sender for the rest.
    Packrat,
    /// The gateway repairs, without early copies, and the receiver also asks the sender at once.
    RepairOnly,
    /// As `packrat`, with eACKs all the time instead of for holes only.
    EveryEack,
    /// As `packrat`, without early copies.
    NoEarlyCopies,
    /// A path without loss.
    Ideal,
}

packrat_emulation::choices!(Arm, "arm", [
    EndToEnd "end-to-end",
    Packrat "packrat",
    RepairOnly "repair-only",
    EveryEack "every-eack",
    NoEarlyCopies "no-early-copies",
    Ideal "ideal",
]);

/// A trial of one stream.
#[derive(Debug, Clone)]
pub struct MediaTrial {
    /// The network; its size of a download does not matter.
    pub scenario: Scenario,
    /// The stream that is sent.
    pub stream: Stream,
    /// The means against loss.
    pub arm: Arm,
    /// Decides everything random.
    pub seed: u64,
    /// The length of the stream.
    pub duration: Duration,
    /// The gateway of the arms that have one.
    pub gateway: GatewayConfig,
}

/// Datagrams and bytes sent, headers of IP and UDP included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Traffic {
    /// Datagrams.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The traffic into each link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct StreamTraffic {
    /// The client's traffic.
    pub client: Traffic,
    /// The part of it that the gateway passed on.
    pub client_to_server: Traffic,
    /// The server's traffic.
    pub server: Traffic,
    /// The traffic that arrived on the last mile or was lost there.
    pub last_mile: Traffic,
}

/// A trial's result; one JSON line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MediaResult {
    /// The scenario's name.
    pub scenario: String,
    /// The stream's name.
    pub stream: Stream,
    /// The arm's name.
    pub arm: Arm,
    /// Mean loss of the last mile, 0 to 1.
    pub loss: f64,
    /// The seed.
    pub seed: u64,
    /// Units sent.
    pub units: u64,
    /// The listener's experience.
    #[serde(flatten)]
    pub experience: Experience,
    /// The traffic into each link.
    #[serde(flatten)]
    pub traffic: StreamTraffic,
    /// The client's share of the bytes that client and server sent.
    pub client_share: f64,
    /// Retransmissions of the server.
    pub retransmissions: u64,
    /// Retransmissions that the client did not need.
    pub spurious: u64,
    /// Messages in which the client asked the server.
    pub requests: u64,
    /// The gateway's work.
    #[serde(flatten)]
    pub gateway: GatewayTotals,
    /// True if the emulated path was on time, as it always is in virtual time.
    pub on_time: bool,
    /// Bytes cached at each forwarded datagram of the first ten seconds: seconds, bytes.
    #[serde(skip)]
    pub cache_series: Vec<(f64, u64)>,
}

impl Traffic {
    /// The traffic offered to a link.
    pub(crate) fn of(counters: &LinkCounters) -> Self {
        Self {
            packets: counters.offered,
            bytes: counters.offered_bytes + HEADER_BYTES * counters.offered,
        }
    }
}

/// The observations of a trial, in virtual or real time.
pub(crate) struct Observations {
    /// Times of sending, and of availability, by unit, in microseconds.
    pub(crate) sent: Vec<u64>,
    pub(crate) available: Vec<Option<u64>>,
    pub(crate) links: Links,
    pub(crate) traffic: StreamTraffic,
    pub(crate) retransmissions: u64,
    pub(crate) counts: Counts,
    pub(crate) gateway: GatewayTotals,
    pub(crate) cache_series: Vec<(f64, u64)>,
}

impl MediaTrial {
    /// A trial of three minutes with a cache of 20 kB, as in Packrat26, table 4.
    pub fn new(scenario: Scenario, stream: Stream, arm: Arm, seed: u64) -> Self {
        let early_copies = match arm {
            Arm::NoEarlyCopies | Arm::RepairOnly => 0.0,
            _ => GatewayConfig::default().early_copies,
        };
        let cache_bytes_per_flow = match stream {
            Stream::Audio => 20_000,
            Stream::Video => 100_000,
        };
        let gateway =
            GatewayConfig { cache_bytes_per_flow, early_copies, ..GatewayConfig::default() };
        Self { scenario, stream, arm, seed, duration: Duration::from_secs(180), gateway }
    }

    /// The receiver's assistance; `None` without a gateway.
    pub(crate) fn assistance(&self) -> Option<Assistance> {
        let assisted = !matches!(self.arm, Arm::EndToEnd | Arm::Ideal);
        assisted.then(|| Assistance {
            hold: self.arm != Arm::RepairOnly,
            selective: self.arm != Arm::EveryEack,
            ..Assistance::default()
        })
    }

    /// The listener's experience, and its cost.
    pub(crate) fn evaluate(&self, scenario: &Scenario, observations: Observations) -> MediaResult {
        let units = self.units(&observations);
        let Observations { sent, traffic, retransmissions, counts, gateway, cache_series, .. } =
            observations;
        let config = self.stream.receiver();
        let slack = match self.stream {
            Stream::Audio => Duration::ZERO,
            Stream::Video => config.latency,
        };
        let both = traffic.client.bytes + traffic.server.bytes;
        MediaResult {
            scenario: scenario.name.clone(),
            stream: self.stream,
            arm: self.arm,
            loss: scenario.last_mile.loss,
            seed: self.seed,
            units: sent.len() as u64,
            experience: play(units, slack, config.patience),
            traffic,
            client_share: traffic.client.bytes as f64 / both.max(1) as f64,
            retransmissions,
            spurious: counts.spurious_retransmissions,
            requests: counts.asked_messages,
            gateway,
            on_time: true,
            cache_series,
        }
    }

    /// The units that the receiver knows of.
    fn units(&self, Observations { sent, available, links, .. }: &Observations) -> Vec<Played> {
        let travel = sent
            .iter()
            .zip(available)
            .filter_map(|(sent, at)| at.map(|at| at.saturating_sub(*sent)));
        // The travel time without loss: the whole of a burst takes longer than its first packet.
        let travel = match self.stream {
            Stream::Audio => travel.min().unwrap_or_default(),
            Stream::Video => {
                let links = [links.far_down, links.last_mile_down];
                let (sizes, _) = self.stream.burst();
                let bytes: usize = sizes.iter().map(|size| size + 32).sum();
                let slowest = links.iter().map(|link| link.rate).min().unwrap_or(u64::MAX).max(1);
                let delays: Duration = links.iter().map(|link| link.delay).sum();
                delays.as_micros() as u64 + bytes as u64 * 8_000_000 / slowest + 1_000
            }
        };
        let production = self.stream.production().as_micros() as u64;
        // A receiver that comes late, or whose first packets are lost, does not know the earlier
        // ones.
        let first = available.iter().position(Option::is_some).unwrap_or_default();
        let unit = |(sent, available): (&u64, &Option<u64>)| Played {
            produced: sent - production,
            due: match self.stream {
                // The second packet with it is sent one rhythm later.
                Stream::Audio => sent + production + travel,
                Stream::Video => sent + travel,
            },
            available: *available,
        };
        sent.iter().zip(available).skip(first).map(unit).collect()
    }
}
