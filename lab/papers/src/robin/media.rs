//! An audio stream towards a server whose losses a sidekick shows (Sidekick24, scenario 1).

use packrat_emulation::path::{Link, LinkConfig, LossModel, QueueDiscipline, Verdict};
use packrat_emulation::schedule::Schedule;
use packrat_wire::estimate::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Interval of the stream's packets.
const PACKET_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of a datagram: a packet of 240 bytes behind its number and a tag.
const DATAGRAM_BYTES: usize = 264;
/// Bytes of a datagram with feedback.
const FEEDBACK_BYTES: usize = 80;
/// Near and far: one way, and bits per second.
const LINK_RATES: [(u64, u64); 2] = [(1, 100_000_000), (25, 10_000_000)];
/// The receiver asks again after a round trip.
const ROUND_TRIP: Duration = Duration::from_millis(52);

/// The settings of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Media {
    pub(crate) seconds: u64,
    pub(crate) loss: f64,
    /// Packets at the proxy per quACK; `None`: no sidekick.
    pub(crate) quack_every: Option<usize>,
    pub(crate) seed: u64,
}

/// Delays in the receiver's buffer, milliseconds, ascending.
#[derive(Debug, Clone, Default)]
pub(crate) struct Jitter(pub(crate) Vec<f64>);

#[derive(Debug)]
enum Event {
    Due(u64),
    AtProxy(u64),
    AtReceiver(u64),
    /// The receiver misses these packets.
    Requested(Vec<u64>),
    /// The proxy has seen these packets since its last quACK but one.
    Quack(Vec<u64>),
    Ask,
}

struct AudioSimulation {
    media: Media,
    now: Timestamp,
    links: [Link; 4],
    schedule: Schedule<Event>,
    /// Packets that were sent, in order, and are not settled by quACKs.
    unquacked: BTreeSet<u64>,
    passed: Vec<u64>,
    arrived: BTreeMap<u64, Timestamp>,
    next: u64,
    highest: Option<u64>,
    asks: bool,
    jitter: Vec<f64>,
}

impl Media {
    /// Runs it.
    pub(crate) fn run(self) -> Jitter {
        let links = [0, 1, 1, 0].map(|at| {
            let (delay, rate) = LINK_RATES[at];
            let loss = if at == 0 { LossModel::new(self.loss, 1.0) } else { LossModel::None };
            LinkConfig::new(Duration::from_millis(delay), rate)
                .with_queue(QueueDiscipline::DropTail { limit: 65_536 })
                .with_loss(loss)
        });
        let mut number = 0;
        let links = links.map(|config| {
            number += 1;
            Link::new(config.with_seed(self.seed * 4 + number))
        });
        let mut simulation = AudioSimulation {
            media: self,
            now: Timestamp::ZERO,
            links,
            schedule: Schedule::new(),
            unquacked: BTreeSet::new(),
            passed: Vec::new(),
            arrived: BTreeMap::new(),
            next: 0,
            highest: None,
            asks: false,
            jitter: Vec::new(),
        };
        simulation.schedule.plan(Timestamp::ZERO, Event::Due(0));
        while let Some((at, event)) = simulation.schedule.pop() {
            simulation.now = at;
            simulation.handle(event);
        }
        simulation.jitter.sort_by(f64::total_cmp);
        Jitter(simulation.jitter)
    }
}

impl AudioSimulation {
    fn offer(&mut self, link: usize, length: usize, event: Event) {
        if let Verdict::Deliver { at } = self.links[link].offer(self.now, length) {
            self.schedule.plan(at, event);
        }
    }

    fn send(&mut self, number: u64) {
        self.unquacked.insert(number);
        self.offer(0, DATAGRAM_BYTES, Event::AtProxy(number));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Due(number) => {
                self.send(number);
                let packets = self.media.seconds * 1000 / PACKET_INTERVAL.as_millis() as u64;
                if number + 1 < packets {
                    self.schedule.plan(self.now + PACKET_INTERVAL, Event::Due(number + 1));
                }
            }
            Event::AtProxy(number) => {
                self.passed.push(number);
                self.offer(1, DATAGRAM_BYTES, Event::AtReceiver(number));
                if let Some(every) = self.media.quack_every
                    && self.passed.len() >= every
                {
                    // A lost quACK is part of the next one: its sums are of all that has passed.
                    let passed = self.passed.clone();
                    if self.passed.len() > 64 {
                        self.passed.drain(..32);
                    }
                    if passed.len().is_multiple_of(every) {
                        self.offer(3, FEEDBACK_BYTES, Event::Quack(passed));
                    }
                }
            }
            Event::AtReceiver(number) => self.receive(number),
            Event::Requested(missing) => {
                for number in missing {
                    self.offer(0, DATAGRAM_BYTES, Event::AtProxy(number));
                }
            }
            Event::Quack(passed) => {
                let Some(highest) = passed.iter().copied().max() else { return };
                let seen: BTreeSet<u64> = passed.into_iter().collect();
                let missing: Vec<u64> = self
                    .unquacked
                    .range(..highest)
                    .copied()
                    .filter(|number| !seen.contains(number))
                    .collect();
                self.unquacked = self.unquacked.split_off(&highest);
                self.unquacked.remove(&highest);
                for number in missing {
                    self.send(number);
                }
            }
            Event::Ask => self.ask(),
        }
    }

    fn receive(&mut self, number: u64) {
        if number < self.next {
            return;
        }
        self.arrived.entry(number).or_insert(self.now);
        while let Some(at) = self.arrived.remove(&self.next) {
            self.jitter.push(self.now.saturating_since(at).as_secs_f64() * 1e3);
            self.next += 1;
        }
        let skips = self.highest.is_none_or(|highest| number > highest);
        self.highest = self.highest.max(Some(number));
        if skips && !self.arrived.is_empty() && !self.asks {
            self.ask();
        }
    }

    /// Names the missing packets, once in a round trip.
    fn ask(&mut self) {
        let Some((&last, _)) = self.arrived.last_key_value() else {
            self.asks = false;
            return;
        };
        let missing: Vec<u64> =
            (self.next..last).filter(|number| !self.arrived.contains_key(number)).collect();
        self.asks = true;
        self.schedule.plan(self.now + ROUND_TRIP, Event::Ask);
        // Both links carry it, one after the other.
        if let Verdict::Deliver { at } = self.links[2].offer(self.now, FEEDBACK_BYTES)
            && let Verdict::Deliver { at } = self.links[3].offer(at, FEEDBACK_BYTES)
        {
            self.schedule.plan(at, Event::Requested(missing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantile(quack_every: Option<usize>, share: f64) -> f64 {
        let jitter = Media { seconds: 300, loss: 0.036, quack_every, seed: 1 }.run().0;
        assert!(jitter.len() >= 14_990, "{}", jitter.len());
        jitter[(share * jitter.len() as f64) as usize]
    }

    #[test]
    fn a_loss_costs_a_round_trip_of_the_near_link_not_of_the_path() {
        let (alone, with) = (quantile(None, 0.99), quantile(Some(2), 0.99));
        assert!(alone > 40.0 && with < 25.0 && with < alone / 2.0, "{alone} {with}");
        assert!(quantile(Some(2), 0.9) < 1e-9);
    }
}
