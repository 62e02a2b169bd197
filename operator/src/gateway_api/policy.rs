//! Which PackratPolicies are in force where (GEP-2649): of defaults the most specific wins, of
//! overrides the least specific.

use std::collections::BTreeMap;

use super::attach::Attachments;
use super::finding::Finding;
use super::objects::{Objects, PolicyModel, names};
use crate::names::API_GROUP;
use crate::object_key::ObjectKey;
use crate::overrides::Overrides;
use crate::resource::{ParentReference, TargetReference};

/// The object that a policy is attached to, from the least to the most specific.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A Gateway.
    Gateway(ObjectKey),
    /// A listener of a Gateway.
    Listener(ObjectKey, String),
    /// A UDPRoute.
    Route(ObjectKey),
}

impl Target {
    fn of(reference: &TargetReference, namespace: &str) -> Option<Self> {
        let key = ObjectKey::new(namespace, &reference.name);
        if reference.group != API_GROUP {
            return None;
        }
        match (reference.kind.as_str(), &reference.section_name) {
            ("Gateway", None) => Some(Self::Gateway(key)),
            ("Gateway", Some(listener)) => Some(Self::Listener(key, listener.clone())),
            ("UDPRoute", None) => Some(Self::Route(key)),
            _ => None,
        }
    }

    /// The target as an ancestor in a status.
    fn reference(&self) -> ParentReference {
        let (kind, key, section_name) = match self {
            Self::Gateway(key) => ("Gateway", key, None),
            Self::Listener(key, listener) => ("Gateway", key, Some(listener.clone())),
            Self::Route(key) => ("UDPRoute", key, None),
        };
        ParentReference {
            group: Some(API_GROUP.to_owned()),
            kind: Some(kind.to_owned()),
            namespace: Some(key.namespace.clone()),
            name: key.name.clone(),
            section_name,
            port: None,
        }
    }
}

/// The policies that are in force.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policies {
    in_force: BTreeMap<Target, Layer>,
    /// Each policy that concerns this operator, with its targets and the condition `Accepted`
    /// there.
    pub ancestors: BTreeMap<ObjectKey, Vec<(ParentReference, Finding)>>,
}

/// The settings of one policy.
#[derive(Debug, Clone, Default, PartialEq)]
struct Layer {
    defaults: Overrides,
    overrides: Overrides,
}

/// The settings of a route at a listener, from all policies.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Effective {
    /// Settings that a Service's own annotations override.
    pub defaults: Overrides,
    /// Settings that override a Service's own annotations.
    pub overrides: Overrides,
}

impl Effective {
    /// The settings of a route with its own ones in between.
    #[must_use]
    pub fn around(self, own: Overrides) -> Overrides {
        let multicast = own.multicast;
        self.overrides.or(own).or(self.defaults).with_multicast(multicast)
    }
}

impl Policies {
    /// The settings of a listener, and of a UDPRoute there.
    pub fn of(&self, gateway: &ObjectKey, listener: &str, route: Option<&ObjectKey>) -> Effective {
        let mut effective = Effective::default();
        let targets = [
            Some(Target::Gateway(gateway.clone())),
            Some(Target::Listener(gateway.clone(), listener.to_owned())),
            route.cloned().map(Target::Route),
        ];
        // From the least specific to the most specific one.
        for layer in targets.into_iter().flatten().filter_map(|target| self.in_force.get(&target)) {
            effective.overrides = effective.overrides.or(layer.overrides.clone());
            effective.defaults = layer.defaults.clone().or(effective.defaults);
        }
        effective
    }
}

/// The policies that are in force at the objects of this operator. `reports_on_the_rest`: it is the
/// one that speaks about targets that do not exist.
pub fn policies(
    objects: &Objects,
    attachments: &Attachments,
    controller: &str,
    reports_on_the_rest: bool,
) -> Policies {
    let mut policies = Policies::default();
    // The oldest of the policies that want a target has it.
    let mut all: Vec<_> = objects.policies.iter().collect();
    all.sort_by_key(|(key, policy)| (policy.metadata.created, *key));
    let mut holders: BTreeMap<Target, &ObjectKey> = BTreeMap::new();
    for (key, policy) in all {
        let mut ancestors = Vec::new();
        for reference in &policy.spec.target_refs {
            let Some(target) = Target::of(reference, &key.namespace) else { continue };
            let accepted = match owner_of(&target, objects, attachments) {
                TargetOwner::Other => continue,
                TargetOwner::Missing if !reports_on_the_rest => continue,
                TargetOwner::Missing => Some(Finding::no(
                    "Accepted",
                    "TargetNotFound",
                    format!("there is no {} {} in this namespace", reference.kind, reference.name),
                )),
                TargetOwner::NoListener => Some(Finding::no(
                    "Accepted",
                    "TargetNotFound",
                    "the Gateway has no listener of that name; correct sectionName",
                )),
                TargetOwner::This => None,
            };
            let accepted =
                accepted.unwrap_or_else(|| match (layer(policy), holders.get(&target)) {
                    (Err(message), _) => Finding::no("Accepted", "Invalid", message),
                    (Ok(_), Some(holder)) if *holder != key => Finding::no(
                        "Accepted",
                        "Conflicted",
                        format!("the older PackratPolicy {} has the same target", holder.name),
                    ),
                    (Ok(layer), _) => {
                        holders.insert(target.clone(), key);
                        policies.in_force.insert(target.clone(), layer);
                        Finding::yes("Accepted", "Accepted", "the settings are in force")
                    }
                });
            let ancestor = (target.reference(), accepted);
            if !ancestors.contains(&ancestor) {
                ancestors.push(ancestor);
            }
        }
        if !ancestors.is_empty() || names(&policy.status, controller) {
            policies.ancestors.insert(key.clone(), ancestors);
        }
    }
    policies
}

/// The operator that a target belongs to.
enum TargetOwner {
    This,
    Other,
    Missing,
    NoListener,
}

fn owner_of(target: &Target, objects: &Objects, attachments: &Attachments) -> TargetOwner {
    let gateway = match target {
        Target::Gateway(key) | Target::Listener(key, _) => key,
        Target::Route(key) => {
            let Some(route) = objects.routes.get(key) else { return TargetOwner::Missing };
            let mut references = route.spec.parent_refs.iter();
            let is_own = |reference: &ParentReference| {
                reference.is_gateway() && attachments.gateways.contains_key(&reference.gateway(key))
            };
            return if references.any(is_own) { TargetOwner::This } else { TargetOwner::Other };
        }
    };
    match (attachments.gateways.get(gateway), target) {
        (None, _) if objects.gateways.contains_key(gateway) => TargetOwner::Other,
        (None, _) => TargetOwner::Missing,
        (Some(state), Target::Listener(_, name))
            if !state.listeners.iter().any(|listener| listener.name == *name) =>
        {
            TargetOwner::NoListener
        }
        (Some(_), _) => TargetOwner::This,
    }
}

fn layer(policy: &PolicyModel) -> Result<Layer, String> {
    let part = |name: &str, part: Result<Overrides, String>| {
        part.map_err(|error| format!("spec.{name}.{error}"))
    };
    Ok(Layer {
        defaults: part("defaults", policy.spec.defaults.overrides())?,
        overrides: part("overrides", policy.spec.overrides.overrides())?,
    })
}
