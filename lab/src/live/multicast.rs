//! A stream with many receivers behind one gateway.
//!
//! Time advances in steps of a millisecond: with thousands of receivers, the events within a step
//! are processed together.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use packrat_client::{Assist, ClientConfig, Datagram, Live, PacketNumber};
use packrat_emulation::path::{LinkConfig, LossProcess};
use packrat_emulation::scenario::Scenario;
use packrat_engine::{
    Gateway, GatewayConfig, Stream, StreamConfig, StreamCounters, StreamOutbox, Target,
};
use packrat_media::{Receiver, ReceiverConfig};
use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::IdentifierScheme;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::Serialize;

use crate::simulation::randomness::bytes;

/// Bytes of a packet (Packrat26, section 6.2).
const PACKET_BYTES: usize = 240;
/// Address of the first receiver, 10.0.0.1; the others follow.
const FIRST_MEMBER: u32 = 0x0a00_0001;
/// The receivers find their gateway before the stream begins.
const STREAM_BEGIN: Duration = Duration::from_millis(1500);
/// Time within which receivers begin to look for the gateway.
const JOINING_TIME: Duration = Duration::from_secs(1);
/// Time after the last packet in which packets in flight may arrive.
const ARRIVAL_TIME: Duration = Duration::from_secs(1);
/// Latencies from this on count as this: milliseconds.
const LONGEST_LATENCY: usize = 10_000;

/// The means against loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MulticastArm {
    /// Receivers ask the server.
    EndToEnd,
    /// The gateway repairs, to one receiver each.
    Packrat,
    /// The gateway repairs, to all when several miss the same packet.
    PackratGroup,
    /// The gateway repairs as in `PackratGroup`, and sends symbols to all, each of which repairs
    /// another packet at each receiver.
    PackratSymbols,
}

packrat_emulation::choices!(MulticastArm, "arm", [
    EndToEnd "end-to-end",
    Packrat "packrat",
    PackratGroup "packrat-group",
    PackratSymbols "packrat-symbols",
]);

/// A trial of one stream with many receivers.
#[derive(Debug, Clone)]
pub struct MulticastTrial {
    /// The network: one far segment, and a last mile for each receiver.
    pub scenario: Scenario,
    /// The means against loss.
    pub arm: MulticastArm,
    /// Decides everything random.
    pub seed: u64,
    /// Number of receivers.
    pub receivers: usize,
    /// Packets per second.
    pub rate: u64,
    /// The length of the stream.
    pub duration: Duration,
    /// The stream at the gateway.
    pub stream: StreamConfig,
}

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
    /// Repairs of the gateway, and the number of them to all receivers.
    pub repairs: u64,
    /// See `repairs`.
    pub group_repairs: u64,
    /// Symbols to all.
    pub symbols: u64,
    /// Symbols and repairs per packet of the stream.
    pub per_packet: f64,
    /// Bytes of the repairs, as a share of the stream's.
    pub bytes_share: f64,
    /// Time from the gateway's forwarding of a packet until a receiver has it, milliseconds: quantiles over
    /// all packets and receivers that got it.
    pub latency_p50_ms: u64,
    /// See `latency_p50_ms`.
    pub latency_p99_ms: u64,
    /// See `latency_p50_ms`.
    pub latency_p999_ms: u64,
    /// eACKs per receiver and second, and the number that could not be decoded.
    pub eacks_per_second: f64,
    /// See `eacks_per_second`.
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

/// Milliseconds from the forwarding of packets until receivers have them: how often each occurs.
#[derive(Debug, Default)]
struct Latencies(Vec<u64>);

impl Latencies {
    fn add(&mut self, millis: u64) {
        let at = usize::try_from(millis).unwrap_or(usize::MAX).min(LONGEST_LATENCY);
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] += 1;
    }

    /// The least that this share of all does not exceed.
    fn quantile(&self, share: f64) -> u64 {
        let all: u64 = self.0.iter().sum();
        let wanted = (all as f64 * share).ceil() as u64;
        let mut below = 0;
        let found = self.0.iter().position(|count| {
            below += count;
            below >= wanted
        });
        found.unwrap_or_default() as u64
    }
}

struct Member {
    address: SocketAddr,
    /// Time at which the receiver begins: receivers do not begin in the same millisecond.
    begins: Timestamp,
    /// Packets that it has.
    has: Vec<bool>,
    assist: Option<Assist>,
    receiver: Receiver,
    down: LossProcess,
    up: LossProcess,
    asked: Vec<u64>,
}

enum Upward {
    Control(Vec<u8>),
    Request(Vec<u64>),
}

/// Datagrams of one direction, all with the same delay.
type Line<T> = VecDeque<(Timestamp, usize, T)>;

impl MulticastTrial {
    /// The trial of Packrat26, section 7.2.3: 16 receivers, a cache of 64 kB.
    pub fn new(scenario: Scenario, arm: MulticastArm, seed: u64) -> Self {
        let has_group = matches!(arm, MulticastArm::PackratGroup | MulticastArm::PackratSymbols);
        let stream = StreamConfig {
            group_repairs_from: has_group.then_some(3),
            group_symbols: arm == MulticastArm::PackratSymbols,
            ..StreamConfig::default()
        };
        Self {
            scenario,
            arm,
            seed,
            receivers: 16,
            rate: 1000,
            duration: Duration::from_secs(180),
            stream,
        }
    }

    /// Runs it in virtual time, on this thread.
    pub fn run(&self) -> MulticastResult {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let limits = GatewayConfig {
            handshakes_per_second_per_source: u32::MAX,
            sessions_per_source: u32::MAX,
            ..GatewayConfig::default()
        };
        let gateway = Gateway::new(limits, bytes(&mut random), bytes(&mut random));
        let mut stream = Stream::new(gateway, self.stream.clone(), bytes(&mut random));
        let mut members: Vec<Member> =
            (0..self.receivers).map(|index| self.member(index, &mut random)).collect();
        let links = self.scenario.constant_links(self.seed);
        let near = links.last_mile_down.delay;
        let far = links.far_down.delay;
        let mut out = StreamOutbox::new();
        let mut counters = StreamCounters::default();
        let mut latencies = Latencies::default();
        let mut down: Line<Vec<u8>> = VecDeque::new();
        let mut retransmitted: Line<u64> = VecDeque::new();
        let mut up: Line<Upward> = VecDeque::new();
        let (mut packets, mut retransmissions, mut lost) = (0u64, 0u64, 0u64);
        let (mut samples, mut outstanding, mut state, mut cache_max) = (0u64, 0u64, 0u64, 0u64);
        let steps = (STREAM_BEGIN + self.duration + ARRIVAL_TIME).as_millis() as u64;
        let whole = (self.rate * self.duration.as_millis() as u64) / 1000;
        let assisted = self.arm != MulticastArm::EndToEnd;
        for step in 1..=steps {
            let now = Timestamp::from_millis(step);
            // The packets that reach the gateway from the server in this step.
            let elapsed = step.saturating_sub(STREAM_BEGIN.as_millis() as u64);
            while packets < whole && packets * 1000 < elapsed * self.rate {
                let datagram = packet(packets, now);
                packets += 1;
                stream.forward(&datagram, now);
                for (index, member) in members.iter_mut().enumerate() {
                    if member.down.next_is_lost() {
                        lost += 1;
                    } else {
                        down.push_back((now + near, index, datagram.clone()));
                    }
                }
                stream.send_symbols(now, &mut out);
                send(&mut out, &mut members, near, now, &mut down);
            }
            while let Some((index, upward)) = due(&mut up, now) {
                match upward {
                    Upward::Control(datagram) => {
                        let from = members[index].address;
                        stream.receive(&datagram, from, || bytes(&mut random), now, &mut out);
                        send(&mut out, &mut members, near, now, &mut down);
                    }
                    // Up the far segment, back down again, and over the last mile.
                    Upward::Request(numbers) => {
                        retransmissions += numbers.len() as u64;
                        for number in numbers {
                            if !members[index].down.next_is_lost() {
                                retransmitted.push_back((now + far * 2 + near, index, number));
                            }
                        }
                    }
                }
            }
            while let Some((index, number)) = due(&mut retransmitted, now) {
                members[index].receiver.on_retransmission(number, 0, &[], now);
                // The gateway forwarded it first when the others of its time came.
                let forwarded = STREAM_BEGIN.as_millis() as u64 + number * 1000 / self.rate + 1;
                members[index].gets(number, forwarded, now, &mut latencies);
            }
            while let Some((index, datagram)) = due(&mut down, now) {
                members[index].receive(&datagram, now, &mut latencies);
            }
            stream.handle_timeout(now, &mut out);
            send(&mut out, &mut members, near, now, &mut down);
            for (index, member) in members.iter_mut().enumerate() {
                member.step(now, |upward| up.push_back((now + near, index, upward)));
            }
            counters.add(&stream.take_counters());
            if assisted && step % 20 == 0 && elapsed > 0 && packets < whole {
                let gauges = stream.gauges();
                samples += gauges.stream_subscribers;
                outstanding += gauges.stream_outstanding;
                state += gauges.stream_state_bytes;
                cache_max = cache_max.max(gauges.stream_cache_bytes);
            }
        }
        let seconds = self.duration.as_secs_f64();
        let (mut asked, mut dropped, mut eacks) = (0, 0, 0);
        for member in &mut members {
            let counts = member.receiver.take_statistics().accumulated;
            asked += counts.asked_units;
            dropped += counts.dropped;
            eacks += member.assist.as_ref().map_or(0, |assist| assist.stats().eacks);
        }
        let per_receiver = |count: u64| count as f64 / seconds / self.receivers.max(1) as f64;
        MulticastResult {
            scenario: self.scenario.name.clone(),
            arm: self.arm,
            loss: self.scenario.last_mile.loss,
            seed: self.seed,
            receivers: self.receivers,
            packets,
            requests_per_second: per_receiver(asked),
            retransmissions_per_second: retransmissions as f64 / seconds,
            dropped,
            lost,
            repairs: counters.stream_repairs,
            group_repairs: counters.stream_group_repairs,
            symbols: counters.stream_symbols,
            per_packet: (counters.stream_repairs + counters.stream_symbols) as f64
                / packets.max(1) as f64,
            bytes_share: (counters.stream_repair_bytes + counters.stream_symbol_bytes) as f64
                / (packets.max(1) * PACKET_BYTES as u64) as f64,
            latency_p50_ms: latencies.quantile(0.5),
            latency_p99_ms: latencies.quantile(0.99),
            latency_p999_ms: latencies.quantile(0.999),
            eacks_per_second: per_receiver(eacks),
            decode_failures: counters.stream_eacks_failed,
            resets: counters.stream_resets,
            cache_max,
            outstanding_mean: outstanding as f64 / samples.max(1) as f64,
            state_mean: state as f64 / samples.max(1) as f64,
        }
    }

    fn member(&self, index: usize, random: &mut ChaCha8Rng) -> Member {
        let links = self.scenario.constant_links(self.seed);
        // Losses of their own for each, and the same ones in every arm.
        let process = |link: LinkConfig, direction: u64| {
            LossProcess::new(
                link.loss,
                self.seed.wrapping_mul(1_000_003) + index as u64 * 2 + direction,
            )
        };
        let config =
            ReceiverConfig { latency: Duration::from_millis(400), ..ReceiverConfig::default() };
        let live = Live {
            selective: true,
            subscribe: true,
            window: config.latency,
            tolerance: Duration::ZERO,
            symbols: self.arm == MulticastArm::PackratSymbols,
        };
        let client = ClientConfig::default().with_live(live).with_scheme(IdentifierScheme::Payload);
        let seed = bytes(random);
        let assisted = self.arm != MulticastArm::EndToEnd;
        let address = std::net::Ipv4Addr::from(FIRST_MEMBER + index as u32);
        Member {
            address: (address, 10_000).into(),
            begins: Timestamp::ZERO + JOINING_TIME * index as u32 / self.receivers.max(1) as u32,
            has: Vec::new(),
            assist: assisted.then(|| Assist::new(client, seed, Timestamp::ZERO)),
            receiver: Receiver::new(config),
            down: process(links.last_mile_down, 0),
            up: process(links.last_mile_up, 1),
            asked: Vec::new(),
        }
    }
}

impl Member {
    /// Processes a packet that the gateway forwarded at this millisecond.
    fn gets(&mut self, number: u64, forwarded: u64, now: Timestamp, latencies: &mut Latencies) {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if self.has.len() <= at {
            self.has.resize(at + 1, false);
        }
        if !core::mem::replace(&mut self.has[at], true) {
            latencies.add((now.as_micros() / 1000).saturating_sub(forwarded));
        }
    }

    fn receive(&mut self, datagram: &[u8], now: Timestamp, latencies: &mut Latencies) {
        let is_control = self
            .assist
            .as_mut()
            .is_some_and(|assist| assist.on_datagram(datagram, now) == Datagram::Control);
        if !is_control {
            self.take(datagram, now, latencies);
        }
        while let Some(datagram) = self.assist.as_mut().and_then(Assist::poll_recovered) {
            if let Some(assist) = &mut self.assist {
                assist.on_datagram(&datagram, now);
            }
            self.take(&datagram, now, latencies);
        }
    }

    fn take(&mut self, datagram: &[u8], now: Timestamp, latencies: &mut Latencies) {
        let Some((_, rest)) = datagram.split_first() else { return };
        let (Some(number), Some(sent)) = (word(rest, 0), word(rest, 8)) else { return };
        self.receiver.on_packet(number, sent, &[], None, now);
        self.gets(number, sent / 1000, now, latencies);
        let first = self.receiver.first().unwrap_or(number);
        if let (Some(assist), Some(index)) = (&mut self.assist, number.checked_sub(first)) {
            assist.on_packet_number(PacketNumber::new(index), now);
        }
    }

    fn step(&mut self, now: Timestamp, mut send: impl FnMut(Upward)) {
        if now < self.begins {
            return;
        }
        while self.receiver.poll_unit(now).is_some() {}
        let first = self.receiver.first().unwrap_or_default();
        if let Some(assist) = &mut self.assist {
            assist.handle_timeout(now);
            while let Some(datagram) = assist.poll_transmit(now) {
                if !self.up.next_is_lost() {
                    send(Upward::Control(datagram));
                }
            }
        }
        let assist = &self.assist;
        let awaited = |number: u64| {
            let number = PacketNumber::new(number.wrapping_sub(first));
            assist.as_ref().is_some_and(|assist| assist.is_awaited(number))
        };
        self.receiver.poll_asked(now, awaited, &mut self.asked);
        if !self.asked.is_empty() && !self.up.next_is_lost() {
            send(Upward::Request(self.asked.clone()));
        }
    }
}

fn due<T>(line: &mut Line<T>, now: Timestamp) -> Option<(usize, T)> {
    line.front().filter(|(at, ..)| *at <= now)?;
    line.pop_front().map(|(_, index, what)| (index, what))
}

fn send(
    out: &mut StreamOutbox,
    members: &mut [Member],
    delay: Duration,
    now: Timestamp,
    down: &mut Line<Vec<u8>>,
) {
    for (target, datagram) in out.datagrams() {
        for (index, member) in members.iter_mut().enumerate() {
            let is_meant = match target {
                Target::One(to) => member.address == to,
                Target::Group => true,
            };
            if is_meant && !member.down.next_is_lost() {
                down.push_back((now + delay, index, datagram.to_vec()));
            }
        }
    }
    out.clear();
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
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
