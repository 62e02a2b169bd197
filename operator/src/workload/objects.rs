//! All objects of an EdgeGateway.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::names::{metadata, object_name, selector};
use super::object::{Kind, Object};
use super::platform::Platform;
use super::{bootstrap, pod};
use crate::envoy::METRICS_PORT;
use crate::index::{GatewayView, Listener};
use crate::model::GatewayModel;
use crate::object_key::ObjectKey;
use crate::resource::{
    Autoscaler, Autoscaling, EdgeGatewaySpec, EndpointsFrom, Exposure, ExposureType,
    ExternalTrafficPolicy, WorkloadKind,
};

/// Time within which one more gateway has to become ready in a roll-out that is not stuck.
const PROGRESS_SECONDS: u32 = 90;

/// Objects of an EdgeGateway, in the order in which they are applied.
pub fn objects(
    key: &ObjectKey,
    gateway: &GatewayModel,
    view: &GatewayView,
    platform: &Platform,
) -> Vec<Object> {
    let spec = &gateway.spec;
    let name = object_name(&key.name);
    let object =
        |kind: Kind, content: Value| Object::new(kind, content, metadata(&name, key, gateway));
    let on_host = spec.exposure.type_ == ExposureType::HostNetwork;
    let files: BTreeMap<&str, String> =
        bootstrap::files(key, platform, on_host, spec.workload.pod.resources.memory_limit())
            .into_iter()
            .map(|(file, content)| (file, format!("{content:#}\n")))
            .collect();
    let text = files.values().map(String::as_str).collect::<String>();
    let mut objects = vec![
        object(Kind::ServiceAccount, json!({ "automountServiceAccountToken": false })),
        object(Kind::ConfigMap, json!({ "data": files })),
    ];
    if let Some(service) = service(key, spec, view) {
        let mut service = object(Kind::Service, service);
        add_metadata(&mut service.content["metadata"], &spec.exposure);
        objects.push(service);
    }
    let template = pod::template(key, spec, platform, &text);
    let selector = json!({ "matchLabels": selector(&key.name) });
    let mut workload = json!({ "spec": { "selector": selector, "template": template } });
    match spec.workload.kind {
        WorkloadKind::Deployment => {
            workload["spec"]["strategy"] =
                json!({ "type": "RollingUpdate", "rollingUpdate": rolling(spec) });
            workload["spec"]["progressDeadlineSeconds"] = PROGRESS_SECONDS.into();
            // With an autoscaler the number is its.
            if spec.workload.autoscaling.is_none() {
                workload["spec"]["replicas"] = spec.workload.replicas.into();
            }
            objects.push(object(Kind::Deployment, workload));
            let autoscaling = spec.workload.autoscaling.as_ref();
            let own = autoscaling.filter(|found| found.by == Autoscaler::HorizontalPodAutoscaler);
            if let Some(autoscaling) = own {
                let scaler = pod_autoscaler(&name, autoscaling);
                objects.push(object(Kind::HorizontalPodAutoscaler, scaler));
            }
        }
        WorkloadKind::DaemonSet => objects.push(object(Kind::DaemonSet, workload)),
    }
    objects.push(object(
        Kind::PodDisruptionBudget,
        json!({ "spec": { "maxUnavailable": 1, "selector": selector } }),
    ));
    if !on_host {
        let policy = network_policy(&selector, spec, view, platform);
        objects.push(object(Kind::NetworkPolicy, policy));
    }
    platform.patches.apply(&mut objects);
    objects
}

/// Kinds of objects that an EdgeGateway had with another spec, and that have to go.
pub fn obsolete(objects: &[Object]) -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|kind| objects.iter().all(|object| object.kind != *kind)).collect()
}

/// Adds the annotations and labels that the Service in front of gateways has besides.
fn add_metadata(metadata: &mut Value, exposure: &Exposure) {
    metadata["annotations"] = json!(exposure.annotations);
    for (name, value) in &exposure.labels {
        if metadata["labels"][name].is_null() {
            metadata["labels"][name] = value.as_str().into();
        }
    }
}

/// The autoscaler of a Deployment.
fn pod_autoscaler(name: &str, autoscaling: &Autoscaling) -> Value {
    json!({ "spec": {
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
        "minReplicas": autoscaling.minimum_replicas,
        "maxReplicas": autoscaling.maximum_replicas,
        "metrics": autoscaling.metrics(),
        // A Pod that ends takes its sessions along: slowly.
        "behavior": { "scaleDown": { "stabilizationWindowSeconds": 600, "policies": [
            { "type": "Pods", "value": 1, "periodSeconds": 60 },
        ]}},
    }})
}

/// On the host network a new gateway needs the port of an old one.
fn rolling(spec: &EdgeGatewaySpec) -> Value {
    if spec.exposure.type_ == ExposureType::HostNetwork {
        json!({ "maxSurge": 0, "maxUnavailable": 1 })
    } else {
        json!({ "maxSurge": 1, "maxUnavailable": 0 })
    }
}

/// The port of a Service in front of gateways without routes: Kubernetes takes no Service without
/// ports. The port has no listener. Services may share an address if no two have the same port, so
/// that each EdgeGateway has another one, of the private ports of RFC 6335.
fn placeholder_port(key: &ObjectKey) -> u16 {
    const FIRST_PORT: u16 = 49_152;
    let digest = Sha256::digest(key.to_string());
    FIRST_PORT + u16::from_be_bytes([digest[0], digest[1]]) % (u16::MAX - FIRST_PORT + 1)
}

/// The Service in front of the gateways; `None` on the host network. It is there as long as the
/// EdgeGateway is, with or without routes: with it would go its address, and a cloud's load
/// balancer.
fn service(key: &ObjectKey, spec: &EdgeGatewaySpec, view: &GatewayView) -> Option<Value> {
    let exposure = &spec.exposure;
    let kind = match exposure.type_ {
        ExposureType::HostNetwork => return None,
        ExposureType::LoadBalancer => "LoadBalancer",
        ExposureType::NodePort => "NodePort",
        ExposureType::ClusterIP => "ClusterIP",
    };
    let mut ports = Vec::new();
    for (port, protocol) in ports_of(spec, view) {
        let mut entry = json!({
            "name": format!("{}-{port}", protocol.to_lowercase()), "port": port, "targetPort": port, "protocol": protocol,
        });
        if let Some(node_port) = exposure.node_ports.get(&port.to_string()) {
            entry["nodePort"] = (*node_port).into();
        }
        ports.push(entry);
    }
    if ports.is_empty() {
        let port = placeholder_port(key);
        let entry =
            json!({ "name": "no-route", "port": port, "targetPort": port, "protocol": "UDP" });
        ports.push(entry);
    }
    let mut content = json!({ "type": kind, "selector": selector(&key.name), "ports": ports });
    if exposure.type_ != ExposureType::ClusterIP {
        content["externalTrafficPolicy"] = match exposure.external_traffic_policy {
            ExternalTrafficPolicy::Local => "Local",
            ExternalTrafficPolicy::Cluster => "Cluster",
        }
        .into();
    }
    if let Some(affinity) = exposure.session_affinity {
        content["sessionAffinity"] = json!(affinity);
    }
    if let Some(policy) = exposure.ip_family_policy {
        content["ipFamilyPolicy"] = json!(policy);
    }
    if !exposure.ip_families.is_empty() {
        content["ipFamilies"] = json!(exposure.ip_families);
    }
    if let Some(class) = &exposure.load_balancer_class {
        content["loadBalancerClass"] = class.as_str().into();
    }
    if !exposure.load_balancer_source_ranges.is_empty() {
        content["loadBalancerSourceRanges"] = json!(exposure.load_balancer_source_ranges);
    }
    Some(json!({ "spec": content }))
}

/// Ports that clients use, and their protocols. A port is there as long as its Service has it, also
/// while there are no endpoints: a load balancer should not change when Pods restart.
fn ports_of(spec: &EdgeGatewaySpec, view: &GatewayView) -> Vec<(u16, &'static str)> {
    let without_route = view.ports.iter().filter(|port| !view.listeners.contains_key(port));
    let mut ports: Vec<_> = without_route.map(|&port| (port, "UDP")).collect();
    for (&port, listener) in &view.listeners {
        ports.push((port, "UDP"));
        if listener.tcp.is_some() || listener.gives_tokens(spec) {
            ports.push((port, "TCP"));
        }
    }
    ports.sort_by_key(|(port, _)| *port);
    ports
}

/// Opens only the routes and the metrics port to everyone; and the way to the servers of the
/// routes, to the operator, the collector, and names.
fn network_policy(
    selector: &Value,
    spec: &EdgeGatewaySpec,
    view: &GatewayView,
    platform: &Platform,
) -> Value {
    let mut ports: Vec<Value> = ports_of(spec, view)
        .into_iter()
        .map(|(port, protocol)| json!({ "port": port, "protocol": protocol }))
        .collect();
    ports.push(json!({ "port": METRICS_PORT, "protocol": "TCP" }));
    let mut content = json!({ "spec": {
        "podSelector": selector, "policyTypes": ["Ingress"], "ingress": [{ "ports": ports }],
    }});
    if platform.egress_policy {
        content["spec"]["policyTypes"] = json!(["Ingress", "Egress"]);
        content["spec"]["egress"] = egress(selector, spec, view, platform).into();
    }
    content
}

/// Destinations of gateways. Routes come and go by namespace and port, not by endpoint, so that the
/// policy rarely changes.
fn egress(
    selector: &Value,
    spec: &EdgeGatewaySpec,
    view: &GatewayView,
    platform: &Platform,
) -> Vec<Value> {
    let port = |port: u16, protocol: &str| json!({ "port": port, "protocol": protocol });
    let namespace = |name: &str| {
        let labels = json!({ "kubernetes.io/metadata.name": name });
        json!([{ "namespaceSelector": { "matchLabels": labels } }])
    };
    // Some clusters' name servers listen on 5353, behind a Service with 53.
    let names = ["UDP", "TCP"].map(|protocol| [53, 5353].map(|number| port(number, protocol)));
    let discovery = json!([port(platform.discovery_port, "TCP")]);
    let mut rules = vec![
        json!({ "ports": names.concat() }),
        match &platform.discovery_namespace {
            Some(name) => json!({ "to": namespace(name), "ports": discovery }),
            None => json!({ "ports": discovery }),
        },
    ];
    if let Some(collector) = spec.telemetry.otlp.as_ref().and_then(|otlp| port_of(&otlp.endpoint)) {
        rules.push(json!({ "ports": [port(collector, "TCP")] }));
    }
    // Among themselves: clients that have moved.
    let forwarded = view.listeners.iter().filter(|(_, listener)| listener.terminated.is_none());
    let forwarded: Vec<Value> = forwarded.map(|(number, _)| port(*number, "UDP")).collect();
    if !forwarded.is_empty() {
        rules.push(json!({ "to": [{ "podSelector": selector }], "ports": forwarded }));
    }
    let mut servers: BTreeMap<&str, BTreeSet<(&str, u16)>> = BTreeMap::new();
    let mut named: BTreeMap<(&str, u16), BTreeSet<IpAddr>> = BTreeMap::new();
    for listener in view.listeners.values() {
        let services = &listener.shares.services;
        let own = std::iter::once(&listener.service).filter(|_| services.is_empty());
        for service in own.chain(services) {
            let ports = servers.entry(&service.namespace).or_default();
            ports.extend(destinations(listener).map(|(protocol, to)| (protocol, to.port())));
        }
        for (protocol, endpoint) in destinations(listener) {
            if spec.routes.endpoints == EndpointsFrom::Any {
                named.entry((protocol, endpoint.port())).or_default().insert(endpoint.ip());
            }
        }
    }
    for (name, ports) in servers.into_iter().filter(|(_, ports)| !ports.is_empty()) {
        let ports: Vec<Value> =
            ports.into_iter().map(|(protocol, number)| port(number, protocol)).collect();
        rules.push(json!({ "to": namespace(name), "ports": ports }));
    }
    for ((protocol, number), addresses) in named {
        let blocks = addresses.into_iter().map(|address| {
            let length = if address.is_ipv4() { 32 } else { 128 };
            json!({ "ipBlock": { "cidr": format!("{address}/{length}") } })
        });
        let blocks: Vec<Value> = blocks.collect();
        rules.push(json!({ "to": blocks, "ports": [port(number, protocol)] }));
    }
    rules
}

/// Endpoints to which a gateway sends the traffic of a listener, by protocol.
fn destinations(listener: &Listener) -> impl Iterator<Item = (&'static str, &SocketAddr)> {
    let tcp = listener.tcp.iter().flat_map(|passed| passed.weights.keys());
    let own = if listener.terminated.is_some() { "TCP" } else { "UDP" };
    let own = listener.endpoints.iter().map(move |endpoint| (own, endpoint));
    own.chain(tcp.map(|endpoint| ("TCP", endpoint)))
}

/// The port of a collector's URL, which the schema lets in as `http://HOST[:PORT][/…]`.
fn port_of(endpoint: &str) -> Option<u16> {
    let authority = endpoint.strip_prefix("http://")?.split('/').next()?;
    match authority.rsplit_once(':') {
        Some((_, port)) if !port.contains(']') => port.parse().ok(),
        _ => Some(80),
    }
}
