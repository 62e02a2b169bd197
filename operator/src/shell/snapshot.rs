//! The newest result of the index, computed once per change, for every part of a replica.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use crate::envoy::TOKEN_FILTER;
use crate::gateway_api::Objects;
use crate::index::{GatewayView, Index, Lingering, Operator, Resolution};
use crate::keys::GatewayKeys;
use crate::model::GatewayModel;
use crate::object_key::ObjectKey;
use crate::policy::Policy;
use crate::workload::BOOTSTRAP_DIRECTORY;
use crate::xds::{self, GatewaySettings, Resources};

/// Changes within this time are handled together.
const COALESCING_DELAY: Duration = Duration::from_millis(20);

/// A gateway at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewaySnapshot {
    /// The EdgeGateway.
    pub model: GatewayModel,
    /// Routes of the gateway.
    pub view: GatewayView,
    /// Listeners and clusters of the gateway; `None` while its keys are not known.
    pub resources: Option<Arc<Resources>>,
    /// Version of the resources.
    pub version: Option<String>,
}

/// The state of all gateways at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// The gateways.
    pub gateways: BTreeMap<ObjectKey, GatewaySnapshot>,
    /// The rest of the result.
    pub resolution: Resolution,
    /// The objects of the Gateway API.
    pub gateway_api: Objects,
    /// All EdgeGateways, also of other operators.
    pub edge_gateways: BTreeMap<ObjectKey, GatewayModel>,
}

/// The gateways' listen address, and the paths of their Envoys' files.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The address that gateways listen on; `::` is also for IPv4.
    pub listen_address: String,
    /// The filter that gives tokens out.
    pub token_filter: String,
    /// The file by which Envoy finds the certificate of the listener for tokens.
    pub token_certificate: String,
}

impl Surroundings {
    /// Surroundings in a gateway's Pod.
    pub fn in_pods(listen_address: &str) -> Self {
        Self {
            listen_address: listen_address.to_owned(),
            token_filter: TOKEN_FILTER.to_owned(),
            token_certificate: format!("{BOOTSTRAP_DIRECTORY}/token.json"),
        }
    }
}

/// The index of a replica, and the newest result.
#[derive(Debug)]
pub struct Snapshots {
    index: Mutex<Index>,
    keys: Mutex<BTreeMap<ObjectKey, GatewayKeys>>,
    lingering: Mutex<Lingering>,
    surroundings: Surroundings,
    /// Number of watches that have not seen all objects yet.
    incomplete: AtomicUsize,
    dirty: Notify,
    newest: watch::Sender<Option<Arc<Snapshot>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Snapshots {
    /// Creates an empty index. `incomplete`: number of watches that call [`Self::complete`] when
    /// they have seen all objects; before that there is no snapshot, so that no gateway gets an
    /// empty list of routes. `home`: the operator's namespace. `policy`: the limits of all
    /// EdgeGateways. `operator`: this operator. `surroundings`: the gateways' surroundings.
    pub fn new(
        home: &str,
        policy: Policy,
        operator: Operator,
        surroundings: Surroundings,
        incomplete: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            index: Mutex::new(Index::new(home, policy).of_operator(operator)),
            keys: Mutex::default(),
            lingering: Mutex::default(),
            surroundings,
            incomplete: AtomicUsize::new(incomplete),
            dirty: Notify::new(),
            newest: watch::Sender::new(None),
        })
    }

    /// Changes the index; `change` returns true if there was a difference.
    pub fn update(&self, change: impl FnOnce(&mut Index) -> bool) {
        if change(&mut locked(&self.index)) {
            self.dirty.notify_one();
        }
    }

    /// Called when a watch has seen all objects.
    pub fn complete(&self) {
        self.incomplete.fetch_sub(1, Ordering::AcqRel);
        self.dirty.notify_one();
    }

    /// True if all watches have seen all objects.
    pub fn is_complete(&self) -> bool {
        self.newest.borrow().is_some()
    }

    /// Takes or replaces the keys of a gateway.
    pub fn set_keys(&self, gateway: &ObjectKey, keys: GatewayKeys) {
        let before = locked(&self.keys).insert(gateway.clone(), keys.clone());
        if before != Some(keys) {
            self.dirty.notify_one();
        }
    }

    /// The public key of a gateway, if its keys are known.
    pub fn public_key(&self, gateway: &ObjectKey) -> Option<String> {
        locked(&self.keys).get(gateway).map(GatewayKeys::public_key_text)
    }

    /// Gateways whose keys are not known.
    pub fn without_keys(&self) -> Vec<ObjectKey> {
        let keys = locked(&self.keys);
        let index = locked(&self.index);
        index
            .gateways
            .iter()
            .filter(|(key, model)| !keys.contains_key(key) && index.operator().serves(model))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Secrets with certificates that Services name: all of them, or only the unusable ones. Others
    /// are forgotten.
    pub fn certificates(&self, everything: bool) -> Vec<ObjectKey> {
        let mut index = locked(&self.index);
        let wanted = index.certificates();
        index.retain_certificates(&wanted);
        wanted.into_iter().filter(|key| everything || !index.has_certificate(key)).collect()
    }

    /// Secrets by which connection IDs name servers: all of them, or only the unusable ones.
    pub fn server_id_secrets(&self, everything: bool) -> Vec<ObjectKey> {
        let mut index = locked(&self.index);
        let wanted = index.server_id_secrets();
        index.retain_server_ids(&wanted);
        wanted.into_iter().filter(|key| everything || !index.has_server_ids(key)).collect()
    }

    /// The newest snapshot, and all later ones.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        self.newest.subscribe()
    }

    /// Makes snapshots, forever.
    pub async fn run(&self) {
        let mut again = None;
        loop {
            let wait = async {
                match again {
                    Some(at) => {
                        let seconds = u64::try_from(at - Timestamp::now().as_second()).unwrap_or(0);
                        tokio::time::sleep(Duration::from_secs(seconds.max(1))).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.dirty.notified() => tokio::time::sleep(COALESCING_DELAY).await,
                () = wait => {}
            }
            if self.incomplete.load(Ordering::Acquire) == 0 {
                again = self.refresh(Timestamp::now().as_second());
            }
        }
    }

    /// Makes a snapshot. Returns the time when the next one is due even without a change.
    fn refresh(&self, now: i64) -> Option<i64> {
        let (mut resolution, models, gateway_api, quotas) = {
            let index = locked(&self.index);
            let resolution = index.resolve();
            locked(&self.lingering).recognize(&resolution, &index);
            (resolution, (*index.gateways).clone(), index.gateway_api().clone(), index.quotas())
        };
        let drain = |key: &ObjectKey| {
            models.get(key).map_or(0, |model| i64::from(model.spec.drain.seconds))
        };
        let again = {
            let mut lingering = locked(&self.lingering);
            lingering.quotas = quotas;
            if !self.is_complete() {
                let listeners = models.iter().flat_map(|(key, model)| {
                    model.status.listeners.iter().map(move |status| (key, status))
                });
                lingering.resume(listeners, now, drain);
            }
            lingering.extend(&mut resolution, now, drain)
        };
        let keys = {
            let mut keys = locked(&self.keys);
            keys.retain(|key, _| models.contains_key(key));
            keys.clone()
        };
        let gateways = std::mem::take(&mut resolution.gateways)
            .into_iter()
            .filter_map(|(key, view)| {
                let model = models.get(&key)?.clone();
                let resources = keys.get(&key).map(|keys| {
                    let settings = GatewaySettings {
                        key: &key,
                        spec: &model.spec,
                        keys,
                        listen_address: &self.surroundings.listen_address,
                        token_filter: &self.surroundings.token_filter,
                        token_certificate: &self.surroundings.token_certificate,
                    };
                    Arc::new(xds::resources(&settings, &view))
                });
                let version = resources.as_ref().map(|resources| xds::version_of(resources, &view));
                Some((key, GatewaySnapshot { model, view, resources, version }))
            })
            .collect();
        let snapshot = Snapshot { gateways, resolution, gateway_api, edge_gateways: models };
        self.newest.send_if_modified(|newest| {
            let differs = newest.as_deref() != Some(&snapshot);
            if differs {
                *newest = Some(Arc::new(snapshot));
            }
            differs
        });
        again
    }
}
