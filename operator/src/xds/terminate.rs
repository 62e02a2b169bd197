//! Connections that end at the gateway: a listener for HTTP/3, another for HTTP/2 and HTTP/1.1 at the TCP
//! port of the same number, and the cluster of the servers that requests go on to.
//!
//! The certificate is in the listeners. A new one replaces their filters alone: connections with the former
//! one last as long as a route drains.

use packrat_api::route::RouteConfig;

use super::connections::{self, number};
use super::proto::{
    Any, BoolValue, Cluster, CommonHttpOptions, CommonTlsContext, DataSource, DownstreamTlsContext,
    Duration, EarlyHeaderMutation, ExplicitHttpConfig, Filter, FilterChain, HeaderMutation,
    HeaderValue, HeaderValueOption, Http3Options, HttpConnectionManager, HttpFilter,
    InternalAddressConfig, Listener, QuicDownstreamTransport, QuicOptions, RetryPolicy, Route,
    RouteAction, RouteConfiguration, RouteMatch, Router, TlsCertificate, TransportSocket,
    Typed as _, TypedExtension, UdpListenerConfig, UdpSocketConfig, UpgradeConfig,
    UpstreamHttpOptions, VirtualHost,
};
use super::servers;
use crate::index::{Certificate, Listener as Served, Terminated, Upstream};
use crate::resource::{EdgeGatewaySpec, ExposureType};

/// HTTP/3 as the codec of a connection manager; 0 finds out which of the others it is.
const HTTP3_CODEC: i32 = 3;
/// The server's own `server` field is left as it is.
const PASS_THROUGH: i32 = 2;
/// Action by which a field takes the place of the server's own.
const OVERWRITE_ACTION: i32 = 2;
/// Fields with underscores are dropped: many servers read underscores as hyphens.
const DROP_FIELD: i32 = 2;
/// Fields that name the client of a request. Values written by clients are removed.
const ORIGIN_FIELDS: [&str; 3] = ["x-forwarded-for", "forwarded", "x-real-ip"];
/// Seconds for the fields of a request.
const HEADERS_SECONDS: i64 = 30;
/// Seconds for which clients remember that there is HTTP/3.
const ALT_SVC_SECONDS: u32 = 86_400;
/// Times that a request is sent to another server when one did not take the connection.
const MOST_RETRIES: u32 = 2;

fn cluster_name(port: u16) -> String {
    format!("web-{port}")
}

/// The port at which clients reach a gateway's port, where that is known.
pub(super) fn public_port(spec: &EdgeGatewaySpec, port: u16) -> Option<u16> {
    let exposure = &spec.exposure;
    match exposure.type_ {
        ExposureType::NodePort => {
            let chosen = exposure.node_ports.get(&port.to_string());
            chosen.and_then(|port| u16::try_from(*port).ok())
        }
        _ => Some(port),
    }
}

/// The cluster of the servers.
pub(super) fn cluster(
    port: u16,
    terminated: &Terminated,
    route: &Served,
    config: &RouteConfig,
) -> Cluster {
    let http2 = UpstreamHttpOptions {
        explicit_http_config: Some(ExplicitHttpConfig {
            http2_protocol_options: Some(connections::to_servers()),
        }),
    };
    let options = (terminated.upstream == Upstream::Http2).then(|| {
        ("envoy.extensions.upstreams.http.v3.HttpProtocolOptions".to_owned(), http2.to_any())
    });
    let endpoints = route.endpoints.iter().map(|server| servers::endpoint(server, None));
    let most = connections::maximum(config.maximum_sessions);
    let requests = u32::try_from(config.maximum_sessions).unwrap_or(u32::MAX);
    Cluster {
        typed_extension_protocol_options: options.into_iter().collect(),
        ..servers::cluster(cluster_name(port), endpoints.collect(), most, Some(requests))
    }
}

/// The listener for HTTP/3, without its address.
pub(super) fn http3(port: u16, certificate: &Certificate, config: &RouteConfig) -> Listener {
    let transport = QuicDownstreamTransport {
        downstream_tls_context: Some(tls(certificate, &["h3"])),
        // Requests before the end of the handshake can be replayed, and servers do not know.
        enable_early_data: Some(BoolValue { value: false }),
    };
    let manager = HttpConnectionManager {
        codec_type: HTTP3_CODEC,
        http3_protocol_options: Some(Http3Options {}),
        ..manager(port, config, None)
    };
    let name = format!("quic-{port}");
    Listener {
        udp_listener_config: Some(UdpListenerConfig {
            downstream_socket_config: Some(UdpSocketConfig {
                prefer_gro: Some(BoolValue { value: true }),
            }),
            quic_options: Some(QuicOptions { idle_timeout: idle(config) }),
        }),
        filter_chains: vec![FilterChain {
            filters: filters(&name, config.maximum_sessions, &manager),
            transport_socket: socket("envoy.transport_sockets.quic", transport.to_any()),
            ..FilterChain::default()
        }],
        stat_prefix: name.clone(),
        name,
        ..Listener::default()
    }
}

/// The listener for HTTP/2 and HTTP/1.1, without its address. `public`: the port at which clients find
/// HTTP/3, if it is known.
pub(super) fn over_tcp(
    port: u16,
    certificate: &Certificate,
    config: &RouteConfig,
    public: Option<u16>,
) -> Listener {
    let mut manager = manager(port, config, public);
    manager.http2_protocol_options = Some(connections::of_clients());
    let name = format!("tcp-{port}");
    let limit = connections::maximum(config.maximum_sessions);
    Listener {
        per_connection_buffer_limit_bytes: connections::buffer(),
        socket_options: connections::keepalive(),
        filter_chains: vec![FilterChain {
            filters: filters(&name, limit.into(), &manager),
            transport_socket: socket(
                "envoy.transport_sockets.tls",
                tls(certificate, &["h2", "http/1.1"]).to_any(),
            ),
            ..FilterChain::default()
        }],
        stat_prefix: name.clone(),
        name,
        ..Listener::default()
    }
}

fn socket(name: &str, typed_config: Any) -> Option<TransportSocket> {
    Some(TransportSocket { name: name.to_owned(), typed_config: Some(typed_config) })
}

fn idle(config: &RouteConfig) -> Option<Duration> {
    Some(Duration { seconds: i64::try_from(config.idle_timeout_seconds).unwrap_or(i64::MAX) })
}

fn filters(name: &str, limit: u64, manager: &HttpConnectionManager) -> Vec<Filter> {
    let manager = Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        typed_config: Some(manager.to_any()),
    };
    vec![connections::limit(name, limit), manager]
}

fn tls(certificate: &Certificate, protocols: &[&str]) -> DownstreamTlsContext {
    let inline =
        |text: &str| Some(DataSource { filename: None, inline_string: Some(text.to_owned()) });
    DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_certificates: vec![TlsCertificate {
                certificate_chain: inline(&certificate.chain),
                private_key: inline(certificate.key.reveal()),
            }],
            alpn_protocols: protocols.iter().map(|name| (*name).to_owned()).collect(),
            ..CommonTlsContext::default()
        }),
    }
}

/// Every request goes to the servers as it is, but for fields about its origin: the gateway writes
/// `x-forwarded-for`. Its path stays, since nothing is decided by it here.
fn manager(port: u16, config: &RouteConfig, public: Option<u16>) -> HttpConnectionManager {
    let alt_svc = public.map(|port| HeaderValueOption {
        header: Some(HeaderValue {
            key: "alt-svc".to_owned(),
            value: format!("h3=\":{port}\"; ma={ALT_SVC_SECONDS}"),
        }),
        append_action: OVERWRITE_ACTION,
    });
    let to_servers = Route {
        r#match: Some(RouteMatch { prefix: Some("/".to_owned()) }),
        route: Some(RouteAction {
            cluster: Some(cluster_name(port)),
            // A download lasts as long as it does.
            timeout: Some(Duration { seconds: 0 }),
            retry_policy: Some(RetryPolicy {
                retry_on: "connect-failure,refused-stream".to_owned(),
                num_retries: number(MOST_RETRIES),
            }),
        }),
    };
    let removed = ORIGIN_FIELDS.map(|name| HeaderMutation { remove: Some(name.to_owned()) });
    let origin = TypedExtension {
        name: "envoy.http.early_header_mutation.header_mutation".to_owned(),
        typed_config: Some(EarlyHeaderMutation { mutations: removed.into() }.to_any()),
    };
    HttpConnectionManager {
        stat_prefix: format!("terminated-{port}"),
        route_config: Some(RouteConfiguration {
            name: config.route.clone(),
            virtual_hosts: vec![VirtualHost {
                name: "all".to_owned(),
                domains: vec!["*".to_owned()],
                routes: vec![to_servers],
            }],
            response_headers_to_add: alt_svc.into_iter().collect(),
        }),
        http_filters: vec![HttpFilter {
            name: "envoy.filters.http.router".to_owned(),
            typed_config: Some(Router {}.to_any()),
        }],
        use_remote_address: Some(BoolValue { value: true }),
        upgrade_configs: vec![UpgradeConfig { upgrade_type: "websocket".to_owned() }],
        server_header_transformation: PASS_THROUGH,
        // No address is trusted to say how Envoy shall treat a request (`x-envoy-…`).
        internal_address_config: Some(InternalAddressConfig {}),
        early_header_mutation_extensions: vec![origin],
        common_http_protocol_options: Some(CommonHttpOptions {
            idle_timeout: idle(config),
            headers_with_underscores_action: DROP_FIELD,
        }),
        request_headers_timeout: Some(Duration { seconds: HEADERS_SECONDS }),
        ..HttpConnectionManager::default()
    }
}

#[cfg(test)]
mod tests {
    use packrat_api::route::Hidden;

    use super::*;

    /// A port without an answer would cost each browser a wait.
    #[test]
    fn http3_is_named_where_clients_reach_it_and_not_elsewhere() {
        let mut spec = EdgeGatewaySpec::default();
        assert_eq!(public_port(&spec, 443), Some(443));
        spec.exposure.type_ = ExposureType::NodePort;
        assert_eq!(public_port(&spec, 443), None);
        spec.exposure.node_ports = [("443".to_owned(), 30443)].into();
        assert_eq!(public_port(&spec, 443), Some(30443));

        let config = RouteConfig::unchecked("shop/web/443", []);
        let certificate = Certificate { chain: String::new(), key: Hidden::new("") };
        let named = |public| {
            let listener = over_tcp(443, &certificate, &config, public);
            let filters = &listener.filter_chains[0].filters;
            let manager = filters[1].typed_config.clone().unwrap();
            let manager: HttpConnectionManager =
                prost::Message::decode(manager.value.as_slice()).unwrap();
            let fields = manager.route_config.unwrap().response_headers_to_add;
            fields.into_iter().map(|field| field.header.unwrap().value).collect::<Vec<_>>()
        };
        assert_eq!(named(None), [""; 0]);
        assert_eq!(named(Some(30443)), ["h3=\":30443\"; ma=86400"]);
    }
}
