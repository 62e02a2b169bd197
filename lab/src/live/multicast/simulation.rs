//! A stream with many receivers in virtual time.

use super::latencies::Latencies;
use super::member::{Member, Upward};
use super::result::{GroupRepairs, MulticastCost, MulticastResult};
use super::trial::{MulticastArm, MulticastTrial};
use crate::simulation::randomness::bytes;
use packrat_engine::{Gateway, GatewayConfig, Stream, StreamCounters, StreamOutbox, Target};
use packrat_wire::estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes of a packet (Packrat26, section 6.2).
const PACKET_BYTES: usize = 240;
/// The receivers find their gateway before the stream begins.
const STREAM_BEGIN: Duration = Duration::from_millis(1500);
/// Time after the last packet in which packets in flight may arrive.
const ARRIVAL_TIME: Duration = Duration::from_secs(1);

/// Datagrams of one direction, all with the same delay.
type Line<T> = VecDeque<(Timestamp, usize, T)>;

/// The gateway's stream, its receivers, and the datagrams between them.
struct MulticastStream<'a> {
    trial: &'a MulticastTrial,
    random: ChaCha8Rng,
    stream: Stream,
    members: Vec<Member>,
    /// Delays of the last mile and of the far segment, one way.
    near: Duration,
    far: Duration,
    out: StreamOutbox,
    down: Line<Vec<u8>>,
    retransmitted: Line<u64>,
    up: Line<Upward>,
    latencies: Latencies,
    counters: StreamCounters,
    sent: SentPackets,
    gauges: GaugeSums,
}

/// Packets of the stream: sent once, sent again, lost on the last mile.
#[derive(Default)]
struct SentPackets {
    packets: u64,
    retransmissions: u64,
    lost: u64,
}

/// The gateway's gauges over the time of the stream.
#[derive(Default)]
struct GaugeSums {
    samples: u64,
    outstanding: u64,
    state: u64,
    cache_max: u64,
}

impl MulticastTrial {
    /// Runs it in virtual time, on this thread.
    pub fn run(&self) -> MulticastResult {
        let mut stream = MulticastStream::new(self);
        let steps = (STREAM_BEGIN + self.duration + ARRIVAL_TIME).as_millis() as u64;
        (1..=steps).for_each(|step| stream.step(step));
        stream.result()
    }
}

impl<'a> MulticastStream<'a> {
    fn new(trial: &'a MulticastTrial) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(trial.seed);
        let limits = GatewayConfig {
            handshakes_per_second_per_source: u32::MAX,
            sessions_per_source: u32::MAX,
            ..GatewayConfig::default()
        };
        let gateway = Gateway::new(limits, bytes(&mut random), bytes(&mut random));
        let stream = Stream::new(gateway, trial.stream.clone(), bytes(&mut random));
        let members =
            (0..trial.receivers).map(|index| Member::new(trial, index, &mut random)).collect();
        let links = trial.scenario.constant_links(trial.seed);
        Self {
            trial,
            random,
            stream,
            members,
            near: links.last_mile_down.delay,
            far: links.far_down.delay,
            out: StreamOutbox::new(),
            down: VecDeque::new(),
            retransmitted: VecDeque::new(),
            up: VecDeque::new(),
            latencies: Latencies::default(),
            counters: StreamCounters::default(),
            sent: SentPackets::default(),
            gauges: GaugeSums::default(),
        }
    }

    /// All events of a millisecond.
    fn step(&mut self, step: u64) {
        let now = Timestamp::from_millis(step);
        let elapsed = step.saturating_sub(STREAM_BEGIN.as_millis() as u64);
        let whole = (self.trial.rate * self.trial.duration.as_millis() as u64) / 1000;
        while self.sent.packets < whole && self.sent.packets * 1000 < elapsed * self.trial.rate {
            self.forward(now);
        }
        while let Some((index, upward)) = due(&mut self.up, now) {
            self.receive(index, upward, now);
        }
        while let Some((index, number)) = due(&mut self.retransmitted, now) {
            self.members[index].receiver.on_retransmission(number, 0, &[], now);
            // The gateway forwarded it first when the others of its time came.
            let forwarded = STREAM_BEGIN.as_millis() as u64 + number * 1000 / self.trial.rate + 1;
            self.members[index].gets(number, forwarded, now, &mut self.latencies);
        }
        while let Some((index, datagram)) = due(&mut self.down, now) {
            self.members[index].receive(&datagram, now, &mut self.latencies);
        }
        self.stream.handle_timeout(now, &mut self.out);
        self.send(now);
        for (index, member) in self.members.iter_mut().enumerate() {
            member.step(now, |upward| self.up.push_back((now + self.near, index, upward)));
        }
        self.counters.add(&self.stream.take_counters());
        let assisted = self.trial.arm != MulticastArm::EndToEnd;
        if assisted && step.is_multiple_of(20) && elapsed > 0 && self.sent.packets < whole {
            let gauges = self.stream.gauges();
            self.gauges.samples += gauges.stream_subscribers;
            self.gauges.outstanding += gauges.stream_outstanding;
            self.gauges.state += gauges.stream_state_bytes;
            self.gauges.cache_max = self.gauges.cache_max.max(gauges.stream_cache_bytes);
        }
    }

    /// A packet reaches the gateway from the server.
    fn forward(&mut self, now: Timestamp) {
        let datagram = packet(self.sent.packets, now);
        self.sent.packets += 1;
        self.stream.forward(&datagram, now);
        for (index, member) in self.members.iter_mut().enumerate() {
            if member.down.next_is_lost() {
                self.sent.lost += 1;
            } else {
                self.down.push_back((now + self.near, index, datagram.clone()));
            }
        }
        self.stream.send_symbols(now, &mut self.out);
        self.send(now);
    }

    /// A message of a receiver reaches the gateway.
    fn receive(&mut self, index: usize, upward: Upward, now: Timestamp) {
        match upward {
            Upward::Control(datagram) => {
                let (from, random) = (self.members[index].address, &mut self.random);
                self.stream.receive(&datagram, from, || bytes(random), now, &mut self.out);
                self.send(now);
            }
            // Up the far segment, back down again, and over the last mile.
            Upward::Request(numbers) => {
                self.sent.retransmissions += numbers.len() as u64;
                let at = now + self.far * 2 + self.near;
                for number in numbers {
                    if !self.members[index].down.next_is_lost() {
                        self.retransmitted.push_back((at, index, number));
                    }
                }
            }
        }
    }

    /// Sends the gateway's own datagrams to their receivers.
    fn send(&mut self, now: Timestamp) {
        for (target, datagram) in self.out.datagrams() {
            for (index, member) in self.members.iter_mut().enumerate() {
                let is_meant = match target {
                    Target::One(to) => member.address == to,
                    Target::Group => true,
                };
                if is_meant && !member.down.next_is_lost() {
                    self.down.push_back((now + self.near, index, datagram.to_vec()));
                }
            }
        }
        self.out.clear();
    }

    fn result(self) -> MulticastResult {
        let Self { trial, mut members, latencies, counters, sent, gauges, .. } = self;
        let (mut asked, mut dropped, mut eacks) = (0, 0, 0);
        for member in &mut members {
            let counts = member.receiver.take_statistics().accumulated;
            asked += counts.asked_units;
            dropped += counts.dropped;
            eacks += member.assist.as_ref().map_or(0, |assist| assist.stats().eacks);
        }
        let seconds = trial.duration.as_secs_f64();
        let per_receiver = |count: u64| count as f64 / seconds / trial.receivers.max(1) as f64;
        let packets = sent.packets.max(1);
        let repair_bytes = counters.stream_repair_bytes + counters.stream_symbol_bytes;
        let repairs = counters.stream_repairs + counters.stream_symbols;
        MulticastResult {
            scenario: trial.scenario.name.clone(),
            arm: trial.arm,
            loss: trial.scenario.last_mile.loss,
            seed: trial.seed,
            receivers: trial.receivers,
            packets: sent.packets,
            requests_per_second: per_receiver(asked),
            retransmissions_per_second: sent.retransmissions as f64 / seconds,
            dropped,
            lost: sent.lost,
            repair: GroupRepairs {
                repairs: counters.stream_repairs,
                group_repairs: counters.stream_group_repairs,
                symbols: counters.stream_symbols,
                per_packet: repairs as f64 / packets as f64,
                bytes_share: repair_bytes as f64 / (packets * PACKET_BYTES as u64) as f64,
            },
            latency: latencies.quantiles(),
            cost: MulticastCost {
                eacks_per_second: per_receiver(eacks),
                decode_failures: counters.stream_eacks_failed,
                resets: counters.stream_resets,
                cache_max: gauges.cache_max,
                outstanding_mean: gauges.outstanding as f64 / gauges.samples.max(1) as f64,
                state_mean: gauges.state as f64 / gauges.samples.max(1) as f64,
            },
        }
    }
}

fn due<T>(line: &mut Line<T>, now: Timestamp) -> Option<(usize, T)> {
    line.front().filter(|(at, ..)| *at <= now)?;
    line.pop_front().map(|(_, index, what)| (index, what))
}

/// A packet of pseudo-random bytes behind its number and time.
fn packet(number: u64, now: Timestamp) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PACKET_BYTES);
    bytes.push(0x80);
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&now.as_micros().to_be_bytes());
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while bytes.len() < PACKET_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(PACKET_BYTES);
    bytes
}
