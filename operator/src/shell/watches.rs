//! Watches of everything that matters. A watch that ends begins anew, with a growing pause while the API server is away; the index
//! keeps what it has meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::DeserializeGuard;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use super::observations::Observations;
use super::refusal::told_by_watch;
use super::snapshot::Snapshots;
use crate::FIELD_MANAGER;
use crate::annotations::ObjectKey;
use crate::index::{GatewayModel, NamespaceModel, ServiceModel, SliceModel};
use crate::resource::EdgeGateway;
use crate::workload::GATEWAY_LABEL;

/// Watches that have to see everything before there is a first snapshot.
pub(super) const ESSENTIAL: usize = 4;

/// What a watch has seen.
enum Seen<'a, K> {
    /// An object that is there.
    Present(&'a K),
    /// An object that is gone.
    Gone(&'a K),
    /// These are all: what is not among them is gone.
    All(&'a BTreeSet<ObjectKey>),
}

fn key<K: Resource>(object: &K) -> ObjectKey {
    ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any())
}

async fn follow<K, Stream>(what: &str, stream: Stream, mut see: impl FnMut(Seen<'_, K>))
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
            Err(error) => tracing::warn!(event = "watch_failed", what, error = told_by_watch(&error)),
        }
    }
}

fn all<K>(client: &Client) -> impl futures::Stream<Item = Result<Event<K>, watcher::Error>> + use<K>
where
    K: Resource<DynamicType: Default> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff()
}

/// Starts all watches, as `tasks`. `owned` is told when an object of a gateway has been changed by somebody.
pub(super) fn start(
    client: &Client,
    snapshots: &Arc<Snapshots>,
    observations: &Arc<Observations>,
    owned: &UnboundedSender<ObjectKey>,
    tasks: &mut JoinSet<()>,
) {
    let once = |snapshots: &Arc<Snapshots>| {
        let snapshots = Arc::clone(snapshots);
        let mut first = true;
        move || {
            if std::mem::take(&mut first) {
                snapshots.complete();
            }
        }
    };
    let (stream, index, mut complete) =
        (all::<DeserializeGuard<EdgeGateway>>(client), Arc::clone(snapshots), once(snapshots));
    tasks.spawn(async move {
        follow("EdgeGateways", stream, |seen| match seen {
            Seen::Present(guard) => match &guard.0 {
                Ok(gateway) => {
                    let model = GatewayModel::read(gateway);
                    index.update(|index| index.set_gateway(key(gateway), Some(model)));
                }
                // The others go on; this one stays as it was.
                Err(error) => tracing::error!(
                    event = "edge_gateway_unreadable",
                    gateway = %key(guard),
                    error = %error
                ),
            },
            Seen::Gone(guard) => index.update(|index| index.set_gateway(key(guard), None)),
            Seen::All(all) => {
                index.update(|index| {
                    index.retain_gateways(|key| all.contains(key));
                    true
                });
                complete();
            }
        })
        .await;
    });
    let (stream, index, mut complete) = (all::<Namespace>(client), Arc::clone(snapshots), once(snapshots));
    tasks.spawn(async move {
        follow("Namespaces", stream, |seen| match seen {
            Seen::Present(namespace) => {
                let model = NamespaceModel::read(namespace);
                index.update(|index| index.set_namespace(namespace.name_any(), model));
            }
            Seen::Gone(namespace) => index.update(|index| index.set_namespace(namespace.name_any(), None)),
            Seen::All(all) => {
                index.update(|index| {
                    index.retain_namespaces(|name| all.contains(&ObjectKey::new("", name)));
                    true
                });
                complete();
            }
        })
        .await;
    });
    let (stream, index, mut complete) =
        (all::<EndpointSlice>(client), Arc::clone(snapshots), once(snapshots));
    tasks.spawn(async move {
        follow("EndpointSlices", stream, |seen| match seen {
            Seen::Present(slice) => {
                let model = SliceModel::read(slice);
                index.update(|index| index.set_slice(key(slice), model));
            }
            Seen::Gone(slice) => index.update(|index| index.set_slice(key(slice), None)),
            Seen::All(all) => {
                index.update(|index| {
                    index.retain_slices(|key| all.contains(key));
                    true
                });
                complete();
            }
        })
        .await;
    });
    let (stream, index, mut complete) = (all::<Service>(client), Arc::clone(snapshots), once(snapshots));
    let (seen_services, changed) = (Arc::clone(observations), owned.clone());
    tasks.spawn(async move {
        follow("Services", stream, |seen| match seen {
            Seen::Present(service) => {
                seen_services.service(service, false);
                tell(&changed, service);
                let model = ServiceModel::read(service);
                index.update(|index| index.set_service(key(service), model));
            }
            Seen::Gone(service) => {
                seen_services.service(service, true);
                tell(&changed, service);
                index.update(|index| index.set_service(key(service), None));
            }
            Seen::All(all) => {
                index.update(|index| {
                    index.retain_services(|key| all.contains(key));
                    true
                });
                complete();
            }
        })
        .await;
    });
    let labels = watcher::Config::default().labels(&format!("app.kubernetes.io/managed-by={FIELD_MANAGER}"));
    let stream = watcher(Api::<Pod>::all(client.clone()), labels.clone()).default_backoff();
    let seen_pods = Arc::clone(observations);
    tasks.spawn(async move {
        follow("Pods", stream, |seen| match seen {
            Seen::Present(pod) => seen_pods.pod(pod, false),
            Seen::Gone(pod) => seen_pods.pod(pod, true),
            Seen::All(all) => seen_pods.retain_pods(|key| all.contains(key)),
        })
        .await;
    });
    workloads::<Deployment>(client, "Deployments", labels.clone(), owned, tasks);
    workloads::<DaemonSet>(client, "DaemonSets", labels, owned, tasks);
}

fn workloads<K>(
    client: &Client,
    what: &'static str,
    labels: watcher::Config,
    owned: &UnboundedSender<ObjectKey>,
    tasks: &mut JoinSet<()>,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let stream = watcher(Api::<PartialObjectMeta<K>>::all(client.clone()), labels).default_backoff();
    let owned = owned.clone();
    tasks.spawn(async move {
        // A new status is no drift: only a new generation is.
        let mut generations = BTreeMap::new();
        follow(what, stream, |seen| match seen {
            Seen::Present(object) => {
                let generation = object.metadata.generation;
                if generations.insert(key(object), generation) != Some(generation) {
                    tell(&owned, object);
                }
            }
            Seen::Gone(object) => {
                generations.remove(&key(object));
                tell(&owned, object);
            }
            Seen::All(all) => generations.retain(|key, _| all.contains(key)),
        })
        .await;
    });
}

/// Says that an object of a gateway has changed; others are nobody's concern.
fn tell<K: Resource>(owned: &UnboundedSender<ObjectKey>, object: &K) {
    let labels = object.labels();
    let ours = labels.get("app.kubernetes.io/managed-by").map(String::as_str) == Some(FIELD_MANAGER);
    if let (true, Some(gateway)) = (ours, labels.get(GATEWAY_LABEL)) {
        // The receiver lives as long as the process.
        let _ = owned.send(ObjectKey::new(object.namespace().unwrap_or_default(), gateway.clone()));
    }
}
