//! The receiver's guarantees: every unit once, in order, on time or not at all, and no needless
//! requests to the sender.

use core::time::Duration;
use packrat_media::{Receiver, ReceiverConfig, Timestamp};
use proptest::prelude::*;

const RHYTHM: u64 = 20_000;
const TRAVEL: u64 = 80_000;

fn config() -> ReceiverConfig {
    ReceiverConfig { latency: Duration::from_millis(400), ..ReceiverConfig::default() }
}

/// The time at which packet `number` is sent, microseconds.
fn sent(number: u64) -> u64 {
    1_000_000 + number * RHYTHM
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn arrive(receiver: &mut Receiver, number: u64) -> Timestamp {
    let now = at(sent(number) + TRAVEL);
    receiver.on_packet(number, sent(number), &number.to_be_bytes(), None, now);
    now
}

fn asked(receiver: &mut Receiver, now: Timestamp, awaited: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut numbers = Vec::new();
    receiver.poll_asked(now, awaited, &mut numbers);
    numbers
}

#[test]
fn a_missing_unit_is_requested_once_per_round_trip_while_useful() {
    let mut receiver = Receiver::new(config());
    arrive(&mut receiver, 0);
    let now = arrive(&mut receiver, 2);
    assert_eq!(asked(&mut receiver, now, |_| false), [1]);
    let (mut questions, mut last) = (vec![now], now);
    for _ in 0..1000 {
        last = last + Duration::from_millis(1);
        if !asked(&mut receiver, last, |_| false).is_empty() {
            questions.push(last);
        }
    }
    // Unit 1 is released at 1.5 s, and an answer is assumed to take 200 ms: there is time for one
    // more question, not for two.
    assert!(questions.len() <= 2, "{questions:?}");
    for pair in questions.windows(2) {
        assert!(pair[1].saturating_since(pair[0]) >= Duration::from_millis(200), "{questions:?}");
    }
    let latest = at(sent(1) + TRAVEL) + Duration::from_millis(200);
    assert!(questions.iter().all(|at| *at <= latest), "{questions:?}");
}

#[test]
fn what_the_gateway_may_still_repair_is_not_asked_for() {
    let mut receiver = Receiver::new(config());
    arrive(&mut receiver, 0);
    let now = arrive(&mut receiver, 3);
    assert_eq!(asked(&mut receiver, now, |number| number == 1), [2]);
    assert_eq!(asked(&mut receiver, now + Duration::from_millis(1), |_| false), [1]);
}

#[test]
fn a_packet_that_was_overtaken_is_not_missing() {
    let mut receiver =
        Receiver::new(ReceiverConfig { reorder: Duration::from_millis(10), ..config() });
    arrive(&mut receiver, 0);
    let now = arrive(&mut receiver, 2);
    assert!(asked(&mut receiver, now, |_| false).is_empty());
    receiver.on_packet(1, sent(1), b"late", None, now + Duration::from_millis(5));
    assert!(asked(&mut receiver, now + Duration::from_millis(20), |_| false).is_empty());
    assert_eq!(receiver.take_statistics().accumulated.reordered, 1);
    let now = arrive(&mut receiver, 4);
    assert!(receiver.next_timeout().is_some_and(|next| next <= now + Duration::from_millis(10)));
    assert_eq!(asked(&mut receiver, now + Duration::from_millis(10), |_| false), [3]);
}

#[test]
fn repetition_fills_single_holes_and_double_ones_are_requested() {
    let mut receiver = Receiver::new(ReceiverConfig { repeats: true, ..config() });
    let packet = |receiver: &mut Receiver, number: u64| {
        let now = at(sent(number) + TRAVEL);
        receiver.on_packet(number, sent(number), &[number as u8], Some(&[number as u8 - 1]), now);
        now
    };
    packet(&mut receiver, 10);
    let now = packet(&mut receiver, 12);
    assert!(asked(&mut receiver, now, |_| false).is_empty());
    let now = packet(&mut receiver, 15);
    assert_eq!(asked(&mut receiver, now, |_| false), [13]);
    let statistics = receiver.take_statistics();
    assert_eq!(
        (statistics.accumulated.lost, statistics.accumulated.recovered_by_repetition),
        (3, 2)
    );
    receiver.on_retransmission(13, sent(13), &[13], now + Duration::from_millis(90));
    let statistics = receiver.take_statistics();
    assert_eq!((statistics.interval.recovered_end_to_end, statistics.interval.lost), (1, 0));
    assert_eq!(statistics.accumulated.lost, 3);
    assert_eq!(statistics.round_trip, Some(Duration::from_millis(90)));
    let mut numbers = Vec::new();
    while let Some(unit) = receiver.poll_unit(at(10_000_000)) {
        assert_eq!(unit.bytes, [unit.number as u8]);
        numbers.push(unit.number);
    }
    assert_eq!(numbers, [10, 11, 12, 13, 14, 15]);
}

#[test]
fn a_retransmission_that_was_not_needed_is_counted() {
    let mut receiver = Receiver::new(config());
    arrive(&mut receiver, 0);
    let now = arrive(&mut receiver, 2);
    assert_eq!(asked(&mut receiver, now, |_| false), [1]);
    receiver.on_packet(1, sent(1), b"repair", None, now + Duration::from_millis(60));
    receiver.on_retransmission(1, sent(1), b"again", now + Duration::from_millis(160));
    let counts = receiver.take_statistics().accumulated;
    assert_eq!((counts.recovered_by_gateway, counts.spurious_retransmissions), (1, 1));
}

#[test]
fn a_packet_that_does_not_keep_the_rhythm_is_overdue_once() {
    let rhythm = Some(Duration::from_micros(RHYTHM));
    let mut receiver = Receiver::new(ReceiverConfig { rhythm, ..config() });
    let now = arrive(&mut receiver, 0);
    assert_eq!(
        receiver.poll_overdue(now + Duration::from_micros(RHYTHM)),
        None,
        "there is a margin"
    );
    let due = receiver.next_timeout().unwrap();
    assert_eq!(receiver.poll_overdue(due), Some(1));
    assert_eq!(receiver.poll_overdue(due), None);
    assert_eq!(receiver.poll_overdue(due + Duration::from_micros(RHYTHM)), Some(2));
    // The reports of a stopped stream end.
    let mut told = 2;
    while receiver.poll_overdue(at(60_000_000)).is_some() {
        told += 1;
    }
    assert!(told < 10, "{told}");
    // Without a rhythm no packet is overdue.
    let mut receiver = Receiver::new(config());
    arrive(&mut receiver, 0);
    assert_eq!(receiver.poll_overdue(at(60_000_000)), None);
}

#[test]
fn a_stream_that_begins_anew_is_followed() {
    let mut receiver = Receiver::new(config());
    arrive(&mut receiver, 5);
    let now = arrive(&mut receiver, 6);
    receiver.on_packet(900_000, 5, b"new", None, now);
    assert_eq!(receiver.first(), Some(900_000));
    let unit = receiver.poll_unit(now + Duration::from_secs(1)).unwrap();
    assert_eq!((unit.number, unit.bytes.as_slice()), (900_000, b"new".as_slice()));
    assert_eq!(receiver.take_statistics().accumulated.restarts, 1);
}

proptest! {
    /// Whatever the network does: units come out in order, once, with their own bytes, and each is either released or dropped.
    #[test]
    fn every_unit_once_in_order_or_not_at_all(
        fates in proptest::collection::vec((any::<u8>(), 0u64..90_000), 20..300),
        patience in 0u64..300,
        repeats in any::<bool>(),
    ) {
        let config = ReceiverConfig {
            latency: Duration::from_millis(100),
            patience: Duration::from_millis(patience),
            repeats,
            ..ReceiverConfig::default()
        };
        let mut receiver = Receiver::new(config);
        let mut arrivals: Vec<(u64, u64)> = Vec::new();
        for (number, (fate, delay)) in (0u64..).zip(&fates) {
            let usual = sent(number) + TRAVEL;
            match fate % 10 {
                0 | 1 if number > 0 => {}
                2 => arrivals.extend([(usual, number), (usual + delay, number)]),
                3 if number > 0 => arrivals.push((usual + delay, number)),
                _ => arrivals.push((usual, number)),
            }
        }
        arrivals.sort_unstable();
        let mut released = Vec::new();
        for (time, number) in arrivals {
            let now = at(time);
            let before = number.wrapping_sub(1).to_be_bytes();
            let before = (repeats && number > 0).then_some(before.as_slice());
            receiver.on_packet(number, sent(number), &number.to_be_bytes(), before, now);
            while let Some(unit) = receiver.poll_unit(now) {
                prop_assert_eq!(&unit.bytes, &unit.number.to_be_bytes());
                released.push(unit.number);
            }
            prop_assert!(asked(&mut receiver, now, |_| false).iter().all(|asked| !released.contains(asked)));
            prop_assert!(receiver.next_timeout().is_none_or(|next| next > now), "a timer that has passed");
        }
        while let Some(unit) = receiver.poll_unit(at(1_000_000_000)) {
            released.push(unit.number);
        }
        prop_assert!(released.is_sorted_by(|one, next| one < next));
        let counts = receiver.take_statistics().accumulated;
        prop_assert_eq!(counts.released, released.len() as u64);
        let last = released.last().copied().unwrap_or(0);
        prop_assert!(counts.released + counts.dropped > last - released[0]);
    }
}
