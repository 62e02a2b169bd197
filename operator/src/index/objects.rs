//! The models of all objects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use packrat_api::route::ServerIds;

use super::certificate::Certificate;
use super::models::{Models, set};
use super::operator::Operator;
use super::tenant_secrets::TenantSecrets;
use crate::gateway_api::Objects;
use crate::model::{GatewayModel, NamespaceModel, PodModel, ServiceModel, SliceModel};
use crate::object_key::ObjectKey;
use crate::policy::{Policy, Quotas};

/// Models of the cluster's objects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Index {
    /// EdgeGateways.
    pub gateways: Models<ObjectKey, GatewayModel>,
    /// Services.
    pub services: Models<ObjectKey, ServiceModel>,
    /// Namespaces.
    pub namespaces: Models<String, NamespaceModel>,
    /// EndpointSlices by their own key.
    pub slices: Models<ObjectKey, SliceModel>,
    /// Pods.
    pub pods: Models<ObjectKey, PodModel>,
    /// Addresses of Nodes.
    pub nodes: Models<String, Vec<IpAddr>>,
    /// Addresses of all Services, also of Services without any relation to Packrat.
    pub(super) service_addresses: Models<ObjectKey, Vec<IpAddr>>,
    /// The namespace whose EdgeGateways a Service finds without naming it, after its own: the
    /// operator's.
    pub(super) home: String,
    /// The limits of all EdgeGateways.
    pub(super) policy: Policy,
    /// The operator that this is.
    pub(super) operator: Operator,
    /// The operators of the cluster that their Services tell of.
    pub operators: Models<ObjectKey, Operator>,
    /// The objects of the Gateway API.
    pub(super) gateway_api: Objects,
    /// The certificates of Services whose connections end at a gateway, by their Secret.
    pub(super) certificates: TenantSecrets<Certificate>,
    /// The configurations by which connection IDs name servers, by their Secret.
    pub(super) server_ids: TenantSecrets<Vec<ServerIds>>,
}

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
        let matters = |slice: &SliceModel, services: &Models<ObjectKey, ServiceModel>| {
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
        self.slices.set(key, model) && matters
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

    /// Takes or replaces (`Some`) or forgets the addresses of a Service; whether anything has
    /// changed.
    pub fn set_service_addresses(
        &mut self,
        key: ObjectKey,
        addresses: Option<Vec<IpAddr>>,
    ) -> bool {
        self.service_addresses.set(key, addresses.filter(|addresses| !addresses.is_empty()))
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
    pub(super) fn reports_on_the_rest(&self) -> bool {
        let own = self.operator.precedence();
        self.operators.values().all(|other| own <= other.precedence())
    }

    /// Forgets Services that are not in `keys`.
    pub fn retain_services(&mut self, keep: impl Fn(&ObjectKey) -> bool) {
        self.services.retain(&keep);
        self.service_addresses.retain(&keep);
        self.operators.retain(&keep);
    }

    /// Forgets Namespaces that are not in `keys`.
    pub fn retain_namespaces(&mut self, keep: impl Fn(&String) -> bool) {
        self.namespaces.retain(&keep);
        self.gateway_api.namespaces.retain(|key, _| keep(key));
    }
}
