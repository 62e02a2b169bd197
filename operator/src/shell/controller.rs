//! The elected replica's work: objects of gateways, certificates, status, Events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::authority::Identities;
use super::claim::{self, Claim};
use super::edge_gateway;
use super::events::Events;
use super::failure::{Failure, OBJECTS_PATIENCE};
use super::gateway_objects::GatewayObjects;
use super::gateway_secrets::CheckedSecrets;
use super::last_configuration::LastConfiguration;
use super::objects::AppliedObjects;
use super::observations::Observations;
use super::readings::Readings;
use super::refusal::told;
use super::snapshot::{GatewaySnapshot, Snapshot, Snapshots};
use super::{services, webhook};
use crate::index::Operator;
use crate::object_key::ObjectKey;
use crate::recent::{ACKNOWLEDGEMENT_GRACE, RecentVersions};
use crate::resource::EdgeGateway;
use crate::status::Observed;
use crate::workload::Platform;

/// Changes within this time are handled together.
const COALESCING_DELAY: Duration = Duration::from_millis(100);
/// Time after which all objects are checked even without an event.
const LOOK_PERIOD: Duration = Duration::from_secs(15);
/// Number of EdgeGateways at a time.
const PARALLEL_GATEWAYS: usize = 8;

/// The controller of the elected replica.
pub(super) struct Controller {
    pub(super) client: Client,
    pub(super) platform: Platform,
    pub(super) operator: Operator,
    pub(super) snapshots: Arc<Snapshots>,
    pub(super) observations: Arc<Observations>,
    pub(super) identities: Arc<Identities>,
    pub(super) readings: Arc<Readings>,
    pub(super) webhook_configuration: String,
    pub(super) gateway_objects: GatewayObjects,
    pub(super) elected: watch::Receiver<bool>,
    pub(super) began: Instant,
}

/// The controller's record of an EdgeGateway.
#[derive(Default)]
struct Record {
    uid: String,
    objects: AppliedObjects,
    secrets: CheckedSecrets,
    last_configuration: LastConfiguration,
    /// The last failure in its status.
    failure: Option<String>,
    /// True if the EdgeGateway's namespace is being deleted: objects can no longer be created
    /// there.
    namespace_ends: bool,
    /// True if the API server has dropped the claim, because its definition of EdgeGateways does
    /// not have the field.
    definition_is_outdated: bool,
    /// The versions of the configuration that its gateways may have.
    versions: RecentVersions,
}

impl Record {
    /// Notes the outcome of an EdgeGateway's turn. A failure that repeats is logged once.
    fn note(&mut self, key: &ObjectKey, outcome: Result<(), Failure>) {
        if outcome.as_ref().is_err_and(Failure::namespace_ends) {
            tracing::info!(event = "namespace_ends", gateway = %key);
            self.namespace_ends = true;
        }
        let failure = outcome.err().filter(|_| !self.namespace_ends).map(|error| error.to_string());
        if let Some(error) = &failure {
            self.objects.repair();
            if self.failure != failure {
                tracing::warn!(event = "apply_failed", gateway = %key, error);
            }
        }
        self.failure = failure;
    }
}

impl Controller {
    /// Works forever, while this replica is elected.
    pub(super) async fn run(
        mut self,
        replica: String,
        mut owned: mpsc::UnboundedReceiver<ObjectKey>,
    ) {
        let mut snapshots = self.snapshots.subscribe();
        let mut observations = self.observations.subscribe();
        let mut authority = self.identities.authority();
        let mut readings = self.readings.subscribe();
        let mut events = Events::new(self.client.clone(), &replica);
        let mut records = BTreeMap::<ObjectKey, Record>::new();
        let mut period = LOOK_PERIOD;
        loop {
            let mut drifted = Vec::new();
            tokio::select! {
                _ = snapshots.changed() => {}
                _ = observations.changed() => {}
                _ = authority.changed() => {}
                _ = readings.changed() => {}
                _ = self.elected.changed() => {}
                gateway = owned.recv() => drifted.extend(gateway),
                () = sleep(period) => {}
            }
            sleep(COALESCING_DELAY).await;
            drifted.extend(std::iter::from_fn(|| owned.try_recv().ok()));
            observations.mark_unchanged();
            authority.mark_unchanged();
            readings.mark_unchanged();
            let Some(snapshot) = snapshots.borrow_and_update().clone() else { continue };
            if !*self.elected.borrow() {
                // Another replica may change the objects: the record of this replica's writes is
                // void.
                records.clear();
                continue;
            }
            self.reconcile_all(&snapshot, &drifted, &mut records, &mut events).await;
            let is_changing = records.values().any(|record| record.versions.is_changing());
            period = if is_changing { ACKNOWLEDGEMENT_GRACE } else { LOOK_PERIOD };
        }
    }

    /// Works on all objects. `drifted`: EdgeGateways of whose objects one has changed.
    async fn reconcile_all(
        &self,
        snapshot: &Snapshot,
        drifted: &[ObjectKey],
        records: &mut BTreeMap<ObjectKey, Record>,
        events: &mut Events,
    ) {
        // The Gateway API is first, since its objects result in EdgeGateways.
        if timeout(OBJECTS_PATIENCE, self.gateway_objects.write(snapshot)).await.is_err() {
            tracing::warn!(event = "gateway_api_slow");
        }
        records.retain(|key, _| snapshot.gateways.contains_key(key));
        for key in snapshot.gateways.keys() {
            let record = records.entry(key.clone()).or_default();
            if drifted.contains(key) {
                record.objects.repair();
            }
        }
        // Both are in the order of their keys.
        let gateways = snapshot.gateways.iter().zip(records.values_mut());
        futures::stream::iter(gateways)
            .for_each_concurrent(PARALLEL_GATEWAYS, |((key, gateway), record)| {
                self.reconcile(key, gateway, record)
            })
            .await;
        if timeout(OBJECTS_PATIENCE, self.others(snapshot, events)).await.is_err() {
            tracing::warn!(event = "services_slow");
        }
    }

    /// Reconciles one EdgeGateway; a failure is reported in its status, and the work is tried again.
    async fn reconcile(&self, key: &ObjectKey, gateway: &GatewaySnapshot, record: &mut Record) {
        if record.uid != gateway.model.uid {
            *record = Record { uid: gateway.model.uid.clone(), ..Record::default() };
        }
        if gateway.model.status.operator.is_none() && !self.claim(key, record).await {
            return;
        }
        let outcome = if gateway.model.deleting || record.namespace_ends {
            // The garbage collector removes its objects: recreated ones would keep the EdgeGateway
            // from being deleted.
            Ok(())
        } else {
            let set_up = timeout(OBJECTS_PATIENCE, self.set_up(key, gateway, record)).await;
            set_up.unwrap_or(Err(Failure::Slow))
        };
        record.note(key, outcome);
        record.versions.see(gateway.version.as_ref(), self.began.elapsed());
        match timeout(OBJECTS_PATIENCE, self.report(key, gateway, record)).await {
            Ok(Ok(())) => {}
            // The EdgeGateway may be gone by now.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {}
            Ok(Err(error)) => {
                tracing::warn!(event = "status_failed", gateway = %key, error = told(&error))
            }
            Err(_) => tracing::warn!(event = "status_slow", gateway = %key),
        }
    }

    /// Claims an EdgeGateway; true if it is this operator's then.
    async fn claim(&self, key: &ObjectKey, record: &mut Record) -> bool {
        match timeout(OBJECTS_PATIENCE, claim::claim(&self.client, &self.operator, key)).await {
            Ok(Ok(Claim::Own)) => record.definition_is_outdated = false,
            Ok(Ok(Claim::Lost)) | Err(_) => return false,
            // The gateways run despite such a failure.
            Ok(Ok(Claim::Dropped)) => {
                if !std::mem::replace(&mut record.definition_is_outdated, true) {
                    tracing::error!(event = "definition_outdated", gateway = %key);
                }
            }
            Ok(Err(error)) => {
                tracing::warn!(event = "claim_failed", gateway = %key, error = told(&error));
                return false;
            }
        }
        true
    }

    /// Writes the Secrets and the objects of a gateway.
    async fn set_up(
        &self,
        key: &ObjectKey,
        gateway: &GatewaySnapshot,
        record: &mut Record,
    ) -> Result<(), Failure> {
        let (client, snapshots) = (&self.client, &self.snapshots);
        record.secrets.renew(client, &self.identities, snapshots, key, &gateway.model).await?;
        // A refused Secret, for example because of a quota, must not prevent the other objects.
        let kept = record.last_configuration.keep(client, key, gateway).await;
        record.objects.apply(client, &self.platform, key, gateway).await.and(kept)
    }

    /// Writes the status of an EdgeGateway.
    async fn report(
        &self,
        key: &ObjectKey,
        gateway: &GatewaySnapshot,
        record: &Record,
    ) -> Result<(), kube::Error> {
        let model = &gateway.model;
        let observed = self.observations.of(key, model.spec.workload.kind);
        let known = self.observations.pods(key);
        // A replica that has died leaves its entries behind.
        let (proxies, stale): (Vec<_>, Vec<_>) =
            model.status.proxies.iter().cloned().partition(|proxy| known.contains_key(&proxy.name));
        let api = Api::<EdgeGateway>::namespaced(self.client.clone(), &key.namespace);
        if !stale.is_empty() {
            edge_gateway::forget_proxies(&api, key, &stale).await?;
        }
        let observed = Observed {
            addresses: self.observations.addresses(key, model.spec.exposure.type_),
            public_key: self.snapshots.public_key(key),
            reading: self.readings.of(key, &observed.ready_pods),
            proxies,
            versions: record.versions.versions().cloned().collect(),
            node_ports: self.observations.node_ports(key),
            operator: self.operator.identity.clone(),
            failure: record.failure.clone(),
            namespace_ends: record.namespace_ends,
            definition_is_outdated: record.definition_is_outdated,
            ..observed
        };
        edge_gateway::report(&api, key, gateway, &observed).await
    }

    /// The work that belongs to no gateway.
    async fn others(&self, snapshot: &Snapshot, events: &mut Events) {
        for key in &snapshot.resolution.released {
            if let Err(error) = claim::release(&self.client, &self.operator, key).await {
                tracing::warn!(event = "release_failed", gateway = %key, error = told(&error));
            }
        }
        services::write(&self.client, snapshot).await;
        events.tell(snapshot).await;
        let bundle = self.identities.authority().borrow().bundle();
        if let Err(error) = webhook::trust(&self.client, &self.webhook_configuration, &bundle).await
        {
            tracing::warn!(event = "webhook_configuration_failed", error = told(&error));
        }
    }
}
