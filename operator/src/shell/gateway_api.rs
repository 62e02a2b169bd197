//! Watches of the Gateway API's objects, of the kinds and versions that the cluster has. They begin
//! when its definitions appear; when these are removed, the observed objects are forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::refusal::told;
use super::snapshot::Snapshots;
use super::watches::{Seen, follow, key};
use crate::gateway_api::bundle::BUNDLE_VERSION;
use crate::gateway_api::objects::Read;
use crate::gateway_api::{
    Bundles, Gateway, GatewayClass, Objects, Parameters, PolicyModel, ReferenceGrant, UdpRoute,
};
use crate::index::set;
use crate::names::API_GROUP;
use crate::object_key::ObjectKey;

/// Time between two checks of the kinds that the cluster has.
const LOOK_PERIOD: Duration = Duration::from_secs(30);
/// Time between two checks while the API server has not answered yet: without an answer there is no
/// snapshot.
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// A kind that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    GatewayClass,
    Gateway,
    UdpRoute,
    ReferenceGrant,
    Parameters,
    Policy,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::GatewayClass,
        Self::Gateway,
        Self::UdpRoute,
        Self::ReferenceGrant,
        Self::Parameters,
        Self::Policy,
    ];

    /// Group, kind and plural.
    const fn names(self) -> [&'static str; 3] {
        match self {
            Self::GatewayClass => [API_GROUP, "GatewayClass", "gatewayclasses"],
            Self::Gateway => [API_GROUP, "Gateway", "gateways"],
            Self::UdpRoute => [API_GROUP, "UDPRoute", "udproutes"],
            Self::ReferenceGrant => [API_GROUP, "ReferenceGrant", "referencegrants"],
            Self::Parameters => ["packrat.dev", "GatewayParameters", "gatewayparameters"],
            Self::Policy => ["packrat.dev", "PackratPolicy", "packratpolicies"],
        }
    }

    /// Versions that are understood, the best one first.
    const fn versions(self) -> &'static [&'static str] {
        match self {
            Self::GatewayClass | Self::Gateway | Self::ReferenceGrant => &["v1", "v1beta1"],
            Self::UdpRoute => &["v1", "v1alpha2"],
            Self::Parameters | Self::Policy => &["v1alpha1"],
        }
    }

    pub(super) fn resource(self, version: &str) -> ApiResource {
        let [group, kind, plural] = self.names();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    fn put(self, objects: &mut Objects, object: &DynamicObject) -> Result<bool, serde_json::Error> {
        let key = key(object);
        Ok(match self {
            Self::GatewayClass => {
                set(&mut objects.classes, key.name, Some(GatewayClass::read(object)?))
            }
            Self::Gateway => set(&mut objects.gateways, key, Some(Gateway::read(object)?)),
            Self::UdpRoute => set(&mut objects.routes, key, Some(UdpRoute::read(object)?)),
            Self::ReferenceGrant => {
                set(&mut objects.grants, key, Some(ReferenceGrant::read(object)?))
            }
            Self::Parameters => set(&mut objects.parameters, key, Some(Parameters::read(object)?)),
            Self::Policy => set(&mut objects.policies, key, Some(PolicyModel::read(object)?)),
        })
    }

    fn remove(self, objects: &mut Objects, key: &ObjectKey) -> bool {
        match self {
            Self::GatewayClass => objects.classes.remove(&key.name).is_some(),
            Self::Gateway => objects.gateways.remove(key).is_some(),
            Self::UdpRoute => objects.routes.remove(key).is_some(),
            Self::ReferenceGrant => objects.grants.remove(key).is_some(),
            Self::Parameters => objects.parameters.remove(key).is_some(),
            Self::Policy => objects.policies.remove(key).is_some(),
        }
    }

    fn retain(self, objects: &mut Objects, keep: impl Fn(&ObjectKey) -> bool) {
        match self {
            Self::GatewayClass => {
                objects.classes.retain(|name, _| keep(&ObjectKey::new("", name)));
            }
            Self::Gateway => objects.gateways.retain(|key, _| keep(key)),
            Self::UdpRoute => objects.routes.retain(|key, _| keep(key)),
            Self::ReferenceGrant => objects.grants.retain(|key, _| keep(key)),
            Self::Parameters => objects.parameters.retain(|key, _| keep(key)),
            Self::Policy => objects.policies.retain(|key, _| keep(key)),
        }
    }
}

/// The version of each kind that the cluster has and the operator may read.
pub(super) type Served = BTreeMap<Kind, &'static str>;

/// Follows the Gateway API forever. Calls [`Snapshots::complete`] once, when all initial objects
/// have been seen. `served`: the watched versions, for others.
pub(super) async fn run(client: Client, snapshots: Arc<Snapshots>, served: watch::Sender<Served>) {
    let mut watches = JoinSet::new();
    let mut is_complete = false;
    let mut bundles = None;
    let mut refused = None;
    loop {
        match discover(&client).await {
            Ok((found, refusal)) => {
                if refusal.is_some() && refusal != refused {
                    tracing::warn!(event = "gateway_api_refused", error = refusal);
                }
                refused = refusal;
                match releases(&client, &found).await {
                    Ok(newest) => {
                        if newest != bundles || !is_complete {
                            tracing::info!(event = "definitions", releases = ?newest);
                            bundles.clone_from(&newest);
                            snapshots.update(|index| {
                                index.set_gateway_api(|objects| {
                                    std::mem::replace(&mut objects.bundles, newest.clone())
                                        != newest
                                })
                            });
                        }
                    }
                    Err(error) => {
                        tracing::warn!(event = "definitions_unknown", error = told(&error));
                    }
                }
                if found != *served.borrow() || !is_complete {
                    tracing::info!(event = "gateway_api", served = ?found);
                    watches.shutdown().await;
                    forget(&snapshots, &found);
                    served.send_replace(found.clone());
                    let seen = start(&client, &snapshots, &found, &mut watches);
                    if !is_complete {
                        let all = futures::future::join_all(seen.into_iter().map(
                            |mut seen| async move { seen.wait_for(|seen| *seen).await.is_ok() },
                        ));
                        // Objects that are not reported may have been deleted since they were
                        // found.
                        let all =
                            tokio::time::timeout(LOOK_PERIOD, all).await.unwrap_or(vec![false]);
                        if all.into_iter().all(|seen| seen) {
                            is_complete = true;
                            snapshots.complete();
                        }
                    }
                }
            }
            Err(error) => {
                tracing::warn!(event = "gateway_api_unknown", error = told(&error));
            }
        }
        tokio::time::sleep(if is_complete { LOOK_PERIOD } else { RETRY_PERIOD }).await;
    }
}

/// The kinds that the cluster has, and the reason for which some of them cannot be read.
async fn discover(client: &Client) -> Result<(Served, Option<String>), kube::Error> {
    let groups = client.list_api_groups().await?;
    let mut served = Served::new();
    let mut refusal = None;
    for kind in Kind::ALL {
        let [group, name, _] = kind.names();
        let group = groups.groups.iter().find(|found| found.name == group);
        let known = group.into_iter().flat_map(|found| &found.versions);
        let known: Vec<&str> = known.map(|found| found.version.as_str()).collect();
        for version in kind.versions().iter().filter(|version| known.contains(version)) {
            let resource = kind.resource(version);
            let all = client.list_api_group_resources(&resource.api_version).await?;
            if !all.resources.iter().any(|found| found.kind == name) {
                continue;
            }
            let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
            match api.list_metadata(&ListParams::default().limit(1)).await {
                Ok(_) => {
                    served.insert(kind, *version);
                }
                // An operator whose RBAC rules are older works without this kind.
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    refusal = Some(status.message.clone());
                }
                Err(error) => return Err(error),
            }
            break;
        }
    }
    Ok((served, refusal))
}

/// The releases of the Gateway API that the definitions of the kinds belong to; `None` if the
/// operator may not read the definitions.
async fn releases(client: &Client, served: &Served) -> Result<Option<Bundles>, kube::Error> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let mut bundles = Bundles::new();
    for kind in served.keys() {
        let [group, _, plural] = kind.names();
        if group != API_GROUP {
            continue;
        }
        let name = format!("{plural}.{group}");
        match api.get_metadata(&name).await {
            Ok(found) => {
                let release = found.metadata.annotations.unwrap_or_default().remove(BUNDLE_VERSION);
                bundles.insert(name, release);
            }
            Err(kube::Error::Api(status)) if status.code == 403 => return Ok(None),
            // The definition has just been deleted.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(bundles))
}

/// Forgets the objects of kinds that are gone.
fn forget(snapshots: &Snapshots, served: &Served) {
    snapshots.update(|index| {
        index.set_gateway_api(|objects| {
            for kind in Kind::ALL.into_iter().filter(|kind| !served.contains_key(kind)) {
                kind.retain(objects, |_| false);
            }
            true
        })
    });
}

/// Starts watches, each with a flag that is set once it has seen all objects.
fn start(
    client: &Client,
    snapshots: &Arc<Snapshots>,
    served: &Served,
    tasks: &mut JoinSet<()>,
) -> Vec<watch::Receiver<bool>> {
    let mut signs = Vec::new();
    for (&kind, version) in served {
        let resource = kind.resource(version);
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let stream = watcher(api, watcher::Config::default()).default_backoff();
        let (seen_all, sign) = watch::channel(false);
        signs.push(sign);
        let snapshots = Arc::clone(snapshots);
        tasks.spawn(async move {
            follow(kind.names()[2], stream.boxed(), |seen| {
                let change = |objects: &mut Objects| match seen {
                    Seen::Present(object) => kind.put(objects, object).unwrap_or_else(|error| {
                        tracing::error!(
                            event = "object_unreadable", kind = kind.names()[1], object = %key(object), error = %error
                        );
                        false
                    }),
                    Seen::Gone(object) => kind.remove(objects, &key(object)),
                    Seen::All(all) => {
                        kind.retain(objects, |key| all.contains(key));
                        true
                    }
                };
                snapshots.update(|index| index.set_gateway_api(change));
                if matches!(seen, Seen::All(_)) {
                    seen_all.send_replace(true);
                }
            })
            .await;
        });
    }
    signs
}
