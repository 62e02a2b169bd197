//! The Secrets that Services name, read by every replica: certificates of Services whose
//! connections end at a gateway, and the configurations by which connection IDs name servers. The
//! operator may not watch Secrets: it looks at these one by one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _};

use super::refusal::told;
use super::snapshot::Snapshots;
use crate::index::{Certificate, read_server_ids};
use crate::object_key::ObjectKey;

/// Time between two readings of Secrets that could not be used.
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Time between two readings of all Secrets.
const LOOK_PERIOD: Duration = Duration::from_secs(60);

/// Reads the Secrets, forever.
pub(super) async fn follow(client: Client, snapshots: Arc<Snapshots>) {
    let mut wait = LOOK_PERIOD;
    loop {
        tokio::time::sleep(RETRY_PERIOD).await;
        wait = wait.saturating_sub(RETRY_PERIOD);
        let everything = wait.is_zero();
        if everything {
            wait = LOOK_PERIOD;
        }
        for key in snapshots.certificates(everything) {
            let found = read(&client, &key, Certificate::read).await;
            snapshots.update(|index| index.set_certificate(key, found));
        }
        for key in snapshots.server_id_secrets(everything) {
            let found = read(&client, &key, read_server_ids).await;
            snapshots.update(|index| index.set_server_ids(key, found));
        }
    }
}

/// Reads a Secret, and interprets its labels and entries with `understand`.
async fn read<T>(
    client: &Client,
    key: &ObjectKey,
    understand: impl Fn(&BTreeMap<String, String>, &BTreeMap<String, Vec<u8>>) -> Result<T, String>,
) -> Result<T, String> {
    let api = Api::<Secret>::namespaced(client.clone(), &key.namespace);
    match api.get_opt(&key.name).await {
        Ok(None) => Err("does not exist".to_owned()),
        Ok(Some(secret)) => {
            let labels = secret.labels().clone();
            let entries = secret.data.unwrap_or_default();
            let entries = entries.into_iter().map(|(name, bytes)| (name, bytes.0)).collect();
            understand(&labels, &entries)
        }
        Err(kube::Error::Api(status)) if status.code == 403 => Err(
            "may not be read by the operator; name its namespace in the chart's gateway.namespaces, or use an EdgeGateway and a Service there".to_owned(),
        ),
        Err(error) => Err(format!("could not be read: {}", told(&error))),
    }
}
