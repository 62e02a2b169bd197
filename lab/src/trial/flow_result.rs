//! The outcome of each flow of a trial, and their shares.

use super::arm::Arm;
use super::flow::FlowOutcome;
use super::plan::{FlowKind, PlannedFlow};
use crate::network::VirtualNetwork;
use crate::stacks::Sender;
use crate::statistics::{quantile, sorted};
use crate::traffic::VideoResult;
use packrat_emulation::scenario::FlowDirection;
use serde::Serialize;

/// The outcome of one flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowResult {
    /// Name in the scenario.
    pub name: String,
    /// Kind of the flow.
    pub kind: FlowKind,
    /// The sender's name.
    pub sender: Sender,
    /// The arm's name.
    pub arm: Arm,
    /// Direction: `down` or `up`.
    pub direction: &'static str,
    /// The beginning, virtual seconds.
    pub start: f64,
    /// Mbit/s that the receiving application had, since everything has settled.
    pub goodput_mbps: f64,
    /// Goodput over the mean of all flows in this direction that take as much as they can: 1 is
    /// fair. `None` of others.
    pub share: Option<f64>,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// True if everything has arrived, or there was no end to it.
    pub complete: bool,
    /// The reasons why connections ended early.
    pub failures: Vec<String>,
    /// Times of objects or pages, for each size.
    pub completions: Vec<Completions>,
    /// The video session.
    pub video: Option<VideoResult>,
    /// The flow's losses, and the repairs.
    #[serde(flatten)]
    pub losses: FlowLosses,
}

/// The losses of a flow, and what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct FlowLosses {
    /// Datagrams in the flow's direction that the last mile lost.
    pub lost_last_mile: u64,
    /// Datagrams in the flow's direction that queues dropped.
    pub queue_dropped: u64,
    /// Datagrams that the gateway sent again.
    pub repaired: u64,
    /// Bytes of these.
    pub repair_bytes: u64,
    /// Packets that the sender declared lost.
    pub declared_lost: u64,
    /// Packets among them that had arrived.
    pub spurious: u64,
}

/// Times of objects of one size, or of a page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Completions {
    /// Bytes of an object; 0: a page.
    pub size: u64,
    /// Seconds: of objects from the request to the last byte, of pages from the first datagram on.
    pub seconds: Vec<f64>,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Completions {
    /// All times of these objects by size, ascending.
    pub(crate) fn of(objects: impl Iterator<Item = (u64, f64)>) -> Vec<Self> {
        let mut all: Vec<(u64, f64)> = objects.collect();
        all.sort_by_key(|(size, _)| *size);
        all.chunk_by(|one, other| one.0 == other.0)
            .map(|same| {
                let seconds = sorted(same.iter().map(|(_, seconds)| *seconds));
                let [p50, p99] = [0.5, 0.99].map(|share| quantile(&seconds, share));
                Self { size: same[0].0, seconds, p50, p99 }
            })
            .collect()
    }
}

impl FlowResult {
    /// The outcome of a flow's connections.
    pub(crate) fn new(
        flow: &PlannedFlow,
        outcomes: &[FlowOutcome],
        network: &VirtualNetwork,
    ) -> Self {
        let downwards = flow.direction == FlowDirection::Down;
        let mut result = Self {
            name: flow.name.clone(),
            kind: flow.kind,
            sender: flow.sender,
            arm: flow.arm,
            direction: if downwards { "down" } else { "up" },
            start: flow.start.as_secs_f64(),
            goodput_mbps: 0.0,
            share: None,
            bytes: 0,
            complete: true,
            failures: Vec::new(),
            completions: Completions::of(
                outcomes.iter().flat_map(|outcome| outcome.download.work.completions.clone()),
            ),
            video: outcomes.iter().find_map(|outcome| outcome.download.work.video.clone()),
            losses: FlowLosses::default(),
        };
        let (mut counted, mut seconds) = (0, 0.0_f64);
        let losses = &mut result.losses;
        for outcome in outcomes {
            let download = &outcome.download;
            result.bytes += download.received;
            counted += download.counted;
            // Connections in turn share the time, those at once have the same.
            let own = download.counted_seconds;
            seconds = if flow.in_turn { seconds + own } else { seconds.max(own) };
            result.complete &= flow.is_open_ended() || download.work.complete;
            result.failures.extend(download.failure.clone());
            let client = network.counters(outcome.client).client;
            let way = if downwards { client.down } else { client.up };
            losses.lost_last_mile += way.lost;
            losses.queue_dropped += way.queue_dropped;
            let gateway = network.gateway_figures(outcome.client).counters;
            if downwards {
                losses.repaired += gateway.repairs;
                losses.repair_bytes += gateway.repair_bytes + gateway.symbol_bytes;
            } else {
                losses.repaired += gateway.upward_repaired;
                losses.repair_bytes += download.assistance.assist.upward_repair_bytes;
            }
            let sender = if downwards { &outcome.sender } else { &outcome.receiving };
            losses.declared_lost += sender.declared_lost.len() as u64;
            if downwards {
                losses.spurious += download.received_of(&sender.declared_lost);
            }
        }
        result.goodput_mbps = if seconds > 0.0 { counted as f64 * 8e-6 / seconds } else { 0.0 };
        result
    }
}

/// Jain's index: 1 is fair, one over their number is that one has everything.
pub(crate) fn jain(goodputs: &[f64]) -> f64 {
    let sum: f64 = goodputs.iter().sum();
    let squares: f64 = goodputs.iter().map(|goodput| goodput * goodput).sum();
    sum * sum / (goodputs.len() as f64 * squares)
}

/// Sets the shares of endless flows, in each direction, and Jain's index of the shares in the
/// direction of the first flow.
pub(crate) fn share_out(plan: &[PlannedFlow], results: &mut [FlowResult]) -> Option<f64> {
    let mut index = None;
    for direction in ["down", "up"] {
        let peers: Vec<usize> = (0..results.len())
            .filter(|&n| plan[n].is_open_ended() && results[n].direction == direction)
            .collect();
        if peers.len() < 2 {
            continue;
        }
        let goodputs: Vec<f64> = peers.iter().map(|&n| results[n].goodput_mbps).collect();
        let sum: f64 = goodputs.iter().sum();
        for &n in &peers {
            results[n].share = Some(results[n].goodput_mbps * peers.len() as f64 / sum);
        }
        if results[0].direction == direction {
            index = Some(jain(&goodputs));
        }
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jain's index is 1 for equal flows, and 1 / n if one of n flows has all.
    #[test]
    fn jains_index_is_one_for_equal_flows_and_1_over_n_for_one_flow() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[6.0, 0.0]), 0.5);
        assert!((jain(&[2.0, 1.0]) - 0.9).abs() < 1e-12);
    }

    #[test]
    fn completions_are_pooled_by_size() {
        let all = Completions::of([(20, 4.0), (10, 1.0), (20, 2.0), (20, 3.0)].into_iter());
        let of: Vec<_> = all.iter().map(|one| (one.size, one.seconds.len(), one.p50)).collect();
        assert_eq!(of, [(10, 1, 1.0), (20, 3, 3.0)]);
        assert!((all[1].p99 - 3.98).abs() < 1e-9);
    }
}
