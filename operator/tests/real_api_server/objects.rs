//! The objects of an EdgeGateway, its conditions, and its removal.

use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{Cluster, HOME, gateway, service};

const OBJECTS: [&str; 6] = [
    "ServiceAccount",
    "ConfigMap",
    "Service",
    "Deployment",
    "PodDisruptionBudget",
    "NetworkPolicy",
];

#[test]
fn an_edge_gateway_from_its_creation_to_its_end() {
    let Some(cluster) = Cluster::find() else { return };
    let namespace = "packrat-test-objects";
    cluster.namespace(namespace, &json!({}));
    let replicas = ["first", "second"].map(|name| (name, cluster.operator(name, None)));
    cluster.wait_until("a replica to be elected", || {
        replicas.iter().any(|(_, replica)| replica.is_elected())
    });
    cluster.apply(gateway(namespace, "edge", &json!({ "exposure": { "type": "NodePort" } })));
    let wanted = json!({ "packrat.dev/assist": "enabled", "packrat.dev/gateway": "edge" });
    for object in service(namespace, "web", 443, &wanted, &["192.0.2.1".to_owned()]) {
        cluster.apply(object);
    }

    // Everything is made, with the rules that the operator has, and belongs to the EdgeGateway.
    let name = "packrat-gateway-edge";
    for kind in OBJECTS {
        cluster.wait_until(kind, || cluster.get(kind, namespace, name).is_some());
        let object = cluster.get(kind, namespace, name).unwrap();
        assert_eq!(object["metadata"]["ownerReferences"][0]["kind"], "EdgeGateway", "{kind}");
        assert_eq!(object["metadata"]["labels"]["packrat.dev/edge-gateway"], "edge", "{kind}");
    }
    for name in ["packrat-gateway-edge-keys", "packrat-gateway-edge-client"] {
        cluster.wait_until(name, || cluster.get("Secret", namespace, name).is_some());
    }
    cluster.wait_until("the port", || {
        cluster.get("Service", namespace, name).unwrap()["spec"]["ports"][0]["port"] == 443
    });
    let pod = &cluster.get("Deployment", namespace, name).unwrap()["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true);

    // The conditions come after a while, in any order.
    let condition = |type_| cluster.condition("EdgeGateway", namespace, "edge", type_);
    // The Service may be seen, and reported, before its endpoints.
    let listeners = json!([
        { "port": 443, "service": format!("{namespace}/web"), "servicePort": 443, "servicePortName": "quic", "endpoints": 1 },
    ]);
    cluster.wait_until("the route with its endpoint", || {
        let mut found = cluster.get("EdgeGateway", namespace, "edge").unwrap();
        // Without a status yet, there is no listener.
        let listener = found.pointer_mut("/status/listeners/0").and_then(Value::as_object_mut);
        let Some(node_port) = listener.and_then(|it| it.remove("nodePort")) else { return false };
        found["status"]["listeners"] == listeners
            && node_port
                == cluster.get("Service", namespace, name).unwrap()["spec"]["ports"][0]["nodePort"]
    });
    let told = |status: &str, reason: &str, message: &str| {
        Some((status.to_owned(), reason.to_owned(), message.to_owned()))
    };
    cluster.wait_until("the conditions", || {
        condition("Accepted") == told("True", "Accepted", "the gateways are set up")
            && condition("Programmed").is_some_and(|(_, reason, message)| {
                reason == "NotConnected" && message.starts_with("no gateway is ready")
            })
            && condition("Ready").is_some_and(|(_, reason, message)| {
                // The node for them is missing.
                reason == "NoReadyGateway" && message.contains("none of 2 wanted gateways is ready")
            })
            && condition("RolledOut").is_some_and(|(_, reason, _)| reason == "RollingOut")
    });
    cluster.wait_until("the rest of the status", || {
        let found = cluster.get("EdgeGateway", namespace, "edge").unwrap();
        found["status"]["attachedRoutes"] == 1
            && found["status"]["observedGeneration"] == found["metadata"]["generation"]
    });
    let service_condition =
        || cluster.condition("Service", namespace, "web", "packrat.dev/Assisted");
    let route = format!("assisted by EdgeGateway {namespace}/edge on UDP port 443");
    cluster.wait_until("the Service to be told that no gateway is ready", || {
        service_condition().is_some_and(|(status, reason, message)| {
            status == "False" && reason == "NoReadyGateway" && message.ends_with(&route)
        })
    });
    cluster.ready_gateway(namespace, "edge", "192.0.2.9");
    cluster.wait_until("the Service's condition", || {
        service_condition() == told("True", "Assisted", &route)
    });

    // A mistake: an Event and a condition, and the others are served.
    let wrong = json!({ "packrat.dev/assist": "yes" });
    for object in service(namespace, "wrong", 444, &wrong, &[]) {
        cluster.apply(object);
    }
    let message = "packrat.dev/assist: \"yes\" is not understood; write enabled or disabled";
    cluster.wait_until("the condition of the wrong Service", || {
        cluster.condition("Service", namespace, "wrong", "packrat.dev/Assisted")
            == told("False", "InvalidAnnotation", message)
    });
    cluster.wait_until("the Event", || {
        let events = cluster
            .runtime
            .block_on(cluster.api("Event", namespace).list(&Default::default()))
            .unwrap();
        events.items.iter().any(|event| {
            event.data["note"] == message
                && event.data["reason"] == "InvalidAnnotation"
                && event.data["regarding"]["name"] == "wrong"
        })
    });
    assert_eq!(service_condition(), told("True", "Assisted", &route));

    // Another mistake in its place: another Event, with its own text.
    for text in ["yes, please", "1"] {
        let change = json!({ "metadata": { "annotations": { "packrat.dev/assist": text } } });
        cluster.merge("Service", namespace, "wrong", &change);
        let note =
            format!("packrat.dev/assist: \"{text}\" is not understood; write enabled or disabled");
        cluster.wait_until("the Event about the next mistake", || {
            let api = cluster.api("Event", namespace);
            let events = cluster.runtime.block_on(api.list(&Default::default())).unwrap();
            events.items.iter().any(|event| event.data["note"] == note)
        });
    }

    // Without a route the Service stays, and with it its address.
    let address = || {
        let service = cluster.get("Service", namespace, name).unwrap();
        (service["metadata"]["uid"].clone(), service["spec"]["clusterIP"].clone())
    };
    let port =
        || cluster.get("Service", namespace, name).unwrap()["spec"]["ports"][0]["port"].clone();
    let kept = address();
    cluster.merge(
        "EdgeGateway",
        namespace,
        "edge",
        &json!({ "spec": { "drain": { "seconds": 1 } } }),
    );
    let assist =
        |value: &str| json!({ "metadata": { "annotations": { "packrat.dev/assist": value } } });
    cluster.merge("Service", namespace, "web", &assist("disabled"));
    // A placeholder, of the private ports.
    cluster.wait_until("the last route to go", || port().as_u64().unwrap() >= 49_152);
    cluster.merge("Service", namespace, "web", &assist("enabled"));
    cluster.wait_until("the route to be back", || port() == 443);
    assert_eq!(address(), kept);
    cluster.wait_until("the Service's condition", || {
        service_condition() == told("True", "Assisted", &route)
    });

    // Packrat's fields are repaired, other managers' fields are left alone.
    cluster.merge(
        "Deployment",
        namespace,
        name,
        &json!({
            "metadata": { "annotations": { "example.org/other": "stays" } }, "spec": { "replicas": 7 },
        }),
    );
    cluster.wait_until("the drift to be repaired", || {
        cluster.get("Deployment", namespace, name).unwrap()["spec"]["replicas"] == 2
    });
    let repaired = cluster.get("Deployment", namespace, name).unwrap();
    assert_eq!(repaired["metadata"]["annotations"]["example.org/other"], "stays");
    let former = cluster.get("Service", namespace, name).unwrap()["metadata"]["uid"].clone();
    cluster.delete("Service", namespace, name);
    cluster.wait_until("the Service to be back", || {
        cluster
            .get("Service", namespace, name)
            .is_some_and(|found| found["metadata"]["uid"] != former)
    });

    // Another kind of workload replaces the former one.
    cluster.apply(gateway(
        namespace,
        "edge",
        &json!({ "exposure": { "type": "HostNetwork" }, "workload": { "kind": "DaemonSet" }, "drain": { "seconds": 1 } }),
    ));
    cluster.wait_until("the DaemonSet", || cluster.get("DaemonSet", namespace, name).is_some());
    for kind in ["Deployment", "Service", "NetworkPolicy"] {
        cluster.wait_until("the former objects to be gone", || {
            cluster.get(kind, namespace, name).is_none()
        });
    }

    // The elected replica dies, the other one takes over.
    let holder = || {
        cluster.get("Lease", HOME, "packrat-operator").unwrap()["spec"]["holderIdentity"].clone()
    };
    let mut elected = String::new();
    cluster.wait_until("one of the replicas to be elected", || {
        elected = holder().as_str().unwrap_or_default().to_owned();
        replicas.iter().any(|(name, replica)| *name == elected && replica.is_elected())
    });
    let (dies, stays): (Vec<_>, Vec<_>) =
        replicas.into_iter().partition(|(name, _)| *name == elected);
    let refused = dies.iter().any(|(_, replica)| replica.lacks_rules());
    drop(dies);
    let (name_of_other, other) = &stays[0];
    cluster.wait_until("the other replica to be elected", || {
        other.is_elected() && holder() == *name_of_other
    });
    cluster.delete("Service", namespace, "web");
    cluster.wait_until("the status of the other replica", || {
        condition("Ready").is_some()
            && cluster.get("EdgeGateway", namespace, "edge").unwrap()["status"]["listeners"]
                .is_null_or_empty()
    });

    // The EdgeGateway's objects go with it.
    let keys = cluster.get("Secret", namespace, "packrat-gateway-edge-keys").unwrap();
    assert!(keys["data"]["state.json"].is_string());
    cluster.delete("EdgeGateway", namespace, "edge");
    for (kind, name) in
        [("DaemonSet", name), ("ConfigMap", name), ("Secret", "packrat-gateway-edge-keys")]
    {
        cluster
            .wait_until("garbage to be collected", || cluster.get(kind, namespace, name).is_none());
    }
    // The operator was never refused anything.
    assert!(!refused && !other.lacks_rules(), "{}", other.log());
    cluster.remove_namespace(namespace);
}

/// The number of gateways would fall to 1, the default, for a moment, and with it the sessions of
/// all others.
#[test]
fn an_autoscaler_takes_over_the_number_of_gateways_as_it_is() {
    let namespace = "packrat-test-autoscaling";
    let Some((cluster, operator)) = Cluster::with_operator(namespace) else { return };
    let name = "packrat-gateway-edge";
    let replicas = || {
        cluster.get("Deployment", namespace, name).map(|found| found["spec"]["replicas"].clone())
    };
    cluster.apply(gateway(namespace, "edge", &json!({ "workload": { "replicas": 3 } })));
    cluster.wait_until("the gateways", || replicas() == Some(json!(3)));
    let autoscaling = json!({
        "minimumReplicas": 2, "maximumReplicas": 5,
        "targetSessions": 5000, "targetDatagramsPerSecond": 200_000,
    });
    cluster.apply(gateway(
        namespace,
        "edge",
        &json!({ "workload": { "replicas": 3, "autoscaling": autoscaling } }),
    ));
    let autoscaler = || cluster.get("HorizontalPodAutoscaler", namespace, name);
    cluster.wait_until("the autoscaler", || autoscaler().is_some());
    assert_eq!(replicas(), Some(json!(3)));
    let metrics = autoscaler().unwrap()["spec"]["metrics"].as_array().map_or(0, Vec::len);
    assert_eq!(metrics, 3);
    // To one that the operator does not make: the number stays.
    let other = json!({ "workload": { "replicas": 3, "autoscaling": { "by": "Other" } } });
    cluster.apply(gateway(namespace, "edge", &other));
    cluster.wait_until("the autoscaler to be gone", || autoscaler().is_none());
    assert_eq!(replicas(), Some(json!(3)));
    // And back.
    cluster.apply(gateway(namespace, "edge", &json!({ "workload": { "replicas": 2 } })));
    cluster.wait_until("the number that is asked for", || replicas() == Some(json!(2)));
    cluster.wait_until("the autoscaler to be gone", || autoscaler().is_none());
    assert!(!operator.lacks_rules(), "{}", operator.log());
    cluster.remove_namespace(namespace);
}

/// An operator that recreated objects under collection would keep the EdgeGateway from ever going.
#[test]
fn foreground_deletion_ends_an_edge_gateway_after_its_objects() {
    let namespace = "packrat-test-foreground";
    let Some((cluster, _operator)) = Cluster::with_operator(namespace) else { return };
    let name = "packrat-gateway-edge";
    cluster.apply(gateway(namespace, "edge", &json!({})));
    cluster.wait_until("the gateways", || cluster.get("NetworkPolicy", namespace, name).is_some());
    let api = cluster.api("EdgeGateway", namespace);
    cluster.runtime.block_on(api.delete("edge", &DeleteParams::foreground())).unwrap();
    cluster.wait_until("the end", || cluster.get("EdgeGateway", namespace, "edge").is_none());
    // The garbage collector may hear of a new object only after it has looked for the EdgeGateway's
    // objects.
    for kind in ["Deployment", "ConfigMap", "NetworkPolicy"] {
        cluster
            .wait_until("garbage to be collected", || cluster.get(kind, namespace, name).is_none());
    }
    cluster.remove_namespace(namespace);
}

/// A namespace that ends takes no new objects: that is no failure, it is reported once, and other
/// namespaces are served.
#[test]
fn a_namespace_under_deletion_gets_no_objects() {
    let (namespace, other) = ("packrat-test-ends", "packrat-test-goes-on");
    let Some((cluster, operator)) = Cluster::with_operator(namespace) else { return };
    cluster.namespace(other, &json!({}));
    let name = "packrat-gateway-edge";
    cluster.apply(gateway(namespace, "edge", &json!({})));
    cluster.wait_until("the gateways", || cluster.get("NetworkPolicy", namespace, name).is_some());
    // The EdgeGateway is not deleted before the test allows it; everything else in the namespace
    // is.
    let keep = Keep::edge_gateways_of(&cluster, namespace);
    cluster.remove_namespace(namespace);
    cluster.wait_until("the objects to be gone", || {
        cluster.get("Deployment", namespace, name).is_none()
    });
    cluster.wait_until("what is said", || {
        cluster
            .condition("EdgeGateway", namespace, "edge", "Accepted")
            .is_some_and(|(status, reason, _)| status == "False" && reason == "NamespaceEnds")
    });
    // Other namespaces are served at the same time.
    cluster.apply(gateway(other, "edge", &json!({})));
    cluster.wait_until("the other gateway", || cluster.get("NetworkPolicy", other, name).is_some());
    let log = operator.log();
    let about = |event: &str| {
        log.lines()
            .filter(|line| line.contains(event) && line.contains(&format!("{namespace}/edge")))
            .count()
    };
    assert_eq!((about("namespace_ends"), about("apply_failed")), (1, 0), "{log}");
    assert!(!operator.lacks_rules(), "{log}");
    drop(keep);
    cluster.wait_until("the end", || cluster.get("Namespace", "", namespace).is_none());
    cluster.remove_namespace(other);
}

/// A port of the node that is taken does not delay the rest.
#[test]
fn a_refused_object_does_not_delay_others_of_its_gateway() {
    let namespace = "packrat-test-node-port";
    let Some((cluster, _operator)) = Cluster::with_operator(namespace) else { return };
    // Outside of the range that the API server gives out.
    let exposure = json!({ "type": "NodePort", "nodePorts": { "443": 80 } });
    cluster.apply(gateway(namespace, "edge", &json!({ "exposure": exposure })));
    let wanted = json!({ "packrat.dev/assist": "enabled", "packrat.dev/gateway": "edge" });
    for object in service(namespace, "web", 443, &wanted, &["192.0.2.1".to_owned()]) {
        cluster.apply(object);
    }
    let name = "packrat-gateway-edge";
    cluster.wait_until("the reason", || {
        cluster
            .condition("EdgeGateway", namespace, "edge", "Accepted")
            .is_some_and(|(status, _, message)| status == "False" && message.contains("Service"))
    });
    for kind in ["Deployment", "PodDisruptionBudget", "NetworkPolicy"] {
        cluster.wait_until(kind, || cluster.get(kind, namespace, name).is_some());
    }
    cluster.remove_namespace(namespace);
}

/// The last configuration is for a start without an operator: gateways run without it.
#[test]
fn a_last_configuration_that_is_refused_keeps_back_no_object() {
    let namespace = "packrat-test-last";
    let Some((cluster, _operator)) = Cluster::with_operator(namespace) else { return };
    // Not to be changed.
    cluster.apply(json!({
        "apiVersion": "v1", "kind": "Secret", "immutable": true,
        "metadata": { "name": "packrat-gateway-edge-last", "namespace": namespace },
        "stringData": { "listeners.pb": "" },
    }));
    cluster.apply(gateway(namespace, "edge", &json!({})));
    let wanted = json!({ "packrat.dev/assist": "enabled", "packrat.dev/gateway": "edge" });
    for object in service(namespace, "web", 443, &wanted, &["192.0.2.1".to_owned()]) {
        cluster.apply(object);
    }
    cluster.wait_until("the reason", || {
        cluster
            .condition("EdgeGateway", namespace, "edge", "Accepted")
            .is_some_and(|(status, _, message)| status == "False" && message.contains("Secret"))
    });
    for kind in ["Deployment", "PodDisruptionBudget", "NetworkPolicy"] {
        cluster.wait_until(kind, || cluster.get(kind, namespace, "packrat-gateway-edge").is_some());
    }
    // Once it is gone, it is made.
    cluster.delete("Secret", namespace, "packrat-gateway-edge-last");
    cluster.wait_until("the Secret", || {
        cluster.get("Secret", namespace, "packrat-gateway-edge-last").is_some_and(|secret| {
            secret["data"]["listeners.pb"].as_str().is_some_and(|content| !content.is_empty())
        })
    });
    cluster.remove_namespace(namespace);
}

/// The operator may touch Secrets, and everything else, in the namespaces of the chart's
/// `gateway.namespaces` only.
#[test]
fn an_edge_gateway_where_the_operator_may_make_nothing_says_so() {
    let Some(cluster) = Cluster::find() else { return };
    let (allowed, forbidden) = ("packrat-test-allowed", "packrat-test-elsewhere");
    for namespace in [allowed, forbidden] {
        cluster.namespace(namespace, &json!({}));
    }
    // Its rights to make objects are bound in one namespace instead of in all.
    let makes = "packrat-operator-gateways";
    cluster.delete("ClusterRoleBinding", "", makes);
    cluster.apply(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": makes, "namespace": allowed },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": makes },
        "subjects": [{ "kind": "ServiceAccount", "name": "operator", "namespace": HOME }],
    }));
    cluster.wait_until("the rules to be in force", || {
        !cluster.operator_may("get", "secrets", forbidden)
            && cluster.operator_may("get", "secrets", allowed)
    });
    let operator = cluster.operator("only", None);
    cluster.wait_until("the election", || operator.is_elected());
    for namespace in [allowed, forbidden] {
        cluster.apply(gateway(namespace, "edge", &json!({})));
    }
    let name = "packrat-gateway-edge";
    cluster
        .wait_until("the gateways", || cluster.get("PodDisruptionBudget", allowed, name).is_some());
    let accepted = |namespace| cluster.condition("EdgeGateway", namespace, "edge", "Accepted");
    cluster.wait_until("what is said", || {
        accepted(allowed).is_some_and(|(status, ..)| status == "True")
            && accepted(forbidden).is_some_and(|(status, reason, message)| {
                status == "False"
                    && reason == "ApplyFailed"
                    && message.contains("cannot get resource \"secrets\"")
            })
    });
    assert!(cluster.get("Deployment", forbidden, name).is_none());
    for namespace in [allowed, forbidden] {
        cluster.remove_namespace(namespace);
    }
}

/// Keeps the EdgeGateways of a namespace from being deleted.
struct Keep<'a>(&'a Cluster);

impl<'a> Keep<'a> {
    const NAME: &'static str = "packrat-test-keep";

    fn edge_gateways_of(cluster: &'a Cluster, namespace: &str) -> Self {
        let matching = json!({
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "resourceRules": [{
                "apiGroups": ["packrat.dev"], "apiVersions": ["*"], "resources": ["edgegateways"],
                "operations": ["DELETE"],
            }],
        });
        cluster.apply(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": Self::NAME },
            "spec": { "matchConstraints": matching, "validations": [{ "expression": "false", "message": "kept" }] },
        }));
        cluster.apply(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": Self::NAME },
            "spec": { "policyName": Self::NAME, "validationActions": ["Deny"] },
        }));
        let keep = Self(cluster);
        let gateways = cluster.api("EdgeGateway", namespace);
        let attempt = DeleteParams { dry_run: true, ..DeleteParams::default() };
        cluster.wait_until("the policy to be in force", || {
            cluster.runtime.block_on(gateways.delete("edge", &attempt)).is_err()
        });
        keep
    }
}

impl Drop for Keep<'_> {
    fn drop(&mut self) {
        for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
            self.0.delete(kind, "", Self::NAME);
        }
    }
}

trait Empty {
    fn is_null_or_empty(&self) -> bool;
}

impl Empty for serde_json::Value {
    fn is_null_or_empty(&self) -> bool {
        self.is_null() || self.as_array().is_some_and(Vec::is_empty)
    }
}

#[test]
fn one_refused_object_costs_the_others_nothing() {
    let namespace = "packrat-test-refused";
    let Some((cluster, _operator)) = Cluster::with_operator(namespace) else { return };
    // The schema takes any affinity, the API server does not.
    let nonsense = json!({ "workload": { "pod": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [] } } } } } });
    cluster.apply(gateway(namespace, "bad", &nonsense));
    cluster.apply(gateway(namespace, "good", &json!({})));
    cluster.wait_until("the good one", || {
        cluster.get("Deployment", namespace, "packrat-gateway-good").is_some()
    });
    cluster.wait_until("the reason", || {
        let condition = cluster.condition("EdgeGateway", namespace, "bad", "Accepted");
        condition.is_some_and(|(status, reason, message)| {
            status == "False"
                && reason == "ApplyFailed"
                && message.contains("Deployment")
                && message.contains("nodeSelectorTerms")
        })
    });
    // Corrected, it works.
    cluster.apply(gateway(namespace, "bad", &json!({})));
    cluster.wait_until("the corrected one", || {
        cluster
            .condition("EdgeGateway", namespace, "bad", "Accepted")
            .is_some_and(|(status, ..)| status == "True")
    });
    cluster.remove_namespace(namespace);
}
