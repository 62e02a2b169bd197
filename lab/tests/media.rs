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
        let least = alone.experience.latency(0.0);
        assert!(
            (120.0..121.0).contains(&least),
            "seed {seed}: {least}; 40 ms of audio, 80 ms of travel"
        );
        assert!(
            assisted.experience.latency(0.99) <= 130.0,
            "seed {seed}: {:?}",
            assisted.experience.latency_ms
        );
        assert!(
            assisted.experience.latency(0.999) <= 190.0,
            "seed {seed}: {:?}",
            assisted.experience.latency_ms
        );
        assert!(
            alone.experience.latency(0.999) > 250.0,
            "seed {seed}: {:?}",
            alone.experience.latency_ms
        );
        assert!(
            assisted.experience.stalled_ms <= alone.experience.stalled_ms * 0.1,
            "seed {seed}: {} ms",
            assisted.experience.stalled_ms
        );
        assert!(assisted.client_share <= 0.05, "seed {seed}: {}", assisted.client_share);
        assert_eq!((assisted.gateway.resets, assisted.spurious), (0, 0), "seed {seed}");
        assert!(assisted.gateway.cache_max <= 20_000, "seed {seed}");
    }
}

#[test]
fn a_sender_is_not_asked_for_what_the_gateway_repairs() {
    let asks = |arm| run("satellite", Stream::Video, arm, 1, |_| {});
    let (naive, held) = (asks(Arm::RepairOnly), asks(Arm::Packrat));
    assert!(naive.spurious > 1000, "{}", naive.spurious);
    assert!(held.spurious * 50 <= naive.spurious, "{} and {}", held.spurious, naive.spurious);
    assert!(held.experience.skipped <= naive.experience.skipped);
}

#[test]
fn eacks_for_holes_only_are_fewer_and_help_as_well() {
    let (selective, every) = (
        run("satellite", Stream::Audio, Arm::NoEarlyCopies, 2, |_| {}),
        run("satellite", Stream::Audio, Arm::EveryEack, 2, |trial| {
            trial.gateway.early_copies = 0.0
        }),
    );
    assert!(selective.traffic.client.packets * 3 < every.traffic.client.packets * 2);
    assert!(selective.experience.stalled_ms <= every.experience.stalled_ms * 1.5);
}

#[test]
fn a_cache_of_four_kilobytes_is_small_and_no_reason_for_a_reset() {
    let result = run("satellite", Stream::Audio, Arm::Packrat, 3, |trial| {
        trial.gateway.cache_bytes_per_flow = 4_000
    });
    assert_eq!(result.gateway.resets, 0);
    assert!(result.gateway.repaired > 50 && result.gateway.cache_max <= 4_000, "{result:?}");
}

#[test]
fn the_same_seed_is_the_same_trial() {
    let again = || run("cellular", Stream::Video, Arm::Packrat, 4, |_| {});
    assert_eq!(again(), again());
}
