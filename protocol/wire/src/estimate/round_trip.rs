//! Round trip of a path: the one estimator, and the times that follow from it.

use core::time::Duration;

/// Patience as long as no round trip was measured.
const UNMEASURED_PATIENCE: Duration = Duration::from_millis(250);

/// Smoothed round trip and variation (RFC 6298), and the smallest sample (RFC 9002, section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoundTrip {
    smoothed: Option<Duration>,
    variation: Duration,
    minimum: Option<Duration>,
}

impl RoundTrip {
    /// An estimate without samples.
    pub const fn new() -> Self {
        Self { smoothed: None, variation: Duration::ZERO, minimum: None }
    }

    /// An estimate that stands on an assumption: no variation, and no smaller sample.
    pub const fn assumed(round_trip: Duration) -> Self {
        Self { smoothed: Some(round_trip), variation: Duration::ZERO, minimum: Some(round_trip) }
    }

    /// This estimate, or an assumption as long as there is no sample.
    pub fn or_assumed(self, round_trip: Duration) -> Self {
        if self.smoothed.is_some() { self } else { Self::assumed(round_trip) }
    }

    /// Takes in one sample.
    pub fn on_sample(&mut self, sample: Duration) {
        self.minimum = Some(self.minimum.map_or(sample, |minimum| minimum.min(sample)));
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }

    /// Smoothed round trip, once a sample has come in.
    pub const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Smoothed deviation of the round trip (RTTVAR).
    pub const fn variation(&self) -> Duration {
        self.variation
    }

    /// Smallest sample.
    pub const fn minimum(&self) -> Option<Duration> {
        self.minimum
    }

    /// Patience, the time that a repair is worth waiting for: three round trips with their variation and `margin`
    /// (see [`super::patience_margin`]).
    pub fn patience(&self, margin: Duration) -> Duration {
        self.smoothed
            .map_or(UNMEASURED_PATIENCE, |smoothed| smoothed * 3 + self.variation * 4 + margin)
    }
}

/// A [`RoundTrip`] in twelve bytes, in microseconds: for peers of whom there are thousands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmallRoundTrip {
    /// Zero: no sample.
    smoothed: u32,
    variation: u32,
    minimum: u32,
}

impl SmallRoundTrip {
    /// An estimate without samples.
    pub const fn new() -> Self {
        Self { smoothed: 0, variation: 0, minimum: 0 }
    }

    /// The estimate.
    pub fn get(self) -> RoundTrip {
        let duration = |micros: u32| Duration::from_micros(u64::from(micros));
        if self.smoothed == 0 {
            return RoundTrip::new();
        }
        RoundTrip {
            smoothed: Some(duration(self.smoothed)),
            variation: duration(self.variation),
            minimum: Some(duration(self.minimum)),
        }
    }

    /// Takes in one sample. A sample of less than a microsecond counts as one.
    pub fn on_sample(&mut self, sample: Duration) {
        let mut round_trip = self.get();
        round_trip.on_sample(sample.max(Duration::from_micros(1)));
        let micros = |duration: Duration| u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
        let of =
            |duration: Option<Duration>| duration.map_or(0, |duration| micros(duration).max(1));
        *self = Self {
            smoothed: of(round_trip.smoothed),
            variation: micros(round_trip.variation),
            minimum: of(round_trip.minimum),
        };
    }
}

impl Default for SmallRoundTrip {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_converges_and_keeps_its_minimum() {
        let mut round_trip = RoundTrip::new();
        assert_eq!(round_trip.smoothed(), None);
        round_trip.on_sample(Duration::from_millis(40));
        for _ in 0..100 {
            round_trip.on_sample(Duration::from_millis(4));
        }
        let smoothed = round_trip.smoothed().unwrap();
        assert!(smoothed < Duration::from_micros(4100), "{smoothed:?}");
        assert_eq!(round_trip.minimum(), Some(Duration::from_millis(4)));
    }

    #[test]
    fn an_assumption_holds_until_there_is_a_sample() {
        let assumed = Duration::from_millis(60);
        let mut round_trip = RoundTrip::new();
        assert_eq!(round_trip.or_assumed(assumed), RoundTrip::assumed(assumed));
        round_trip.on_sample(Duration::from_millis(4));
        assert_eq!(round_trip.or_assumed(assumed), round_trip);
    }

    #[test]
    fn twelve_bytes_say_the_same_to_some_microseconds() {
        let (mut large, mut small) = (RoundTrip::new(), SmallRoundTrip::new());
        assert_eq!(small.get(), large);
        for number in 0..1000u64 {
            let sample = Duration::from_micros(20_000 + number * 7919 % 6000);
            large.on_sample(sample);
            small.on_sample(sample);
        }
        let (small, micros) = (small.get(), Duration::from_micros);
        assert!(small.smoothed().unwrap().abs_diff(large.smoothed().unwrap()) <= micros(10));
        assert!(small.variation().abs_diff(large.variation()) <= micros(10));
        assert_eq!(small.minimum(), large.minimum());
        assert_eq!(size_of::<SmallRoundTrip>(), 12);
    }

    #[test]
    fn the_smallest_and_the_largest_samples_fit() {
        let mut small = SmallRoundTrip::new();
        small.on_sample(Duration::ZERO);
        assert_eq!(small.get().smoothed(), Some(Duration::from_micros(1)));
        small.on_sample(Duration::from_secs(100_000));
        assert!(small.get().smoothed().is_some());
    }
}
