//! The ends of connections at the gateway's place: Envoy with the server's key, or a tunnel's end with
//! an Envoy behind it. Both ask the server over HTTP/3, so that the far segment is the same in all
//! arms.

use std::fs;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::super::certificate::Certificate;
use super::super::error::DemoError;
use super::super::metrics::http_get;
use super::super::options::{ArmName, Tunnel};
use super::super::parts;
use super::super::process::{Process, free_address};
use super::super::stage::SMALL_FILE;
use super::envoy::socket_address;
use super::setup::GatewaySetup;

/// Runtime keys by which QUICHE's default congestion control is BBRv2, which comes before BBRv1;
/// without both it is CUBIC.
const BBR2_KEYS: &str =
    "envoy.reloadable_features.FLAGS_envoy_quiche_reloadable_flag_quic_default_to_bbr_v2";
/// Runtime keys by which QUICHE's default congestion control is BBRv1.
const BBR1_KEYS: &str =
    "envoy.reloadable_features.FLAGS_envoy_quiche_reloadable_flag_quic_default_to_bbr";

/// The alternative to a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Envoy, with this congestion control towards the client.
    Terminated(Control),
    /// The end of a tunnel.
    Tunnel(Tunnel),
}

/// QUICHE's congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// BBRv1, Envoy's default.
    Bbr1,
    /// BBRv2.
    Bbr2,
    /// CUBIC.
    Cubic,
}

impl Edge {
    /// The edge of an arm, if it has one.
    pub(crate) fn of(name: ArmName) -> Option<Self> {
        match name {
            ArmName::Terminated => Some(Self::Terminated(Control::Bbr1)),
            ArmName::TerminatedBbr2 => Some(Self::Terminated(Control::Bbr2)),
            ArmName::TerminatedCubic => Some(Self::Terminated(Control::Cubic)),
            _ => name.tunnel().map(Self::Tunnel),
        }
    }
}

/// Starts it at `address`; the second process is the Envoy behind a tunnel's end.
pub(super) async fn start(
    edge: Edge,
    setup: GatewaySetup<'_>,
    certificate: &Certificate,
    address: SocketAddr,
    admin: SocketAddr,
) -> Result<(Process, Option<Process>), DemoError> {
    let plain = free_address()?;
    let mut listeners = vec![listener("plain", plain, None)];
    if matches!(edge, Edge::Terminated(_)) {
        listeners.push(listener("http3", address, Some(certificate)));
    }
    let runtime = json!({
        BBR2_KEYS: edge == Edge::Terminated(Control::Bbr2),
        BBR1_KEYS: edge != Edge::Terminated(Control::Cubic),
    });
    let bootstrap = json!({
        "admin": { "address": socket_address(admin, "TCP") },
        "layered_runtime": { "layers": [{ "name": "edge", "static_layer": runtime }] },
        "static_resources": { "listeners": listeners, "clusters": [cluster(setup.server, certificate)] },
    });
    let program = parts::envoy(setup.parts)?;
    let configuration = setup.work.join("edge.json");
    fs::write(&configuration, format!("{bootstrap:#}"))
        .map_err(|error| DemoError::write(&configuration, error))?;
    let mut envoy = Process::start("Envoy", &program, &setup.work.join("edge.log"), |command| {
        command.arg("--config-path").arg(&configuration);
        command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]);
    })?;
    // The answer comes from the server: the connection to it is now there, as at an edge in use.
    envoy.wait_until_ready(|| http_get(plain, &format!("/{SMALL_FILE}")).is_ok()).await?;
    let Edge::Tunnel(tunnel) = edge else { return Ok((envoy, None)) };
    let program = parts::tunnel_program(setup.parts)?;
    let log = setup.work.join("tunnel.log");
    let mut end = Process::start("the tunnel's end", &program, &log, |command| {
        command.arg("serve").arg(tunnel.protocol);
        command.arg(address.to_string()).arg(plain.to_string());
        if tunnel.over_tls {
            command.arg(&certificate.chain).arg(&certificate.key);
        }
    })?;
    end.wait_until_ready(|| fs::read_to_string(&log).is_ok_and(|text| text.contains("ready")))
        .await?;
    Ok((end, Some(envoy)))
}

/// A listener for HTTP: over QUIC with a certificate, else over TCP without one.
fn listener(name: &str, address: SocketAddr, certificate: Option<&Certificate>) -> Value {
    let manager = json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "codec_type": if certificate.is_some() { "HTTP3" } else { "HTTP1" },
            "stat_prefix": name,
            "route_config": { "virtual_hosts": [{
                "name": "all",
                "domains": ["*"],
                "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "server", "timeout": "0s" } }],
            }] },
            "http_filters": [{
                "name": "envoy.filters.http.router",
                "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
            }],
        },
    });
    let Some(certificate) = certificate else {
        return json!({
            "name": name,
            "address": socket_address(address, "TCP"),
            "filter_chains": [{ "filters": [manager] }],
        });
    };
    let pair = json!({
        "certificate_chain": { "filename": certificate.chain },
        "private_key": { "filename": certificate.key },
    });
    json!({
        "name": name,
        "address": socket_address(address, "UDP"),
        "udp_listener_config": {
            "quic_options": {},
            "downstream_socket_config": { "prefer_gro": true },
        },
        "filter_chains": [{
            "transport_socket": {
                "name": "envoy.transport_sockets.quic",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport",
                    "downstream_tls_context": { "common_tls_context": { "tls_certificates": [pair] } },
                },
            },
            "filters": [manager],
        }],
    })
}

/// The server, over HTTP/3.
fn cluster(server: SocketAddr, certificate: &Certificate) -> Value {
    json!({
        "name": "server",
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {
            "cluster_name": "server",
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": socket_address(server, "UDP") } }] }],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http3_protocol_options": {} },
            },
        },
        "transport_socket": {
            "name": "envoy.transport_sockets.quic",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.quic.v3.QuicUpstreamTransport",
                "upstream_tls_context": {
                    "sni": "localhost",
                    "common_tls_context": {
                        "validation_context": { "trusted_ca": { "filename": certificate.authority } },
                    },
                },
            },
        },
    })
}
