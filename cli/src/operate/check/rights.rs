//! Who may do what: asked of the API server, for this user and for the operator.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;

use super::operator::Operator;
use super::{Check, Verdict};
use crate::operate::cluster::Cluster;
use crate::operate::error::OperateError;

const GROUP: &str = "rights";

/// A verb on a resource of a group; a subresource after a slash.
type Right = (&'static str, &'static str, &'static str);

/// What the commands need of who uses them.
const OF_THIS_USER: [Right; 3] =
    [("list", "packrat.dev", "edgegateways"), ("list", "", "pods"), ("create", "", "pods/portforward")];

/// What `helm install` needs.
const TO_INSTALL: [Right; 10] = [
    ("create", "", "namespaces"),
    ("create", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("create", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("create", "rbac.authorization.k8s.io", "roles"),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("create", "apps", "deployments"),
    ("create", "", "services"),
    ("create", "", "serviceaccounts"),
    ("create", "networking.k8s.io", "networkpolicies"),
];

/// What the operator cannot do without; a test holds it against the chart's rules.
pub(super) const OF_OPERATOR: [Right; 14] = [
    ("watch", "", "services"),
    ("patch", "", "services/status"),
    ("watch", "", "namespaces"),
    ("watch", "", "pods"),
    ("patch", "", "configmaps"),
    ("patch", "", "serviceaccounts"),
    ("get", "", "secrets"),
    ("patch", "", "secrets"),
    ("watch", "discovery.k8s.io", "endpointslices"),
    ("patch", "apps", "deployments"),
    ("patch", "apps", "daemonsets"),
    ("patch", "policy", "poddisruptionbudgets"),
    ("watch", "packrat.dev", "edgegateways"),
    ("patch", "packrat.dev", "edgegateways/status"),
];

fn attributes((verb, group, resource): Right, namespace: Option<&str>) -> ResourceAttributes {
    let (resource, subresource) =
        resource.split_once('/').map_or((resource, None), |(resource, sub)| (resource, Some(sub)));
    ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: subresource.map(str::to_owned),
        namespace: namespace.map(str::to_owned),
        ..ResourceAttributes::default()
    }
}

/// What this user needs and may not do.
fn missing(cluster: &Cluster, rights: &[Right]) -> Result<Vec<String>, OperateError> {
    let api = Api::<SelfSubjectAccessReview>::all(cluster.client().clone());
    let mut missing = Vec::new();
    for right in rights {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes(*right, cluster.namespace())),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let answer =
            cluster.ask("asking for this user's rights", api.create(&PostParams::default(), &review))?;
        if !answer.status.is_some_and(|status| status.allowed) {
            missing.push(told(*right));
        }
    }
    Ok(missing)
}

fn told((verb, group, resource): Right) -> String {
    if group.is_empty() { format!("{verb} {resource}") } else { format!("{verb} {resource}.{group}") }
}

fn check(
    name: &str,
    missing: Result<Vec<String>, OperateError>,
    otherwise: Verdict,
    hint: &str,
) -> Vec<Check> {
    let missing = match missing {
        Ok(missing) => missing,
        Err(error) => {
            let hint = "who may create access reviews can ask";
            return vec![Check::of(GROUP, name, false, Verdict::Warning, error.to_string(), hint)];
        }
    };
    vec![Check::of(GROUP, name, missing.is_empty(), otherwise, format!("not: {}", missing.join(", ")), hint)]
}

pub(super) fn of_this_user(cluster: &Cluster) -> Vec<Check> {
    let hint = "what follows can only be found out by somebody who may; ask for these rights";
    check("you may ask the gateways", missing(cluster, &OF_THIS_USER), Verdict::Warning, hint)
}

pub(super) fn to_install(cluster: &Cluster) -> Vec<Check> {
    let hint = "the chart makes objects of the whole cluster: install it as an administrator";
    check("you may install the chart", missing(cluster, &TO_INSTALL), Verdict::Failed, hint)
}

pub(super) fn of_operator(cluster: &Cluster, operator: &Operator) -> Vec<Check> {
    let api = Api::<SubjectAccessReview>::all(cluster.client().clone());
    let user = format!("system:serviceaccount:{}:{}", operator.namespace, operator.account);
    let mut missing = Vec::new();
    let mut problem = None;
    for right in OF_OPERATOR {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.clone()),
                resource_attributes: Some(attributes(right, None)),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        match cluster.ask("asking for the operator's rights", api.create(&PostParams::default(), &review)) {
            Ok(answer) if answer.status.as_ref().is_some_and(|status| status.allowed) => {}
            Ok(_) => missing.push(told(right)),
            Err(error) => {
                problem = Some(error);
                break;
            }
        }
    }
    let hint = "its ClusterRole or the binding was changed or is missing: upgrade the Helm release";
    let missing = problem.map_or(Ok(missing), Err);
    let checks = check("the operator may do its work", missing, Verdict::Failed, hint);
    checks
        .into_iter()
        .map(|check| check.see("check-rights"))
        .map(|check| Check { group: "operator", ..check })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn the_chart_gives_the_operator_what_is_asked_for_here() {
        let render = include_str!("../../../../charts/renders/default.yaml");
        let documents: Vec<Value> = serde_saphyr::from_multiple(render).unwrap();
        let role = documents.iter().find(|document| document["kind"] == "ClusterRole").unwrap();
        for (verb, group, resource) in OF_OPERATOR {
            let has = |rule: &Value, key: &str, wanted: &str| {
                rule[key].as_array().unwrap().iter().any(|value| value == wanted)
            };
            let given = role["rules"].as_array().unwrap().iter().any(|rule| {
                has(rule, "verbs", verb) && has(rule, "apiGroups", group) && has(rule, "resources", resource)
            });
            assert!(given, "{verb} {resource} in {group:?}");
        }
    }
}
