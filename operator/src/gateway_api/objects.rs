//! Objects of the Gateway API: the fields that the operator needs. They are read leniently, so that
//! the same types are good for all versions of a kind.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::bundle::Bundles;
use crate::names::API_GROUP;
use crate::names::{QUIC_LB, TCP_ANNOTATION};
use crate::object_key::ObjectKey;
use crate::resource::ParentReference;
use crate::resource::{GatewayParametersSpec, PackratPolicySpec};

/// The objects of the Gateway API, and the objects that they refer to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Objects {
    /// GatewayClasses by name.
    pub classes: BTreeMap<String, GatewayClass>,
    /// Gateways.
    pub gateways: BTreeMap<ObjectKey, Gateway>,
    /// UDPRoutes.
    pub routes: BTreeMap<ObjectKey, UdpRoute>,
    /// ReferenceGrants.
    pub grants: BTreeMap<ObjectKey, ReferenceGrant>,
    /// GatewayParameters.
    pub parameters: BTreeMap<ObjectKey, Parameters>,
    /// PackratPolicies.
    pub policies: BTreeMap<ObjectKey, PolicyModel>,
    /// The releases that the definitions are of; `None` while they are not known.
    pub bundles: Option<Bundles>,
    /// Labels of Namespaces.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl Objects {
    /// True if routes of a kind may refer to a Service from a namespace: it is the Service's own, or that
    /// has a ReferenceGrant for them.
    pub(crate) fn permit(&self, kind: &str, namespace: &str, service: &ObjectKey) -> bool {
        service.namespace == namespace
            || self.grants.iter().any(|(grant, content)| {
                grant.namespace == service.namespace
                    && content.permits(kind, namespace, &service.name)
            })
    }
}

/// The part of an object's metadata that matters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Identity of the object.
    pub uid: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Seconds since 1970 at which it was made; the oldest of two wins.
    pub created: i64,
    /// Version of the whole object.
    pub version: String,
    /// True if it is being deleted.
    pub deleting: bool,
}

impl Metadata {
    fn read(object: &DynamicObject) -> Self {
        Self {
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
            created: object
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(0, |time| time.0.as_second()),
            version: object.resource_version().unwrap_or_default(),
            deleting: object.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// A field of an object; absent is the default.
fn part<T: DeserializeOwned + Default>(
    object: &DynamicObject,
    field: &str,
) -> Result<T, serde_json::Error> {
    object.data.get(field).map_or_else(|| Ok(T::default()), T::deserialize)
}

/// An object with a spec and a status.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Specified<Spec> {
    /// Metadata of the object.
    pub metadata: Metadata,
    /// Spec of the object.
    pub spec: Spec,
    /// Status of the object, as it is written.
    pub status: Value,
}

/// A GatewayClass.
pub type GatewayClass = Specified<GatewayClassSpec>;
/// A Gateway.
pub type Gateway = Specified<GatewaySpec>;
/// A PackratPolicy.
pub type PolicyModel = Specified<PackratPolicySpec>;

/// The spec of a GatewayClass.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayClassSpec {
    /// Controller of the class.
    pub controller_name: String,
    /// Further settings of its Gateways.
    pub parameters_ref: Option<ParametersRef>,
}

/// A reference to parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParametersRef {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace; a Gateway's parameters are in its own.
    pub namespace: Option<String>,
}

/// The spec of a Gateway.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewaySpec {
    /// Name of its GatewayClass.
    pub gateway_class_name: String,
    /// Listeners of the Gateway.
    pub listeners: Vec<ListenerSpec>,
    /// Addresses that it asks for.
    pub addresses: Vec<Value>,
    /// Settings of the objects made for the Gateway.
    pub infrastructure: Infrastructure,
}

/// A listener of a Gateway.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerSpec {
    /// Name.
    pub name: String,
    /// Port.
    pub port: u16,
    /// Protocol.
    pub protocol: String,
    /// Routes that it takes.
    pub allowed_routes: AllowedRoutes,
}

/// Routes that a listener takes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedRoutes {
    /// Namespaces of the routes.
    pub namespaces: RouteNamespaces,
    /// Kinds of the routes; empty: all kinds of the protocol.
    pub kinds: Vec<RouteKind>,
}

/// Namespaces of routes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteNamespaces {
    /// Same, All, Selector or None.
    pub from: Option<String>,
    /// Labels of Namespaces, for Selector.
    pub selector: Option<LabelSelector>,
}

/// A kind of routes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteKind {
    /// API group; by default the Gateway API's.
    pub group: Option<String>,
    /// Kind.
    pub kind: String,
}

impl RouteKind {
    /// True for the kind that the operator serves.
    pub fn is_udp_route(&self) -> bool {
        self.kind == "UDPRoute" && self.group.as_deref().unwrap_or(API_GROUP) == API_GROUP
    }
}

/// Settings of the objects made for a Gateway.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Infrastructure {
    /// Labels of all objects.
    pub labels: BTreeMap<String, String>,
    /// Annotations of all objects.
    pub annotations: BTreeMap<String, String>,
    /// Further settings, instead of the GatewayClass's.
    pub parameters_ref: Option<ParametersRef>,
}

/// A UDPRoute.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UdpRoute {
    /// Metadata of the UDPRoute.
    pub metadata: Metadata,
    /// Annotation of the UDPRoute about TCP connections, as it is written.
    pub tcp: Option<String>,
    /// Annotation of the UDPRoute about connection IDs, as it is written.
    pub quic_lb: Option<String>,
    /// Spec of the UDPRoute.
    pub spec: UdpRouteSpec,
    /// Status of the UDPRoute, as it is written.
    pub status: Value,
}

/// The spec of a UDPRoute.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UdpRouteSpec {
    /// The Gateways that it wants to be attached to.
    pub parent_refs: Vec<ParentReference>,
    /// Rules of the UDPRoute: one.
    pub rules: Vec<Rule>,
}

/// A rule of a UDPRoute.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Destinations of the rule.
    pub backend_refs: Vec<BackendRef>,
}

/// A destination of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendRef {
    /// API group; absent: the Service's.
    pub group: Option<String>,
    /// Kind; absent: Service.
    pub kind: Option<String>,
    /// Name.
    pub name: String,
    /// Namespace; absent: the route's.
    pub namespace: Option<String>,
    /// Port of the Service.
    pub port: Option<u16>,
    /// Weight; absent: 1.
    pub weight: Option<u32>,
}

impl BackendRef {
    /// Share of this destination among all.
    pub fn weight(&self) -> u32 {
        self.weight.unwrap_or(1)
    }
}

/// A ReferenceGrant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReferenceGrant {
    /// Objects that may refer.
    pub from: Vec<GrantFrom>,
    /// Objects of its namespace that they may refer to.
    pub to: Vec<GrantTo>,
}

/// Objects that may refer to others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrantFrom {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
}

/// Objects that others may refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrantTo {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name; absent: all.
    pub name: Option<String>,
}

impl ReferenceGrant {
    /// True if routes of a kind and namespace may refer to a Service of this grant's namespace.
    pub fn permits(&self, kind: &str, namespace: &str, service: &str) -> bool {
        let from = |from: &GrantFrom| {
            from.group == API_GROUP && from.kind == kind && from.namespace == namespace
        };
        let to = |to: &GrantTo| {
            to.group.is_empty()
                && to.kind == "Service"
                && to.name.as_ref().is_none_or(|name| name == service)
        };
        self.from.iter().any(from) && self.to.iter().any(to)
    }
}

/// A GatewayParameters object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters {
    /// Spec of the GatewayParameters.
    pub spec: GatewayParametersSpec,
}

/// True if a status of a route or of a policy has an entry of a controller.
pub(crate) fn names(status: &Value, controller: &str) -> bool {
    let parents = [&status["parents"], &status["ancestors"]].map(Value::as_array);
    parents.into_iter().flatten().flatten().any(|parent| parent["controllerName"] == controller)
}

/// An object that can be read from any version of its kind.
pub trait Read: Sized {
    /// Reads an object.
    ///
    /// # Errors
    /// When a field has another type than in all versions that are known.
    fn read(object: &DynamicObject) -> Result<Self, serde_json::Error>;
}

impl<Spec: DeserializeOwned + Default> Read for Specified<Spec> {
    fn read(object: &DynamicObject) -> Result<Self, serde_json::Error> {
        Ok(Self {
            metadata: Metadata::read(object),
            spec: part(object, "spec")?,
            status: part(object, "status")?,
        })
    }
}

impl Read for UdpRoute {
    fn read(object: &DynamicObject) -> Result<Self, serde_json::Error> {
        Ok(Self {
            metadata: Metadata::read(object),
            tcp: object.annotations().get(TCP_ANNOTATION).cloned(),
            quic_lb: object.annotations().get(QUIC_LB).cloned(),
            spec: part(object, "spec")?,
            status: part(object, "status")?,
        })
    }
}

impl Read for ReferenceGrant {
    fn read(object: &DynamicObject) -> Result<Self, serde_json::Error> {
        part(object, "spec")
    }
}

impl Read for Parameters {
    fn read(object: &DynamicObject) -> Result<Self, serde_json::Error> {
        Ok(Self { spec: part(object, "spec")? })
    }
}
