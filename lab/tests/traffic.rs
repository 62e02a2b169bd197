//! Traffic: several flows at once, objects, pages, videos and uploads, on links of several kinds.
//!
//! Virtual time: results are independent of this machine's speed.

use packrat_emulation::scenario::{Scenario, Traffic};
use packrat_lab::{Arm, FlowResult, Sender, Trial, TrialResult};

/// A short path with a last mile of 8 Mbit/s.
const PATH: &str = "description = \"\"\nsize = 1_000_000\n[far]\ndelay_ms = 5\nrate_mbps = 100\n\
                    [last_mile]\ndelay_ms = 10\nrate_mbps = 8\n";

fn trial(text: &str, arm: Arm) -> TrialResult {
    let scenario = Scenario::parse("mine", &format!("{PATH}{text}")).unwrap();
    Trial::new(scenario, arm, Sender::S2nCubic, 1001).run().unwrap()
}

fn flows(text: &str, arm: Arm) -> Vec<FlowResult> {
    trial(text, arm).flows
}

#[test]
fn flows_of_several_senders_and_arms_share_one_last_mile() {
    let text = "loss = 0.02\n[traffic]\nseconds = 12\nsettle_seconds = 4\n\
                [[traffic.flow]]\nname = \"assisted\"\narm = \"packrat\"\n\
                [[traffic.flow]]\nname = \"plain\"\narm = \"end-to-end\"\nsender = \"quinn-cubic\"\n\
                [[traffic.flow]]\nname = \"split\"\narm = \"split\"\nsender = \"quinn-bbr\"\n";
    let result = trial(text, Arm::EndToEnd);
    let [assisted, plain, split] = &result.flows[..] else { panic!("{result:?}") };
    assert_eq!((result.setting.arm, split.sender), (Arm::Packrat, Sender::QuinnBbr));
    assert!(
        assisted.losses.repaired > 0 && plain.losses.repaired == 0 && split.losses.repaired == 0,
        "{result:?}"
    );
    assert!(plain.losses.lost_last_mile > 0, "{plain:?}");
    let sum: f64 = result.flows.iter().map(|flow| flow.goodput_mbps).sum();
    assert!((5.0..8.0).contains(&sum), "{sum} of 8 Mbit/s");
    let shares: f64 = result.flows.iter().map(|flow| flow.share.unwrap()).sum();
    assert!((shares - 3.0).abs() < 1e-9, "{shares}");
    let fairness = result.competition.unwrap();
    assert_eq!(fairness.others_mbps, [plain.goodput_mbps, split.goodput_mbps]);
    assert!((1.0 / 3.0..=1.0).contains(&fairness.jain), "{fairness:?}");
}

#[test]
fn a_download_that_begins_later_takes_from_the_one_that_runs() {
    let text = |other: &str| {
        format!("[traffic]\nseconds = 12\nsettle_seconds = 6\n[[traffic.flow]]\n{other}")
    };
    let alone = flows(&text(""), Arm::EndToEnd);
    let joined = flows(&text("[[traffic.flow]]\nstart_ms = 5000\n"), Arm::EndToEnd);
    assert!(alone[0].goodput_mbps > 7.0, "{alone:?}");
    assert!(joined[0].goodput_mbps < 0.9 * alone[0].goodput_mbps, "{joined:?}");
    assert_eq!(joined[1].start, 5.0);
    assert!(joined[1].bytes > 500_000, "{joined:?}");
}

#[test]
fn flows_with_their_own_last_miles_share_only_the_far_segment() {
    let text = "[traffic]\nseconds = 6\nsettle_seconds = 2\n\
                [[traffic.flow]]\ncount = 3\nown_last_mile = true\n";
    let own = flows(text, Arm::EndToEnd);
    assert!(own.iter().all(|flow| flow.goodput_mbps > 6.5), "{own:?}");
    let shared = flows(&text.replace("own_last_mile = true\n", ""), Arm::EndToEnd);
    let sum: f64 = shared.iter().map(|flow| flow.goodput_mbps).sum();
    assert!(sum < 8.0, "{shared:?}");
}

#[test]
fn objects_in_turn_are_faster_than_together_and_pooled_by_size() {
    let text = |options: &str| {
        format!(
            "[traffic]\n[[traffic.flow]]\nobjects = {{ sizes = [10_000, 100_000], count = 3{options} }}\n"
        )
    };
    let in_turn = &flows(&text(""), Arm::EndToEnd)[0];
    let together = &flows(&text(", together = true"), Arm::EndToEnd)[0];
    let own = &flows(&text(", own_connections = true"), Arm::EndToEnd)[0];
    for flow in [in_turn, together, own] {
        let sizes: Vec<_> =
            flow.completions.iter().map(|same| (same.size, same.seconds.len())).collect();
        assert_eq!(sizes, [(10_000, 3), (100_000, 3)], "{flow:?}");
        assert!(flow.complete && flow.bytes == 330_000, "{flow:?}");
    }
    // 80 kbit and a round trip of 30 ms; 0.8 Mbit at 8 Mbit/s.
    let p50 = |flow: &FlowResult| [flow.completions[0].p50, flow.completions[1].p50];
    assert!(p50(in_turn)[0] >= 0.04 && p50(in_turn)[1] >= 0.13, "{in_turn:?}");
    assert!(p50(together)[0] > p50(in_turn)[0], "{together:?}");
    // Each one begins in slow start.
    assert!(p50(own)[1] > p50(in_turn)[1], "{own:?}, {in_turn:?}");
}

#[test]
fn a_page_takes_its_waves_and_a_neighbour_slows_it_down() {
    let page = "[traffic]\nseconds = 60\n[[traffic.flow]]\npage = { visits = 2 }\n";
    let alone = flows(page, Arm::Packrat);
    let beside = flows(&format!("{page}[[traffic.flow]]\n"), Arm::Packrat);
    for flows in [&alone, &beside] {
        assert!(flows[0].complete && flows[0].completions[0].seconds.len() == 2, "{flows:?}");
    }
    let seconds = alone[0].completions[0].p50;
    // 1.66 MB at 8 Mbit/s, a handshake, three waves.
    assert!((1.66 + 4.0 * 0.03..3.0).contains(&seconds), "{seconds}");
    assert!(beside[0].completions[0].p50 > 1.3 * seconds, "{beside:?}");
}

#[test]
fn a_video_adapts_to_its_path() {
    let video = |rate: &str| {
        let text = "[traffic]\n[[traffic.flow]]\nvideo = { seconds = 60 }\n";
        let path = PATH.replace("rate_mbps = 8", rate);
        let scenario = Scenario::parse("mine", &format!("{path}{text}")).unwrap();
        let result = Trial::new(scenario, Arm::EndToEnd, Sender::S2nCubic, 1001).run().unwrap();
        result.flows[0].video.clone().unwrap()
    };
    let (narrow, wide) = (video("rate_mbps = 1"), video("rate_mbps = 8"));
    assert_eq!((narrow.segments, wide.segments), ([15, 15], [15, 15]));
    assert!(narrow.bitrate_mbps < 1.0 && wide.bitrate_mbps > 1.5, "{narrow:?}, {wide:?}");
    assert_eq!((narrow.stalls, wide.stalls), (0, 0));
    assert!(wide.switches > 0 && narrow.startup_seconds > wide.startup_seconds, "{wide:?}");
}

#[test]
fn an_upload_is_counted_at_its_destination_also_when_split() {
    let text = "[traffic]\n[[traffic.flow]]\ndirection = \"up\"\nsize = 1_000_000\n";
    for arm in [Arm::EndToEnd, Arm::Packrat, Arm::Split] {
        let result = trial(text, arm);
        let flow = &result.flows[0];
        assert!(flow.complete && flow.bytes >= 1_000_000, "{flow:?}");
        assert!((3.0..8.0).contains(&flow.goodput_mbps), "{flow:?}");
        assert_eq!(flow.direction, "up");
        assert!(result.links.last_mile_up[1] > 1_000_000, "{result:?}");
    }
}

#[test]
fn both_directions_of_a_half_duplex_medium_take_from_each_other() {
    let text = "[traffic]\nseconds = 8\nsettle_seconds = 3\n\
                [[traffic.flow]]\n[[traffic.flow]]\ndirection = \"up\"\n";
    let duplex = flows(text, Arm::EndToEnd);
    let shared =
        flows(&format!("airtime = {{ access_us = 100, aggregate = 4 }}\n{text}"), Arm::EndToEnd);
    let sum = |flows: &[FlowResult]| flows[0].goodput_mbps + flows[1].goodput_mbps;
    assert!(sum(&duplex) > 12.0, "{duplex:?}");
    assert!((4.5..8.0).contains(&sum(&shared)), "{shared:?}");
    assert!(shared.iter().all(|flow| flow.goodput_mbps > 1.0), "{shared:?}");
}

#[test]
fn hosts_that_read_in_batches_take_longer_and_lose_nothing() {
    let text = "[traffic]\n[[traffic.flow]]\nobjects = { sizes = [20_000], count = 3 }\n";
    let batching = "[batching]\ngateway = { wait_us = 4000, datagrams = 64 }\n\
                    client = { wait_us = 6000, datagrams = 64, each_us = 20 }\n";
    let at_once = &flows(text, Arm::Packrat)[0];
    let batched = &flows(&format!("{text}{batching}"), Arm::Packrat)[0];
    assert!(batched.complete, "{batched:?}");
    let slower = batched.completions[0].p50 - at_once.completions[0].p50;
    // The request waits at the gateway, the last datagrams there and at the client.
    assert!((0.008..0.08).contains(&slower), "{slower} s");
}

#[test]
fn the_same_seed_gives_the_same_traffic() {
    let scenario = Scenario::load("ingress_lte").unwrap().with_loss(0.02);
    let mut traffic = Traffic::load("household").unwrap();
    traffic.seconds = Some(12);
    let scenario = scenario.with_traffic(traffic);
    let run = || Trial::new(scenario.clone(), Arm::Packrat, Sender::S2nBbr, 1001).run().unwrap();
    assert_eq!(run(), run());
}
