//! Writing for the Gateway API, by the elected replica: the EdgeGateways that Gateways own, and
//! statuses.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};

use super::gateway_api::{Kind, Served};
use super::refusal::{namespace_ends, told};
use super::snapshot::Snapshot;
use crate::gateway_api::objects::Metadata;
use crate::gateway_api::{GatewayState, controller_name, translate};
use crate::names::FIELD_MANAGER;
use crate::object_key::ObjectKey;
use crate::resource::EdgeGateway;
use crate::status::gateway_api as status;

/// Number of objects at a time.
const PARALLEL_OBJECTS: usize = 8;

/// Writes for the Gateway API.
pub(super) struct GatewayObjects {
    client: Client,
    class: String,
    served: watch::Receiver<Served>,
    /// The last failure to write the EdgeGateway of a Gateway.
    failures: Mutex<BTreeMap<ObjectKey, String>>,
}

impl GatewayObjects {
    pub(super) fn new(client: Client, class: &str, served: watch::Receiver<Served>) -> Self {
        Self { client, class: class.to_owned(), served, failures: Mutex::default() }
    }

    /// Writes all objects and statuses that differ from the intended ones.
    pub(super) async fn write(&self, snapshot: &Snapshot) {
        let attachments = &snapshot.resolution.attachments;
        self.failures.lock().await.retain(|key, _| attachments.gateways.contains_key(key));
        futures::stream::iter(&attachments.gateways)
            .for_each_concurrent(PARALLEL_OBJECTS, |(key, state)| {
                self.gateway(key, state, snapshot)
            })
            .await;
        for edge in &snapshot.resolution.abandoned {
            if let Err(error) = self.abandon(edge, snapshot).await {
                tracing::warn!(event = "release_failed", gateway = %edge, error = told(&error));
            }
        }
        let now = Timestamp::now();
        for (name, findings) in &attachments.classes {
            let Some(class) = snapshot.gateway_api.classes.get(name) else { continue };
            let wanted = status::class_status(class, findings, now);
            let key = ObjectKey::new("", name);
            // Older definitions drop the list of features.
            if class.status["conditions"] != wanted["conditions"] {
                self.status(Kind::GatewayClass, &key, &class.metadata, wanted).await;
            }
        }
        let controller = controller_name(&self.class);
        futures::stream::iter(&attachments.routes)
            .for_each_concurrent(PARALLEL_OBJECTS, |(key, state)| {
                let controller = &controller;
                async move {
                    let Some(route) = snapshot.gateway_api.routes.get(key) else { return };
                    let assisting = |parent: &_| {
                        status::route_assisting(key, parent, attachments, &snapshot.edge_gateways)
                    };
                    let wanted = status::route_status(route, state, controller, assisting, now);
                    if route.status["parents"] != wanted["parents"] {
                        self.status(Kind::UdpRoute, key, &route.metadata, wanted).await;
                    }
                }
            })
            .await;
        for (key, ancestors) in &snapshot.resolution.policies.ancestors {
            let Some(policy) = snapshot.gateway_api.policies.get(key) else { continue };
            let wanted = status::policy_status(policy, ancestors, &controller, now);
            if policy.status["ancestors"] != wanted["ancestors"] {
                self.status(Kind::Policy, key, &policy.metadata, wanted).await;
            }
        }
    }

    /// A Gateway: its EdgeGateway and its status.
    async fn gateway(&self, key: &ObjectKey, state: &GatewayState, snapshot: &Snapshot) {
        let Some(gateway) = snapshot.gateway_api.gateways.get(key) else { return };
        if gateway.metadata.deleting {
            return;
        }
        let edge = snapshot.edge_gateways.get(&state.edge);
        // The EdgeGateway belongs to another operator of the same class, which also writes the
        // Gateway's status.
        if snapshot.resolution.foreign.contains_key(&state.edge) {
            return;
        }
        if let Some(spec) = &state.spec {
            let is_free = edge.is_none_or(|edge| edge.owner.as_deref() == Some(&state.uid));
            let is_as_wanted = edge.is_some_and(|edge| edge.spec == **spec);
            if is_free && !is_as_wanted {
                let written =
                    self.edge_gateway(key, translate::edge_gateway(key, gateway, spec)).await;
                let mut failures = self.failures.lock().await;
                match written {
                    Ok(()) => {
                        failures.remove(key);
                    }
                    Err(error) if namespace_ends(&error) => {}
                    Err(error) => {
                        let failure = told(&error);
                        if failures.get(key) != Some(&failure) {
                            tracing::warn!(event = "apply_failed", gateway = %key, error = failure);
                        }
                        failures.insert(key.clone(), failure);
                    }
                }
            } else {
                self.failures.lock().await.remove(key);
            }
        }
        let failure = self.failures.lock().await.get(key).cloned();
        let wanted =
            status::gateway_status(gateway, state, edge, failure.as_deref(), Timestamp::now());
        let differs = ["addresses", "conditions", "listeners"].into_iter().any(|field| {
            // The API server leaves out an empty list.
            let is_empty = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
            let (before, after) = (&gateway.status[field], &wanted[field]);
            before != after && !(is_empty(before) && is_empty(after))
        });
        if differs {
            self.status(Kind::Gateway, key, &gateway.metadata, wanted).await;
        }
    }

    async fn edge_gateway(&self, key: &ObjectKey, content: Value) -> Result<(), kube::Error> {
        let api = Api::<EdgeGateway>::namespaced(self.client.clone(), &key.namespace);
        let name = translate::edge_gateway_key(key).name;
        api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(content))
            .await?;
        Ok(())
    }

    /// Removes the EdgeGateway of a Gateway that now belongs to another controller, and with it all
    /// objects that were created for it.
    async fn abandon(&self, edge: &ObjectKey, snapshot: &Snapshot) -> Result<(), kube::Error> {
        let Some(model) = snapshot.edge_gateways.get(edge).filter(|model| !model.deleting) else {
            return Ok(());
        };
        tracing::info!(event = "gateway_abandoned", gateway = %edge);
        let api = Api::<EdgeGateway>::namespaced(self.client.clone(), &edge.namespace);
        let only = Preconditions { uid: Some(model.uid.clone()), resource_version: None };
        let parameters = DeleteParams::background().preconditions(only);
        match api.delete(&edge.name, &parameters).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes a status, unless the object has changed since: then its watch reports the change.
    async fn status(&self, kind: Kind, key: &ObjectKey, metadata: &Metadata, status: Value) {
        let Some(version) = self.served.borrow().get(&kind).copied() else { return };
        let resource = kind.resource(version);
        let api = if key.namespace.is_empty() {
            Api::<DynamicObject>::all_with(self.client.clone(), &resource)
        } else {
            Api::<DynamicObject>::namespaced_with(self.client.clone(), &key.namespace, &resource)
        };
        let content =
            json!({ "metadata": { "resourceVersion": metadata.version }, "status": status });
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch_status(&key.name, &parameters, &Patch::Merge(content)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
            Err(error) => {
                tracing::warn!(event = "status_failed", kind = ?kind, object = %key, error = told(&error));
            }
        }
    }
}
