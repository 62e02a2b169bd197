//! Rights of this user and of the operator, as the API server states them.

mod of_operator;

use std::collections::BTreeSet;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::rbac::v1::{RoleBinding, Subject};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use packrat_operator::resource::EdgeGateway;

use self::of_operator::{CLUSTER_RIGHTS, FOR_GATEWAYS, FOR_ITSELF, Needed};
use super::operator::Operator;
use super::{Check, Verdict};
use crate::operate::cluster::Cluster;
use crate::operate::error::OperateError;

/// Name of this group of checks.
const CHECK_GROUP: &str = "rights";

/// Questions that the API server is asked at once.
const AT_ONCE: usize = 16;

/// A verb on a resource of a group; a subresource after a slash.
type Right = (&'static str, &'static str, &'static str);

/// Rights that the commands need of their user.
const OF_THIS_USER: [Right; 3] = [
    ("list", "packrat.dev", "edgegateways"),
    ("list", "", "pods"),
    ("create", "", "pods/portforward"),
];

/// Rights that `helm install` needs.
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

/// Suffix of the chart's name for the RoleBinding of the operator in a namespace of
/// `gateway.namespaces`.
const BINDING_SUFFIX: &str = "-gateways";

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

/// Rights of `rights` that this user lacks.
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
        let answer = cluster
            .ask("asking for this user's rights", api.create(&PostParams::default(), &review))?;
        if !answer.status.is_some_and(|status| status.allowed) {
            missing.push(told(*right));
        }
    }
    Ok(missing)
}

fn told((verb, group, resource): Right) -> String {
    if group.is_empty() {
        format!("{verb} {resource}")
    } else {
        format!("{verb} {resource}.{group}")
    }
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
            let hint = "an administrator can ask: this takes the right to create access reviews";
            return vec![Check::of(
                CHECK_GROUP,
                name,
                false,
                Verdict::Warning,
                error.to_string(),
                hint,
            )];
        }
    };
    vec![Check::of(
        CHECK_GROUP,
        name,
        missing.is_empty(),
        otherwise,
        format!("not: {}", missing.join(", ")),
        hint,
    )]
}

pub(super) fn of_this_user(cluster: &Cluster) -> Vec<Check> {
    let hint = "the checks below need these rights: ask for them, or run the command as a user who has them";
    check("you may ask the gateways", missing(cluster, &OF_THIS_USER), Verdict::Warning, hint)
}

pub(super) fn to_install(cluster: &Cluster) -> Vec<Check> {
    let hint = "the chart makes objects of the whole cluster: install it as an administrator";
    check("you may install the chart", missing(cluster, &TO_INSTALL), Verdict::Failed, hint)
}

pub(super) fn of_operator(cluster: &Cluster, operator: &Operator) -> Vec<Check> {
    let hint = "its roles or their bindings were changed or are missing, or an EdgeGateway is in a namespace that the chart's gateway.namespaces does not name: upgrade the Helm release with that namespace";
    check(
        "the operator may do its work",
        missing_of_operator(cluster, operator),
        Verdict::Failed,
        hint,
    )
    .into_iter()
    .map(|check| check.see("check-rights"))
    .map(|check| Check { group: "operator", ..check })
    .collect()
}

/// Rights that the operator lacks; with the namespace, if it does not need them everywhere.
fn missing_of_operator(
    cluster: &Cluster,
    operator: &Operator,
) -> Result<Vec<String>, OperateError> {
    let user = format!("system:serviceaccount:{}:{}", operator.namespace, operator.account);
    let mut missing = denied(cluster, &user, &CLUSTER_RIGHTS, None)?;
    missing.extend(denied(cluster, &user, &FOR_ITSELF, Some(&operator.namespace))?);
    let for_gateways = denied(cluster, &user, &FOR_GATEWAYS, None)?;
    if for_gateways.is_empty() {
        return Ok(missing);
    }
    let namespaces = limits(cluster, operator);
    if namespaces.is_empty() {
        missing.extend(for_gateways);
        return Ok(missing);
    }
    for namespace in &namespaces {
        missing.extend(denied(cluster, &user, &FOR_GATEWAYS, Some(namespace))?);
    }
    Ok(missing)
}

/// The rights that a user does not have, each with its purpose.
fn denied(
    cluster: &Cluster,
    user: &str,
    rights: &[Needed],
    namespace: Option<&str>,
) -> Result<Vec<String>, OperateError> {
    let api = Api::<SubjectAccessReview>::all(cluster.client().clone());
    let questions = rights.iter().flat_map(single).map(|(right, name, purpose)| {
        let attributes =
            ResourceAttributes { name: name.map(str::to_owned), ..attributes(right, namespace) };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.to_owned()),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api = &api;
        async move {
            let answer = api.create(&PostParams::default(), &review).await?;
            let is_allowed = answer.status.is_some_and(|status| status.allowed);
            Ok::<_, kube::Error>((!is_allowed).then(|| lacking(right, name, namespace, purpose)))
        }
    });
    let answers = futures::stream::iter(questions).buffered(AT_ONCE).try_collect::<Vec<_>>();
    let answers = cluster.ask("asking for the operator's rights", answers)?;
    Ok(answers.into_iter().flatten().collect())
}

/// Each right by itself: its purpose, and the name of the object if it is limited to one.
fn single(
    needed: &Needed,
) -> impl Iterator<Item = (Right, Option<&'static str>, &'static str)> + use<> {
    let Needed { verbs, group, resources, names, purpose } = *needed;
    let names: Vec<Option<&str>> =
        if names.is_empty() { vec![None] } else { names.iter().copied().map(Some).collect() };
    let of_resource = move |resource: &'static str, names: Vec<Option<&'static str>>| {
        let of_verb = move |verb: &'static str| {
            let right = (verb, group, resource);
            names.clone().into_iter().map(move |name| (right, name, purpose))
        };
        verbs.iter().copied().flat_map(of_verb)
    };
    resources.iter().copied().flat_map(move |resource| of_resource(resource, names.clone()))
}

/// A missing right, its place, and the feature that needs it.
fn lacking(right: Right, name: Option<&str>, namespace: Option<&str>, purpose: &str) -> String {
    let name = name.map(|name| format!(" {name}")).unwrap_or_default();
    let place = namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
    format!("{}{name}{place} (for {purpose})", told(right))
}

/// The namespaces that EdgeGateways may be in, when the chart names some, and the namespaces that
/// they are in. Empty when nothing limits them.
fn limits(cluster: &Cluster, operator: &Operator) -> BTreeSet<String> {
    let bindings = Api::<RoleBinding>::all(cluster.client().clone());
    // Who may not look there goes by the EdgeGateways alone.
    let bindings = cluster.list(&bindings, "").unwrap_or_default();
    let is_its = |binding: &RoleBinding| {
        let subjects = binding.subjects.iter().flatten();
        let named = |subject: &Subject| {
            subject.kind == "ServiceAccount"
                && subject.name == operator.account
                && subject.namespace.as_ref() == Some(&operator.namespace)
        };
        binding.name_any().ends_with(BINDING_SUFFIX) && subjects.into_iter().any(named)
    };
    let gateways = Api::<EdgeGateway>::all(cluster.client().clone());
    let gateways = cluster.list(&gateways, "").unwrap_or_default();
    let of_gateways = gateways.iter().filter_map(ResourceExt::namespace);
    bindings
        .iter()
        .filter(|binding| is_its(binding))
        .filter_map(ResourceExt::namespace)
        .chain(of_gateways)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn documents(render: &str) -> Vec<Value> {
        serde_saphyr::from_multiple(render).unwrap()
    }

    /// The rules of a role, each right by itself.
    fn given(role: &Value) -> BTreeSet<String> {
        let texts = |rule: &Value, field: &str| -> Vec<String> {
            let all = rule[field].as_array().into_iter().flatten();
            all.map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let mut all = BTreeSet::new();
        for rule in role["rules"].as_array().unwrap() {
            // The release chooses the name of its webhook, if it has one.
            if texts(rule, "apiGroups") == ["admissionregistration.k8s.io"] {
                continue;
            }
            let mut names = texts(rule, "resourceNames");
            if names.is_empty() {
                names.push(String::new());
            }
            for group in texts(rule, "apiGroups") {
                for resource in texts(rule, "resources") {
                    for verb in texts(rule, "verbs") {
                        let one = |name: &String| format!("{verb} {group} {resource} {name}");
                        all.extend(names.iter().map(one));
                    }
                }
            }
        }
        all
    }

    /// A right that the operator gets and this command does not ask for would be missing without a
    /// word.
    fn assert_asked(role: &Value, rights: &[Needed]) {
        let asked =
            rights.iter().flat_map(single).map(|((verb, group, resource), name, purpose)| {
                assert!(!purpose.is_empty());
                format!("{verb} {group} {resource} {}", name.unwrap_or_default())
            });
        assert_eq!(asked.collect::<BTreeSet<_>>(), given(role));
    }

    #[test]
    fn what_is_missing_is_told_with_what_it_is_for() {
        let right = ("patch", "gateway.networking.k8s.io", "udproutes/status");
        assert_eq!(
            lacking(right, None, None, "statuses of the Gateway API"),
            "patch udproutes/status.gateway.networking.k8s.io (for statuses of the Gateway API)"
        );
        assert_eq!(
            lacking(("get", "", "secrets"), Some("a"), Some("shop"), "keys"),
            "get secrets a in shop (for keys)"
        );
    }

    #[test]
    fn what_the_chart_gives_the_operator_is_asked_for_here() {
        let all = documents(include_str!("../../../../../charts/renders/namespaces.yaml"));
        let is = |document: &Value, kind: &str, name: &str| {
            document["kind"] == kind && document["metadata"]["name"] == name
        };
        let found = |kind: &str, name: &str| all.iter().find(|one| is(one, kind, name)).unwrap();
        assert_asked(found("ClusterRole", "packrat-operator"), &CLUSTER_RIGHTS);
        assert_asked(found("Role", "packrat-operator"), &FOR_ITSELF);
        let makes = format!("packrat-operator{BINDING_SUFFIX}");
        assert_asked(found("ClusterRole", &makes), &FOR_GATEWAYS);
        // The namespaces are known by the name of the bindings there.
        let bindings = all.iter().filter(|document| is(document, "RoleBinding", &makes));
        let bound: Vec<_> =
            bindings.map(|binding| binding["metadata"]["namespace"].as_str().unwrap()).collect();
        assert_eq!(bound, ["edge", "packrat-system", "shop"]);
        // Or there is one binding for all.
        let all = documents(include_str!("../../../../../charts/renders/cluster-wide.yaml"));
        let binding = all.iter().find(|one| is(one, "ClusterRoleBinding", &makes)).unwrap();
        assert_eq!(binding["roleRef"]["name"], makes);
    }
}
