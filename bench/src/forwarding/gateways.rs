//! The gateways that are compared, each in its own process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::network::{GATEWAY_ADDRESS, Network, Place, SERVER_ADDRESS};
use crate::Fallible;

/// The port of gateways, and of the servers behind them.
pub(crate) const PORT: u16 = 4433;
/// The port of servers when the kernel forwards packets without a gateway.
pub(crate) const SERVER_PORT: u16 = 9000;
/// Longest time until a gateway is ready.
const READY_PATIENCE: Duration = Duration::from_secs(20);

/// The forwarder between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The kernel's forwarding alone.
    Direct,
    /// Envoy's udp_proxy in its default configuration.
    UdpProxy,
    /// Envoy with its GSO packet writer on the listener.
    UdpProxyGso,
    /// Packrat as a module in Envoy.
    PackratEnvoy,
    /// Packrat on a socket of its own.
    PackratStandalone,
}

impl Kind {
    /// All kinds that are gateways.
    pub(crate) const GATEWAYS: [Self; 4] =
        [Self::UdpProxy, Self::UdpProxyGso, Self::PackratEnvoy, Self::PackratStandalone];

    /// The name in keys.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::UdpProxy => "udp_proxy",
            Self::UdpProxyGso => "udp_proxy_gso",
            Self::PackratEnvoy => "packrat_envoy",
            Self::PackratStandalone => "packrat_standalone",
        }
    }

    /// The name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "kernel forwarding only",
            Self::UdpProxy => "Envoy udp_proxy",
            Self::UdpProxyGso => "udp_proxy, GSO writer",
            Self::PackratEnvoy => "Packrat in Envoy",
            Self::PackratStandalone => "Packrat standalone",
        }
    }

    /// True if it can repair.
    pub(crate) const fn assists(self) -> bool {
        matches!(self, Self::PackratEnvoy | Self::PackratStandalone)
    }

    /// The address to which clients send.
    pub(crate) fn address(self) -> String {
        match self {
            Self::Direct => format!("{SERVER_ADDRESS}:{SERVER_PORT}"),
            _ => format!("{GATEWAY_ADDRESS}:{PORT}"),
        }
    }
}

/// The programs of the gateways.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The directory with `packrat-gateway` and `libpackrat_envoy.so`, built as this program was.
    pub(crate) directory: PathBuf,
    /// Envoy, if there is one.
    pub(crate) envoy: Option<PathBuf>,
}

impl Programs {
    /// Looks beside this program, and where `make` installs Envoy (or at `PACKRAT_ENVOY`).
    pub(crate) fn find() -> Fallible<Self> {
        let own = std::env::current_exe()?;
        let directory = own.parent().ok_or("this program has no directory")?.to_owned();
        let installed = PathBuf::from(".packrat/venv/bin/envoy");
        let envoy = std::env::var_os("PACKRAT_ENVOY").map_or(installed, PathBuf::from);
        Ok(Self { directory, envoy: envoy.exists().then_some(envoy) })
    }

    /// The reason why this kind cannot run here, if any.
    pub(crate) fn missing(&self, kind: Kind) -> Option<String> {
        let file = match kind {
            Kind::Direct => return None,
            Kind::PackratStandalone => self.directory.join("packrat-gateway"),
            _ if self.envoy.is_none() => {
                return Some("no Envoy: run `make bench`, or set PACKRAT_ENVOY".to_owned());
            }
            Kind::PackratEnvoy => self.directory.join("libpackrat_envoy.so"),
            Kind::UdpProxy | Kind::UdpProxyGso => return None,
        };
        (!file.exists()).then(|| format!("{} is missing: run `make bench`", file.display()))
    }
}

/// A running gateway; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    process: Option<Child>,
    _directory: TempDir,
}

impl Gateway {
    /// Starts a gateway with `workers` workers and waits until it listens.
    pub(crate) fn start(
        network: &Network,
        programs: &Programs,
        kind: Kind,
        workers: usize,
    ) -> Fallible<Self> {
        let workers = workers.to_string();
        let directory = tempfile::tempdir()?;
        let log = directory.path().join("log");
        let mut gateway = Self { process: None, _directory: directory };
        let folder = gateway._directory.path();
        let mut command = match kind {
            Kind::Direct => return Ok(gateway),
            Kind::PackratStandalone => {
                let file = folder.join("route.json");
                fs::write(&file, route())?;
                let mut command =
                    network.command(Place::Gateway, programs.directory.join("packrat-gateway"));
                command
                    .args(["--listen", &kind.address(), "--workers", &workers, "--config"])
                    .arg(file);
                command
            }
            Kind::UdpProxy | Kind::UdpProxyGso | Kind::PackratEnvoy => {
                let envoy = programs.envoy.as_ref().ok_or("no Envoy")?;
                let file = folder.join("envoy.yaml");
                fs::write(&file, envoy_configuration(kind))?;
                let mut command = network.command(Place::Gateway, envoy);
                command
                    .args([
                        "--disable-hot-restart",
                        "--concurrency",
                        &workers,
                        "--log-level",
                        "warning",
                    ])
                    .arg("--config-path")
                    .arg(file)
                    .env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", &programs.directory);
                command
            }
        };
        let file = fs::File::create(&log)?;
        let process = command.stdout(file.try_clone()?).stderr(file).spawn()?;
        let process = gateway.process.insert(process);
        let begun = Instant::now();
        while !listens(process.id()) {
            if let Some(status) = process.try_wait()? {
                return Err(format!("{} ended ({status}): {}", kind.name(), tail(&log)).into());
            }
            if begun.elapsed() > READY_PATIENCE {
                return Err(format!("{} does not listen: {}", kind.name(), tail(&log)).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(gateway)
    }

    /// The process; zero without one.
    pub(crate) fn process_id(&self) -> u32 {
        self.process.as_ref().map_or(0, Child::id)
    }

    /// Bytes of memory that the gateway uses.
    pub(crate) fn memory(&self) -> f64 {
        let Some(process) = &self.process else { return 0.0 };
        let text = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kilobytes.unwrap_or_default() * 1024.0
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // The process may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// True if the process's namespace has a UDP socket on the gateway's port.
fn listens(process: u32) -> bool {
    let Ok(table) = fs::read_to_string(format!("/proc/{process}/net/udp")) else { return false };
    let port = format!(":{PORT:04X}");
    table
        .lines()
        .skip(1)
        .any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&port)))
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// The route of Packrat's gateways, as JSON (which is also YAML).
fn route() -> String {
    format!(
        r#"{{"route":"bench","endpoints":["{SERVER_ADDRESS}:{SERVER_PORT}"],"sessions_per_source":100000,"handshakes_per_second_per_source":100000}}"#
    )
}

fn envoy_configuration(kind: Kind) -> String {
    let (writer, filter, extension) = match kind {
        Kind::PackratEnvoy => ("", packrat_filter(), PACKRAT_BOOTSTRAP),
        Kind::UdpProxyGso => (GSO_WRITER, UDP_PROXY.to_owned(), ""),
        _ => ("", UDP_PROXY.to_owned(), ""),
    };
    format!(
        r#"
{extension}
static_resources:
  clusters:
  - name: server
    type: STATIC
    load_assignment:
      cluster_name: server
      endpoints: [ {{ lb_endpoints: [ {{ endpoint: {{ address: {{ socket_address: {{ protocol: UDP, address: {SERVER_ADDRESS}, port_value: {SERVER_PORT} }} }} }} }} ] }} ]
    circuit_breakers: {{ thresholds: [ {{ max_connections: 100000 }} ] }}
  listeners:
  - name: bench
    address: {{ socket_address: {{ protocol: UDP, address: {GATEWAY_ADDRESS}, port_value: {PORT} }} }}
    udp_listener_config:
      downstream_socket_config: {{ prefer_gro: true }}
{writer}
    listener_filters:
{filter}
"#
    )
}

const GSO_WRITER: &str = r#"      udp_packet_packet_writer_config:
        name: envoy.udp_packet_writer.gso
        typed_config: { "@type": type.googleapis.com/envoy.extensions.udp_packet_writer.v3.UdpGsoBatchWriterFactory }"#;

const UDP_PROXY: &str = r#"    - name: udp_proxy
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig
        stat_prefix: bench
        matcher: { on_no_match: { action: { name: route, typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.Route, cluster: server } } } }
        upstream_socket_config: { prefer_gro: true }"#;

const PACKRAT_BOOTSTRAP: &str = r#"
bootstrap_extensions:
- name: packrat
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtension
    dynamic_module_config: { name: packrat_envoy, do_not_close: true, metrics_namespace: packrat }
    extension_name: packrat"#;

fn packrat_filter() -> String {
    format!(
        r#"    - name: packrat
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.udp.dynamic_modules.v3.DynamicModuleUdpListenerFilter
        dynamic_module_config: {{ name: packrat_envoy, do_not_close: true, metrics_namespace: packrat }}
        filter_name: packrat
        filter_config:
          "@type": type.googleapis.com/google.protobuf.Struct
          value: {}"#,
        route()
    )
}
