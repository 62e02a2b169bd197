//! A listener's gain, with bounds well inside the measurements
//! (docs/trials/059-live-one-receiver.md).

use std::time::Duration;

use packrat_emulation::scenario::Scenario;
use packrat_lab::live::{Arm, MediaResult, MediaTrial, Stream};

fn run(
    scenario: &str,
    stream: Stream,
    arm: Arm,
    seed: u64,
    change: impl Fn(&mut MediaTrial),
) -> MediaResult {
    let scenario = Scenario::load(scenario).expect("a scenario that comes along");
    let mut trial = MediaTrial::new(scenario, stream, arm, seed);
    trial.duration = Duration::from_secs(60);
    change(&mut trial);
    trial.run()
}

#[test]
fn satellite_audio_is_on_time_with_a_gateway_and_stalls_without() {
    for seed in 1..=3 {
        let alone = run("satellite", Stream::Audio, Arm::EndToEnd, seed, |_| {});
        let assisted = run("satellite", Stream::Audio, Arm::Packrat, seed, |_| {});
        let least = alone.latency(0.0);
        assert!(
            (120.0..121.0).contains(&least),
            "seed {seed}: {least}; 40 ms of audio, 80 ms of travel"
        );
        assert!(assisted.latency(0.99) <= 130.0, "seed {seed}: {:?}", assisted.latency_ms);
        assert!(assisted.latency(0.999) <= 190.0, "seed {seed}: {:?}", assisted.latency_ms);
        assert!(alone.latency(0.999) > 250.0, "seed {seed}: {:?}", alone.latency_ms);
        assert!(
            assisted.stalled_ms <= alone.stalled_ms * 0.1,
            "seed {seed}: {} ms",
            assisted.stalled_ms
        );
        assert!(assisted.client_share <= 0.05, "seed {seed}: {}", assisted.client_share);
        assert_eq!((assisted.resets, assisted.spurious), (0, 0), "seed {seed}");
        assert!(assisted.cache_max <= 20_000, "seed {seed}");
    }
}

#[test]
fn a_sender_is_not_asked_for_what_the_gateway_repairs() {
    let asks = |arm| run("satellite", Stream::Video, arm, 1, |_| {});
    let (naive, held) = (asks(Arm::RepairOnly), asks(Arm::Packrat));
    assert!(naive.spurious > 1000, "{}", naive.spurious);
    assert!(held.spurious * 50 <= naive.spurious, "{} and {}", held.spurious, naive.spurious);
    assert!(held.skipped <= naive.skipped);
}

#[test]
fn eacks_for_holes_only_are_fewer_and_help_as_well() {
    let (selective, every) = (
        run("satellite", Stream::Audio, Arm::NoEarlyCopies, 2, |_| {}),
        run("satellite", Stream::Audio, Arm::EveryEack, 2, |trial| {
            trial.gateway.early_copies = 0.0
        }),
    );
    assert!(selective.client.packets * 3 < every.client.packets * 2);
    assert!(selective.stalled_ms <= every.stalled_ms * 1.5);
}

#[test]
fn a_cache_of_four_kilobytes_is_small_and_no_reason_for_a_reset() {
    let result = run("satellite", Stream::Audio, Arm::Packrat, 3, |trial| {
        trial.gateway.cache_bytes_per_flow = 4_000
    });
    assert_eq!(result.resets, 0);
    assert!(result.repaired > 50 && result.cache_max <= 4_000, "{result:?}");
}

#[test]
fn the_same_seed_is_the_same_trial() {
    let again = || run("cellular", Stream::Video, Arm::Packrat, 4, |_| {});
    assert_eq!(again(), again());
}
