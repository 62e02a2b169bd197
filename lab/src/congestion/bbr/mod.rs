//! BBR, version 3 (draft-ietf-ccwg-bbr): a controller that models the path, and tolerates loss up to a threshold.
//!
//! The comments contain the draft's names of variables if they differ.

mod aggregation;
mod delivery;
mod phase;
mod round_trip;
#[cfg(test)]
mod tests;

use super::initial_window::initial_window;
use aggregation::Aggregation;
use delivery::{Delivery, Packet, Sample};
use phase::Phase;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use round_trip::{RoundTrip, RoundTripProbe};
use std::time::{Duration, Instant};

/// Share by which the pace stays below the model, so that queues do not grow by rounding.
const PACE_MARGIN: f64 = 0.01;
/// Share of losses of the bytes in flight above which the sending rate is too high.
const LOSS_THRESHOLD: f64 = 0.02;
/// Share that is left of a bound after too much loss.
const BETA: f64 = 0.7;
/// Share of the upper bound that is left to others.
const HEADROOM_SHARE: f64 = 0.15;
/// Startup ends when the bandwidth has not grown by this factor for this many rounds...
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Startup also ends when this many separate losses fall into a round of too much loss.
const FULL_LOSSES: u32 = 6;
/// Memory of the shortest round trip, and the time between probes for it.
const ROUND_TRIP_MEMORY: Duration = Duration::from_secs(10);
const ROUND_TRIP_INTERVAL: Duration = Duration::from_secs(5);
const ROUND_TRIP_PROBE: Duration = Duration::from_millis(200);
/// Rounds between probes for bandwidth beside a Reno flow, at most.
const RENO_ROUNDS: u64 = 63;
/// Smallest window, datagrams.
const SMALLEST_WINDOW: u64 = 4;
const LARGEST_QUANTUM: f64 = 64.0 * 1024.0;

/// The model of one connection's path.
#[derive(Debug, Clone)]
pub(crate) struct Bbr {
    datagram: u64,
    random: ChaCha8Rng,
    phase: Phase,
    delivery: Delivery,
    /// Bytes.
    window: u64,
    /// True if the window has kept packets back in this round.
    window_limits: bool,
    /// Bytes per second.
    pace: f64,
    /// Bandwidth: the most of this cycle and of the last.
    bandwidths: [f64; 2],
    bounds: Bounds,
    latest: Latest,
    round: Round,
    full: Full,
    probe: Probe,
    round_trip: RoundTrip,
    aggregation: Aggregation,
}

/// The bounds that losses set.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    bandwidth: f64,
    /// Bytes in flight: `inflight_longterm`.
    upper: f64,
    /// Bytes in flight: `inflight_shortterm`.
    lower: f64,
}

/// The deliveries of the newest round of losses.
#[derive(Debug, Clone, Copy, Default)]
struct Latest {
    bandwidth: f64,
    delivered: u64,
}

/// The rounds: of the connection, and of losses.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    count: u64,
    next: u64,
    start: bool,
    loss_next: u64,
    loss_start: bool,
    lossy: bool,
    /// Bytes and separate losses of the round.
    lost: u64,
    losses: u32,
    last_lost: Option<u64>,
}

/// The detection of a full pipe.
#[derive(Debug, Clone, Copy, Default)]
struct Full {
    bandwidth: f64,
    rounds: u32,
    now: bool,
    reached: bool,
}

/// The cycle that probes for bandwidth.
#[derive(Debug, Clone, Copy)]
struct Probe {
    since: Option<Instant>,
    rounds: u64,
    wait: Duration,
    /// True while losses result from a probe (`bw_probe_samples`).
    samples: bool,
    /// The acknowledgements belong to the first round of a probe, or to the one after it.
    starting: bool,
    stopping: bool,
    up_rounds: u32,
    /// Bytes to acknowledge for each byte of growth.
    up_cost: f64,
}

impl Bbr {
    /// Startup, with datagrams of this size.
    pub(crate) fn new(datagram: u16, random: ChaCha8Rng) -> Self {
        let datagram = u64::from(datagram);
        let window = initial_window(datagram);
        Self {
            datagram,
            random,
            phase: Phase::Startup,
            delivery: Delivery::default(),
            window,
            window_limits: false,
            pace: Phase::Startup.gains()[0] * window as f64 / 1e-3,
            bandwidths: [0.0; 2],
            bounds: Bounds { bandwidth: f64::INFINITY, upper: f64::INFINITY, lower: f64::INFINITY },
            latest: Latest::default(),
            round: Round::default(),
            full: Full::default(),
            probe: Probe {
                since: None,
                rounds: 0,
                wait: Duration::ZERO,
                samples: false,
                starting: false,
                stopping: false,
                up_rounds: 0,
                up_cost: f64::INFINITY,
            },
            round_trip: RoundTrip::default(),
            aggregation: Aggregation::default(),
        }
    }

    /// Largest number of bytes in flight.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Bytes per second.
    pub(crate) fn pace(&self) -> u64 {
        self.pace as u64
    }

    /// The most bytes that leave at once.
    pub(crate) fn quantum(&self) -> u64 {
        (self.pace * 1e-3).min(LARGEST_QUANTUM).max(2.0 * self.datagram as f64) as u64
    }

    /// Datagrams have another size now.
    pub(crate) fn set_datagram(&mut self, datagram: u16) {
        self.datagram = u64::from(datagram);
        self.window = self.window.max(self.smallest());
    }

    /// True once startup has filled the pipe.
    pub(crate) fn has_filled_pipe(&self) -> bool {
        self.full.reached
    }

    /// A packet was sent.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64, number: u64) {
        self.delivery.on_sent(now, bytes, number);
    }

    /// A packet is acknowledged; [`Self::on_end_acks`] follows.
    pub(crate) fn on_ack(&mut self, now: Instant, number: u64) {
        self.delivery.on_ack(now, number);
    }

    /// A packet is lost.
    pub(crate) fn on_lost(&mut self, now: Instant, number: u64) {
        let Some(packet) = self.delivery.on_lost(number) else { return };
        self.round.lost += packet.bytes;
        if self.round.last_lost.is_none_or(|last| number != last + 1) {
            self.round.losses += 1;
        }
        self.round.last_lost = Some(number);
        if !self.round.lossy {
            self.round.loss_next = self.delivery.delivered;
            self.round.lossy = true;
        }
        let lost = self.delivery.lost - packet.lost;
        if self.probe.samples && is_too_much(lost, packet.in_flight) {
            // The bytes in flight when the threshold was passed.
            let [before, lost_before] =
                [packet.in_flight, lost].map(|all| all.saturating_sub(packet.bytes) as f64);
            let share = (LOSS_THRESHOLD * before - lost_before) / (1.0 - LOSS_THRESHOLD);
            self.on_too_much(now, before + share.max(0.0), packet.limited);
        }
    }

    /// Called when the application has more data than the window allows.
    pub(crate) fn on_window_limits(&mut self) {
        self.window_limits = true;
    }

    /// Called when all acknowledgements of a batch, and the losses that they reveal, have been
    /// reported.
    pub(crate) fn on_end_acks(&mut self, now: Instant, in_flight: u64, limited: bool) {
        let sample = self.delivery.end_batch(in_flight, limited);
        let Some(newest) = sample.newest else { return };
        let rate = self.delivery.rate_of(&newest, self.round_trip.shortest);
        let delivered = self.delivery.delivered - newest.delivered;
        self.update_model(now, &sample, &newest, rate, delivered);
        self.update_pace();
        self.update_window(&sample);
    }

    fn update_model(
        &mut self,
        now: Instant,
        sample: &Sample,
        newest: &Packet,
        rate: Option<f64>,
        delivered: u64,
    ) {
        // The latest delivery.
        self.round.loss_start = false;
        self.latest.bandwidth = self.latest.bandwidth.max(rate.unwrap_or(0.0));
        self.latest.delivered = self.latest.delivered.max(delivered);
        if newest.delivered >= self.round.loss_next {
            self.round.loss_next = self.delivery.delivered;
            self.round.loss_start = true;
        }
        self.round.start = newest.delivered >= self.round.next;
        if self.round.start {
            self.start_round();
            self.round.count += 1;
            self.probe.rounds += 1;
        }
        if let Some(rate) = rate
            && (rate >= self.largest_bandwidth() || !newest.limited)
        {
            self.bandwidths[0] = self.bandwidths[0].max(rate);
        }
        self.adapt_lower_bounds();
        let bandwidth = self.bandwidth();
        let (round, window) = (self.round.count, self.window);
        self.aggregation.update(now, sample.acknowledged, round, bandwidth, window);
        self.check_full(newest, rate);
        self.check_states(now, sample, newest, rate);
        self.update_round_trip(now, sample.round_trip);
        self.check_round_trip_probe(now);
        if self.round.loss_start {
            self.latest.bandwidth = rate.unwrap_or(0.0);
            self.latest.delivered = delivered;
        }
        if self.round.start {
            (self.round.lost, self.round.losses, self.round.last_lost) = (0, 0, None);
            self.window_limits = false;
        }
    }

    fn start_round(&mut self) {
        self.round.next = self.delivery.delivered;
    }

    fn largest_bandwidth(&self) -> f64 {
        self.bandwidths[0].max(self.bandwidths[1])
    }

    fn bandwidth(&self) -> f64 {
        self.largest_bandwidth().min(self.bounds.bandwidth)
    }

    /// Losses outside of probes lower the short-term bounds, once a round.
    fn adapt_lower_bounds(&mut self) {
        if !self.round.loss_start {
            return;
        }
        if self.round.lossy && !matches!(self.phase, Phase::Startup | Phase::Refill | Phase::Up) {
            if self.bounds.bandwidth.is_infinite() {
                self.bounds.bandwidth = self.largest_bandwidth();
            }
            if self.bounds.lower.is_infinite() {
                self.bounds.lower = self.window as f64;
            }
            self.bounds.bandwidth = self.latest.bandwidth.max(BETA * self.bounds.bandwidth);
            self.bounds.lower = (self.latest.delivered as f64).max(BETA * self.bounds.lower);
        }
        self.round.lossy = false;
    }

    fn reset_lower_bounds(&mut self) {
        self.bounds.bandwidth = f64::INFINITY;
        self.bounds.lower = f64::INFINITY;
    }

    fn check_full(&mut self, newest: &Packet, rate: Option<f64>) {
        if self.full.now || !self.round.start || newest.limited {
            return;
        }
        let Some(rate) = rate else { return };
        if rate >= self.full.bandwidth * FULL_GROWTH {
            self.reset_full(rate);
            return;
        }
        self.full.rounds += 1;
        self.full.now = self.full.rounds >= FULL_ROUNDS;
        self.full.reached |= self.full.now;
    }

    fn reset_full(&mut self, bandwidth: f64) {
        self.full = Full { bandwidth, rounds: 0, now: false, ..self.full };
    }

    fn check_states(&mut self, now: Instant, sample: &Sample, newest: &Packet, rate: Option<f64>) {
        if self.phase == Phase::Startup {
            let too_much = self.round.start
                && self.round.losses >= FULL_LOSSES
                && is_too_much(self.round.lost, newest.in_flight);
            if too_much && !self.full.reached {
                self.full.reached = true;
                self.bounds.upper = self.product(1.0).max(self.latest.delivered as f64);
            }
            if self.full.reached {
                self.phase = Phase::Drain;
            }
        }
        if self.phase == Phase::Drain && self.delivery.in_flight as f64 <= self.inflight(1.0) {
            self.start_down(now);
        }
        if !self.full.reached {
            return;
        }
        self.adapt_upper_bound(newest, sample);
        match self.phase {
            Phase::Down => {
                let cruise = !self.probe_if_due(now) && self.may_cruise();
                if cruise {
                    self.phase = Phase::Cruise;
                }
            }
            Phase::Cruise => {
                self.probe_if_due(now);
            }
            Phase::Refill if self.round.start => {
                self.probe.samples = true;
                self.start_up(now, rate);
            }
            Phase::Up => {
                let bounded = self.window_limits && self.window as f64 >= self.bounds.upper;
                if bounded {
                    self.reset_full(rate.unwrap_or(0.0));
                } else if self.full.now {
                    self.start_down(now);
                }
            }
            _ => {}
        }
    }

    fn adapt_upper_bound(&mut self, newest: &Packet, sample: &Sample) {
        if self.round.start {
            self.probe.starting = false;
            if self.probe.stopping {
                self.probe.stopping = false;
                if self.phase.is_probing_bandwidth() && !newest.limited {
                    self.bandwidths = [0.0, self.bandwidths[0]];
                }
            }
        }
        if is_too_much(self.delivery.lost - newest.lost, newest.in_flight)
            || self.bounds.upper.is_infinite()
        {
            return;
        }
        self.bounds.upper = self.bounds.upper.max(newest.in_flight as f64);
        if self.phase == Phase::Up && self.window_limits && self.window as f64 >= self.bounds.upper
        {
            self.bounds.upper += sample.acknowledged as f64 / self.probe.up_cost;
            if self.round.start {
                self.raise_slope();
            }
        }
    }

    /// Each round of a probe may add twice as much as the one before.
    fn raise_slope(&mut self) {
        let growth = (self.datagram << self.probe.up_rounds.min(20)) as f64;
        self.probe.up_rounds += 1;
        self.probe.up_cost = (self.window as f64 / growth).max(1.0);
    }

    fn on_too_much(&mut self, now: Instant, in_flight: f64, limited: bool) {
        self.probe.samples = false;
        if !limited {
            self.bounds.upper = in_flight.max(BETA * self.target());
        }
        if self.phase == Phase::Up {
            self.start_down(now);
        }
    }

    fn start_down(&mut self, now: Instant) {
        self.latest = Latest::default();
        self.round.lossy = false;
        self.probe.up_cost = f64::INFINITY;
        self.probe.rounds = u64::from(self.random.next_u32() & 1);
        self.probe.wait = Duration::from_millis(2000 + u64::from(self.random.next_u32() % 1000));
        self.probe.since = Some(now);
        self.probe.stopping = true;
        self.probe.starting = false;
        self.start_round();
        self.phase = Phase::Down;
    }

    fn probe_if_due(&mut self, now: Instant) -> bool {
        let waited = self.probe.since.is_none_or(|since| now >= since + self.probe.wait);
        let reno = (self.target() / self.datagram as f64) as u64;
        let due = waited || self.probe.rounds >= reno.clamp(1, RENO_ROUNDS);
        if due {
            self.reset_lower_bounds();
            self.probe.up_rounds = 0;
            self.start_round();
            self.phase = Phase::Refill;
        }
        due
    }

    fn start_up(&mut self, now: Instant, rate: Option<f64>) {
        self.probe.starting = true;
        self.probe.since = Some(now);
        self.start_round();
        self.reset_full(rate.unwrap_or(0.0));
        self.raise_slope();
        self.phase = Phase::Up;
    }

    fn may_cruise(&self) -> bool {
        let in_flight = self.delivery.in_flight as f64;
        in_flight <= self.bound_with_headroom() && in_flight <= self.inflight(1.0)
    }

    fn bound_with_headroom(&self) -> f64 {
        if self.bounds.upper.is_infinite() {
            return f64::INFINITY;
        }
        let headroom = (HEADROOM_SHARE * self.bounds.upper).max(self.datagram as f64);
        (self.bounds.upper - headroom).max(self.smallest() as f64)
    }

    fn update_round_trip(&mut self, now: Instant, sample: Option<Duration>) {
        let Some(sample) = sample else { return };
        let expired = |at: Option<Instant>, memory| at.is_none_or(|at| now > at + memory);
        if expired(self.round_trip.recent_shortest_at, ROUND_TRIP_INTERVAL)
            && self.round_trip.recent_shortest_at.is_some()
            && self.round_trip.probe.is_none()
            && self.phase != Phase::ProbeRoundTrip
        {
            self.phase = Phase::ProbeRoundTrip;
            self.round_trip.probe =
                Some(RoundTripProbe { window: self.window, until: None, round_done: false });
            self.probe.stopping = true;
            self.probe.starting = false;
            self.start_round();
            (self.round_trip.recent_shortest, self.round_trip.recent_shortest_at) =
                (Some(sample), Some(now));
        }
        if self.round_trip.recent_shortest.is_none_or(|shortest| sample < shortest) {
            (self.round_trip.recent_shortest, self.round_trip.recent_shortest_at) =
                (Some(sample), Some(now));
        }
        if self.round_trip.shortest.is_none_or(|shortest| sample < shortest)
            || expired(self.round_trip.shortest_at, ROUND_TRIP_MEMORY)
        {
            (self.round_trip.shortest, self.round_trip.shortest_at) =
                (self.round_trip.recent_shortest, self.round_trip.recent_shortest_at);
        }
    }

    fn check_round_trip_probe(&mut self, now: Instant) {
        let Some(mut probe) = self.round_trip.probe else { return };
        // Deliveries at this time do not reflect the bandwidth.
        self.delivery.limit();
        match probe.until {
            None => {
                if self.delivery.in_flight <= self.round_trip_window() {
                    probe.until = Some(now + ROUND_TRIP_PROBE);
                    self.start_round();
                }
            }
            Some(until) => {
                probe.round_done |= self.round.start;
                if probe.round_done && now >= until {
                    self.round_trip.recent_shortest_at = Some(now);
                    self.round_trip.probe = None;
                    self.window = self.window.max(probe.window);
                    self.reset_lower_bounds();
                    if self.full.reached {
                        self.start_down(now);
                        self.phase = Phase::Cruise;
                    } else {
                        self.phase = Phase::Startup;
                    }
                    return;
                }
            }
        }
        self.round_trip.probe = Some(probe);
    }

    /// Bandwidth times the shortest round trip, bytes.
    fn product(&self, gain: f64) -> f64 {
        let Some(shortest) = self.round_trip.shortest else { return self.window as f64 };
        gain * self.bandwidth() * shortest.as_secs_f64()
    }

    /// Bandwidth times the shortest round trip, bytes, with room for batches.
    fn inflight(&self, gain: f64) -> f64 {
        let batches = 3.0 * self.quantum() as f64;
        let probe = if self.phase == Phase::Up { 2.0 * self.datagram as f64 } else { 0.0 };
        self.product(gain).max(batches).max(self.smallest() as f64) + probe
    }

    fn target(&self) -> f64 {
        self.product(1.0).min(self.window as f64)
    }

    fn smallest(&self) -> u64 {
        SMALLEST_WINDOW * self.datagram
    }

    fn round_trip_window(&self) -> u64 {
        (self.product(Phase::ProbeRoundTrip.gains()[1]) as u64).max(self.smallest())
    }

    fn update_pace(&mut self) {
        let bandwidth = match (self.bandwidth(), self.round_trip.shortest) {
            (0.0, Some(shortest)) => self.window as f64 / shortest.as_secs_f64().max(1e-3),
            (bandwidth, _) => bandwidth,
        };
        let pace = self.phase.gains()[0] * bandwidth * (1.0 - PACE_MARGIN);
        if self.full.reached || pace > self.pace || self.bandwidths == [0.0; 2] {
            self.pace = pace;
        }
    }

    fn update_window(&mut self, sample: &Sample) {
        let extra = self.aggregation.extra();
        let most = (self.inflight(self.phase.gains()[1]) + extra as f64) as u64;
        if self.full.reached {
            self.window = (self.window + sample.acknowledged).min(most);
        } else if self.window < most || self.delivery.delivered < initial_window(self.datagram) {
            self.window += sample.acknowledged;
        }
        if self.phase == Phase::ProbeRoundTrip {
            self.window = self.window.min(self.round_trip_window());
        }
        let bound = match self.phase {
            Phase::Down | Phase::Refill | Phase::Up => self.bounds.upper,
            Phase::Cruise | Phase::ProbeRoundTrip => self.bound_with_headroom(),
            Phase::Startup | Phase::Drain => f64::INFINITY,
        };
        self.window = self.window.min(bound.min(self.bounds.lower) as u64).max(self.smallest());
    }
}

fn is_too_much(lost: u64, in_flight: u64) -> bool {
    lost as f64 > LOSS_THRESHOLD * in_flight as f64
}
