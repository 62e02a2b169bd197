//! Live streams: eACKs for holes only, small caches, and a window after which datagrams are
//! useless.

use super::world::{Scenario, WIFI, Weather, run};
use packrat_client::Live;
use std::time::Duration;

const WINDOW: Duration = Duration::from_millis(300);

/// A datagram each 5 ms over the satellite's last mile, to a selective client.
fn satellite(cache_bytes: usize) -> Scenario {
    let weather = Weather { loss: 0.1, ..Weather::calm(Duration::from_millis(30)) };
    Scenario {
        down: weather,
        up: weather,
        datagrams: 4000,
        spacing: Duration::from_millis(5),
        cache_bytes,
        live: Some(Live { selective: true, window: WINDOW, ..Live::default() }),
        ..WIFI
    }
}

#[test]
fn a_selective_client_needs_few_eacks_and_a_small_cache() {
    for seed in 1..=3 {
        // A round trip and its repairs: 25 datagrams of 1200 bytes.
        let outcome = run(&satellite(30_000), seed);
        let gateway = &outcome.gateway;
        assert_eq!(gateway.resets_gateway + gateway.resets_client, 0, "seed {seed}");
        assert!(gateway.eacks_failed * 50 < gateway.eacks_decoded, "seed {seed}");
        assert!(outcome.cache_high_water <= 30_000, "seed {seed}");
        let missing = outcome.forwarded as usize - outcome.delivered.len();
        assert!(
            outcome.lost > 350 && missing < outcome.lost as usize / 8,
            "seed {seed}: {missing}"
        );
        assert!(
            outcome.client.eacks < outcome.forwarded / 2,
            "seed {seed}: {} eACKs",
            outcome.client.eacks
        );
    }
}

#[test]
fn the_smallest_caches_cost_repairs_and_never_a_reset() {
    for cache_bytes in [20_000, 4_000, 1_000] {
        for seed in 1..=3 {
            let outcome = run(&satellite(cache_bytes), seed);
            let gateway = &outcome.gateway;
            assert_eq!(
                gateway.resets_gateway + gateway.resets_client,
                0,
                "{cache_bytes} bytes, seed {seed}"
            );
            assert!(gateway.eacks_decoded > 100, "{cache_bytes} bytes, seed {seed}");
            assert!(
                gateway.eacks_failed * 50 < gateway.eacks_decoded,
                "{cache_bytes} bytes, seed {seed}"
            );
            assert!(
                outcome.cache_high_water <= cache_bytes as u64,
                "{cache_bytes} bytes, seed {seed}"
            );
        }
    }
}

#[test]
fn a_calm_stream_is_not_spoken_of() {
    let calm = Weather::calm(Duration::from_millis(30));
    let outcome = run(&Scenario { down: calm, up: calm, ..satellite(20_000) }, 1);
    assert_eq!(outcome.delivered.len() as u64, outcome.forwarded);
    assert!(outcome.client.eacks < 15, "{} eACKs in 20 s", outcome.client.eacks);
    assert_eq!(
        outcome.gateway.repair_copies + outcome.gateway.repairs + outcome.gateway.tail_probes,
        0
    );
}

#[test]
fn what_would_come_too_late_is_not_repaired() {
    // Half a round trip is over when the gateway learns of a loss, and half of the window with it.
    let window = Duration::from_millis(40);
    let live = Some(Live { selective: true, window, ..Live::default() });
    let outcome = run(&Scenario { live, ..satellite(100_000) }, 2);
    assert_eq!(outcome.gateway.repairs, 0);
    assert!(outcome.gateway.repairs_late > 300, "{}", outcome.gateway.repairs_late);
    assert_eq!(outcome.gateway.resets_gateway, 0);
}
