//! EdgeGateways: the operator's conditions on them, and whether they can be reached from here.

use std::net::{SocketAddr, ToSocketAddrs};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;
use packrat_operator::names::GATEWAY_LABEL;
use packrat_operator::resource::{EdgeGateway, ExposureType, ListenerStatus};
use packrat_operator::status::StoppedRoute;

use super::gateway::of_listener;
use super::{Check, Verdict};
use crate::operate::cluster::Cluster;

/// Maximum number of ways into one EdgeGateway that are tried.
const MOST_TARGETS: usize = 16;
/// Conditions of an EdgeGateway that the operator sets, and the verdict when one is not true.
const EDGE_CONDITIONS: [(&str, &str, Verdict); 5] = [
    ("Accepted", "is accepted", Verdict::Failed),
    ("ResolvedRoutes", "has all routes that chose it", Verdict::Warning),
    ("Programmed", "has its configuration in all gateways", Verdict::Failed),
    ("Ready", "is ready", Verdict::Failed),
    ("RolledOut", "has all wanted gateways", Verdict::Warning),
];

fn name_of(gateway: &EdgeGateway) -> String {
    format!("{}/{}", gateway.namespace().unwrap_or_default(), gateway.name_any())
}

/// The conditions of an EdgeGateway.
pub(super) fn conditions(gateway: &EdgeGateway) -> Vec<Check> {
    let group = "gateways";
    let name = name_of(gateway);
    let status = gateway.status.clone().unwrap_or_default();
    let is_current = status.observed_generation.is_some()
        && status.observed_generation == gateway.metadata.generation;
    let mut checks = vec![Check::of(
        group,
        format!("{name} was seen by the operator"),
        is_current,
        Verdict::Failed,
        "its status is missing, or about an older spec",
        "is the operator running, and elected?",
    )];
    for (type_, what, verdict) in EDGE_CONDITIONS {
        let condition = status.conditions.iter().find(|condition| condition.type_ == type_);
        let holds = condition.is_some_and(|condition| condition.status == "True");
        // A gateway that no Service has chosen is not broken.
        let verdict = match condition {
            Some(condition)
                if ["NoRoutes", "ScaledToZero"].contains(&condition.reason.as_str()) =>
            {
                Verdict::Warning
            }
            _ => verdict,
        };
        let detail = condition.map_or_else(
            || format!("nothing is said about {type_}"),
            |condition| format!("{}: {}", condition.reason, condition.message),
        );
        let hint = format!("kubectl describe edgegateway -n {}", name.replace('/', " "));
        checks.push(Check::of(group, format!("{name} {what}"), holds, verdict, detail, hint));
    }
    for proxy in &status.proxies {
        if let Some(error) = &proxy.error {
            let hint = "it goes on with the configuration before; take back the last change";
            let what = format!("{name}: {} takes the newest configuration", proxy.name);
            let check = Check::of(group, what, false, Verdict::Failed, error.clone(), hint);
            checks.push(check.see("packratconfigurationrefused"));
        }
    }
    for listener in status.listeners.iter().filter(|listener| listener.stopped_gateways > 0) {
        let detail = StoppedRoute::worst(std::iter::once(listener))
            .told(status.ready_gateways.unwrap_or_default());
        let what = format!("{name}: clients of {} are assisted", listener.service);
        let hint = "packrat stat -o wide shows the comparison";
        let check = Check::of("routes", what, false, Verdict::Warning, detail, hint);
        checks.push(check.see("packratassistancestopped"));
    }
    let lacking = without_endpoints(&status.listeners);
    checks.extend(lacking.map(|listener| endpoints(&name, listener)));
    checks
}

/// The check of a listener that lacks endpoints.
fn endpoints(name: &str, listener: &ListenerStatus) -> Check {
    let hint = match listener.service.strip_suffix(".udproute") {
        Some(route) => format!("kubectl describe udproute -n {}", route.replace('/', " ")),
        None => format!(
            "kubectl get endpointslices -n {}",
            listener.service.replace('/', " -l kubernetes.io/service-name=")
        ),
    };
    let what = format!("{name}: {} has endpoints", listener.service);
    let detail = match listener.endpoints {
        0 => "no ready Pod is behind it",
        _ => "no ready Pod has its TCP port, and connections to it are closed",
    };
    Check::of("routes", what, false, Verdict::Failed, detail, hint)
}

/// Listeners that have nothing to forward to, or no server for the TCP connections that they take.
/// One that is about to go need not have: after a restart of the operator its endpoints are not
/// known.
fn without_endpoints(listeners: &[ListenerStatus]) -> impl Iterator<Item = &ListenerStatus> {
    let lacks = |listener: &&ListenerStatus| {
        (listener.endpoints == 0 || listener.tcp_endpoints == Some(0)) && !listener.draining
    };
    listeners.iter().filter(lacks)
}

/// The reason why a Pod is not ready, if it has one.
pub(super) fn reason_of(pod: &Pod) -> Option<String> {
    let status = pod.status.clone().unwrap_or_default();
    let waiting = status.container_statuses.iter().flatten().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        Some(format!(
            "{}: {}",
            waiting.reason.as_deref()?,
            waiting.message.as_deref().unwrap_or_default()
        ))
    });
    let condition = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.status != "True" && condition.message.is_some())
        .and_then(|condition| condition.message.clone());
    waiting.or(condition)
}

/// A Pod that is not ready, and why.
pub(super) fn not_ready(name: &str, pod: &Pod) -> Check {
    if pod.metadata.deletion_timestamp.is_some() {
        return Check::passed("gateway", format!("{name} is ending"), None);
    }
    let phase = || pod.status.as_ref().and_then(|status| status.phase.clone());
    let detail = reason_of(pod).or_else(phase).unwrap_or_else(|| "nothing is known".to_owned());
    let hint = format!("kubectl describe pod -n {}", name.replace('/', " "));
    Check::of("gateway", format!("{name} is ready"), false, Verdict::Failed, detail, hint)
}

/// Real Discovers to the addresses that clients use.
pub(super) fn reachable(cluster: &Cluster, gateway: &EdgeGateway) -> Vec<Check> {
    let group = "from here";
    let name = name_of(gateway);
    let status = gateway.status.clone().unwrap_or_default();
    if status.listeners.is_empty() || status.addresses.is_empty() {
        return Vec::new();
    }
    let exposure = gateway.spec.exposure.type_;
    if exposure == ExposureType::ClusterIP {
        let detail = "exposure ClusterIP is for clients inside the cluster".to_owned();
        return vec![Check::passed(group, format!("{name} is not asked"), Some(detail))];
    }
    let service =
        if exposure == ExposureType::NodePort { service_of(cluster, gateway) } else { None };
    let mut targets = Vec::new();
    for address in &status.addresses {
        // Where connections end, nothing answers a Discover.
        let asked = |listener: &&ListenerStatus| !listener.draining && !listener.terminated;
        for listener in status.listeners.iter().filter(asked) {
            let Some(port) = port_of(exposure, listener, service.as_ref()) else { continue };
            let found =
                (address.as_str(), port).to_socket_addrs().ok().and_then(|mut found| found.next());
            targets.push((format!("{name} at {address}:{port} for {}", listener.service), found));
        }
    }
    targets.truncate(MOST_TARGETS);
    let ask = |(name, target): &(String, Option<SocketAddr>)| match target {
        Some(target) => of_listener(group, name, *target),
        None => {
            let hint =
                "the load balancer's name is not in the DNS yet, or not in that of this machine";
            Check::of(group, name, false, Verdict::Failed, "no such address", hint)
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = targets.iter().map(|target| scope.spawn(|| ask(target))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

fn service_of(cluster: &Cluster, gateway: &EdgeGateway) -> Option<Service> {
    let labels = format!("{GATEWAY_LABEL}={}", gateway.name_any());
    let namespace = gateway.namespace()?;
    cluster.list(&cluster.api_in::<Service>(&namespace), &labels).ok()?.into_iter().next()
}

/// The UDP port that clients use for a listener.
fn port_of(
    exposure: ExposureType,
    listener: &ListenerStatus,
    service: Option<&Service>,
) -> Option<u16> {
    if exposure != ExposureType::NodePort {
        return listener.port.try_into().ok();
    }
    let ports = service?.spec.as_ref()?.ports.as_ref()?;
    let is_it =
        |protocol: Option<&str>, port: i32| protocol == Some("UDP") && port == listener.port;
    let port = ports.iter().find(|port| is_it(port.protocol.as_deref(), port.port))?;
    port.node_port?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn gateway(status: serde_json::Value) -> EdgeGateway {
        serde_json::from_value(json!({
            "apiVersion": "packrat.dev/v1alpha1", "kind": "EdgeGateway",
            "metadata": { "name": "edge", "namespace": "shop", "generation": 2 }, "spec": {}, "status": status,
        }))
        .unwrap()
    }

    fn condition(type_: &str, status: &str, reason: &str) -> serde_json::Value {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "because",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    }

    #[test]
    fn what_the_operator_says_is_passed_on() {
        let all = EDGE_CONDITIONS.map(|(type_, ..)| condition(type_, "True", "Yes"));
        let well = gateway(json!({ "observedGeneration": 2, "conditions": all }));
        assert!(conditions(&well).iter().all(|check| check.verdict == Verdict::Passed));
        let ill = gateway(json!({
            "observedGeneration": 1,
            "conditions": [condition("Accepted", "True", "Yes"), condition("Ready", "False", "NoRoutes")],
            "proxies": [{ "name": "pod-1", "error": "bad listener" }],
            "listeners": [
                { "port": 443, "service": "shop/web", "servicePort": 443, "endpoints": 0 },
                { "port": 444, "service": "shop/slow", "servicePort": 444, "endpoints": 1, "stoppedGateways": 1 },
            ],
        }));
        let told = conditions(&ill);
        let verdict =
            |part: &str| told.iter().find(|check| check.name.contains(part)).unwrap().verdict;
        assert_eq!(verdict("was seen"), Verdict::Failed);
        assert_eq!(verdict("is accepted"), Verdict::Passed);
        assert_eq!(verdict("is ready"), Verdict::Warning);
        assert_eq!(verdict("has its configuration"), Verdict::Failed);
        assert_eq!(verdict("pod-1"), Verdict::Failed);
        assert_eq!(verdict("shop/web has endpoints"), Verdict::Failed);
        assert_eq!(verdict("clients of shop/slow are assisted"), Verdict::Warning);
        assert!(!told.iter().any(|check| check.name.contains("clients of shop/web")));
    }

    /// The operator does not know the endpoints of such a route after a restart.
    #[test]
    fn a_route_that_is_about_to_go_needs_no_endpoints() {
        let listener = |port, endpoints, draining| ListenerStatus {
            port,
            endpoints,
            draining,
            ..ListenerStatus::default()
        };
        let with_tcp = |port, tcp_endpoints| ListenerStatus {
            tcp_endpoints: Some(tcp_endpoints),
            ..listener(port, 1, false)
        };
        let listeners = [
            listener(443, 1, false),
            listener(444, 0, false),
            listener(445, 0, true),
            with_tcp(446, 1),
            with_tcp(447, 0),
        ];
        let ports: Vec<i32> = without_endpoints(&listeners).map(|found| found.port).collect();
        assert_eq!(ports, [444, 447]);
    }

    #[test]
    fn clients_of_a_node_port_use_another_port() {
        let listener = ListenerStatus { port: 443, ..ListenerStatus::default() };
        let service: Service = serde_json::from_value(json!({ "spec": { "ports": [
            { "port": 443, "nodePort": 30444, "protocol": "TCP" }, { "port": 443, "nodePort": 30443, "protocol": "UDP" },
        ]}}))
        .unwrap();
        assert_eq!(port_of(ExposureType::NodePort, &listener, Some(&service)), Some(30443));
        assert_eq!(port_of(ExposureType::NodePort, &listener, None), None);
        assert_eq!(port_of(ExposureType::LoadBalancer, &listener, None), Some(443));
    }

    #[test]
    fn a_pod_that_is_not_ready_says_why() {
        let pod: Pod =
            serde_json::from_value(json!({ "status": { "phase": "Pending", "containerStatuses": [{
                "name": "envoy", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } },
            }]}}))
            .unwrap();
        assert_eq!(not_ready("shop/a", &pod).detail.unwrap(), "ImagePullBackOff: no such image");
    }
}
