//! The certificates of Services whose connections end at a gateway, read by every replica. The operator
//! may not watch Secrets: it looks at those that Services name, one by one.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _};

use super::refusal::told;
use super::snapshot::Snapshots;
use crate::annotations::ObjectKey;
use crate::index::Certificate;

/// Time between two looks at Secrets that could not be used.
const SOON: Duration = Duration::from_secs(2);
/// Time between two looks at all of them.
const PERIOD: Duration = Duration::from_secs(60);

/// Reads for ever.
pub(super) async fn follow(client: Client, snapshots: Arc<Snapshots>) {
    let mut wait = PERIOD;
    loop {
        tokio::time::sleep(SOON).await;
        wait = wait.saturating_sub(SOON);
        let everything = wait.is_zero();
        if everything {
            wait = PERIOD;
        }
        for key in snapshots.certificates(everything) {
            let found = read(&client, &key).await;
            snapshots.update(|index| index.set_certificate(key, found));
        }
    }
}

async fn read(client: &Client, key: &ObjectKey) -> Result<Certificate, String> {
    let api = Api::<Secret>::namespaced(client.clone(), &key.namespace);
    match api.get_opt(&key.name).await {
        Ok(None) => Err("does not exist".to_owned()),
        Ok(Some(secret)) => {
            let labels = secret.labels().clone();
            let entries = secret.data.unwrap_or_default();
            let entries = entries.into_iter().map(|(name, bytes)| (name, bytes.0)).collect();
            Certificate::read(&labels, &entries)
        }
        Err(kube::Error::Api(status)) if status.code == 403 => Err(
            "may not be read by the operator; name its namespace in the chart's gateway.namespaces, or use an EdgeGateway and a Service there".to_owned(),
        ),
        Err(error) => Err(format!("could not be read: {}", told(&error))),
    }
}
