//! Downloads through real gateways while clients move or gateways restart.
//!
//! They need the programs that `make demo` installs, and the gateways next to the command: `make
//! test-demo` provides both.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use packrat_emulation::path::{LinkConfig, LossModel, PathConfig, UdpPath};
use packrat_real_envoy::free_address;
use packrat_wire::hexadecimal;
use serde_json::{Value, json};
use server::{FILE_SIZE, Server, file};
use sha2::{Digest, Sha256};

use crate::server;

/// Generous: no test here depends on speed.
const PATIENCE: Duration = Duration::from_secs(120);
/// The download takes some seconds at this rate, in bits per second.
const RATE: u64 = 8_000_000;
/// Attempts to make an event happen in the middle of a download, each at half the previous rate.
const ATTEMPTS: u32 = 4;
/// Bytes that have passed the last mile when the event happens.
const MIDDLE: u64 = FILE_SIZE as u64 / 3;
const KEY: &str = "5bf92a1d64c0b8e3f7a1095cd2e4861b3a7f0c9d8e6b5a4132f1e0d9c8b7a697";

fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Standalone,
    Envoy,
}

/// A running gateway; killed when it is dropped.
struct RunningGateway {
    kind: Kind,
    process: Child,
    folder: PathBuf,
    address: SocketAddr,
    metrics: SocketAddr,
    endpoint: SocketAddr,
}

impl RunningGateway {
    fn start(kind: Kind, folder: &Path, endpoint: SocketAddr) -> Self {
        let (address, metrics) = (free_address("127.0.0.1"), free_address("127.0.0.1"));
        let process = Self::spawn(kind, folder, address, metrics, endpoint);
        let gateway = Self { kind, process, folder: folder.to_owned(), address, metrics, endpoint };
        gateway.wait_until_ready();
        gateway
    }

    fn wait_until_ready(&self) {
        wait_for("the gateway", || self.metric("packrat_sessions"));
    }

    fn spawn(
        kind: Kind,
        folder: &Path,
        address: SocketAddr,
        metrics: SocketAddr,
        endpoint: SocketAddr,
    ) -> Child {
        let built = Path::new(env!("CARGO_BIN_EXE_packrat")).parent().unwrap();
        let log =
            File::options().create(true).append(true).open(folder.join("gateway.log")).unwrap();
        let mut command = match kind {
            Kind::Standalone => {
                let program = built.join("packrat-gateway");
                assert!(program.exists(), "run `cargo build -p packrat-gateway` first");
                let configuration = folder.join("route.json");
                fs::write(&configuration, route(endpoint, 0.25).to_string()).unwrap();
                let mut command = Command::new(program);
                command.arg("--config").arg(configuration);
                command.args(["--listen", &address.to_string(), "--metrics", &metrics.to_string()]);
                command
            }
            Kind::Envoy => {
                let installed =
                    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.packrat/venv/bin/envoy");
                let program = std::env::var_os("PACKRAT_ENVOY").map_or(installed, PathBuf::from);
                assert!(
                    program.exists(),
                    "no Envoy at {}: run `make demo` once",
                    program.display()
                );
                assert!(
                    built.join("libpackrat_envoy.so").exists(),
                    "run `cargo build -p packrat-envoy` first"
                );
                fs::create_dir_all(folder.join("listeners")).unwrap();
                write_listener(folder, address, endpoint, 0, 0.25);
                let bootstrap = folder.join("bootstrap.json");
                fs::write(&bootstrap, envoy_bootstrap(folder, metrics).to_string()).unwrap();
                let mut command = Command::new(program);
                command.arg("--config-path").arg(bootstrap);
                command.args([
                    "--disable-hot-restart",
                    "--concurrency",
                    "2",
                    "--log-level",
                    "warning",
                ]);
                command.args(["--component-log-level", "dynamic_modules:info"]);
                command.env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", built);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    /// Kills the gateway without a warning, and starts it again on the same port.
    fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process =
            Self::spawn(self.kind, &self.folder, self.address, self.metrics, self.endpoint);
        self.wait_until_ready();
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.metrics).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    fn metric(&self, name: &str) -> Option<u64> {
        let path = if self.kind == Kind::Envoy { "/stats/prometheus" } else { "/metrics" };
        let mut series = String::new();
        let (name, labels) = name
            .split_once('{')
            .map_or((name, ""), |(name, labels)| (name, labels.trim_end_matches('}')));
        let more = if labels.is_empty() { String::new() } else { format!(",{labels}") };
        write!(series, "{name}{{route=\"web\",gateway=\"edge\",namespace=\"default\"{more}}} ")
            .unwrap();
        self.get(path)?.lines().find_map(|line| line.strip_prefix(&series)?.trim().parse().ok())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("gateway.log")).unwrap_or_default()
    }
}

impl Drop for RunningGateway {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("the gateway's log:\n{}", self.log());
        }
    }
}

fn route(endpoint: SocketAddr, repair_budget: f64) -> Value {
    json!({
        "route": "web",
        "gateway": "edge",
        "endpoints": [endpoint.to_string()],
        "static_key": KEY,
        "repair_budget": repair_budget,
    })
}

/// Puts the listener into the watched directory, in one step.
fn write_listener(
    folder: &Path,
    address: SocketAddr,
    endpoint: SocketAddr,
    version: u32,
    repair_budget: f64,
) {
    let filter = json!({
        "name": "packrat",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.udp.dynamic_modules.v3.DynamicModuleUdpListenerFilter",
            "dynamic_module_config": module(),
            "filter_name": "packrat",
            "filter_config": {
                "@type": "type.googleapis.com/google.protobuf.Struct",
                "value": route(endpoint, repair_budget),
            },
        },
    });
    let listener = json!({
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "web",
        "address": { "socket_address": {
            "protocol": "UDP", "address": address.ip().to_string(), "port_value": address.port(),
        } },
        "udp_listener_config": { "downstream_socket_config": { "prefer_gro": true } },
        "listener_filters": [filter],
    });
    let staged = folder.join("staged.json");
    fs::write(
        &staged,
        json!({ "version_info": version.to_string(), "resources": [listener] }).to_string(),
    )
    .unwrap();
    fs::rename(staged, folder.join("listeners/listeners.json")).unwrap();
}

fn module() -> Value {
    json!({ "name": "packrat_envoy", "do_not_close": true, "metrics_namespace": "packrat" })
}

fn envoy_bootstrap(folder: &Path, admin: SocketAddr) -> Value {
    let listeners = folder.join("listeners");
    let names =
        json!({ "envoy.reloadable_features.dynamic_modules_strip_custom_stat_prefix": true });
    json!({
        "node": { "id": "test", "cluster": "test" },
        "admin": { "address": { "socket_address": {
            "address": admin.ip().to_string(), "port_value": admin.port(),
        } } },
        "layered_runtime": { "layers": [{ "name": "packrat", "static_layer": names }] },
        "bootstrap_extensions": [{
            "name": "packrat",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtension",
                "dynamic_module_config": module(),
                "extension_name": "packrat",
            },
        }],
        "dynamic_resources": { "lds_config": {
            "resource_api_version": "V3",
            "path_config_source": {
                "path": listeners.join("listeners.json"),
                "watched_directory": { "path": listeners },
            },
        } },
    })
}

/// A server, a gateway, and the network between them and the client.
struct Scene {
    last_mile: UdpPath,
    gateway: RunningGateway,
    far: UdpPath,
    server: Server,
    folder: tempfile::TempDir,
}

impl Scene {
    /// A download behind such a gateway with an event in its middle: its scene, and the client's
    /// report.
    fn of(kind: Kind, mut happening: impl FnMut(&mut Self)) -> (Self, Value) {
        for attempt in 0..ATTEMPTS {
            let mut scene = Self::build(kind, RATE >> attempt);
            if let Some(report) = scene.download(&mut happening) {
                return (scene, report);
            }
        }
        panic!("each download was over before anything happened");
    }

    fn build(kind: Kind, rate: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(&["localhost"], false);
        let link = |milliseconds, seed| {
            LinkConfig::new(Duration::from_millis(milliseconds), rate).with_seed(seed)
        };
        let far = UdpPath::start(PathConfig {
            server: server.address,
            upward: link(15, 1),
            downward: link(15, 2),
        })
        .unwrap();
        let gateway = RunningGateway::start(kind, folder.path(), far.address());
        let last_mile = UdpPath::start(PathConfig {
            server: gateway.address,
            upward: link(5, 3),
            downward: link(5, 4).with_loss(LossModel::new(0.03, 1.0)),
        })
        .unwrap();
        Self { last_mile, gateway, far, server, folder }
    }

    /// Downloads, and calls `happening` when a third has arrived. Returns the client's report,
    /// after the checks that hold for all downloads; `None` if it was over too soon.
    fn download(&mut self, happening: impl FnOnce(&mut Self)) -> Option<Value> {
        let authority = self.server.authority.to_str().unwrap().to_owned();
        let mut client = Command::new(env!("CARGO_BIN_EXE_packrat"))
            .current_dir(self.folder.path())
            .env("XDG_STATE_HOME", self.folder.path())
            .args(["get", "--json", "--silent", "--cacert", &authority, "-o", "downloaded"])
            .args(["--connect-to", &self.last_mile.address().to_string()])
            .args(["--max-time", &PATIENCE.as_secs().to_string()])
            .arg(self.server.url("/file"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        wait_for("the middle of the download", || {
            let passed = self.last_mile.report().downward.link.delivered_bytes;
            (passed > MIDDLE).then_some(())
        });
        happening(self);
        let is_in_the_middle = client.try_wait().unwrap().is_none();
        let output = client.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(output.status.success(), "{report:#}");
        let expected: String = hexadecimal::encode(&Sha256::digest(file()));
        assert_eq!(report["sha256"], expected);
        assert_eq!(report["bytes"], FILE_SIZE);
        assert_eq!(fs::read(self.folder.path().join("downloaded")).unwrap(), file());
        assert_eq!(
            self.far.report().clients,
            1,
            "the server has seen another client: {}",
            self.gateway.log()
        );
        assert_eq!(report["assist"]["resets"], 0, "{report:#}");
        is_in_the_middle.then_some(report)
    }

    fn repairs(&self) -> u64 {
        self.gateway.metric("packrat_repairs_total").unwrap()
    }

    /// Checks that the gateway has repaired more than `before`.
    fn assert_repairs_go_on(&self, before: u64) {
        // Envoy's figures are up to half a second old.
        wait_for("repairs after what has happened", || {
            (self.repairs() >= before + 5).then_some(())
        });
    }
}

fn rebinding(kind: Kind) {
    let mut before = 0;
    let (scene, report) = Scene::of(kind, |scene| {
        before = scene.repairs();
        scene.last_mile.rebind();
    });
    assert_eq!(scene.last_mile.report().clients, 2);
    assert_eq!(report["assist"]["sessions"], 1, "{report:#}");
    scene.assert_repairs_go_on(before);
    let gateway = &scene.gateway;
    assert_eq!(gateway.metric("packrat_paths_moved_total"), Some(1), "{}", gateway.log());
    assert_eq!(gateway.metric("packrat_sessions_opened_total"), Some(1), "{}", gateway.log());
}

#[test]
#[ignore = "needs the standalone gateway: make test-demo"]
fn a_rebinding_in_mid_download_behind_the_standalone_gateway() {
    rebinding(Kind::Standalone);
}

#[test]
#[ignore = "needs Envoy: make test-demo"]
fn a_rebinding_in_mid_download_behind_envoy() {
    rebinding(Kind::Envoy);
}

#[test]
#[ignore = "needs Envoy: make test-demo"]
fn an_update_of_the_listener_in_mid_download_changes_nothing() {
    let mut before = 0;
    let (scene, report) = Scene::of(Kind::Envoy, |scene| {
        before = scene.repairs();
        let RunningGateway { folder, address, endpoint, .. } = &scene.gateway;
        write_listener(folder, *address, *endpoint, 1, 0.5);
        wait_for("the update", || {
            let stats = scene.gateway.get("/stats?filter=listener_manager.lds.update_success")?;
            stats.contains("update_success: 2").then_some(())
        });
    });
    assert_eq!(report["assist"]["sessions"], 1, "{report:#}");
    scene.assert_repairs_go_on(before);
    let gateway = &scene.gateway;
    assert_eq!(gateway.metric("packrat_sessions_opened_total"), Some(1), "{}", gateway.log());
    for side in ["gateway", "client"] {
        for reason in ["decode_failed", "state_lost", "client_overflow"] {
            let series = format!("packrat_resets_total{{side=\"{side}\",reason=\"{reason}\"}}");
            assert_eq!(gateway.metric(&series), Some(0), "{series}");
        }
    }
    assert!(gateway.log().matches("route_configured").count() >= 2, "{}", gateway.log());
}

#[test]
#[ignore = "needs the standalone gateway: make test-demo"]
fn an_assisted_download_survives_a_restart_of_the_gateway() {
    let (scene, report) = Scene::of(Kind::Standalone, |scene| scene.gateway.restart());
    assert_eq!(report["assist"]["sessions"], 2, "{report:#}");
    // The repairs of the new process.
    scene.assert_repairs_go_on(0);
    assert_eq!(scene.gateway.metric("packrat_sessions_opened_total"), Some(1));
}
