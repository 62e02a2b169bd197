//! What is watched: the demo in the middle of its download, and an Envoy that can be given a bad configuration.
#![allow(dead_code)] // every test uses a part of it

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::place::{PATIENCE, root};

/// Where cargo puts what `make test-telemetry` has built: the folder above that of this test.
pub(crate) fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap().to_owned();
    for file in ["packrat", "libpackrat_envoy.so"] {
        assert!(folder.join(file).exists(), "no {file} in {}: run `make test-telemetry`", folder.display());
    }
    folder
}

/// A demo with Envoy; it and everything that it has started end when this is dropped.
pub(crate) struct Demo {
    process: Child,
    folder: TempDir,
}

impl Demo {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = Command::new(built().join("packrat"))
            .args(["demo", "--arms", "packrat", "--size", "200MB", "--parts"])
            .arg(root().join(".packrat"))
            .arg("--keep")
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.path().join("errors")).unwrap())
            .spawn()
            .unwrap();
        Self { process, folder }
    }

    /// What its Envoy has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("packrat/envoy.log")).unwrap_or_default()
    }

    /// Where its Envoy serves metrics.
    pub(crate) fn admin(&self) -> SocketAddr {
        let file = self.folder.path().join("packrat/envoy.json");
        let begun = Instant::now();
        loop {
            let read =
                fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
            if let Some(configuration) = read {
                let address = &configuration["admin"]["address"]["socket_address"];
                let port = u16::try_from(address["port_value"].as_u64().unwrap()).unwrap();
                return SocketAddr::new(address["address"].as_str().unwrap().parse().unwrap(), port);
            }
            let errors = fs::read_to_string(self.folder.path().join("errors")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "the demo does not start Envoy: {errors}");
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // The kernel ends the processes of a demo that was killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An Envoy with a route and no client; ended when it is dropped.
pub(crate) struct IdleEnvoy {
    process: Child,
    folder: TempDir,
    admin: SocketAddr,
}

const MODULE: &str = "{ name: packrat_envoy, do_not_close: true, metrics_namespace: packrat }";

impl IdleEnvoy {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::create_dir(path.join("listeners")).unwrap();
        let bootstrap = format!(
            r#"
admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}
node: {{ id: idle, cluster: test }}
layered_runtime:
  layers:
  - name: packrat
    static_layer: {{ envoy.reloadable_features.dynamic_modules_strip_custom_stat_prefix: true }}
dynamic_resources:
  lds_config:
    resource_api_version: V3
    path_config_source: {{ path: {listeners}/listeners.yaml, watched_directory: {{ path: {listeners} }} }}
bootstrap_extensions:
- name: packrat
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtension
    dynamic_module_config: {MODULE}
    extension_name: packrat
"#,
            listeners = path.join("listeners").display()
        );
        fs::write(path.join("bootstrap.yaml"), bootstrap).unwrap();
        write_listener(path, "[\"192.0.2.1:443\"]");
        let log = fs::File::create(path.join("log")).unwrap();
        let process = Command::new(root().join(".packrat/venv/bin/envoy"))
            .arg("--config-path")
            .arg(path.join("bootstrap.yaml"))
            .arg("--admin-address-path")
            .arg(path.join("admin"))
            .args(["--log-level", "warning", "--use-dynamic-base-id", "--concurrency", "1"])
            .env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", built())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let admin = loop {
            let text = fs::read_to_string(path.join("admin")).unwrap_or_default();
            if let Ok(admin) = text.trim().parse() {
                break admin;
            }
            let log = fs::read_to_string(path.join("log")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "Envoy does not start:\n{log}");
            sleep(Duration::from_millis(50));
        };
        Self { process, folder, admin }
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// A route without endpoints is refused.
    pub(crate) fn refuse_a_configuration(&mut self) {
        write_listener(self.folder.path(), "[]");
    }
}

fn write_listener(folder: &Path, endpoints: &str) {
    let text = format!(
        r#"version_info: "{version}"
resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: idle
  address: {{ socket_address: {{ protocol: UDP, address: 127.0.0.1, port_value: 0 }} }}
  udp_listener_config: {{ downstream_socket_config: {{ prefer_gro: true }} }}
  listener_filters:
  - name: packrat
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.udp.dynamic_modules.v3.DynamicModuleUdpListenerFilter
      dynamic_module_config: {MODULE}
      filter_name: packrat
      filter_config:
        "@type": type.googleapis.com/google.protobuf.Struct
        value: {{ route: idle, gateway: idle, endpoints: {endpoints} }}
"#,
        version = endpoints.len(),
    );
    let staged = folder.join("staged.yaml");
    fs::write(&staged, text).unwrap();
    fs::rename(staged, folder.join("listeners/listeners.yaml")).unwrap();
}

impl Drop for IdleEnvoy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
