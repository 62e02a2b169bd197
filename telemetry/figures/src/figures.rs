//! The computation over two readings.

use crate::response::SQUARE_ROOT_CONSTANT;

/// Values of a route's series at one instant, by their selector
/// (`packrat_eacks_total{result="decoded"}`); 0 for a missing series.
pub trait Reading {
    /// The value of a series.
    fn get(&self, series: &str) -> f64;
}

impl<S: std::hash::BuildHasher> Reading for std::collections::HashMap<String, f64, S> {
    fn get(&self, series: &str) -> f64 {
        Self::get(self, series).copied().unwrap_or_default()
    }
}

impl Reading for std::collections::BTreeMap<String, f64> {
    fn get(&self, series: &str) -> f64 {
        Self::get(self, series).copied().unwrap_or_default()
    }
}

/// Figures of a route between two readings. Ratios are `None` when the denominator is zero.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Client sessions, now.
    pub sessions: f64,
    /// Assisted client sessions, now.
    pub assisted: f64,
    /// Payload of the base connections to clients, in bits per second.
    pub goodput_bits: f64,
    /// Share of the datagrams to assisted clients whose first copy the last mile lost.
    pub loss: Option<f64>,
    /// Share of these losses that a repair hid from the sender.
    pub hidden: Option<f64>,
    /// Retransmissions per second that repairs saved the senders.
    pub saved_retransmissions: f64,
    /// Goodput as a multiple of an unassisted loss-based sender's, by a formula. A comparison with
    /// sessions without assistance ([`crate::comparison`]) takes its place.
    pub goodput_gain: Option<f64>,
    /// Repairs sent per missing datagram.
    pub cache_hits: Option<f64>,
    /// Share of the missing datagrams that were given up because a repair would have been too late.
    pub too_late: Option<f64>,
    /// 100: no sender had to retransmit a datagram to an assisted client.
    pub quality: Option<f64>,
    /// Bytes of repairs per byte forwarded.
    pub overhead: Option<f64>,
    /// Repairs in bits per second.
    pub repair_bits: f64,
    /// Processors that assistance keeps busy: recording datagrams and answering clients.
    pub assistance_cores: f64,
    /// Resets per second.
    pub resets: f64,
    /// Share of the eACKs that failed to decode.
    pub decode_failures: Option<f64>,
    /// Datagrams per second evicted from a full cache before their fate was known.
    pub evictions: f64,
    /// Repairs per second postponed because the budget was exhausted.
    pub budget_refusals: f64,
    /// Bytes cached for repairs, now.
    pub cache_bytes: f64,
    /// Share of the route's cache in use, now.
    pub cache_usage: Option<f64>,
    /// Last-mile round trip in seconds, now.
    pub last_mile_round_trip: Option<f64>,
    /// Far round trip in seconds, with the server's time to answer.
    pub far_round_trip: Option<f64>,
}

impl Figures {
    /// The figures of a route over the `seconds` between two readings. A counter that decreased
    /// (the gateway was restarted) counts from zero.
    pub fn between(before: &impl Reading, after: &impl Reading, seconds: f64) -> Self {
        let seconds = seconds.max(1e-9);
        let rate = |series: &str| {
            let (before, after) = (before.get(series), after.get(series));
            (if after >= before { after - before } else { after }) / seconds
        };
        let ratio = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let known = |series: &str| Some(after.get(series) / 1e6).filter(|value| *value > 0.0);

        let recorded = rate("packrat_datagrams_recorded_total");
        let missing = rate("packrat_datagrams_missing_total");
        let arrived = rate("packrat_repairs_arrived_total");
        let late = rate("packrat_repairs_given_up_total{reason=\"late\"}");
        let loss = ratio(missing, recorded).map(|loss| loss.min(1.0));
        let assisted = after.get("packrat_sessions_assisted");
        let last_mile_round_trip = known("packrat_last_mile_round_trip_microseconds");
        let far_round_trip = known("packrat_far_round_trip_microseconds");
        let goodput_gain = gain(recorded, assisted, loss, last_mile_round_trip, far_round_trip);
        Self {
            sessions: after.get("packrat_sessions"),
            assisted,
            goodput_bits: 8.0 * rate("packrat_to_client_bytes_total"),
            loss,
            hidden: ratio(arrived, missing).map(|hidden| hidden.min(1.0)),
            saved_retransmissions: arrived,
            goodput_gain,
            cache_hits: ratio(rate("packrat_repairs_total"), missing).map(|hits| hits.min(1.0)),
            too_late: ratio(late, missing).map(|late| late.min(1.0)),
            quality: ratio((missing - arrived).max(0.0), recorded)
                .map(|revealed| 100.0 * (1.0 - revealed.min(1.0))),
            overhead: ratio(
                rate("packrat_repair_bytes_total"),
                rate("packrat_to_client_bytes_total"),
            ),
            repair_bits: 8.0 * rate("packrat_repair_bytes_total"),
            assistance_cores: (rate("packrat_assistance_forward_nanoseconds_total")
                + rate("packrat_assistance_control_nanoseconds_total"))
                / 1e9,
            resets: RESETS.map(rate).iter().sum(),
            decode_failures: ratio(
                rate("packrat_eacks_total{result=\"failed\"}"),
                rate("packrat_eacks_received_total"),
            ),
            evictions: rate("packrat_evictions_full_total"),
            budget_refusals: rate("packrat_budget_refusals_total"),
            cache_bytes: after.get("packrat_cache_bytes"),
            cache_usage: ratio(
                after.get("packrat_cache_bytes"),
                after.get("packrat_cache_limit_bytes"),
            ),
            last_mile_round_trip,
            far_round_trip,
        }
    }
}

/// A route's Resets, by side and reason.
const RESETS: [&str; 6] = [
    "packrat_resets_total{side=\"gateway\",reason=\"decode_failed\"}",
    "packrat_resets_total{side=\"gateway\",reason=\"state_lost\"}",
    "packrat_resets_total{side=\"gateway\",reason=\"client_overflow\"}",
    "packrat_resets_total{side=\"client\",reason=\"decode_failed\"}",
    "packrat_resets_total{side=\"client\",reason=\"state_lost\"}",
    "packrat_resets_total{side=\"client\",reason=\"client_overflow\"}",
];

/// Goodput of `assisted` sessions as a multiple of the square-root law's. `recorded`: their datagrams
/// per second.
fn gain(
    recorded: f64,
    assisted: f64,
    loss: Option<f64>,
    last_mile: Option<f64>,
    far: Option<f64>,
) -> Option<f64> {
    let loss = loss.filter(|loss| *loss > 0.0 && assisted > 0.0)?;
    let round_trip = last_mile? + far.unwrap_or_default();
    Some((recorded / assisted * round_trip * loss.sqrt() / SQUARE_ROOT_CONSTANT).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn reading(values: &[(&str, f64)]) -> HashMap<String, f64> {
        values.iter().map(|(series, value)| ((*series).to_owned(), *value)).collect()
    }

    #[test]
    fn a_route_that_repairs_losses_of_the_last_mile() {
        let before = reading(&[("packrat_datagrams_recorded_total", 1000.0)]);
        let after = reading(&[
            ("packrat_datagrams_recorded_total", 21_000.0),
            ("packrat_datagrams_missing_total", 800.0),
            ("packrat_repairs_total", 790.0),
            ("packrat_repairs_arrived_total", 780.0),
            ("packrat_repairs_given_up_total{reason=\"late\"}", 8.0),
            ("packrat_resets_total{side=\"client\",reason=\"state_lost\"}", 1.0),
            ("packrat_sessions_assisted", 1.0),
            ("packrat_last_mile_round_trip_microseconds", 4000.0),
            ("packrat_far_round_trip_microseconds", 60_000.0),
            ("packrat_to_client_bytes_total", 2.5e7),
            ("packrat_repair_bytes_total", 1e6),
            ("packrat_assistance_forward_nanoseconds_total", 3e8),
            ("packrat_assistance_control_nanoseconds_total", 2e8),
        ]);
        let figures = Figures::between(&before, &after, 10.0);
        assert_eq!(figures.loss, Some(0.04));
        assert_eq!(figures.hidden, Some(0.975));
        assert_eq!(figures.cache_hits, Some(790.0 / 800.0));
        assert_eq!(figures.too_late, Some(0.01));
        assert_eq!(figures.saved_retransmissions, 78.0);
        assert!((figures.quality.unwrap() - 99.9).abs() < 1e-9);
        assert_eq!(figures.goodput_bits, 2e7);
        assert_eq!(figures.overhead, Some(0.04));
        assert_eq!((figures.repair_bits, figures.assistance_cores), (8e5, 0.05));
        assert_eq!(figures.resets, 0.1);
        // 2000 datagrams per second instead of the 95 of the square-root law.
        assert!((figures.goodput_gain.unwrap() - 20.98).abs() < 0.01, "{figures:?}");
    }

    #[test]
    fn an_idle_route_claims_nothing_and_a_restart_is_not_negative() {
        let nothing = Figures::between(&reading(&[]), &reading(&[]), 5.0);
        assert_eq!((nothing.loss, nothing.hidden, nothing.quality), (None, None, None));
        assert_eq!((nothing.goodput_gain, nothing.goodput_bits), (None, 0.0));
        let before = reading(&[("packrat_to_client_bytes_total", 1e9)]);
        let after = reading(&[("packrat_to_client_bytes_total", 1e3)]);
        assert_eq!(Figures::between(&before, &after, 1.0).goodput_bits, 8e3);
    }
}
