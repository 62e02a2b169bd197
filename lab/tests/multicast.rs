//! The gain of a server whose stream has many receivers, with bounds well inside the measurements
//! (docs/trials/061-live-many-receivers.md).

use std::time::Duration;

use packrat_emulation::scenario::Scenario;
use packrat_lab::live::{MulticastArm, MulticastResult, MulticastTrial};

fn run(arm: MulticastArm, receivers: usize, rate: u64, seconds: u64) -> MulticastResult {
    let scenario = Scenario::load("cellular").expect("a scenario that comes along");
    let mut trial = MulticastTrial::new(scenario, arm, 1);
    (trial.receivers, trial.rate, trial.duration) = (receivers, rate, Duration::from_secs(seconds));
    trial.run()
}

#[test]
fn sixteen_receivers_hardly_ask_the_server() {
    let alone = run(MulticastArm::EndToEnd, 16, 400, 5);
    let assisted = run(MulticastArm::Packrat, 16, 400, 5);
    assert!(alone.requests_per_second > 30.0, "{alone:?}");
    assert!(assisted.requests_per_second * 100.0 <= alone.requests_per_second, "{assisted:?}");
    assert_eq!((assisted.cost.resets, assisted.dropped), (0, 0), "{assisted:?}");
    assert!(assisted.cost.cache_max <= 64 * 1024);
    // Datagrams under repair take room beyond that.
    assert!(assisted.cost.state_mean <= 256.0 + 16.0 * 40.0, "{assisted:?}");
}

#[test]
fn the_servers_work_does_not_grow_with_its_receivers() {
    let few = run(MulticastArm::Packrat, 20, 100, 4);
    let many = run(MulticastArm::Packrat, 150, 100, 4);
    let alone = run(MulticastArm::EndToEnd, 150, 100, 4);
    assert!(alone.retransmissions_per_second > 1000.0, "{alone:?}");
    assert!(many.retransmissions_per_second <= alone.retransmissions_per_second / 50.0, "{many:?}");
    assert!(few.cost.resets == 0 && many.cost.resets == 0);
}

#[test]
fn repairs_for_all_are_fewer() {
    let each = run(MulticastArm::Packrat, 60, 200, 4);
    let group = run(MulticastArm::PackratGroup, 60, 200, 4);
    assert!(
        group.repair.repairs * 10 < each.repair.repairs * 8,
        "{} and {}",
        group.repair.repairs,
        each.repair.repairs
    );
    assert!(group.dropped <= 6, "{group:?}");
}
