//! The condition of Services that ask for assistance.

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::refusal::told;
use super::snapshot::Snapshot;
use crate::index::ServiceView;
use crate::names::FIELD_MANAGER;
use crate::names::SERVICE_CONDITION;
use crate::object_key::ObjectKey;
use crate::resource::EdgeGatewayStatus;
use crate::status::service_condition;

/// Number of requests at a time.
const PARALLEL_REQUESTS: usize = 8;

/// Writes the conditions that differ from the intended ones.
pub(super) async fn write(client: &Client, snapshot: &Snapshot) {
    futures::stream::iter(&snapshot.resolution.services)
        .filter_map(|(key, view)| async move {
            let edge = view.gateway.as_ref().and_then(|edge| snapshot.edge_gateways.get(edge));
            Some((key, wanted(key, view, edge.map(|edge| &edge.status))?))
        })
        .for_each_concurrent(PARALLEL_REQUESTS, |(key, conditions)| async move {
            match write_one(client, key, conditions).await {
                Ok(()) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                // Tried again with the next change.
                Err(error) => {
                    tracing::warn!(event = "status_failed", service = %key, error = told(&error))
                }
            }
        })
        .await;
}

/// The conditions to apply; `None` if the Service has them.
fn wanted(key: &ObjectKey, view: &ServiceView, edge: Option<&EdgeGatewayStatus>) -> Option<Value> {
    let Some((status, reason, message)) = service_condition(key, view, edge) else {
        return view.condition.is_some().then(|| json!([]));
    };
    let status = if status { "True" } else { "False" };
    let mut since = None;
    if let Some(before) = &view.condition {
        if before.status == status && before.reason == reason && before.message == message {
            return None;
        }
        since = (before.status == status).then_some(before.last_transition_time.0);
    }
    Some(json!([{
        "type": SERVICE_CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": format!("{:.0}", since.unwrap_or_else(Timestamp::now)),
    }]))
}

async fn write_one(client: &Client, key: &ObjectKey, conditions: Value) -> Result<(), kube::Error> {
    let content = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": key.name },
        "status": { "conditions": conditions },
    });
    let api = Api::<Service>::namespaced(client.clone(), &key.namespace);
    api.patch_status(&key.name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(content))
        .await?;
    Ok(())
}
