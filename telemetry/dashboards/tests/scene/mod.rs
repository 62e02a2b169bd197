//! The watched processes: the demo in the middle of its download, and an Envoy that can be given a
//! bad configuration.
#![allow(dead_code)] // every test uses a part of it

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use packrat_real_envoy::{Envoy, listener};
use serde_json::Value;
use tempfile::TempDir;

use crate::place::{PATIENCE, root};

/// The directory with the programs that `make test-telemetry` has built: the parent of this test's.
pub(crate) fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap().to_owned();
    for file in ["packrat", "libpackrat_envoy.so"] {
        assert!(
            folder.join(file).exists(),
            "no {file} in {}: run `make test-telemetry`",
            folder.display()
        );
    }
    folder
}

/// A demo with Envoy, whose download lasts longer than a test. It and all processes that it has started end when it is dropped.
pub(crate) struct Demo {
    process: Child,
    folder: TempDir,
}

impl Demo {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = Command::new(built().join("packrat"))
            .args(["demo", "--profile", "wifi", "--arms", "packrat", "--size", "1GB", "--parts"])
            .arg(root().join(".packrat"))
            .arg("--keep")
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.path().join("errors")).unwrap())
            .spawn()
            .unwrap();
        Self { process, folder }
    }

    /// The log of its Envoy.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("wifi/packrat/envoy.log")).unwrap_or_default()
    }

    /// The address at which its Envoy serves metrics.
    pub(crate) fn admin(&self) -> SocketAddr {
        let file = self.folder.path().join("wifi/packrat/envoy.json");
        let begun = Instant::now();
        loop {
            let read = fs::read_to_string(&file)
                .ok()
                .and_then(|text| serde_json::from_str::<Value>(&text).ok());
            if let Some(configuration) = read {
                let address = &configuration["admin"]["address"]["socket_address"];
                let port = u16::try_from(address["port_value"].as_u64().unwrap()).unwrap();
                return SocketAddr::new(
                    address["address"].as_str().unwrap().parse().unwrap(),
                    port,
                );
            }
            let errors = fs::read_to_string(self.folder.path().join("errors")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "the demo does not start Envoy: {errors}");
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // The kernel ends the processes of a killed demo.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An Envoy with a route and a server, and clients only when a test acts as one; ends when it is
/// dropped.
pub(crate) struct IdleEnvoy {
    server: UdpSocket,
    compared: [UdpSocket; 2],
    envoy: Envoy,
}

impl IdleEnvoy {
    pub(crate) fn start() -> Self {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let endpoints = |server: &UdpSocket| format!("[\"{}\"]", server.local_addr().unwrap());
        let compared = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let listeners = [
            idle_listener(&endpoints(&server)),
            compared_listener(COMPARED[0], &endpoints(&compared[0])),
            compared_listener(COMPARED[1], &endpoints(&compared[1])),
        ];
        let program = root().join(".packrat/venv/bin/envoy");
        let envoy = Envoy::start_gateway(&program, &built(), 1, &listeners);
        Self { server, compared, envoy }
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.envoy.admin()
    }

    /// Envoy's log.
    pub(crate) fn log(&self) -> String {
        self.envoy.log()
    }

    /// The server to which it forwards.
    pub(crate) fn server(&self) -> &UdpSocket {
        &self.server
    }

    /// The listener for clients.
    pub(crate) fn listener(&self) -> SocketAddr {
        self.listener_of("idle")
    }

    /// Listener and server of one of the routes that are [`COMPARED`].
    pub(crate) fn compared(&self, number: usize) -> (SocketAddr, UdpSocket) {
        (self.listener_of(COMPARED[number]), self.compared[number].try_clone().unwrap())
    }

    fn listener_of(&self, name: &str) -> SocketAddr {
        let listener = || {
            let status: Value = serde_json::from_str(&self.envoy.get("/packrat")).ok()?;
            let routes = status["routes"].as_array()?;
            let route = routes.iter().find(|route| route["route"] == name)?;
            route["listeners"][0].as_str()?.parse().ok()
        };
        self.envoy.wait_until("the listener's socket to be found", |_| listener().is_some());
        listener().unwrap()
    }

    /// Starts a client that sends one request, gets its answer and falls silent: its session ends
    /// after a second.
    pub(crate) fn visit(&self) {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.send_to(b"a question", self.listener()).unwrap();
        let mut buffer = [0; 100];
        let (length, from) = self.server.recv_from(&mut buffer).unwrap();
        self.server.send_to(&buffer[..length], from).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), length);
    }

    /// Gives it a route without endpoints, which it refuses.
    pub(crate) fn refuse_a_configuration(&mut self) {
        assert!(!self.envoy.update(&[idle_listener("[]")]), "a route without endpoints was taken");
    }
}

/// Routes that hold half of their clients out.
pub(crate) const COMPARED: [&str; 2] = ["pays", "harms"];

fn compared_listener(name: &str, endpoints: &str) -> String {
    let value = format!(
        "{{ route: {name}, gateway: idle, endpoints: {endpoints}, idle_timeout_seconds: 1, holdout: 0.5 }}"
    );
    listener(name, ([127, 0, 0, 1], 0).into(), &value)
}

fn idle_listener(endpoints: &str) -> String {
    let value = format!(
        "{{ route: idle, gateway: idle, endpoints: {endpoints}, idle_timeout_seconds: 1 }}"
    );
    listener("idle", ([127, 0, 0, 1], 0).into(), &value)
}
