//! A real Loki for tests.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use packrat_real_envoy::free_address;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::address::encoded;
use crate::place::{PATIENCE, root};

/// Loki as `make` has built it. `None`, with a line about it, when it is missing; with `CI=true`
/// that is a failure.
pub(crate) fn find_loki() -> Option<PathBuf> {
    let program = root().join(".packrat/loki/loki");
    if program.exists() {
        return Some(program);
    }
    let hint = "no Loki: run tools/install-loki";
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
    println!("SKIPPED: {hint}");
    None
}

/// A Loki process; ends when it is dropped.
pub(crate) struct Loki {
    process: Child,
    address: SocketAddr,
    folder: TempDir,
    agent: ureq::Agent,
}

impl Loki {
    pub(crate) fn start(program: &PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (http, grpc) = (free_address("127.0.0.1"), free_address("127.0.0.1"));
        let data = folder.path().join("data");
        // Everything is on the loopback interface. Without the addresses of frontend and worker,
        // queries wait forever.
        let configuration = format!(
            r#"
auth_enabled: false
server: {{http_listen_address: 127.0.0.1, http_listen_port: {http}, grpc_listen_address: 127.0.0.1, grpc_listen_port: {grpc}}}
common:
  path_prefix: {data}
  replication_factor: 1
  instance_addr: 127.0.0.1
  ring: {{kvstore: {{store: inmemory}}, instance_addr: 127.0.0.1}}
  storage: {{filesystem: {{chunks_directory: {data}/chunks, rules_directory: {data}/rules}}}}
schema_config: {{configs: [{{from: 2024-01-01, store: tsdb, object_store: filesystem, schema: v13, index: {{prefix: index_, period: 24h}}}}]}}
frontend: {{address: 127.0.0.1}}
frontend_worker: {{frontend_address: "127.0.0.1:{grpc}"}}
memberlist: {{bind_addr: [127.0.0.1], bind_port: 0, advertise_addr: 127.0.0.1}}
ingester: {{lifecycler: {{min_ready_duration: 0s, final_sleep: 0s, address: 127.0.0.1}}}}
analytics: {{reporting_enabled: false}}
"#,
            http = http.port(),
            grpc = grpc.port(),
            data = data.display(),
        );
        let path = folder.path().join("loki.yaml");
        fs::write(&path, configuration).unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let process = Command::new(program)
            .arg(format!("-config.file={}", path.display()))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .build()
            .into();
        let loki = Self { process, address: http, folder, agent };
        let begun = Instant::now();
        while !loki
            .get("/ready")
            .is_some_and(|answer| answer.contains("ready") && !answer.contains("not ready"))
        {
            assert!(begun.elapsed() < PATIENCE, "Loki does not become ready:\n{}", loki.log());
            sleep(Duration::from_millis(200));
        }
        loki
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut answer = self.agent.get(format!("http://{}{path}", self.address)).call().ok()?;
        answer.body_mut().read_to_string().ok()
    }

    /// Pushes lines as the pipeline of the Alloy configuration does: JSON lines only, with
    /// few labels.
    pub(crate) fn push(&self, app: &str, lines: &str) -> usize {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let names = labels();
        let mut streams = Vec::new();
        for (number, line) in lines.lines().enumerate() {
            let Ok(Value::Object(fields)) = serde_json::from_str(line) else { continue };
            let mut labels = json!({ "app": app });
            for label in &names {
                if let Some(value) = fields.get(label).and_then(Value::as_str) {
                    labels[label] = value.into();
                }
            }
            streams.push(
                json!({ "stream": labels, "values": [[(now + number as u128).to_string(), line]] }),
            );
        }
        let count = streams.len();
        if count > 0 {
            let body = json!({ "streams": streams }).to_string();
            let mut answer = self
                .agent
                .post(format!("http://{}/loki/api/v1/push", self.address))
                .content_type("application/json")
                .send(&body)
                .unwrap();
            let said = answer.body_mut().read_to_string().unwrap_or_default();
            assert!(answer.status().is_success(), "{}: {said}", answer.status());
        }
        count
    }

    /// The lines that match a query.
    pub(crate) fn query(&self, query: &str) -> Vec<String> {
        let path =
            format!("/loki/api/v1/query_range?limit=1000&since=10m&query={}", encoded(query));
        let answer =
            self.get(&path).unwrap_or_else(|| panic!("no answer to {query}:\n{}", self.log()));
        let answer: Value = serde_json::from_str(&answer)
            .unwrap_or_else(|error| panic!("{query}: {error}: {answer}"));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        let streams = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        let values = streams
            .iter()
            .flat_map(|stream| stream["values"].as_array().cloned().unwrap_or_default());
        values.map(|value| value[1].as_str().unwrap().to_owned()).collect()
    }

    /// The lines that match a query, once there are some.
    pub(crate) fn wait_for(&self, query: &str) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let lines = self.query(query);
            if !lines.is_empty() || begun.elapsed() > PATIENCE {
                return lines;
            }
            sleep(Duration::from_millis(200));
        }
    }
}

/// The labels that the Alloy configuration derives from fields.
fn labels() -> Vec<String> {
    let text = fs::read_to_string(root().join("telemetry/alloy/config.alloy")).unwrap();
    let stage = text.split("stage.labels {").nth(1).unwrap().split('}').next().unwrap();
    let values = stage.split('{').nth(1).unwrap();
    let names: Vec<String> =
        values.split(',').map(|pair| pair.split('=').next().unwrap().trim().to_owned()).collect();
    assert!(names.iter().any(|name| name == "event"), "{names:?}");
    names
}

impl Drop for Loki {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
