//! From a gateway's listeners to Envoy's resources.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use packrat_api::route::{Hidden, MAXIMUM_PEERS, RouteConfig};
use packrat_api::token::TokenPolicy;
use packrat_api::token_endpoint::{NetworkBinding, OtherPaths, TokenEndpointConfig};
use packrat_wire::hexadecimal;
use prost::Message as _;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::proto::{
    API_V3, Address, Any, AsyncDataSource, BoolValue, CommonHttpOptions, CommonTlsContext,
    ConfigSource, DataSource, DownstreamTlsContext, Duration, DynamicModuleConfig,
    DynamicModuleUdpListenerFilter, Filter, FilterChain, HttpConnectionManager, HttpFilter,
    Listener, ListenerFilter, PROTOCOL_UDP, PathConfigSource, PluginConfig, RouteConfiguration,
    Router, SdsSecretConfig, SocketAddress, StringValue, Struct, TransportSocket, Typed as _,
    UdpListenerConfig, UdpSocketConfig, VmConfig, Wasm,
};
use super::wire::DiscoveryResponse;
use super::{connections, tcp, terminate};
use crate::index::{GatewayView, Listener as Route};
use crate::keys::GatewayKeys;
use crate::object_key::ObjectKey;
use crate::overrides::Overrides;
use crate::resource::EdgeGatewaySpec;

/// Name of the module, and namespace of its metrics.
const ENVOY_MODULE: &str = "packrat_envoy";
const METRICS_NAMESPACE: &str = "packrat";

/// Seconds for which a connection for tokens stays without a request.
const TOKEN_IDLE_SECONDS: i64 = 30;

/// Name of the certificate of the listeners that give tokens out.
pub const TOKEN_CERTIFICATE: &str = "token";

/// Inputs of a gateway's resources beside its routes.
#[derive(Debug, Clone)]
pub struct GatewaySettings<'a> {
    /// The EdgeGateway.
    pub key: &'a ObjectKey,
    /// Spec of the EdgeGateway.
    pub spec: &'a EdgeGatewaySpec,
    /// Keys of the gateway; without them no listener can be made.
    pub keys: &'a GatewayKeys,
    /// The address to listen on: `::` also takes IPv4.
    pub listen_address: &'a str,
    /// Path of the filter that gives tokens out.
    pub token_filter: &'a str,
    /// The file by which Envoy finds the certificate of the listener for tokens (secret discovery
    /// from a file).
    pub token_certificate: &'a str,
}

/// A resource with the version that follows from its content.
#[derive(Debug, Clone, PartialEq)]
pub struct Versioned {
    /// Hash of the content.
    pub version: String,
    /// The listener, or the cluster.
    pub resource: Any,
}

/// Resources by name.
pub type Resources = BTreeMap<String, Versioned>;

/// The listeners and clusters of a gateway. No two have the same name.
pub fn resources(settings: &GatewaySettings<'_>, view: &GatewayView) -> Resources {
    let mut resources = Resources::new();
    let gateways = settings.spec.settings();
    let mut add = |name: String, resource: Any| {
        resources.insert(name, Versioned { version: version(&resource.value), resource });
    };
    for (&port, route) in view.listeners.iter().filter(|(_, route)| !route.endpoints.is_empty()) {
        let config = route_config(settings, &gateways, route, &view.pods, port);
        if let Some(terminated) = &route.terminated {
            let cluster = terminate::cluster(port, terminated, route, &config);
            add(cluster.name.clone(), cluster.to_any());
            // Envoy lets the connections of a listener that is gone last as long as the route drains.
            let certificate = terminated.certificate.as_ref().filter(|_| !route.is_leaving);
            let Some(certificate) = certificate else { continue };
            let mut http3 = terminate::http3(port, certificate, &config);
            http3.address = address(settings, PROTOCOL_UDP, port);
            add(http3.name.clone(), http3.to_any());
            if route.tcp.is_some() {
                let public = terminate::public_port(settings.spec, port);
                let mut over_tcp = terminate::over_tcp(port, certificate, &config, public);
                over_tcp.address = address(settings, 0, port);
                add(over_tcp.name.clone(), over_tcp.to_any());
            }
            continue;
        }
        let udp = udp_listener(settings, port, &config);
        add(udp.name.clone(), udp.to_any());
        let gives_tokens = route.gives_tokens(settings.spec);
        let limit = connections::maximum(config.maximum_sessions);
        let tokens = || token_chain(settings, port, route, limit);
        if let Some(passed) = &route.tcp {
            let cluster = tcp::cluster(port, passed, limit);
            add(cluster.name.clone(), cluster.to_any());
            // Envoy lets the connections of a listener that is gone last as long as the route drains.
            if !route.is_leaving {
                let name =
                    settings.spec.tokens.tls.as_ref().and_then(|tls| tls.server_name.clone());
                let tokens = name.filter(|_| gives_tokens).map(|name| (name, tokens()));
                let mut listener = tcp::listener(port, passed, limit, tokens);
                listener.address = address(settings, 0, port);
                add(listener.name.clone(), listener.to_any());
            }
        } else if gives_tokens {
            let listener = Listener {
                name: format!("token-{port}"),
                address: address(settings, 0, port),
                filter_chains: vec![tokens()],
                stat_prefix: format!("token_{port}"),
                ..Listener::default()
            };
            add(listener.name.clone(), listener.to_any());
        }
    }
    resources
}

/// The port of a listener or of a cluster, from its name.
fn port_of(name: &str) -> Option<u16> {
    name.rsplit_once('-')?.1.parse().ok()
}

/// True if a gateway that has not taken this resource lacks something: a route that is about to go
/// may have another resource in each replica of the operator.
pub fn matters(view: &GatewayView, name: &str) -> bool {
    let listener = port_of(name).and_then(|port| view.listeners.get(&port));
    listener.is_some_and(|listener| !listener.is_leaving)
}

/// The version of a gateway's whole configuration; the same in every replica.
pub fn version_of(resources: &Resources, view: &GatewayView) -> String {
    let all: Vec<String> = resources
        .iter()
        .filter(|(name, _)| matters(view, name))
        .map(|(name, resource)| format!("{name}={}", resource.version))
        .collect();
    version(all.join(",").as_bytes())
}

/// A file with the resources of a type, from which Envoy reads them without an operator.
pub fn file_of(resources: &Resources, type_url: &str) -> Vec<u8> {
    let all = resources.values().map(|found| &found.resource);
    let all: Vec<Any> = all.filter(|found| found.type_url == type_url).cloned().collect();
    let mut response = DiscoveryResponse {
        version_info: String::new(),
        resources: all,
        type_url: type_url.to_owned(),
    };
    response.version_info = version(&response.encode_to_vec());
    response.encode_to_vec()
}

/// Version of a content, which is the same in every replica and after a restart: resources that
/// Envoy has are not sent again.
fn version(content: &[u8]) -> String {
    hexadecimal::encode(&Sha256::digest(content)[..12])
}

/// The configuration of a route in Packrat's filter: `gateways`, the EdgeGateway's settings, and
/// the ones that the Service overrides.
fn route_config(
    settings: &GatewaySettings<'_>,
    gateways: &Overrides,
    route: &Route,
    pods: &BTreeSet<IpAddr>,
    port: u16,
) -> RouteConfig {
    let mut config = RouteConfig::unchecked(route.route(), route.endpoints.iter().copied());
    config.gateway = settings.key.to_string();
    config.namespace = route.service.namespace.clone();
    config.static_key = Some(Hidden::new(settings.keys.static_key_text()));
    config.peer_keys = settings.keys.peer_keys().into_iter().map(Hidden::new).collect();
    config.weights.clone_from(&route.shares.weights);
    config.refused_weight = route.shares.refused;
    if !config.weights.is_empty() {
        // A gateway that does not know weights serves the endpoints alike.
        config.optional = ["weights", "refused_weight"].map(str::to_owned).into();
    }
    config.quic_lb.clone_from(&route.quic_lb);
    if !config.quic_lb.is_empty() {
        // One that does not know it goes by the client's address.
        config.optional.push("quic_lb".to_owned());
    }
    // One alone has no other to ask, and among very many each move would be a flood.
    if (2..=MAXIMUM_PEERS).contains(&pods.len()) {
        let peers = pods.iter().map(|pod| SocketAddr::new(*pod, port));
        config.peers = peers.filter(|peer| !route.endpoints.contains(peer)).collect();
        // A gateway that does not know them knows its own clients only.
        config.optional.push("peers".to_owned());
    }
    // One that does not know them shares nothing with the others until all do.
    config.optional.push("peer_keys".to_owned());
    gateways.apply(&mut config);
    route.overrides.apply(&mut config);
    config.new_clients = !route.is_leaving;
    if config.tokens != TokenPolicy::Off {
        config.token_keys = settings.keys.verifying().into_iter().map(Hidden::new).collect();
    }
    config
}

fn address(settings: &GatewaySettings<'_>, protocol: i32, port: u16) -> Option<Address> {
    Some(Address {
        socket_address: Some(SocketAddress {
            protocol,
            address: settings.listen_address.to_owned(),
            port_value: Some(port.into()),
            ipv4_compat: settings.listen_address == "::",
        }),
    })
}

fn udp_listener(settings: &GatewaySettings<'_>, port: u16, config: &RouteConfig) -> Listener {
    let config = match serde_json::to_value(config) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let filter = DynamicModuleUdpListenerFilter {
        dynamic_module_config: Some(DynamicModuleConfig {
            name: ENVOY_MODULE.to_owned(),
            do_not_close: true,
            metrics_namespace: METRICS_NAMESPACE.to_owned(),
        }),
        filter_name: "packrat".to_owned(),
        filter_config: Some(Struct::from(&config).to_any()),
    };
    Listener {
        name: format!("udp-{port}"),
        address: address(settings, PROTOCOL_UDP, port),
        udp_listener_config: Some(UdpListenerConfig {
            downstream_socket_config: Some(UdpSocketConfig {
                prefer_gro: Some(BoolValue { value: true }),
            }),
            quic_options: None,
        }),
        listener_filters: vec![ListenerFilter {
            name: "packrat".to_owned(),
            typed_config: Some(filter.to_any()),
        }],
        ..Listener::default()
    }
}

/// The configuration of a route's token endpoint: the EdgeGateway's settings.
fn token_config(settings: &GatewaySettings<'_>, port: u16, route: &Route) -> TokenEndpointConfig {
    let (tokens, keys) = (&settings.spec.tokens, settings.keys);
    let issuing = keys.issuing().into_iter().map(Hidden::new).collect();
    let mut config =
        TokenEndpointConfig::unchecked(route.route(), issuing, port, keys.public_key_text());
    config.lifetime_seconds = tokens.lifetime_seconds.unsigned_abs();
    config.maximum_hold_ms = tokens.maximum_hold_milliseconds.unsigned_abs();
    config.other_paths = OtherPaths::NotFound;
    config.bind = tokens.bind_to_network.then(NetworkBinding::default);
    config
}

/// The HTTP server that gives tokens out.
fn token_manager(
    settings: &GatewaySettings<'_>,
    port: u16,
    route: &Route,
) -> HttpConnectionManager {
    let configuration = serde_json::to_string(&token_config(settings, port, route));
    let wasm = Wasm {
        config: Some(PluginConfig {
            name: format!("packrat_token_{port}"),
            vm_config: Some(VmConfig {
                vm_id: "packrat_token".to_owned(),
                runtime: "envoy.wasm.runtime.v8".to_owned(),
                code: Some(AsyncDataSource { local: file(settings.token_filter.to_owned()) }),
            }),
            configuration: Some(StringValue { value: configuration.unwrap_or_default() }.to_any()),
        }),
    };
    HttpConnectionManager {
        stat_prefix: format!("token_{port}"),
        route_config: Some(RouteConfiguration {
            name: "nothing".to_owned(),
            ..RouteConfiguration::default()
        }),
        http_filters: vec![
            HttpFilter { name: "packrat_token".to_owned(), typed_config: Some(wasm.to_any()) },
            HttpFilter {
                name: "envoy.filters.http.router".to_owned(),
                typed_config: Some(Router {}.to_any()),
            },
        ],
        http2_protocol_options: Some(connections::of_clients()),
        use_remote_address: Some(BoolValue { value: true }),
        common_http_protocol_options: Some(CommonHttpOptions {
            idle_timeout: Some(Duration { seconds: TOKEN_IDLE_SECONDS }),
            ..CommonHttpOptions::default()
        }),
        ..HttpConnectionManager::default()
    }
}

/// Gives tokens out over TLS, on the TCP port with the same number.
fn token_chain(
    settings: &GatewaySettings<'_>,
    port: u16,
    route: &Route,
    limit: u32,
) -> FilterChain {
    let manager = token_manager(settings, port, route);
    let certificate = ConfigSource {
        resource_api_version: API_V3,
        path_config_source: Some(PathConfigSource { path: settings.token_certificate.to_owned() }),
    };
    let tls = DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_certificate_sds_secret_configs: vec![SdsSecretConfig {
                name: TOKEN_CERTIFICATE.to_owned(),
                sds_config: Some(certificate),
            }],
            alpn_protocols: vec!["h2".to_owned(), "http/1.1".to_owned()],
            ..CommonTlsContext::default()
        }),
    };
    FilterChain {
        filters: vec![
            connections::limit(&format!("token_{port}"), limit.into()),
            Filter {
                name: "envoy.filters.network.http_connection_manager".to_owned(),
                typed_config: Some(manager.to_any()),
            },
        ],
        transport_socket: Some(TransportSocket {
            name: "envoy.transport_sockets.tls".to_owned(),
            typed_config: Some(tls.to_any()),
        }),
        ..FilterChain::default()
    }
}

fn file(filename: String) -> Option<DataSource> {
    Some(DataSource { filename: Some(filename), inline_string: None })
}

impl Versioned {
    /// Bytes of the content.
    pub fn size(&self) -> usize {
        self.resource.encoded_len()
    }
}
