//! Tenants of a shared gateway: the owner of a port, its destinations, and its costs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use packrat_api::knobs::Setting;
use packrat_operator::index::{Index, Lingering, Resolution};
use packrat_operator::model::PodModel;
use packrat_operator::overrides::Overrides;
use packrat_operator::problem::{Problem, Reason};
use packrat_operator::status::service_condition;
use serde_json::{Value, json};

use super::{
    edge, endpoints, forget, gateway, index, key, number, service, slice, take, web, with_web,
};

/// The status of an EdgeGateway in which these Services have these ports.
fn served(mut gateway: Value, listeners: &[(u16, &str, Option<u16>)]) -> Value {
    let listeners: Vec<_> = listeners
        .iter()
        .map(|(port, service, stream)| {
            json!({ "port": port, "service": format!("app/{service}"), "servicePort": 443, "endpoints": 1, "streamPort": stream })
        })
        .collect();
    gateway["status"] = json!({ "listeners": listeners });
    gateway
}

/// An old Service that is annotated later must not get the clients of one that is served.
#[test]
fn a_port_stays_with_the_service_that_has_it() {
    let on = ("assist", "enabled");
    let objects = |status: &[(u16, &str, Option<u16>)]| {
        [
            served(gateway("app", "default", "Same"), status),
            service("old", 0, &[on, ("port", "443:quic")], &[("quic", 8443)]),
            slice("old", "old-1", &[("quic", 1)], &[("10.0.0.66", true)]),
            service("new", 59, &[on], &[("quic", 443)]),
            slice("new", "new-1", &[("quic", 8443)], &[("10.0.0.1", true)]),
        ]
    };
    let now = objects(&[(443, "new", None)]);
    let resolution = index(&now).resolve();
    assert_eq!(endpoints(&resolution, 443), ["10.0.0.1:8443"]);
    let refused = &resolution.services[&key("app", "old")];
    assert_eq!((refused.listeners.len(), refused.problems[0].reason), (0, Reason::PortConflict));
    assert!(resolution.services[&key("app", "new")].problems.is_empty());
    // If no Service has it, the older one gets it, as before. A Service with another port has no
    // claim to this.
    for status in [&[][..], &[(443, "gone", None)], &[(444, "new", None)]] {
        let resolution = index(&objects(status)).resolve();
        assert_eq!(endpoints(&resolution, 443), ["10.0.0.66:1"], "{status:?}");
    }
    // Who gives it up loses it.
    let mut without = now.to_vec();
    without[3]["metadata"]["annotations"]["packrat.dev/assist"] = "disabled".into();
    assert_eq!(endpoints(&index(&without).resolve(), 443), ["10.0.0.66:1"]);
}

/// The number of a Service's port is the cluster's own affair; the gateway's port is known outside.
#[test]
fn a_gateway_port_stays_when_the_services_port_number_changes() {
    let on = ("assist", "enabled");
    let resolve = |annotations: &[(&str, &str)], listener: Value, ports: &[(&str, u16)]| {
        let mut edge = gateway("app", "default", "Same");
        edge["status"] = json!({ "listeners": [listener] });
        let resolution = index(&[
            edge,
            service("web", 0, annotations, ports),
            slice("web", "web-1", &[("quic", 8443)], &[("10.0.0.1", true)]),
        ])
        .resolve();
        let view = resolution.services[&key("app", "web")].clone();
        let listeners = resolution.gateways[&key("app", "default")].listeners.clone();
        let routes =
            listeners.iter().map(|(port, listener)| (*port, listener.route())).collect::<Vec<_>>();
        assert!(listeners.values().all(|listener| listener.endpoints.len() == 1));
        (routes, view)
    };
    let was = |port: u16, number: u16, name: &str| json!({ "port": port, "service": "app/web", "servicePort": number, "servicePortName": name, "endpoints": 1 });
    let kept = vec![(443, "app/web/443".to_owned())];
    let moved = vec![(4433, "app/web/4433".to_owned())];
    for by_name in [&[on][..], &[on, ("port", "quic")]] {
        let (routes, view) = resolve(by_name, was(443, 443, "quic"), &[("quic", 4433)]);
        assert_eq!(routes, kept);
        let (status, reason, message) = service_condition(&key("app", "web"), &view, None).unwrap();
        assert_eq!((status, reason), (true, "PortKept"));
        assert!(message.contains("on UDP port 443;"), "{message}");
        assert!(
            message.contains("packrat.dev/port: 443:quic says so for good, 4433:quic moves it"),
            "{message}"
        );
    }
    // An annotation that names the number moves it, as one that names the gateway's port does.
    for explicit in ["4433:quic", "4433"] {
        let annotations = [on, ("port", explicit)];
        assert_eq!(resolve(&annotations, was(443, 443, "quic"), &[("quic", 4433)]).0, moved);
    }
    // So does the end of an annotation that had named another port, a port of another name, a route
    // that is about to go, and a status of an operator that did not know names.
    let mut ends = was(443, 443, "quic");
    ends["draining"] = true.into();
    let mut without = was(443, 443, "quic");
    without["servicePortName"] = Value::Null;
    for former in [was(443, 8443, "quic"), was(443, 443, "game"), ends, without] {
        assert_eq!(resolve(&[on], former.clone(), &[("quic", 4433)]).0, moved, "{former}");
    }
    // A port that has the number now also has the gateway's port.
    let ports = [("quic", 4433), ("other", 443)];
    let mut edge = gateway("app", "default", "Same");
    edge["status"] = json!({ "listeners": [was(443, 443, "quic")] });
    let resolution = index(&[
        edge,
        service("web", 0, &[on], &ports),
        slice("web", "web-1", &[("quic", 8443), ("other", 8444)], &[("10.0.0.1", true)]),
    ])
    .resolve();
    assert_eq!(endpoints(&resolution, 4433), ["10.0.0.1:8443"]);
    assert_eq!(endpoints(&resolution, 443), ["10.0.0.1:8444"]);
}

/// A Service with the gateway's port 443 for its port `quic`, which has moved from 443 to 4433.
fn moved(port: &str, pods: &[(&str, bool)]) -> Resolution {
    let mut edge = gateway("app", "default", "Same");
    edge["status"] = json!({ "listeners": [{
        "port": 443, "service": "app/web", "servicePort": 443, "servicePortName": "quic", "endpoints": 1,
    }]});
    let annotations = [("assist", "enabled"), ("port", port)];
    index(&[
        edge,
        service("web", 0, &annotations, &[("quic", 4433), ("other", 9000)]),
        slice("web", "web-1", &[("quic", 8443), ("other", 8444)], pods),
    ])
    .resolve()
}

#[test]
fn a_port_that_an_annotation_gives_to_another_port_is_not_kept() {
    for both in ["quic,443:other", "443:other,quic"] {
        let resolution = moved(both, &[("10.0.0.1", true)]);
        assert_eq!(endpoints(&resolution, 443), ["10.0.0.1:8444"], "{both}");
        assert_eq!(endpoints(&resolution, 4433), ["10.0.0.1:8443"], "{both}");
        assert_eq!(resolution.services[&key("app", "web")].problems, [], "{both}");
    }
}

#[test]
fn a_kept_port_is_reported_with_the_services_number() {
    let resolution = moved("quic", &[]);
    let problems = &resolution.services[&key("app", "web")].problems;
    let found = problems.iter().find(|problem| problem.reason == Reason::NoEndpoints).unwrap();
    assert!(found.message.starts_with("port 4433 of the Service has no endpoint"), "{found:?}");
}

#[test]
fn an_edge_gateway_says_which_namespaces_have_which_ports() {
    let resolve = |ports: Value, port: u16| {
        let mut edge = gateway("infra", "edge", "All");
        edge["spec"]["routes"]["ports"] = ports;
        let annotations = [("assist", "enabled"), ("gateway", "infra/edge")];
        let resolution = index(&[
            edge,
            service("web", 0, &annotations, &[("quic", port)]),
            slice("web", "web-1", &[("quic", 8443)], &[("10.0.0.1", true)]),
        ])
        .resolve();
        let problems = &resolution.services[&key("app", "web")].problems;
        let is_served = resolution.gateways[&key("infra", "edge")].listeners.contains_key(&port);
        assert_ne!(is_served, problems.iter().any(|one| one.reason == Reason::NotAllowed));
        is_served
    };
    assert!(resolve(json!([]), 443), "without a list every port is everybody's");
    let ports = json!([
        { "namespaces": ["shop"], "first": 443, "last": 443 },
        { "namespaces": ["app", "games"], "first": 7000, "last": 7099 },
        { "first": 8000, "last": 8000 },
    ]);
    for (port, expected) in
        [(443, false), (6999, false), (7000, true), (7099, true), (7100, false), (8000, true)]
    {
        assert_eq!(resolve(ports.clone(), port), expected, "{port}");
    }
    // The page with metrics has TCP 9902, which a listener for tokens would share.
    assert!(!resolve(json!([]), 9902));
}

/// A stream's port is named by a Service: it must be no listener's, and no other stream's.
#[test]
fn live_streams_have_ports_of_their_own() {
    let streaming = |name: &str, second: u32, port: u16, stream: &str| {
        let annotations = [("assist", "enabled"), ("multicast", stream)];
        [
            service(name, second, &annotations, &[("rtp", port)]),
            slice(name, &format!("{name}-1"), &[("rtp", port)], &[("10.0.0.2", true)]),
        ]
    };
    let resolve = |edge: Value, objects: &[[Value; 2]]| {
        let mut all = vec![edge];
        all.extend(objects.iter().flatten().cloned());
        let resolution = index(&all).resolve();
        let view = resolution.gateways[&key("app", "default")].clone();
        let streams: BTreeMap<u16, Option<u16>> =
            view.listeners.iter().map(|(port, one)| (*port, one.stream_port())).collect();
        let problems: Vec<_> =
            resolution.services.values().flat_map(|one| one.problems.clone()).collect();
        (streams, problems)
    };
    let edge =
        |range: Value| super::edge(json!({ "multicast": { "enabled": true, "ports": range } }));
    let default = || {
        let mut edge = edge(json!(null));
        edge["spec"]["multicast"].as_object_mut().unwrap().remove("ports");
        edge
    };
    // Outside of the range, which has a default.
    let (streams, problems) = resolve(default(), &[streaming("tv", 0, 443, "0.0.0.0:8443")]);
    assert_eq!((streams[&443], problems[0].reason), (None, Reason::NotAllowed));
    assert!(problems[0].message.contains("ports 5004 to 5059"), "{}", problems[0].message);
    assert_eq!(resolve(default(), &[streaming("tv", 0, 443, "0.0.0.0:5004")]).0[&443], Some(5004));
    // No route listens in it.
    let (streams, problems) = resolve(default(), &[streaming("web", 0, 5004, "0.0.0.0:5005")]);
    assert!(streams.is_empty() && problems[0].reason == Reason::NotAllowed, "{problems:?}");
    // One that did before streams were enabled stays, and no stream takes its port.
    let range = json!({ "first": 4440, "last": 4450 });
    let (streams, problems) = resolve(
        served(edge(range.clone()), &[(4443, "web", None)]),
        &[
            [
                service("web", 9, &[("assist", "enabled")], &[("quic", 4443)]),
                slice("web", "web-1", &[("quic", 8443)], &[("10.0.0.1", true)]),
            ],
            streaming("tv", 0, 7000, "0.0.0.0:4443"),
        ],
    );
    assert_eq!((streams[&4443], streams[&7000]), (None, None));
    assert!(
        problems[0]
            .message
            .contains("port 4443 of EdgeGateway app/default belongs to Service app/web"),
        "{problems:?}"
    );
    // Two streams do not share one; its present owner keeps it.
    let two = [streaming("a", 0, 7000, "0.0.0.0:4445"), streaming("b", 9, 7001, "239.1.2.3:4445")];
    let mut on_hosts = edge(range);
    on_hosts["spec"]["exposure"] = json!({ "type": "HostNetwork" });
    let (streams, problems) = resolve(on_hosts.clone(), &two);
    assert_eq!((streams[&7000], streams[&7001], problems.len()), (Some(4445), None, 1));
    let status = [(7000, "a", None), (7001, "b", Some(4445))];
    let (streams, problems) = resolve(served(on_hosts, &status), &two);
    assert_eq!((streams[&7000], streams[&7001], problems.len()), (None, Some(4445), 1));
    assert_eq!(problems[0].reason, Reason::PortConflict);
}

/// What the Service `web` has with these annotations of an EdgeGateway with this spec, and what is said
/// about them.
fn overrides(spec: Value, annotations: &Value) -> (Overrides, Vec<String>) {
    let text = |(name, value)| (String::as_str(name), Value::as_str(value).unwrap());
    let annotations: Vec<_> = annotations.as_object().unwrap().iter().map(text).collect();
    let resolution = with_web(edge(spec), &annotations).resolve();
    let view = &resolution.services[&key("app", "web")];
    let listener = &resolution.gateways[&key("app", "default")].listeners[&443];
    let (is_assisted, ..) = service_condition(&key("app", "web"), view, None).unwrap();
    assert!(is_assisted, "it is served all the same");
    let above: Vec<_> = view.problems.iter().map(|problem| problem.message.clone()).collect();
    assert!(view.problems.iter().all(|problem| problem.reason == Reason::AboveLimit));
    (listener.overrides.clone(), above)
}

/// A tenant's annotation does not beat the platform's policy.
#[test]
fn services_have_what_their_edge_gateway_allows_and_no_more() {
    let said: Value = serde_saphyr::from_str(include_str!("limits.yaml")).unwrap();
    let greedy = said["greedy"].as_object().unwrap();
    // The others say what a Service's servers are like, or only take assistance away.
    let free = ["affinity", "assist", "holdout-percent", "sender"];
    for (_, knob) in packrat_api::knobs::in_cluster() {
        let name = format!("config.{}", knob.annotation);
        let is_limited = greedy.contains_key(&name);
        assert_ne!(is_limited, free.contains(&knob.annotation), "{name}: limited, or free?");
    }
    let required = json!({ "tokens": { "policy": "Required", "tls": { "secretName": "tls" } } });
    let (lowered, above) = overrides(required.clone(), &said["greedy"]);
    assert_eq!(above.len(), greedy.len(), "{above:?}");
    let total = "packrat.dev/config.cache-bytes-total: 1073741824000000 is not what EdgeGateway app/default allows; 268435456 is used";
    assert!(above.iter().any(|message| message == total), "{above:?}");
    let mut route = packrat_api::route::RouteConfig::unchecked("web", []);
    let own: packrat_operator::resource::EdgeGatewaySpec =
        serde_json::from_value(required).unwrap();
    own.apply(&mut route);
    let of_gateway = route.clone();
    lowered.apply(&mut route);
    assert_eq!(route, of_gateway, "what is above is the EdgeGateway's own");
}

#[test]
fn services_may_have_less_and_what_is_allowed() {
    let said: Value = serde_saphyr::from_str(include_str!("limits.yaml")).unwrap();
    let (kept, above) = overrides(json!({}), &said["modest"]);
    assert!(above.is_empty(), "{above:?}");
    assert_eq!(
        (number(&kept, "cache-bytes-per-session"), number(&kept, "maximum-sessions")),
        (Some(1024), Some(1))
    );
    assert!(kept.tokens().is_some());
    // The EdgeGateway may allow more than it has itself.
    let (kept, above) = overrides(said["generous"].clone(), &said["greedy"]);
    assert!(above.is_empty(), "{above:?}");
    assert_eq!(
        (number(&kept, "repair-budget-percent"), kept.get("sparse-copies")),
        (Some(1000), Some(Setting::Switch(true)))
    );
    // What it has itself is not more than it allows.
    let copying = json!({ "repair": { "sparseCopies": true } });
    let (kept, above) = overrides(copying, &json!({ "config.sparse-copies": "on" }));
    assert_eq!((kept.get("sparse-copies"), above.len()), (Some(Setting::Switch(true)), 0));
    // A cache per session above the total would raise the total.
    let limits = json!({ "limits": { "cacheBytesPerSession": "4Gi" } });
    let (kept, above) = overrides(limits, &json!({ "config.cache-bytes-per-session": "2Gi" }));
    assert_eq!((number(&kept, "cache-bytes-per-session"), above.len()), (Some(256 << 20), 1));
}

/// The off switch leaves the route, and with it the port and its connections, in place.
#[test]
fn assistance_is_switched_off_without_closing_the_port() {
    let resolve = |spec: Value, annotations: &[(&str, &str)]| {
        let edge = edge(spec.clone());
        let resolution = with_web(edge, annotations).resolve();
        assert_eq!(endpoints(&resolution, 443), ["10.0.0.1:8443"]);
        let own: packrat_operator::resource::EdgeGatewaySpec =
            serde_json::from_value(spec).unwrap();
        let mut route = packrat_api::route::RouteConfig::unchecked("web", []);
        own.apply(&mut route);
        let listener = &resolution.gateways[&key("app", "default")].listeners[&443];
        listener.overrides.apply(&mut route);
        let (is_assisted, reason, message) =
            service_condition(&key("app", "web"), &resolution.services[&key("app", "web")], None)
                .unwrap();
        assert!(is_assisted || message.contains("forwarded without assistance"), "{message}");
        (route.assist, is_assisted, reason)
    };
    assert_eq!(resolve(json!({}), &[]), (true, true, "Assisted"));
    assert_eq!(resolve(json!({}), &[("config.assist", "off")]), (false, false, "SwitchedOff"));
    assert_eq!(resolve(json!({ "assist": false }), &[]), (false, false, "SwitchedOff"));
    // The platform has the last word.
    let insists = resolve(json!({ "assist": false }), &[("config.assist", "on")]);
    assert_eq!(insists, (false, false, "AboveLimit"));
}

fn pod(namespace: &str, name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": namespace, "name": name, "uid": name },
        "status": { "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }] },
    })
}

/// The endpoints of the Service `web` of an EdgeGateway that takes endpoints `from` there, and what is
/// said about them, after a tenant's change of the slice that Kubernetes makes.
fn endpoints_of(from: &str, change: &dyn Fn(&mut Value)) -> (Vec<String>, Vec<Problem>) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" },
        "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.7" }, { "type": "Hostname", "address": "n1" }] },
    });
    let cluster_dns = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "namespace": "kube-system", "name": "dns" },
        "spec": { "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"] },
    });
    let mut edge = gateway("app", "default", "Same");
    edge["spec"]["routes"]["endpoints"] = from.into();
    let [web, mut slice] = web(&[]);
    let target = json!({ "kind": "Pod", "namespace": "app", "name": "web-0" });
    slice["endpoints"] = json!([{ "addresses": ["10.0.0.1"], "targetRef": target }]);
    change(&mut slice);
    let mut index = index(&[edge, web, node, cluster_dns]);
    take(&mut index, &slice);
    take(&mut index, &pod("app", "web-0", "10.0.0.1"));
    take(&mut index, &pod("app", "on-host", "192.0.2.7"));
    take(&mut index, &pod("bank", "ledger", "10.0.0.9"));
    index.pods.set(key("app", "unknown"), None);
    let resolution = index.resolve();
    let problems = resolution.services[&key("app", "web")].problems.clone();
    (endpoints(&resolution, 443), problems)
}

/// A user who may write EndpointSlices does not choose the gateway's destinations.
#[test]
fn endpoints_are_pods_of_the_services_namespace() {
    let to = |address: &'static str, pod: &'static str| {
        move |slice: &mut Value| {
            slice["endpoints"][0]["addresses"] = json!([address]);
            slice["endpoints"][0]["targetRef"]["name"] = pod.into();
        }
    };
    assert_eq!(endpoints_of("Pods", &|_| {}), (vec!["10.0.0.1:8443".to_owned()], vec![]));

    let refused = |from: &str, change: &dyn Fn(&mut Value), part: &str| {
        let (endpoints, problems) = endpoints_of(from, change);
        assert!(endpoints.is_empty(), "{part}: {endpoints:?}");
        assert_eq!(problems[0].reason, Reason::EndpointRefused, "{problems:?}");
        assert!(problems[0].message.contains(part), "{}", problems[0].message);
    };
    let by_hand = |slice: &mut Value| {
        let labels = slice["metadata"]["labels"].as_object_mut().unwrap();
        labels.remove("endpointslice.kubernetes.io/managed-by");
    };
    refused("Pods", &by_hand, "is not that of Kubernetes' own controller");
    // The label can be written by anybody: the Pod has to have the address.
    let no_pod = |slice: &mut Value| slice["endpoints"][0]["targetRef"] = Value::Null;
    refused("Pods", &no_pod, "no Pod of namespace app has it");
    refused("Pods", &to("10.0.0.9", "web-0"), "no Pod of namespace app has it");
    let of_others = |slice: &mut Value| {
        to("10.0.0.9", "ledger")(slice);
        slice["endpoints"][0]["targetRef"]["namespace"] = "bank".into();
    };
    refused("Pods", &of_others, "no Pod of namespace app has it");
    for from in ["Pods", "Any"] {
        refused(from, &to("192.0.2.7", "on-host"), "it is a node's");
        refused(from, &to("10.96.0.10", "web-0"), "it is a Service's");
        for never in ["127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0"] {
            refused(from, &to(never, "web-0"), "gateways never forward to loopback");
        }
    }
    // A Pod that is about to come is no mistake.
    let (endpoints, problems) = endpoints_of("Pods", &to("10.0.0.3", "unknown"));
    assert!(endpoints.is_empty() && problems[0].reason == Reason::NoEndpoints, "{problems:?}");
    // Opted in.
    assert_eq!(endpoints_of("Any", &by_hand).0, ["10.0.0.1:8443"]);
    assert_eq!(endpoints_of("Any", &to("10.0.0.9", "web-0")).0, ["10.0.0.9:8443"]);
}

#[test]
fn a_pod_that_has_ended_lends_its_address_to_nobody() {
    let ended = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "app", "name": "job" },
        "status": { "phase": "Succeeded", "podIPs": [{ "ip": "10.0.0.1" }] },
    });
    let pod: Pod = serde_json::from_value(ended).unwrap();
    assert_eq!(PodModel::read(&pod), None);
}

/// A Service without Pods and a route that is gone keep their endpoints for a while; addresses of Pods are used again.
#[test]
fn a_reused_pod_address_gets_no_datagrams_of_a_former_route() {
    let ips = ["10.0.0.1", "10.0.0.2"];
    let slice = slice("web", "web-1", &[("quic", 8443)], &ips.map(|ip| (ip, true)));
    let of_slice = |index: &mut Index, at: usize, present: bool| {
        let reference = &slice["endpoints"][at]["targetRef"]["name"];
        let model = PodModel {
            uid: format!("web-{at}"),
            addresses: vec![ips[at].parse().unwrap()],
            ..PodModel::default()
        };
        index.pods.set(key("app", reference.as_str().unwrap()), present.then_some(model));
    };
    let [web, _] = web(&[]);
    let begin = || {
        let mut index = index(&[gateway("app", "default", "Same"), web.clone(), slice.clone()]);
        (0..ips.len()).for_each(|at| of_slice(&mut index, at, true));
        (index, Lingering::default())
    };
    let served = |index: &Index, lingering: &mut Lingering, now: i64| {
        let mut resolution = index.resolve();
        lingering.recognize(&resolution, index);
        lingering.extend(&mut resolution, now, |_| 60);
        let is_there = resolution.gateways[&key("app", "default")].listeners.contains_key(&443);
        if is_there { endpoints(&resolution, 443) } else { Vec::new() }
    };
    for gone in [&web, &slice] {
        let (mut index, mut lingering) = begin();
        let mut served = |index: &Index, now: i64| served(index, &mut lingering, now);
        assert_eq!(served(&index, 0), ["10.0.0.1:8443", "10.0.0.2:8443"]);
        forget(&mut index, gone);
        assert_eq!(served(&index, 1), ["10.0.0.1:8443", "10.0.0.2:8443"]);
        (0..ips.len()).for_each(|at| of_slice(&mut index, at, false));
        assert_eq!(served(&index, 2), ["10.0.0.1:8443", "10.0.0.2:8443"]);
        take(&mut index, &pod("bank", "ledger", ips[0]));
        assert_eq!(served(&index, 3), ["10.0.0.2:8443"]);
        take(&mut index, &pod("bank", "safe", ips[1]));
        assert!(served(&index, 4).is_empty());
        assert!(served(&index, 5).is_empty());
    }
    // At once: the Pod, its slice, and the next Pod of the address.
    let (mut index, mut lingering) = begin();
    served(&index, &mut lingering, 0);
    forget(&mut index, &slice);
    (0..ips.len()).for_each(|at| of_slice(&mut index, at, false));
    take(&mut index, &pod("bank", "ledger", ips[0]));
    assert_eq!(served(&index, &mut lingering, 1), ["10.0.0.2:8443"]);
}

#[test]
fn a_disallowed_edge_gateway_keeps_its_routes_with_a_reason() {
    let mut edge = gateway("app", "default", "Same");
    edge["spec"]["envoy"] = json!({ "image": "evil.example/envoy:1" });
    let resolution = with_web(edge, &[]).resolve();
    let view = &resolution.gateways[&key("app", "default")];
    assert!(view.refusal.as_ref().unwrap().contains("evil.example/envoy:1"));
    assert_eq!(endpoints(&resolution, 443), ["10.0.0.1:8443"]);
}
