//! Secrets that hold the state that must be kept: read by every replica, written by the elected
//! one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::names::FIELD_MANAGER;

/// The entry of a Secret that holds the operator's own state.
pub(super) const STATE_ENTRY: &str = "state.json";

/// A Secret's entries and resource version; `None` when there is no such Secret.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<(BTreeMap<String, Vec<u8>>, String)>, kube::Error> {
    let secret = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await?;
    Ok(secret.map(|secret| {
        let data = secret
            .data
            .unwrap_or_default()
            .into_iter()
            .map(|(name, bytes)| (name, bytes.0))
            .collect();
        (data, secret.metadata.resource_version.unwrap_or_default())
    }))
}

/// Applies a Secret with binary entries.
pub(super) async fn write_bytes(
    client: &Client,
    metadata: Value,
    entries: &[(&str, Vec<u8>)],
) -> Result<(), kube::Error> {
    use base64::Engine as _;
    let namespace = metadata["namespace"].as_str().unwrap_or_default().to_owned();
    let name = metadata["name"].as_str().unwrap_or_default().to_owned();
    let api = Api::<Secret>::namespaced(client.clone(), &namespace);
    let engine = base64::engine::general_purpose::STANDARD;
    let data: BTreeMap<&str, String> =
        entries.iter().map(|(entry, bytes)| (*entry, engine.encode(bytes))).collect();
    let content = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data,
    });
    api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(content)).await?;
    Ok(())
}

/// The labels of a Secret, without its content; `None` when there is no such Secret.
pub(super) async fn labels(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<BTreeMap<String, String>>, kube::Error> {
    let found = Api::<Secret>::namespaced(client.clone(), namespace).get_metadata_opt(name).await?;
    Ok(found.map(|secret| secret.metadata.labels.unwrap_or_default()))
}

/// Applies a Secret. `version`: the version that was read, so that a later write of another replica
/// is not overwritten; `None` if the Secret was missing.
pub(super) async fn write(
    client: &Client,
    mut metadata: Value,
    entries: &[(&str, &str)],
    version: Option<&str>,
) -> Result<(), kube::Error> {
    let namespace = metadata["namespace"].as_str().unwrap_or_default().to_owned();
    let name = metadata["name"].as_str().unwrap_or_default().to_owned();
    let api = Api::<Secret>::namespaced(client.clone(), &namespace);
    let data: BTreeMap<_, _> = entries.iter().copied().collect();
    if let Some(version) = version {
        metadata["resourceVersion"] = version.into();
    }
    let content = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "stringData": data,
    });
    if version.is_none() {
        // Apply would overwrite a Secret that another replica has just created; create is refused.
        let secret: Secret = serde_json::from_value(content).map_err(kube::Error::SerdeError)?;
        let parameters = kube::api::PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..Default::default()
        };
        api.create(&parameters, &secret).await?;
        return Ok(());
    }
    api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(content)).await?;
    Ok(())
}
