//! A real Envoy that issues assist tokens: TLS over TCP (HTTP/1.1 and HTTP/2) and HTTP/3, on one
//! port.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use packrat_real_envoy::{Envoy, find, find_envoy, free_port};

/// The programs that a test of the token endpoint needs in addition to the command.
pub(crate) struct Parts {
    envoy: PathBuf,
    module: PathBuf,
}

impl Parts {
    /// The Envoy of `PACKRAT_ENVOY` and the module of `PACKRAT_TOKEN_WASM`, or the ones that `make`
    /// puts into the workspace. `None`, with a line about it, when one is missing; with `CI=true`
    /// that is a failure.
    pub(crate) fn find() -> Option<Self> {
        Some(Self {
            envoy: find_envoy()?,
            module: find("PACKRAT_TOKEN_WASM", ".packrat/packrat-token.wasm", "make token")?,
        })
    }

    /// Bytes of the module.
    pub(crate) fn module_size(&self) -> u64 {
        fs::metadata(&self.module).unwrap().len()
    }
}

/// A running Envoy; killed when it is dropped.
pub(crate) struct Issuer {
    envoy: Envoy,
    /// TCP and UDP.
    pub(crate) port: u16,
    /// Time from the start of the process until it serves.
    pub(crate) start_up: Duration,
}

impl Issuer {
    /// Starts Envoy. `configuration`: of the token endpoint, JSON; `None`: without the module.
    pub(crate) fn start(parts: &Parts, workers: usize, configuration: Option<&str>) -> Self {
        let mut issuer = Self::spawn(parts, workers, configuration);
        let started = Instant::now();
        issuer.envoy.wait_until("Envoy to serve", |envoy| envoy.get("/ready").contains("LIVE"));
        issuer.start_up = started.elapsed();
        issuer
    }

    /// The log of an Envoy that ends by itself because it refuses its configuration.
    pub(crate) fn refuses(parts: &Parts, configuration: &str) -> String {
        let issuer = Self::spawn(parts, 1, Some(configuration));
        issuer.envoy.wait();
        issuer.envoy.log()
    }

    fn spawn(parts: &Parts, workers: usize, configuration: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(path.join("certificate.pem"), certificate.cert.pem()).unwrap();
        fs::write(path.join("key.pem"), certificate.signing_key.serialize_pem()).unwrap();
        let port = free_port();
        fs::write(path.join("envoy.yaml"), envoy_yaml(path, port, &parts.module, configuration))
            .unwrap();
        let envoy = Envoy::spawn(&parts.envoy, directory, "envoy.yaml", |command| {
            command
                .args(["--component-log-level", "wasm:info"])
                .args(["--concurrency", &workers.to_string()]);
        });
        Self { envoy, port, start_up: Duration::ZERO }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    /// PEM of the certificate, which is its own authority.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.envoy.directory().join("certificate.pem")
    }

    /// The answer to an administration request.
    pub(crate) fn admin(&self, path: &str) -> String {
        self.envoy.get(path)
    }

    /// Bytes allocated by Envoy's allocator, and resident bytes of the process.
    pub(crate) fn memory(&self) -> [u64; 2] {
        let answer = self.admin("/memory");
        let (_, rest) = answer.split_once("\"allocated\": \"").unwrap();
        let allocated = rest.split('"').next().unwrap().parse().unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", self.envoy.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        [allocated, kilobytes * 1024]
    }
}

/// The entry of the filter in a list of HTTP filters.
fn token_filter(module: &Path, configuration: &str) -> String {
    format!(
        r#"
          - name: packrat_token
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
              config:
                name: packrat_token
                configuration: {{ "@type": type.googleapis.com/google.protobuf.StringValue, value: '{configuration}' }}
                vm_config:
                  vm_id: packrat_token
                  runtime: envoy.wasm.runtime.v8
                  code: {{ local: {{ filename: "{}" }} }}"#,
        module.display()
    )
}

fn envoy_yaml(directory: &Path, port: u16, module: &Path, configuration: Option<&str>) -> String {
    let filter =
        configuration.map_or(String::new(), |configuration| token_filter(module, configuration));
    let http = |name: &str, codec: &str| {
        format!(
            r#"
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: {name}
          codec_type: {codec}
          route_config: {{ virtual_hosts: [ {{ name: all, domains: ["*"], routes: [ {{ match: {{ prefix: "/" }}, direct_response: {{ status: 200, body: {{ inline_string: "behind" }} }} }} ] }} ] }}
          http_filters:{filter}
          - name: router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}"#
        )
    };
    let tls = |alpn: &str| {
        format!(
            r#"common_tls_context: {{ {alpn} tls_certificates: [ {{ certificate_chain: {{ filename: "{0}/certificate.pem" }}, private_key: {{ filename: "{0}/key.pem" }} }} ] }}"#,
            directory.display()
        )
    };
    format!(
        r#"
admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}
static_resources:
  listeners:
  - name: tcp
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          {tcp_tls}
      filters:{tcp}
  - name: quic
    address: {{ socket_address: {{ protocol: UDP, address: 127.0.0.1, port_value: {port} }} }}
    udp_listener_config: {{ quic_options: {{}}, downstream_socket_config: {{ prefer_gro: true }} }}
    filter_chains:
    - transport_socket:
        name: envoy.transport_sockets.quic
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport
          downstream_tls_context: {{ {quic_tls} }}
      filters:{quic}
"#,
        tcp_tls = tls("alpn_protocols: [h2, http/1.1],"),
        tcp = http("tcp", "AUTO"),
        quic_tls = tls(""),
        quic = http("quic", "HTTP3"),
    )
}
