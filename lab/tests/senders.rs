//! The senders and receivers beside s2n-quic's own, in virtual time.

use packrat_emulation::scenario::{Scenario, Traffic};
use packrat_lab::{Arm, ReceiverStack, Sender, Trial, TrialResult};

fn trial(loss: f64, arm: Arm, sender: Sender) -> Trial {
    let mut scenario = Scenario::load("wifi").unwrap().with_loss(loss);
    scenario.size = 2_000_000;
    Trial::new(scenario, arm, sender, 1001)
}

fn quinn(loss: f64, arm: Arm) -> TrialResult {
    let mut trial = trial(loss, arm, Sender::S2nCubic);
    trial.receiver = ReceiverStack::Quinn;
    trial.run().unwrap()
}

#[test]
fn noq_senders_repeat_to_the_digit() {
    for sender in [Sender::NoqCubic, Sender::NoqBbr] {
        let trial = trial(0.02, Arm::Packrat, sender);
        let result = trial.run().unwrap();
        assert!(result.download.complete, "{result:?}");
        assert_eq!(result, trial.run().unwrap());
    }
}

#[test]
fn assistance_helps_cubic_with_a_loss_that_only_bbr3_tolerates() {
    let goodput = |arm, sender| {
        trial(0.04, arm, sender).run().map(|result| result.download.goodput_mbps).unwrap()
    };
    let cubic = goodput(Arm::EndToEnd, Sender::NoqCubic);
    assert!(goodput(Arm::EndToEnd, Sender::NoqBbr) > 5.0 * cubic, "CUBIC: {cubic}");
    assert!(goodput(Arm::Packrat, Sender::NoqCubic) > 5.0 * cubic, "CUBIC: {cubic}");
}

#[test]
fn a_shim_assists_a_quinn_client() {
    let [ideal, end_to_end, shim] =
        [Arm::Ideal, Arm::EndToEnd, Arm::Packrat].map(|arm| quinn(0.04, arm));
    assert!(shim.download.complete && shim.assistance.repaired > 0, "{shim:?}");
    assert!(
        shim.download.goodput_mbps > 3.0 * end_to_end.download.goodput_mbps,
        "{end_to_end:?}\n{shim:?}"
    );
    assert!(shim.download.goodput_mbps > 0.8 * ideal.download.goodput_mbps, "{ideal:?}\n{shim:?}");
    assert_eq!(shim, quinn(0.04, Arm::Packrat));
}

/// s2n-quic's clients retire the connection ID of the handshake. quinn's server answers later
/// datagrams to it with a stateless reset, and a late copy ended one download in ten.
#[test]
fn copies_do_not_follow_a_connection_id_into_retirement() {
    for seed in 7701..7721 {
        let mut trial = trial(0.1, Arm::Packrat, Sender::QuinnCubic);
        trial.scenario.size = 100_000;
        trial.seed = seed;
        let result = trial.run().unwrap();
        assert!(result.download.complete, "{result:?}");
    }
}

/// BBR takes the distance of the first acknowledgements for the rate of the path: an eACK between them
/// cost a tenth of a short download.
#[test]
fn the_first_rate_that_bbr_measures_is_that_without_assistance() {
    for path in ["ingress_wifi", "ingress_lte"] {
        let goodput = |arm| {
            let scenario = Scenario::load(path).unwrap().with_loss(0.0);
            let mut trial = Trial::new(scenario, arm, Sender::QuinnBbr, 1001);
            trial.scenario.size = 4_000_000;
            trial.run().unwrap().download.goodput_mbps
        };
        let (plain, assisted) = (goodput(Arm::EndToEnd), goodput(Arm::Packrat));
        assert!(assisted > 0.98 * plain, "{path}: {assisted} and {plain} Mbit/s");
    }
}

/// One of eight sessions is a trial, whose sender is shown losses. Of forty short downloads few are
/// slower for it.
#[test]
fn short_downloads_have_few_trials_that_end_soon() {
    let mut slow = 0;
    for seed in 1001..1005 {
        let scenario = Scenario::load("home_wifi").unwrap().with_loss(0.04);
        let scenario = scenario.with_traffic(Traffic::load("sessions").unwrap());
        let result = Trial::new(scenario, Arm::Packrat, Sender::S2nCubic, seed).run().unwrap();
        let completions = &result.flows[0].completions[0];
        let limit = 1.5 * completions.p50;
        slow += completions.seconds.iter().filter(|seconds| **seconds > limit).count();
    }
    assert!(slow <= 8, "{slow} of 160");
}
