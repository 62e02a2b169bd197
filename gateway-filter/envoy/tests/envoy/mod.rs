//! A real Envoy with the module, configured from files, for tests.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longest time that a test waits for something that has to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The Envoy of `PACKRAT_ENVOY`, or the one that `make` has installed in the workspace. `None`, with a line that says so, when
/// there is none; with `CI=true` that is a failure.
pub(crate) fn find_envoy() -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    let installed = workspace.join(".packrat/venv/bin/envoy");
    let envoy = std::env::var_os("PACKRAT_ENVOY").map_or(installed, PathBuf::from);
    if envoy.exists() {
        return Some(envoy);
    }
    let hint = format!("no Envoy at {}: set PACKRAT_ENVOY or run `make demo` once", envoy.display());
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
    println!("SKIPPED: {hint}");
    None
}

/// The directory of the module, which cargo builds for this test next to the test itself.
fn module_directory() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let directory = test.parent().expect("its directory");
    assert!(
        directory.join("libpackrat_envoy.so").exists(),
        "no libpackrat_envoy.so in {}: run `cargo build -p packrat-envoy`",
        directory.display()
    );
    directory.to_owned()
}

/// A running Envoy; killed when it is dropped.
pub(crate) struct Envoy {
    process: Child,
    directory: TempDir,
    pub(crate) admin: SocketAddr,
    version: u32,
}

impl Envoy {
    /// Starts Envoy with the listeners of `resources` and waits until it serves them.
    pub(crate) fn start(program: &Path, workers: usize, resources: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path();
        fs::create_dir(path.join("listeners")).unwrap();
        let bootstrap = format!(
            r#"
admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}
node: {{ id: test, cluster: test }}
layered_runtime:
  layers:
  - name: packrat
    static_layer: {{ envoy.reloadable_features.dynamic_modules_strip_custom_stat_prefix: true }}
dynamic_resources:
  lds_config:
    resource_api_version: V3
    path_config_source:
      path: {listeners}/listeners.yaml
      watched_directory: {{ path: {listeners} }}
bootstrap_extensions:
- name: packrat
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtension
    dynamic_module_config: {{ name: packrat_envoy, do_not_close: true, metrics_namespace: packrat }}
    extension_name: packrat
"#,
            listeners = path.join("listeners").display()
        );
        fs::write(path.join("bootstrap.yaml"), bootstrap).unwrap();
        write_listeners(path, 0, resources);
        let log = fs::File::create(path.join("log")).unwrap();
        let process = Command::new(program)
            .arg("--config-path")
            .arg(path.join("bootstrap.yaml"))
            .arg("--admin-address-path")
            .arg(path.join("admin"))
            .args(["--log-level", "warning", "--component-log-level", "dynamic_modules:info"])
            .args(["--drain-time-s", "2"])
            .args(["--use-dynamic-base-id", "--concurrency", &workers.to_string()])
            .env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", module_directory())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("Envoy starts");
        let mut envoy = Self { process, directory, admin: ([127, 0, 0, 1], 0).into(), version: 0 };
        envoy.wait_until("Envoy's administration address", |envoy| {
            fs::read_to_string(envoy.directory.path().join("admin"))
                .is_ok_and(|text| text.trim().parse::<SocketAddr>().is_ok())
        });
        let text = fs::read_to_string(envoy.directory.path().join("admin")).unwrap();
        envoy.admin = text.trim().parse().unwrap();
        envoy.wait_until("Envoy to be ready", |envoy| envoy.get("/ready").contains("LIVE"));
        envoy
    }

    /// Replaces the listeners, and waits until Envoy has taken or refused them; whether it has taken them.
    pub(crate) fn update(&mut self, resources: &[String]) -> bool {
        let before = self.update_counts().expect("Envoy's administration interface");
        self.version += 1;
        write_listeners(self.directory.path(), self.version, resources);
        let after = std::cell::Cell::new(before);
        self.wait_until("Envoy to look at the new listeners", |envoy| {
            after.set(envoy.update_counts().unwrap_or(before));
            after.get() != before
        });
        after.get().0 > before.0
    }

    /// Updates of the listeners that were taken and that were refused.
    fn update_counts(&self) -> Option<(u64, u64)> {
        let text = self.get("/stats?filter=listener_manager.lds.update_");
        let value =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        Some((
            value("listener_manager.lds.update_success:")?,
            value("listener_manager.lds.update_rejected:")?,
        ))
    }

    /// The body of an administration request.
    pub(crate) fn get(&self, path: &str) -> String {
        self.request("GET", path)
    }

    /// The body of an administration request that changes something.
    pub(crate) fn post(&self, path: &str) -> String {
        self.request("POST", path)
    }

    fn request(&self, method: &str, path: &str) -> String {
        let Ok(mut stream) = TcpStream::connect(self.admin) else { return String::new() };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = String::new();
        let _ = write!(
            request,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let mut answer = String::new();
        if stream.write_all(request.as_bytes()).is_err() || stream.read_to_string(&mut answer).is_err() {
            return String::new();
        }
        let Some((head, body)) = answer.split_once("\r\n\r\n") else { return String::new() };
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            unchunk(body)
        } else {
            body.to_owned()
        }
    }

    /// A metric of the module in Prometheus' text, `None` while it does not exist.
    pub(crate) fn metric(&self, name: &str, route: &str) -> Option<u64> {
        let series = format!("{name}{{route=\"{route}\",gateway=\"edge\",namespace=\"default\"}} ");
        self.get("/stats/prometheus").lines().find_map(|line| line.strip_prefix(&series)?.trim().parse().ok())
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(start.elapsed() < PATIENCE, "waited in vain for {what}; Envoy's log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends Envoy as an orchestrator does; its exit code.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        let terminated = Command::new("kill").arg(self.process.id().to_string()).status().expect("kill runs");
        assert!(terminated.success());
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "Envoy does not end; its log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("Envoy's log:\n{}", self.log());
        }
    }
}

/// A body without the lengths of its chunks (RFC 9112, section 7.1).
fn unchunk(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((length, after)) = rest.split_once("\r\n")
        && let Ok(length) = usize::from_str_radix(length, 16)
        && let Some(chunk) = after.get(..length)
        && length > 0
    {
        body.push_str(chunk);
        rest = after.get(length + 2..).unwrap_or_default();
    }
    body
}

/// Replaces the file of the listeners in one step.
fn write_listeners(directory: &Path, version: u32, resources: &[String]) {
    let mut text = format!("version_info: \"{version}\"\nresources:\n");
    for resource in resources {
        text.push_str(resource);
    }
    if resources.is_empty() {
        text = format!("version_info: \"{version}\"\nresources: []\n");
    }
    let staged = directory.join("staged.yaml");
    fs::write(&staged, text).unwrap();
    fs::rename(staged, directory.join("listeners/listeners.yaml")).unwrap();
}

/// A listener with the filter; `value` is the configuration of the route as YAML.
pub(crate) fn listener(name: &str, address: SocketAddr, value: &str) -> String {
    format!(
        r#"- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: {name}
  address: {{ socket_address: {{ protocol: UDP, address: "{ip}", port_value: {port} }} }}
  udp_listener_config: {{ downstream_socket_config: {{ prefer_gro: true }} }}
  listener_filters:
  - name: packrat
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.udp.dynamic_modules.v3.DynamicModuleUdpListenerFilter
      dynamic_module_config: {{ name: packrat_envoy, do_not_close: true, metrics_namespace: packrat }}
      filter_name: packrat
      filter_config:
        "@type": type.googleapis.com/google.protobuf.Struct
        value: {value}
"#,
        ip = address.ip(),
        port = address.port()
    )
}

/// Whether `envoy --mode validate` accepts a listener.
pub(crate) fn validates(program: &Path, resource: &str) -> bool {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("bootstrap.yaml");
    // Static listeners have no type in front.
    let mut text = String::from("static_resources:\n  listeners:\n");
    for (index, line) in resource.lines().skip(1).enumerate() {
        let indented =
            if index == 0 { format!("  - {}\n", line.trim_start()) } else { format!("  {line}\n") };
        text.push_str(&indented);
    }
    fs::write(&file, text).unwrap();
    let output = Command::new(program)
        .args(["--mode", "validate", "--use-dynamic-base-id", "--config-path"])
        .arg(&file)
        .env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", module_directory())
        .output()
        .expect("Envoy starts");
    output.status.success()
}

/// A port that is free now, on the address of `ip`.
pub(crate) fn free_address(ip: &str) -> SocketAddr {
    UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap()
}
