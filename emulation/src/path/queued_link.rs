//! One direction of a path whose rate, delay and outages change with time, and whose queue decides
//! when a datagram leaves it, sans-IO.
//!
//! A [`super::Link`] knows the fate of a datagram when it is offered. This link does not: a later
//! arrival can push an earlier one out, and CoDel decides by the time that a datagram has waited.
//! So it holds the datagrams, and its caller asks for their fates.

use std::collections::VecDeque;
use std::iter;

use packrat_wire::estimate::Timestamp;

use super::airtime::{Air, Station};
use super::delay::{DelayModel, DelayProcess};
use super::discipline::{QueueManagement, Queued, Waiting};
use super::link::{LinkCounters, Verdict};
use super::loss::{LossModel, LossProcess};
use super::outages::{OutageModel, OutageProcess};
use super::recording::{OPPORTUNITY_BYTES, RateRecording, Replay};

/// Bytes of IPv4 and UDP headers, which a recorded rate carries as well.
const HEADER_BYTES: usize = 28;

/// The rate of a transmitter.
#[derive(Debug, Clone, PartialEq)]
pub enum Rate {
    /// Transmission takes no time, and nothing waits.
    Unlimited,
    /// Bits per second of UDP payload.
    Constant(u64),
    /// The rate of a recording, which counts the headers of IP and UDP.
    Recorded(Replay<RateRecording>),
}

impl Rate {
    /// Mean rate, bits per second; 0 when there is no limit.
    pub fn mean(&self) -> u64 {
        match self {
            Self::Unlimited => 0,
            Self::Constant(rate) => *rate,
            Self::Recorded(replay) => replay.recording.mean_rate(),
        }
    }
}

/// Configuration of a [`QueuedLink`].
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedLinkConfig {
    /// Propagation delay, one way.
    pub delay: DelayModel,
    /// The transmitter.
    pub rate: Rate,
    /// The queue in front of it.
    pub queue: QueueManagement,
    /// Loss on the medium, after the queue, datagram by datagram.
    pub loss: LossModel,
    /// Times in which the medium loses everything.
    pub outages: Option<OutageModel>,
    /// Decides everything random on this link but the outages.
    pub seed: u64,
    /// Decides random outages: the two directions of a segment may have the same.
    pub outage_seed: u64,
    /// The air that both directions of a link share, only with a constant rate.
    pub air: Option<(Air, Station)>,
}

/// A datagram's end on a link.
#[derive(Debug, Clone, PartialEq)]
pub struct Fate<D> {
    /// The datagram, as it was offered.
    pub datagram: D,
    /// The verdict on the datagram.
    pub verdict: Verdict,
    /// True if the queue marked it (RFC 3168: CE).
    pub marked: bool,
}

/// A datagram between queue and medium.
#[derive(Debug, Clone)]
struct InTransmission<D> {
    queued: Queued<D>,
    /// Nanoseconds.
    since: u64,
    /// Bytes of IP that are left.
    left: usize,
}

/// One direction of a path. It holds the datagrams that wait, and reports the fate of each.
#[derive(Debug, Clone)]
pub struct QueuedLink<D> {
    rate: Rate,
    waiting: Waiting<D>,
    /// The datagram on the transmitter, only with a recorded rate, whose opportunities may end in
    /// its middle.
    in_transmission: Option<InTransmission<D>>,
    /// The time at which the transmitter is done, nanoseconds; only with a constant rate.
    transmitter_free: u64,
    /// The bytes of the last turn; only with shared air.
    turn_bytes: usize,
    air: Option<(Air, Station)>,
    /// The next opportunity; only with a recorded rate.
    opportunity: u64,
    loss: LossProcess,
    outages: Option<OutageProcess>,
    delay: DelayProcess,
    fates: VecDeque<Fate<D>>,
    counters: LinkCounters,
    marked: u64,
}

impl<D> QueuedLink<D> {
    /// An idle link.
    pub fn new(config: QueuedLinkConfig) -> Self {
        let QueuedLinkConfig { delay, rate, queue, loss, outages, seed, outage_seed, air } = config;
        Self {
            // Streams of randomness of their own, as in `Link`.
            waiting: Waiting::new(queue, rate.mean(), seed ^ 0x7175_6575_6500_0000),
            loss: LossProcess::new(loss, seed),
            outages: outages.map(|model| OutageProcess::new(model, outage_seed)),
            delay: DelayProcess::new(delay, seed ^ 0x6a69_7474_6572_0000),
            rate,
            in_transmission: None,
            transmitter_free: 0,
            turn_bytes: 0,
            air,
            opportunity: 0,
            fates: VecDeque::new(),
            counters: LinkCounters::default(),
            marked: 0,
        }
    }

    /// Offers a datagram of `length` bytes of payload; `now` must not run backwards. Datagrams of
    /// the same `flow` have the same number; `ecn_capable` ones may be marked.
    pub fn offer(
        &mut self,
        now: Timestamp,
        length: usize,
        flow: u64,
        ecn_capable: bool,
        datagram: D,
    ) {
        self.handle_timeout(now);
        self.counters.offered += 1;
        self.counters.offered_bytes += length as u64;
        let now = nanos(now);
        let queued = Queued { datagram, length, flow, ecn_capable, marked: false, arrived: now };
        match &self.rate {
            Rate::Unlimited => return self.transmitted(queued, now, now),
            Rate::Constant(_) if self.waiting.is_empty() => {
                self.transmitter_free = self.transmitter_free.max(now);
            }
            Rate::Recorded(recording)
                if self.waiting.is_empty() && self.in_transmission.is_none() =>
            {
                // Opportunities that nothing used are lost.
                self.opportunity = self.opportunity.max(recording.first_from(now));
            }
            Rate::Constant(_) | Rate::Recorded(_) => {}
        }
        self.waiting.enqueue(queued, now, self.untransmitted(now));
        self.drop_from_queue();
        self.tell_air(now);
        let backlog = (self.waiting.bytes() + self.untransmitted(now)) as u64;
        self.counters.queue_high_water_bytes = self.counters.queue_high_water_bytes.max(backlog);
        self.serve(now);
    }

    /// The time at which [`Self::handle_timeout`] must be called; `None` while nothing waits.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.next_service().map(|nanos| Timestamp::from_micros(nanos.div_ceil(1000)))
    }

    /// Advances the time: the transmitter takes the datagrams that it can.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.serve(nanos(now));
    }

    /// The fate of the next datagram whose fate is known.
    pub fn poll_fate(&mut self) -> Option<Fate<D>> {
        self.fates.pop_front()
    }

    /// The link's counters; datagrams that wait are neither delivered nor dropped yet.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Datagrams that the queue marked instead of dropping them.
    pub fn marked(&self) -> u64 {
        self.marked
    }

    /// Bytes of the datagrams that wait.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.bytes()
            + self.in_transmission.as_ref().map_or(0, |datagram| datagram.queued.length)
    }

    fn next_service(&self) -> Option<u64> {
        match &self.rate {
            Rate::Unlimited => None,
            Rate::Constant(_) => match &self.air {
                Some((air, station)) => air.turn(*station),
                None => (!self.waiting.is_empty()).then_some(self.transmitter_free),
            },
            Rate::Recorded(recording) => (!self.waiting.is_empty()
                || self.in_transmission.is_some())
            .then(|| recording.time(self.opportunity)),
        }
    }

    fn serve(&mut self, now: u64) {
        while let Some(at) = self.next_service().filter(|at| *at <= now) {
            match &self.rate {
                Rate::Unlimited => return,
                Rate::Constant(rate) => {
                    let rate = *rate;
                    if let Some((air, station)) = self.air.clone() {
                        self.take_turn(&air, station, at, rate);
                    } else if let Some(queued) = self.waiting.dequeue(at) {
                        let took = queued.length as u64 * 8_000_000_000 / rate.max(1);
                        self.transmitter_free = at + took;
                        self.transmitted(queued, at, at + took);
                    }
                }
                Rate::Recorded(_) => self.use_opportunity(at),
            }
            self.drop_from_queue();
        }
    }

    /// An aggregate leaves, and arrives as a whole.
    fn take_turn(&mut self, air: &Air, station: Station, at: u64, rate: u64) {
        let room = air.aggregate();
        let aggregate: Vec<_> = iter::from_fn(|| self.waiting.dequeue(at)).take(room).collect();
        // A queue may have dropped everything that it had.
        if !aggregate.is_empty() {
            self.turn_bytes = aggregate.iter().map(|queued| queued.length).sum();
            let end = air.take(station, at, self.turn_bytes as u64 * 8_000_000_000 / rate.max(1));
            self.transmitter_free = end;
            for queued in aggregate {
                self.transmitted(queued, at, end);
            }
        }
        self.tell_air(at);
    }

    /// Informs the shared air whether this direction has something to send.
    fn tell_air(&self, now: u64) {
        if let Some((air, station)) = &self.air {
            air.set_waiting(*station, !self.waiting.is_empty(), now);
        }
    }

    /// 1500 bytes of IP leave; the rest of a datagram waits for the next opportunity, as in
    /// Mahimahi.
    fn use_opportunity(&mut self, at: u64) {
        self.opportunity += 1;
        let mut room = OPPORTUNITY_BYTES;
        while room > 0 {
            let next = self.in_transmission.take().or_else(|| {
                let queued = self.waiting.dequeue(at)?;
                let left = queued.length + HEADER_BYTES;
                Some(InTransmission { queued, since: at, left })
            });
            let Some(mut next) = next else { return };
            let sent = next.left.min(room);
            room -= sent;
            next.left -= sent;
            if next.left > 0 {
                self.in_transmission = Some(next);
            } else {
                self.transmitted(next.queued, next.since, at);
            }
        }
    }

    /// A datagram has left the transmitter, which worked on it between two instants, nanoseconds.
    fn transmitted(&mut self, queued: Queued<D>, from: u64, to: u64) {
        // Both are asked for each datagram, so that neither changes what the other loses.
        let corrupted = self.loss.next_is_lost();
        let out = self.outages.as_mut().is_some_and(|outages| outages.is_out(from, to));
        let arrival = self.delay.arrival(to);
        let verdict = if corrupted || out {
            self.counters.lost += 1;
            Verdict::Lost
        } else {
            self.counters.delivered += 1;
            self.counters.delivered_bytes += queued.length as u64;
            Verdict::Deliver { at: Timestamp::from_micros(arrival.div_ceil(1000)) }
        };
        self.marked += u64::from(queued.marked);
        self.fates.push_back(Fate { datagram: queued.datagram, verdict, marked: queued.marked });
    }

    fn drop_from_queue(&mut self) {
        for queued in self.waiting.take_dropped() {
            self.counters.queue_dropped += 1;
            self.fates.push_back(Fate {
                datagram: queued.datagram,
                verdict: Verdict::QueueDropped,
                marked: false,
            });
        }
    }

    /// Bytes of payload that the transmitter has taken over and not yet transmitted.
    fn untransmitted(&self, now: u64) -> usize {
        match &self.rate {
            Rate::Unlimited => 0,
            Rate::Constant(rate) => {
                let busy = self.transmitter_free.saturating_sub(now);
                let bytes = (u128::from(busy) * u128::from(*rate) / 8_000_000_000) as usize;
                // The time of a turn that access takes is no room in the queue.
                if self.air.is_some() { bytes.min(self.turn_bytes) } else { bytes }
            }
            Rate::Recorded(_) => self.in_transmission.as_ref().map_or(0, |datagram| datagram.left),
        }
    }
}

fn nanos(at: Timestamp) -> u64 {
    at.as_micros().saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::delay::{Jitter, JitterModel};
    use super::super::discipline::{CoDelConfig, FqCoDelConfig, RedConfig};
    use super::super::link::{Link, LinkConfig};
    use super::super::queue::QueueDiscipline;
    use super::*;

    fn micros(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn config(rate: Rate, queue: QueueManagement) -> QueuedLinkConfig {
        QueuedLinkConfig {
            delay: DelayModel { base: Duration::from_millis(10), ..DelayModel::default() },
            rate,
            queue,
            loss: LossModel::None,
            outages: None,
            seed: 1,
            outage_seed: 1,
            air: None,
        }
    }

    fn drop_tail(limit: usize) -> QueueManagement {
        QueueManagement::Arrival(QueueDiscipline::DropTail { limit })
    }

    /// Offers datagrams (microseconds since the one before, length) and runs the link dry; number
    /// and fate of each, in the order in which the fates became known.
    fn run(
        config: QueuedLinkConfig,
        arrivals: &[(u64, usize)],
    ) -> (Vec<Fate<usize>>, QueuedLink<usize>) {
        let mut link = QueuedLink::new(config);
        let mut now = 0;
        let mut fates = Vec::new();
        for (number, (gap, length)) in arrivals.iter().enumerate() {
            let next = now + gap;
            while let Some(at) = link.next_timeout().filter(|at| at.as_micros() <= next) {
                link.handle_timeout(at);
            }
            now = next;
            link.offer(micros(now), *length, (number % 3) as u64, number % 2 == 0, number);
            fates.extend(std::iter::from_fn(|| link.poll_fate()));
        }
        while let Some(at) = link.next_timeout() {
            link.handle_timeout(at);
        }
        fates.extend(std::iter::from_fn(|| link.poll_fate()));
        (fates, link)
    }

    fn delivered(fates: &[Fate<usize>]) -> Vec<(usize, u64)> {
        fates
            .iter()
            .filter_map(|fate| match fate.verdict {
                Verdict::Deliver { at } => Some((fate.datagram, at.as_micros())),
                _ => None,
            })
            .collect()
    }

    fn every(gap: u64, count: usize) -> Vec<(u64, usize)> {
        vec![(gap, 1200); count]
    }

    fn recording(text: &str) -> Rate {
        let recording = Arc::new(RateRecording::parse("r", text).unwrap());
        Rate::Recorded(Replay { recording, from: Duration::ZERO })
    }

    /// With a constant rate and drop-tail, the queued link equals the link that knows fates at
    /// once.
    #[test]
    fn a_drop_tail_link_of_constant_rate_knows_fates_at_once() {
        let (rate, limit) = (20_000_000, 15_000);
        let loss = LossModel::new(0.05, 3.0);
        let held =
            QueuedLinkConfig { loss, seed: 7, ..config(Rate::Constant(rate), drop_tail(limit)) };
        let simple = LinkConfig::new(Duration::from_millis(10), rate)
            .with_queue(QueueDiscipline::DropTail { limit })
            .with_loss(loss)
            .with_seed(7);
        // Bursts of 30 that overload it, and pauses.
        let arrivals: Vec<(u64, usize)> =
            (0..3000).map(|n| if n % 30 == 0 { (12_000, 500) } else { (100, 1200) }).collect();
        let (mut fates, held) = run(held, &arrivals);
        fates.sort_by_key(|fate| fate.datagram);
        let mut link = Link::new(simple);
        let mut now = 0;
        for ((gap, length), fate) in arrivals.iter().zip(&fates) {
            now += gap;
            assert_eq!(link.offer(micros(now), *length), fate.verdict, "{}", fate.datagram);
        }
        assert!(link.counters().queue_dropped > 100 && link.counters().lost > 50);
        assert_eq!(link.counters(), held.counters());
    }

    /// A recorded rate carries 1500 bytes at each opportunity; unused opportunities are lost.
    #[test]
    fn a_recorded_rate_carries_1500_bytes_per_used_opportunity() {
        // Nothing can be sent between 4 and 10 ms.
        let rate = recording("1\n2\n3\n4\n10\n");
        let full = 1500 - HEADER_BYTES;
        let (fates, _) = run(config(rate.clone(), drop_tail(1 << 20)), &[(0, full); 7]);
        let times: Vec<u64> = delivered(&fates).iter().map(|(_, at)| at / 1000 - 10).collect();
        assert_eq!(times, [1, 2, 3, 4, 10, 11, 12]);
        // Small ones share an opportunity; a larger one waits for the next.
        let (fates, _) = run(
            config(rate.clone(), drop_tail(1 << 20)),
            &[(0, 722), (0, 722), (0, 600), (0, 1400)],
        );
        let times: Vec<u64> = delivered(&fates).iter().map(|(_, at)| at / 1000 - 10).collect();
        assert_eq!(times, [1, 1, 2, 3]);
        // The opportunities at 1 and 2 ms pass unused.
        let (fates, _) = run(config(rate, drop_tail(1 << 20)), &[(2_500, full), (0, full)]);
        let times: Vec<u64> = delivered(&fates).iter().map(|(_, at)| at / 1000 - 10).collect();
        assert_eq!(times, [3, 4]);
    }

    #[test]
    fn drop_front_drops_the_oldest() {
        let queue = QueueManagement::DropFront { limit: 3600 };
        let (fates, _) = run(config(Rate::Constant(1_000_000), queue), &every(0, 10));
        let numbers: Vec<usize> = delivered(&fates).iter().map(|(number, _)| *number).collect();
        // The first datagram is on the transmitter; of the others the last to arrive have room.
        assert_eq!(numbers, [0, 8, 9]);
    }

    #[test]
    fn codel_shortens_the_wait_of_an_unresponsive_overload() {
        let waits = |queue| {
            let (fates, link) = run(config(Rate::Constant(9_600_000), queue), &every(900, 20_000));
            let waits: Vec<u64> = delivered(&fates)
                .iter()
                .map(|(number, at)| at - 10_000 - 900 * (*number as u64 + 1))
                .collect();
            assert!(link.counters().delivered_bytes > 20_000 * 1200 * 88 / 100);
            waits[waits.len() / 2..].iter().sum::<u64>() / (waits.len() / 2) as u64
        };
        let tail = waits(drop_tail(240_000));
        let codel = waits(QueueManagement::CoDel(CoDelConfig::new(240_000)));
        assert!(tail > 190_000, "{tail} microseconds");
        // CoDel takes its time with a sender that does not answer, but it goes on.
        assert!(codel < 50_000, "{codel} microseconds");
    }

    #[test]
    fn an_outage_loses_what_is_transmitted_in_it() {
        let outages = Some(OutageModel::Scheduled {
            first: Duration::from_millis(100),
            every: Duration::from_secs(1),
            length: Duration::from_millis(50),
        });
        let config =
            QueuedLinkConfig { outages, ..config(Rate::Constant(9_600_000), drop_tail(12_000)) };
        let (fates, link) = run(config, &every(1000, 300));
        let lost: Vec<usize> = fates
            .iter()
            .filter(|fate| fate.verdict == Verdict::Lost)
            .map(|fate| fate.datagram)
            .collect();
        // Each takes a millisecond; number n is offered at n + 1 ms.
        assert_eq!((lost[0], lost[lost.len() - 1]), (98, 148));
        assert_eq!(link.counters().lost, 51);
    }

    #[test]
    fn the_seed_decides() {
        let run = |seed| {
            let queue = QueueManagement::Red(RedConfig::new(60_000));
            let config = QueuedLinkConfig {
                loss: LossModel::new(0.02, 2.0),
                seed,
                ..config(Rate::Constant(9_600_000), queue)
            };
            run(config, &every(900, 2000)).0
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    fn rates() -> impl Strategy<Value = Rate> {
        prop_oneof![
            Just(Rate::Unlimited),
            (100_000u64..200_000_000).prop_map(Rate::Constant),
            proptest::collection::vec(0u32..40, 1..30).prop_map(|gaps| {
                let mut time = 1;
                let lines: Vec<String> = gaps
                    .iter()
                    .map(|gap| {
                        time += gap;
                        time.to_string()
                    })
                    .collect();
                recording(&lines.join("\n"))
            }),
        ]
    }

    fn queues() -> impl Strategy<Value = QueueManagement> {
        let limit = 2_000usize..100_000;
        prop_oneof![
            limit.clone().prop_map(drop_tail),
            limit
                .clone()
                .prop_map(|limit| QueueManagement::Arrival(QueueDiscipline::AdaptiveRed { limit })),
            limit.clone().prop_map(|limit| QueueManagement::DropFront { limit }),
            limit.clone().prop_map(|limit| QueueManagement::Red(RedConfig {
                ecn: true,
                ..RedConfig::new(limit)
            })),
            (limit, any::<bool>()).prop_map(|(limit, ecn)| QueueManagement::CoDel(CoDelConfig {
                ecn,
                ..CoDelConfig::new(limit)
            })),
            (1usize..100, any::<bool>()).prop_map(|(limit, ecn)| {
                QueueManagement::FqCoDel(FqCoDelConfig { limit, ecn, ..FqCoDelConfig::default() })
            }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn fates_are_unique_bytes_conserved_and_the_rate_not_exceeded(
            rate in rates(),
            queue in queues(),
            loss in 0.0f64..0.5,
            jitter in any::<bool>(),
            arrivals in proptest::collection::vec((0u64..3_000, 0usize..1_472), 1..300),
        ) {
            let jitter = jitter.then_some(Jitter {
                model: JitterModel::Exponential { mean: Duration::from_millis(3) },
                every: Duration::from_millis(5),
            });
            let config = config(rate.clone(), queue);
            let config = QueuedLinkConfig {
                delay: DelayModel { jitter, ..config.delay },
                loss: LossModel::Independent { rate: loss },
                ..config
            };
            let (fates, link) = run(config, &arrivals);
            let mut numbers: Vec<usize> = fates.iter().map(|fate| fate.datagram).collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..arrivals.len()).collect::<Vec<_>>());
            prop_assert_eq!(link.waiting_bytes(), 0);

            let counters = link.counters();
            let count = |wanted: fn(&Verdict) -> bool| fates.iter().filter(|fate| wanted(&fate.verdict)).count() as u64;
            prop_assert_eq!(counters.lost, count(|verdict| *verdict == Verdict::Lost));
            prop_assert_eq!(counters.queue_dropped, count(|verdict| *verdict == Verdict::QueueDropped));
            prop_assert_eq!(counters.offered, counters.delivered + counters.lost + counters.queue_dropped);
            let delivered = delivered(&fates);
            let bytes: usize = delivered.iter().map(|(number, _)| arrivals[*number].1).sum();
            prop_assert_eq!(counters.delivered_bytes, bytes as u64);
            let marked = fates.iter().filter(|fate| fate.marked);
            prop_assert!(marked.clone().all(|fate| fate.datagram % 2 == 0), "only ECN-capable ones");

            // In order: all datagrams, or with a queue per flow the datagrams of each flow.
            prop_assert!(delivered.windows(2).all(|pair| pair[0].1 <= pair[1].1));
            for flow in 0..3 {
                let of_flow = delivered.iter().filter(|(number, _)| number % 3 == flow).map(|(number, _)| *number);
                prop_assert!(of_flow.is_sorted_by(|one, other| one < other));
            }

            // Without jitter arrivals show the transmitter: between any two of them no more than the
            // rate gives.
            if jitter.is_none() {
                let (first, last) = (delivered.first().map(|d| d.1), delivered.last().map(|d| d.1));
                if let (Some(first), Some(last)) = (first, last) {
                    let after_first: usize = delivered[1..].iter().map(|(number, _)| arrivals[*number].1).sum();
                    match &rate {
                        Rate::Unlimited => {}
                        Rate::Constant(rate) => {
                            let most = ((last - first) as f64 + 2.0) * *rate as f64 / 8e6;
                            prop_assert!(after_first as f64 <= most + 1.0, "{after_first} bytes, at most {most}");
                        }
                        Rate::Recorded(recording) => {
                            let from = recording.first_from((first - 10_000) * 1000);
                            let to = recording.first_from((last - 10_000) * 1000 + 1);
                            let most = (to - from) as usize * OPPORTUNITY_BYTES;
                            prop_assert!(after_first <= most, "{after_first} bytes, at most {most}");
                        }
                    }
                }
            }
        }
    }
}
