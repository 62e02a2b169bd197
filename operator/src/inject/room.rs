//! Limits of a namespace, within which the API server admits the sidecar.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use serde_json::Value;

use super::resources::{Amount, RESOURCE_NAMES, SidecarResources};

/// The LimitRanges and ResourceQuotas of a namespace.
#[derive(Debug, Clone, Default)]
pub struct Room {
    /// LimitRanges.
    pub ranges: Vec<LimitRange>,
    /// ResourceQuotas.
    pub quotas: Vec<ResourceQuota>,
}

/// Amounts by resource, as the API has them.
type Amounts = Option<BTreeMap<String, Quantity>>;

/// The amount of a resource; one that cannot be read counts as missing.
fn amount(amounts: &Amounts, name: &str) -> Option<Amount> {
    amounts.as_ref()?.get(name)?.0.parse().ok()
}

/// Limit of the sidecar where it needs one and has none.
fn usual_limit(name: &str) -> Amount {
    match name {
        "cpu" => Amount(500),
        "memory" => Amount::mebibytes(256),
        _ => Amount::mebibytes(64),
    }
}

/// Request and limit of the sidecar, for one resource.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    request: Option<Amount>,
    limit: Option<Amount>,
}

impl Room {
    /// The resources with which the API server admits the sidecar of a Pod (`spec`: without it).
    /// The Pod's quality of service stays.
    ///
    /// # Errors
    /// The limit for which the Pod with the sidecar would be refused.
    pub(super) fn fit(
        &self,
        spec: &Value,
        wanted: &SidecarResources,
    ) -> Result<SidecarResources, String> {
        let others = Others::of(spec);
        let mut fitting = wanted.clone();
        for name in RESOURCE_NAMES {
            let share = Share {
                request: wanted.requests.get(name).copied(),
                limit: wanted.limits.get(name).copied(),
            };
            let share = self.share(name, share, &others)?;
            fitting.requests.extend(share.request.map(|amount| (name.to_owned(), amount)));
            fitting.limits.extend(share.limit.map(|amount| (name.to_owned(), amount)));
        }
        for name in RESOURCE_NAMES {
            let request = others.total(name, &fitting, |one| &one.requests);
            let limit = others.total(name, &fitting, |one| &one.limits);
            self.check_pod(name, request, limit)?;
        }
        Ok(fitting)
    }

    fn items(&self, type_: &'static str) -> impl Iterator<Item = (String, &LimitRangeItem)> {
        self.ranges.iter().flat_map(move |range| {
            let items = range.spec.iter().flat_map(|spec| &spec.limits);
            items.filter(move |item| item.type_ == type_).map(|item| (range.name_any(), item))
        })
    }

    /// Quotas that count the Pod. Those of a scope are left out, except for Pods that are not
    /// BestEffort or do not end: the sidecar makes the Pod the first, and nearly all are the second.
    fn quotas(&self) -> impl Iterator<Item = (&ResourceQuota, &BTreeMap<String, Quantity>)> {
        self.quotas.iter().filter_map(|quota| {
            let spec = quota.spec.as_ref()?;
            let counted = ["NotBestEffort", "NotTerminating"];
            let scopes = spec.scopes.iter().flatten();
            let counts = scopes.into_iter().all(|scope| counted.contains(&scope.as_str()));
            Some((quota, spec.hard.as_ref()?)).filter(|_| counts && spec.scope_selector.is_none())
        })
    }

    fn share(&self, name: &str, mut share: Share, others: &Others) -> Result<Share, String> {
        for (_, item) in self.items("Container") {
            share.limit = share.limit.or_else(|| amount(&item.default, name));
            share.request = share.request.or_else(|| amount(&item.default_request, name));
        }
        let is_hard = |key: &str| self.quotas().any(|(_, hard)| hard.contains_key(key));
        let is_ranged = |of: fn(&LimitRangeItem) -> &Amounts| {
            self.items("Container").any(|(_, item)| amount(of(item), name).is_some())
        };
        let needs_limit = is_hard(&format!("limits.{name}"))
            || is_ranged(|item| &item.max)
            || is_ranged(|item| &item.max_limit_request_ratio)
            || others.all_have_limit(name);
        let needs_request =
            is_hard(&format!("requests.{name}")) || is_hard(name) || is_ranged(|item| &item.min);
        if needs_limit {
            share.limit.get_or_insert(usual_limit(name));
        }
        if needs_request {
            share.request.get_or_insert(share.limit.unwrap_or(usual_limit(name)));
        }
        if share.request.is_none() && share.limit.is_none() {
            return Ok(share);
        }
        let is_guaranteed = others.is_guaranteed();
        let mut request = share.request.or(share.limit).unwrap_or(usual_limit(name));
        if let Some(limit) = share.limit {
            request = if is_guaranteed { limit } else { request.min(limit) };
        }
        share.request = Some(request);
        for (range, item) in self.items("Container") {
            share = in_range(name, share, (&range, item))?;
        }
        if is_guaranteed {
            share.request = share.limit.or(share.request);
        }
        Ok(share)
    }

    /// Checks the sums of a Pod with the sidecar.
    fn check_pod(&self, name: &str, request: Amount, limit: Amount) -> Result<(), String> {
        for (range, item) in self.items("Pod") {
            if let Some(most) = amount(&item.max, name).filter(|most| limit > *most) {
                return Err(format!(
                    "LimitRange {range} allows a Pod {name} of {most}, and with the sidecar it has {limit}"
                ));
            }
            let ratio = amount(&item.max_limit_request_ratio, name);
            if ratio.is_some_and(|ratio| {
                limit.0.saturating_mul(1000) > request.0.saturating_mul(ratio.0)
            }) {
                return Err(format!(
                    "LimitRange {range} allows a Pod no limit so far above the requests of {name}"
                ));
            }
        }
        let keys = [
            (format!("requests.{name}"), request),
            (name.to_owned(), request),
            (format!("limits.{name}"), limit),
        ];
        for (quota, hard) in self.quotas() {
            let used = quota.status.as_ref().map_or(&None, |status| &status.used);
            for (key, needed) in &keys {
                let Some(hard) = hard.get(key).and_then(|hard| hard.0.parse::<Amount>().ok())
                else {
                    continue;
                };
                let left = Amount(hard.0.saturating_sub(amount(used, key).unwrap_or(Amount(0)).0));
                if *needed > left {
                    return Err(format!(
                        "ResourceQuota {} has {left} of {key} left, and the Pod with the sidecar takes {needed}",
                        quota.name_any()
                    ));
                }
            }
        }
        Ok(())
    }
}

/// A share within a LimitRange of containers.
fn in_range(
    name: &str,
    share: Share,
    (range, item): (&str, &LimitRangeItem),
) -> Result<Share, String> {
    let Share { request: Some(mut request), mut limit } = share else { return Ok(share) };
    if let Some(least) = amount(&item.min, name) {
        request = request.max(least);
        limit = limit.map(|limit| limit.max(least));
    }
    if let Some(most) = amount(&item.max, name) {
        if request > most {
            return Err(format!(
                "LimitRange {range} allows a container {name} of {most}, and the sidecar needs {request}"
            ));
        }
        limit = limit.map(|limit| limit.min(most));
    }
    let ratio = amount(&item.max_limit_request_ratio, name).filter(|ratio| ratio.0 > 0);
    if let (Some(limit), Some(ratio)) = (limit, ratio) {
        request = request.max(Amount(limit.0.saturating_mul(1000).div_euclid(ratio.0)));
    }
    Ok(Share { request: Some(request), limit: limit.map(|limit| limit.max(request)) })
}

/// The containers of a Pod beside the sidecar.
struct Others {
    /// Containers that run with the sidecar.
    running: Vec<SidecarResources>,
    /// Containers that end before.
    initial: Vec<SidecarResources>,
}

impl Others {
    fn of(spec: &Value) -> Self {
        let list = |name: &str| spec[name].as_array().into_iter().flatten();
        let stays = |container: &&Value| container["restartPolicy"] == "Always";
        let (stay, initial): (Vec<_>, Vec<_>) = list("initContainers").partition(stays);
        let running = list("containers").chain(stay);
        Self {
            running: running.map(SidecarResources::of).collect(),
            initial: initial.into_iter().map(SidecarResources::of).collect(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &SidecarResources> {
        self.running.iter().chain(&self.initial)
    }

    fn all_have_limit(&self, name: &str) -> bool {
        !self.running.is_empty() && self.all().all(|one| one.limits.contains_key(name))
    }

    /// True if the Pod is of the quality of service Guaranteed without the sidecar.
    fn is_guaranteed(&self) -> bool {
        ["cpu", "memory"].iter().all(|name| {
            let is_equal =
                |one: &SidecarResources| one.requests.get(*name) == one.limits.get(*name);
            self.all_have_limit(name) && self.all().all(is_equal)
        })
    }

    /// The amount of the Pod with the sidecar.
    fn total(
        &self,
        name: &str,
        sidecar: &SidecarResources,
        of: fn(&SidecarResources) -> &BTreeMap<String, Amount>,
    ) -> Amount {
        let amount = |one| of(one).get(name).map_or(0, |amount| amount.0);
        let running = self.running.iter().map(amount).fold(0_i128, i128::saturating_add);
        let initial = self.initial.iter().map(amount).max().unwrap_or(0);
        Amount(running.max(initial).saturating_add(amount(sidecar)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn room(ranges: Value, quotas: Value) -> Room {
        let name = |spec: &Value| json!({ "metadata": { "name": "of-team" }, "spec": spec["spec"], "status": spec["status"] });
        let read =
            |all: Value| -> Vec<Value> { all.as_array().unwrap().iter().map(name).collect() };
        Room {
            ranges: read(ranges)
                .into_iter()
                .map(|one| serde_json::from_value(one).unwrap())
                .collect(),
            quotas: read(quotas)
                .into_iter()
                .map(|one| serde_json::from_value(one).unwrap())
                .collect(),
        }
    }

    fn range(item: Value) -> Value {
        json!([{ "spec": { "limits": [item] } }])
    }

    fn pod(resources: Value) -> Value {
        json!({ "containers": [{ "name": "game", "resources": resources }] })
    }

    #[test]
    fn the_sidecar_gets_what_a_namespace_asks_for() {
        let plain = pod(json!({ "requests": { "cpu": "1", "memory": "1Gi" } }));
        let guaranteed = pod(json!({ "limits": { "cpu": "1", "memory": "1Gi" } }));
        let usual = json!({ "requests": { "cpu": "50m", "memory": "64Mi" } });
        let quota = |hard: Value, used: Value| json!([{ "spec": { "hard": hard }, "status": { "used": used } }]);
        for (what, room, pod, wanted) in [
            ("nothing", Room::default(), &plain, usual.clone()),
            (
                "quality of service",
                Room::default(),
                &guaranteed,
                json!({
                    "requests": { "cpu": "500m", "memory": "256Mi" }, "limits": { "cpu": "500m", "memory": "256Mi" },
                }),
            ),
            (
                "a quota of limits",
                room(
                    json!([]),
                    quota(json!({ "limits.memory": "2Gi" }), json!({ "limits.memory": "1Gi" })),
                ),
                &plain,
                json!({ "requests": usual["requests"], "limits": { "memory": "256Mi" } }),
            ),
            (
                "a minimum",
                room(
                    range(json!({ "type": "Container", "min": { "memory": "128Mi" } })),
                    json!([]),
                ),
                &plain,
                json!({ "requests": { "cpu": "50m", "memory": "128Mi" } }),
            ),
            (
                "a maximum",
                room(
                    range(json!({ "type": "Container", "max": { "memory": "100Mi" } })),
                    json!([]),
                ),
                &plain,
                json!({ "requests": usual["requests"], "limits": { "memory": "100Mi" } }),
            ),
            (
                "a ratio",
                room(
                    range(json!({ "type": "Container", "maxLimitRequestRatio": { "cpu": "2" } })),
                    json!([]),
                ),
                &plain,
                json!({ "requests": { "cpu": "250m", "memory": "64Mi" }, "limits": { "cpu": "500m" } }),
            ),
            (
                "another scope",
                room(
                    json!([]),
                    json!([{ "spec": { "hard": { "limits.cpu": "0" }, "scopes": ["BestEffort"] } }]),
                ),
                &plain,
                usual.clone(),
            ),
        ] {
            let found = room.fit(pod, &SidecarResources::default());
            assert_eq!(found.map(|found| found.to_value()), Ok(wanted), "{what}");
        }
    }

    #[test]
    fn a_sidecar_that_cannot_be_admitted_is_told_why() {
        let plain = pod(json!({ "requests": { "memory": "1Gi" }, "limits": { "memory": "1Gi" } }));
        for (room, message) in [
            (
                room(range(json!({ "type": "Container", "max": { "memory": "32Mi" } })), json!([])),
                "LimitRange of-team allows a container memory of 32Mi, and the sidecar needs 64Mi",
            ),
            (
                room(range(json!({ "type": "Pod", "max": { "memory": "1Gi" } })), json!([])),
                "LimitRange of-team allows a Pod memory of 1024Mi, and with the sidecar it has 1280Mi",
            ),
            (
                room(
                    json!([]),
                    json!([{ "spec": { "hard": { "requests.cpu": "1" } }, "status": { "used": { "requests.cpu": "980m" } } }]),
                ),
                "ResourceQuota of-team has 20m of requests.cpu left, and the Pod with the sidecar takes 50m",
            ),
        ] {
            assert_eq!(room.fit(&plain, &SidecarResources::default()), Err(message.to_owned()));
        }
    }
}
