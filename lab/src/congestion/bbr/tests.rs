//! BBR on a model of a link.

use super::*;
use rand_chacha::rand_core::SeedableRng;
use std::collections::VecDeque;

const DATAGRAM: u64 = 1200;
/// Bytes per second, and the round trip without a queue.
const RATE: f64 = 2.5e6;
const ROUND_TRIP: Duration = Duration::from_millis(60);

/// A link with an unlimited queue that loses every packet of a given interval.
struct Path {
    bbr: Bbr,
    now: Instant,
    begun: Instant,
    /// Number, time of acknowledgement (or of the detection of its loss), lost.
    under_way: VecDeque<(u64, Instant, bool)>,
    free: Instant,
    number: u64,
    lose_each: u64,
    delivered: u64,
    queue: Duration,
}

impl Path {
    fn new(lose_each: u64) -> Self {
        let now = Instant::now();
        let bbr = Bbr::new(DATAGRAM as u16, ChaCha8Rng::seed_from_u64(1));
        Self {
            bbr,
            now,
            begun: now,
            under_way: VecDeque::new(),
            free: now,
            number: 0,
            lose_each,
            delivered: 0,
            queue: Duration::ZERO,
        }
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        let mut next_send = self.now;
        self.delivered = 0;
        self.begun = self.now;
        while self.now < end {
            let in_flight = self.under_way.len() as u64 * DATAGRAM;
            let may_send = in_flight + DATAGRAM <= self.bbr.window();
            if !may_send {
                self.bbr.on_window_limits();
            }
            let acknowledged = self.under_way.front().map(|(_, at, _)| *at);
            if may_send && acknowledged.is_none_or(|at| next_send <= at) {
                self.now = self.now.max(next_send);
                self.send();
                let pause = DATAGRAM as f64 / self.bbr.pace() as f64;
                next_send = self.now.max(next_send) + Duration::from_secs_f64(pause);
            } else if let Some((number, at, lost)) = self.under_way.pop_front() {
                self.now = self.now.max(at);
                if lost {
                    self.bbr.on_lost(self.now, number);
                } else {
                    self.delivered += DATAGRAM;
                    self.bbr.on_ack(self.now, number);
                    let in_flight = self.under_way.len() as u64 * DATAGRAM;
                    self.bbr.on_end_acks(self.now, in_flight, false);
                }
            }
        }
    }

    fn send(&mut self) {
        self.bbr.on_sent(self.now, DATAGRAM, self.number);
        self.free = self.free.max(self.now) + Duration::from_secs_f64(DATAGRAM as f64 / RATE);
        self.queue = self.free - self.now;
        let lost = self.lose_each > 0 && self.number % self.lose_each == self.lose_each - 1;
        self.under_way.push_back((self.number, self.free + ROUND_TRIP, lost));
        self.number += 1;
    }

    /// Share of the link's capacity that is used.
    fn share(&self) -> f64 {
        self.delivered as f64 / (self.now - self.begun).as_secs_f64() / RATE
    }
}

#[test]
fn it_fills_the_link_and_keeps_its_queue_short() {
    let mut path = Path::new(0);
    path.run(Duration::from_secs(2));
    assert!(path.bbr.has_filled_pipe());
    path.run(Duration::from_secs(20));
    assert!(path.share() > 0.93, "{}", path.share());
    assert!(path.bbr.window() < (3.0 * RATE * ROUND_TRIP.as_secs_f64()) as u64);
}

#[test]
fn losses_below_the_threshold_cost_little_and_above_it_more() {
    let share = |lose_each| {
        let mut path = Path::new(lose_each);
        path.run(Duration::from_secs(2));
        path.run(Duration::from_secs(20));
        path.share()
    };
    let [one, ten] = [share(100), share(10)];
    assert!(one > 0.8, "1 %: {one}");
    // Above the threshold of 2 %, every round of probing ends with a lower bound.
    assert!(ten < one / 2.0 && ten > 0.03, "10 %: {ten}, 1 %: {one}");
}

#[test]
fn it_looks_for_the_shortest_round_trip_every_five_seconds() {
    let mut path = Path::new(0);
    path.run(Duration::from_secs(4));
    let mut probes = 0;
    for _ in 0..100 {
        let before = path.bbr.phase;
        path.run(Duration::from_millis(100));
        probes +=
            u32::from(path.bbr.phase == Phase::ProbeRoundTrip && before != Phase::ProbeRoundTrip);
    }
    assert!((1..=3).contains(&probes), "{probes} in 10 s");
}
