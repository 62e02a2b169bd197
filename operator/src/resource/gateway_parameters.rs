//! `GatewayParameters`: settings that a Gateway of the Gateway API does not have itself.

use kube::CustomResource;
use packrat_api::sender::SenderKind;
use schemars::JsonSchema;
use schemars::transform::RecursiveTransform;
use serde::{Deserialize, Serialize};

use super::edge_gateway::{
    Cache, Drain, EdgeGatewaySpec, Envoy, MulticastStreams, NamespacesFrom, Repair,
    RouteNamespaces, SenderKindName, Sessions, Telemetry, Tokens, spec_rules,
};
use super::exposure::Exposure;
use super::limits::{EndpointsFrom, Limits};
use super::pod_settings::Workload;
use super::schema::join_lines;
use super::tcp::TcpPolicy;
use super::terminate::TerminatePolicy;

/// Settings of Gateways beside their listeners: an EdgeGateway's, except its class and its routes.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "packrat.dev",
    version = "v1alpha1",
    kind = "GatewayParameters",
    plural = "gatewayparameters",
    category = "packrat",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    doc = "Settings of Gateways beside their listeners: those of an EdgeGateway without its class and its routes. Named by parametersRef of a GatewayClass, or of a Gateway's infrastructure: these stay within those of the class."
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = RecursiveTransform(join_lines))]
#[schemars(extend("x-kubernetes-validations" = spec_rules()))]
pub struct GatewayParametersSpec {
    /// False: all clients are forwarded without assistance, and current assistance ends. Default:
    /// true.
    pub assist: bool,
    /// Exposure of the gateways to clients.
    pub exposure: Exposure,
    /// Kind, number, placement and resources of the gateways' Pods.
    pub workload: Workload,
    /// The Envoy that runs.
    pub envoy: Envoy,
    /// Memory for datagrams that may have to be sent again.
    pub cache: Cache,
    /// Limits of the cost of repairs.
    pub repair: Repair,
    /// Limits of sessions. A session is one client address and port.
    pub sessions: Sessions,
    /// Congestion control of the servers: Any, LossBased, BBR or BBR1. Default: Any.
    #[serde(with = "SenderKindName")]
    pub sender: SenderKind,
    /// Tokens, which permit clients to be assisted.
    pub tokens: Tokens,
    /// TCP connections to the ports of routes, for clients that find UDP blocked, and browsers,
    /// which come by TCP first. Off: they are not passed through. Allowed: routes that ask with
    /// packrat.dev/tcp have them passed through, to the TCP port of their Service that has the
    /// number of the UDP port. Passthrough: the same for all routes with such a port, unless
    /// packrat.dev/tcp is off. Default: Off.
    pub tcp: TcpPolicy,
    /// Connections of clients that end at the gateways, which ask the servers over HTTP/1.1 or HTTP/2. Off:
    /// connections do not end there. Allowed: Services may ask for it with packrat.dev/mode: terminate, and
    /// name the Secret of a certificate with packrat.dev/certificate. Default: Off.
    pub terminate: TerminatePolicy,
    /// Live streams with many receivers.
    pub multicast: MulticastStreams,
    /// Shutdown of a gateway.
    pub drain: Drain,
    /// Export of measurements, beside the page that Prometheus reads.
    pub telemetry: Telemetry,
    /// Pods: datagrams go to Pods of a Service's namespace only, as Kubernetes' own EndpointSlice
    /// controller names them. Any: to every EndpointSlice of the Service. Default: Pods.
    pub endpoints: EndpointsFrom,
    /// The most that policies and annotations may ask for. In the parameters of a GatewayClass:
    /// also Gateways with parameters of their own.
    pub limits: Limits,
}

impl Default for GatewayParametersSpec {
    /// Parameters with an EdgeGateway's defaults.
    fn default() -> Self {
        let edge = EdgeGatewaySpec::default();
        Self {
            assist: edge.assist,
            exposure: edge.exposure,
            workload: edge.workload,
            envoy: edge.envoy,
            cache: edge.cache,
            repair: edge.repair,
            sessions: edge.sessions,
            sender: edge.sender,
            tokens: edge.tokens,
            tcp: edge.tcp,
            terminate: edge.terminate,
            multicast: edge.multicast,
            drain: edge.drain,
            telemetry: edge.telemetry,
            endpoints: EndpointsFrom::default(),
            limits: edge.limits,
        }
    }
}

impl GatewayParametersSpec {
    /// The spec of an EdgeGateway with these settings. The listeners of its Gateway determine the
    /// routes that it takes.
    pub fn edge_gateway(self, class: &str) -> EdgeGatewaySpec {
        EdgeGatewaySpec {
            class: class.to_owned(),
            assist: self.assist,
            exposure: self.exposure,
            workload: self.workload,
            envoy: self.envoy,
            cache: self.cache,
            repair: self.repair,
            sessions: self.sessions,
            sender: self.sender,
            tokens: self.tokens,
            tcp: self.tcp,
            terminate: self.terminate,
            multicast: self.multicast,
            drain: self.drain,
            telemetry: self.telemetry,
            routes: RouteNamespaces {
                from: NamespacesFrom::All,
                ports: Vec::new(),
                endpoints: self.endpoints,
            },
            limits: self.limits,
        }
    }
}
