//! The time to the first byte of an answer, with copies of thin datagrams and without them: bounds
//! inside the measurements of docs/trials/010-thin-datagrams.md.
//!
//! Virtual time: results are independent of this machine's speed.

use packrat_emulation::scenario::Scenario;
use packrat_lab::first_byte::{Way, first_bytes};
use packrat_lab::{Sender, TrialResult};

/// The seeds on which no constant was chosen.
const SEEDS: std::ops::Range<u64> = 1001..1101;

fn connections(path: &str, loss: f64, way: Way, seeds: std::ops::Range<u64>) -> Vec<TrialResult> {
    let scenario = Scenario::load(path).unwrap().with_loss(loss);
    seeds.map(|seed| way.trial(&scenario, Sender::S2nCubic, seed).run().unwrap()).collect()
}

/// The mean beyond a time, milliseconds: the worst tenth without the worst of all, which 100 seeds do
/// not measure.
fn slow(results: &[TrialResult]) -> f64 {
    let times = first_bytes(results);
    let tenth = &times[times.len() * 9 / 10..times.len() - 1];
    tenth.iter().sum::<f64>() / tenth.len() as f64
}

#[test]
fn slow_connections_cost_two_round_trips_on_a_known_last_mile() {
    for path in ["cellular", "ingress_lte"] {
        let round_trip = 2.0 * Scenario::load(path).unwrap().last_mile.delay_ms as f64;
        let of = |loss, way| slow(&connections(path, loss, way, SEEDS));
        let lossless = of(0.0, Way::Lossless);
        let (without, known) = (of(0.1, Way::WithoutCopies), of(0.1, Way::Known));
        assert!(known < lossless + 2.0 * round_trip, "{path}: {known}, lossless {lossless}");
        assert!(without > lossless + 8.0 * round_trip, "{path}: {without}, lossless {lossless}");
    }
}

#[test]
fn a_lost_first_flight_costs_a_round_trip_even_at_first() {
    let of = |way| slow(&connections("ingress_lte", 0.1, way, SEEDS));
    let (without, first) = (of(Way::WithoutCopies), of(Way::First));
    assert!(first < 0.7 * without, "{first} beside {without}");
}

#[test]
fn without_loss_only_a_first_connection_costs_extra_datagrams() {
    for path in ["wifi", "cellular", "ingress_wifi", "ingress_lte"] {
        let of = |way| connections(path, 0.0, way, 1001..1003);
        for (known, without) in of(Way::Known).iter().zip(of(Way::WithoutCopies)) {
            assert_eq!(known.links, without.links, "{path}");
        }
        for (first, without) in of(Way::First).iter().zip(of(Way::WithoutCopies)) {
            let (links, plain) = (first.links, without.links);
            // A copy may be in front of the acknowledgement by which the next datagram leaves.
            let first_bytes = first.download.first_byte.zip(without.download.first_byte);
            let apart = first_bytes.map(|(first, without)| (first - without).abs());
            assert!(apart.is_some_and(|apart| apart < 0.000_5), "{path}: {first_bytes:?}");
            let [datagrams, bytes] =
                [0, 1].map(|of| links.last_mile_up[of].abs_diff(plain.last_mile_up[of]));
            assert!((1..=4).contains(&datagrams) && bytes <= 2000, "{path}: {links:?}, {plain:?}");
        }
    }
}
