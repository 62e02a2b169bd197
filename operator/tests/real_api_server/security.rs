//! The Pods' rights, and secrets that have to be replaced in time.

use base64::Engine as _;
use serde_json::{Value, json};

use super::{Cluster, gateway};

/// A Pod of a workload's template.
fn pod_of(workload: &Value, namespace: &str, name: &str) -> Value {
    let mut spec = workload["spec"]["template"]["spec"].clone();
    // A default of the API server's that a Pod of one's own may not have.
    spec.as_object_mut().unwrap().remove("priority");
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace }, "spec": spec })
}

/// Kubernetes' own admission decides.
#[test]
fn pods_off_the_host_network_run_at_the_level_restricted() {
    let namespace = "packrat-test-restricted";
    let Some((cluster, _operator)) = Cluster::with_operator(namespace) else { return };
    let enforce = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    cluster.merge("Namespace", "", namespace, &json!({ "metadata": { "labels": enforce } }));
    let plain = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "a", "image": "a" }] } } } });
    let mut number = 0;
    cluster.wait_until("the level to be in force", || {
        number += 1;
        let refused = cluster.create(&pod_of(&plain, namespace, &format!("plain-{number}")));
        refused.is_err_and(|error| error.to_string().contains("violates PodSecurity \"restricted"))
    });

    // The gateways.
    let name = "packrat-gateway-edge";
    cluster.apply(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": "edge-tls", "namespace": namespace, "labels": { "packrat.dev/for-gateways": "true" } },
        "stringData": { "tls.crt": "", "tls.key": "" },
    }));
    let tokens = json!({ "policy": "Optional", "tls": { "secretName": "edge-tls" } });
    cluster.apply(gateway(namespace, "edge", &json!({ "tokens": tokens })));
    cluster.wait_until("the gateways", || cluster.get("Deployment", namespace, name).is_some());
    let workload = cluster.get("Deployment", namespace, name).unwrap();
    cluster.create(&pod_of(&workload, namespace, "gateway")).unwrap();

    // The objects that the chart installs.
    let render = include_str!("../../../charts/renders/default.yaml");
    let documents = serde_saphyr::from_multiple::<Value>(render).unwrap();
    let operator = documents.iter().find(|document| document["kind"] == "Deployment").unwrap();
    let account = &operator["spec"]["template"]["spec"]["serviceAccountName"];
    cluster.apply(json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": account, "namespace": namespace },
    }));
    cluster.create(&pod_of(operator, namespace, "operator")).unwrap();
    let test = documents.iter().find(|document| document["kind"] == "Pod").unwrap();
    cluster.create(&pod_of(&json!({ "spec": { "template": test } }), namespace, "test")).unwrap();

    // The host network is not for every namespace: it takes one that allows it.
    let on_host =
        json!({ "exposure": { "type": "HostNetwork" }, "workload": { "kind": "DaemonSet" } });
    cluster.apply(gateway(namespace, "host", &on_host));
    let name = "packrat-gateway-host";
    cluster.wait_until("the gateways of the nodes", || {
        cluster.get("DaemonSet", namespace, name).is_some()
    });
    let workload = cluster.get("DaemonSet", namespace, name).unwrap();
    let error = cluster.create(&pod_of(&workload, namespace, "host")).unwrap_err().to_string();
    assert!(
        error.contains("violates PodSecurity") && error.contains("hostNetwork=true"),
        "{error}"
    );
    cluster.remove_namespace(namespace);
}

/// A ValidatingAdmissionPolicy that refuses what OpenShift's SecurityContextConstraints restricted-v2 refuse:
/// users and groups that are not the namespace's, host networks, further capabilities, other volumes.
fn restricted_v2(namespace: &str) -> [Value; 2] {
    let name = "packrat-test-restricted-v2";
    let within =
        |field: &str| format!("(!has({field}) || ({field} >= 1000660000 && {field} < 1000670000))");
    let containers = "(object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : []))";
    let of_each = format!(
        "{containers}.all(c, has(c.securityContext) && {user} && c.securityContext.allowPrivilegeEscalation == false \
         && 'ALL' in c.securityContext.capabilities.drop && !has(c.securityContext.capabilities.add))",
        user = within("c.securityContext.runAsUser")
    );
    let pod = "object.spec.securityContext";
    let of_pod = format!(
        "!has({pod}) || ({} && {})",
        within(&format!("{pod}.runAsUser")),
        within(&format!("{pod}.fsGroup"))
    );
    let kinds = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    let kind = kinds.map(|kind| format!("has(v.{kind})")).join(" || ");
    let volumes = format!("!has(object.spec.volumes) || object.spec.volumes.all(v, {kind})");
    let network = "!has(object.spec.hostNetwork) || !object.spec.hostNetwork".to_owned();
    let rules = [of_pod, of_each, volumes, network];
    let rules = rules.map(
        |rule| json!({ "expression": rule, "message": "unable to validate against restricted-v2" }),
    );
    let api = "admissionregistration.k8s.io/v1";
    [
        json!({
            "apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": { "name": name },
            "spec": { "failurePolicy": "Fail", "validations": rules, "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"],
            }]}},
        }),
        json!({
            "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": name },
            "spec": { "policyName": name, "validationActions": ["Deny"], "matchResources": { "namespaceSelector": {
                "matchLabels": { "kubernetes.io/metadata.name": namespace },
            }}},
        }),
    ]
}

/// The Pods of a render of the chart: the operator's and that of `helm test`.
fn pods_of_the_chart(render: &str, namespace: &str) -> Vec<Value> {
    let documents = serde_saphyr::from_multiple::<Value>(render).unwrap();
    let operator = documents.iter().find(|document| document["kind"] == "Deployment").unwrap();
    let test = documents.iter().find(|document| document["kind"] == "Pod").unwrap();
    let mut operator = pod_of(operator, namespace, "operator");
    operator["spec"]["serviceAccountName"] = "default".into();
    vec![operator, pod_of(&json!({ "spec": { "template": test } }), namespace, "test")]
}

#[test]
fn the_pods_run_where_the_platform_chooses_their_user() {
    let namespace = "packrat-test-openshift";
    let Some((cluster, operator)) = Cluster::with_operator_and(namespace, &["--gateway-user="])
    else {
        return;
    };
    let policy = restricted_v2(namespace);
    for object in &policy {
        cluster.apply(object.clone());
    }
    let by_default =
        pods_of_the_chart(include_str!("../../../charts/renders/default.yaml"), namespace);
    cluster.wait_until("the policy to be in force", || {
        by_default.iter().all(|pod| {
            let created = cluster.create(pod);
            if created.is_ok() {
                cluster.delete("Pod", namespace, pod["metadata"]["name"].as_str().unwrap());
            }
            created.is_err_and(|error| error.to_string().contains("restricted-v2"))
        })
    });
    for pod in pods_of_the_chart(include_str!("../../../charts/renders/openshift.yaml"), namespace)
    {
        cluster.create(&pod).unwrap();
    }

    cluster.apply(gateway(namespace, "edge", &json!({})));
    let name = "packrat-gateway-edge";
    cluster.wait_until("the gateways", || cluster.get("Deployment", namespace, name).is_some());
    let workload = cluster.get("Deployment", namespace, name).unwrap();
    cluster.create(&pod_of(&workload, namespace, "gateway")).unwrap();

    // A Pod as restricted-v2 asks for it, with a sidecar.
    let address = operator.listening(2);
    cluster.apply(super::webhook::configuration(&format!("https://{address}/inject")));
    let mut number = 0;
    cluster.wait_until("a Pod with a sidecar", || {
        number += 1;
        let mut pod = super::webhook::pod(namespace, &format!("game-{number}"), Some("sidecar"));
        pod["spec"]["containers"][0]["securityContext"] =
            json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
        cluster.create(&pod).unwrap()["spec"]["initContainers"].is_array()
    });
    cluster.delete("MutatingWebhookConfiguration", "", "packrat-injector");
    for object in policy.iter().rev() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        cluster.delete(&text(&object["kind"]), "", &text(&object["metadata"]["name"]));
    }
    cluster.remove_namespace(namespace);
}

/// The cluster's own roles, by aggregation.
#[test]
fn who_may_edit_a_namespace_may_edit_its_gateways() {
    let namespace = "packrat-test-roles";
    let Some(cluster) = Cluster::find() else { return };
    cluster.namespace(namespace, &json!({}));
    let render = include_str!("../../../charts/renders/default.yaml");
    let documents = serde_saphyr::from_multiple::<Value>(render).unwrap();
    let names = ["packrat-view", "packrat-edit"];
    let is_aggregated = |one: &&Value| {
        one["kind"] == "ClusterRole" && names.iter().any(|name| one["metadata"]["name"] == *name)
    };
    for role in documents.iter().filter(is_aggregated) {
        cluster.apply(role.clone());
    }
    for role in ["view", "edit"] {
        cluster.apply(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": role, "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("{role}er") }],
        }));
    }
    let may = |user: &str, verb: &str, resource: &str| {
        let attributes = json!({ "verb": verb, "group": "packrat.dev", "resource": resource, "namespace": namespace });
        cluster.may(&format!("{user}er"), &attributes)
    };
    cluster.wait_until("the roles to be aggregated", || {
        ["edgegateways", "gatewayparameters", "packratpolicies"]
            .iter()
            .all(|resource| may("view", "list", resource) && may("edit", "patch", resource))
    });
    assert!(!may("view", "create", "edgegateways"));
    assert!(!may("edit", "patch", "edgegateways/status"));
    for name in names {
        cluster.delete("ClusterRole", "", name);
    }
    cluster.remove_namespace(namespace);
}

/// A replica that starts finds a certificate that is soon too old, and a key of tokens that has
/// been used for long enough.
#[test]
fn certificates_and_keys_of_tokens_are_replaced_when_it_is_time() {
    let namespace = "packrat-test-replaced";
    let Some((cluster, operator)) = Cluster::with_operator(namespace) else { return };
    cluster.apply(gateway(namespace, "edge", &json!({ "tokens": { "rotationHours": 24 } })));
    let (keys, client) = ("packrat-gateway-edge-keys", "packrat-gateway-edge-client");
    for name in [keys, client] {
        cluster.wait_until(name, || cluster.get("Secret", namespace, name).is_some());
    }
    cluster.wait_until("the gateways", || {
        cluster.get("PodDisruptionBudget", namespace, "packrat-gateway-edge").is_some()
    });
    drop(operator);

    let base64 = base64::engine::general_purpose::STANDARD;
    let entry = |name: &str, entry: &str| {
        let secret = cluster.get("Secret", namespace, name).unwrap();
        String::from_utf8(base64.decode(secret["data"][entry].as_str().unwrap()).unwrap()).unwrap()
    };
    let state = |name: &str| serde_json::from_str::<Value>(&entry(name, "state.json")).unwrap();
    let write = |name: &str, state: &Value| {
        let change = json!({ "data": { "state.json": base64.encode(state.to_string()) } });
        cluster.merge("Secret", namespace, name, &change);
    };
    let (former_keys, former_certificate) = (state(keys), entry(client, "tls.crt"));
    let mut old = former_keys.clone();
    old["tokens"]["since"] = (old["tokens"]["since"].as_i64().unwrap() - 25 * 3600).into();
    write(keys, &old);
    let mut old = state(client);
    old["issued"] = (old["issued"].as_i64().unwrap() - 3 * 86_400).into();
    write(client, &old);

    let _operator = cluster.operator("later", None);
    cluster.wait_until("another certificate", || entry(client, "tls.crt") != former_certificate);
    cluster.wait_until("the next key", || state(keys)["tokens"]["next"].is_array());
    let now = state(keys);
    assert_eq!(now["static_key"], former_keys["static_key"], "clients have pinned it");
    assert_eq!(
        now["tokens"]["current"], former_keys["tokens"]["current"],
        "announced, not yet used"
    );
    assert!(entry(client, "ca.crt").contains("BEGIN CERTIFICATE"));
    cluster.remove_namespace(namespace);
}
