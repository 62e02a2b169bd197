//! Envoy's configuration messages, as far as a gateway's listeners need them.
//!
//! Written by hand: the whole of Envoy's API is 90,000 lines of generated code, and 70 messages of
//! it are needed. Field numbers are Envoy's; the tests run a real Envoy and compare its
//! configuration dump.
#![allow(missing_docs)] // Envoy's API reference explains the fields

use std::collections::BTreeMap;

/// A message that goes into an [`Any`].
pub trait Typed: prost::Message {
    /// The full name of its type.
    const TYPE: &'static str;

    /// The message with its type.
    fn to_any(&self) -> Any
    where
        Self: Sized,
    {
        Any { type_url: format!("type.googleapis.com/{}", Self::TYPE), value: self.encode_to_vec() }
    }
}

macro_rules! messages {
    ($($(#[$doc:meta])* $type:literal $name:ident { $($(#[$field:meta])* $field_name:ident: $field_type:ty,)* })*) => {$(
        #[doc = concat!("`", $type, "`.")]
        #[derive(Clone, PartialEq, prost::Message)]
        pub struct $name { $($(#[$field])* pub $field_name: $field_type,)* }
        impl Typed for $name {
            const TYPE: &'static str = $type;
        }
    )*};
}

messages! {
    "google.protobuf.Any" Any {
        #[prost(string, tag = "1")] type_url: String,
        #[prost(bytes = "vec", tag = "2")] value: Vec<u8>,
    }
    "google.protobuf.BoolValue" BoolValue {
        #[prost(bool, tag = "1")] value: bool,
    }
    "google.protobuf.StringValue" StringValue {
        #[prost(string, tag = "1")] value: String,
    }
    "google.protobuf.UInt32Value" UInt32Value {
        #[prost(uint32, tag = "1")] value: u32,
    }
    "google.protobuf.UInt64Value" UInt64Value {
        #[prost(uint64, tag = "1")] value: u64,
    }
    "google.protobuf.Duration" Duration {
        #[prost(int64, tag = "1")] seconds: i64,
    }
    "google.protobuf.Struct" Struct {
        #[prost(btree_map = "string, message", tag = "1")] fields: BTreeMap<String, Value>,
    }
    "google.protobuf.ListValue" ListValue {
        #[prost(message, repeated, tag = "1")] values: Vec<Value>,
    }
    "google.protobuf.Value" Value {
        #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")] kind: Option<Kind>,
    }
    "envoy.config.core.v3.Address" Address {
        #[prost(message, optional, tag = "1")] socket_address: Option<SocketAddress>,
    }
    "envoy.config.core.v3.SocketAddress" SocketAddress {
        #[prost(int32, tag = "1")] protocol: i32,
        #[prost(string, tag = "2")] address: String,
        #[prost(uint32, optional, tag = "3")] port_value: Option<u32>,
        #[prost(bool, tag = "6")] ipv4_compat: bool,
    }
    "envoy.config.core.v3.SocketOption" SocketOption {
        #[prost(int64, tag = "2")] level: i64,
        #[prost(int64, tag = "3")] name: i64,
        #[prost(int64, optional, tag = "4")] int_value: Option<i64>,
    }
    "envoy.config.core.v3.UdpSocketConfig" UdpSocketConfig {
        #[prost(message, optional, tag = "2")] prefer_gro: Option<BoolValue>,
    }
    "envoy.config.core.v3.DataSource" DataSource {
        #[prost(string, optional, tag = "1")] filename: Option<String>,
        #[prost(string, optional, tag = "3")] inline_string: Option<String>,
    }
    "envoy.config.core.v3.HeaderValue" HeaderValue {
        #[prost(string, tag = "1")] key: String,
        #[prost(string, tag = "2")] value: String,
    }
    "envoy.config.core.v3.HeaderValueOption" HeaderValueOption {
        #[prost(message, optional, tag = "1")] header: Option<HeaderValue>,
        #[prost(int32, tag = "3")] append_action: i32,
    }
    "envoy.config.core.v3.HttpProtocolOptions" CommonHttpOptions {
        #[prost(message, optional, tag = "1")] idle_timeout: Option<Duration>,
        #[prost(int32, tag = "5")] headers_with_underscores_action: i32,
    }
    "envoy.config.core.v3.Http2ProtocolOptions" Http2Options {
        #[prost(message, optional, tag = "2")] max_concurrent_streams: Option<UInt32Value>,
        #[prost(message, optional, tag = "3")] initial_stream_window_size: Option<UInt32Value>,
        #[prost(message, optional, tag = "4")] initial_connection_window_size: Option<UInt32Value>,
    }
    "envoy.config.core.v3.Http3ProtocolOptions" Http3Options {}
    "envoy.config.core.v3.AsyncDataSource" AsyncDataSource {
        #[prost(message, optional, tag = "1")] local: Option<DataSource>,
    }
    "envoy.config.core.v3.PathConfigSource" PathConfigSource {
        #[prost(string, tag = "1")] path: String,
    }
    "envoy.config.core.v3.ConfigSource" ConfigSource {
        #[prost(int32, tag = "6")] resource_api_version: i32,
        #[prost(message, optional, tag = "8")] path_config_source: Option<PathConfigSource>,
    }
    "envoy.config.core.v3.TransportSocket" TransportSocket {
        #[prost(string, tag = "1")] name: String,
        #[prost(message, optional, tag = "3")] typed_config: Option<Any>,
    }
    "envoy.config.listener.v3.Listener" Listener {
        #[prost(string, tag = "1")] name: String,
        #[prost(message, optional, tag = "2")] address: Option<Address>,
        #[prost(message, repeated, tag = "3")] filter_chains: Vec<FilterChain>,
        #[prost(message, optional, tag = "5")] per_connection_buffer_limit_bytes: Option<UInt32Value>,
        #[prost(message, repeated, tag = "9")] listener_filters: Vec<ListenerFilter>,
        #[prost(message, repeated, tag = "13")] socket_options: Vec<SocketOption>,
        #[prost(message, optional, tag = "18")] udp_listener_config: Option<UdpListenerConfig>,
        #[prost(string, tag = "28")] stat_prefix: String,
    }
    "envoy.config.listener.v3.UdpListenerConfig" UdpListenerConfig {
        #[prost(message, optional, tag = "5")] downstream_socket_config: Option<UdpSocketConfig>,
        #[prost(message, optional, tag = "7")] quic_options: Option<QuicOptions>,
    }
    "envoy.config.listener.v3.QuicProtocolOptions" QuicOptions {
        #[prost(message, optional, tag = "2")] idle_timeout: Option<Duration>,
    }
    "envoy.config.listener.v3.ListenerFilter" ListenerFilter {
        #[prost(string, tag = "1")] name: String,
        #[prost(message, optional, tag = "3")] typed_config: Option<Any>,
    }
    "envoy.config.listener.v3.FilterChainMatch" FilterChainMatch {
        #[prost(string, repeated, tag = "11")] server_names: Vec<String>,
    }
    "envoy.config.listener.v3.FilterChain" FilterChain {
        #[prost(message, optional, tag = "1")] filter_chain_match: Option<FilterChainMatch>,
        #[prost(message, repeated, tag = "3")] filters: Vec<Filter>,
        #[prost(message, optional, tag = "6")] transport_socket: Option<TransportSocket>,
    }
    "envoy.config.listener.v3.Filter" Filter {
        #[prost(string, tag = "1")] name: String,
        #[prost(message, optional, tag = "4")] typed_config: Option<Any>,
    }
    "envoy.config.cluster.v3.Cluster" Cluster {
        #[prost(string, tag = "1")] name: String,
        #[prost(message, optional, tag = "4")] connect_timeout: Option<Duration>,
        #[prost(message, optional, tag = "5")] per_connection_buffer_limit_bytes: Option<UInt32Value>,
        #[prost(message, optional, tag = "10")] circuit_breakers: Option<CircuitBreakers>,
        #[prost(message, optional, tag = "24")] transport_socket: Option<TransportSocket>,
        #[prost(message, optional, tag = "33")] load_assignment: Option<ClusterLoadAssignment>,
        #[prost(btree_map = "string, message", tag = "36")] typed_extension_protocol_options: BTreeMap<String, Any>,
    }
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions" UpstreamHttpOptions {
        #[prost(message, optional, tag = "3")] explicit_http_config: Option<ExplicitHttpConfig>,
    }
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions.ExplicitHttpConfig" ExplicitHttpConfig {
        #[prost(message, optional, tag = "2")] http2_protocol_options: Option<Http2Options>,
    }
    "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer" RawBuffer {}
    "envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport" ProxyProtocolUpstreamTransport {
        #[prost(message, optional, tag = "1")] config: Option<ProxyProtocolConfig>,
        #[prost(message, optional, tag = "2")] transport_socket: Option<TransportSocket>,
    }
    "envoy.config.core.v3.ProxyProtocolConfig" ProxyProtocolConfig {
        #[prost(int32, tag = "1")] version: i32,
    }
    "envoy.config.cluster.v3.CircuitBreakers" CircuitBreakers {
        #[prost(message, repeated, tag = "1")] thresholds: Vec<Thresholds>,
    }
    "envoy.config.cluster.v3.CircuitBreakers.Thresholds" Thresholds {
        #[prost(message, optional, tag = "2")] max_connections: Option<UInt32Value>,
        #[prost(message, optional, tag = "3")] max_pending_requests: Option<UInt32Value>,
        #[prost(message, optional, tag = "4")] max_requests: Option<UInt32Value>,
    }
    "envoy.config.endpoint.v3.ClusterLoadAssignment" ClusterLoadAssignment {
        #[prost(string, tag = "1")] cluster_name: String,
        #[prost(message, repeated, tag = "2")] endpoints: Vec<LocalityLbEndpoints>,
    }
    "envoy.config.endpoint.v3.LocalityLbEndpoints" LocalityLbEndpoints {
        #[prost(message, repeated, tag = "2")] lb_endpoints: Vec<LbEndpoint>,
    }
    "envoy.config.endpoint.v3.LbEndpoint" LbEndpoint {
        #[prost(message, optional, tag = "1")] endpoint: Option<Endpoint>,
        #[prost(message, optional, tag = "4")] load_balancing_weight: Option<UInt32Value>,
    }
    "envoy.config.endpoint.v3.Endpoint" Endpoint {
        #[prost(message, optional, tag = "1")] address: Option<Address>,
    }
    "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector" TlsInspector {}
    "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit" ConnectionLimit {
        #[prost(string, tag = "1")] stat_prefix: String,
        #[prost(message, optional, tag = "2")] max_connections: Option<UInt64Value>,
    }
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy" TcpProxy {
        #[prost(string, tag = "1")] stat_prefix: String,
        #[prost(string, optional, tag = "2")] cluster: Option<String>,
        #[prost(message, optional, tag = "7")] max_connect_attempts: Option<UInt32Value>,
        #[prost(message, optional, tag = "10")] weighted_clusters: Option<WeightedCluster>,
    }
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster" WeightedCluster {
        #[prost(message, repeated, tag = "1")] clusters: Vec<ClusterWeight>,
    }
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight" ClusterWeight {
        #[prost(string, tag = "1")] name: String,
        #[prost(uint32, tag = "2")] weight: u32,
    }
    "envoy.extensions.dynamic_modules.v3.DynamicModuleConfig" DynamicModuleConfig {
        #[prost(string, tag = "1")] name: String,
        #[prost(bool, tag = "3")] do_not_close: bool,
        #[prost(string, tag = "5")] metrics_namespace: String,
    }
    "envoy.extensions.filters.udp.dynamic_modules.v3.DynamicModuleUdpListenerFilter" DynamicModuleUdpListenerFilter {
        #[prost(message, optional, tag = "1")] dynamic_module_config: Option<DynamicModuleConfig>,
        #[prost(string, tag = "2")] filter_name: String,
        #[prost(message, optional, tag = "3")] filter_config: Option<Any>,
    }
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager" HttpConnectionManager {
        #[prost(int32, tag = "1")] codec_type: i32,
        #[prost(string, tag = "2")] stat_prefix: String,
        #[prost(message, optional, tag = "4")] route_config: Option<RouteConfiguration>,
        #[prost(message, repeated, tag = "5")] http_filters: Vec<HttpFilter>,
        #[prost(message, optional, tag = "9")] http2_protocol_options: Option<Http2Options>,
        #[prost(message, optional, tag = "14")] use_remote_address: Option<BoolValue>,
        #[prost(message, repeated, tag = "23")] upgrade_configs: Vec<UpgradeConfig>,
        #[prost(message, optional, tag = "25")] internal_address_config: Option<InternalAddressConfig>,
        #[prost(int32, tag = "34")] server_header_transformation: i32,
        #[prost(message, optional, tag = "35")] common_http_protocol_options: Option<CommonHttpOptions>,
        #[prost(message, optional, tag = "41")] request_headers_timeout: Option<Duration>,
        #[prost(message, optional, tag = "44")] http3_protocol_options: Option<Http3Options>,
        #[prost(message, repeated, tag = "52")] early_header_mutation_extensions: Vec<TypedExtension>,
    }
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.InternalAddressConfig" InternalAddressConfig {}
    "envoy.config.core.v3.TypedExtensionConfig" TypedExtension {
        #[prost(string, tag = "1")] name: String,
        #[prost(message, optional, tag = "2")] typed_config: Option<Any>,
    }
    "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation" EarlyHeaderMutation {
        #[prost(message, repeated, tag = "1")] mutations: Vec<HeaderMutation>,
    }
    "envoy.config.common.mutation_rules.v3.HeaderMutation" HeaderMutation {
        #[prost(string, optional, tag = "1")] remove: Option<String>,
    }
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.UpgradeConfig" UpgradeConfig {
        #[prost(string, tag = "1")] upgrade_type: String,
    }
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter" HttpFilter {
        #[prost(string, tag = "1")] name: String,
        #[prost(message, optional, tag = "4")] typed_config: Option<Any>,
    }
    "envoy.config.route.v3.RouteConfiguration" RouteConfiguration {
        #[prost(string, tag = "1")] name: String,
        #[prost(message, repeated, tag = "2")] virtual_hosts: Vec<VirtualHost>,
        #[prost(message, repeated, tag = "4")] response_headers_to_add: Vec<HeaderValueOption>,
    }
    "envoy.config.route.v3.VirtualHost" VirtualHost {
        #[prost(string, tag = "1")] name: String,
        #[prost(string, repeated, tag = "2")] domains: Vec<String>,
        #[prost(message, repeated, tag = "3")] routes: Vec<Route>,
    }
    "envoy.config.route.v3.Route" Route {
        #[prost(message, optional, tag = "1")] r#match: Option<RouteMatch>,
        #[prost(message, optional, tag = "2")] route: Option<RouteAction>,
    }
    "envoy.config.route.v3.RouteMatch" RouteMatch {
        #[prost(string, optional, tag = "1")] prefix: Option<String>,
    }
    "envoy.config.route.v3.RouteAction" RouteAction {
        #[prost(string, optional, tag = "1")] cluster: Option<String>,
        #[prost(message, optional, tag = "8")] timeout: Option<Duration>,
        #[prost(message, optional, tag = "9")] retry_policy: Option<RetryPolicy>,
    }
    "envoy.config.route.v3.RetryPolicy" RetryPolicy {
        #[prost(string, tag = "1")] retry_on: String,
        #[prost(message, optional, tag = "2")] num_retries: Option<UInt32Value>,
    }
    "envoy.extensions.filters.http.router.v3.Router" Router {}
    "envoy.extensions.filters.http.wasm.v3.Wasm" Wasm {
        #[prost(message, optional, tag = "1")] config: Option<PluginConfig>,
    }
    "envoy.extensions.wasm.v3.PluginConfig" PluginConfig {
        #[prost(string, tag = "1")] name: String,
        #[prost(message, optional, tag = "3")] vm_config: Option<VmConfig>,
        #[prost(message, optional, tag = "4")] configuration: Option<Any>,
    }
    "envoy.extensions.wasm.v3.VmConfig" VmConfig {
        #[prost(string, tag = "1")] vm_id: String,
        #[prost(string, tag = "2")] runtime: String,
        #[prost(message, optional, tag = "3")] code: Option<AsyncDataSource>,
    }
    "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext" DownstreamTlsContext {
        #[prost(message, optional, tag = "1")] common_tls_context: Option<CommonTlsContext>,
    }
    "envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport" QuicDownstreamTransport {
        #[prost(message, optional, tag = "1")] downstream_tls_context: Option<DownstreamTlsContext>,
        #[prost(message, optional, tag = "2")] enable_early_data: Option<BoolValue>,
    }
    "envoy.extensions.transport_sockets.tls.v3.TlsCertificate" TlsCertificate {
        #[prost(message, optional, tag = "1")] certificate_chain: Option<DataSource>,
        #[prost(message, optional, tag = "2")] private_key: Option<DataSource>,
    }
    "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext" CommonTlsContext {
        #[prost(message, repeated, tag = "2")] tls_certificates: Vec<TlsCertificate>,
        #[prost(string, repeated, tag = "4")] alpn_protocols: Vec<String>,
        #[prost(message, repeated, tag = "6")] tls_certificate_sds_secret_configs: Vec<SdsSecretConfig>,
    }
    "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig" SdsSecretConfig {
        #[prost(string, tag = "1")] name: String,
        #[prost(message, optional, tag = "2")] sds_config: Option<ConfigSource>,
    }
}

/// Version 3 of the API, in a [`ConfigSource`].
pub const API_V3: i32 = 2;

/// The address of a server, for TCP.
pub(super) fn address(host: &str, port: u16) -> Option<Address> {
    Some(Address {
        socket_address: Some(SocketAddress {
            protocol: 0,
            address: host.to_owned(),
            port_value: Some(port.into()),
            ipv4_compat: false,
        }),
    })
}

/// UDP as the protocol of a [`SocketAddress`]; 0 is TCP.
pub const PROTOCOL_UDP: i32 = 1;

/// `google.protobuf.Value.kind`.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    #[prost(int32, tag = "1")]
    Null(i32),
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
    #[prost(message, tag = "5")]
    Struct(Struct),
    #[prost(message, tag = "6")]
    List(ListValue),
}

impl From<&serde_json::Value> for Value {
    fn from(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let kind = match json {
            Json::Null => Kind::Null(0),
            Json::Bool(value) => Kind::Bool(*value),
            Json::Number(number) => Kind::Number(number.as_f64().unwrap_or(f64::NAN)),
            Json::String(text) => Kind::Text(text.clone()),
            Json::Array(values) => {
                Kind::List(ListValue { values: values.iter().map(Self::from).collect() })
            }
            Json::Object(map) => Kind::Struct(map.into()),
        };
        Self { kind: Some(kind) }
    }
}

impl From<&serde_json::Map<String, serde_json::Value>> for Struct {
    fn from(map: &serde_json::Map<String, serde_json::Value>) -> Self {
        Self { fields: map.iter().map(|(key, value)| (key.clone(), value.into())).collect() }
    }
}
