//! Names and labels of a gateway's objects, and the directories at which its Pods have them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::model::GatewayModel;
use crate::names::{FIELD_MANAGER, GATEWAY_APP, GATEWAY_LABEL, MANAGED_BY};
use crate::object_key::ObjectKey;

/// Directory at which the bootstrap configuration is mounted.
pub const BOOTSTRAP_DIRECTORY: &str = "/etc/packrat/bootstrap";
/// Directory at which the gateway's certificate is mounted.
pub const CLIENT_DIRECTORY: &str = "/etc/packrat/client";
/// Directory at which the last configuration is mounted.
pub const LAST_DIRECTORY: &str = "/etc/packrat/last";
/// The last configuration in it. Envoy takes the format from the end of the name.
pub const LAST_CONFIGURATION: &str = "/etc/packrat/last/listeners.pb";
/// The entry of the Secret with it.
pub const LAST_ENTRY: &str = "listeners.pb";
/// The entry with the clusters that listeners lead to.
pub const LAST_CLUSTERS: &str = "clusters.pb";
/// Directory at which the certificate for tokens is mounted.
pub const TOKEN_DIRECTORY: &str = "/etc/packrat/token";

/// Name of an EdgeGateway's objects.
pub fn object_name(gateway: &str) -> String {
    format!("packrat-gateway-{gateway}")
}

/// Name of the Secret with the gateways' certificate.
pub fn client_secret_name(gateway: &str) -> String {
    format!("packrat-gateway-{gateway}-client")
}

/// Name of the Secret with the gateways' keys.
pub fn keys_secret_name(gateway: &str) -> String {
    format!("packrat-gateway-{gateway}-keys")
}

/// Name of the Secret with the last configuration, for gateways that start while the operator is
/// away. The listeners have keys in them.
pub fn last_secret_name(gateway: &str) -> String {
    format!("packrat-gateway-{gateway}-last")
}

/// Labels that select the Pods of an EdgeGateway.
pub fn selector(gateway: &str) -> BTreeMap<String, String> {
    [("app.kubernetes.io/name", GATEWAY_APP), (GATEWAY_LABEL, gateway)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

pub(super) fn labels(gateway: &str) -> BTreeMap<String, String> {
    let mut labels = selector(gateway);
    for (name, value) in [
        ("app.kubernetes.io/instance", gateway),
        (MANAGED_BY, FIELD_MANAGER),
        ("app.kubernetes.io/part-of", "packrat"),
        ("app.kubernetes.io/component", "gateway"),
    ] {
        labels.insert(name.to_owned(), value.to_owned());
    }
    labels
}

/// Metadata of an object that belongs to an EdgeGateway: it goes when that goes.
pub fn metadata(name: &str, key: &ObjectKey, gateway: &GatewayModel) -> Value {
    json!({
        "name": name,
        "namespace": key.namespace,
        "labels": labels(&key.name),
        "ownerReferences": [{
            "apiVersion": "packrat.dev/v1alpha1",
            "kind": "EdgeGateway",
            "name": key.name,
            "uid": gateway.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    })
}
