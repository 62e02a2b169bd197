//! Reports on the gateways that are connected to this replica, written into the status of their
//! EdgeGateways. Every replica owns its own entries (a field manager each), the elected one makes a
//! condition of all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::discovery::{Connections, Proxy};
use super::refusal::told;
use crate::names::FIELD_MANAGER;
use crate::object_key::ObjectKey;
use crate::resource::{EdgeGateway, GatewayProxy};

/// Changes within this time are written together.
const COALESCING_DELAY: Duration = Duration::from_millis(200);
/// Time after which all reports are written again, even without a change.
const REPORT_PERIOD: Duration = Duration::from_secs(60);

/// Writes the reports, forever.
pub(super) async fn run(client: Client, connections: Arc<Connections>, replica: String) {
    let mut changed = connections.subscribe();
    let mut written: BTreeMap<ObjectKey, Vec<GatewayProxy>> = BTreeMap::new();
    loop {
        let again = tokio::time::timeout(REPORT_PERIOD, changed.changed()).await.is_err();
        tokio::time::sleep(COALESCING_DELAY).await;
        changed.mark_unchanged();
        let mut current: BTreeMap<ObjectKey, Vec<GatewayProxy>> = connections
            .list()
            .into_iter()
            .map(|(gateway, pods)| {
                let proxies = pods
                    .into_iter()
                    .map(|(name, Proxy { version, error })| GatewayProxy {
                        name,
                        replica: replica.clone(),
                        version,
                        error,
                    })
                    .collect();
                (gateway, proxies)
            })
            .collect();
        for gateway in written.keys() {
            current.entry(gateway.clone()).or_default();
        }
        for (gateway, proxies) in current {
            if !again && written.get(&gateway) == Some(&proxies) {
                continue;
            }
            match write(&client, &gateway, &proxies, &replica).await {
                Ok(()) if proxies.is_empty() => {
                    written.remove(&gateway);
                }
                Ok(()) => {
                    written.insert(gateway, proxies);
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    written.remove(&gateway);
                }
                // Written with the next change, or when everything is.
                Err(error) => {
                    tracing::warn!(event = "status_failed", gateway = %gateway, error = told(&error))
                }
            }
        }
    }
}

async fn write(
    client: &Client,
    gateway: &ObjectKey,
    proxies: &[GatewayProxy],
    replica: &str,
) -> Result<(), kube::Error> {
    let api = Api::<EdgeGateway>::namespaced(client.clone(), &gateway.namespace);
    let content = json!({
        "apiVersion": "packrat.dev/v1alpha1",
        "kind": "EdgeGateway",
        "metadata": { "name": gateway.name },
        "status": { "proxies": proxies },
    });
    let manager = format!("{FIELD_MANAGER}-{replica}");
    api.patch_status(&gateway.name, &PatchParams::apply(&manager).force(), &Patch::Apply(content))
        .await?;
    Ok(())
}
