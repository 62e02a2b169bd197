//! The datagrams that a downloading client sends: fewer than without help, while the download is as
//! fast. Bounds inside the measurements of docs/trials/034-wake-ups.md.
//!
//! Virtual time: results are independent of this machine's speed.

use packrat_emulation::scenario::Scenario;
use packrat_lab::{Arm, Sender, Trial};

/// The seeds on which no constant was chosen.
const SEEDS: std::ops::Range<u64> = 1001..1004;

/// Datagrams and wake-ups of the client, and seconds, of some downloads.
fn sums(path: &str, loss: f64, arm: Arm, sender: Sender) -> (f64, f64, f64) {
    let downloads = SEEDS.map(|seed| {
        let scenario = Scenario::load(path).unwrap().with_loss(loss);
        let result = Trial::new(scenario, arm, sender, seed).run().unwrap();
        assert!(result.download.complete, "{result:?}");
        result
    });
    downloads.fold((0.0, 0.0, 0.0), |(datagrams, wake_ups, seconds), result| {
        (
            datagrams + result.links.last_mile_up[0] as f64,
            wake_ups + result.assistance.client_wake_ups as f64,
            seconds + result.download.seconds,
        )
    })
}

/// Without loss a client sends two thirds of its datagrams, and no datagram waits.
#[test]
fn without_loss_a_client_sends_two_thirds_and_does_not_wait() {
    for path in ["wifi", "ingress_wifi"] {
        for sender in [Sender::S2nCubic, Sender::QuinnNewReno] {
            let (plain, its_wake_ups, its_seconds) = sums(path, 0.0, Arm::EndToEnd, sender);
            let (bundled, wake_ups, seconds) = sums(path, 0.0, Arm::Packrat, sender);
            let all = format!("{path}, {sender:?}: {bundled} of {plain}, {seconds} s");
            assert!(bundled < 0.7 * plain, "{all}");
            assert!(wake_ups < 0.7 * its_wake_ups, "{all}");
            // Numbers take 0.6 % of the bytes.
            assert!(seconds < 1.015 * its_seconds, "{all}");
        }
    }
}

#[test]
fn with_loss_a_repaired_client_sends_fewer_datagrams() {
    let (plain, ..) = sums("cellular", 0.02, Arm::EndToEnd, Sender::S2nCubic);
    let (bundled, ..) = sums("cellular", 0.02, Arm::Packrat, Sender::S2nCubic);
    assert!(bundled < 0.6 * plain, "{bundled} of {plain}");
}
