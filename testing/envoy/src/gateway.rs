//! A gateway: Envoy with the filter, configured from files.

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::Envoy;

impl Envoy {
    /// Starts Envoy with the filter in `modules` and these listeners, and waits until it serves
    /// them.
    ///
    /// # Panics
    /// If it does not serve them.
    pub fn start_gateway(
        program: &Path,
        modules: &Path,
        workers: usize,
        listeners: &[String],
    ) -> Self {
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
    dynamic_module_config: {MODULE_CONFIG}
    extension_name: packrat
"#,
            listeners = path.join("listeners").display()
        );
        fs::write(path.join("bootstrap.yaml"), bootstrap).unwrap();
        write_listeners(path, 0, listeners);
        let envoy = Self::spawn(program, directory, "bootstrap.yaml", |command| {
            command
                .args(["--component-log-level", "dynamic_modules:info", "--drain-time-s", "2"])
                .args(["--concurrency", &workers.to_string()])
                .env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", modules);
        });
        envoy.wait_until("Envoy to be ready", |envoy| envoy.get("/ready").contains("LIVE"));
        envoy
    }

    /// Replaces the listeners of [`Self::start_gateway`], and waits until Envoy has accepted or
    /// refused them. Returns true if it has accepted them.
    ///
    /// # Panics
    /// If it does neither.
    pub fn update(&mut self, listeners: &[String]) -> bool {
        let before = self.update_counts().expect("Envoy's administration interface");
        self.version += 1;
        write_listeners(self.directory(), self.version, listeners);
        let after = Cell::new(before);
        self.wait_until("Envoy to look at the new listeners", |envoy| {
            after.set(envoy.update_counts().unwrap_or(before));
            after.get() != before
        });
        after.get().0 > before.0
    }

    /// Accepted and refused updates of the listeners.
    fn update_counts(&self) -> Option<(u64, u64)> {
        let text = self.get("/stats?filter=listener_manager.lds.update_");
        let value = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        Some((
            value("listener_manager.lds.update_success:")?,
            value("listener_manager.lds.update_rejected:")?,
        ))
    }
}

/// Configuration of Packrat's module.
const MODULE_CONFIG: &str =
    "{ name: packrat_envoy, do_not_close: true, metrics_namespace: packrat }";

/// A listener with the filter; `value` is the configuration of the route as YAML.
pub fn listener(name: &str, address: SocketAddr, value: &str) -> String {
    format!(
        r#"- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: {name}
  address: {{ socket_address: {{ protocol: UDP, address: "{ip}", port_value: {port} }} }}
  udp_listener_config: {{ downstream_socket_config: {{ prefer_gro: true }} }}
  listener_filters:
  - name: packrat
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.udp.dynamic_modules.v3.DynamicModuleUdpListenerFilter
      dynamic_module_config: {MODULE_CONFIG}
      filter_name: packrat
      filter_config:
        "@type": type.googleapis.com/google.protobuf.Struct
        value: {value}
"#,
        ip = address.ip(),
        port = address.port()
    )
}

/// Replaces the file of the listeners in one step.
fn write_listeners(directory: &Path, version: u32, listeners: &[String]) {
    let mut text = format!("version_info: \"{version}\"\nresources:\n");
    for listener in listeners {
        text.push_str(listener);
    }
    if listeners.is_empty() {
        text = format!("version_info: \"{version}\"\nresources: []\n");
    }
    let staged = directory.join("staged.yaml");
    fs::write(&staged, text).unwrap();
    fs::rename(staged, directory.join("listeners/listeners.yaml")).unwrap();
}

/// True if `envoy --mode validate` accepts a listener.
///
/// # Panics
/// If Envoy cannot be started.
pub fn validates(program: &Path, modules: &Path, listener: &str) -> bool {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("bootstrap.yaml");
    // Static listeners have no type in front.
    let mut text = String::from("static_resources:\n  listeners:\n");
    for (index, line) in listener.lines().skip(1).enumerate() {
        let indented =
            if index == 0 { format!("  - {}\n", line.trim_start()) } else { format!("  {line}\n") };
        text.push_str(&indented);
    }
    fs::write(&file, text).unwrap();
    let output = Command::new(program)
        .args(["--mode", "validate", "--disable-hot-restart", "--config-path"])
        .arg(&file)
        .env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", modules)
        .output()
        .expect("Envoy starts");
    output.status.success()
}
