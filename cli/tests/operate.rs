//! `packrat check`, `stat`, `tap`, `plan`, `diagnose` and their helpers, against a real gateway on
//! the loopback interface.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use flate2::read::GzDecoder;
use packrat_admin::Server;
use packrat_dataplane::log::Silent;
use packrat_dataplane::socket::{bind_reuse_port, local_address};
use packrat_dataplane::{Attachment, Dataplane, Options, route_from_json};
use packrat_real_envoy::free_address;
use serde_json::{Value, json};

use crate::client;

const KEY: &str = "1:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// A gateway with a server behind it.
struct GatewayWithPages {
    dataplane: Arc<Dataplane>,
    admin: Server,
    listen: SocketAddr,
    server: UdpSocket,
    _attachment: Attachment,
}

impl GatewayWithPages {
    fn start(more: Value) -> Self {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut config = json!({
            "route": "web", "gateway": "edge", "namespace": "shop", "endpoints": [server.local_addr().unwrap()],
            "maximum_sessions": 100, "tokens": "optional", "token_keys": [KEY],
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let dataplane =
            Arc::new(Dataplane::start(Options { workers: 1 }, Box::new(Silent)).unwrap());
        let route =
            dataplane.configure(route_from_json(config.to_string().as_bytes()).unwrap()).unwrap();
        let socket = bind_reuse_port("127.0.0.1:0".parse().unwrap()).unwrap();
        let listen = local_address(std::os::fd::AsFd::as_fd(&socket)).unwrap();
        let attachment = dataplane.listen(&route, listen, 0, socket).unwrap();
        let admin = Server::start("127.0.0.1:0".parse().unwrap(), &dataplane).unwrap();
        Self { dataplane, admin, listen, server, _attachment: attachment }
    }

    fn url(&self) -> String {
        format!("http://{}", self.admin.address())
    }

    /// Sends a client's request and receives its answer.
    fn ask(&self) {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(self.listen).unwrap();
        client.send(b"a question that is longer").unwrap();
        let mut buffer = [0; 100];
        let (length, from) = self.server.recv_from(&mut buffer).unwrap();
        self.server.send_to(&buffer[..length], from).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), length);
    }

    fn packrat(&self, arguments: &[&str]) -> Output {
        packrat(&[arguments, &["--gateway", &self.url()]].concat())
    }
}

impl Drop for GatewayWithPages {
    fn drop(&mut self) {
        self.dataplane.shutdown();
    }
}

fn packrat(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_packrat"))
        .args(arguments)
        .env_remove("PACKRAT_GATEWAY")
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn check_passes_for_a_gateway_that_is_well_and_asks_it_over_udp() {
    let gateway = GatewayWithPages::start(json!({}));
    gateway.ask();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("check.xml");
    let summary =
        text(&gateway.packrat(&["check", "--wait", "1", "--junit", file.to_str().unwrap()]));
    assert!(summary.contains("√ gateway: ") && summary.ends_with(" is well.\n"), "{summary}");
    assert!(!summary.contains("has a listener"), "{summary}");
    let junit = std::fs::read_to_string(file).unwrap();
    assert!(junit.contains("<testsuite name=\"gateway\"") && junit.ends_with("</testsuites>\n"));
    let output = gateway.packrat(&["check", "-v"]);
    let said = text(&output);
    for part in [
        "√ can be asked",
        "√ web has a listener",
        "√ packets of 1256 bytes fit",
        "answers a Discover",
    ] {
        assert!(said.contains(part), "{part}:\n{said}");
    }
    assert!(said.ends_with(" is well.\n"), "{said}");
    assert!(!said.contains('\u{1b}'), "colours away from a terminal:\n{said}");
    let all = json_of(&gateway.packrat(&["check", "-o", "json"]));
    assert_eq!(all["ok"], true);
    assert!(
        // Not every machine tracks connections.
        all["checks"].as_array().unwrap().iter().all(|check| {
            check["verdict"] == "passed" || check["name"] == "tracked connections"
        }),
        "{all:#}"
    );
}

/// The command's output in a terminal, made by util-linux' `script`. `None`, with a line about it,
/// without that program.
fn in_a_terminal(arguments: &[&str], environment: &[(&str, &str)]) -> Option<String> {
    let line = [&[env!("CARGO_BIN_EXE_packrat")], arguments].concat().join(" ");
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env_remove("PACKRAT_GATEWAY")
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "{output:?}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "script: {error}");
            println!("SKIPPED: no terminal: install script (util-linux)");
            None
        }
    }
}

#[test]
fn colours_appear_only_in_terminals_that_allow_them() {
    let gateway = GatewayWithPages::start(json!({}));
    let url = gateway.url();
    let check = ["check", "-v", "--gateway", &url];
    let Some(said) = in_a_terminal(&check, &[]) else { return };
    assert!(said.contains("\u{1b}[32m√") && said.contains(" is well."), "{said:?}");
    // As https://no-color.org defines it: any value, unless it is empty.
    for (environment, is_coloured) in [
        (("NO_COLOR", "1"), false),
        (("NO_COLOR", "false"), false),
        (("NO_COLOR", ""), true),
        (("TERM", "dumb"), false),
    ] {
        let said = in_a_terminal(&check, &[environment]).unwrap();
        assert!(said.contains("√ can be asked") || is_coloured, "{environment:?}: {said:?}");
        assert_eq!(said.contains('\u{1b}'), is_coloured, "{environment:?}: {said:?}");
    }
    // Output for machines has no colours, even in a terminal.
    let said = in_a_terminal(&["check", "--gateway", &url, "-o", "json"], &[]).unwrap();
    assert!(
        !said.contains('\u{1b}') && serde_json::from_str::<Value>(&said).unwrap()["ok"] == true,
        "{said:?}"
    );
}

#[test]
fn check_names_the_fault_and_the_remedy() {
    let gateway =
        GatewayWithPages::start(json!({ "assist": false, "maximum_sessions": 100_000_000 }));
    let said = text(&gateway.packrat(&["check"]));
    for part in [
        "! web assists clients",
        "set assist: true",
        "because",
        "the gateway refuses to assist",
        "to look at",
    ] {
        assert!(said.contains(part), "{part}:\n{said}");
    }
    // No process listens there.
    let closed = free_address("127.0.0.1").to_string();
    let output = gateway.packrat(&["check", "--probe", &closed]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("× "), "{output:?}");
    let silent = free_address("127.0.0.1");
    let output = packrat(&["check", "--gateway", &format!("http://{silent}"), "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json_of(&output)["ok"], false);
}

#[test]
fn stat_shows_the_figures_of_a_gateway() {
    let gateway = GatewayWithPages::start(json!({}));
    gateway.ask();
    let said = text(&gateway.packrat(&["stat", "--window", "0.2"]));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("ROUTE") && lines[0].contains("HIDDEN"), "{said}");
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(words[..3], ["web", "1", "0"], "{said}");
    let wide = text(&gateway.packrat(&["stat", "--window", "0.2", "-o", "wide"]));
    assert!(wide.lines().next().unwrap().contains("OVERHEAD"), "{wide}");
    let all = json_of(&gateway.packrat(&["stat", "--window", "0.2", "-o", "json"]));
    let route = &all["routes"][0];
    assert_eq!(
        (&route["route"], &route["namespace"], &route["sessions"]),
        (&json!("web"), &json!("shop"), &json!(1.0))
    );
    assert_eq!(route["totals"]["packrat_to_client_datagrams_total"], 1.0);
    assert!(route["far_round_trip_seconds"].as_f64().unwrap() > 0.0, "{route:#}");
    let output = gateway.packrat(&["stat", "--window", "0.2", "--route", "other"]);
    assert!(!output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no route \"other\"; it has web"),
        "{output:?}"
    );
}

#[test]
fn tap_shows_events_without_addresses() {
    let gateway = GatewayWithPages::start(json!({}));
    gateway.ask();
    let said =
        text(&gateway.packrat(&["tap", "--past", "--lines", "1", "--event", "session_opened"]));
    assert!(said.contains("session_opened") && said.contains("route=web"), "{said}");
    let line = json_of(&gateway.packrat(&[
        "tap",
        "--past",
        "--lines",
        "1",
        "--event",
        "session_opened",
        "-o",
        "json",
    ]));
    assert_eq!((&line["gateway"], &line["namespace"]), (&json!("edge"), &json!("shop")));
    assert_eq!(line["client"].as_str().unwrap().len(), 16, "{line}");
}

#[test]
fn tap_tells_why_a_datagram_of_a_session_was_not_repaired() {
    let refuses = GatewayWithPages::start(json!({ "repair_budget": 0.0 }));
    let (mut client, upstream) = client::connect(refuses.listen, &refuses.server);
    let listed: Value = serde_json::from_str(
        &ureq::get(format!("{}/packrat/sessions", refuses.url()))
            .call()
            .unwrap()
            .body_mut()
            .read_to_string()
            .unwrap(),
    )
    .unwrap();
    let session = listed["sessions"][0]["session"].to_string();
    let unknown = refuses.packrat(&["tap", "--session", "1000000"]);
    assert!(!unknown.status.success());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no session 1000000"), "{unknown:?}");
    let tap = |more: &[&'static str]| {
        let (session, url) = (session.clone(), refuses.url());
        let more = more.to_vec();
        std::thread::spawn(move || {
            let common = ["tap", "--session", &session, "--past", "--gateway", &url];
            text(&packrat(&[&common[..], &more].concat()))
        })
    };
    let lines = tap(&["--event", "given_up", "--lines", "1", "-o", "json"]);
    let said = tap(&["--event", "repair_refused", "--event", "given_up", "--lines", "1"]);
    // When more and more datagrams are lost, both taps have seen one that was not repaired.
    let mut first = 0;
    while !lines.is_finished() || !said.is_finished() {
        client::transfer(&mut client, &refuses.server, upstream, first..first + 100);
        first += 100;
    }
    let line: Value = serde_json::from_str(&lines.join().unwrap()).unwrap();
    assert_eq!((&line["event"], &line["route"]), (&json!("given_up"), &json!("web")));
    assert_eq!(line["session"].to_string(), session);
    assert!(line["datagram"].is_u64() && line["transmissions"].is_u64(), "{line}");
    let reason = line["reason"].as_str().unwrap();
    assert!(["too_old", "queue_stands", "bytes_gone"].contains(&reason), "{line}");
    let said = said.join().unwrap();
    assert!(said.contains(" datagram=") && said.contains(" reason="), "{said}");
    // Without the session there is nothing to wait for.
    drop(client);
}

#[test]
fn explain_says_why_a_client_has_no_benefit() {
    let gateway = GatewayWithPages::start(json!({ "holdout": 0.5, "static_key": "11".repeat(32) }));
    let explain = |client: &str| gateway.packrat(&["explain", "--client", client]);
    let nowhere = explain("192.0.2.77");
    assert!(!nowhere.status.success());
    let said = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(said.contains("no gateway has a session of client \"192.0.2.77\""), "{said}");

    // One that never asks, and others until one is assisted and one is held out.
    let silent = UdpSocket::bind("127.0.0.99:0").unwrap();
    silent.send_to(b"a question", gateway.listen).unwrap();
    gateway.server.recv_from(&mut [0; 100]).unwrap();
    let (mut assisted, mut held_out) = (None, None);
    let mut clients = Vec::new();
    for last in 1..60 {
        let local = format!("127.0.0.{last}:0");
        let config = packrat_client::ClientConfig::default();
        let mut client = client::Client::from(&local, gateway.listen, config);
        client.socket.send(b"\xc3hello").unwrap();
        let (_, upstream) = gateway.server.recv_from(&mut [0; 100]).unwrap();
        client.take_part_until("an answer", |client| {
            let stats = client.assist.stats();
            stats.refusal.is_some() || stats.reports > 0
        });
        let address = client.socket.local_addr().unwrap();
        if client.assist.stats().refusal.is_some() {
            held_out.get_or_insert(address);
        } else if assisted.is_none() {
            client::transfer(&mut client, &gateway.server, upstream, 0..200);
            assisted = Some(address);
        }
        clients.push(client);
        if assisted.is_some() && held_out.is_some() {
            break;
        }
    }
    let said = text(&explain(&held_out.expect("one of 59").to_string()));
    assert!(said.contains("refused for comparison: 50.0% of the clients"), "{said}");
    let said = text(&explain(&assisted.expect("one of 59").ip().to_string()));
    assert!(said.contains("of that is repaired"), "{said}");
    let said = text(&explain(&silent.local_addr().unwrap().to_string()));
    assert!(said.contains("has not asked"), "{said}");
    // By the number in log lines, which is in the answer.
    let by =
        |client: &str| json_of(&gateway.packrat(&["explain", "--client", client, "-o", "json"]));
    let found = by(&assisted.unwrap().to_string());
    let number = found["sessions"][0]["session"]["session"].to_string();
    assert_eq!(by(&number)["sessions"][0]["session"]["session"].to_string(), number);
    assert!(by(&number)["sessions"][0]["reasons"].as_array().is_some_and(|all| !all.is_empty()));
}

#[test]
fn diagnose_collects_and_leaves_secrets_out() {
    let gateway = GatewayWithPages::start(json!({}));
    gateway.ask();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bundle.tar.gz");
    text(&gateway.packrat(&["diagnose", "--file", file.to_str().unwrap()]));
    let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(file).unwrap()));
    let mut names = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        names.push(entry.path().unwrap().display().to_string());
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        assert!(!content.is_empty());
        assert!(!content.contains("00112233445566778899aabb"), "a key in {names:?}");
    }
    for name in
        ["status.json", "sessions.json", "events.json", "metrics.txt", "check.json", "about.json"]
    {
        assert!(names.contains(&format!("packrat-diagnose/{name}")), "{names:?}");
    }
}

#[test]
fn plan_says_whether_it_pays() {
    let path = ["plan", "--last-mile-ms", "4", "--last-mile-loss", "0.04", "--far-ms", "60"];
    let said = text(&packrat(&path));
    assert!(said.contains("It pays"), "{said}");
    // Without loss there is nothing to gain, and the answer gives the values that bound it.
    let lossless = ["--last-mile-loss", "0", "-o", "json"];
    let path = ["plan", "--last-mile-ms", "4", "--far-ms", "60"];
    let lossless = json_of(&packrat(&[&path[..], &lossless].concat()));
    assert_eq!((&lossless["pays"], &lossless["advice"]), (&json!(false), &json!("leave-alone")));
    let with = &lossless["with_bits_per_second"];
    assert!(with["p10"].as_f64() <= with["p50"].as_f64(), "{with}");
    assert!(with["p50"].as_f64() <= with["p90"].as_f64(), "{with}");
    // A gateway without any clients so far.
    let gateway = GatewayWithPages::start(json!({}));
    let output = gateway.packrat(&["plan"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Route web has not measured the last mile's round trip"), "{said}");
    // A client without the SDK shows only the distance to the server; the other values can be
    // given.
    gateway.ask();
    let output = gateway.packrat(&["plan", "--last-mile-loss", "0.04"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("give --last-mile-ms.") && !said.contains("far segment"), "{said}");
    let missing = json_of(&gateway.packrat(&["plan", "-o", "json"]));
    assert_eq!((&missing["route"], &missing["pays"]), (&json!("web"), &Value::Null));
    assert_eq!(
        missing["not_measured"],
        json!(["the last mile's round trip", "the last mile's loss"])
    );
    let given = ["plan", "--last-mile-ms", "4", "--last-mile-loss", "0.04"];
    let said = text(&gateway.packrat(&given));
    assert!(said.contains("Route web") && said.contains("(measured), 0% lost (given)"), "{said}");
    let sources = &json_of(&gateway.packrat(&[&given[..], &["-o", "json"]].concat()))["sources"];
    assert_eq!(
        (&sources["far_round_trip"], &sources["last_mile_loss"]),
        (&json!("measured"), &json!("given"))
    );
    let output = gateway.packrat(&["plan", "--route", "other"]);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no route \"other\"; it has web"),
        "{output:?}"
    );
}

#[test]
fn version_completions_and_manual() {
    let gateway = GatewayWithPages::start(json!({}));
    let versions = json_of(&gateway.packrat(&["version", "-o", "json"]));
    assert_eq!(versions["command"], versions["gateway"]);
    assert_eq!(versions["protocol"], "packrat/2");
    for shell in ["bash", "elvish", "fish", "zsh"] {
        let said = text(&packrat(&["completions", shell]));
        assert!(said.contains("diagnose") && said.contains("gateway"), "{shell}");
    }
    assert!(text(&packrat(&["man"])).contains(".TH packrat 1"));
    let folder = tempfile::tempdir().unwrap();
    text(&packrat(&["man", "--folder", folder.path().to_str().unwrap()]));
    assert!(fs::read_to_string(folder.path().join("packrat-check.1")).unwrap().contains("probe"));
}

#[test]
fn top_needs_a_terminal_and_a_gateway() {
    let gateway = GatewayWithPages::start(json!({}));
    let output = gateway.packrat(&["top"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("packrat stat -o json"), "{output:?}");
}
