//! A stream with one receiver in virtual time.

use super::gateway::OneFlow;
use super::media::{
    ARRIVAL_TIME, Arm, MediaResult, MediaTrial, Observations, STREAM_BEGIN, STREAM_SOURCE,
    StreamTraffic, Traffic,
};
use crate::simulation::randomness::bytes;
use packrat_emulation::path::{Link, LinkConfig, Verdict};
use packrat_emulation::scenario::{Links, Scenario};
use packrat_emulation::schedule::Schedule;
use packrat_media::{Heard, MediaKey, MediaReceiver, Sender, SenderConfig};
use packrat_wire::estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::net::SocketAddr;
use std::time::Duration;

impl MediaTrial {
    /// Runs it in virtual time, on this thread.
    pub fn run(&self) -> MediaResult {
        let scenario = match self.arm {
            Arm::Ideal => self.scenario.clone().with_loss(0.0),
            _ => self.scenario.clone(),
        };
        let observations = VirtualStream::new(self, &scenario).run();
        self.evaluate(&scenario, observations)
    }
}

enum Event {
    Send,
    ToGateway(Vec<u8>),
    ToClient(Vec<u8>),
    FromClient(Vec<u8>),
    ToServer(Vec<u8>),
}

/// The four links and the packets on them.
struct StreamPath {
    schedule: Schedule<Event>,
    links: Links<Link>,
}

impl StreamPath {
    fn send(&mut self, event: Event, now: Timestamp) {
        let (link, length) = match &event {
            Event::ToGateway(bytes) => (&mut self.links.far_down, bytes.len()),
            Event::ToClient(bytes) => (&mut self.links.last_mile_down, bytes.len()),
            Event::FromClient(bytes) => (&mut self.links.last_mile_up, bytes.len()),
            Event::ToServer(bytes) => (&mut self.links.far_up, bytes.len()),
            Event::Send => return,
        };
        if let Verdict::Deliver { at } = link.offer(now, length) {
            self.schedule.plan(at, event);
        }
    }
}

/// The sender, the gateway, the receiver, and the path between them.
pub(super) struct VirtualStream {
    config: Links<LinkConfig>,
    path: StreamPath,
    sender: Sender,
    gateway: Option<OneFlow>,
    receiver: MediaReceiver,
    /// Sizes of the units sent together, the time until the next ones, and how often that is yet
    /// to be.
    sizes: Vec<usize>,
    rhythm: Duration,
    bursts: u128,
    end: Timestamp,
    /// Times of sending, and of availability, by unit, in microseconds.
    sent: Vec<u64>,
    available: Vec<Option<u64>>,
}

impl VirtualStream {
    /// The stream of a trial, whose path is the scenario's.
    pub(super) fn new(trial: &MediaTrial, scenario: &Scenario) -> Self {
        let config = scenario.constant_links(trial.seed);
        let mut random = ChaCha8Rng::seed_from_u64(trial.seed);
        let key = MediaKey::new(bytes(&mut random));
        let assistance = trial.assistance();
        let receiver = trial.stream.receiver();
        let sender = SenderConfig { source: STREAM_SOURCE, repeats: receiver.repeats };
        let sender = Sender::new(sender, key.clone(), [1; 16]);
        let seed = bytes(&mut random);
        let (source, assistance) = (STREAM_SOURCE, assistance.as_ref());
        let receiver = MediaReceiver::new(source, receiver, key, assistance, seed, Timestamp::ZERO);
        let (sizes, rhythm) = trial.stream.burst();
        Self {
            config,
            path: StreamPath { schedule: Schedule::new(), links: config.map(Link::new) },
            sender,
            gateway: assistance.is_some().then(|| OneFlow::new(trial.gateway, trial.seed)),
            receiver,
            sizes,
            rhythm,
            bursts: trial.duration.as_micros() / rhythm.as_micros(),
            end: STREAM_BEGIN + trial.duration + ARRIVAL_TIME,
            sent: Vec::new(),
            available: Vec::new(),
        }
    }

    /// Runs the stream to its end.
    pub(super) fn run(mut self) -> Observations {
        self.path.schedule.plan(STREAM_BEGIN, Event::Send);
        let mut now = Timestamp::ZERO;
        loop {
            self.poll_receiver(now);
            let timeouts = [
                self.path.schedule.next_at(),
                self.receiver.next_timeout(),
                self.gateway.as_ref().and_then(OneFlow::next_timeout),
            ];
            let next = timeouts.into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= self.end) else { break };
            now = now.max(next);
            self.receiver.handle_timeout(now);
            if let Some(gateway) = &mut self.gateway
                && gateway.next_timeout().is_some_and(|at| at <= now)
            {
                gateway.handle_timeout(now);
            }
            self.poll_gateway(now);
            if let Some(event) = self.path.schedule.take(now) {
                self.handle(event, now);
            }
        }
        self.observations()
    }

    fn poll_receiver(&mut self, now: Timestamp) {
        while let Some(datagram) = self.receiver.poll_transmit(now) {
            self.path.send(Event::FromClient(datagram), now);
        }
        while let Some(unit) = self.receiver.poll_unit(now) {
            if let Some(place) = self.available.get_mut(unit.number as usize) {
                *place = Some(unit.available.as_micros());
            }
        }
    }

    fn poll_gateway(&mut self, now: Timestamp) {
        for datagram in self.gateway.iter_mut().flat_map(OneFlow::take) {
            self.path.send(Event::ToClient(datagram), now);
        }
    }

    fn handle(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::Send => self.send_burst(now),
            Event::ToGateway(datagram) => {
                if let Some(gateway) = &mut self.gateway {
                    gateway.forward(&datagram, now);
                }
                self.path.send(Event::ToClient(datagram), now);
            }
            Event::ToClient(datagram) => self.receiver.on_datagram(&datagram, now),
            Event::FromClient(datagram) => {
                let client: SocketAddr = ([192, 0, 2, 1], 5004).into();
                let gateway = self.gateway.as_mut();
                if gateway.is_none_or(|gateway| gateway.passes(&datagram, client, now)) {
                    self.path.send(Event::ToServer(datagram), now);
                }
                self.poll_gateway(now);
            }
            Event::ToServer(datagram) => {
                if let Some(Heard::Asked(again)) = self.sender.on_datagram(&datagram) {
                    for datagram in again {
                        self.path.send(Event::ToGateway(datagram), now);
                    }
                }
            }
        }
    }

    fn send_burst(&mut self, now: Timestamp) {
        for size in &self.sizes {
            let unit = vec![self.sent.len() as u8; *size];
            self.sent.push(now.as_micros());
            self.available.push(None);
            if let Some(datagram) = self.sender.send(&unit, now) {
                self.path.send(Event::ToGateway(datagram), now);
            }
        }
        self.bursts = self.bursts.saturating_sub(1);
        if self.bursts > 0 {
            self.path.schedule.plan(now + self.rhythm, Event::Send);
        }
    }

    fn observations(mut self) -> Observations {
        let traffic = self.path.links.map(|link| Traffic::of(&link.counters()));
        let eacks = self.receiver.assistance().unwrap_or_default().eacks;
        let gateway = self.gateway.as_ref().map(|gateway| gateway.totals(eacks));
        Observations {
            sent: self.sent,
            available: self.available,
            links: self.config,
            traffic: StreamTraffic {
                client: traffic.last_mile_up,
                client_to_server: traffic.far_up,
                server: traffic.far_down,
                last_mile: traffic.last_mile_down,
            },
            retransmissions: self.sender.retransmissions(),
            counts: self.receiver.take_statistics().accumulated,
            gateway: gateway.unwrap_or_default(),
            cache_series: self.gateway.map(|gateway| gateway.series).unwrap_or_default(),
        }
    }
}
