//! The worth of assistance, on a few seeds of each setting: bounds well inside the measurements of
//! docs/EVALUATION.md.
//!
//! Virtual time: results are independent of this machine's speed.

use packrat_client::{ClientEvent, NotHeldReason};
use packrat_emulation::scenario::{QueueKind, Scenario};
use packrat_engine::SessionEvent;
use packrat_lab::{Arm, Sender, TraceEvent, Trial, TrialResult, batch};

/// Bytes: long enough that slow start is not all of it.
const SIZE: u64 = 10_000_000;

fn run(
    scenario: &str,
    loss: Option<f64>,
    arm: Arm,
    sender: Sender,
    seeds: u64,
) -> Vec<TrialResult> {
    let mut scenario = Scenario::load(scenario).unwrap();
    scenario.size = SIZE;
    if let Some(loss) = loss {
        scenario = scenario.with_loss(loss);
    }
    let trials: Vec<Trial> =
        (1..=seeds).map(|seed| Trial::new(scenario.clone(), arm, sender, seed)).collect();
    let results = measure(&trials);
    for result in &results {
        assert!(result.download.complete, "{result:?}");
        assert_eq!(result.assistance.resets, 0, "{result:?}");
    }
    results
}

fn measure(trials: &[Trial]) -> Vec<TrialResult> {
    let mut results = Vec::new();
    batch::run(trials, 2, |result| result.map(|result| results.push(result))).unwrap();
    results
}

fn goodput(results: &[TrialResult]) -> f64 {
    let mut goodput: Vec<f64> = results.iter().map(|result| result.download.goodput_mbps).collect();
    goodput.sort_by(f64::total_cmp);
    goodput[goodput.len() / 2]
}

fn ratio(scenario: &str, loss: Option<f64>, sender: Sender, arm: Arm, to: Arm) -> f64 {
    ratio_of(5, scenario, loss, sender, arm, to)
}

fn ratio_of(
    seeds: u64,
    scenario: &str,
    loss: Option<f64>,
    sender: Sender,
    arm: Arm,
    to: Arm,
) -> f64 {
    goodput(&run(scenario, loss, arm, sender, seeds))
        / goodput(&run(scenario, loss, to, sender, seeds))
}

#[test]
fn the_same_seed_gives_the_same_trial() {
    let once = run("cellular", None, Arm::Packrat, Sender::S2nCubic, 2);
    let again = run("cellular", None, Arm::Packrat, Sender::S2nCubic, 2);
    assert_eq!(once, again);
    assert_ne!(once[0].download.seconds, once[1].download.seconds, "the seed decides nothing");
}

#[test]
fn a_trace_matches_the_figures_and_does_not_change_them() {
    let mut scenario = Scenario::load("wifi").unwrap();
    scenario.size = 1_000_000;
    let trial = |arm| Trial::new(scenario.clone(), arm, Sender::S2nCubic, 1);
    let (result, trace) = trial(Arm::Packrat).trace().unwrap();
    assert_eq!(result, trial(Arm::Packrat).run().unwrap());
    let client = |is: fn(&ClientEvent) -> bool| {
        let is =
            |event: &&TraceEvent| matches!(event, TraceEvent::Client { client, .. } if is(client));
        trace.iter().filter(is).count() as u64
    };
    let gateway = |is: fn(&SessionEvent) -> bool| {
        let is = |event: &&TraceEvent| matches!(event, TraceEvent::Gateway { gateway, .. } if is(gateway));
        trace.iter().filter(is).count() as u64
    };
    assert!(result.assistance.repaired > 0);
    assert_eq!(
        gateway(|event| matches!(event, SessionEvent::RepairSent { transmission: 1, .. })),
        result.assistance.repaired
    );
    assert_eq!(
        client(|event| matches!(event, ClientEvent::EackSent { .. })),
        result.assistance.eack_packets
    );
    assert_eq!(
        client(|event| matches!(event, ClientEvent::MissingArrived { held: false, .. })),
        result.assistance.repaired_late
    );

    let (_, trace) = trial(Arm::EndToEnd).trace().unwrap();
    let holes = |event: &TraceEvent| match event {
        TraceEvent::Client { client: ClientEvent::HoleOpened { not_held, .. }, .. } => *not_held,
        _ => None,
    };
    let holes: Vec<NotHeldReason> = trace.iter().filter_map(holes).collect();
    assert!(!holes.is_empty() && holes.iter().all(|reason| *reason == NotHeldReason::Disabled));
}

#[test]
fn every_process_gives_the_same_trial() {
    let run = || {
        let senders = Sender::ALL.iter().flat_map(|sender| ["--sender", sender.name()]);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_packrat-lab"))
            .args([
                "run",
                "satellite",
                "--arm",
                "packrat",
                "--seeds",
                "2",
                "--size",
                "2000000",
                "--json",
            ])
            .args(senders)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let once = run();
    assert_eq!(once.lines().count(), 2 * Sender::ALL.len());
    assert_eq!(once, run());
}

#[test]
fn a_line_of_json_has_every_field_that_was_promised() {
    let result = &run("wifi", None, Arm::Packrat, Sender::QuinnNewReno, 1)[0];
    let line = serde_json::to_value(result).unwrap();
    for field in [
        "scenario",
        "arm",
        "sender",
        "loss",
        "seed",
        "goodput_mbps",
        "seconds",
        "lost_last_mile",
        "repaired",
        "repaired_late",
        "spurious",
        "resets",
        "decode_failures",
        "eack_bytes",
        "eack_packets",
        "cache_mean",
        "cache_max",
        "hold_ms_mean",
        "bytes_last_mile",
    ] {
        assert!(line.get(field).is_some_and(|value| !value.is_null()), "{field}: {line}");
    }
    assert_eq!((&line["arm"], &line["sender"]), (&"packrat".into(), &"quinn-newreno".into()));
}

#[test]
fn loss_is_hidden_from_another_stack_as_well() {
    for sender in [Sender::QuinnCubic, Sender::QuinnNewReno] {
        let goodput = |arm| goodput(&run("wifi", None, arm, sender, 3));
        let (assisted, ideal, split) =
            (goodput(Arm::Packrat), goodput(Arm::Ideal), goodput(Arm::Split));
        assert!(assisted > 0.9 * ideal, "{}: {assisted} of {ideal} Mbit/s", sender.name());
        assert!(assisted > 1.5 * split, "{}: {assisted} Mbit/s, split {split}", sender.name());
    }
}

#[test]
fn two_unassisted_downloads_share_a_congested_last_mile() {
    for queue in QueueKind::ALL {
        let mut scenario = Scenario::load("competing").unwrap().with_queue(queue);
        if let Some(traffic) = &mut scenario.traffic {
            traffic.seconds = Some(30);
        }
        let trials: Vec<Trial> = (1..=3)
            .map(|seed| Trial::new(scenario.clone(), Arm::EndToEnd, Sender::S2nCubic, seed))
            .collect();
        batch::run(&trials, 2, |result| {
            let result = result.map_err(|error| error.to_string())?;
            let fairness = result.competition.as_ref().unwrap();
            assert!(fairness.jain > 0.9, "{result:?}");
            // Both together fill the last mile of 20 Mbit/s, whose queue drops.
            let sum = result.download.goodput_mbps + fairness.others_mbps[0];
            assert!((18.0..20.0).contains(&sum) && result.reaction.queue_dropped > 0, "{result:?}");
            Ok::<(), String>(())
        })
        .unwrap();
    }
}

#[test]
fn an_assisted_download_leaves_an_unassisted_one_its_share() {
    let shares = |arm| {
        let mut shares: Vec<f64> = Vec::new();
        for queue in QueueKind::ALL {
            let mut scenario = Scenario::load("competing").unwrap().with_queue(queue);
            if let Some(traffic) = &mut scenario.traffic {
                traffic.seconds = Some(40);
            }
            let trials: Vec<Trial> = (1..=2)
                .map(|seed| Trial::new(scenario.clone(), arm, Sender::S2nCubic, seed))
                .collect();
            batch::run(&trials, 2, |result| {
                result
                    .map(|result| shares.extend(result.competition.map(|fairness| fairness.share)))
            })
            .unwrap();
        }
        shares.iter().sum::<f64>() / shares.len() as f64
    };
    let (assisted, split) = (shares(Arm::Packrat), shares(Arm::Split));
    assert!((0.7..1.2).contains(&assisted), "{assisted} of its fair share");
    assert!(split > assisted, "split {split}, assisted {assisted}");
}

#[test]
fn cross_traffic_takes_its_part() {
    let goodput = |cross: &str| {
        let text = format!(
            "description = \"\"\nsize = 4_000_000\n[far]\ndelay_ms = 20\nrate_mbps = 100\n[last_mile]\ndelay_ms = 5\nrate_mbps = 10\n{cross}"
        );
        let scenario = Scenario::parse("crossed", &text).unwrap();
        Trial::new(scenario, Arm::EndToEnd, Sender::QuinnCubic, 1)
            .run()
            .unwrap()
            .download
            .goodput_mbps
    };
    let (alone, crossed) = (goodput(""), goodput("cross_traffic = { rate_mbps = 5.0 }"));
    assert!(alone > 8.0, "{alone}");
    assert!((2.0..5.5).contains(&crossed), "{crossed}");
}

#[test]
fn the_first_packets_of_a_connection_are_repaired_as_well() {
    // With this seed the first two datagrams after the handshake are lost. A client that takes the
    // third for the first never asks for them, and the download takes twice as long.
    let mut scenario = Scenario::load("cellular").unwrap();
    scenario.size = SIZE;
    let trial = |arm| {
        Trial::new(scenario.clone(), arm, Sender::S2nCubic, 8).run().unwrap().download.goodput_mbps
    };
    let (assisted, ideal) = (trial(Arm::Packrat), trial(Arm::Ideal));
    assert!(assisted > 0.8 * ideal, "{assisted} of {ideal} Mbit/s");
}

#[test]
fn loss_on_a_wireless_lan_is_hidden_from_cubic() {
    for (loss, bound) in [(0.04, 0.95), (0.1, 0.95), (0.24, 0.8)] {
        // One in five leaves slow start by an overflow instead of by the delay before it: the
        // median of five may be one of those.
        let ratio = ratio_of(15, "wifi", Some(loss), Sender::S2nCubic, Arm::Packrat, Arm::Ideal);
        assert!(ratio > bound, "{ratio} of the lossless link at {loss}");
    }
}

/// On a slow link a burst of a few datagrams takes as long as a queue that stands elsewhere.
#[test]
fn loss_on_a_slow_last_mile_is_no_queue() {
    for (scenario, least) in [("ceten", 1.6), ("rquic_satellite", 1.8)] {
        let run = |arm| {
            let mut scenario = Scenario::load(scenario).unwrap().with_loss(0.02);
            (scenario.size, scenario.traffic) = (4_000_000, None);
            let trials: Vec<Trial> = (1..=3)
                .map(|seed| Trial::new(scenario.clone(), arm, Sender::S2nCubic, seed))
                .collect();
            let mut results = Vec::new();
            batch::run(&trials, 2, |result| result.map(|result| results.push(result))).unwrap();
            goodput(&results)
        };
        let ratio = run(Arm::Packrat) / run(Arm::EndToEnd);
        assert!(ratio > least, "{scenario}: {ratio}");
    }
}

#[test]
fn loss_on_a_cellular_last_mile_is_hidden_from_cubic() {
    let ratio = ratio("cellular", None, Sender::S2nCubic, Arm::Packrat, Arm::Ideal);
    assert!(ratio > 0.88, "{ratio} of the lossless link");
}

#[test]
fn loss_on_a_satellite_last_mile_is_hidden_from_cubic() {
    for loss in [0.04, 0.1] {
        let ratio = ratio("satellite", Some(loss), Sender::S2nCubic, Arm::Packrat, Arm::Ideal);
        assert!(ratio > 0.82, "{ratio} of the lossless link at {loss}");
    }
}

#[test]
fn few_downloads_are_slow_because_of_first_flight_losses() {
    // A loss before any numbered datagram has arrived is repaired without a number. When that ended
    // the hold, a quarter of these downloads left slow start at once; when copies then used up the
    // repair budget, they stayed without repairs.
    let slow: Vec<(u64, f64)> = run("satellite", Some(0.1), Arm::Packrat, Sender::S2nCubic, 20)
        .iter()
        .map(|result| (result.setting.seed, result.download.goodput_mbps))
        .filter(|(_, goodput)| *goodput < 8.0)
        .collect();
    assert!(slow.len() <= 1, "{slow:?}");
}

#[test]
fn a_last_mile_that_is_most_of_the_path_is_assisted_as_well() {
    // Repairs arrive just before s2n-quic forgets the lost packets.
    let mut scenario = Scenario::load("sat_long").unwrap();
    scenario.size = SIZE;
    let trials: Vec<Trial> = (1..=3)
        .map(|seed| Trial::new(scenario.clone(), Arm::Packrat, Sender::S2nCubic, seed))
        .collect();
    let mut results = Vec::new();
    batch::run(&trials, 2, |result| result.map(|result| results.push(result))).unwrap();
    let shown: u64 = results.iter().map(|result| result.reaction.congestion_events).sum();
    assert!(goodput(&results) > 4.0 && shown <= 6, "{shown} losses shown: {results:?}");
}

#[test]
fn bursts_of_loss_are_hidden_from_cubic() {
    for (burst, bound) in [(5.0, 0.85), (56.0, 0.5)] {
        let mut scenario = Scenario::load("wifi_burst").unwrap().with_burst(burst);
        scenario.size = SIZE;
        let run = |arm| {
            let trials: Vec<Trial> = (1..=5)
                .map(|seed| Trial::new(scenario.clone(), arm, Sender::S2nCubic, seed))
                .collect();
            let mut results = Vec::new();
            batch::run(&trials, 2, |result| result.map(|result| results.push(result))).unwrap();
            results
        };
        let assisted = run(Arm::Packrat);
        assert!(assisted.iter().all(|result| result.download.complete), "{assisted:?}");
        let ratio = goodput(&assisted) / goodput(&run(Arm::Ideal));
        assert!(ratio > bound, "{ratio} of the lossless link with bursts of {burst}");
    }
}

#[test]
fn a_satellite_download_is_many_times_as_fast_as_end_to_end() {
    let ratio = ratio("satellite", None, Sender::S2nCubic, Arm::Packrat, Arm::EndToEnd);
    assert!(ratio > 40.0, "{ratio} times end to end");
}

#[test]
fn the_hold_is_what_makes_repairs_count_for_cubic() {
    let ratio = ratio("wifi", None, Sender::S2nCubic, Arm::Packrat, Arm::RepairOnly);
    assert!(ratio > 4.0, "{ratio} times repair alone");
    let held: u64 = run("wifi", None, Arm::Packrat, Sender::S2nCubic, 3)
        .iter()
        .map(|r| r.assistance.spurious)
        .sum();
    let bare: u64 = run("wifi", None, Arm::RepairOnly, Sender::S2nCubic, 3)
        .iter()
        .map(|r| r.assistance.spurious)
        .sum();
    assert!(bare > 20 * held, "{bare} spurious retransmissions without the hold, {held} with it");
}

#[test]
fn assistance_is_better_than_splitting_the_connection() {
    for scenario in ["wifi", "cellular", "satellite"] {
        let ratio = ratio(scenario, None, Sender::S2nCubic, Arm::Packrat, Arm::Split);
        assert!(ratio > 1.5, "{scenario}: {ratio} times the split connection");
    }
}

#[test]
fn bbr_gains_where_it_suffers_and_loses_nowhere() {
    let wifi = ratio("wifi", None, Sender::S2nBbr, Arm::Packrat, Arm::EndToEnd);
    assert!(wifi > 1.5, "{wifi} times end to end on WiFi");
    for scenario in ["cellular", "satellite"] {
        let ratio = ratio(scenario, None, Sender::S2nBbr, Arm::Packrat, Arm::EndToEnd);
        assert!(ratio > 4.5, "{scenario}: {ratio} times end to end");
    }
}

/// By its first window on the first path, and by its overflows on the second.
#[test]
fn bbr_version_1_is_known_in_its_first_session() {
    for (scenario, least) in [("ingress_wifi", 0.93), ("dsl", 0.95)] {
        let ratio =
            ratio_of(3, scenario, Some(0.02), Sender::QuinnBbr, Arm::Packrat, Arm::EndToEnd);
        assert!(ratio > least, "{scenario}: {ratio} times end to end");
    }
}

#[test]
fn without_loss_assistance_costs_next_to_nothing() {
    for (scenario, sender) in [
        ("wifi", Sender::S2nCubic),
        ("cellular", Sender::S2nCubic),
        ("satellite", Sender::S2nCubic),
        ("wifi", Sender::S2nBbr),
    ] {
        let ratio = ratio(scenario, Some(0.0), sender, Arm::Packrat, Arm::EndToEnd);
        assert!(ratio > 0.96, "{scenario} {}: {ratio} of end to end", sender.name());
    }
}

#[test]
fn what_assistance_costs_is_bounded() {
    for result in run("wifi", None, Arm::Packrat, Sender::S2nCubic, 3) {
        assert!((result.assistance.eack_bytes as f64) < 0.008 * SIZE as f64, "{result:?}");
        let lost = result.assistance.bytes_last_mile as f64 * result.setting.loss;
        assert!((result.assistance.repair_bytes as f64) < 1.3 * lost, "{result:?}");
        assert!(result.assistance.cache_max < 256 * 1024, "{result:?}");
    }
}

/// A sender that waits for acknowledgements pauses between them. A symbol at each pause took 8 % of the
/// bytes where 0.1 % were lost.
#[test]
fn symbols_of_a_download_that_pauses_follow_its_loss() {
    let scenario = Scenario::load("ingress_wifi").unwrap().with_loss(0.001);
    let mut trial = Trial::new(scenario, Arm::Packrat, Sender::S2nCubic, 1001);
    trial.scenario.size = 30_000_000;
    let result = trial.run().unwrap();
    let share = result.assistance.repair_bytes as f64 / result.assistance.bytes_last_mile as f64;
    assert!(result.download.complete && share < 0.04, "{share}: {result:?}");
}

/// Thousands of datagrams are under way: repairs fill places as far back. With places believed 1,024
/// back the download had .72 of lossless.
#[test]
fn repairs_of_a_fast_long_last_mile_fill_their_places() {
    let mut scenario = Scenario::load("long_fat_200").unwrap().with_loss(0.005);
    scenario.size = 30_000_000;
    let goodput = |arm| {
        let trials = (1..=3).map(|seed| {
            let mut trial = Trial::new(scenario.clone(), arm, Sender::S2nCubic, seed);
            trial.gateway.cache_bytes_per_flow = 16 << 20;
            trial
        });
        goodput(&measure(&trials.collect::<Vec<_>>()))
    };
    let ratio = goodput(Arm::Packrat) / goodput(Arm::Ideal);
    assert!(ratio > 0.8, "{ratio} of lossless");
}
