//! Watches of all kinds of objects that the index needs. A watch that ends begins again, with a
//! growing pause while the API server is unavailable; until then the index keeps its contents.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use super::observations::Observations;
use super::refusal::told_by_watch;
use super::snapshot::Snapshots;
use crate::index::{Index, Operator};
use crate::model::is_ours;
use crate::model::{
    GatewayModel, NamespaceModel, PodModel, ServiceModel, SliceModel, node_addresses,
    service_addresses,
};
use crate::names::FIELD_MANAGER;
use crate::names::GATEWAY_LABEL;
use crate::object_key::ObjectKey;
use crate::resource::{EdgeGateway, WorkloadKind};
use crate::status::Rollout;

/// Number of watches that have to see all objects before the first snapshot: the watches of this
/// module, and all of the Gateway API together.
pub(super) const ESSENTIAL_WATCHES: usize = 7;

/// Observation of a watch.
#[derive(Debug)]
pub(super) enum Seen<'a, K> {
    /// An object that exists.
    Present(&'a K),
    /// An object that was deleted.
    Gone(&'a K),
    /// All objects of the kind: others have been deleted.
    All(&'a BTreeSet<ObjectKey>),
}

// Also for kinds that cannot be copied.
impl<K> Clone for Seen<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Seen<'_, K> {}

pub(super) fn key<K: Resource>(object: &K) -> ObjectKey {
    ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any())
}

pub(super) async fn follow<K, Stream>(what: &str, stream: Stream, mut see: impl FnMut(Seen<'_, K>))
where
    K: Resource + Clone + Debug,
    Stream: futures::Stream<Item = Result<Event<K>, watcher::Error>>,
{
    let mut stream = std::pin::pin!(stream);
    let mut all = BTreeSet::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Apply(object)) => see(Seen::Present(&object)),
            Ok(Event::Delete(object)) => see(Seen::Gone(&object)),
            Ok(Event::Init) => all.clear(),
            Ok(Event::InitApply(object)) => {
                all.insert(key(&object));
                see(Seen::Present(&object));
            }
            Ok(Event::InitDone) => {
                see(Seen::All(&all));
                all.clear();
            }
            Err(error) => {
                tracing::warn!(event = "watch_failed", what, error = told_by_watch(&error))
            }
        }
    }
}

/// A kind of object that the index is made of.
trait Indexed: Resource + Sized {
    /// The kind, for the log.
    const KINDS: &'static str;
    /// Puts an object into the index, or removes it (`None`); returns true if the index has changed.
    fn set(index: &mut Index, key: ObjectKey, object: Option<&Self>) -> bool;
    /// Removes all objects from the index except `all`.
    fn retain(index: &mut Index, all: &BTreeSet<ObjectKey>);
}

impl Indexed for DeserializeGuard<EdgeGateway> {
    const KINDS: &'static str = "EdgeGateways";

    fn set(index: &mut Index, key: ObjectKey, object: Option<&Self>) -> bool {
        let model = match object.map(|object| &object.0) {
            None => None,
            Some(Ok(gateway)) => Some(GatewayModel::read(gateway)),
            // The others continue; this one stays as it was.
            Some(Err(error)) => {
                tracing::error!(event = "edge_gateway_unreadable", gateway = %key, error = %error);
                return false;
            }
        };
        index.gateways.set(key, model)
    }

    fn retain(index: &mut Index, all: &BTreeSet<ObjectKey>) {
        index.gateways.retain(|key| all.contains(key));
    }
}

impl Indexed for Namespace {
    const KINDS: &'static str = "Namespaces";

    fn set(index: &mut Index, key: ObjectKey, object: Option<&Self>) -> bool {
        let labels = object.map(|object| object.labels().clone());
        let relabelled = index.set_namespace_labels(key.name.clone(), labels);
        index.namespaces.set(key.name, object.and_then(NamespaceModel::read)) || relabelled
    }

    fn retain(index: &mut Index, all: &BTreeSet<ObjectKey>) {
        index.retain_namespaces(|name| all.contains(&ObjectKey::new("", name)));
    }
}

impl Indexed for EndpointSlice {
    const KINDS: &'static str = "EndpointSlices";

    fn set(index: &mut Index, key: ObjectKey, object: Option<&Self>) -> bool {
        index.set_slice(key, object.and_then(SliceModel::read))
    }

    fn retain(index: &mut Index, all: &BTreeSet<ObjectKey>) {
        index.slices.retain(|key| all.contains(key));
    }
}

impl Indexed for Service {
    const KINDS: &'static str = "Services";

    fn set(index: &mut Index, key: ObjectKey, object: Option<&Self>) -> bool {
        let moved = index.set_service_addresses(key.clone(), object.map(service_addresses));
        let is_other = index.operators.set(key.clone(), object.and_then(Operator::read));
        index.services.set(key, object.and_then(ServiceModel::read)) || moved || is_other
    }

    fn retain(index: &mut Index, all: &BTreeSet<ObjectKey>) {
        index.retain_services(|key| all.contains(key));
    }
}

impl Indexed for Pod {
    const KINDS: &'static str = "Pods";

    fn set(index: &mut Index, key: ObjectKey, object: Option<&Self>) -> bool {
        index.pods.set(key, object.and_then(PodModel::read))
    }

    fn retain(index: &mut Index, all: &BTreeSet<ObjectKey>) {
        index.pods.retain(|key| all.contains(key));
    }
}

impl Indexed for Node {
    const KINDS: &'static str = "Nodes";

    fn set(index: &mut Index, key: ObjectKey, object: Option<&Self>) -> bool {
        index.nodes.set(key.name, object.map(node_addresses))
    }

    fn retain(index: &mut Index, all: &BTreeSet<ObjectKey>) {
        index.nodes.retain(|name| all.contains(&ObjectKey::new("", name)));
    }
}

/// Keeps all objects of a kind in the index. `also`: called with each observation.
fn index<K>(
    client: &Client,
    snapshots: &Arc<Snapshots>,
    tasks: &mut JoinSet<()>,
    mut also: impl FnMut(Seen<'_, K>) + Send + 'static,
) where
    K: Indexed<DynamicType: Default> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let stream =
        watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff();
    let snapshots = Arc::clone(snapshots);
    let mut is_complete = false;
    tasks.spawn(async move {
        follow(K::KINDS, stream, |seen| {
            also(seen);
            match seen {
                Seen::Present(object) => {
                    snapshots.update(|index| K::set(index, key(object), Some(object)))
                }
                Seen::Gone(object) => snapshots.update(|index| K::set(index, key(object), None)),
                Seen::All(all) => {
                    snapshots.update(|index| {
                        K::retain(index, all);
                        true
                    });
                    if !std::mem::replace(&mut is_complete, true) {
                        snapshots.complete();
                    }
                }
            }
        })
        .await;
    });
}

/// Starts all watches, as `tasks`. `owned` is notified when an object of a gateway has changed.
pub(super) fn start(
    client: &Client,
    snapshots: &Arc<Snapshots>,
    observations: &Arc<Observations>,
    owned: &UnboundedSender<ObjectKey>,
    tasks: &mut JoinSet<()>,
) {
    index::<DeserializeGuard<EdgeGateway>>(client, snapshots, tasks, |_| ());
    index::<Namespace>(client, snapshots, tasks, |_| ());
    index::<EndpointSlice>(client, snapshots, tasks, |_| ());
    let seen_nodes = Arc::clone(observations);
    index::<Node>(client, snapshots, tasks, move |seen| match seen {
        Seen::Present(node) => seen_nodes.node(node, false),
        Seen::Gone(node) => seen_nodes.node(node, true),
        Seen::All(all) => seen_nodes.retain_nodes(|key| all.contains(key)),
    });
    let (seen_services, mut services) = (Arc::clone(observations), Owned::new(owned));
    index::<Service>(client, snapshots, tasks, move |seen| {
        match seen {
            Seen::Present(service) => seen_services.service(service, false),
            Seen::Gone(service) => seen_services.service(service, true),
            Seen::All(all) => seen_services.retain_services(|key| all.contains(key)),
        }
        services.see(seen);
    });
    let seen_pods = Arc::clone(observations);
    index::<Pod>(client, snapshots, tasks, move |seen| match seen {
        Seen::Present(pod) => seen_pods.pod(pod, !is_ours(pod)),
        Seen::Gone(pod) => seen_pods.pod(pod, true),
        Seen::All(all) => seen_pods.retain_pods(|key| all.contains(key)),
    });
    let labels =
        watcher::Config::default().labels(&format!("app.kubernetes.io/managed-by={FIELD_MANAGER}"));
    let kinds = (WorkloadKind::Deployment, WorkloadKind::DaemonSet);
    workloads::<Deployment>(
        client,
        (kinds.0, "Deployments"),
        labels.clone(),
        observations,
        owned,
        tasks,
    );
    workloads::<DaemonSet>(client, (kinds.1, "DaemonSets"), labels, observations, owned, tasks);
}

fn workloads<K>(
    client: &Client,
    (kind, what): (WorkloadKind, &'static str),
    labels: watcher::Config,
    observations: &Arc<Observations>,
    owned: &UnboundedSender<ObjectKey>,
    tasks: &mut JoinSet<()>,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    for<'a> Rollout: From<&'a K>,
{
    let stream = watcher(Api::<K>::all(client.clone()), labels).default_backoff();
    let mut workloads = Owned::new(owned);
    let observations = Arc::clone(observations);
    tasks.spawn(async move {
        follow(what, stream, |seen: Seen<'_, K>| {
            match seen {
                Seen::Present(object) => observations.workload(
                    kind,
                    gateway_of(object).as_ref(),
                    Some(Rollout::from(object)),
                ),
                Seen::Gone(object) => {
                    observations.workload(kind, gateway_of(object).as_ref(), None)
                }
                Seen::All(all) => observations.retain_workloads(kind, |key| all.contains(key)),
            }
            workloads.see(seen);
        })
        .await
    });
}

/// The objects of gateways, of one kind: the gateway and the generation of each.
struct Owned {
    known: BTreeMap<ObjectKey, (ObjectKey, Option<i64>)>,
    /// Notified of the gateways whose objects have changed.
    changed: UnboundedSender<ObjectKey>,
}

impl Owned {
    fn new(changed: &UnboundedSender<ObjectKey>) -> Self {
        Self { known: BTreeMap::new(), changed: changed.clone() }
    }

    fn see<K: Resource>(&mut self, seen: Seen<'_, K>) {
        // The receiver lives as long as the process.
        let tell = |gateway: &ObjectKey| drop(self.changed.send(gateway.clone()));
        let (object, gateway) = match seen {
            Seen::Present(object) => (object, gateway_of(object)),
            Seen::Gone(object) => (object, None),
            Seen::All(all) => {
                let gone = self.known.extract_if(.., |key, _| !all.contains(key));
                return gone.for_each(|(_, (gateway, _))| tell(&gateway));
            }
        };
        let Some(gateway) = gateway else {
            let gone = self.known.remove(&key(object));
            return gone.iter().for_each(|(gateway, _)| tell(gateway));
        };
        let is = (gateway, object.meta().generation);
        let was = self.known.insert(key(object), is.clone());
        // Only a new generation is drift, a new status is not. Services have no generation.
        if is.1.is_none() || was.as_ref() != Some(&is) {
            tell(&is.0);
        }
    }
}

/// The gateway that an object belongs to, if it is this operator's.
fn gateway_of<K: Resource>(object: &K) -> Option<ObjectKey> {
    let gateway = object.labels().get(GATEWAY_LABEL).filter(|_| is_ours(object))?;
    Some(ObjectKey::new(object.namespace().unwrap_or_default(), gateway.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::sync::mpsc::unbounded_channel;

    fn service(generation: Option<i64>) -> Service {
        serde_json::from_value(json!({ "metadata": {
            "namespace": "shop", "name": "packrat-gateway-edge", "generation": generation,
            "labels": { "app.kubernetes.io/managed-by": FIELD_MANAGER, GATEWAY_LABEL: "edge" },
        }}))
        .unwrap()
    }

    #[test]
    fn an_object_that_went_while_there_was_no_watch_is_told_of() {
        let (sender, mut told) = unbounded_channel();
        let mut owned = Owned::new(&sender);
        let edge = ObjectKey::new("shop", "edge");
        let (one, another) = (service(Some(1)), service(Some(2)));
        let all = BTreeSet::from([key(&one)]);
        for (seen, is_told) in [
            (Seen::Present(&one), true),
            // A new status.
            (Seen::Present(&one), false),
            (Seen::All(&all), false),
            (Seen::Present(&another), true),
            (Seen::All(&BTreeSet::new()), true),
            (Seen::All(&BTreeSet::new()), false),
            (Seen::Present(&one), true),
            (Seen::Gone(&one), true),
            (Seen::Gone(&one), false),
        ] {
            owned.see(seen);
            assert_eq!(told.try_recv().ok(), is_told.then(|| edge.clone()), "{seen:?}");
        }
        // An object without a generation may have drifted with each change.
        for _ in 0..2 {
            owned.see(Seen::Present(&service(None)));
            assert_eq!(told.try_recv().ok(), Some(edge.clone()));
        }
        // The object has lost its label, and no longer belongs to the gateway.
        let mut lost = service(None);
        lost.metadata.labels = None;
        owned.see(Seen::Present(&lost));
        assert_eq!(told.try_recv().ok(), Some(edge));
        owned.see(Seen::Present(&lost));
        assert!(told.try_recv().is_err());
    }
}
