//! The process of Envoy, and its administration interface.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::unix;

/// Longest time that a test waits for an expected event.
pub const EVENT_PATIENCE: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running Envoy; killed when it is dropped.
#[derive(Debug)]
pub struct Envoy {
    process: Mutex<Child>,
    directory: TempDir,
    agent: ureq::Agent,
    /// Version of the listeners in its files.
    pub(crate) version: u32,
}

impl Envoy {
    /// Starts Envoy with the configuration in this file of the directory. `adjust` may add
    /// arguments and variables. Does not wait.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn spawn(
        program: &Path,
        directory: TempDir,
        configuration: &str,
        adjust: impl FnOnce(&mut Command),
    ) -> Self {
        let path = directory.path();
        let log = fs::File::create(path.join("log")).unwrap();
        let mut command = Command::new(program);
        command
            .arg("--config-path")
            .arg(path.join(configuration))
            .arg("--admin-address-path")
            .arg(path.join("admin"))
            .args(["--disable-hot-restart", "--log-level", "warning"])
            .stdin(Stdio::null())
            .process_group(0)
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        adjust(&mut command);
        let process =
            command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(EVENT_PATIENCE))
            .http_status_as_error(false)
            // Envoy drains, and may have closed a kept connection.
            .max_idle_connections(0)
            .build()
            .into();
        Self { process: Mutex::new(process), directory, agent, version: 0 }
    }

    /// The directory with its configuration.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The process identifier.
    pub fn id(&self) -> u32 {
        self.process().id()
    }

    /// Output of Envoy so far, standard output and standard error.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory().join("log")).unwrap_or_default()
    }

    /// The address of its administration interface; waits for it.
    ///
    /// # Panics
    /// If it does not appear within [`EVENT_PATIENCE`].
    pub fn admin(&self) -> SocketAddr {
        let mut admin = None;
        self.wait_until("Envoy's administration address", |envoy| {
            admin = envoy.read_admin();
            admin.is_some()
        });
        admin.expect("it was waited for")
    }

    fn read_admin(&self) -> Option<SocketAddr> {
        self.admin_address()?.parse().ok()
    }

    /// The address of the administration interface as Envoy writes it: an IP address with a port,
    /// or the path of a Unix socket.
    fn admin_address(&self) -> Option<String> {
        let text = fs::read_to_string(self.directory().join("admin")).ok()?;
        Some(text.trim().to_owned()).filter(|address| !address.is_empty())
    }

    /// The body of an administration request; empty without an answer.
    pub fn get(&self, path: &str) -> String {
        let Some(admin) = self.admin_address() else { return String::new() };
        if admin.starts_with('/') {
            return unix::request(&admin, "GET", path).unwrap_or_default();
        }
        let answer = self.agent.get(format!("http://{admin}{path}")).call();
        answer.and_then(|mut answer| answer.body_mut().read_to_string()).unwrap_or_default()
    }

    /// The body of an administration request that changes something.
    pub fn post(&self, path: &str) -> String {
        let Some(admin) = self.admin_address() else { return String::new() };
        if admin.starts_with('/') {
            return unix::request(&admin, "POST", path).unwrap_or_default();
        }
        let answer = self.agent.post(format!("http://{admin}{path}")).send_empty();
        answer.and_then(|mut answer| answer.body_mut().read_to_string()).unwrap_or_default()
    }

    /// A metric of a route in Prometheus' text, `None` while it does not exist.
    pub fn metric(&self, name: &str, route: &str) -> Option<u64> {
        let series = format!("{name}{{route=\"{route}\",gateway=\"edge\",namespace=\"default\"}} ");
        self.get("/stats/prometheus")
            .lines()
            .find_map(|line| line.strip_prefix(&series)?.trim().parse().ok())
    }

    /// Waits until `condition` holds.
    ///
    /// # Panics
    /// If it does not hold within [`EVENT_PATIENCE`], or Envoy has ended before.
    pub fn wait_until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            let ended = self.ended();
            assert!(
                ended.is_none(),
                "waited for {what}, but Envoy has ended; its log:\n{}",
                self.log()
            );
            assert!(
                start.elapsed() < EVENT_PATIENCE,
                "waited in vain for {what}; Envoy's log:\n{}\nits listeners:\n{}\nits connection:\n{}",
                self.log(),
                self.get("/config_dump?resource=dynamic_listeners&mask=name,active_state.version_info,warming_state.version_info,error_state"),
                self.get("/stats?usedonly&filter=packrat-operator|lds|sds"),
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The exit status, once it has ended.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.process().try_wait().unwrap()
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// If it does not end within [`EVENT_PATIENCE`].
    pub fn wait(&self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(
                start.elapsed() < EVENT_PATIENCE,
                "Envoy does not end; its log:\n{}",
                self.log()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Ends it as an orchestrator does; returns its exit code.
    ///
    /// # Panics
    /// If it does not end within [`EVENT_PATIENCE`].
    pub fn terminate(&self) -> Option<i32> {
        let terminated =
            Command::new("kill").arg(self.id().to_string()).status().expect("kill runs");
        assert!(terminated.success());
        self.wait().code()
    }

    fn process(&self) -> std::sync::MutexGuard<'_, Child> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // The process may have ended already.
        let mut process = self.process();
        // Its group: `packrat-start` has an Envoy of its own.
        let group = format!("-{}", process.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = process.kill();
        let _ = process.wait();
        drop(process);
        if std::thread::panicking() {
            eprintln!("Envoy's log:\n{}", self.log());
        }
    }
}
