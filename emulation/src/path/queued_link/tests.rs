//! Queued links with all queues and rates.

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
    let held = QueuedLinkConfig { loss, seed: 7, ..config(Rate::Constant(rate), drop_tail(limit)) };
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
    let (fates, _) =
        run(config(rate.clone(), drop_tail(1 << 20)), &[(0, 722), (0, 722), (0, 600), (0, 1400)]);
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

        if jitter.is_none() {
            does_not_exceed(&rate, &delivered, &arrivals)?;
        }
    }
}

/// Without jitter arrivals show the transmitter: between any two of them no more than the rate
/// gives.
fn does_not_exceed(
    rate: &Rate,
    delivered: &[(usize, u64)],
    arrivals: &[(u64, usize)],
) -> Result<(), TestCaseError> {
    let (Some(first), Some(last)) = (delivered.first(), delivered.last()) else { return Ok(()) };
    let (first, last) = (first.1, last.1);
    let after_first: usize = delivered[1..].iter().map(|(number, _)| arrivals[*number].1).sum();
    match rate {
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
    Ok(())
}
