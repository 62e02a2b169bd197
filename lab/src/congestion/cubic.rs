//! CUBIC (RFC 9438) whose first slow start ends by HyStart++ (RFC 9406).

use super::initial_window::initial_window;
use std::time::{Duration, Instant};

/// Share of the window that is left after a congestion event.
const BETA: f64 = 0.7;
/// Growth of the cubic function, datagrams per second³ (`C_CUBIC` in RFC 9438).
const C_CUBIC: f64 = 0.4;
/// Datagrams per round trip of a flow that is as fast as Reno with [`BETA`].
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Bounds of the difference, an eighth of the last round's round trip, by which a longer round trip
/// ends slow start.
const LONGER_BOUNDS: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(16)];
/// Divisor of the last round's round trip, by which part a longer one ends slow start.
const LONGER_DIVISOR: u32 = 8;
/// Samples before a round's shortest round trip counts.
const FEWEST_SAMPLES: u32 = 8;
/// Conservative slow start: its growth is divided by this, and it lasts this many rounds.
const CONSERVATIVE_DIVISOR: f64 = 4.0;
const CONSERVATIVE_ROUNDS: u32 = 5;

/// The window of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Cubic {
    /// Bytes of a datagram.
    datagram: f64,
    /// Bytes.
    window: f64,
    threshold: f64,
    hystart: Option<HyStart>,
    epoch: Option<Epoch>,
    /// The window that the cubic function aims at, and the one before the last reduction.
    window_maximum: f64,
    window_prior: f64,
    /// Packets sent until then have met the last congestion event.
    recovering_since: Option<Instant>,
    /// The state before the last congestion event, in case that event was spurious.
    undo: Option<Box<Self>>,
}

/// Congestion avoidance since the last congestion event.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    begun: Instant,
    /// The plateau of the cubic function, bytes, and the seconds until it is reached.
    top: f64,
    k: f64,
    /// The window of a Reno flow.
    reno: f64,
}

/// The rounds of the first slow start.
#[derive(Debug, Clone, Copy, Default)]
struct HyStart {
    largest_sent: u64,
    /// The round ends when this packet is acknowledged.
    end: u64,
    last: Option<Duration>,
    current: Option<Duration>,
    samples: u32,
    /// Conservative slow start: the shortest round trip at its beginning, and the rounds since.
    conservative: Option<(Duration, u32)>,
}

impl Cubic {
    /// Slow start with datagrams of this size.
    pub(crate) fn new(datagram: u16) -> Self {
        Self {
            datagram: f64::from(datagram),
            window: initial_window(u64::from(datagram)) as f64,
            threshold: f64::INFINITY,
            hystart: Some(HyStart::default()),
            epoch: None,
            window_maximum: 0.0,
            window_prior: 0.0,
            recovering_since: None,
            undo: None,
        }
    }

    /// Largest number of bytes in flight.
    pub(crate) fn window(&self) -> u64 {
        self.window as u64
    }

    /// The threshold of slow start, once there is one.
    pub(crate) fn threshold(&self) -> Option<u64> {
        self.threshold.is_finite().then_some(self.threshold as u64)
    }

    /// Datagrams have another size now.
    pub(crate) fn set_datagram(&mut self, datagram: u16) {
        self.datagram = f64::from(datagram);
        self.window = self.window.max(self.minimum());
    }

    /// A packet was sent.
    pub(crate) fn on_sent(&mut self, number: u64) {
        if let Some(hystart) = &mut self.hystart {
            hystart.largest_sent = hystart.largest_sent.max(number);
        }
    }

    /// A packet is acknowledged. `limited`: the application, not the window, limits the sending
    /// rate.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        number: u64,
        round_trip: Duration,
        limited: bool,
    ) {
        if limited || self.recovering_since.is_some_and(|since| sent <= since) {
            return;
        }
        let bytes = bytes as f64;
        if self.window < self.threshold {
            let sample = now.saturating_duration_since(sent);
            let growth =
                self.hystart.as_mut().map_or(1.0, |hystart| hystart.on_ack(number, sample));
            self.window += bytes * growth;
            if growth == 0.0 {
                self.threshold = self.window;
                self.hystart = None;
            }
        } else {
            self.avoid_congestion(now, bytes, round_trip);
        }
    }

    fn avoid_congestion(&mut self, now: Instant, bytes: f64, round_trip: Duration) {
        let window = self.window;
        let top = self.window_maximum.max(window);
        let k = ((top - window) / self.datagram / C_CUBIC).cbrt();
        let epoch = self.epoch.get_or_insert(Epoch { begun: now, top, k, reno: window });
        let alpha = if epoch.reno >= self.window_prior { 1.0 } else { ALPHA };
        epoch.reno += alpha * self.datagram * bytes / window;
        let seconds = now.saturating_duration_since(epoch.begun) + round_trip;
        let cubic = C_CUBIC * (seconds.as_secs_f64() - epoch.k).powi(3) * self.datagram + epoch.top;
        if cubic < epoch.reno {
            self.window = window.max(epoch.reno);
        } else {
            let target = cubic.clamp(window, 1.5 * window);
            self.window += (target - window) * bytes / window;
        }
    }

    /// Packets are lost, or marked; the newest of them was sent at `sent`.
    pub(crate) fn on_congestion(&mut self, now: Instant, sent: Instant, persistent: bool) {
        if self.recovering_since.is_some_and(|since| sent <= since) && !persistent {
            return;
        }
        self.undo = None;
        self.undo = (!persistent).then(|| Box::new(self.clone()));
        self.hystart = None;
        self.recovering_since = Some(now);
        self.window_prior = self.window;
        // Fast convergence: a flow that has less than before makes room for others.
        self.window_maximum = if self.window < self.window_maximum {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.window = (self.window * BETA).max(self.minimum());
        self.threshold = self.window;
        self.epoch = None;
        if persistent {
            self.window = self.minimum();
            self.recovering_since = None;
        }
    }

    /// All packets of the last congestion event have arrived after all.
    pub(crate) fn on_spurious_congestion(&mut self) {
        if let Some(before) = self.undo.take()
            && before.window > self.window
        {
            *self = *before;
        }
    }

    fn minimum(&self) -> f64 {
        2.0 * self.datagram
    }
}

impl HyStart {
    /// Bytes by which the window grows for each acknowledged one; 0: slow start ends.
    fn on_ack(&mut self, number: u64, sample: Duration) -> f64 {
        self.current = Some(self.current.map_or(sample, |current| current.min(sample)));
        self.samples += 1;
        let known = self.current.filter(|_| self.samples >= FEWEST_SAMPLES);
        match (self.conservative, known, self.last) {
            (None, Some(current), Some(last))
                if current
                    >= last + (last / LONGER_DIVISOR).clamp(LONGER_BOUNDS[0], LONGER_BOUNDS[1]) =>
            {
                self.conservative = Some((current, 0));
            }
            // It was no queue.
            (Some((baseline, _)), Some(current), _) if current < baseline => {
                self.conservative = None
            }
            _ => {}
        }
        if number >= self.end {
            self.end = self.largest_sent + 1;
            (self.last, self.current, self.samples) = (self.current, None, 0);
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
                if *rounds >= CONSERVATIVE_ROUNDS {
                    return 0.0;
                }
            }
        }
        if self.conservative.is_some() { 1.0 / CONSERVATIVE_DIVISOR } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: u64 = 1200;

    /// A sender whose whole window is acknowledged after each round trip.
    struct Rounds {
        cubic: Cubic,
        now: Instant,
        number: u64,
    }

    impl Rounds {
        fn new() -> Self {
            Self { cubic: Cubic::new(DATAGRAM as u16), now: Instant::now(), number: 0 }
        }

        fn round(&mut self, round_trip: Duration) {
            let (sent, count) = (self.now, self.cubic.window() / DATAGRAM);
            let first = self.number;
            self.number += count;
            (first..self.number).for_each(|number| self.cubic.on_sent(number));
            self.now += round_trip;
            for number in first..self.number {
                self.cubic.on_ack(self.now, sent, DATAGRAM, number, round_trip, false);
            }
        }

        fn lose(&mut self) {
            self.cubic.on_congestion(self.now, self.now, false);
        }
    }

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_millis(60);

    #[test]
    fn longer_round_trips_slow_slow_start_and_end_it_in_five_rounds() {
        let mut rounds = Rounds::new();
        let begun = rounds.cubic.window();
        for _ in 0..3 {
            rounds.round(SHORT);
        }
        assert_eq!(rounds.cubic.window(), 8 * begun, "it doubles");
        let mut windows = vec![];
        for _ in 0..7 {
            rounds.round(LONG);
            windows.push(rounds.cubic.window() as f64);
        }
        assert!(windows[2] / windows[1] > 1.2 && windows[2] / windows[1] < 1.3, "{windows:?}");
        assert!(rounds.cubic.threshold().is_some(), "{windows:?}");
        assert!(windows[6] / windows[5] < 1.1, "congestion avoidance: {windows:?}");
    }

    #[test]
    fn a_round_trip_that_was_long_by_chance_ends_nothing() {
        let mut rounds = Rounds::new();
        rounds.round(SHORT);
        rounds.round(SHORT);
        rounds.round(LONG);
        let before = rounds.cubic.window();
        rounds.round(SHORT);
        rounds.round(SHORT);
        assert!(rounds.cubic.window() > 2 * before);
        assert_eq!(rounds.cubic.threshold(), None);
    }

    #[test]
    fn after_a_loss_the_window_is_back_after_k_seconds() {
        let mut rounds = Rounds::new();
        for _ in 0..4 {
            rounds.round(SHORT);
        }
        let before = rounds.cubic.window() as f64;
        rounds.lose();
        let after = rounds.cubic.window() as f64;
        assert!((after / before - BETA).abs() < 0.01);
        let begun = rounds.now;
        while (rounds.cubic.window() as f64) < before {
            rounds.round(SHORT);
        }
        let seconds = (rounds.now - begun).as_secs_f64();
        let k = (before / DATAGRAM as f64 * (1.0 - BETA) / C_CUBIC).cbrt();
        assert!(seconds > 0.5 * k && seconds < 1.2 * k, "{seconds} s, K is {k} s");
    }

    #[test]
    fn losses_of_a_round_trip_are_one_event_undone_if_spurious() {
        let mut rounds = Rounds::new();
        rounds.round(SHORT);
        let (before, sent) = (rounds.cubic.window(), rounds.now);
        rounds.now += SHORT;
        rounds.cubic.on_congestion(rounds.now, sent, false);
        let reduced = rounds.cubic.window();
        rounds.cubic.on_congestion(rounds.now, sent, false);
        assert_eq!(rounds.cubic.window(), reduced);
        rounds.cubic.on_spurious_congestion();
        assert_eq!(rounds.cubic.window(), before);
    }
}
