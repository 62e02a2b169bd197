//! The Pods of an EdgeGateway.

use std::collections::BTreeMap;

use packrat_wire::hexadecimal;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::bootstrap::node_page;
use super::names::{
    BOOTSTRAP_DIRECTORY, CLIENT_DIRECTORY, LAST_DIRECTORY, TOKEN_DIRECTORY, client_secret_name,
    labels, last_secret_name, object_name, selector,
};
use super::platform::Platform;
use crate::envoy::{
    ADMIN_SOCKET, DRAIN_PATH, ENVOY_PATH, METRICS_PORT, MODULE_DIRECTORY, RUN_DIRECTORY,
    START_PATH, run_volume,
};
use crate::object_key::ObjectKey;
use crate::resource::{EdgeGatewaySpec, ExposureType, PodSettings, WorkloadKind};

/// Time beside draining that a container has to end.
const ENDING_SECONDS: i32 = 10;
/// Template of the Pods. `bootstrap`: the text of the configuration; Pods are replaced when it
/// changes.
pub(super) fn template(
    key: &ObjectKey,
    spec: &EdgeGatewaySpec,
    platform: &Platform,
    bootstrap: &str,
) -> Value {
    let pod = &spec.workload.pod;
    let mut annotations = pod.annotations.clone();
    let digest: String = hexadecimal::encode(&Sha256::digest(bootstrap)[..8]);
    annotations.insert("packrat.dev/bootstrap".to_owned(), digest);
    annotations.insert("kubectl.kubernetes.io/default-container".to_owned(), "envoy".to_owned());
    let mut all_labels: BTreeMap<String, String> = pod.labels.clone();
    all_labels.extend(labels(&key.name));
    json!({
        "metadata": { "labels": all_labels, "annotations": annotations },
        "spec": pod_spec(key, spec, platform),
    })
}

fn pod_spec(key: &ObjectKey, spec: &EdgeGatewaySpec, platform: &Platform) -> Value {
    let on_host = spec.exposure.type_ == ExposureType::HostNetwork;
    let pod = &spec.workload.pod;
    let mut content = Map::new();
    let mut put = |name: &str, value: Value| content.insert(name.to_owned(), value);
    put("serviceAccountName", object_name(&key.name).into());
    put("automountServiceAccountToken", false.into());
    put("enableServiceLinks", false.into());
    put("terminationGracePeriodSeconds", (spec.drain.seconds + ENDING_SECONDS).into());
    put("containers", json!([container(key, spec, platform, on_host)]));
    put("volumes", volumes(key, spec).into());
    if on_host {
        put("hostNetwork", true.into());
        put("dnsPolicy", "ClusterFirstWithHostNet".into());
        put("securityContext", json!({ "seccompProfile": { "type": "RuntimeDefault" } }));
    } else {
        put("securityContext", security_context(spec, platform));
    }
    let own = spec.envoy.image_pull_secrets.iter().map(|secret| &secret.name);
    let secrets: Vec<&String> =
        if own.len() > 0 { own.collect() } else { platform.pull_secrets.iter().collect() };
    if !secrets.is_empty() {
        let secrets: Vec<Value> = secrets.iter().map(|name| json!({ "name": name })).collect();
        put("imagePullSecrets", secrets.into());
    }
    if !pod.node_selector.is_empty() {
        put("nodeSelector", json!(pod.node_selector));
    }
    if !pod.tolerations.is_empty() {
        put("tolerations", json!(pod.tolerations));
    }
    if !pod.topology_spread_constraints.is_empty() {
        put("topologySpreadConstraints", json!(pod.topology_spread_constraints));
    }
    if let Some(name) = &pod.priority_class_name {
        put("priorityClassName", name.as_str().into());
    }
    if let Some(affinity) = affinity(key, spec, pod, on_host) {
        put("affinity", affinity);
    }
    Value::Object(content)
}

/// The security context of Pods with a network of their own.
fn security_context(spec: &EdgeGatewaySpec, platform: &Platform) -> Value {
    let mut context = Map::new();
    context.insert("runAsNonRoot".to_owned(), true.into());
    platform.user.write(&mut context, &["runAsUser", "runAsGroup", "fsGroup"]);
    context.insert("seccompProfile".to_owned(), json!({ "type": "RuntimeDefault" }));
    let sysctls = json!([
        // Each session has a socket towards its server: half of the ports, which is what the kernel
        // gives otherwise, are few.
        { "name": "net.ipv4.ip_local_port_range", "value": "1024 65535" },
        // Port 443 without a capability.
        { "name": "net.ipv4.ip_unprivileged_port_start", "value": "0" },
        // The gateway speaks to servers from clients' ports if it can; these are its own.
        { "name": "net.ipv4.ip_local_reserved_ports", "value": reserved_ports(spec) },
    ]);
    context.insert("sysctls".to_owned(), sysctls);
    context.into()
}

fn volumes(key: &ObjectKey, spec: &EdgeGatewaySpec) -> Vec<Value> {
    let mut volumes = vec![
        json!({ "name": "bootstrap", "configMap": { "name": object_name(&key.name) } }),
        json!({ "name": "client", "secret": { "secretName": client_secret_name(&key.name), "defaultMode": 0o440 } }),
        json!({ "name": "run", "emptyDir": run_volume() }),
    ];
    if starts_without_operator(spec) {
        volumes.push(json!({ "name": "last", "secret": {
            "secretName": last_secret_name(&key.name), "defaultMode": 0o440, "optional": true,
        }}));
    }
    if let Some(tls) = &spec.tokens.tls {
        volumes.push(
            json!({ "name": "token", "secret": { "secretName": tls.secret_name, "defaultMode": 0o440 } }),
        );
    }
    volumes
}

/// The places of the volumes in the container.
fn mounts(spec: &EdgeGatewaySpec) -> Vec<Value> {
    let mut mounts = vec![
        json!({ "name": "bootstrap", "mountPath": BOOTSTRAP_DIRECTORY, "readOnly": true }),
        json!({ "name": "client", "mountPath": CLIENT_DIRECTORY, "readOnly": true }),
        json!({ "name": "run", "mountPath": RUN_DIRECTORY }),
    ];
    if starts_without_operator(spec) {
        mounts.push(json!({ "name": "last", "mountPath": LAST_DIRECTORY, "readOnly": true }));
    }
    if spec.tokens.tls.is_some() {
        mounts.push(json!({ "name": "token", "mountPath": TOKEN_DIRECTORY, "readOnly": true }));
    }
    mounts
}

/// Ports that no connection to a server may have as its source.
fn reserved_ports(spec: &EdgeGatewaySpec) -> String {
    let streams = &spec.multicast;
    if streams.enabled {
        format!("{},{}-{}", METRICS_PORT, streams.ports.first, streams.ports.last)
    } else {
        METRICS_PORT.to_string()
    }
}

/// Secrets whose content reaches gateways because the EdgeGateway names them.
pub fn named_secrets(spec: &EdgeGatewaySpec) -> impl Iterator<Item = &str> {
    let tokens = spec.tokens.tls.iter().map(|tls| tls.secret_name.as_str());
    let headers = spec.telemetry.otlp.iter().flat_map(|otlp| &otlp.headers_secret);
    tokens.chain(headers.map(|secret| secret.name.as_str()))
}

/// As configured; else the gateways of a Deployment prefer different nodes, and on the host network
/// they need them.
fn affinity(
    key: &ObjectKey,
    spec: &EdgeGatewaySpec,
    pod: &PodSettings,
    on_host: bool,
) -> Option<Value> {
    if let Some(affinity) = &pod.affinity {
        return Some(affinity.clone());
    }
    if spec.workload.kind == WorkloadKind::DaemonSet {
        return None;
    }
    let term = json!({
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": { "matchLabels": selector(&key.name) },
    });
    Some(if on_host {
        json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } })
    } else {
        json!({ "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
            { "weight": 100, "podAffinityTerm": term },
        ]}})
    })
}

/// True if the gateways start with the last configuration while the operator is away. An image that
/// the EdgeGateway names may be of a version without the program for that.
fn starts_without_operator(spec: &EdgeGatewaySpec) -> bool {
    spec.envoy.image.is_none()
}

/// Environment variables of the container.
fn environment(spec: &EdgeGatewaySpec, platform: &Platform) -> Vec<Value> {
    let mut all = vec![
        json!({ "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }),
        json!({ "name": "POD_IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } }),
        json!({ "name": "ENVOY_DYNAMIC_MODULES_SEARCH_PATH", "value": MODULE_DIRECTORY }),
    ];
    if starts_without_operator(spec) {
        let operator = format!("{}:{}", platform.discovery_host, platform.discovery_port);
        all.push(json!({ "name": "PACKRAT_OPERATOR", "value": operator }));
    }
    if let Some(otlp) = &spec.telemetry.otlp {
        all.push(json!({ "name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": otlp.endpoint }));
        if let Some(secret) = &otlp.headers_secret {
            // A gateway also forwards without its collector, so that a Secret that is missing keeps
            // no Pod from starting.
            let reference = json!({ "name": secret.name, "key": secret.key, "optional": true });
            all.push(
                json!({ "name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": { "secretKeyRef": reference } }),
            );
            if otlp.plain_headers {
                all.push(json!({ "name": "PACKRAT_OTLP_PLAIN_HEADERS", "value": "true" }));
            }
        }
    }
    all
}

fn container(key: &ObjectKey, spec: &EdgeGatewaySpec, platform: &Platform, on_host: bool) -> Value {
    let envoy = &spec.envoy;
    let mut arguments: Vec<String> = [
        "--config-path",
        &format!("{BOOTSTRAP_DIRECTORY}/envoy.json"),
        "--service-node",
        "$(POD_NAME)",
        "--service-cluster",
        &key.to_string(),
        "--drain-time-s",
        &spec.drain.seconds.max(1).to_string(),
        "--log-level",
        envoy.log_level.name(),
        "--component-log-level",
        "dynamic_modules:info",
    ]
    .map(str::to_owned)
    .into();
    let page = on_host.then(|| ["--config-yaml".to_owned(), node_page()]);
    let workers = envoy.workers.map(|workers| ["--concurrency".to_owned(), workers.to_string()]);
    arguments.extend(page.into_iter().chain(workers).flatten());
    let mut security = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    });
    if on_host {
        // A port below 1024 of the node needs root with this one capability.
        security["runAsUser"] = 0.into();
        security["capabilities"]["add"] = json!(["NET_BIND_SERVICE"]);
    }
    let mut container = json!({
        "name": "envoy",
        "image": envoy.image.as_deref().unwrap_or(&platform.image),
        "command": [if starts_without_operator(spec) { START_PATH } else { ENVOY_PATH }],
        "args": arguments,
        "env": environment(spec, platform),
        "ports": [{ "name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP" }],
        "readinessProbe": { "httpGet": { "path": "/ready", "port": "metrics" }, "periodSeconds": 2, "failureThreshold": 2, "timeoutSeconds": 2 },
        // Envoy has no listener before it knows its routes: one that starts while the operator is
        // away, and has no last configuration, waits for it (a day at most), and is not ended again
        // and again, ever more slowly.
        "startupProbe": { "tcpSocket": { "port": "metrics" }, "periodSeconds": 1, "failureThreshold": 86_400, "timeoutSeconds": 2 },
        // Envoy that takes its time with a new configuration is not dead.
        "livenessProbe": { "tcpSocket": { "port": "metrics" }, "periodSeconds": 10, "failureThreshold": 6, "timeoutSeconds": 2 },
        "lifecycle": { "preStop": { "exec": { "command": [
            DRAIN_PATH, "--admin", ADMIN_SOCKET, "--seconds", spec.drain.seconds.to_string(),
        ]}}},
        "securityContext": security,
        "resources": spec.workload.pod.resources,
        "volumeMounts": mounts(spec),
    });
    let of_platform = platform.pull_policy.as_ref().filter(|_| envoy.image.is_none());
    if let Some(policy) = envoy.image_pull_policy.as_ref().or(of_platform) {
        container["imagePullPolicy"] = json!(policy);
    }
    container
}
