//! The change of one Pod.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::envoy::{self, Forward};
use super::resources::{ResourcesError, SidecarResources};
use super::room::Room;
use crate::envoy::{
    ADMIN_SOCKET, DRAIN_PATH, ENVOY_PATH, METRICS_PORT, MODULE_DIRECTORY, RUN_DIRECTORY, User,
    run_volume,
};
use crate::names::{
    COLLECTOR_ANNOTATION, CONTAINER_NAME, INJECT_ANNOTATION, RESOURCES_ANNOTATION, SIDECAR_LABEL,
};

/// First port inside the Pod that the sidecar's listeners have.
const FIRST_PORT: u16 = 15_100;
/// The volume with the socket of Envoy's administration interface.
const SOCKET_VOLUME: &str = "packrat-run";
/// Seconds for which the sidecar still forwards after the Pod was asked to end.
const DRAIN_SECONDS: u32 = 20;

/// The settings of the sidecar.
#[derive(Debug, Clone, Default)]
pub struct Sidecar {
    /// Image of the sidecar.
    pub image: String,
    /// Pull policy of the image; `None`: Kubernetes chooses.
    pub pull_policy: Option<String>,
    /// Names of further pull secrets of the Pod.
    pub pull_secrets: Vec<String>,
    /// Its user.
    pub user: User,
    /// The address that it listens on: `0.0.0.0`, or `::` for IPv6 with IPv4.
    pub listen_address: String,
    /// Its resources, where the Pod does not choose its own.
    pub resources: SidecarResources,
    /// Limits of the Pod's namespace.
    pub room: Room,
}

/// The outcome for a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The sidecar was added; UDP ports that it has taken over.
    Injected(Vec<u16>),
    /// The sidecar is there already.
    Present,
    /// The Pod has not asked for a sidecar.
    NotWanted,
}

/// The reason for which the sidecar cannot be added, and the change to make.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InjectError {
    /// The annotation has another value.
    #[error(
        "packrat.dev/inject: \"{0}\" is not understood; write sidecar, or remove the annotation"
    )]
    Annotation(String),
    /// On the host network there is no port of the Pod's own to forward to.
    #[error(
        "a Pod on the host network cannot have the sidecar: its containers already listen on the node; remove hostNetwork and give the container's UDP port a hostPort, or use an EdgeGateway with exposure HostNetwork"
    )]
    HostNetwork,
    /// The Pod has no port to take over.
    #[error(
        "the Pod has no UDP port with a hostPort; give one of a container's ports protocol: UDP and a hostPort"
    )]
    NoHostPort,
    /// Not a Pod.
    #[error("the Pod has no spec with containers")]
    NoContainers,
    /// The annotation with the sidecar's resources.
    #[error("packrat.dev/sidecar-resources: {0}")]
    Resources(#[from] ResourcesError),
    /// The API server would refuse the Pod with the sidecar.
    #[error("{0}; write packrat.dev/sidecar-resources, or raise the limit")]
    NoRoom(String),
}

/// Adds the sidecar to a Pod or Pod template (an object with `metadata` and `spec`), when its
/// annotation asks for it. A Pod that has it already stays as it is.
///
/// # Errors
/// [`InjectError`]; then the Pod is unchanged.
pub fn inject_pod(pod: &mut Value, sidecar: &Sidecar) -> Result<Outcome, InjectError> {
    match pod["metadata"]["annotations"][INJECT_ANNOTATION].as_str() {
        Some("sidecar") => {}
        None | Some("disabled") => return Ok(Outcome::NotWanted),
        Some(other) => return Err(InjectError::Annotation(other.chars().take(64).collect())),
    }
    let name = pod["metadata"]["name"].as_str().or(pod["metadata"]["generateName"].as_str());
    let name = name.unwrap_or("sidecar").trim_end_matches('-').to_owned();
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
    let collector =
        pod["metadata"]["annotations"][COLLECTOR_ANNOTATION].as_str().map(str::to_owned);
    let own = pod["metadata"]["annotations"][RESOURCES_ANNOTATION].as_str().unwrap_or_default();
    let resources = sidecar.resources.clone().with(own.parse()?);
    // It may be refused only if there is a place for it.
    let fitting = sidecar.room.fit(&pod["spec"], &resources);
    let spec =
        pod.get_mut("spec").and_then(Value::as_object_mut).ok_or(InjectError::NoContainers)?;
    let is_sidecar = |container: &Value| container["name"] == CONTAINER_NAME;
    let lists = ["containers", "initContainers"];
    if lists.iter().any(|list| {
        spec.get(*list).and_then(Value::as_array).is_some_and(|list| list.iter().any(is_sidecar))
    }) {
        return Ok(Outcome::Present);
    }
    if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        return Err(InjectError::HostNetwork);
    }
    let containers = spec.get_mut("containers").and_then(Value::as_array_mut);
    let containers = containers.ok_or(InjectError::NoContainers)?;
    let mut taken = containers.clone();
    let forwards = take_over(&mut taken);
    if forwards.is_empty() {
        return Err(InjectError::NoHostPort);
    }
    let fitting = fitting.map_err(InjectError::NoRoom)?;
    *containers = taken;
    let mut container = container(sidecar, &name, &namespace, &forwards);
    container["resources"] = fitting.to_value();
    if let (Some(collector), Some(variables)) = (collector, container["env"].as_array_mut()) {
        variables.push(json!({ "name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": collector }));
    }
    // It begins before the containers and ends after them, so that their last datagrams are still
    // forwarded.
    match spec.entry("initContainers").or_insert_with(|| json!([])) {
        Value::Array(list) => list.insert(0, container),
        other => *other = json!([container]),
    }
    // The Pod's own containers have no part in Envoy's administration.
    let volume = json!({ "name": SOCKET_VOLUME, "emptyDir": run_volume() });
    append(spec, "volumes", volume);
    for name in &sidecar.pull_secrets {
        append(spec, "imagePullSecrets", json!({ "name": name }));
    }
    // Scrapers of metrics find the Pods by it.
    let labels = &mut pod["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    labels[SIDECAR_LABEL] = "injected".into();
    Ok(Outcome::Injected(forwards.iter().map(|forward| forward.host).collect()))
}

/// Appends to a list of a Pod, unless it has the entry.
fn append(spec: &mut Map<String, Value>, list: &str, entry: Value) {
    match spec.entry(list).or_insert_with(|| json!([])) {
        Value::Array(list) if list.contains(&entry) => {}
        Value::Array(list) => list.push(entry),
        other => *other = json!([entry]),
    }
}

/// Takes the host ports over from all UDP ports of containers.
fn take_over(containers: &mut [Value]) -> Vec<Forward> {
    let mut taken: BTreeSet<u16> = [METRICS_PORT].into();
    taken
        .extend(containers.iter().flat_map(ports).filter_map(|port| number(port, "containerPort")));
    let mut forwards = Vec::new();
    for container in containers {
        let container_name = container["name"].as_str().unwrap_or_default().to_owned();
        let first = forwards.len();
        let ports = container.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            let (Some(target), Some(host)) =
                (number(port, "containerPort"), number(port, "hostPort"))
            else {
                continue;
            };
            if port["protocol"].as_str() != Some("UDP") {
                continue;
            }
            let Some(listen) = (FIRST_PORT..=u16::MAX).find(|port| !taken.contains(port)) else {
                continue;
            };
            taken.insert(listen);
            let host_ip = port["hostIP"].as_str().map(str::to_owned);
            let container = container_name.clone();
            forwards.push(Forward { host, host_ip, listen, target, container });
            if let Some(port) = port.as_object_mut() {
                port.remove("hostPort");
                port.remove("hostIP");
            }
        }
        // The kubelet publishes the host ports of ordinary containers only, not of a restartable
        // init container. All containers of a Pod have one network, so that it does not matter
        // which of them names the port.
        let published = forwards[first..].iter().map(Forward::published);
        if let Some(ports) = container.get_mut("ports").and_then(Value::as_array_mut) {
            ports.extend(published);
        }
    }
    forwards
}

fn ports(container: &Value) -> impl Iterator<Item = &Value> {
    container["ports"].as_array().into_iter().flatten()
}

fn number(port: &Value, field: &str) -> Option<u16> {
    port[field].as_u64().and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0)
}

fn container(sidecar: &Sidecar, gateway: &str, namespace: &str, forwards: &[Forward]) -> Value {
    let ports: Vec<Value> = forwards
        .iter()
        .map(|forward| json!({ "containerPort": forward.listen, "protocol": "UDP" }))
        .chain([
            json!({ "name": "packrat-metrics", "containerPort": METRICS_PORT, "protocol": "TCP" }),
        ])
        .collect();
    let mut container = json!({
        "name": CONTAINER_NAME,
        "image": sidecar.image,
        "restartPolicy": "Always",
        "command": [ENVOY_PATH],
        "args": [
            "--config-yaml", envoy::configuration(gateway, namespace, &sidecar.listen_address, forwards).to_string(),
            "--service-node", "sidecar",
            "--service-cluster", gateway,
            "--drain-time-s", DRAIN_SECONDS.to_string(),
            "--log-level", "warning",
            "--component-log-level", "dynamic_modules:info",
        ],
        "env": [{ "name": "ENVOY_DYNAMIC_MODULES_SEARCH_PATH", "value": MODULE_DIRECTORY }],
        "volumeMounts": [{ "name": SOCKET_VOLUME, "mountPath": RUN_DIRECTORY }],
        "ports": ports,
        "startupProbe": {
            "httpGet": { "path": "/ready", "port": METRICS_PORT }, "periodSeconds": 1, "failureThreshold": 30,
        },
        "lifecycle": { "preStop": { "exec": { "command": [
            DRAIN_PATH, "--admin", ADMIN_SOCKET, "--seconds", DRAIN_SECONDS.to_string(),
        ]}}},
        "securityContext": {
            "runAsNonRoot": true,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" },
        },
    });
    if let Some(context) = container["securityContext"].as_object_mut() {
        sidecar.user.write(context, &["runAsUser"]);
    }
    if let Some(policy) = &sidecar.pull_policy {
        container["imagePullPolicy"] = policy.as_str().into();
    }
    container
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sidecar() -> Sidecar {
        Sidecar {
            image: "packrat/gateway:1".to_owned(),
            listen_address: "0.0.0.0".to_owned(),
            ..Sidecar::default()
        }
    }

    fn pod(annotation: &str) -> Value {
        json!({
            "metadata": { "name": "game", "annotations": { INJECT_ANNOTATION: annotation } },
            "spec": { "containers": [{
                "name": "server", "image": "game",
                "ports": [
                    { "containerPort": 7777, "hostPort": 7000, "protocol": "UDP" },
                    { "containerPort": 15100, "protocol": "UDP" },
                    { "containerPort": 80, "hostPort": 8080 },
                ],
            }]},
        })
    }

    #[test]
    fn the_sidecar_takes_over_the_host_ports_and_forwards() {
        let mut injected = pod("sidecar");
        assert_eq!(inject_pod(&mut injected, &sidecar()), Ok(Outcome::Injected(vec![7000])));
        assert_eq!(injected["metadata"]["labels"], json!({ SIDECAR_LABEL: "injected" }));
        let container = &injected["spec"]["initContainers"][0];
        assert_eq!(container["ports"][0], json!({ "containerPort": 15101, "protocol": "UDP" }));
        let ports = &injected["spec"]["containers"][0]["ports"];
        assert_eq!(ports[0], json!({ "containerPort": 7777, "protocol": "UDP" }));
        assert_eq!(ports[2]["hostPort"], 8080, "TCP stays where it is");
        // An ordinary container names the port: otherwise it would not be published.
        assert_eq!(
            ports[3],
            json!({ "containerPort": 15101, "hostPort": 7000, "protocol": "UDP" })
        );
        let configuration: Value =
            serde_json::from_str(container["args"][1].as_str().unwrap()).unwrap();
        let listener = &configuration["static_resources"]["listeners"][0];
        assert_eq!(listener["address"]["socket_address"]["port_value"], 15101);
        let value = &listener["listener_filters"][0]["typed_config"]["filter_config"]["value"];
        assert_eq!(value["endpoints"], json!(["127.0.0.1:7777"]));
    }

    /// The containers of a Pod share its loopback interface, but no volume that they do not mount.
    #[test]
    fn the_administration_of_the_sidecar_is_its_own() {
        let mut injected = pod("sidecar");
        injected["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]);
        inject_pod(&mut injected, &sidecar()).unwrap();
        let container = &injected["spec"]["initContainers"][0];
        let mount = json!({ "name": SOCKET_VOLUME, "mountPath": RUN_DIRECTORY });
        assert_eq!(container["volumeMounts"], json!([mount]));
        assert_eq!(
            injected["spec"]["volumes"][1],
            json!({ "name": SOCKET_VOLUME, "emptyDir": run_volume() })
        );
        let configuration: Value =
            serde_json::from_str(container["args"][1].as_str().unwrap()).unwrap();
        assert_eq!(configuration["admin"]["address"]["pipe"]["path"], ADMIN_SOCKET);
        assert_eq!(injected["spec"]["containers"][0].get("volumeMounts"), None);
    }

    #[test]
    fn a_pod_that_asks_for_a_sidecar_and_has_none_is_told() {
        use crate::inject::missing_sidecar;
        use k8s_openapi::api::core::v1::Pod;
        let said = |pod: &Value| {
            let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
            missing_sidecar(&pod).map(|problem| problem.message)
        };
        let mut asked = pod("sidecar");
        assert!(said(&asked).unwrap().starts_with("the Pod has no sidecar although"), "not seen");
        // A label is no proof: anybody can write it.
        asked["metadata"]["labels"][SIDECAR_LABEL] = "injected".into();
        assert!(said(&asked).is_some());
        inject_pod(&mut asked, &sidecar()).unwrap();
        assert_eq!(said(&asked), None);
        let mut on_host = pod("sidecar");
        on_host["spec"]["hostNetwork"] = true.into();
        assert!(said(&on_host).unwrap().contains("on the host network"));
        assert_eq!(said(&pod("disabled")), None);
        let mut ends = pod("sidecar");
        ends["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(said(&ends), None);
    }

    #[test]
    fn a_sidecar_for_both_families_listens_on_both() {
        let mut injected = pod("sidecar");
        let sidecar = Sidecar { listen_address: "::".to_owned(), ..sidecar() };
        inject_pod(&mut injected, &sidecar).unwrap();
        let arguments = &injected["spec"]["initContainers"][0]["args"];
        let configuration: Value = serde_json::from_str(arguments[1].as_str().unwrap()).unwrap();
        for listener in configuration["static_resources"]["listeners"].as_array().unwrap() {
            let address = &listener["address"]["socket_address"];
            assert_eq!(
                (&address["address"], &address["ipv4_compat"]),
                (&json!("::"), &json!(true))
            );
        }
    }

    #[test]
    fn the_sidecar_is_told_of_a_collector() {
        let variables = |annotated: bool| {
            let mut injected = pod("sidecar");
            if annotated {
                injected["metadata"]["annotations"][COLLECTOR_ANNOTATION] =
                    "http://collector.telemetry:4318".into();
            }
            inject_pod(&mut injected, &sidecar()).unwrap();
            injected["spec"]["initContainers"][0]["env"].clone()
        };
        assert_eq!(variables(false).as_array().unwrap().len(), 1);
        let told = json!({ "name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector.telemetry:4318" });
        assert_eq!(variables(true)[1], told);
    }

    #[test]
    fn a_second_time_changes_nothing() {
        let mut injected = pod("sidecar");
        inject_pod(&mut injected, &sidecar()).unwrap();
        let once = injected.clone();
        assert_eq!(inject_pod(&mut injected, &sidecar()), Ok(Outcome::Present));
        assert_eq!(injected, once);
    }

    /// A Pod that cannot be injected is left as it was, with an exact message.
    #[test]
    fn what_cannot_be_injected_stays_as_it_is() {
        let mut on_host = pod("sidecar");
        on_host["spec"]["hostNetwork"] = true.into();
        let mut without = pod("sidecar");
        without["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP".into();
        let mut empty = pod("sidecar");
        empty["spec"] = Value::Null;
        for (mut pod, message) in [
            (
                pod("yes"),
                "packrat.dev/inject: \"yes\" is not understood; write sidecar, or remove the annotation",
            ),
            (
                on_host,
                "a Pod on the host network cannot have the sidecar: its containers already listen on the node; remove hostNetwork and give the container's UDP port a hostPort, or use an EdgeGateway with exposure HostNetwork",
            ),
            (
                without,
                "the Pod has no UDP port with a hostPort; give one of a container's ports protocol: UDP and a hostPort",
            ),
            (empty, "the Pod has no spec with containers"),
        ] {
            let before = pod.clone();
            assert_eq!(inject_pod(&mut pod, &sidecar()).unwrap_err().to_string(), message);
            assert_eq!(pod, before);
        }
        let mut nobody = json!({ "metadata": {}, "spec": { "containers": [] } });
        assert_eq!(inject_pod(&mut nobody, &sidecar()), Ok(Outcome::NotWanted));
    }
}
