//! A stream with one receiver.

use std::net::SocketAddr;
use std::time::Duration;

use packrat_client::AssistStats;
use packrat_emulation::path::{Link, LinkCounters, Verdict};
use packrat_emulation::scenario::{Links, Scenario};
use packrat_emulation::schedule::Schedule;
use packrat_engine::GatewayConfig;
use packrat_media::{Assistance, Counts, Heard, MediaKey, MediaReceiver, Sender, SenderConfig};
use packrat_wire::estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::Serialize;

use crate::live::gateway::OneFlow;
use crate::live::player::{Played, nearest_rank_ms, play};
use crate::live::stream::Stream;
use crate::simulation::randomness::bytes;

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
    /// Latency in milliseconds, one way, from the beginning of a unit's production until it is
    /// played: the quantiles of [`MediaResult::QUANTILES`].
    pub latency_ms: Vec<f64>,
    /// Times that the player stalled, and for how many milliseconds in all.
    pub stalls: u64,
    /// See `stalls`.
    pub stalled_ms: f64,
    /// Units that were never played.
    pub skipped: u64,
    /// The client's traffic, and the part of it that the gateway passed on.
    pub client: Traffic,
    /// See `client`.
    pub client_to_server: Traffic,
    /// The server's traffic.
    pub server: Traffic,
    /// The traffic that arrived on the last mile or was lost there.
    pub last_mile: Traffic,
    /// The client's share of the bytes that client and server sent.
    pub client_share: f64,
    /// Retransmissions of the server, and the number of them that the client did not need.
    pub retransmissions: u64,
    /// See `retransmissions`.
    pub spurious: u64,
    /// Messages in which the client asked the server.
    pub requests: u64,
    /// Packets that the gateway repaired, and early copies that it sent.
    pub repaired: u64,
    /// See `repaired`.
    pub early_copies: u64,
    /// eACKs sent, and the number of them that could not be decoded.
    pub eacks: u64,
    /// See `eacks`.
    pub decode_failures: u64,
    /// Resets of both sides.
    pub resets: u64,
    /// Bytes cached, mean over the datagrams forwarded, and at most.
    pub cache_mean: f64,
    /// See `cache_mean`.
    pub cache_max: u64,
    /// True if the emulated path was on time, as it always is in virtual time.
    pub on_time: bool,
    /// All latencies, ascending, microseconds.
    #[serde(skip)]
    pub latencies: Vec<u64>,
    /// Bytes cached at each forwarded datagram of the first ten seconds: seconds, bytes.
    #[serde(skip)]
    pub cache_series: Vec<(f64, u64)>,
}

impl MediaResult {
    /// The quantiles of the latency that a result has.
    pub const QUANTILES: [f64; 9] = [0.0, 0.5, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0];

    /// The given quantile, in milliseconds.
    pub fn latency(&self, quantile: f64) -> f64 {
        let index = Self::QUANTILES.iter().position(|known| *known == quantile);
        index.and_then(|index| self.latency_ms.get(index)).copied().unwrap_or(f64::NAN)
    }
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
pub(crate) struct Outcome {
    /// Times of sending and of availability by unit, in microseconds.
    pub(crate) sent: Vec<u64>,
    pub(crate) available: Vec<Option<u64>>,
    pub(crate) links: Links,
    pub(crate) client: Traffic,
    pub(crate) client_to_server: Traffic,
    pub(crate) server: Traffic,
    pub(crate) last_mile: Traffic,
    pub(crate) retransmissions: u64,
    pub(crate) counts: Counts,
    pub(crate) assistance: AssistStats,
    pub(crate) gateway: GatewayTotals,
    pub(crate) cache_series: Vec<(f64, u64)>,
}

/// Totals of the gateway's work.
#[derive(Default)]
pub(crate) struct GatewayTotals {
    pub(crate) repairs: u64,
    pub(crate) early_copies: u64,
    pub(crate) eacks_failed: u64,
    pub(crate) resets: u64,
    pub(crate) cache_mean: f64,
    pub(crate) cache_max: u64,
}

enum Event {
    Send,
    ToGateway(Vec<u8>),
    ToClient(Vec<u8>),
    FromClient(Vec<u8>),
    ToServer(Vec<u8>),
}

/// The four links and the packets on them.
struct Path {
    schedule: Schedule<Event>,
    far_down: Link,
    far_up: Link,
    near_down: Link,
    near_up: Link,
}

impl Path {
    fn send(&mut self, event: Event, now: Timestamp) {
        let (link, length) = match &event {
            Event::ToGateway(bytes) => (&mut self.far_down, bytes.len()),
            Event::ToClient(bytes) => (&mut self.near_down, bytes.len()),
            Event::FromClient(bytes) => (&mut self.near_up, bytes.len()),
            Event::ToServer(bytes) => (&mut self.far_up, bytes.len()),
            Event::Send => return,
        };
        if let Verdict::Deliver { at } = link.offer(now, length) {
            self.schedule.plan(at, event);
        }
    }
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

    /// Runs it in virtual time, on this thread.
    pub fn run(&self) -> MediaResult {
        let scenario = match self.arm {
            Arm::Ideal => self.scenario.clone().with_loss(0.0),
            _ => self.scenario.clone(),
        };
        let links = scenario.constant_links(self.seed);
        let mut path = Path {
            schedule: Schedule::new(),
            far_down: Link::new(links.far_down),
            far_up: Link::new(links.far_up),
            near_down: Link::new(links.last_mile_down),
            near_up: Link::new(links.last_mile_up),
        };
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let key = MediaKey::new(bytes(&mut random));
        let assistance = self.assistance();
        let config = self.stream.receiver();
        let sender = SenderConfig { source: STREAM_SOURCE, repeats: config.repeats };
        let mut sender = Sender::new(sender, key.clone(), [1; 16]);
        let seed = bytes(&mut random);
        let mut receiver = MediaReceiver::new(
            STREAM_SOURCE,
            config,
            key,
            assistance.as_ref(),
            seed,
            Timestamp::ZERO,
        );
        let mut gateway = assistance.is_some().then(|| OneFlow::new(self.gateway, self.seed));
        let client: SocketAddr = ([192, 0, 2, 1], 5004).into();
        let (sizes, rhythm) = self.stream.burst();
        let bursts = self.duration.as_micros() / rhythm.as_micros();
        let end = STREAM_BEGIN + self.duration + ARRIVAL_TIME;
        // By unit: when it was sent, when it was there.
        let mut sent: Vec<u64> = Vec::new();
        let mut available: Vec<Option<u64>> = Vec::new();
        let mut burst = 0u128;
        path.schedule.plan(STREAM_BEGIN, Event::Send);
        let mut now = Timestamp::ZERO;
        loop {
            while let Some(datagram) = receiver.poll_transmit(now) {
                path.send(Event::FromClient(datagram), now);
            }
            while let Some(unit) = receiver.poll_unit(now) {
                if let Some(place) = available.get_mut(unit.number as usize) {
                    *place = Some(unit.available.as_micros());
                }
            }
            let timeouts = [
                path.schedule.next_at(),
                receiver.next_timeout(),
                gateway.as_ref().and_then(OneFlow::next_timeout),
            ];
            let Some(next) = timeouts.into_iter().flatten().min().filter(|next| *next <= end)
            else {
                break;
            };
            now = now.max(next);
            receiver.handle_timeout(now);
            if let Some(gateway) = &mut gateway {
                if gateway.next_timeout().is_some_and(|at| at <= now) {
                    gateway.handle_timeout(now);
                }
                for datagram in gateway.take() {
                    path.send(Event::ToClient(datagram), now);
                }
            }
            match path.schedule.take(now) {
                Some(Event::Send) => {
                    for size in &sizes {
                        let unit = vec![sent.len() as u8; *size];
                        sent.push(now.as_micros());
                        available.push(None);
                        if let Some(datagram) = sender.send(&unit, now) {
                            path.send(Event::ToGateway(datagram), now);
                        }
                    }
                    burst += 1;
                    if burst < bursts {
                        path.schedule.plan(now + rhythm, Event::Send);
                    }
                }
                Some(Event::ToGateway(datagram)) => {
                    if let Some(gateway) = &mut gateway {
                        gateway.forward(&datagram, now);
                    }
                    path.send(Event::ToClient(datagram), now);
                }
                Some(Event::ToClient(datagram)) => receiver.on_datagram(&datagram, now),
                Some(Event::FromClient(datagram)) => {
                    let passes = gateway
                        .as_mut()
                        .is_none_or(|gateway| gateway.passes(&datagram, client, now));
                    if passes {
                        path.send(Event::ToServer(datagram), now);
                    }
                    for datagram in gateway.iter_mut().flat_map(OneFlow::take) {
                        path.send(Event::ToClient(datagram), now);
                    }
                }
                Some(Event::ToServer(datagram)) => {
                    if let Some(Heard::Asked(again)) = sender.on_datagram(&datagram) {
                        for datagram in again {
                            path.send(Event::ToGateway(datagram), now);
                        }
                    }
                }
                None => {}
            }
        }
        let traffic = |link: &Link| Traffic::of(&link.counters());
        let counters = gateway.as_ref().map(|gateway| gateway.counters).unwrap_or_default();
        let cache = gateway.as_ref().map_or((0, 0), |gateway| gateway.cache);
        let outcome = Outcome {
            sent,
            available,
            links,
            client: traffic(&path.near_up),
            client_to_server: traffic(&path.far_up),
            server: traffic(&path.far_down),
            last_mile: traffic(&path.near_down),
            retransmissions: sender.retransmissions(),
            counts: receiver.take_statistics().accumulated,
            assistance: receiver.assistance().unwrap_or_default(),
            gateway: GatewayTotals {
                repairs: counters.repairs,
                early_copies: counters.early_copies,
                eacks_failed: counters.eacks_failed,
                resets: counters.resets_gateway + counters.resets_client,
                cache_mean: cache.0 as f64 / cache.1.max(1) as f64,
                cache_max: gateway
                    .as_ref()
                    .map_or(0, |gateway| gateway.gauges().cache_high_water_bytes),
            },
            cache_series: gateway.map(|gateway| gateway.series).unwrap_or_default(),
        };
        self.evaluate(&scenario, &outcome)
    }

    /// The listener's experience, and its cost.
    pub(crate) fn evaluate(&self, scenario: &Scenario, outcome: &Outcome) -> MediaResult {
        let Outcome { sent, available, .. } = outcome;
        let travel = sent
            .iter()
            .zip(available)
            .filter_map(|(sent, at)| at.map(|at| at.saturating_sub(*sent)));
        // The travel time without loss: the whole of a burst takes longer than its first packet.
        let travel = match self.stream {
            Stream::Audio => travel.min().unwrap_or_default(),
            Stream::Video => {
                let links = [outcome.links.far_down, outcome.links.last_mile_down];
                let (sizes, _) = self.stream.burst();
                let bytes: usize = sizes.iter().map(|size| size + 32).sum();
                let slowest = links.iter().map(|link| link.rate).min().unwrap_or(u64::MAX).max(1);
                let delays: Duration = links.iter().map(|link| link.delay).sum();
                delays.as_micros() as u64 + bytes as u64 * 8_000_000 / slowest + 1_000
            }
        };
        let config = self.stream.receiver();
        // A receiver that comes late, or whose first packets are lost, does not know the earlier
        // ones.
        let first = available.iter().position(Option::is_some).unwrap_or_default();
        let units = sent.iter().zip(available).skip(first).map(|(sent, available)| Played {
            produced: sent - self.stream.production().as_micros() as u64,
            due: match self.stream {
                // The second packet with it is sent one rhythm later.
                Stream::Audio => sent + self.stream.production().as_micros() as u64 + travel,
                Stream::Video => sent + travel,
            },
            available: *available,
        });
        let slack = match self.stream {
            Stream::Audio => Duration::ZERO,
            Stream::Video => config.latency,
        };
        let experience = play(units, slack, config.patience);
        let (client, server) = (outcome.client, outcome.server);
        MediaResult {
            scenario: scenario.name.clone(),
            stream: self.stream,
            arm: self.arm,
            loss: scenario.last_mile.loss,
            seed: self.seed,
            units: sent.len() as u64,
            latency_ms: MediaResult::QUANTILES
                .map(|share| nearest_rank_ms(&experience.latencies, share))
                .to_vec(),
            cache_series: outcome.cache_series.clone(),
            stalls: experience.stalls,
            stalled_ms: experience.stalled.as_secs_f64() * 1e3,
            skipped: experience.skipped,
            client,
            client_to_server: outcome.client_to_server,
            server,
            last_mile: outcome.last_mile,
            client_share: client.bytes as f64 / (client.bytes + server.bytes).max(1) as f64,
            retransmissions: outcome.retransmissions,
            spurious: outcome.counts.spurious_retransmissions,
            requests: outcome.counts.asked_messages,
            repaired: outcome.gateway.repairs,
            early_copies: outcome.gateway.early_copies,
            eacks: outcome.assistance.eacks,
            decode_failures: outcome.gateway.eacks_failed,
            resets: outcome.gateway.resets,
            cache_mean: outcome.gateway.cache_mean,
            cache_max: outcome.gateway.cache_max,
            on_time: true,
            latencies: experience.latencies,
        }
    }
}
