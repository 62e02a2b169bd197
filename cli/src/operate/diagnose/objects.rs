//! The part of a bundle that comes from the API server: objects, events, logs. Secrets are not
//! asked for, not even their names.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, LogParams};
use kube::{Api, ResourceExt as _};
use packrat_operator::names::ANNOTATION_PREFIX;
use packrat_operator::names::GATEWAY_LABEL;
use packrat_operator::names::{CONTAINER_NAME, SIDECAR_LABEL};
use serde_json::{Value, json};

use super::Bundle;
use super::redact::redacted;
use crate::operate::check::Operator;
use crate::operate::cluster::Cluster;

/// Lines of a log that are taken.
const LOG_LINES: i64 = 5000;

/// Group, version, kind and plural; which objects of it.
type Kind = ([&'static str; 4], Which);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    /// Objects that the operator has made.
    OfGateways,
    /// Objects of the chart.
    OfChart,
    /// Objects with an annotation of ours.
    Annotated,
    /// Objects of the namespaces that have something of ours.
    OurNamespaces,
}

/// Kinds of objects in the bundle.
const BUNDLE_KINDS: [Kind; 17] = [
    (["packrat.dev", "v1alpha1", "EdgeGateway", "edgegateways"], Which::All),
    (["", "v1", "Pod", "pods"], Which::OfGateways),
    (["apps", "v1", "Deployment", "deployments"], Which::OfGateways),
    (["apps", "v1", "DaemonSet", "daemonsets"], Which::OfGateways),
    (["", "v1", "Service", "services"], Which::OfGateways),
    (["", "v1", "ConfigMap", "configmaps"], Which::OfGateways),
    (["networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"], Which::OfGateways),
    (["policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"], Which::OfGateways),
    (
        ["autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"],
        Which::OfGateways,
    ),
    (["", "v1", "Service", "services"], Which::Annotated),
    (["", "v1", "Namespace", "namespaces"], Which::Annotated),
    (["apps", "v1", "Deployment", "deployments"], Which::OfChart),
    (["", "v1", "Pod", "pods"], Which::OfChart),
    (
        [
            "admissionregistration.k8s.io",
            "v1",
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
        ],
        Which::OfChart,
    ),
    (["rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles"], Which::OfChart),
    (["coordination.k8s.io", "v1", "Lease", "leases"], Which::OurNamespaces),
    (["events.k8s.io", "v1", "Event", "events"], Which::OurNamespaces),
];

/// Labels of the operator's Pods and of the chart's other objects for it.
const OF_CHART: &str = "app.kubernetes.io/component=operator";

/// Puts everything into `bundle`.
pub(super) fn collect(bundle: &mut Bundle, cluster: &Cluster) {
    let mut namespaces: BTreeSet<String> = Operator::find(cluster)
        .unwrap_or_default()
        .into_iter()
        .map(|operator| operator.namespace)
        .collect();
    namespaces.extend(
        cluster.edge_gateways().unwrap_or_default().iter().filter_map(kube::ResourceExt::namespace),
    );
    for ([group, version, kind, plural], which) in BUNDLE_KINDS {
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        let parameters = match which {
            Which::OfGateways => ListParams::default().labels(GATEWAY_LABEL),
            Which::OfChart => ListParams::default().labels(OF_CHART),
            _ => ListParams::default(),
        };
        let name = match which {
            Which::All | Which::OurNamespaces => plural.to_owned(),
            Which::OfGateways => format!("gateways-{plural}"),
            Which::OfChart => format!("operator-{plural}"),
            Which::Annotated => format!("annotated-{plural}"),
        };
        let apis = if which == Which::OurNamespaces {
            namespaces
                .iter()
                .map(|namespace| {
                    Api::namespaced_with(cluster.client().clone(), namespace, &resource)
                })
                .collect()
        } else {
            vec![Api::<DynamicObject>::all_with(cluster.client().clone(), &resource)]
        };
        let mut objects = Vec::new();
        for api in apis {
            match cluster.ask(&format!("listing {plural}"), api.list(&parameters)) {
                Ok(found) => objects.extend(found.items),
                Err(error) => {
                    bundle.missing.push(json!({ "part": name, "why": error.to_string() }))
                }
            }
        }
        if which == Which::Annotated {
            objects.retain(|object| {
                object.annotations().keys().any(|key| key.starts_with(ANNOTATION_PREFIX))
            });
        }
        let values =
            objects.iter().map(|object| redacted(serde_json::to_value(object).unwrap_or_default()));
        bundle.add(&format!("cluster/{name}.json"), &Value::Array(values.collect()));
    }
    logs(bundle, cluster);
}

fn logs(bundle: &mut Bundle, cluster: &Cluster) {
    let all = Api::<Pod>::all(cluster.client().clone());
    for labels in [GATEWAY_LABEL, SIDECAR_LABEL, OF_CHART] {
        let pods = match cluster.list(&all, labels) {
            Ok(pods) => pods,
            Err(error) => {
                bundle
                    .missing
                    .push(json!({ "part": format!("logs of {labels}"), "why": error.to_string() }));
                continue;
            }
        };
        for pod in pods {
            let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
            let api = cluster.api_in::<Pod>(&namespace);
            // A sidecar is an init container that keeps running; the containers beside it are not
            // ours to read.
            let containers = pod.status.iter().flat_map(|status| {
                let all = status
                    .container_statuses
                    .iter()
                    .chain(&status.init_container_statuses)
                    .flatten();
                all.filter(|container| labels != SIDECAR_LABEL || container.name == CONTAINER_NAME)
            });
            for container in containers {
                // A container's words before its restart explain most.
                for previous in [false, true] {
                    if previous && container.restart_count == 0 {
                        continue;
                    }
                    let parameters = LogParams {
                        container: Some(container.name.clone()),
                        previous,
                        tail_lines: Some(LOG_LINES),
                        ..LogParams::default()
                    };
                    let which = if previous { "-previous" } else { "" };
                    let part = format!("logs/{namespace}/{name}-{}{which}.log", container.name);
                    let text = cluster.ask("reading a log", api.logs(&name, &parameters));
                    // A Pod without output has no file.
                    if text.as_ref().is_ok_and(String::is_empty) {
                        continue;
                    }
                    bundle.take(part, text);
                }
            }
        }
    }
}
