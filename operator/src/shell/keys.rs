//! The keys of gateways, read by replicas that do not write them.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;

use super::refusal::told;
use super::secrets::{self, STATE};
use super::snapshot::Snapshots;
use crate::keys::GatewayKeys;
use crate::workload::keys_secret_name;

/// Time between two looks at a gateway whose keys are missing.
const SOON: Duration = Duration::from_secs(1);
/// Time between two looks at all gateways; much shorter than the announcement of a new key.
const PERIOD: Duration = Duration::from_secs(60);

/// Reads the keys, forever.
pub(super) async fn follow(client: Client, snapshots: Arc<Snapshots>) {
    let mut wait = PERIOD;
    loop {
        tokio::time::sleep(SOON.min(wait)).await;
        wait = wait.saturating_sub(SOON);
        let mut gateways = snapshots.without_keys();
        if wait.is_zero() {
            wait = PERIOD;
            if let Some(snapshot) = snapshots.subscribe().borrow().as_deref() {
                gateways = snapshot.gateways.keys().cloned().collect();
            }
        }
        for gateway in gateways {
            match secrets::read(&client, &gateway.namespace, &keys_secret_name(&gateway.name)).await
            {
                Ok(Some((entries, _))) => {
                    match GatewayKeys::from_json(entries.get(STATE).map_or(&[][..], Vec::as_slice))
                    {
                        Ok(keys) => snapshots.set_keys(&gateway, keys),
                        Err(error) => {
                            tracing::error!(event = "keys_unreadable", gateway = %gateway, error = %error);
                        }
                    }
                }
                // The elected replica makes them.
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(event = "keys_failed", gateway = %gateway, error = told(&error))
                }
            }
        }
    }
}
