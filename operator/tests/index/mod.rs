//! The index: the result of Services, EndpointSlices, Namespaces and EdgeGateways.

mod gateway_api;
mod operators;
mod peers;
mod quotas;
mod server_ids;
mod tcp;
mod tenants;
mod terminate;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::DynamicObject;
use packrat_api::knobs::Setting;
use packrat_operator::gateway_api::objects::Read as _;
use packrat_operator::gateway_api::{
    Gateway, GatewayClass, Parameters, PolicyModel, ReferenceGrant, UdpRoute,
};
use packrat_operator::index::{Index, Operator, Resolution};
use packrat_operator::model::{
    GatewayModel, NamespaceModel, PodModel, ServiceModel, SliceModel, node_addresses,
    service_addresses,
};
use packrat_operator::object_key::ObjectKey;
use packrat_operator::overrides::Overrides;
use packrat_operator::policy::Policy;
use packrat_operator::problem::Problem;
use packrat_operator::resource::EdgeGateway;
use packrat_operator::status::service_condition;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A number among the settings of a route.
fn number(settings: &Overrides, name: &str) -> Option<u64> {
    settings.get(name).map(Setting::number)
}

fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(namespace, name)
}

/// Takes an object as the API server writes it.
fn take(index: &mut Index, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let key = key(object["metadata"]["namespace"].as_str().unwrap_or_default(), name);
    match object["kind"].as_str().unwrap() {
        "EdgeGateway" => {
            let gateway: EdgeGateway = serde_json::from_value(object.clone()).unwrap();
            index.gateways.set(key, Some(GatewayModel::read(&gateway)));
        }
        "Service" => {
            let service: Service = serde_json::from_value(object.clone()).unwrap();
            index.set_service_addresses(key.clone(), Some(service_addresses(&service)));
            index.operators.set(key.clone(), Operator::read(&service));
            index.services.set(key, ServiceModel::read(&service));
        }
        "Pod" => {
            let pod: Pod = serde_json::from_value(object.clone()).unwrap();
            index.pods.set(key, PodModel::read(&pod));
        }
        "Node" => {
            let node: Node = serde_json::from_value(object.clone()).unwrap();
            index.nodes.set(key.name, Some(node_addresses(&node)));
        }
        "Namespace" => {
            let namespace: Namespace = serde_json::from_value(object.clone()).unwrap();
            let labels = namespace.metadata.labels.clone().unwrap_or_default();
            index.set_namespace_labels(key.name.clone(), Some(labels));
            index.namespaces.set(key.name, NamespaceModel::read(&namespace));
        }
        "EndpointSlice" => {
            let slice: EndpointSlice = serde_json::from_value(object.clone()).unwrap();
            // The named Pods are there, and have the addresses of the slice.
            for endpoint in &slice.endpoints {
                let Some(name) = endpoint.target_ref.as_ref().and_then(|pod| pod.name.clone())
                else {
                    continue;
                };
                let addresses = endpoint.addresses.iter().map(|ip| ip.parse().unwrap()).collect();
                let pod = PodModel { addresses, ..PodModel::default() };
                index.pods.set(ObjectKey::new(key.namespace.clone(), name), Some(pod));
            }
            index.set_slice(key, SliceModel::read(&slice));
        }
        kind => take_of_gateway_api(index, kind, key, object),
    }
}

fn take_of_gateway_api(index: &mut Index, kind: &str, key: ObjectKey, object: &Value) {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    index.set_gateway_api(|objects| {
        match kind {
            "GatewayClass" => {
                objects.classes.insert(key.name, GatewayClass::read(&object).unwrap());
            }
            "Gateway" => {
                objects.gateways.insert(key, Gateway::read(&object).unwrap());
            }
            "UDPRoute" => {
                objects.routes.insert(key, UdpRoute::read(&object).unwrap());
            }
            "ReferenceGrant" => {
                objects.grants.insert(key, ReferenceGrant::read(&object).unwrap());
            }
            "PackratPolicy" => {
                objects.policies.insert(key, PolicyModel::read(&object).unwrap());
            }
            "GatewayParameters" => {
                objects.parameters.insert(key, Parameters::read(&object).unwrap());
            }
            kind => panic!("{kind}"),
        }
        true
    });
}

fn forget(index: &mut Index, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let key = key(object["metadata"]["namespace"].as_str().unwrap_or_default(), name);
    match object["kind"].as_str().unwrap() {
        "EdgeGateway" => index.gateways.set(key, None),
        "Service" => index.operators.set(key.clone(), None) | index.services.set(key, None),
        "Namespace" => index.namespaces.set(key.name, None),
        _ => index.set_slice(key, None),
    };
}

fn index(objects: &[Value]) -> Index {
    let mut index =
        Index::new("packrat-system", Policy { host_network: true, ..Policy::default() });
    objects.iter().for_each(|object| take(&mut index, object));
    index
}

fn gateway(namespace: &str, name: &str, from: &str) -> Value {
    json!({
        "apiVersion": "packrat.dev/v1alpha1", "kind": "EdgeGateway",
        "metadata": { "namespace": namespace, "name": name, "uid": format!("{namespace}-{name}") },
        "spec": { "routes": { "from": from } },
    })
}

fn service(name: &str, second: u32, annotations: &[(&str, &str)], ports: &[(&str, u16)]) -> Value {
    let annotations: BTreeMap<_, _> =
        annotations.iter().map(|(name, value)| (format!("packrat.dev/{name}"), value)).collect();
    let ports: Vec<_> = ports
        .iter()
        .map(|(name, port)| json!({ "name": name, "port": port, "protocol": "UDP" }))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "namespace": "app", "name": name, "uid": name, "annotations": annotations,
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        },
        "spec": { "ports": ports },
    })
}

fn slice(service: &str, name: &str, ports: &[(&str, u16)], addresses: &[(&str, bool)]) -> Value {
    let ports: Vec<_> = ports
        .iter()
        .map(|(name, port)| json!({ "name": name, "port": port, "protocol": "UDP" }))
        .collect();
    let endpoints: Vec<_> = addresses
        .iter()
        .map(|(address, ready)| {
            let pod =
                json!({ "kind": "Pod", "namespace": "app", "name": format!("pod-{address}") });
            json!({ "addresses": [address], "conditions": { "ready": ready }, "targetRef": pod })
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "namespace": "app", "name": name, "labels": {
            "kubernetes.io/service-name": service,
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }},
        "ports": ports, "endpoints": endpoints,
    })
}

/// The EdgeGateway `default` with this spec.
fn edge(spec: Value) -> Value {
    let mut edge = gateway("app", "default", "Same");
    edge["spec"] = spec;
    edge
}

/// The Service `web`, which asks for assistance with these annotations besides, and its endpoint.
fn web(annotations: &[(&str, &str)]) -> [Value; 2] {
    let annotations = [&[("assist", "enabled")], annotations].concat();
    [
        service("web", 0, &annotations, &[("quic", 443)]),
        slice("web", "web-1", &[("quic", 8443)], &[("10.0.0.1", true)]),
    ]
}

/// An EdgeGateway, and the Service `web`.
fn with_web(edge: Value, annotations: &[(&str, &str)]) -> Index {
    let [service, slice] = web(annotations);
    index(&[edge, service, slice])
}

/// The cases of a table in YAML.
fn cases(text: &str) -> Vec<Value> {
    let cases: Vec<Value> = serde_saphyr::from_str(text).unwrap();
    assert!(!cases.is_empty());
    cases
}

fn endpoints(resolution: &Resolution, port: u16) -> Vec<String> {
    let listener = &resolution.gateways[&key("app", "default")].listeners[&port];
    listener.endpoints.iter().map(ToString::to_string).collect()
}

#[test]
fn a_live_stream_needs_a_gateway_that_serves_them() {
    let resolve = |spec: Value, stream: &str, ports: &[(&str, u16)]| {
        let mut edge = gateway("app", "default", "Same");
        edge["spec"] = spec;
        let annotations = [("assist", "enabled"), ("multicast", stream)];
        let resolution = index(&[
            edge,
            service("tv", 0, &annotations, ports),
            slice("tv", "tv-1", ports, &[("10.0.0.2", true)]),
        ])
        .resolve();
        let problems = resolution.services[&key("app", "tv")].problems.clone();
        let listeners = resolution.gateways[&key("app", "default")].listeners.clone();
        assert!(!listeners.is_empty(), "the port is served in any case");
        (listeners.values().next().unwrap().overrides.multicast, problems)
    };
    let on_hosts =
        json!({ "exposure": { "type": "HostNetwork" }, "multicast": { "enabled": true } });
    let one = [("rtp", 5000)];
    let (stream, problems) = resolve(on_hosts.clone(), "239.1.2.3:5004,239.9.9.9:5006", &one);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(stream.unwrap().group, Some("239.9.9.9:5006".parse().unwrap()));
    let by_unicast = json!({ "multicast": { "enabled": true } });
    assert!(resolve(by_unicast.clone(), "0.0.0.0:5004", &one).0.is_some());
    for (spec, value, ports, expected) in [
        (json!({}), "239.1.2.3:5004", &one[..], "set its spec.multicast.enabled to true"),
        (by_unicast, "239.1.2.3:5004", &one[..], "set its spec.exposure.type to HostNetwork"),
        (
            on_hosts,
            "239.1.2.3:5004",
            &[("rtp", 5000), ("rtcp", 5001)][..],
            "is for one UDP port, and 2 are chosen",
        ),
    ] {
        let (stream, problems) = resolve(spec, value, ports);
        assert_eq!((stream, problems.len()), (None, 1));
        assert!(problems[0].message.contains(expected), "{}", problems[0].message);
    }
}

#[test]
fn an_annotated_service_is_a_listener() {
    let resolution = index(&[
        gateway("app", "default", "Same"),
        service("web", 0, &[("assist", "enabled")], &[("quic", 443)]),
        slice("web", "web-1", &[("quic", 8443)], &[("10.0.0.2", true), ("10.0.0.1", true)]),
        slice("web", "web-2", &[("quic", 8443)], &[("10.0.0.3", true), ("10.0.0.1", true)]),
        slice("other", "other-1", &[("quic", 8443)], &[("10.0.0.9", true)]),
        service("plain", 0, &[], &[("dns", 53)]),
    ])
    .resolve();
    assert_eq!(endpoints(&resolution, 443), ["10.0.0.1:8443", "10.0.0.2:8443", "10.0.0.3:8443"]);
    let listener = &resolution.gateways[&key("app", "default")].listeners[&443];
    assert_eq!(listener.route(), "app/web/443");
    assert_eq!(resolution.services.keys().collect::<Vec<_>>(), [&key("app", "web")]);
    let (status, reason, message) =
        service_condition(&key("app", "web"), &resolution.services[&key("app", "web")], None)
            .unwrap();
    assert_eq!((status, reason), (true, "Assisted"));
    assert_eq!(message, "assisted by EdgeGateway app/default on UDP port 443");
}

#[test]
fn a_namespace_speaks_for_its_services_and_each_may_disagree() {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "app", "uid": "n", "annotations": {
            "packrat.dev/assist": "enabled", "packrat.dev/gateway": "edge",
            "packrat.dev/config.repair-budget-percent": "50", "packrat.dev/config.tokens": "required",
        },
    }});
    let resolution = index(&[
        namespace,
        gateway("app", "edge", "Same"),
        service("web", 0, &[("config.repair-budget-percent", "10")], &[("", 443)]),
        service("no", 0, &[("assist", "disabled")], &[("", 444)]),
        service("tcp", 0, &[], &[]),
    ])
    .resolve();
    let listeners = &resolution.gateways[&key("app", "edge")].listeners;
    assert_eq!(listeners.keys().copied().collect::<Vec<_>>(), [443]);
    assert_eq!(number(&listeners[&443].overrides, "repair-budget-percent"), Some(10));
    assert!(
        listeners[&443].overrides.tokens().is_some(),
        "what the Service leaves open is the Namespace's"
    );
    assert!(
        !resolution.services.contains_key(&key("app", "tcp")),
        "a Service without UDP is not meant"
    );
}

#[test]
fn restarting_and_ending_endpoints_are_the_last_resort() {
    let all = |addresses: &[(&str, bool)]| {
        let objects = [
            gateway("app", "default", "Same"),
            service("web", 0, &[("assist", "enabled")], &[("quic", 443)]),
            slice("web", "web-1", &[("quic", 8443)], addresses),
        ];
        endpoints(&index(&objects).resolve(), 443)
    };
    assert_eq!(all(&[("10.0.0.1", true), ("10.0.0.2", false)]), ["10.0.0.1:8443"]);
    // A container that restarts keeps its address: its sessions wait for it.
    assert_eq!(
        all(&[("10.0.0.1", false), ("10.0.0.2", false)]),
        ["10.0.0.1:8443", "10.0.0.2:8443"]
    );
    assert_eq!(all(&[]), [""; 0]);
}

#[test]
fn pods_with_two_addresses_use_the_services_first_family() {
    let all = |families: &[&str], addresses: &[(&str, bool)]| {
        let mut web = service("web", 0, &[("assist", "enabled")], &[("quic", 443)]);
        web["spec"]["ipFamilies"] = json!(families);
        let (new, old): (Vec<_>, Vec<_>) =
            addresses.iter().copied().partition(|(address, _)| address.contains(':'));
        let mut objects = vec![gateway("app", "default", "Same"), web];
        for (name, kind, addresses) in [("web-6", "IPv6", new), ("web-4", "IPv4", old)] {
            let mut slice = slice("web", name, &[("quic", 8443)], &addresses);
            slice["addressType"] = kind.into();
            objects.push(slice);
        }
        endpoints(&index(&objects).resolve(), 443)
    };
    let both = [("10.0.0.1", true), ("fd00::1", true)];
    assert_eq!(all(&["IPv4", "IPv6"], &both), ["10.0.0.1:8443"]);
    assert_eq!(all(&["IPv6", "IPv4"], &both), ["[fd00::1]:8443"]);
    assert_eq!(all(&["IPv4"], &[("fd00::1", true)]), ["[fd00::1]:8443"]);
    assert_eq!(all(&["IPv6"], &[("10.0.0.1", true)]), ["10.0.0.1:8443"]);
    // Readiness comes before the address family.
    assert_eq!(
        all(&["IPv4", "IPv6"], &[("10.0.0.1", false), ("fd00::1", true)]),
        ["[fd00::1]:8443"]
    );
    // The same address in another notation is the same.
    assert_eq!(all(&["IPv6"], &[("fd00::1", true), ("fd00:0::0001", true)]), ["[fd00::1]:8443"]);
}

/// Each mistake, and the exact message at the Service.
#[test]
fn what_is_said_about_services_that_cannot_be_assisted() {
    let on = ("assist", "enabled");
    let others = [
        gateway("app", "default", "Same"),
        gateway("infra", "private", "Same"),
        service("older", 1, &[on, ("port", "443:quic")], &[("quic", 8443)]),
        slice("older", "older-1", &[("quic", 1)], &[("10.0.0.1", true)]),
    ];
    for case in cases(include_str!("mistakes.yaml")) {
        let texts = |field: &str| case[field].as_object().unwrap().iter();
        let annotations: Vec<_> = [on]
            .into_iter()
            .chain(texts("annotations").map(|(name, value)| (&name[..], value.as_str().unwrap())))
            .collect();
        let ports: Vec<_> =
            texts("ports").map(|(name, port)| (&name[..], port.as_u64().unwrap() as u16)).collect();
        let mut objects = others.to_vec();
        objects.push(service("web", 2, &annotations, &ports));
        let resolution = index(&objects).resolve();
        let view = &resolution.services[&key("app", "web")];
        let Problem { reason, message } = &view.problems[0];
        assert_eq!(json!([reason.name(), message]), json!([case["reason"], case["message"]]));
        let (status, condition, _) = service_condition(&key("app", "web"), view, None).unwrap();
        assert!(!status, "{message}");
        assert!(view.problems.iter().any(|problem| problem.reason.name() == condition));
        assert_eq!(
            endpoints(&resolution, 443),
            ["10.0.0.1:1"],
            "the other Service does not notice"
        );
    }
}

#[test]
fn one_port_named_twice() {
    let resolution = index(&[
        gateway("app", "default", "Same"),
        service("web", 2, &[("assist", "enabled"), ("port", "500:a,500:b")], &[("a", 1), ("b", 2)]),
        slice("web", "web-1", &[("a", 1), ("b", 2)], &[("10.0.0.1", true)]),
    ])
    .resolve();
    let view = &resolution.services[&key("app", "web")];
    assert_eq!(view.problems.len(), 1);
    assert_eq!(
        view.problems[0].message,
        "port 500 of EdgeGateway app/default is named twice; give each port of the Service another one in packrat.dev/port"
    );
    assert_eq!(endpoints(&resolution, 500), ["10.0.0.1:1"]);
}

#[test]
fn a_gateway_under_deletion_gets_no_objects_and_removes_none() {
    let mut deleting = gateway("app", "default", "Same");
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let resolution =
        index(&[deleting, service("web", 0, &[("assist", "enabled")], &[("quic", 443)])]).resolve();
    // It is not in the result at all, so that its gateways keep their configuration until they end.
    assert!(resolution.gateways.is_empty());
}

fn some_service() -> impl Strategy<Value = Value> {
    let value = prop_oneof![
        Just(("assist", "enabled")),
        Just(("assist", "nonsense")),
        Just(("gateway", "default")),
        Just(("gateway", "packrat-system/shared")),
        Just(("gateway", "shared")),
        Just(("gateway", "A B")),
        Just(("port", "1")),
        Just(("port", "2:p1,3:p2")),
        Just(("port", ":::")),
        Just(("config.tokens", "required")),
        Just(("config.tokens", "maybe")),
        Just(("surprise", "")),
    ];
    let ports = prop::sample::subsequence(vec![("p1", 1), ("p2", 2), ("p3", 3)], 0..=3);
    (0..8u8, 0..4u32, prop::collection::vec(value, 0..4), ports, any::<bool>()).prop_map(
        |(number, second, mut annotations, ports, on)| {
            if on {
                annotations.push(("assist", "enabled"));
            }
            service(&format!("s{number}"), second, &annotations, &ports)
        },
    )
}

fn some_slice() -> impl Strategy<Value = Value> {
    let ports = prop::sample::subsequence(vec![("p1", 1001), ("p2", 1002), ("p3", 1003)], 0..=3);
    let address = (1..20u8, any::<bool>());
    (0..8u8, 0..12u8, ports, prop::collection::vec(address, 0..4), any::<bool>()).prop_map(
        |(service, number, ports, addresses, is_ipv6)| {
            let prefix = if is_ipv6 { "fd00::" } else { "10.0.0." };
            let texts: Vec<_> =
                addresses.iter().map(|(host, ready)| (format!("{prefix}{host}"), *ready)).collect();
            let addresses: Vec<_> =
                texts.iter().map(|(text, ready)| (text.as_str(), *ready)).collect();
            let mut slice =
                slice(&format!("s{service}"), &format!("slice{number}"), &ports, &addresses);
            slice["addressType"] = if is_ipv6 { "IPv6" } else { "IPv4" }.into();
            slice
        },
    )
}

fn some_objects() -> impl Strategy<Value = Vec<Value>> {
    let gateways = prop::sample::subsequence(
        vec![
            gateway("app", "default", "Same"),
            gateway("packrat-system", "shared", "All"),
            gateway("packrat-system", "default", "Same"),
        ],
        0..=3,
    );
    let rest = prop::collection::vec(prop_oneof![some_service(), some_slice()], 0..30);
    (gateways, rest).prop_map(|(gateways, rest)| gateways.into_iter().chain(rest).collect())
}

/// The newest version of each object.
fn newest(objects: &[Value]) -> Vec<Value> {
    let mut newest = BTreeMap::new();
    for object in objects {
        let metadata = &object["metadata"];
        let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        newest.insert(
            (of(&object["kind"]), of(&metadata["namespace"]), of(&metadata["name"])),
            object.clone(),
        );
    }
    newest.into_values().collect()
}

proptest! {
    /// Neither former objects nor the order of events matter.
    #[test]
    fn only_what_is_there_matters(before in some_objects(), objects in some_objects(), seed in any::<u64>()) {
        let mut with_history = index(&before);
        before.iter().for_each(|object| forget(&mut with_history, object));
        let newest = newest(&objects);
        objects.iter().for_each(|object| take(&mut with_history, object));
        let mut shuffled = newest.clone();
        let mut state = seed;
        for place in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(place, usize::try_from(state >> 33).unwrap() % (place + 1));
        }
        prop_assert_eq!(index(&shuffled).resolve(), index(&newest).resolve());
        prop_assert_eq!(with_history.resolve(), index(&newest).resolve());
    }

    /// Ports belong to the oldest Service, endpoints to the listener's Service, and a Service that
    /// does not get its port has a message about it.
    #[test]
    fn ports_go_to_the_oldest(objects in some_objects()) {
        let newest = newest(&objects);
        let created = |service: &ObjectKey| {
            newest.iter().find(|object| object["kind"] == "Service" && object["metadata"]["name"] == service.name.as_str())
                .map(|object| object["metadata"]["creationTimestamp"].as_str().unwrap().to_owned()).unwrap()
        };
        let resolution = index(&newest).resolve();
        for (gateway, view) in &resolution.gateways {
            for (port, listener) in &view.listeners {
                let service = &resolution.services[&listener.service];
                prop_assert_eq!(service.gateway.as_ref(), Some(gateway));
                prop_assert!(service.listeners.contains(port));
                prop_assert!(listener.endpoints.is_sorted());
                prop_assert!(listener.endpoints.iter().all(|endpoint| endpoint.is_ipv6() == listener.endpoints[0].is_ipv6()));
                for endpoint in &listener.endpoints {
                    let known = newest.iter().any(|object| object["kind"] == "EndpointSlice"
                        && object["metadata"]["labels"]["kubernetes.io/service-name"] == listener.service.name.as_str()
                        && object.to_string().contains(&format!("\"{}\"", endpoint.ip())));
                    prop_assert!(known, "{} is not an endpoint of {}", endpoint, listener.service);
                }
            }
        }
        for (key, view) in &resolution.services {
            prop_assert!(view.problems.iter().all(|problem| !problem.message.is_empty()));
            if view.wanted && view.listeners.is_empty() {
                prop_assert!(!view.problems.is_empty(), "{} is told nothing", key);
            }
            for problem in view.problems.iter().filter(|problem| problem.message.contains("belongs to Service")) {
                let holder = problem.message.split("app/").nth(1 + usize::from(problem.message.contains("EdgeGateway app/"))).unwrap();
                let holder = holder.split(';').next().unwrap();
                prop_assert!(created(&ObjectKey::new("app", holder)) <= created(key));
            }
        }
    }

    /// A newcomer, however wrong, takes nothing away from Services that were there.
    #[test]
    fn a_newcomer_takes_nothing_away(objects in some_objects(), mut newcomer in some_service()) {
        let mut all = newest(&objects);
        let before = index(&all).resolve();
        newcomer["metadata"]["name"] = "newcomer".into();
        newcomer["metadata"]["creationTimestamp"] = "2026-01-01T00:01:00Z".into();
        all.push(newcomer);
        let after = index(&all).resolve();
        for (gateway, view) in &before.gateways {
            for (port, listener) in &view.listeners {
                prop_assert_eq!(after.gateways[gateway].listeners.get(port), Some(listener));
            }
        }
        for (key, view) in &before.services {
            prop_assert_eq!(&after.services[key], view);
        }
    }
}
