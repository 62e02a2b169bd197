//! The objects of gateways, without their Secrets.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::failure::Failure;
use super::refusal::namespace_ends;
use super::secrets;
use super::snapshot::GatewaySnapshot;
use crate::model::is_ours;
use crate::names::{FIELD_MANAGER, SECRET_LABEL};
use crate::object_key::ObjectKey;
use crate::workload::{self, Kind, Object, Platform};

/// Time after which all objects are applied again: this repairs objects that are not watched.
pub(super) const REPAIR_PERIOD: Duration = Duration::from_secs(300);

/// The objects of an EdgeGateway that this replica has applied and removed.
#[derive(Default)]
pub(super) struct AppliedObjects {
    objects: BTreeMap<Kind, Value>,
    removed: Vec<Kind>,
    /// The time at which all of them were last applied.
    all_at: Option<Instant>,
}

impl AppliedObjects {
    /// Has all objects applied in the next turn.
    pub(super) fn repair(&mut self) {
        self.all_at = None;
    }

    /// Applies a gateway's workload, and the objects by which it is reached, and removes obsolete ones.
    pub(super) async fn apply(
        &mut self,
        client: &Client,
        platform: &Platform,
        key: &ObjectKey,
        gateway: &GatewaySnapshot,
    ) -> Result<(), Failure> {
        // Existing objects stay as they are, and in use.
        if gateway.view.refusal.is_some() {
            return Ok(());
        }
        only_labelled_secrets(client, key, gateway).await?;
        let objects = workload::objects(key, &gateway.model, &gateway.view, platform);
        let all = self.all_at.is_none_or(|at| at.elapsed() > REPAIR_PERIOD);
        let mut failure = None;
        for object in &objects {
            if !all && self.objects.get(&object.kind) == Some(&object.content) {
                continue;
            }
            match apply(client, object, &key.namespace).await {
                Ok(()) => {
                    self.objects.insert(object.kind, object.content.clone());
                    self.removed.retain(|kind| *kind != object.kind);
                }
                // The other objects would also be refused there.
                Err(source) if namespace_ends(&source) => {
                    return Err(Failure::object(object.kind, source));
                }
                // A refused object (for example because of a node port in use) must not prevent the
                // others.
                Err(source) => {
                    self.objects.remove(&object.kind);
                    failure = failure.or(Some(Failure::object(object.kind, source)));
                }
            }
        }
        if let Some(failure) = failure {
            // The former objects also stay: they may be the only working ones.
            return Err(failure);
        }
        for kind in workload::obsolete(&objects) {
            if !self.removed.contains(&kind) {
                remove(client, kind, key).await.map_err(|source| Failure::object(kind, source))?;
                self.removed.push(kind);
                self.objects.remove(&kind);
            }
        }
        if all {
            self.all_at = Some(Instant::now());
        }
        Ok(())
    }
}

async fn apply(client: &Client, object: &Object, namespace: &str) -> Result<(), kube::Error> {
    let api = api(client, object.kind, namespace);
    let name = object.content["metadata"]["name"].as_str().unwrap_or_default();
    if object.kind == Kind::Deployment && object.content["spec"]["replicas"].is_null() {
        hand_over_replicas(&api, name).await?;
    }
    api.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&object.content))
        .await?;
    Ok(())
}

fn api(client: &Client, kind: Kind, namespace: &str) -> Api<DynamicObject> {
    let [group, version, name, plural] = kind.names();
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), plural);
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Removes an object that only a former spec needed; an object of the same name with another
/// owner stays.
async fn remove(client: &Client, kind: Kind, key: &ObjectKey) -> Result<(), kube::Error> {
    // Objects of these kinds are always needed.
    if matches!(kind, Kind::ServiceAccount | Kind::ConfigMap | Kind::PodDisruptionBudget) {
        return Ok(());
    }
    let (api, name) = (api(client, kind, &key.namespace), workload::object_name(&key.name));
    let Some(object) = api.get_opt(&name).await? else { return Ok(()) };
    if is_ours(&object) {
        api.delete(&name, &DeleteParams::background()).await?;
    }
    Ok(())
}

/// Fails if the EdgeGateway names a Secret that is not meant for gateways: its author may lack
/// the permission to read the namespace's Secrets.
async fn only_labelled_secrets(
    client: &Client,
    key: &ObjectKey,
    gateway: &GatewaySnapshot,
) -> Result<(), Failure> {
    for name in workload::named_secrets(&gateway.model.spec) {
        let found = secrets::labels(client, &key.namespace, name).await.map_err(Failure::Secret)?;
        let is_allowed = found
            .as_ref()
            .is_some_and(|labels| labels.get(SECRET_LABEL).is_some_and(|value| value == "true"));
        if !is_allowed {
            let state = if found.is_some() { "is not for gateways" } else { "does not exist" };
            return Err(Failure::Text(format!(
                "Secret {name} {state}; an EdgeGateway may name Secrets with the label {}: \"true\" only",
                SECRET_LABEL
            )));
        }
    }
    Ok(())
}

/// Gives up the field of replicas before an autoscaler takes over. If the operator merely stopped
/// applying it, the number of replicas would become the default, 1, and all sessions of the other
/// gateways would be lost. A field of another manager stays as it is (Kubernetes' documentation of
/// server-side apply, "Transferring ownership").
async fn hand_over_replicas(api: &Api<DynamicObject>, name: &str) -> Result<(), kube::Error> {
    let Some(found) = api.get_opt(name).await? else { return Ok(()) };
    let ours = found.managed_fields().iter().any(|entry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry
                .fields_v1
                .as_ref()
                .is_some_and(|fields| !fields.0["f:spec"]["f:replicas"].is_null())
    });
    let replicas = &found.data["spec"]["replicas"];
    if !ours || replicas.is_null() {
        return Ok(());
    }
    let content = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name },
        "spec": { "replicas": replicas },
    });
    let manager = format!("{FIELD_MANAGER}-autoscaling");
    api.patch(name, &PatchParams::apply(&manager).force(), &Patch::Apply(content)).await?;
    Ok(())
}
