//! CETEN's answers to loss (CETEN04, section 3): NewReno that knows the share of packets corrupted
//! by the path.
//!
//! ```text
//!   e: corrupted, as the path says      p: lost, as the sender counts      e / p: the share of losses that is no congestion
//!
//!   CETEN_P   halves the window with probability 1 - e / p, otherwise leaves it as it is
//!   CETEN_A   multiplies it by (1 + e / p) / 2
//! ```

use super::initial_window::initial_window;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::time::Instant;

/// The answer to a loss event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// CETEN<sub>P</sub>: halves the window or leaves it as it is.
    Probabilistic,
    /// CETEN<sub>A</sub>: as much as the share of congestion demands, with `n` and `k` of 1.
    Adaptive,
}

/// The window of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Ceten {
    answer: Answer,
    /// The corrupted share `e`, 0 to 1.
    corrupted: f64,
    /// Bytes since the connection began: `p` is a long-term average, as in LEAST.
    sent: u64,
    lost: u64,
    random: ChaCha8Rng,
    /// Bytes of a datagram, and of the window.
    datagram: u64,
    window: u64,
    threshold: u64,
    acknowledged: u64,
    /// Packets sent until then have met the last loss event.
    recovering_since: Instant,
}

impl Ceten {
    /// Slow start with datagrams of this size, on a path that corrupts this share of them.
    pub(crate) fn new(
        answer: Answer,
        corrupted: f64,
        random: ChaCha8Rng,
        now: Instant,
        datagram: u16,
    ) -> Self {
        let datagram = u64::from(datagram);
        Self {
            answer,
            corrupted,
            sent: 0,
            lost: 0,
            random,
            datagram,
            window: initial_window(datagram),
            threshold: u64::MAX,
            acknowledged: 0,
            recovering_since: now,
        }
    }

    /// Largest number of bytes in flight.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// The threshold of slow start.
    pub(crate) fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Datagrams have another size now.
    pub(crate) fn set_datagram(&mut self, datagram: u16) {
        self.datagram = u64::from(datagram);
        self.window = self.window.max(self.minimum());
    }

    fn minimum(&self) -> u64 {
        2 * self.datagram
    }

    /// Packets were sent.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// Packets are acknowledged. `limited`: the application, not the window, limits the sending
    /// rate.
    pub(crate) fn on_ack(&mut self, sent: Instant, bytes: u64, limited: bool) {
        if limited || sent <= self.recovering_since {
            return;
        }
        if self.window < self.threshold {
            self.window += bytes;
            return;
        }
        self.acknowledged += bytes;
        if self.acknowledged >= self.window {
            self.acknowledged -= self.window;
            self.window += self.datagram;
        }
    }

    /// Packets are lost, the newest of which was sent at `sent`. `persistent`: no packet has
    /// arrived for a while (RFC 9002, section 7.6).
    pub(crate) fn on_loss(&mut self, now: Instant, sent: Instant, persistent: bool, bytes: u64) {
        self.lost += bytes;
        if sent <= self.recovering_since {
            return;
        }
        self.recovering_since = now;
        let kept = self.kept();
        if kept < 1.0 {
            self.window = ((self.window as f64 * kept) as u64).max(self.minimum());
            self.threshold = self.window;
        }
        if persistent {
            self.window = self.minimum();
        }
    }

    /// The share of the window that is left.
    fn kept(&mut self) -> f64 {
        let lost = self.lost as f64 / self.sent.max(1) as f64;
        let corruption = if lost > 0.0 { (self.corrupted / lost).min(1.0) } else { 0.0 };
        match self.answer {
            Answer::Adaptive => f64::midpoint(1.0, corruption),
            Answer::Probabilistic if self.random.random::<f64>() < corruption => 1.0,
            Answer::Probabilistic => 0.5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::time::Duration;

    fn ceten(answer: Answer, corrupted: f64) -> (Ceten, Instant) {
        let now = Instant::now();
        let mut ceten = Ceten::new(answer, corrupted, ChaCha8Rng::seed_from_u64(1), now, 1200);
        (ceten.window, ceten.threshold) = (1_000_000, 1_000_000);
        ceten.sent = 100_000_000;
        (ceten, now)
    }

    /// The window after a loss event that makes `lost` of a hundred lost in all.
    fn after(answer: Answer, corrupted: f64, lost: u64) -> u64 {
        let (mut ceten, now) = ceten(answer, corrupted);
        ceten.on_loss(
            now + Duration::from_secs(2),
            now + Duration::from_secs(1),
            false,
            lost * 1_000_000,
        );
        ceten.window()
    }

    #[test]
    fn the_adaptive_answer_is_that_of_equation_1() {
        // e / p of 0, a quarter, a half and 1; more is corrupted than lost, by chance.
        for (corrupted, window) in
            [(0.0, 500_000), (0.01, 625_000), (0.02, 750_000), (0.04, 1_000_000), (0.05, 1_000_000)]
        {
            assert_eq!(after(Answer::Adaptive, corrupted, 4), window, "{corrupted}");
        }
    }

    #[test]
    fn the_probabilistic_answer_halves_the_window_per_congestion() {
        let (mut ceten, now) = ceten(Answer::Probabilistic, 0.03);
        ceten.lost = 4_000_000;
        let halved = (1..=4000)
            .filter(|event| {
                ceten.window = 1_000_000;
                let at = now + Duration::from_secs(2 * event);
                ceten.on_loss(at + Duration::from_secs(1), at, false, 0);
                ceten.window == 500_000
            })
            .count();
        // Congestion causes a quarter of the losses.
        assert!((900..1100).contains(&halved), "{halved}");
        assert_eq!(after(Answer::Probabilistic, 0.0, 4), 500_000);
        assert_eq!(after(Answer::Probabilistic, 0.04, 4), 1_000_000);
    }

    /// There is one answer in a round trip, and persistent congestion resets the window.
    #[test]
    fn one_answer_per_round_trip_and_persistent_congestion_resets() {
        let (mut ceten, now) = ceten(Answer::Adaptive, 0.0);
        let [sent, seen] = [1, 2].map(|seconds| now + Duration::from_secs(seconds));
        ceten.on_loss(seen, sent, false, 1200);
        ceten.on_loss(seen + Duration::from_millis(1), sent, false, 1200);
        assert_eq!((ceten.window(), ceten.lost), (500_000, 2400));
        ceten.on_loss(seen + Duration::from_secs(2), seen + Duration::from_secs(1), true, 1200);
        assert_eq!(ceten.window(), 2400);
    }

    #[test]
    fn the_window_grows_by_a_datagram_in_a_round_trip() {
        let (mut ceten, now) = ceten(Answer::Adaptive, 0.0);
        let sent = now + Duration::from_secs(1);
        for _ in 0..1000 {
            ceten.on_ack(sent, 1000, false);
        }
        assert_eq!(ceten.window(), 1_001_200);
    }
}
