//! The rate of repair symbols: pure functions of measurements, and controllers that keep the state
//! of such a function.
//!
//! | rule | symbols |
//! |---|---|
//! | [`symbols_per_datagram`] | from loss, burst length, round trip and pace: the project's own |
//! | [`AdaptiveCodeRate`] | from the loss that coding leaves (rQUIC23, section 3.4.2, algorithm 1) |
//! | [`Generations`] | a fixed number per generation, overlapping or not (rQUIC23, section 3.1) |
//!
//! A symbol here is one for whole datagrams: a pair of [`crate::Repair`]s, one per half.
//! [`Schedule`] turns a rate into halves that are due.

mod adaptive;
mod generations;
mod schedule;

use core::time::Duration;

pub use adaptive::AdaptiveCodeRate;
pub use generations::Generations;
pub use schedule::Schedule;

/// Loss below which coding is off: the remaining gain is smaller than the cost of the symbols.
pub const LEAST_LOSS: f64 = 0.001;
/// Fewest symbols in the time in which a repair round trip would do the same.
pub const SYMBOLS_PER_ROUND_TRIP: f64 = 2.0;
/// Standard deviations of the losses in a window that its symbols recover, beyond the mean.
pub const COVERED_DEVIATIONS: f64 = 4.0;
/// Share of the lost bytes that symbols may take up to [`LOW_LOSS`], plus [`LOW_LOSS_SHARE`] of all
/// bytes.
pub const LOW_LOSS_FACTOR: f64 = 1.3;
/// See [`LOW_LOSS_FACTOR`].
pub const LOW_LOSS_SHARE: f64 = 0.05;
/// Share of all bytes that [`SYMBOLS_PER_ROUND_TRIP`] may take instead: a slow flow whose loss
/// requires fewer symbols is not coded.
const SLOW_FLOW_SHARE: f64 = 0.02;
/// The loss from which bytes count less than delay.
pub const LOW_LOSS: f64 = 0.02;
/// Growth of the symbols' share with the loss beyond [`LOW_LOSS`].
const BEYOND_LOW_LOSS: f64 = 4.0;

/// A flow and its last mile, as measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LastMile {
    /// Share of datagrams that the medium loses, 0 to 1; losses in a queue are excluded.
    pub loss: f64,
    /// Mean length of a burst of losses, in datagrams, at least 1.
    pub burst: f64,
    /// Round trip of the last mile: the time that a repair takes when it is asked for.
    pub round_trip: Duration,
    /// Time from one datagram to the next, at the flow's pace.
    pub interval: Duration,
    /// The time within which a datagram of a live stream is of use.
    pub live_window: Option<Duration>,
    /// Datagrams that a symbol covers.
    pub window: u8,
    /// Symbols per datagram at most: the budget's share.
    pub maximum: f64,
}

/// Symbols per datagram; zero if coding does not pay:
///
/// - without loss ([`LEAST_LOSS`]);
/// - if a repair round trip is short against the flow's pace: the next symbols would come no
///   earlier than the repair. A live stream that has no time for two round trips codes
///   nevertheless.
///
/// Otherwise enough to recover the losses of a window plus [`COVERED_DEVIATIONS`] standard deviations,
/// including the loss of symbols. At low loss fewer, because the plain repair handles the rest:
/// [`LOW_LOSS_FACTOR`] times the loss and [`LOW_LOSS_SHARE`].
pub fn symbols_per_datagram(path: &LastMile) -> f64 {
    let loss = path.loss.clamp(0.0, 0.9);
    if loss < LEAST_LOSS || path.window == 0 || path.maximum <= 0.0 {
        return 0.0;
    }
    let interval = path.interval.as_secs_f64().max(1e-9);
    let datagrams_in = |time: Duration| time.as_secs_f64() / interval;
    // Datagrams of a live stream's window that a symbol still helps.
    let live = path.live_window.filter(|window| *window < path.round_trip * 2).map(datagrams_in);
    let in_time = live.unwrap_or_else(|| datagrams_in(path.round_trip));
    if in_time < 1.0 {
        return 0.0;
    }
    let window = f64::from(path.window).min(if live.is_some() { in_time } else { f64::MAX });
    let lost = loss * window;
    // Losses in bursts of geometric length vary as much more.
    let variance = lost * (1.0 - loss) * (2.0 * path.burst.max(1.0) - 1.0);
    let needed = (lost + COVERED_DEVIATIONS * square_root(variance)) / (window * (1.0 - loss));
    let often_enough = SYMBOLS_PER_ROUND_TRIP / in_time;
    if live.is_some() {
        return needed.max(often_enough).min(path.maximum);
    }
    let most = |share: f64| {
        let beyond = (loss - LOW_LOSS).max(0.0);
        (LOW_LOSS_FACTOR * loss + share + BEYOND_LOW_LOSS * beyond).min(path.maximum)
    };
    if often_enough > most(SLOW_FLOW_SHARE) {
        return 0.0;
    }
    needed.max(often_enough).min(most(LOW_LOSS_SHARE))
}

/// The square root, without the standard library: Newton's iteration.
fn square_root(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let mut root = value.max(1.0);
    for _ in 0..64 {
        let next = 0.5 * (root + value / root);
        if next >= root {
            break;
        }
        root = next;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A download of `rate` bit/s in datagrams of 1452 bytes over a last mile.
    fn download(rate: f64, round_trip: u64, loss: f64) -> LastMile {
        LastMile {
            loss,
            burst: 1.0,
            round_trip: Duration::from_millis(round_trip),
            interval: Duration::from_secs_f64(1452.0 * 8.0 / rate),
            live_window: None,
            window: 128,
            maximum: 0.5,
        }
    }

    #[test]
    fn nothing_is_coded_where_it_does_not_pay() {
        assert_eq!(symbols_per_datagram(&download(20e6, 200, 0.0)), 0.0);
        assert_eq!(symbols_per_datagram(&download(20e6, 200, 0.0009)), 0.0);
        // Round trips of 4 and 200 ms: 7 and 344 datagrams.
        assert_eq!(symbols_per_datagram(&download(20e6, 4, 0.04)), 0.0);
        assert!(symbols_per_datagram(&download(20e6, 200, 0.04)) > 0.04);
        let none = LastMile { maximum: 0.0, ..download(20e6, 200, 0.04) };
        assert_eq!(symbols_per_datagram(&none), 0.0);
        // 43 and 52 datagrams in a round trip: two symbols are 4 % and more.
        for (rate, round_trip) in [(25e6, 20), (10e6, 60)] {
            for loss in [0.001, 0.005] {
                assert_eq!(symbols_per_datagram(&download(rate, round_trip, loss)), 0.0);
            }
            assert!(symbols_per_datagram(&download(rate, round_trip, 0.03)) > 0.03);
        }
        let slow = LastMile { interval: Duration::from_secs(1), ..none };
        assert_eq!(symbols_per_datagram(&LastMile { maximum: 1.0, ..slow }), 0.0);
    }

    /// In a model of a satellite path, 10 % loss took 0.21 symbols per datagram, and anything below
    /// `p / (1 - p) + 0.06` did not help.
    #[test]
    fn it_is_enough_where_much_is_lost_and_cheap_where_little_is() {
        let long = symbols_per_datagram(&download(20e6, 200, 0.1));
        assert!((0.21..0.24).contains(&long), "{long}");
        for (loss, most) in [(0.001, 0.013), (0.005, 0.031), (0.02, 0.072)] {
            let symbols = symbols_per_datagram(&download(50e6, 80, loss));
            assert!((loss..=most + 1e-9).contains(&symbols), "{loss}: {symbols}");
        }
    }

    #[test]
    fn a_live_stream_codes_when_a_repair_would_be_too_late() {
        let audio = LastMile {
            interval: Duration::from_millis(20),
            live_window: Some(Duration::from_millis(200)),
            maximum: 0.25,
            ..download(1.0, 60, 0.1)
        };
        assert_eq!(symbols_per_datagram(&audio), 0.0, "time enough for two repairs");
        let late = LastMile { live_window: Some(Duration::from_millis(100)), ..audio };
        assert_eq!(symbols_per_datagram(&late), 0.25);
    }

    proptest! {
        #[test]
        fn any_input_gives_a_rate_within_the_maximum(
            loss in prop_oneof![-1.0..2.0, Just(f64::NAN)], burst in 0.0..100.0, round_trip in 0u64..10_000,
            interval in 0u64..1_000_000, live in prop::option::of(0u64..1000), window: u8, maximum in -1.0..2.0,
        ) {
            let symbols = symbols_per_datagram(&LastMile {
                loss, burst, round_trip: Duration::from_millis(round_trip), interval: Duration::from_micros(interval),
                live_window: live.map(Duration::from_millis), window, maximum,
            });
            prop_assert!(symbols >= 0.0 && symbols <= maximum.max(0.0));
        }

        #[test]
        fn more_loss_and_longer_bursts_never_mean_fewer_symbols(
            loss in 0.001..0.3, more in 0.0..0.2, burst in 1.0..10.0,
        ) {
            let path = LastMile { burst, ..download(20e6, 300, loss) };
            let symbols = symbols_per_datagram(&path);
            let of = |path| symbols_per_datagram(&path) + 1e-12;
            let (worse, longer) =
                (LastMile { loss: loss + more, ..path }, LastMile { burst: burst + 1.0, ..path });
            prop_assert!(of(worse) >= symbols, "{:?}", worse);
            prop_assert!(of(longer) >= symbols, "{:?}", longer);
        }

        #[test]
        fn the_square_root_is_one(value in 0.0..1e6) {
            let root = square_root(value);
            prop_assert!((root * root - value).abs() <= value * 1e-12 + 1e-12);
        }
    }
}
