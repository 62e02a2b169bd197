//! The configuration that is kept for gateways that start without an operator.

use std::time::{Duration, Instant};

use kube::Client;

use super::failure::Failure;
use super::objects::REPAIR_PERIOD;
use super::secrets;
use super::snapshot::GatewaySnapshot;
use crate::object_key::ObjectKey;
use crate::workload;
use crate::xds;
use crate::xds::wire::{CLUSTER_TYPE, LISTENER_TYPE};

/// Shortest time between two configurations that are kept.
const KEEPING_INTERVAL: Duration = Duration::from_secs(30);
/// Longest configuration that is kept: etcd takes no object above 1.5 MB, a Secret no more than 1 MiB.
const MAXIMUM_KEPT_BYTES: usize = 1_000_000;

/// The version of an EdgeGateway's configuration that was last kept, and the time.
#[derive(Default)]
pub(super) struct LastConfiguration(Option<(String, Instant)>);

impl LastConfiguration {
    /// Keeps the configuration. Endpoints change often: not each change is kept at once.
    pub(super) async fn keep(
        &mut self,
        client: &Client,
        key: &ObjectKey,
        gateway: &GatewaySnapshot,
    ) -> Result<(), Failure> {
        let (Some(resources), Some(version)) = (&gateway.resources, &gateway.version) else {
            return Ok(());
        };
        let last = self.0.as_ref().map(|(kept, at)| (kept == version, at.elapsed()));
        if !is_to_be_kept(last) {
            return Ok(());
        }
        let files = [
            (workload::LAST_ENTRY, xds::file_of(resources, LISTENER_TYPE)),
            (workload::LAST_CLUSTERS, xds::file_of(resources, CLUSTER_TYPE)),
        ];
        let bytes = files.iter().map(|(_, content)| content.len()).sum::<usize>();
        let fits = bytes <= MAXIMUM_KEPT_BYTES;
        if !fits {
            tracing::warn!(
                event = "configuration_not_kept", gateway = %key, bytes, maximum = MAXIMUM_KEPT_BYTES
            );
        }
        // If the configuration does not fit, the Secret is emptied: an older one could be of any age.
        let name = workload::last_secret_name(&key.name);
        let metadata = workload::metadata(&name, key, &gateway.model);
        let files = if fits { &files[..] } else { &[] };
        secrets::write_bytes(client, metadata, files).await.map_err(Failure::Secret)?;
        // Set only here, because the caller may not wait for the write.
        self.0 = Some((version.clone(), Instant::now()));
        Ok(())
    }
}

/// True if the configuration is to be kept now. `kept`: whether the last kept one equals it, and
/// its age. An equal one is written again with the other objects: it may have been deleted.
fn is_to_be_kept(kept: Option<(bool, Duration)>) -> bool {
    kept.is_none_or(|(is_same, age)| age >= if is_same { REPAIR_PERIOD } else { KEEPING_INTERVAL })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::index::GatewayView;
    use crate::model::GatewayModel;
    use crate::shell::answering::api_server;

    /// A configuration is kept soon after it changes, and again when objects are repaired.
    #[test]
    fn a_changed_configuration_is_kept_soon_and_an_equal_one_later() {
        assert!(is_to_be_kept(None));
        assert!(!is_to_be_kept(Some((false, KEEPING_INTERVAL - Duration::from_secs(1)))));
        assert!(is_to_be_kept(Some((false, KEEPING_INTERVAL))));
        assert!(!is_to_be_kept(Some((true, REPAIR_PERIOD - Duration::from_secs(1)))));
        assert!(is_to_be_kept(Some((true, REPAIR_PERIOD))));
    }

    #[tokio::test]
    async fn a_configuration_not_written_in_time_is_written_next_turn() {
        let gateway = GatewaySnapshot {
            model: GatewayModel::default(),
            view: GatewayView::default(),
            resources: Some(Arc::default()),
            version: Some("1".to_owned()),
        };
        let key = ObjectKey::new("shop", "edge");
        let is_slow = Arc::new(AtomicBool::new(true));
        let mut kept = LastConfiguration::default();
        let slow = Arc::clone(&is_slow);
        let client =
            api_server(move |_, secret| (!slow.load(Ordering::Relaxed)).then_some((200, secret)));
        let client = client.await;
        let keeping = kept.keep(&client, &key, &gateway);
        let patience = Duration::from_millis(200);
        assert!(tokio::time::timeout(patience, keeping).await.is_err());
        assert_eq!(kept.0, None);
        is_slow.store(false, Ordering::Relaxed);
        kept.keep(&client, &key, &gateway).await.unwrap();
        assert_eq!(kept.0.unwrap().0, "1");
    }
}
