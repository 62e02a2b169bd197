//! The operator's knowledge of the cluster, and the listeners that follow for each gateway. Pure:
//! objects go in, listeners and problems come out.
//!
//! [`Index`] keeps a model of each object. [`Index::resolve`] looks at all models at once, so the
//! result cannot depend on the order in which objects have arrived, and an unusable object does not
//! affect others.

mod lingering;
mod model;
mod resolve;

use std::collections::BTreeMap;

use crate::annotations::ObjectKey;

pub use lingering::Lingering;
pub use model::{Address, GatewayModel, NamespaceModel, ServiceModel, ServicePort, SliceModel};
pub use resolve::{GatewayView, Listener, Resolution, ServiceView};

/// Models of the cluster's objects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Index {
    gateways: BTreeMap<ObjectKey, GatewayModel>,
    services: BTreeMap<ObjectKey, ServiceModel>,
    namespaces: BTreeMap<String, NamespaceModel>,
    /// By their own key.
    slices: BTreeMap<ObjectKey, SliceModel>,
    /// The namespace whose EdgeGateways a Service finds without naming it, after its own: the
    /// operator's.
    home: String,
}

impl Index {
    /// An empty index. `home`: the operator's namespace, where a Service's gateway is looked for
    /// after its own namespace.
    pub fn new(home: impl Into<String>) -> Self {
        Self { home: home.into(), ..Self::default() }
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

    /// Takes or replaces (`Some`) or forgets an EndpointSlice; whether anything has changed.
    pub fn set_slice(&mut self, key: ObjectKey, model: Option<SliceModel>) -> bool {
        set(&mut self.slices, key, model)
    }

    /// Forgets EdgeGateways that are not in `keys`: after a watch has begun anew.
    pub fn retain_gateways(&mut self, keep: impl Fn(&ObjectKey) -> bool) {
        self.gateways.retain(|key, _| keep(key));
    }

    /// Forgets Services that are not in `keys`.
    pub fn retain_services(&mut self, keep: impl Fn(&ObjectKey) -> bool) {
        self.services.retain(|key, _| keep(key));
    }

    /// Forgets Namespaces that are not in `keys`.
    pub fn retain_namespaces(&mut self, keep: impl Fn(&String) -> bool) {
        self.namespaces.retain(|key, _| keep(key));
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

fn set<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> bool {
    match value {
        Some(value) if map.get(&key) == Some(&value) => false,
        Some(value) => {
            map.insert(key, value);
            true
        }
        None => map.remove(&key).is_some(),
    }
}
