//! The worth of assistance for uploads, and its cost to others: bounds inside the measurements of
//! docs/EVALUATION.md.
//!
//! Virtual time: results are independent of this machine's speed.

use packrat_emulation::scenario::{Scenario, Traffic};
use packrat_lab::{Arm, FlowResult, Sender, Trial};

/// The seeds on which no constant was chosen.
const SEEDS: std::ops::Range<u64> = 1001..1004;

fn upload(path: &str, loss: f64, arm: Arm, sender: Sender, seed: u64) -> FlowResult {
    let scenario = Scenario::load(path).unwrap().with_loss(loss);
    let scenario = scenario.with_traffic(Traffic::load("put").unwrap());
    let result = Trial::new(scenario, arm, sender, seed).run().unwrap();
    let flow = result.flows.into_iter().next().unwrap();
    assert!(flow.complete, "{flow:?}");
    flow
}

fn goodput(path: &str, loss: f64, arm: Arm) -> f64 {
    let of = |seed| upload(path, loss, arm, Sender::S2nCubic, seed).goodput_mbps;
    let mut all: Vec<f64> = SEEDS.map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[test]
fn an_upload_over_a_short_last_mile_is_as_fast_as_without_loss() {
    let lossless = goodput("uplink", 0.0, Arm::Ideal);
    for (loss, least) in [(0.01, 0.97), (0.04, 0.95), (0.1, 0.95)] {
        let (assisted, plain) =
            (goodput("uplink", loss, Arm::Packrat), goodput("uplink", loss, Arm::EndToEnd));
        assert!(assisted > least * lossless, "{loss}: {assisted} of {lossless}");
        assert!(assisted > 3.0 * plain, "{loss}: {assisted} beside {plain}");
    }
}

#[test]
fn where_nothing_is_lost_numbers_cost_their_bytes() {
    for path in ["uplink", "ingress_wifi", "ingress_lte", "home_wifi"] {
        let (assisted, plain) =
            (goodput(path, 0.0, Arm::Packrat), goodput(path, 0.0, Arm::EndToEnd));
        assert!(assisted > 0.98 * plain, "{path}: {assisted} beside {plain}");
    }
}

/// The sums of uploads with these seeds: goodput, datagrams that were repaired, and the bytes for that.
fn sums(
    path: &str,
    loss: f64,
    arm: Arm,
    sender: Sender,
    seeds: std::ops::Range<u64>,
) -> (f64, u64, u64) {
    let flows = seeds.map(|seed| upload(path, loss, arm, sender, seed));
    flows.fold((0.0, 0, 0), |(goodput, repaired, bytes), flow| {
        (
            goodput + flow.goodput_mbps,
            repaired + flow.losses.repaired,
            bytes + flow.losses.repair_bytes,
        )
    })
}

/// BBR's rounds are counted by its acknowledgements: acknowledgements held behind a lost one look
/// like a slower path.
#[test]
fn a_sender_that_tolerates_losses_uploads_as_ever() {
    for (path, loss) in [("ingress_wifi", 0.01), ("ingress_lte", 0.02)] {
        // Of single uploads at 2 % one has 0.80 to 1.17 of the other.
        let of = |arm| sums(path, loss, arm, Sender::S2nBbr, 9601..9641);
        let ((assisted, repaired, bytes), (plain, ..)) = (of(Arm::Packrat), of(Arm::EndToEnd));
        assert_eq!((repaired, bytes), (0, 0), "{path}");
        assert!(assisted > 0.98 * plain, "{path}: {assisted} {plain}");
    }
}

#[test]
fn a_tolerant_sender_is_repaired_over_a_short_last_mile() {
    let of = |arm| sums("wifi", 0.05, arm, Sender::S2nBbr, 1001..1009);
    let ((assisted, repaired, _), (plain, ..)) = (of(Arm::Packrat), of(Arm::EndToEnd));
    assert!(repaired > 1000 && assisted > 1.3 * plain, "{repaired}: {assisted} {plain}");
}

#[test]
fn a_sender_that_answers_no_loss_is_not_repaired() {
    let (goodput, repaired, _) = sums("wifi", 0.05, Arm::Packrat, Sender::QuinnBbr, 1001..1009);
    assert!(repaired == 0 && goodput > 0.0, "{repaired}");
}

/// Goodput of an unassisted upload beside another one, and that one's, on a last mile that both fill.
fn beside(arm: &str) -> [f64; 2] {
    let text = format!(
        "description = \"\"\nsize = 1\n[far]\ndelay_ms = 1\nrate_mbps = 1000\n\
         [last_mile]\ndelay_ms = 30\nrate_mbps = 20\n\
         [traffic]\nseconds = 40\nsettle_seconds = 10\n\
         [[traffic.flow]]\ndirection = \"up\"\narm = \"end-to-end\"\n\
         [[traffic.flow]]\ndirection = \"up\"\narm = \"{arm}\"\n"
    );
    let scenario = Scenario::parse("beside", &text).unwrap();
    let mut sums = [0.0; 2];
    for seed in SEEDS {
        let flows = Trial::new(scenario.clone(), Arm::EndToEnd, Sender::S2nCubic, seed)
            .run()
            .unwrap()
            .flows;
        sums[0] += flows[0].goodput_mbps / 3.0;
        sums[1] += flows[1].goodput_mbps / 3.0;
    }
    sums
}

#[test]
fn an_assisted_upload_leaves_an_unassisted_one_its_share() {
    let [with, _] = beside("packrat");
    let [without, _] = beside("end-to-end");
    assert!(with > 0.85 * without, "{with} beside an assisted one, {without} beside another");
}
