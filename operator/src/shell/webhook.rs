//! The API server's trust in the injector.

use base64::Engine as _;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::names::FIELD_MANAGER;

/// Has the API server trust the injector's certificate. `name`: the MutatingWebhookConfiguration; empty if
/// there is none. `bundle`: the authorities.
pub(super) async fn trust(client: &Client, name: &str, bundle: &str) -> Result<(), kube::Error> {
    if name.is_empty() {
        return Ok(());
    }
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(
            "admissionregistration.k8s.io",
            "v1",
            "MutatingWebhookConfiguration",
        ),
        "mutatingwebhookconfigurations",
    );
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let Some(found) = api.get_opt(name).await? else { return Ok(()) };
    let bundle = base64::engine::general_purpose::STANDARD.encode(bundle);
    let webhooks = found.data["webhooks"].as_array().cloned().unwrap_or_default();
    if webhooks.iter().all(|webhook| webhook["clientConfig"]["caBundle"] == bundle.as_str()) {
        return Ok(());
    }
    // All fields: server-side apply removes missing ones.
    let webhooks: Vec<Value> = webhooks
        .iter()
        .map(|webhook| json!({ "name": webhook["name"], "clientConfig": { "caBundle": bundle } }))
        .collect();
    let content = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": name },
        "webhooks": webhooks,
    });
    api.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(content)).await?;
    tracing::info!(event = "webhook_configuration_updated");
    Ok(())
}
