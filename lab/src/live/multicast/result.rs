//! The result of a trial with many receivers.

use super::trial::MulticastArm;
use serde::Serialize;

/// A trial's result; one JSON line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MulticastResult {
    /// The scenario's name.
    pub scenario: String,
    /// The arm's name.
    pub arm: MulticastArm,
    /// Mean loss of the last mile, 0 to 1.
    pub loss: f64,
    /// The seed.
    pub seed: u64,
    /// Number of receivers.
    pub receivers: usize,
    /// Packets sent once by the server.
    pub packets: u64,
    /// Packets that receivers asked the server for, per receiver and second.
    pub requests_per_second: f64,
    /// Retransmissions of the server per second, for all receivers.
    pub retransmissions_per_second: f64,
    /// Packets that a receiver never had, of all.
    pub dropped: u64,
    /// Packets that were lost on the last mile.
    pub lost: u64,
    /// Repairs and symbols of the gateway.
    #[serde(flatten)]
    pub repair: GroupRepairs,
    /// Time until receivers have a packet.
    #[serde(flatten)]
    pub latency: LatencyQuantiles,
    /// Work and memory of the gateway.
    #[serde(flatten)]
    pub cost: MulticastCost,
}

/// Repairs and symbols of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GroupRepairs {
    /// Repairs of the gateway.
    pub repairs: u64,
    /// Repairs to all receivers.
    pub group_repairs: u64,
    /// Symbols to all.
    pub symbols: u64,
    /// Symbols and repairs per packet of the stream.
    pub per_packet: f64,
    /// Bytes of the repairs, as a share of the stream's.
    pub bytes_share: f64,
}

/// Time from the gateway's forwarding of a packet until a receiver has it, milliseconds: quantiles
/// over all packets and receivers that got it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencyQuantiles {
    /// Median.
    pub latency_p50_ms: u64,
    /// 99th percentile.
    pub latency_p99_ms: u64,
    /// 99.9th percentile.
    pub latency_p999_ms: u64,
}

/// Work and memory of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MulticastCost {
    /// eACKs per receiver and second.
    pub eacks_per_second: f64,
    /// eACKs that could not be decoded.
    pub decode_failures: u64,
    /// Resets.
    pub resets: u64,
    /// Bytes of the shared cache, at most.
    pub cache_max: u64,
    /// Packets under repair per receiver, mean.
    pub outstanding_mean: f64,
    /// State per receiver beside its sealed channel, bytes: mean.
    pub state_mean: f64,
}
