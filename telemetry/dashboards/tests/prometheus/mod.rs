//! A real Prometheus for tests.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use packrat_real_envoy::free_address;
use serde_json::Value;
use tempfile::TempDir;

use crate::address::encoded;
use crate::place::{PATIENCE, root};

pub(crate) struct Tools {
    folder: PathBuf,
}

/// Prometheus and promtool as `make` has unpacked them, or as they are installed. `None`, with a
/// line on the standard error, when they are missing; with `CI=true` that is a failure.
pub(crate) fn find_tools() -> Option<Tools> {
    let unpacked = root().join(".packrat/prometheus/usr/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::iter::once(unpacked)
        .chain(std::env::split_paths(&path))
        .find(|folder| folder.join("prometheus").exists() && folder.join("promtool").exists());
    if let Some(folder) = found {
        return Some(Tools { folder });
    }
    let hint = "no prometheus and promtool: run tools/install-telemetry-parts";
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
    println!("SKIPPED: {hint}");
    None
}

impl Tools {
    pub(crate) fn promtool(&self, arguments: &[&str]) {
        let output = Command::new(self.folder.join("promtool"))
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {arguments:?}:\n{said}");
    }
}

/// A Prometheus process; ends when it is dropped.
pub(crate) struct Prometheus {
    process: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Prometheus {
    /// Scrapes the administration ports of Envoys each second, with the committed rules. Alerts
    /// need no patience here.
    pub(crate) fn start(tools: &Tools, envoys: &[SocketAddr]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let rules = root().join("charts/packrat/rules");
        for name in ["packrat-recording.yaml", "packrat-alerts.yaml"] {
            let text = fs::read_to_string(rules.join(name)).unwrap();
            let lines = text
                .lines()
                .map(|line| if line.starts_with("    for: ") { "    for: 0s" } else { line });
            fs::write(folder.path().join(name), lines.collect::<Vec<_>>().join("\n")).unwrap();
        }
        let targets: Vec<String> = envoys.iter().map(|address| format!("\"{address}\"")).collect();
        let configuration = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\n\
             rule_files: [packrat-recording.yaml, packrat-alerts.yaml]\n\
             scrape_configs:\n- job_name: packrat-gateways\n  honor_labels: true\n  metrics_path: /stats/prometheus\n  \
             static_configs: [{{ targets: [{}] }}]\n",
            targets.join(", ")
        );
        fs::write(folder.path().join("prometheus.yml"), configuration).unwrap();
        let address = free_address("127.0.0.1");
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let process = Command::new(tools.folder.join("prometheus"))
            .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let prometheus = Self { process, address, folder };
        let begun = Instant::now();
        while !request(address, "/-/ready").is_some_and(|answer| answer.starts_with("HTTP/1.0 200"))
        {
            assert!(begun.elapsed() < PATIENCE, "Prometheus does not start:\n{}", prometheus.log());
            sleep(Duration::from_millis(100));
        }
        prometheus
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn result(&self, expression: &str, at: Option<f64>) -> Vec<Value> {
        let time = at.map(|at| format!("&time={at:.3}")).unwrap_or_default();
        let path = format!("/api/v1/query?query={}{time}", encoded(expression));
        let answer =
            request(self.address, &path).unwrap_or_else(|| panic!("no answer to {expression}"));
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        let body: Value = serde_json::from_str(body)
            .unwrap_or_else(|error| panic!("{expression}: {error}: {body}"));
        assert_eq!(body["status"], "success", "{expression}: {body}");
        body["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// The current values of an expression.
    pub(crate) fn query(&self, expression: &str) -> Vec<f64> {
        self.result(expression, None).iter().map(number).collect()
    }

    pub(crate) fn wait_for(&self, what: &str, expression: &str) {
        let begun = Instant::now();
        while self.query(expression).is_empty() {
            assert!(
                begun.elapsed() < PATIENCE,
                "waited in vain for {what}: {expression}\n{}",
                self.log()
            );
            sleep(Duration::from_millis(200));
        }
    }

    pub(crate) fn wait_for_alert(&self, name: &str) {
        self.wait_for(name, &format!("ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}}"));
    }

    /// The values of an expression at a time of [`Self::readings`].
    pub(crate) fn query_at(&self, expression: &str, at: f64) -> Vec<f64> {
        self.result(expression, Some(at)).iter().map(number).collect()
    }

    /// Two readings of a route's series: one `apart` ago, and one now; and the time of that one.
    pub(crate) fn readings(
        &self,
        apart: Duration,
        route: &str,
    ) -> (HashMap<String, f64>, HashMap<String, f64>, f64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let reading = |at: f64| {
            let all =
                self.result(&format!("{{__name__=~\"packrat_.*\", route=\"{route}\"}}"), Some(at));
            all.iter().map(|sample| (series(&sample["metric"]), number(sample))).collect()
        };
        (reading(now - apart.as_secs_f64()), reading(now), now)
    }
}

/// The series, written as in its definition.
fn series(metric: &Value) -> String {
    let labels: Vec<String> = ["side", "reason", "result"]
        .iter()
        .filter_map(|label| Some(format!("{label}=\"{}\"", metric.get(label)?.as_str()?)))
        .collect();
    let name = metric["__name__"].as_str().unwrap();
    if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) }
}

fn number(sample: &Value) -> f64 {
    sample["value"][1].as_str().unwrap().parse().unwrap()
}

/// HTTP/1.0, so that answers are never chunked.
fn request(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
