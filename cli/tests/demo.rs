//! `packrat demo`, run like a user's command.
//!
//! All but the first test need the programs that `make demo` installs, and the gateways next to the
//! command: `make test-demo` provides both.
// The lint's exception for tests does not reach the functions that tests share.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use packrat_path::Trials;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Time limit of each step, longer than any of them takes.
const PATIENCE: Duration = Duration::from_secs(120);

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packrat"));
    let parts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.packrat");
    command.arg("demo").arg("--parts").arg(parts).args(arguments);
    command
}

/// Runs a demo to its end and returns its JSON output about the last network.
fn report(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let output = demo(arguments).arg("--json").arg(&file).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let mut reports: Vec<Value> = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    reports.pop().unwrap()
}

fn arm<'a>(report: &'a Value, name: &str) -> &'a Value {
    let arms = report["arms"].as_array().unwrap();
    arms.iter()
        .find(|arm| arm["name"] == name)
        .unwrap_or_else(|| panic!("no arm {name}: {report:#}"))
}

fn number(arm: &Value, key: &str) -> f64 {
    arm[key].as_f64().unwrap_or_else(|| panic!("{key} is not a number: {arm:#}"))
}

/// Runs demos until the assisted path of one was on time, or all paths of one without assistance; `check`
/// gets the report of each, and whether its figures may be judged.
fn judge(figure: &'static str, arguments: &[&str], check: impl Fn(&Value, bool)) {
    let mut trials = Trials::of(figure);
    while trials.go_on() {
        let report = report(arguments);
        let arms = report["arms"].as_array().unwrap();
        let has_assistance = arms.iter().any(|arm| arm["name"] == "packrat");
        let mut judged = arms.iter().filter(|arm| !has_assistance || arm["name"] == "packrat");
        let is_on_time = trials.may_judge(judged.all(|arm| arm["on_time"] == true));
        check(&report, is_on_time);
    }
}

/// Checks the properties of all three downloads that hold for every server and gateway.
fn assert_all_arms(report: &Value, is_on_time: bool) {
    for name in ["lossless", "end-to-end", "packrat"] {
        let arm = arm(report, name);
        assert_eq!(arm["sha256_ok"], true, "{arm:#}");
        assert_eq!(number(arm, "resets"), 0.0, "{arm:#}");
        assert!(number(arm, "goodput_mbps") > 0.0 && number(arm, "seconds") > 0.0, "{arm:#}");
        let lost = number(&arm["last_mile"]["downward"], "lost");
        assert_eq!(lost == 0.0, name == "lossless", "{arm:#}");
        for key in ["repairs", "eack_bytes", "cache_high_water_bytes"] {
            assert_eq!(number(arm, key) > 0.0, name == "packrat", "{key}: {arm:#}");
        }
    }
    assert_eq!(arm(report, "lossless")["complete"], true);
    let packrat = arm(report, "packrat");
    assert_eq!(packrat["complete"], true);
    assert_eq!(packrat["assistance"]["sessions"], 1, "{packrat:#}");
    if is_on_time {
        // The server learns of few of the last mile's losses.
        let bound = number(packrat, "lost_last_mile") / 2.0;
        assert!(number(packrat, "spurious") <= bound, "{packrat:#}");
    }
}

#[test]
fn without_its_parts_it_says_how_to_get_them() {
    let nowhere = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_packrat"));
    let output = command.arg("demo").arg("--parts").arg(nowhere.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("Caddy is not at") && errors.contains("make demo"), "{errors}");
}

#[test]
#[ignore = "needs Envoy and Caddy: make test-demo"]
fn caddy_through_envoy() {
    let options = ["--profile", "wifi", "--size", "2MB", "--patience", "3"];
    judge("losses that Caddy declares", &options, |report, is_on_time| {
        for (key, value) in [("profile", "wifi"), ("gateway", "envoy"), ("server", "caddy")] {
            assert_eq!(report[key], value);
        }
        assert_eq!(number(report, "loss"), 0.04);
        assert_all_arms(report, is_on_time);
    });
}

#[test]
#[ignore = "needs Envoy and Caddy: make test-demo"]
fn a_connection_that_ends_at_the_gateway_is_an_alternative() {
    let options = [
        "--size=512KB",
        "--profile=wifi",
        "--arms=terminated,terminated-bbr2,terminated-cubic",
        "--patience=120",
    ];
    judge("losses that are declared at the gateway's place", &options, |report, is_on_time| {
        for name in ["terminated", "terminated-bbr2", "terminated-cubic"] {
            let arm = arm(report, name);
            let whole = (&arm["sha256_ok"], &arm["complete"]);
            assert_eq!(whole, (&true.into(), &true.into()), "{arm:#}");
            // Envoy has repaired the losses; there is no gateway that could have.
            assert!(number(arm, "lost_last_mile") > 0.0, "{arm:#}");
            assert_eq!(number(arm, "repairs"), 0.0, "{arm:#}");
            // The server's connection ends before the last mile: it hears of no loss.
            assert!(!is_on_time || arm["declared_lost"] == 0, "{arm:#}");
        }
    });
}

#[test]
#[ignore = "needs Envoy and Caddy: make test-demo"]
fn a_server_beside_the_gateway_is_the_second_network_of_a_demo() {
    let report = report(&["--size", "2MB", "--patience", "3"]);
    assert_eq!((&report["profile"], number(&report, "loss")), (&"ingress".into(), 0.01));
    for name in ["lossless", "end-to-end", "packrat"] {
        assert_eq!(arm(&report, name)["sha256_ok"], true, "{report:#}");
    }
    let packrat = arm(&report, "packrat");
    assert_eq!(packrat["complete"], true, "{packrat:#}");
    let assistance = &packrat["assistance"];
    assert_eq!(assistance["sessions"], 1, "{packrat:#}");
    let repaired = number(assistance, "recovered") + number(packrat, "repairs");
    assert!(repaired > 0.0 && number(assistance, "kept") > 0.0, "{packrat:#}");
}

#[test]
#[ignore = "needs aioquic: make test-demo"]
fn aioquic_through_the_standalone_gateway() {
    let options =
        ["--gateway", "standalone", "--server", "aioquic", "--loss", "0.08", "--burst", "2"];
    let network = ["--profile", "wifi", "--size", "1MB", "--patience", "3"];
    let options = [&options[..], &network].concat();
    judge("losses that aioquic declares", &options, |report, is_on_time| {
        assert_eq!(number(report, "loss"), 0.08);
        assert_all_arms(report, is_on_time);
    });
}

/// Downloads of a client that moves, and beside a flood. `make demo ARGS="--rebind-after 3
/// --flood"` shows their speed.
fn disturbed(gateway: &str) {
    let options = ["--arms", "packrat", "--rebind-after", "1", "--flood", "--size", "4MB"];
    let options = [&["--profile", "wifi"][..], &options].concat();
    let report = report(&[&options[..], &["--gateway", gateway]].concat());
    for name in ["packrat", "packrat-moved", "packrat-flooded"] {
        let arm = arm(&report, name);
        assert_eq!((&arm["sha256_ok"], &arm["complete"]), (&true.into(), &true.into()), "{arm:#}");
        assert_eq!(arm["assistance"]["sessions"], 1, "{arm:#}");
        assert_eq!(number(arm, "resets"), 0.0, "{arm:#}");
        assert_eq!(number(arm, "paths_moved"), f64::from(name == "packrat-moved"), "{arm:#}");
        assert_eq!(arm["far"]["clients"].as_u64() > Some(1), name == "packrat-flooded", "{arm:#}");
        assert_eq!(number(arm, "flood_datagrams") > 0.0, name == "packrat-flooded", "{arm:#}");
    }
    let flooded = arm(&report, "packrat-flooded");
    assert!(
        number(flooded, "control_received") > number(arm(&report, "packrat"), "control_received")
    );
    assert!(number(flooded, "gateway_memory_growth_bytes") < f64::from(32 << 20), "{flooded:#}");
    assert!(
        number(&report, "moved_to_unmoved") > 0.0
            && number(&report, "flooded_to_undisturbed") > 0.0
    );
}

#[test]
#[ignore = "needs Envoy and Caddy: make test-demo"]
fn a_client_that_moves_and_a_flood_behind_envoy() {
    disturbed("envoy");
}

#[test]
#[ignore = "needs Caddy: make test-demo"]
fn a_moving_client_and_a_flood_behind_the_standalone_gateway() {
    disturbed("standalone");
}

#[test]
#[ignore = "needs Envoy and Caddy: make test-demo"]
fn ctrl_c_leaves_no_process_behind() {
    let (mut child, folder) = running_demo();
    kill_process(pid_of(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // The demo waits for its processes before it ends.
    assert_eq!(processes_of(folder.path()), Vec::<PathBuf>::new());
}

#[test]
#[ignore = "needs Envoy, Caddy and util-linux: make test-demo"]
fn the_kernel_ends_the_processes_of_a_demo_that_was_killed() {
    let (mut child, folder) = running_demo();
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    while !processes_of(folder.path()).is_empty() && killed.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(processes_of(folder.path()), Vec::<PathBuf>::new());
}

/// A demo in the middle of a download, and the directory named on the command lines of its
/// processes.
fn running_demo() -> (Child, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(&["--arms", "lossless", "--keep"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    // Caddy writes its qlog as soon as a client connects, and then everything runs.
    let qlog = folder.path().join("wifi/lossless/qlog");
    while !fs::read_dir(&qlog).is_ok_and(|mut files| files.next().is_some()) {
        assert!(started.elapsed() < PATIENCE, "no download began");
        assert!(child.try_wait().unwrap().is_none(), "the demo has ended");
        thread::sleep(Duration::from_millis(20));
    }
    // Caddy and Envoy, and the demo itself.
    assert!(processes_of(folder.path()).len() >= 3);
    (child, folder)
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// The living processes on whose command line the folder is.
fn processes_of(folder: &Path) -> Vec<PathBuf> {
    let folder = folder.to_str().unwrap();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|process| {
            // It is empty for ended processes that were not waited for.
            fs::read(process.join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(folder))
        })
        .collect()
}

/// Programs that no one here wrote, and that know nothing of Packrat.
#[test]
#[ignore = "needs Caddy, aioquic, libcurl and quic-go: make test-demo"]
fn other_programs_through_an_agent() {
    for client in ["curl", "curl-socks", "aioquic", "quic-go"] {
        let options =
            ["--client", client, "--profile", "wifi", "--arms", "packrat", "--size", "4MB"];
        let options = [&options[..], &["--gateway", "standalone"]].concat();
        repaired_for(client, &options);
    }
}

/// A download of a program through an agent.
fn repaired_for(client: &'static str, options: &[&str]) {
    judge(client, options, |report, is_on_time| {
        let arm = arm(report, "packrat");
        assert_eq!((&arm["sha256_ok"], &arm["complete"]), (&true.into(), &true.into()), "{arm:#}");
        let assistance = &arm["assistance"];
        assert_eq!(assistance["sessions"], 1, "{arm:#}");
        let (holes, in_time) = (number(assistance, "holes"), number(assistance, "filled_in_time"));
        assert!(holes > 50.0, "{client}: {arm:#}");
        assert!(!is_on_time || in_time >= 0.5 * holes, "{client}: {arm:#}");
    });
}

#[test]
#[ignore = "needs wireguard-go, root and /dev/net/tun: make test-demo"]
fn a_tunnels_tcp_through_an_agent() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        println!("SKIPPED: a WireGuard tunnel needs root and /dev/net/tun");
        return;
    }
    let options = ["--client", "wireguard", "--profile", "wifi", "--arms", "packrat"];
    let options = [&options[..], &["--size", "4MB", "--gateway", "standalone"]].concat();
    repaired_for("wireguard-go", &options);
}

/// A flow of 60 datagrams a second: a game's.
#[test]
#[ignore = "needs the standalone gateway: make test-demo"]
fn answers_of_a_game_are_repaired() {
    let options = ["--client", "echo", "--profile", "wifi", "--loss", "0.1", "--repeats", "300"];
    let options = [&options[..], &["--arms", "end-to-end,packrat"]].concat();
    let options = [&options[..], &["--gateway", "standalone"]].concat();
    judge("answers of a game", &options, |report, is_on_time| {
        let lost = |name| {
            let times = &arm(report, name)["times"];
            let counts = (number(times, "attempted"), number(times, "wrong"));
            assert_eq!(counts, (300.0, 0.0), "{times:#}");
            number(times, "answered") - number(times, "completed")
        };
        let (unassisted, assisted) = (lost("end-to-end"), lost("packrat"));
        assert!(unassisted > 10.0, "{report:#}");
        assert!(!is_on_time || assisted * 2.0 < unassisted, "{report:#}");
    });
}

/// Uploads: datagrams that the last mile has lost towards the gateway come again from below QUIC.
/// The hash covers the server's copy. Whether QUIC notices depends on the host's clock: tests in
/// virtual time show that it does not.
fn uploaded(gateway: &str, server: &str) {
    let options = ["--upload", "--arms", "packrat", "--profile", "wifi", "--size", "4MB"];
    let options = [&options[..], &["--gateway", gateway, "--server", server]].concat();
    judge("repairs of an upload", &options, |report, is_on_time| {
        assert_eq!((&report["upload"], &report["server"]), (&true.into(), &server.into()));
        let arm = arm(report, "packrat");
        assert_eq!((&arm["sha256_ok"], &arm["complete"]), (&true.into(), &true.into()), "{arm:#}");
        let assistance = &arm["assistance"];
        assert_eq!(assistance["sessions"], 1, "{arm:#}");
        let (lost, repairs) = (number(arm, "lost_last_mile"), number(arm, "repairs"));
        let named = number(assistance, "upward_missing");
        assert!(lost > 60.0 && number(assistance, "upward_numbered") > 2500.0, "{arm:#}");
        if is_on_time {
            // Some of the lost ones are control datagrams, acknowledgements without a number, and
            // repairs.
            assert!(named * 2.0 >= lost && repairs * 2.0 >= lost, "{arm:#}");
        }
    });
}

#[test]
#[ignore = "needs Envoy and Caddy: make test-demo"]
fn an_upload_to_caddy_through_envoy() {
    uploaded("envoy", "caddy");
}

#[test]
#[ignore = "needs aioquic: make test-demo"]
fn an_upload_to_aioquic_through_the_standalone_gateway() {
    uploaded("standalone", "aioquic");
}
