//! The keys of gateways, read by replicas that do not write them.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;

use super::refusal::told;
use super::secrets::{self, STATE_ENTRY};
use super::snapshot::Snapshots;
use crate::keys::GatewayKeys;
use crate::workload::keys_secret_name;

/// Time between two checks of a gateway whose keys are missing.
const MISSING_KEYS_PERIOD: Duration = Duration::from_secs(1);
/// Time between two checks of all gateways; much shorter than the announcement of a new key.
const LOOK_PERIOD: Duration = Duration::from_secs(60);

/// Reads the keys, forever.
pub(super) async fn follow(client: Client, snapshots: Arc<Snapshots>) {
    let mut wait = LOOK_PERIOD;
    loop {
        tokio::time::sleep(MISSING_KEYS_PERIOD.min(wait)).await;
        wait = wait.saturating_sub(MISSING_KEYS_PERIOD);
        let mut gateways = snapshots.without_keys();
        if wait.is_zero() {
            wait = LOOK_PERIOD;
            if let Some(snapshot) = snapshots.subscribe().borrow().as_deref() {
                gateways = snapshot.gateways.keys().cloned().collect();
            }
        }
        for gateway in gateways {
            match secrets::read(&client, &gateway.namespace, &keys_secret_name(&gateway.name)).await
            {
                Ok(Some((entries, _))) => {
                    match GatewayKeys::from_json(
                        entries.get(STATE_ENTRY).map_or(&[][..], Vec::as_slice),
                    ) {
                        Ok(keys) => snapshots.set_keys(&gateway, keys),
                        Err(error) => {
                            tracing::error!(event = "keys_unreadable", gateway = %gateway, error = %error);
                        }
                    }
                }
                // The elected replica creates the keys.
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(event = "keys_failed", gateway = %gateway, error = told(&error))
                }
            }
        }
    }
}
