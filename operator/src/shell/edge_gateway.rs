//! Reading and writing EdgeGateways.

use jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::snapshot::GatewaySnapshot;
use crate::names::FIELD_MANAGER;
use crate::object_key::ObjectKey;
use crate::resource::{EdgeGateway, EdgeGatewayStatus, GatewayProxy};
use crate::status::{Observed, gateway_status};

/// The current EdgeGateway, by a list request: the operator's watch needs this permission in any
/// case.
pub(super) async fn newest(
    api: &Api<EdgeGateway>,
    key: &ObjectKey,
) -> Result<Option<EdgeGateway>, kube::Error> {
    let only = ListParams::default().fields(&format!("metadata.name={}", key.name));
    Ok(api.list(&only).await?.items.into_iter().next())
}

/// Writes the status of an EdgeGateway that was read. Returns the result; `None` if another writer
/// was faster.
pub(super) async fn write_status(
    api: &Api<EdgeGateway>,
    found: &EdgeGateway,
    status: Value,
) -> Result<Option<EdgeGateway>, kube::Error> {
    let content = json!({
        "metadata": { "resourceVersion": found.metadata.resource_version },
        "status": status,
    });
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch_status(&found.name_any(), &parameters, &Patch::Merge(content)).await {
        Ok(written) => Ok(Some(written)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes entries from a status. A patch replaces the list as a whole, and other replicas write
/// their entries at any time: if one is faster, the next check of the EdgeGateway finds the entries
/// again.
pub(super) async fn forget_proxies(
    api: &Api<EdgeGateway>,
    key: &ObjectKey,
    stale: &[GatewayProxy],
) -> Result<(), kube::Error> {
    let Some(found) = newest(api, key).await? else { return Ok(()) };
    let proxies = found.status.iter().flat_map(|status| &status.proxies);
    let left: Vec<_> =
        proxies.filter(|proxy| stale.iter().all(|stale| stale.name != proxy.name)).collect();
    write_status(api, &found, json!({ "proxies": left })).await?;
    Ok(())
}

/// Writes the status of an EdgeGateway, unless it is as it should be.
pub(super) async fn report(
    api: &Api<EdgeGateway>,
    key: &ObjectKey,
    gateway: &GatewaySnapshot,
    observed: &Observed,
) -> Result<(), kube::Error> {
    let model = &gateway.model;
    let status =
        gateway_status(model, &gateway.view, observed, &model.status.conditions, Timestamp::now());
    if observed.definition_is_outdated {
        // The API server would refuse the whole status because of unknown fields.
        if status.conditions != model.status.conditions {
            let content = json!({ "status": { "conditions": status.conditions } });
            api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(content)).await?;
        }
        return Ok(());
    }
    let written = EdgeGatewayStatus { proxies: Vec::new(), ..model.status.clone() };
    if same(&status, &written) {
        return Ok(());
    }
    let content = json!({
        "apiVersion": "packrat.dev/v1alpha1",
        "kind": "EdgeGateway",
        "metadata": { "name": key.name },
        "status": status,
    });
    api.patch_status(&key.name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(content))
        .await?;
    Ok(())
}

/// True if two statuses are equal; times of the same condition are the same already.
fn same(a: &EdgeGatewayStatus, b: &EdgeGatewayStatus) -> bool {
    let text = |status: &EdgeGatewayStatus| serde_json::to_value(status).unwrap_or_default();
    text(a) == text(b)
}

#[cfg(test)]
mod tests {
    use http::Method;
    use tokio::sync::mpsc;

    use super::*;
    use crate::shell::answering::api_server;

    #[tokio::test]
    async fn entries_of_replicas_that_write_meanwhile_stay() {
        let entry = |name: &str, replica: &str| GatewayProxy {
            name: name.to_owned(),
            replica: replica.to_owned(),
            ..GatewayProxy::default()
        };
        let now = json!({
            "apiVersion": "packrat.dev/v1alpha1",
            "kind": "EdgeGateway",
            "metadata": { "namespace": "shop", "name": "edge", "resourceVersion": "7" },
            "spec": {},
            "status": { "proxies": [entry("gone", "a"), entry("new", "b")] },
        });
        let list = json!({
            "apiVersion": "packrat.dev/v1alpha1",
            "kind": "EdgeGatewayList",
            "metadata": {},
            "items": [now],
        });
        let conflict = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": "changed", "reason": "Conflict", "code": 409,
        });
        for (code, answer) in [(200, now), (409, conflict)] {
            let (sender, mut patches) = mpsc::unbounded_channel();
            let list = list.clone();
            let client = api_server(move |method, body| {
                if method == Method::GET {
                    return Some((200, list.clone()));
                }
                sender.send(body).unwrap();
                Some((code, answer.clone()))
            });
            let api = Api::<EdgeGateway>::namespaced(client.await, "shop");
            let stale = [entry("gone", "a")];
            forget_proxies(&api, &ObjectKey::new("shop", "edge"), &stale).await.unwrap();
            let patch = patches.try_recv().unwrap();
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            assert_eq!(patch["status"], json!({ "proxies": [entry("new", "b")] }));
        }
    }
}
