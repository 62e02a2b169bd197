//! Status of an `EdgeGateway`, which the operator writes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use schemars::transform::RecursiveTransform;
use serde::{Deserialize, Serialize};

use super::schema::{conditions, join_lines};

/// Status of an `EdgeGateway`, as the operator sees it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = RecursiveTransform(join_lines))]
pub struct EdgeGatewayStatus {
    /// The operator that this EdgeGateway belongs to, namespace/name. Other operators leave it
    /// alone, also other operators of its class. If this field is emptied, the next operator of the
    /// class takes the EdgeGateway over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// IP addresses and host names at which clients reach the gateways.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// The public key of all gateways, 64 hexadecimal digits: clients may pin it, and find it in the DNS
    /// (docs/OPERATING.md).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// Listeners of the gateways.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerStatus>,
    /// Number of routes: all listeners except draining ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_routes: Option<i32>,
    /// Number of gateway Pods that are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_gateways: Option<i32>,
    /// Sessions of all gateways, read twice a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<i64>,
    /// Gateways that are connected to the operator, each reported by the replica of the operator
    /// that serves it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub proxies: Vec<GatewayProxy>,
    /// Accepted: the spec and the routes can be applied. Programmed: all gateways that are ready are
    /// connected to the operator and have acknowledged the newest configuration. Ready: gateways run, and
    /// clients can reach them. RolledOut: all wanted gateways have the newest version of their Pods. Assisting: no route has a gateway on which assistance has stopped by itself,
    /// as it does if assisted sessions are slower than held-out ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// A listener.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// UDP port of the gateway.
    pub port: i32,
    /// The Service that is forwarded to, namespace/name; for a UDPRoute its name with .udproute.
    pub service: String,
    /// The Service's port; of one whose number has changed meanwhile, the former number.
    pub service_port: i32,
    /// Name of the Service's port, which may be empty; absent for a UDPRoute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_port_name: Option<String>,
    /// Number of endpoints.
    pub endpoints: i32,
    /// Number of endpoints of TCP connections to the same port, if the listener takes any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_endpoints: Option<i32>,
    /// True if clients' connections end at the gateway, which asks the endpoints over HTTP.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminated: bool,
    /// UDP port at which the listener's live stream arrives, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_port: Option<i32>,
    /// True if the route is gone, and its sessions have until the end of spec.drain.seconds to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// Port of the nodes, if the Service in front of the gateways has one for the listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<i32>,
    /// Number of gateways on which assistance of the route has stopped by itself: assisted sessions
    /// were slower than held-out ones. Read twice a minute.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stopped_gateways: i32,
    /// Number of gateways that try stopped assistance again, for half of the clients.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trying_gateways: i32,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// A gateway that is connected to the operator.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GatewayProxy {
    /// Name of the Pod.
    pub name: String,
    /// Name of the operator's replica that the gateway is connected to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replica: String,
    /// The version of the configuration that the gateway has acknowledged as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Envoy's reason for refusing the newest configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
