//! The elected replica's work: objects of gateways, certificates, status, Events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc, watch};

use super::authority::Identities;
use super::events::Events;
use super::gateway_objects::GatewayObjects;
use super::observations::Observations;
use super::readings::Readings;
use super::refusal::{namespace_ends, told};
use super::secrets::{self, STATE_ENTRY};
use super::services;
use super::snapshot::{GatewaySnapshot, Snapshot, Snapshots};
use crate::certificates::{LEAF_RENEWAL_SECONDS, gateway_name};
use crate::index::Operator;
use crate::keys::GatewayKeys;
use crate::model::is_ours;
use crate::names::{FIELD_MANAGER, SECRET_LABEL};
use crate::object_key::ObjectKey;
use crate::recent::{ACKNOWLEDGEMENT_GRACE, RecentVersions};
use crate::resource::{EdgeGateway, EdgeGatewayStatus, GatewayProxy};
use crate::status::{Observed, gateway_status};
use crate::workload::{self, Kind, Object, Platform};
use crate::xds;
use crate::xds::wire::{CLUSTER_TYPE, LISTENER_TYPE};

/// Changes within this time are handled together.
const COALESCING_DELAY: Duration = Duration::from_millis(100);
/// Time after which all objects are checked even without an event.
const LOOK_PERIOD: Duration = Duration::from_secs(15);
/// Time after which all objects are applied again: this repairs objects that are not watched.
const REPAIR_PERIOD: Duration = Duration::from_secs(300);
/// Time between two checks of the Secrets of a gateway.
const SECRETS_PERIOD: Duration = Duration::from_secs(60);
/// Shortest time between two configurations that are kept for gateways that start without an
/// operator.
const KEEPING_INTERVAL: Duration = Duration::from_secs(30);
/// Longest configuration that is kept: etcd takes no object above 1.5 MB, a Secret no more than 1 MiB.
const MAXIMUM_KEPT_BYTES: usize = 1_000_000;
/// Longest time for the objects of one EdgeGateway, for its status, and for the objects without an
/// EdgeGateway.
const OBJECTS_PATIENCE: Duration = Duration::from_secs(30);
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
struct Done {
    uid: String,
    /// The objects that were applied, and the time at which all of them were last applied.
    objects: BTreeMap<Kind, Value>,
    all_at: Option<Instant>,
    removed: Vec<Kind>,
    secrets_at: Option<Instant>,
    /// The authorities that the certificate was made with.
    bundle: String,
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
    /// The version that was last kept for gateways that start without an operator, and the time.
    kept: Option<(String, Instant)>,
}

/// Outcome of claiming an EdgeGateway.
enum Claim {
    /// The EdgeGateway belongs to this operator.
    Own,
    /// Another operator was faster, or the EdgeGateway is gone: the watch will show which.
    Lost,
    /// The API server has dropped the written fields.
    Dropped,
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
        let done: Mutex<BTreeMap<ObjectKey, Arc<Mutex<Done>>>> = Mutex::default();
        let mut period = LOOK_PERIOD;
        loop {
            let changed = tokio::select! {
                _ = snapshots.changed() => None,
                _ = observations.changed() => None,
                _ = authority.changed() => None,
                _ = readings.changed() => None,
                _ = self.elected.changed() => None,
                gateway = owned.recv() => gateway,
                () = tokio::time::sleep(period) => None,
            };
            tokio::time::sleep(COALESCING_DELAY).await;
            let mut drifted: Vec<ObjectKey> = changed.into_iter().collect();
            while let Ok(gateway) = owned.try_recv() {
                drifted.push(gateway);
            }
            observations.mark_unchanged();
            authority.mark_unchanged();
            readings.mark_unchanged();
            let Some(snapshot) = snapshots.borrow_and_update().clone() else { continue };
            if !*self.elected.borrow() {
                // Another replica may change the objects: the record of this replica's writes is
                // void.
                done.lock().await.clear();
                continue;
            }
            // The Gateway API is first, since its objects result in EdgeGateways.
            let writing = self.gateway_objects.write(&snapshot);
            if tokio::time::timeout(OBJECTS_PATIENCE, writing).await.is_err() {
                tracing::warn!(event = "gateway_api_slow");
            }
            let all: Vec<(ObjectKey, Arc<Mutex<Done>>)> = {
                let mut done = done.lock().await;
                done.retain(|key, _| snapshot.gateways.contains_key(key));
                snapshot
                    .gateways
                    .keys()
                    .map(|key| (key.clone(), Arc::clone(done.entry(key.clone()).or_default())))
                    .collect()
            };
            let is_changing = AtomicBool::new(false);
            let (this, snapshot, drifted, changing) = (&self, &snapshot, &drifted, &is_changing);
            futures::stream::iter(all)
                .for_each_concurrent(PARALLEL_GATEWAYS, |(key, done)| async move {
                    let mut done = done.lock().await;
                    if drifted.contains(&key) {
                        done.all_at = None;
                    }
                    if let Some(gateway) = snapshot.gateways.get(&key) {
                        this.gateway(&key, gateway, &mut done).await;
                        changing.fetch_or(done.versions.is_changing(), Ordering::Relaxed);
                    }
                })
                .await;
            period = if is_changing.into_inner() { ACKNOWLEDGEMENT_GRACE } else { LOOK_PERIOD };
            if tokio::time::timeout(OBJECTS_PATIENCE, self.others(snapshot, &mut events))
                .await
                .is_err()
            {
                tracing::warn!(event = "services_slow");
            }
        }
    }

    /// The work that belongs to no gateway.
    async fn others(&self, snapshot: &Snapshot, events: &mut Events) {
        for key in &snapshot.resolution.released {
            if let Err(error) = self.release(key).await {
                tracing::warn!(event = "release_failed", gateway = %key, error = told(&error));
            }
        }
        services::write(&self.client, snapshot).await;
        events.tell(snapshot).await;
        if let Err(error) = self.webhook().await {
            tracing::warn!(event = "webhook_configuration_failed", error = told(&error));
        }
    }

    /// Handles one EdgeGateway; a failure is reported in its status, and the work is tried again.
    async fn gateway(&self, key: &ObjectKey, gateway: &GatewaySnapshot, done: &mut Done) {
        if done.uid != gateway.model.uid {
            *done = Done { uid: gateway.model.uid.clone(), ..Done::default() };
        }
        if gateway.model.status.operator.is_none() {
            match tokio::time::timeout(OBJECTS_PATIENCE, self.claim(key)).await {
                Ok(Ok(Claim::Own)) => done.definition_is_outdated = false,
                Ok(Ok(Claim::Lost)) | Err(_) => return,
                // The gateways run despite such a failure.
                Ok(Ok(Claim::Dropped)) => {
                    if !std::mem::replace(&mut done.definition_is_outdated, true) {
                        tracing::error!(event = "definition_outdated", gateway = %key);
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(event = "claim_failed", gateway = %key, error = told(&error));
                    return;
                }
            }
        }
        let failure = if gateway.model.deleting || done.namespace_ends {
            // The garbage collector removes its objects: recreated ones would keep the EdgeGateway
            // from being deleted.
            None
        } else {
            let set_up =
                tokio::time::timeout(OBJECTS_PATIENCE, self.set_up(key, gateway, done)).await;
            set_up.unwrap_or(Err(Failure::Slow)).err()
        };
        if failure.as_ref().is_some_and(Failure::namespace_ends) {
            tracing::info!(event = "namespace_ends", gateway = %key);
            done.namespace_ends = true;
        }
        let failure = failure.filter(|_| !done.namespace_ends).map(|error| error.to_string());
        if let Some(error) = &failure {
            done.all_at = None;
            // A failure that repeats is reported once.
            if done.failure != failure {
                tracing::warn!(event = "apply_failed", gateway = %key, error);
            }
        }
        done.failure.clone_from(&failure);
        done.versions.see(gateway.version.as_ref(), self.began.elapsed());
        match tokio::time::timeout(OBJECTS_PATIENCE, self.status(key, gateway, done)).await {
            Ok(Ok(())) => {}
            // The EdgeGateway may be gone by now.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {}
            Ok(Err(error)) => {
                tracing::warn!(event = "status_failed", gateway = %key, error = told(&error))
            }
            Err(_) => tracing::warn!(event = "status_slow", gateway = %key),
        }
    }

    /// Claims an EdgeGateway for this operator in its status. Of two simultaneous claims one is
    /// refused.
    async fn claim(&self, key: &ObjectKey) -> Result<Claim, kube::Error> {
        let api = Api::<EdgeGateway>::namespaced(self.client.clone(), &key.namespace);
        let Some(found) = newest(&api, key).await? else { return Ok(Claim::Lost) };
        let own = &self.operator.identity;
        if found.spec.class != self.operator.class {
            return Ok(Claim::Lost);
        }
        let holder = |found: &EdgeGateway| found.status.clone().and_then(|status| status.operator);
        match holder(&found) {
            Some(holder) if holder == *own => return Ok(Claim::Own),
            Some(_) => return Ok(Claim::Lost),
            None => {}
        }
        let Some(written) = write_status(&api, &found, json!({ "operator": own })).await? else {
            return Ok(Claim::Lost);
        };
        if holder(&written).is_none() {
            return Ok(Claim::Dropped);
        }
        tracing::info!(event = "gateway_claimed", gateway = %key, operator = own);
        Ok(Claim::Own)
    }

    /// Gives up an EdgeGateway that has another class now: its objects stay as they are for the
    /// operator of that class.
    async fn release(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let api = Api::<EdgeGateway>::namespaced(self.client.clone(), &key.namespace);
        let Some(found) = newest(&api, key).await? else { return Ok(()) };
        let holder = found.status.as_ref().and_then(|status| status.operator.as_ref());
        if found.spec.class != self.operator.class && holder == Some(&self.operator.identity) {
            tracing::info!(event = "gateway_released", gateway = %key, class = found.spec.class);
            write_status(&api, &found, json!({ "operator": null })).await?;
        }
        Ok(())
    }

    async fn set_up(
        &self,
        key: &ObjectKey,
        gateway: &GatewaySnapshot,
        done: &mut Done,
    ) -> Result<(), Failure> {
        self.secrets(key, gateway, done).await?;
        // A refused Secret, for example because of a quota, must not prevent the other objects.
        let kept = keep_configuration(&self.client, key, gateway, &mut done.kept).await;
        self.objects(key, gateway, done).await.and(kept)
    }

    /// The objects of a gateway: its workload, and the objects by which it is reached.
    async fn objects(
        &self,
        key: &ObjectKey,
        gateway: &GatewaySnapshot,
        done: &mut Done,
    ) -> Result<(), Failure> {
        // Existing objects stay as they are, and in use.
        if gateway.view.refusal.is_some() {
            return Ok(());
        }
        self.only_labelled_secrets(key, gateway).await?;
        let objects = workload::objects(key, &gateway.model, &gateway.view, &self.platform);
        let all = done.all_at.is_none_or(|at| at.elapsed() > REPAIR_PERIOD);
        let mut failure = None;
        for object in &objects {
            if !all && done.objects.get(&object.kind) == Some(&object.content) {
                continue;
            }
            match self.apply(object, &key.namespace).await {
                Ok(()) => {
                    done.objects.insert(object.kind, object.content.clone());
                    done.removed.retain(|kind| *kind != object.kind);
                }
                // The other objects would also be refused there.
                Err(source) if namespace_ends(&source) => {
                    return Err(Failure::object(object.kind, source));
                }
                // A refused object (for example because of a node port in use) must not prevent the
                // others.
                Err(source) => {
                    done.objects.remove(&object.kind);
                    failure = failure.or(Some(Failure::object(object.kind, source)));
                }
            }
        }
        if let Some(failure) = failure {
            // The former objects also stay: they may be the only working ones.
            return Err(failure);
        }
        for kind in workload::obsolete(&objects) {
            if !done.removed.contains(&kind) {
                self.remove(kind, key).await.map_err(|source| Failure::object(kind, source))?;
                done.removed.push(kind);
                done.objects.remove(&kind);
            }
        }
        if all {
            done.all_at = Some(Instant::now());
        }
        Ok(())
    }

    async fn apply(&self, object: &Object, namespace: &str) -> Result<(), kube::Error> {
        let api = self.api(object.kind, namespace);
        let name = object.content["metadata"]["name"].as_str().unwrap_or_default();
        if object.kind == Kind::Deployment && object.content["spec"]["replicas"].is_null() {
            hand_over_replicas(&api, name).await?;
        }
        api.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&object.content))
            .await?;
        Ok(())
    }

    fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        let [group, version, name, plural] = kind.names();
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), plural);
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    /// Removes an object that only a former spec needed; an object of the same name with another
    /// owner stays.
    async fn remove(&self, kind: Kind, key: &ObjectKey) -> Result<(), kube::Error> {
        // Objects of these kinds are always needed.
        if matches!(kind, Kind::ServiceAccount | Kind::ConfigMap | Kind::PodDisruptionBudget) {
            return Ok(());
        }
        let (api, name) = (self.api(kind, &key.namespace), workload::object_name(&key.name));
        let Some(object) = api.get_opt(&name).await? else { return Ok(()) };
        if is_ours(&object) {
            api.delete(&name, &DeleteParams::background()).await?;
        }
        Ok(())
    }

    /// Fails if the EdgeGateway names a Secret that is not meant for gateways: its author may lack
    /// the permission to read the namespace's Secrets.
    async fn only_labelled_secrets(
        &self,
        key: &ObjectKey,
        gateway: &GatewaySnapshot,
    ) -> Result<(), Failure> {
        for name in workload::named_secrets(&gateway.model.spec) {
            let found = secrets::labels(&self.client, &key.namespace, name)
                .await
                .map_err(Failure::Secret)?;
            let is_allowed = found.as_ref().is_some_and(|labels| {
                labels.get(SECRET_LABEL).is_some_and(|value| value == "true")
            });
            if !is_allowed {
                let state = if found.is_some() { "is not for gateways" } else { "does not exist" };
                return Err(Failure::Text(format!(
                    "Secret {name} {state}; an EdgeGateway may name Secrets with the label {}: \"true\" only",
                    SECRET_LABEL
                )));
            }
        }
        Ok(())
    }

    /// The keys and the certificate of a gateway.
    async fn secrets(
        &self,
        key: &ObjectKey,
        gateway: &GatewaySnapshot,
        done: &mut Done,
    ) -> Result<(), Failure> {
        let authority = self.identities.authority().borrow().clone();
        let bundle = authority.bundle();
        if done.bundle == bundle && done.secrets_at.is_some_and(|at| at.elapsed() < SECRETS_PERIOD)
        {
            return Ok(());
        }
        let now = Timestamp::now().as_second();
        let api = |source| Failure::Secret(source);
        let name = workload::keys_secret_name(&key.name);
        let found = secrets::read(&self.client, &key.namespace, &name).await.map_err(api)?;
        let tokens = &gateway.model.spec.tokens;
        let (keys, version, write) = match found {
            Some((entries, version)) => {
                let text = entries.get(STATE_ENTRY).map_or(&[][..], Vec::as_slice);
                let mut keys =
                    GatewayKeys::from_json(text).map_err(|error| Failure::text(&error))?;
                let advanced = keys
                    .advance(
                        now,
                        i64::from(tokens.rotation_hours) * 3600,
                        i64::from(tokens.lifetime_seconds),
                    )
                    .map_err(|error| Failure::text(&error))?;
                (keys, Some(version), advanced)
            }
            None => {
                (GatewayKeys::generate(now).map_err(|error| Failure::text(&error))?, None, true)
            }
        };
        if write {
            let metadata = workload::metadata(&name, key, &gateway.model);
            let state = keys.to_json().map_err(|error| Failure::text(&error))?;
            let public = keys.public_key_text();
            let entries = [(STATE_ENTRY, state.as_str()), ("public-key", public.as_str())];
            secrets::write(&self.client, metadata, &entries, version.as_deref())
                .await
                .map_err(api)?;
        }
        self.snapshots.set_keys(key, keys);

        let secret = workload::client_secret_name(&key.name);
        let identity = gateway_name(key, &gateway.model.uid);
        let found = secrets::read(&self.client, &key.namespace, &secret).await.map_err(api)?;
        let current = found.as_ref().is_some_and(|(entries, _)| {
            let state: Value = entries
                .get(STATE_ENTRY)
                .and_then(|text| serde_json::from_slice(text).ok())
                .unwrap_or_default();
            state["issuer"] == authority.issuer()
                && state["name"] == identity.as_str()
                && state["issued"]
                    .as_i64()
                    .is_some_and(|issued| now - issued < LEAF_RENEWAL_SECONDS)
                && entries.get("ca.crt").map(Vec::as_slice) == Some(bundle.as_bytes())
        });
        if !current {
            let uid = &gateway.model.uid;
            let issued =
                authority.issue_gateway(key, uid, now).map_err(|error| Failure::text(&error))?;
            let state = json!({ "issuer": authority.issuer(), "issued": now, "name": identity });
            let state = state.to_string();
            let entries = [
                ("tls.crt", issued.certificate.as_str()),
                ("tls.key", issued.key.as_str()),
                ("ca.crt", bundle.as_str()),
                (STATE_ENTRY, state.as_str()),
            ];
            let metadata = workload::metadata(&secret, key, &gateway.model);
            let version = found.map(|(_, version)| version);
            secrets::write(&self.client, metadata, &entries, version.as_deref())
                .await
                .map_err(api)?;
        }
        done.bundle = bundle;
        done.secrets_at = Some(Instant::now());
        Ok(())
    }

    async fn status(
        &self,
        key: &ObjectKey,
        gateway: &GatewaySnapshot,
        done: &Done,
    ) -> Result<(), kube::Error> {
        let model = &gateway.model;
        let (addresses, ready, pods) = self.observations.of(key, model.spec.exposure.type_);
        let known = self.observations.pods(key);
        // A replica that has died leaves its entries behind.
        let (proxies, stale): (Vec<_>, Vec<_>) =
            model.status.proxies.iter().cloned().partition(|proxy| known.contains_key(&proxy.name));
        let api = Api::<EdgeGateway>::namespaced(self.client.clone(), &key.namespace);
        if !stale.is_empty() {
            forget_proxies(&api, key, &stale).await?;
        }
        let ready_pods = self.observations.ready_pods(key);
        let observed = Observed {
            addresses,
            public_key: self.snapshots.public_key(key),
            ready,
            pods,
            reading: self.readings.of(key, &ready_pods),
            ready_pods,
            proxies,
            versions: done.versions.versions().cloned().collect(),
            node_ports: self.observations.node_ports(key),
            operator: self.operator.identity.clone(),
            failure: done.failure.clone(),
            namespace_ends: done.namespace_ends,
            definition_is_outdated: done.definition_is_outdated,
        };
        let status = gateway_status(
            model,
            &gateway.view,
            &observed,
            &model.status.conditions,
            Timestamp::now(),
        );
        if done.definition_is_outdated {
            // The API server would refuse the whole status because of unknown fields.
            if status.conditions != model.status.conditions {
                let content = json!({ "status": { "conditions": status.conditions } });
                api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(content))
                    .await?;
            }
            return Ok(());
        }
        let written = EdgeGatewayStatus { proxies: Vec::new(), ..model.status.clone() };
        if same(&status, &written) {
            return Ok(());
        }
        let content = json!({
            "apiVersion": "packrat.dev/v1alpha1",
            "kind": "EdgeGateway",
            "metadata": { "name": key.name },
            "status": status,
        });
        api.patch_status(
            &key.name,
            &PatchParams::apply(FIELD_MANAGER).force(),
            &Patch::Apply(content),
        )
        .await?;
        Ok(())
    }

    /// The API server has to trust the injector's certificate.
    async fn webhook(&self) -> Result<(), kube::Error> {
        if self.webhook_configuration.is_empty() {
            return Ok(());
        }
        let resource = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(
                "admissionregistration.k8s.io",
                "v1",
                "MutatingWebhookConfiguration",
            ),
            "mutatingwebhookconfigurations",
        );
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let Some(found) = api.get_opt(&self.webhook_configuration).await? else { return Ok(()) };
        let bundle = {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD
                .encode(self.identities.authority().borrow().bundle())
        };
        let webhooks = found.data["webhooks"].as_array().cloned().unwrap_or_default();
        if webhooks.iter().all(|webhook| webhook["clientConfig"]["caBundle"] == bundle.as_str()) {
            return Ok(());
        }
        // All fields: server-side apply removes missing ones.
        let webhooks: Vec<Value> = webhooks
            .iter()
            .map(|webhook| json!({ "name": webhook["name"], "clientConfig": { "caBundle": bundle } }))
            .collect();
        let content = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": self.webhook_configuration },
            "webhooks": webhooks,
        });
        api.patch(
            &self.webhook_configuration,
            &PatchParams::apply(FIELD_MANAGER).force(),
            &Patch::Apply(content),
        )
        .await?;
        tracing::info!(event = "webhook_configuration_updated");
        Ok(())
    }
}

/// The current EdgeGateway, by a list request: the operator's watch needs this permission in any
/// case.
async fn newest(
    api: &Api<EdgeGateway>,
    key: &ObjectKey,
) -> Result<Option<EdgeGateway>, kube::Error> {
    let only = ListParams::default().fields(&format!("metadata.name={}", key.name));
    Ok(api.list(&only).await?.items.into_iter().next())
}

/// Writes the status of an EdgeGateway that was read. Returns the result; `None` if another writer
/// was faster.
async fn write_status(
    api: &Api<EdgeGateway>,
    found: &EdgeGateway,
    status: Value,
) -> Result<Option<EdgeGateway>, kube::Error> {
    let content = json!({
        "metadata": { "resourceVersion": found.metadata.resource_version },
        "status": status,
    });
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch_status(&found.name_any(), &parameters, &Patch::Merge(content)).await {
        Ok(written) => Ok(Some(written)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes entries from a status. A patch replaces the list as a whole, and other replicas write
/// their entries at any time: if one is faster, the next check of the EdgeGateway finds the entries
/// again.
async fn forget_proxies(
    api: &Api<EdgeGateway>,
    key: &ObjectKey,
    stale: &[GatewayProxy],
) -> Result<(), kube::Error> {
    let Some(found) = newest(api, key).await? else { return Ok(()) };
    let proxies = found.status.iter().flat_map(|status| &status.proxies);
    let left: Vec<_> =
        proxies.filter(|proxy| stale.iter().all(|stale| stale.name != proxy.name)).collect();
    write_status(api, &found, json!({ "proxies": left })).await?;
    Ok(())
}

/// Gives up the field of replicas before an autoscaler takes over. If the operator merely stopped
/// applying it, the number of replicas would become the default, 1, and all sessions of the other
/// gateways would be lost. A field of another manager stays as it is (Kubernetes' documentation of
/// server-side apply, "Transferring ownership").
async fn hand_over_replicas(api: &Api<DynamicObject>, name: &str) -> Result<(), kube::Error> {
    let Some(found) = api.get_opt(name).await? else { return Ok(()) };
    let ours = found.managed_fields().iter().any(|entry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry
                .fields_v1
                .as_ref()
                .is_some_and(|fields| !fields.0["f:spec"]["f:replicas"].is_null())
    });
    let replicas = &found.data["spec"]["replicas"];
    if !ours || replicas.is_null() {
        return Ok(());
    }
    let content = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name },
        "spec": { "replicas": replicas },
    });
    let manager = format!("{FIELD_MANAGER}-autoscaling");
    api.patch(name, &PatchParams::apply(&manager).force(), &Patch::Apply(content)).await?;
    Ok(())
}

/// Keeps the configuration for gateways that start without an operator. Endpoints change often: not
/// each change is kept at once. `kept`: [`Done::kept`].
async fn keep_configuration(
    client: &Client,
    key: &ObjectKey,
    gateway: &GatewaySnapshot,
    kept: &mut Option<(String, Instant)>,
) -> Result<(), Failure> {
    let (Some(resources), Some(version)) = (&gateway.resources, &gateway.version) else {
        return Ok(());
    };
    let last = kept.as_ref().map(|(kept, at)| (kept == version, at.elapsed()));
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
    *kept = Some((version.clone(), Instant::now()));
    Ok(())
}

/// True if the configuration is to be kept now. `kept`: whether the last kept one equals it, and
/// its age. An equal one is written again with the other objects: it may have been deleted.
fn is_to_be_kept(kept: Option<(bool, Duration)>) -> bool {
    kept.is_none_or(|(is_same, age)| age >= if is_same { REPAIR_PERIOD } else { KEEPING_INTERVAL })
}

/// True if two statuses are equal; times of the same condition are the same already.
fn same(a: &EdgeGatewayStatus, b: &EdgeGatewayStatus) -> bool {
    let text = |status: &EdgeGatewayStatus| serde_json::to_value(status).unwrap_or_default();
    text(a) == text(b)
}

/// The reason for which an EdgeGateway cannot be set up.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{kind}: {}", told(.source))]
    Object { kind: &'static str, source: Box<kube::Error> },
    #[error("Secret: {}", told(.0))]
    Secret(kube::Error),
    #[error("{0}")]
    Text(String),
    #[error("the API server did not answer within {} s; is an admission webhook slow?", OBJECTS_PATIENCE.as_secs())]
    Slow,
}

impl Failure {
    fn object(kind: Kind, source: kube::Error) -> Self {
        Self::Object { kind: kind.names()[2], source: Box::new(source) }
    }

    fn namespace_ends(&self) -> bool {
        match self {
            Self::Object { source, .. } => namespace_ends(source),
            Self::Secret(source) => namespace_ends(source),
            Self::Text(_) | Self::Slow => false,
        }
    }

    fn text(error: &dyn std::error::Error) -> Self {
        Self::Text(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{Method, Request, Response};
    use http_body_util::{BodyExt as _, Full};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use hyper_util::server::conn::auto;
    use tokio::net::TcpListener;

    use super::*;
    use crate::index::GatewayView;
    use crate::model::GatewayModel;

    /// A configuration is kept soon after it changes, and again when objects are repaired.
    #[test]
    fn a_changed_configuration_is_kept_soon_and_an_equal_one_later() {
        assert!(is_to_be_kept(None));
        assert!(!is_to_be_kept(Some((false, KEEPING_INTERVAL - Duration::from_secs(1)))));
        assert!(is_to_be_kept(Some((false, KEEPING_INTERVAL))));
        assert!(!is_to_be_kept(Some((true, REPAIR_PERIOD - Duration::from_secs(1)))));
        assert!(is_to_be_kept(Some((true, REPAIR_PERIOD))));
    }

    /// The client of an API server that answers requests (method, body) with a status and an object.
    /// Without an answer the request waits.
    async fn api_server(
        answer: impl Fn(&Method, Value) -> Option<(u16, Value)> + Clone + Send + 'static,
    ) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answer = answer.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let answer = answer.clone();
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let body = serde_json::from_slice(&body).unwrap_or_default();
                        let Some((status, object)) = answer(&head.method, body) else {
                            return std::future::pending().await;
                        };
                        let response = Response::builder().status(status);
                        response.body(Full::new(Bytes::from(object.to_string())))
                    }
                });
                let builder = auto::Builder::new(TokioExecutor::new());
                tokio::spawn(async move {
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let config = kube::Config::new(format!("http://{address}").parse().unwrap());
        Client::try_from(config).unwrap()
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
        let (is_slow, mut kept) = (Arc::new(AtomicBool::new(true)), None);
        let slow = Arc::clone(&is_slow);
        let client =
            api_server(move |_, secret| (!slow.load(Ordering::Relaxed)).then_some((200, secret)));
        let client = client.await;
        let keeping = keep_configuration(&client, &key, &gateway, &mut kept);
        let patience = Duration::from_millis(200);
        assert!(tokio::time::timeout(patience, keeping).await.is_err());
        assert_eq!(kept, None);
        is_slow.store(false, Ordering::Relaxed);
        keep_configuration(&client, &key, &gateway, &mut kept).await.unwrap();
        assert_eq!(kept.unwrap().0, "1");
    }

    #[tokio::test]
    async fn entries_of_replicas_that_write_meanwhile_stay() {
        let entry = |name: &str, replica: &str| GatewayProxy {
            name: name.to_owned(),
            replica: replica.to_owned(),
            ..GatewayProxy::default()
        };
        let now = json!({
            "apiVersion": "packrat.dev/v1alpha1",
            "kind": "EdgeGateway",
            "metadata": { "namespace": "shop", "name": "edge", "resourceVersion": "7" },
            "spec": {},
            "status": { "proxies": [entry("gone", "a"), entry("new", "b")] },
        });
        let list = json!({
            "apiVersion": "packrat.dev/v1alpha1",
            "kind": "EdgeGatewayList",
            "metadata": {},
            "items": [now],
        });
        let conflict = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": "changed", "reason": "Conflict", "code": 409,
        });
        for (code, answer) in [(200, now), (409, conflict)] {
            let (sender, mut patches) = mpsc::unbounded_channel();
            let list = list.clone();
            let client = api_server(move |method, body| {
                if method == Method::GET {
                    return Some((200, list.clone()));
                }
                sender.send(body).unwrap();
                Some((code, answer.clone()))
            });
            let api = Api::<EdgeGateway>::namespaced(client.await, "shop");
            let stale = [entry("gone", "a")];
            forget_proxies(&api, &ObjectKey::new("shop", "edge"), &stale).await.unwrap();
            let patch = patches.try_recv().unwrap();
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            assert_eq!(patch["status"], json!({ "proxies": [entry("new", "b")] }));
        }
    }
}
