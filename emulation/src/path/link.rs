//! One direction of a path, sans-IO.

use std::time::Duration;

use packrat_wire::estimate::Timestamp;
use serde::Serialize;

use super::loss::{LossModel, LossProcess};
use super::queue::{Queue, QueueDiscipline, bandwidth_delay_product};

/// Smallest default queue: a few dozen datagrams, so that a short link is not all drops.
const SMALLEST_DEFAULT_QUEUE: usize = 32 * 1024;

/// Configuration of one direction of a path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LinkConfig {
    /// Propagation delay, one way.
    pub delay: Duration,
    /// Transmission rate in bits per second of UDP payload; 0 means that transmission takes no
    /// time.
    pub rate: u64,
    /// The queue in front of the transmitter; without effect when the rate is 0.
    pub queue: QueueDiscipline,
    /// Loss on the medium, after the queue: a lost datagram has used its share of the rate.
    pub loss: LossModel,
    /// Decides everything random on this link.
    pub seed: u64,
}

impl LinkConfig {
    /// A link without loss, with a drop-tail queue of one bandwidth-delay product (there and back
    /// on this link).
    pub fn new(delay: Duration, rate: u64) -> Self {
        let limit = bandwidth_delay_product(rate, delay * 2).max(SMALLEST_DEFAULT_QUEUE);
        Self {
            delay,
            rate,
            queue: QueueDiscipline::DropTail { limit },
            loss: LossModel::None,
            seed: 0,
        }
    }

    /// Replaces the queue.
    pub fn with_queue(self, queue: QueueDiscipline) -> Self {
        Self { queue, ..self }
    }

    /// Replaces the loss.
    pub fn with_loss(self, loss: LossModel) -> Self {
        Self { loss, ..self }
    }

    /// Replaces the seed.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
}

/// The fate of a datagram that was offered to a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The datagram comes out of the other end.
    Deliver {
        /// Time of arrival, never earlier than the previous datagram's: a link does not reorder.
        at: Timestamp,
    },
    /// The datagram was transmitted, and the medium lost it.
    Lost,
    /// The queue did not let it in.
    QueueDropped,
}

/// A link's counters. Datagrams that are still on their way count as delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LinkCounters {
    /// Datagrams offered.
    pub offered: u64,
    /// Datagrams that come out at the other end.
    pub delivered: u64,
    /// Datagrams lost on the medium.
    pub lost: u64,
    /// Datagrams that the queue did not let in.
    pub queue_dropped: u64,
    /// Bytes of payload offered.
    pub offered_bytes: u64,
    /// Bytes of payload that come out at the other end.
    pub delivered_bytes: u64,
    /// Largest backlog in front of the transmitter, in bytes.
    pub queue_high_water_bytes: u64,
}

/// One direction of a path: queue, transmitter, lossy medium, delay. It holds no datagrams, only
/// their fate.
#[derive(Debug, Clone)]
pub struct Link {
    config: LinkConfig,
    queue: Queue,
    loss: LossProcess,
    /// The time at which the transmitter is done with all it has accepted, in nanoseconds:
    /// microseconds would round a fast link's transmission times.
    transmitter_free: u64,
    counters: LinkCounters,
}

impl Link {
    /// An idle link.
    pub fn new(config: LinkConfig) -> Self {
        Self {
            config,
            // Two streams of randomness: the queue's draws must not change which datagrams the
            // medium loses.
            queue: Queue::new(config.queue, config.rate, config.seed ^ 0x7175_6575_6500_0000),
            loss: LossProcess::new(config.loss, config.seed),
            transmitter_free: 0,
            counters: LinkCounters::default(),
        }
    }

    /// Offers a datagram of `length` bytes of payload; `now` must not run backwards.
    pub fn offer(&mut self, now: Timestamp, length: usize) -> Verdict {
        self.counters.offered += 1;
        self.counters.offered_bytes += length as u64;
        let now_nanos = now.as_micros().saturating_mul(1000);
        let backlog = self.backlog_at(now_nanos);
        if self.config.rate > 0 && !self.queue.admits(now, backlog, length) {
            self.counters.queue_dropped += 1;
            return Verdict::QueueDropped;
        }
        self.counters.queue_high_water_bytes =
            self.counters.queue_high_water_bytes.max((backlog + length) as u64);
        self.transmitter_free =
            self.transmitter_free.max(now_nanos) + self.transmission_nanos(length);
        if self.loss.next_is_lost() {
            self.counters.lost += 1;
            return Verdict::Lost;
        }
        self.counters.delivered += 1;
        self.counters.delivered_bytes += length as u64;
        Verdict::Deliver {
            at: Timestamp::from_micros(self.transmitter_free.div_ceil(1000)) + self.config.delay,
        }
    }

    /// Another loss on the medium from now on.
    pub fn set_loss(&mut self, loss: LossModel, seed: u64) {
        self.config.loss = loss;
        self.config.seed = seed;
        self.loss = LossProcess::new(loss, seed);
    }

    /// The link's counters.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// The link's configuration.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    fn transmission_nanos(&self, length: usize) -> u64 {
        (length as u64 * 8 * 1_000_000_000).checked_div(self.config.rate).unwrap_or(0)
    }

    /// Bytes accepted and not yet transmitted.
    fn backlog_at(&self, now_nanos: u64) -> usize {
        let busy = self.transmitter_free.saturating_sub(now_nanos);
        (u128::from(busy) * u128::from(self.config.rate) / 8_000_000_000) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: usize = 1200;

    fn micros(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    /// Offers a datagram every `every` microseconds for `seconds`, and returns the verdicts.
    fn offer_evenly(link: &mut Link, every: u64, seconds: u64) -> Vec<(Timestamp, Verdict)> {
        (0..seconds * 1_000_000 / every)
            .map(|n| (micros(n * every), link.offer(micros(n * every), DATAGRAM)))
            .collect()
    }

    #[test]
    fn an_idle_link_adds_transmission_time_and_delay() {
        let mut link = Link::new(LinkConfig::new(Duration::from_millis(30), 20_000_000));
        // 1200 bytes at 20 Mbit/s take 480 microseconds.
        assert_eq!(link.offer(micros(1_000), DATAGRAM), Verdict::Deliver { at: micros(31_480) });
        assert_eq!(link.offer(micros(1_000), DATAGRAM), Verdict::Deliver { at: micros(31_960) });
        assert_eq!(link.offer(micros(9_000), 0), Verdict::Deliver { at: micros(39_000) });
    }

    #[test]
    fn without_a_rate_only_the_delay_is_left() {
        let mut link = Link::new(LinkConfig::new(Duration::from_millis(2), 0));
        for _ in 0..10_000 {
            assert_eq!(link.offer(micros(5), 65_507), Verdict::Deliver { at: micros(2_005) });
        }
    }

    #[test]
    fn an_overloaded_link_delivers_at_its_rate_and_drops_the_rest() {
        let mut link = Link::new(LinkConfig::new(Duration::from_millis(10), 50_000_000));
        let verdicts = offer_evenly(&mut link, 96, 4); // 100 Mbit/s offered
        let counters = link.counters();
        let delivered_rate = counters.delivered_bytes as f64 * 8.0 / 4.0;
        assert!((delivered_rate / 50e6 - 1.0).abs() < 0.01, "{delivered_rate}");
        assert_eq!(counters.offered, counters.delivered + counters.queue_dropped);
        assert!(counters.queue_dropped > 0);
        let deliveries: Vec<_> = verdicts
            .iter()
            .filter_map(|(sent, verdict)| match verdict {
                Verdict::Deliver { at } => Some((*sent, *at)),
                _ => None,
            })
            .collect();
        assert!(
            deliveries
                .windows(2)
                .all(|pair| pair[1].1.saturating_since(pair[0].1) >= Duration::from_micros(191))
        );
        // One bandwidth-delay product of queue (20 ms here) bounds the waiting time.
        let longest = deliveries.iter().map(|(sent, at)| at.saturating_since(*sent)).max().unwrap();
        assert!(longest <= Duration::from_micros(30_001), "{longest:?}");
        assert!(longest > Duration::from_millis(29), "{longest:?}");
    }

    #[test]
    fn the_backlog_never_exceeds_the_limit() {
        let limit = 20_000;
        for queue in [QueueDiscipline::DropTail { limit }, QueueDiscipline::AdaptiveRed { limit }] {
            let mut link =
                Link::new(LinkConfig::new(Duration::from_millis(1), 10_000_000).with_queue(queue));
            offer_evenly(&mut link, 50, 2);
            assert!(link.counters().queue_high_water_bytes <= limit as u64);
        }
    }

    #[test]
    fn adaptive_red_keeps_the_queue_shorter_at_equal_throughput() {
        let limit = 150_000;
        let run = |queue| {
            let config = LinkConfig::new(Duration::ZERO, 20_000_000).with_queue(queue);
            let mut link = Link::new(config);
            // 5 % overload, the steady state of a sender that probes for more.
            let verdicts = offer_evenly(&mut link, 457, 60);
            let waits: Vec<f64> = verdicts[verdicts.len() / 2..]
                .iter()
                .filter_map(|(sent, verdict)| match verdict {
                    Verdict::Deliver { at } => Some(at.saturating_since(*sent).as_secs_f64()),
                    _ => None,
                })
                .collect();
            (waits.iter().sum::<f64>() / waits.len() as f64, link.counters().delivered_bytes as f64)
        };
        let (tail_wait, tail_bytes) = run(QueueDiscipline::DropTail { limit });
        let (red_wait, red_bytes) = run(QueueDiscipline::AdaptiveRed { limit });
        assert!(red_wait < tail_wait * 0.75, "RED waits {red_wait} s, drop-tail {tail_wait} s");
        assert!(red_wait > tail_wait * 0.2, "RED waits {red_wait} s, drop-tail {tail_wait} s");
        assert!(red_bytes > tail_bytes * 0.98, "RED {red_bytes} bytes, drop-tail {tail_bytes}");
    }

    #[test]
    fn red_drops_nothing_below_its_lower_threshold() {
        let queue = QueueDiscipline::AdaptiveRed { limit: 100_000 };
        let mut link = Link::new(LinkConfig::new(Duration::ZERO, 20_000_000).with_queue(queue));
        offer_evenly(&mut link, 490, 20); // just under the rate
        assert_eq!(link.counters().queue_dropped, 0);
    }

    #[test]
    fn lost_datagrams_used_the_rate() {
        let config = LinkConfig::new(Duration::ZERO, 20_000_000)
            .with_loss(LossModel::Independent { rate: 1.0 });
        let mut link = Link::new(config);
        for _ in 0..10 {
            assert_eq!(link.offer(Timestamp::ZERO, DATAGRAM), Verdict::Lost);
        }
        assert_eq!(link.backlog_at(0), 10 * DATAGRAM);
        assert_eq!(link.counters().lost, 10);
    }

    #[test]
    fn the_mediums_losses_depend_on_the_seed_and_not_on_the_load() {
        let config = |seed| {
            LinkConfig::new(Duration::from_millis(2), 50_000_000)
                .with_loss(LossModel::new(0.1, 4.0))
                .with_seed(seed)
        };
        let run = |seed, every| {
            let mut link = Link::new(config(seed));
            offer_evenly(&mut link, every, 2)
                .into_iter()
                .map(|(_, verdict)| verdict == Verdict::Lost)
                .collect()
        };
        let first: Vec<bool> = run(3, 250);
        assert_eq!(first, run(3, 250));
        assert_ne!(first, run(4, 250));
        let slower: Vec<bool> = run(3, 500);
        assert_eq!(first[..slower.len()], slower);
    }

    #[test]
    fn no_verdict_reorders() {
        let queue = QueueDiscipline::AdaptiveRed { limit: 60_000 };
        let config = LinkConfig::new(Duration::from_millis(7), 1_000_000_000)
            .with_queue(queue)
            .with_loss(LossModel::new(0.05, 2.0));
        let mut link = Link::new(config);
        let mut latest = Timestamp::ZERO;
        for n in 0..100_000u64 {
            if let Verdict::Deliver { at } = link.offer(micros(n * 7), (n * 37 % 1500) as usize) {
                assert!(at >= latest);
                latest = at;
            }
        }
        assert!(link.counters().delivered > 90_000);
    }
}
