//! The objects that make the gateways of an EdgeGateway run, for server-side apply.
//!
//! A field that is not set here belongs to whoever sets it. Pods do not depend on routes: those travel by [`crate::xds`], so
//! that a route comes and goes without a restart.

mod bootstrap;
mod objects;
mod pod;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::FIELD_MANAGER;
use crate::annotations::ObjectKey;
use crate::index::GatewayModel;

pub use bootstrap::{ADMIN_PORT, METRICS_PATHS, METRICS_PORT, bootstrap, certificate_file, metrics_parts};
pub use objects::{Kind, Object, objects, obsolete};

/// Label with the name of the EdgeGateway.
pub const GATEWAY_LABEL: &str = "packrat.dev/edge-gateway";
/// `app.kubernetes.io/name` of gateways.
pub const GATEWAY_APP: &str = "packrat-gateway";
/// Where the image has the filter that gives tokens out.
pub const TOKEN_FILTER: &str = "/usr/lib/packrat/packrat-token.wasm";
/// Where the image has the module for Envoy.
pub const MODULE_DIRECTORY: &str = "/usr/lib/packrat";
/// Where the image has Envoy.
pub const ENVOY: &str = "/usr/local/bin/envoy";
/// Where the image has the program that drains a gateway before it ends.
pub const DRAIN: &str = "/usr/local/bin/packrat-drain";
/// Where the bootstrap configuration is mounted.
pub const BOOTSTRAP_DIRECTORY: &str = "/etc/packrat/bootstrap";
/// Where the gateway's certificate is mounted.
pub const CLIENT_DIRECTORY: &str = "/etc/packrat/client";
/// Where the certificate for tokens is mounted.
pub const TOKEN_DIRECTORY: &str = "/etc/packrat/token";

/// What gateways depend on beside their EdgeGateway.
#[derive(Debug, Clone)]
pub struct Platform {
    /// The image of gateways, unless their EdgeGateway names another.
    pub image: String,
    /// Host name of the operator's discovery service, as it is in the operator's certificate.
    pub discovery_host: String,
    /// Its port.
    pub discovery_port: u16,
}

/// Name of what belongs to an EdgeGateway.
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

/// Labels that select the Pods of an EdgeGateway.
pub fn selector(gateway: &str) -> BTreeMap<String, String> {
    [("app.kubernetes.io/name", GATEWAY_APP), (GATEWAY_LABEL, gateway)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn labels(gateway: &str) -> BTreeMap<String, String> {
    let mut labels = selector(gateway);
    for (name, value) in [
        ("app.kubernetes.io/instance", gateway),
        ("app.kubernetes.io/managed-by", FIELD_MANAGER),
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
