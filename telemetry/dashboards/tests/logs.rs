//! Every LogQL query of every dashboard against a real Loki with the log lines of a real Envoy, of
//! the gateway without Envoy, and of the operator. `make test-loki` builds and installs the
//! programs.

use std::fs;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use packrat_dashboards::Definitions;
use packrat_dashboards::queries::{all, resolved};
use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::client;
use crate::loki::{Loki, find_loki};
use crate::place::PATIENCE;
use crate::scene::{Demo, IdleEnvoy, built};

/// `packrat-gateway` in front of a server that does not exist; ends when it is dropped.
struct Standalone {
    process: Child,
    folder: TempDir,
}

impl Standalone {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = Command::new(built().join("packrat-gateway"))
            .args(["--listen", "127.0.0.1:0", "--endpoint", "127.0.0.1:9", "--workers", "1"])
            .stdin(Stdio::null())
            .stdout(fs::File::create(folder.path().join("log")).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, folder }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The fields of the first line with this event; calls `meanwhile` while it waits.
    fn wait_for(&self, event: &str, mut meanwhile: impl FnMut()) -> Map<String, Value> {
        let begun = Instant::now();
        loop {
            let log = self.log();
            let lines = log
                .lines()
                .filter_map(|line| serde_json::from_str::<Map<String, Value>>(line).ok());
            if let Some(line) = lines.into_iter().find(|line| line["event"] == event) {
                return line;
            }
            assert!(begun.elapsed() < PATIENCE, "no {event}: {log}");
            meanwhile();
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Standalone {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An assisted client that has lost its state requests a Reset, and the gateway begins a new epoch.
fn reset(idle: &IdleEnvoy) {
    let (mut client, _) = client::connect(idle.listener(), idle.server());
    let now = client.now();
    client.assist.reset(now);
    client.take_part_until("the gateway's line of the Reset", |_| {
        idle.log().contains("\"event\":\"reset\"")
    });
}

/// The operator's log when it finds no API server.
fn operator() -> String {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let configuration = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": "https://127.0.0.1:9" } }],
        "users": [{ "name": "u", "user": { "token": "none" } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    });
    fs::write(&kubeconfig, configuration.to_string()).unwrap();
    let output = Command::new(built().join("packrat-operator"))
        .args(["run", "--namespace", "test", "--replica", "test"])
        .args([
            "--discovery-listen",
            "127.0.0.1:0",
            "--health-listen",
            "127.0.0.1:0",
            "--webhook-listen",
            "127.0.0.1:0",
        ])
        .env("KUBECONFIG", kubeconfig)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs Loki, Envoy and Caddy: make test-loki"]
fn every_log_query_finds_lines() {
    let Some(program) = find_loki() else { return };
    let demo = Demo::start();
    let mut idle = IdleEnvoy::start();
    let standalone = Standalone::start();
    let loki = Loki::start(&program);

    let listen = standalone.wait_for("ready", || {})["listen"].as_str().unwrap().to_owned();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    standalone.wait_for("upstream_error", || drop(client.send_to(b"is anybody there?", &listen)));
    reset(&idle);
    idle.refuse_a_configuration();
    let begun = Instant::now();
    while !(idle.log().contains("configuration_refused") && demo.log().contains("assistance_begun"))
    {
        assert!(begun.elapsed() < PATIENCE, "{}\n{}", idle.log(), demo.log());
        sleep(Duration::from_millis(100));
    }
    let pushed: usize = [demo.log(), idle.log(), standalone.log()]
        .iter()
        .map(|lines| loki.push("packrat", lines))
        .sum();
    assert!(pushed > 8, "{pushed} lines");
    assert!(loki.push("packrat-operator", &operator()) > 0);

    let queries: Vec<_> =
        all(&Definitions::read().unwrap()).into_iter().filter(|query| query.is_logs).collect();
    assert!(queries.len() >= 4, "{queries:?}");
    for query in queries {
        let lines = loki.wait_for(&resolved(&query.expression, "10m"));
        assert!(!lines.is_empty(), "{}: nothing for {}", query.place, query.expression);
    }
    // As docs/METRICS.md describes.
    let resets = loki.wait_for("{app=\"packrat\"} | json | event=\"reset\"");
    let [line] = resets.as_slice() else { panic!("{resets:?}") };
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["side"], &line["route"]), (&"client".into(), &"idle".into()), "{line}");
    assert!(line["reason"].is_string() && line["epoch"] == 1, "{line}");
    // The query leaves out events of another route.
    assert!(loki.query("{app=\"packrat\"} | json | event=\"reset\" | route=\"other\"").is_empty());
    // No line contains a client's address.
    let hashed = loki.wait_for("{app=\"packrat\"} | json | event=\"session_opened\"");
    for line in hashed {
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["client"].as_str().unwrap().len(), 16, "{line}");
    }
}
