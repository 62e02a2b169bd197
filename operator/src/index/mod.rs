//! The operator's knowledge of the cluster, and the listeners that follow for each gateway. Pure:
//! objects go in, listeners and problems come out.
//!
//! [`Index`] keeps a model of each object. [`Index::resolve`] looks at all models at once, so the
//! result cannot depend on the order in which objects have arrived, and an unusable object does not
//! affect others.

mod endpoints;
mod lingering;
mod model;
mod ports;
mod quotas;
mod resolve;
mod server_ids;
mod tcp;
mod tenant_secrets;
mod terminate;
mod udp_routes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use packrat_api::route::ServerIds;

use crate::annotations::ObjectKey;
use crate::gateway_api::Objects;
use crate::policy::{Policy, Quotas};
use crate::resource::DEFAULT_CLASS;
use tenant_secrets::TenantSecrets;

pub use lingering::Lingering;
pub use model::{
    Address, GatewayModel, NamespaceModel, PodModel, ServiceModel, ServicePort, SliceModel,
    node_addresses, service_addresses,
};
pub use resolve::{GatewayView, Listener, Resolution, ServiceView};
pub use server_ids::read_server_ids;
pub use tcp::Passthrough;
pub use terminate::{Certificate, Terminated, Upstream};
pub use udp_routes::Shares;
pub(crate) use udp_routes::{listener_key, route_key, told};

/// Models of the cluster's objects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Index {
    gateways: BTreeMap<ObjectKey, GatewayModel>,
    services: BTreeMap<ObjectKey, ServiceModel>,
    namespaces: BTreeMap<String, NamespaceModel>,
    /// EndpointSlices by their own key.
    slices: BTreeMap<ObjectKey, SliceModel>,
    pods: BTreeMap<ObjectKey, PodModel>,
    /// Addresses of Nodes.
    nodes: BTreeMap<String, Vec<IpAddr>>,
    /// Addresses of all Services, also of Services without any relation to Packrat.
    service_addresses: BTreeMap<ObjectKey, Vec<IpAddr>>,
    /// The namespace whose EdgeGateways a Service finds without naming it, after its own: the
    /// operator's.
    home: String,
    /// The limits of all EdgeGateways.
    policy: Policy,
    /// The operator that this is.
    operator: Operator,
    /// The operators of the cluster that their Services tell of.
    operators: BTreeMap<ObjectKey, Operator>,
    /// The objects of the Gateway API.
    gateway_api: Objects,
    /// The certificates of Services whose connections end at a gateway, by their Secret.
    certificates: TenantSecrets<Certificate>,
    /// The configurations by which connection IDs name servers, by their Secret.
    server_ids: TenantSecrets<Vec<ServerIds>>,
}

/// An operator among others of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// Class of the operator, which serves the EdgeGateways of that class.
    pub class: String,
    /// Namespace and name; of two operators of a class, an EdgeGateway is one's.
    pub identity: String,
}

impl Default for Operator {
    fn default() -> Self {
        Self {
            class: DEFAULT_CLASS.to_owned(),
            identity: "packrat-system/packrat-operator".to_owned(),
        }
    }
}

impl Operator {
    /// True if an EdgeGateway is of its class.
    pub fn is_of_class(&self, gateway: &GatewayModel) -> bool {
        gateway.spec.class == self.class
    }

    /// True if an EdgeGateway belongs to this operator, or is still unclaimed.
    pub fn serves(&self, gateway: &GatewayModel) -> bool {
        self.is_of_class(gateway)
            && gateway.status.operator.as_ref().is_none_or(|operator| *operator == self.identity)
    }

    /// True if the operator has the default class: EdgeGateways in its namespace are found by
    /// Services without a choice of their own.
    fn is_default(&self) -> bool {
        self.class == DEFAULT_CLASS
    }

    /// The order of operators for reports about objects without an EdgeGateway: the first one makes
    /// them.
    fn precedence(&self) -> (bool, &str, &str) {
        (!self.is_default(), &self.class, &self.identity)
    }

    /// The operator that a Service leads to, as the chart labels it.
    pub fn read(service: &Service) -> Option<Self> {
        let class = service.labels().get(CLASS_LABEL)?.clone();
        let identity =
            format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any());
        Some(Self { class, identity })
    }
}

/// The label of an operator's Service with its class.
const CLASS_LABEL: &str = "packrat.dev/operator-class";

impl Index {
    /// An empty index. `home`: the operator's namespace, in which a Service's gateway is looked for
    /// after its own namespace.
    pub fn new(home: impl Into<String>, policy: Policy) -> Self {
        Self { home: home.into(), policy, ..Self::default() }
    }

    /// Index of this operator, one of several.
    #[must_use]
    pub fn of_operator(self, operator: Operator) -> Self {
        Self { operator, ..self }
    }

    /// The operator that this is.
    pub const fn operator(&self) -> &Operator {
        &self.operator
    }

    /// Takes or replaces (`Some`) or forgets an EdgeGateway; whether anything has changed.
    pub fn set_gateway(&mut self, key: ObjectKey, model: Option<GatewayModel>) -> bool {
        set(&mut self.gateways, key, model)
    }

    /// Takes or replaces (`Some`) or forgets a Service; whether anything has changed.
    pub fn set_service(&mut self, key: ObjectKey, model: Option<ServiceModel>) -> bool {
        set(&mut self.services, key, model)
    }

    /// Takes or replaces (`Some`) or forgets a Namespace; whether anything has changed.
    pub fn set_namespace(&mut self, name: String, model: Option<NamespaceModel>) -> bool {
        set(&mut self.namespaces, name, model)
    }

    /// Takes or replaces (`Some`) or forgets the labels of a Namespace; whether anything has changed.
    pub fn set_namespace_labels(
        &mut self,
        name: String,
        labels: Option<BTreeMap<String, String>>,
    ) -> bool {
        set(&mut self.gateway_api.namespaces, name, labels)
    }

    /// Takes or replaces (`Some`) or forgets an EndpointSlice; returns whether anything has
    /// changed. Slices without UDP ports, which are most, only matter to Services with UDP ports,
    /// whose TCP may be passed through, and to Services of the mode `terminate`.
    pub fn set_slice(&mut self, key: ObjectKey, model: Option<SliceModel>) -> bool {
        let matters = |slice: &SliceModel, services: &BTreeMap<ObjectKey, ServiceModel>| {
            let service = services.get(&slice.service_key(&key.namespace));
            let asks =
                |found: &ServiceModel| found.annotations.terminates() || !found.ports.is_empty();
            !slice.ports.is_empty() || service.is_some_and(asks)
        };
        let before = self.slices.get(&key);
        let matters = [before, model.as_ref()]
            .into_iter()
            .flatten()
            .any(|slice| matters(slice, &self.services));
        set(&mut self.slices, key, model) && matters
    }

    /// The Secrets with certificates that Services name whose connections an EdgeGateway lets end. No
    /// other one is looked at.
    pub fn certificates(&self) -> BTreeSet<ObjectKey> {
        let of_service = |(key, service): (&ObjectKey, &ServiceModel)| {
            let annotations = &service.annotations;
            let name = annotations.certificate.as_ref().filter(|_| self.ends(key, service))?;
            Some(ObjectKey::new(key.namespace.clone(), name.clone()))
        };
        self.services.iter().filter_map(of_service).collect()
    }

    /// True if a certificate has been looked for, and found.
    pub fn has_certificate(&self, key: &ObjectKey) -> bool {
        self.certificates.is_usable(key)
    }

    /// Takes the content of a Secret with a certificate, or the reason why it cannot be used: then
    /// the former one stays in use. Returns whether anything has changed.
    pub fn set_certificate(&mut self, key: ObjectKey, read: Result<Certificate, String>) -> bool {
        self.certificates.set(key, read)
    }

    /// Forgets certificates that are not in `keys`.
    pub fn retain_certificates(&mut self, keys: &BTreeSet<ObjectKey>) {
        self.certificates.retain(keys);
    }

    /// Takes or replaces (`Some`) or forgets a Pod; whether anything has changed.
    pub fn set_pod(&mut self, key: ObjectKey, model: Option<PodModel>) -> bool {
        set(&mut self.pods, key, model)
    }

    /// Takes or replaces (`Some`) or forgets the addresses of a Node; whether anything has changed.
    pub fn set_node(&mut self, name: String, addresses: Option<Vec<IpAddr>>) -> bool {
        set(&mut self.nodes, name, addresses)
    }

    /// Takes or replaces (`Some`) or forgets the addresses of a Service; whether anything has
    /// changed.
    pub fn set_service_addresses(
        &mut self,
        key: ObjectKey,
        addresses: Option<Vec<IpAddr>>,
    ) -> bool {
        set(&mut self.service_addresses, key, addresses.filter(|addresses| !addresses.is_empty()))
    }

    /// Takes or replaces (`Some`) or forgets an operator, by its Service; whether anything has
    /// changed.
    pub fn set_operator(&mut self, service: ObjectKey, operator: Option<Operator>) -> bool {
        set(&mut self.operators, service, operator)
    }

    /// Changes the objects of the Gateway API; `change` returns whether anything is different, and
    /// so does this.
    pub fn set_gateway_api(&mut self, change: impl FnOnce(&mut Objects) -> bool) -> bool {
        change(&mut self.gateway_api)
    }

    /// The quotas of tenants.
    pub const fn quotas(&self) -> Quotas {
        self.policy.quotas
    }

    /// The objects of the Gateway API.
    pub const fn gateway_api(&self) -> &Objects {
        &self.gateway_api
    }

    /// True if this operator reports on objects without an EdgeGateway: one operator of the cluster
    /// does, the default class's if there is one.
    fn tells_of_the_rest(&self) -> bool {
        let own = self.operator.precedence();
        self.operators.values().all(|other| own <= other.precedence())
    }

    /// Forgets EdgeGateways that are not in `keys`: after a watch has begun again.
    pub fn retain_gateways(&mut self, keep: impl Fn(&ObjectKey) -> bool) {
        self.gateways.retain(|key, _| keep(key));
    }

    /// Forgets Services that are not in `keys`.
    pub fn retain_services(&mut self, keep: impl Fn(&ObjectKey) -> bool) {
        self.services.retain(|key, _| keep(key));
        self.service_addresses.retain(|key, _| keep(key));
        self.operators.retain(|key, _| keep(key));
    }

    /// Forgets Pods that are not in `keys`.
    pub fn retain_pods(&mut self, keep: impl Fn(&ObjectKey) -> bool) {
        self.pods.retain(|key, _| keep(key));
    }

    /// Forgets Nodes that are not in `keys`.
    pub fn retain_nodes(&mut self, keep: impl Fn(&String) -> bool) {
        self.nodes.retain(|key, _| keep(key));
    }

    /// Forgets Namespaces that are not in `keys`.
    pub fn retain_namespaces(&mut self, keep: impl Fn(&String) -> bool) {
        self.namespaces.retain(|key, _| keep(key));
        self.gateway_api.namespaces.retain(|key, _| keep(key));
    }

    /// Forgets EndpointSlices that are not in `keys`.
    pub fn retain_slices(&mut self, keep: impl Fn(&ObjectKey) -> bool) {
        self.slices.retain(|key, _| keep(key));
    }

    /// The EdgeGateways.
    pub const fn gateways(&self) -> &BTreeMap<ObjectKey, GatewayModel> {
        &self.gateways
    }
}

/// Takes or replaces (`Some`) or forgets an object; true if anything has changed.
pub(crate) fn set<K: Ord, V: PartialEq>(
    map: &mut BTreeMap<K, V>,
    key: K,
    value: Option<V>,
) -> bool {
    match value {
        Some(value) if map.get(&key) == Some(&value) => false,
        Some(value) => {
            map.insert(key, value);
            true
        }
        None => map.remove(&key).is_some(),
    }
}
