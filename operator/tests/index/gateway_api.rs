//! Gateways, UDPRoutes and their statuses: objects in, listeners and statuses out.

use k8s_openapi::jiff::Timestamp;
use packrat_operator::annotations::Reason;
use packrat_operator::gateway_api::objects::{Gateway, UdpRoute};
use packrat_operator::gateway_api::{controller_name, status, translate};
use packrat_operator::index::{Index, Operator, Resolution};
use packrat_operator::policy::Policy;
use packrat_operator::resource::GatewayParametersSpec;
use serde_json::{Value, json};

use super::{key, service, slice, take};

const GROUP: &str = "gateway.networking.k8s.io";

fn class(name: &str, controller: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "GatewayClass",
        "metadata": { "name": name, "generation": 3 }, "spec": { "controllerName": controller },
    })
}

fn of_packrat() -> Value {
    class("packrat", "packrat.dev/gateway-controller")
}

fn listener(name: &str, port: u16, allowed: Value) -> Value {
    json!({ "name": name, "port": port, "protocol": "UDP", "allowedRoutes": allowed })
}

/// A Gateway in namespace `app`.
fn a_gateway(name: &str, listeners: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Gateway",
        "metadata": { "namespace": "app", "name": name, "uid": format!("uid-{name}"), "generation": 4 },
        "spec": { "gatewayClassName": "packrat", "listeners": listeners },
    })
}

/// The EdgeGateway that the operator makes for a Gateway.
fn edge_of(gateway: &Value) -> Value {
    let read = read_gateway(gateway);
    let name = gateway["metadata"]["name"].as_str().unwrap();
    let spec = translate::edge_gateway_spec(&key("app", name), &read, None, "packrat");
    let mut edge = translate::edge_gateway(&key("app", name), &read, &spec);
    edge["metadata"]["uid"] = "edge".into();
    edge["metadata"]["generation"] = 1.into();
    edge
}

fn read_gateway(gateway: &Value) -> Gateway {
    use packrat_operator::gateway_api::objects::Read as _;
    Gateway::read(&serde_json::from_value(gateway.clone()).unwrap()).unwrap()
}

fn route(namespace: &str, name: &str, second: u32, parent: Value, services: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "UDPRoute",
        "metadata": {
            "namespace": namespace, "name": name, "generation": 2,
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        },
        "spec": { "parentRefs": [parent], "rules": [{ "backendRefs": services }] },
    })
}

fn namespace(name: &str, labels: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
}

/// Two Services with a Pod each, of namespace `app`.
fn servers() -> Vec<Value> {
    vec![
        service("web", 0, &[], &[("quic", 8443)]),
        slice("web", "web-1", &[("quic", 1443)], &[("10.0.0.1", true)]),
        service("canary", 0, &[], &[("quic", 8443)]),
        slice("canary", "canary-1", &[("quic", 1443)], &[("10.0.0.2", true), ("10.0.0.3", true)]),
    ]
}

fn index(objects: &[Value]) -> Index {
    let mut index = Index::new("packrat-system", Policy::default());
    objects.iter().for_each(|object| take(&mut index, object));
    index
}

/// A Gateway `edge` with these listeners, its EdgeGateway, the servers, and more.
fn resolve(listeners: Value, more: &[Value]) -> Resolution {
    let gateway = a_gateway("edge", listeners);
    let mut all = vec![of_packrat(), edge_of(&gateway), gateway];
    all.extend(servers());
    all.extend(more.iter().cloned());
    index(&all).resolve()
}

fn served(resolution: &Resolution, port: u16) -> Option<(String, Vec<String>)> {
    let listener = resolution.gateways[&key("app", "edge")].listeners.get(&port)?;
    Some((listener.route(), listener.endpoints.iter().map(ToString::to_string).collect()))
}

/// Conditions `Accepted` and `ResolvedRefs` of a route's only parent: status, reason.
fn told(resolution: &Resolution, namespace: &str, name: &str) -> [(bool, &'static str); 2] {
    let state = &resolution.attachments.routes[&key(namespace, name)];
    assert_eq!(state.parents.len(), 1);
    [&state.parents[0].accepted, &state.parents[0].resolved]
        .map(|finding| (finding.status.unwrap(), finding.reason))
}

const GOOD: [(bool, &str); 2] = [(true, "Accepted"), (true, "ResolvedRefs")];

#[test]
fn a_udp_route_has_the_listener_that_it_names() {
    let listeners = json!([listener("quic", 443, json!({})), listener("game", 7000, json!({}))]);
    let to_web = json!([{ "name": "web", "port": 8443 }]);
    for (parent, ports) in [
        (json!({ "name": "edge" }), &[443, 7000][..]),
        (json!({ "name": "edge", "sectionName": "quic" }), &[443]),
        (json!({ "name": "edge", "port": 7000 }), &[7000]),
        (
            json!({ "name": "edge", "namespace": "app", "group": GROUP, "kind": "Gateway", "sectionName": "quic", "port": 443 }),
            &[443],
        ),
    ] {
        let resolution =
            resolve(listeners.clone(), &[route("app", "web", 0, parent.clone(), to_web.clone())]);
        for port in [443, 7000] {
            let expected = ports
                .contains(&port)
                .then(|| (format!("app/web.udproute/{port}"), vec!["10.0.0.1:1443".to_owned()]));
            assert_eq!(served(&resolution, port), expected, "{parent}");
        }
        assert_eq!(told(&resolution, "app", "web"), GOOD);
        // Both are in front of the gateways, with or without a route.
        assert_eq!(resolution.gateways[&key("app", "edge")].ports, [443, 7000].into());
    }
    // One Service behind several listeners, without any annotation of it.
    let resolution =
        resolve(listeners, &[route("app", "web", 0, json!({ "name": "edge" }), to_web)]);
    assert!(resolution.services.is_empty(), "a Service that has no annotation is told nothing");
}

#[test]
fn a_route_without_a_listener_is_told_why() {
    let to_web = || json!([{ "name": "web", "port": 8443 }]);
    let from = |from: &str| json!({ "namespaces": { "from": from } });
    let labelled = json!({ "namespaces": { "from": "Selector", "selector": {
        "matchLabels": { "team": "shop" },
        "matchExpressions": [{ "key": "stage", "operator": "NotIn", "values": ["test"] }],
    }}});
    let namespaces = [
        namespace("shop", json!({ "team": "shop" })),
        namespace("shop-test", json!({ "team": "shop", "stage": "test" })),
        namespace("other", json!({})),
    ];
    let from_all = ["shop", "shop-test", "other"]
        .map(|name| json!({ "group": GROUP, "kind": "UDPRoute", "namespace": name }));
    let grant = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ReferenceGrant", "metadata": { "namespace": "app", "name": "all" },
        "spec": {
            "from": from_all,
            "to": [{ "group": "", "kind": "Service" }],
        },
    });
    let tcp = json!({ "kinds": [{ "kind": "TCPRoute" }] });
    for (allowed, of, section, expected) in [
        (json!({}), "app", "quic", (true, "Accepted")),
        (json!({}), "app", "quick", (false, "NoMatchingParent")),
        (json!({}), "shop", "quic", (false, "NotAllowedByListeners")),
        (from("Same"), "shop", "quic", (false, "NotAllowedByListeners")),
        (from("All"), "shop", "quic", (true, "Accepted")),
        (from("None"), "app", "quic", (false, "NotAllowedByListeners")),
        (labelled.clone(), "shop", "quic", (true, "Accepted")),
        (labelled.clone(), "shop-test", "quic", (false, "NotAllowedByListeners")),
        (labelled.clone(), "other", "quic", (false, "NotAllowedByListeners")),
        (labelled, "unknown", "quic", (false, "NotAllowedByListeners")),
        (tcp, "app", "quic", (false, "NotAllowedByListeners")),
        (
            json!({ "kinds": [{ "group": GROUP, "kind": "UDPRoute" }] }),
            "app",
            "quic",
            (true, "Accepted"),
        ),
    ] {
        let parent = json!({ "name": "edge", "namespace": "app", "sectionName": section });
        let services = json!([{ "name": "web", "namespace": "app", "port": 8443 }]);
        let mut more = vec![grant.clone(), route(of, "web", 0, parent, services)];
        more.extend(namespaces.clone());
        let resolution = resolve(json!([listener("quic", 443, allowed.clone())]), &more);
        assert_eq!(told(&resolution, of, "web")[0], expected, "{allowed} {of} {section}");
        assert_eq!(served(&resolution, 443).is_some(), expected.0, "{allowed} {of} {section}");
    }

    // The older one has a free listener that two want, whatever their order.
    let resolution = resolve(
        json!([listener("quic", 443, json!({}))]),
        &[
            route("app", "a", 9, json!({ "name": "edge" }), to_web()),
            route("app", "b", 1, json!({ "name": "edge" }), to_web()),
        ],
    );
    assert_eq!(served(&resolution, 443).unwrap().0, "app/b.udproute/443");
    assert_eq!(told(&resolution, "app", "b"), GOOD);
    assert_eq!(told(&resolution, "app", "a"), GOOD);
    let waits = &resolution.attachments.routes[&key("app", "a")].parents[0];
    assert_eq!(waits.waits_for, Some(key("app", "b.udproute")));
    assert!(waits.accepted.message.contains("older UDPRoute app/b"), "{}", waits.accepted.message);
    assert_eq!(resolution.attachments.routes[&key("app", "b")].parents[0].waits_for, None);
}

#[test]
fn destinations_that_do_not_exist_or_may_not_be_named_are_told_and_get_nothing() {
    let parent = || json!({ "name": "edge", "namespace": "app" });
    let listeners = || json!([listener("quic", 443, json!({ "namespaces": { "from": "All" } }))]);
    let grant = |from: &str, name: Value| {
        json!({
            "apiVersion": format!("{GROUP}/v1beta1"), "kind": "ReferenceGrant",
            "metadata": { "namespace": "app", "name": "grant" },
            "spec": {
                "from": [{ "group": GROUP, "kind": "UDPRoute", "namespace": from }],
                "to": [{ "group": "", "kind": "Service", "name": name }],
            },
        })
    };
    for (of, reference, grant, expected) in [
        ("app", json!({ "name": "web", "port": 8443 }), None, (true, "ResolvedRefs")),
        ("app", json!({ "name": "gone", "port": 8443 }), None, (false, "BackendNotFound")),
        ("app", json!({ "name": "web", "port": 8444 }), None, (false, "BackendNotFound")),
        ("app", json!({ "name": "web" }), None, (false, "BackendNotFound")),
        (
            "app",
            json!({ "name": "web", "port": 8443, "kind": "Pod" }),
            None,
            (false, "InvalidKind"),
        ),
        (
            "app",
            json!({ "name": "web", "port": 8443, "group": "apps" }),
            None,
            (false, "InvalidKind"),
        ),
        (
            "shop",
            json!({ "name": "web", "namespace": "app", "port": 8443 }),
            None,
            (false, "RefNotPermitted"),
        ),
        (
            "shop",
            json!({ "name": "web", "namespace": "app", "port": 8443 }),
            Some(grant("shop", Value::Null)),
            (true, "ResolvedRefs"),
        ),
        (
            "shop",
            json!({ "name": "web", "namespace": "app", "port": 8443 }),
            Some(grant("shop", json!("web"))),
            (true, "ResolvedRefs"),
        ),
        (
            "shop",
            json!({ "name": "web", "namespace": "app", "port": 8443 }),
            Some(grant("shop", json!("other"))),
            (false, "RefNotPermitted"),
        ),
        (
            "shop",
            json!({ "name": "web", "namespace": "app", "port": 8443 }),
            Some(grant("games", Value::Null)),
            (false, "RefNotPermitted"),
        ),
    ] {
        let mut more = vec![route(of, "web", 0, parent(), json!([reference.clone()]))];
        more.extend(grant);
        let resolution = resolve(listeners(), &more);
        assert_eq!(told(&resolution, of, "web"), [(true, "Accepted"), expected], "{reference}");
        let endpoints = served(&resolution, 443).unwrap().1;
        assert_eq!(endpoints.is_empty(), !expected.0, "{reference}");
    }
}

#[test]
fn clients_are_shared_by_weight() {
    let shares = |services: Value| {
        let more = [route("app", "web", 0, json!({ "name": "edge" }), services)];
        let resolution = resolve(json!([listener("quic", 443, json!({}))]), &more);
        let listener = resolution.gateways[&key("app", "edge")].listeners[&443].clone();
        let weights = listener.shares.weights.values().copied().collect::<Vec<_>>();
        (listener.endpoints.len(), weights, listener.shares.refused)
    };
    let to = |name: &str, weight: u32| json!({ "name": name, "port": 8443, "weight": weight });
    // A destination's weight is that of all its endpoints together.
    assert_eq!(shares(json!([to("web", 9), to("canary", 1)])), (3, vec![9.0, 0.5, 0.5], 0.0));
    assert_eq!(shares(json!([to("web", 1), to("canary", 2)])), (3, vec![], 0.0), "all the same");
    assert_eq!(shares(json!([to("web", 1), to("canary", 0)])), (1, vec![], 0.0));
    assert_eq!(shares(json!([{ "name": "canary", "port": 8443 }])), (2, vec![], 0.0));
    // The share of what does not exist is dropped.
    assert_eq!(shares(json!([to("web", 1), to("gone", 4)])), (1, vec![1.0], 4.0));
    assert_eq!(shares(json!([to("gone", 4)])), (0, vec![], 4.0));
}

#[test]
fn each_operator_serves_the_gateways_of_its_own_class_only() {
    let gateway = a_gateway("edge", json!([listener("quic", 443, json!({}))]));
    let to_web =
        route("app", "web", 0, json!({ "name": "edge" }), json!([{ "name": "web", "port": 8443 }]));
    let with = |controller: &str| {
        let mut all =
            vec![class("packrat", controller), edge_of(&gateway), gateway.clone(), to_web.clone()];
        all.extend(servers());
        all
    };
    let resolve = |objects: &[Value], own: &str| {
        let operator = Operator { class: own.to_owned(), identity: format!("system/{own}") };
        let mut index = Index::new("system", Policy::default()).of_operator(operator);
        objects.iter().for_each(|object| take(&mut index, object));
        index.resolve()
    };
    for (controller, own, is_own) in [
        ("packrat.dev/gateway-controller", "packrat", true),
        ("packrat.dev/gateway-controller", "blue", false),
        ("packrat.dev/gateway-controller/blue", "blue", true),
        ("packrat.dev/gateway-controller/blue", "packrat", false),
        ("example.org/gateway-controller", "packrat", false),
    ] {
        let attachments = resolve(&with(controller), own).attachments;
        let counts =
            (attachments.classes.len(), attachments.gateways.len(), attachments.routes.len());
        assert_eq!(counts, if is_own { (1, 1, 1) } else { (0, 0, 0) }, "{controller} {own}");
    }
    // Another controller's from now on: what was made for it goes. Another Packrat operator's: that
    // one takes it over.
    let abandoned = |controller: &str| resolve(&with(controller), "packrat").abandoned.len();
    assert_eq!(abandoned("example.org/gateway-controller"), 1);
    assert_eq!(abandoned("packrat.dev/gateway-controller/blue"), 0);
    assert_eq!(abandoned("packrat.dev/gateway-controller"), 0);
}

/// An annotation exposes a Service where a listener lets it.
#[test]
fn annotated_services_have_the_ports_of_listeners_only() {
    let resolve = |allowed: Value, port: u16, routes: &[Value]| {
        let gateway = a_gateway("edge", json!([listener("quic", 443, allowed)]));
        let annotations = [("assist", "enabled"), ("gateway", "edge")];
        let mut all = vec![
            of_packrat(),
            edge_of(&gateway),
            gateway,
            service("own", 0, &annotations, &[("quic", port)]),
            slice("own", "own-1", &[("quic", 1443)], &[("10.0.0.9", true)]),
        ];
        all.extend(servers());
        all.extend(routes.iter().cloned());
        let resolution = index(&all).resolve();
        let problems = resolution.services[&key("app", "own")].problems.clone();
        (served(&resolution, port).map(|(route, _)| route), problems)
    };
    let (route_of_own, problems) = resolve(json!({}), 443, &[]);
    assert_eq!((route_of_own.as_deref(), problems.len()), (Some("app/own/443"), 0));
    for (allowed, port, part) in [
        (json!({}), 444, "Gateway app/edge has no UDP listener at port 444"),
        (json!({ "namespaces": { "from": "None" } }), 443, "takes no routes of namespace app"),
    ] {
        let (route, problems) = resolve(allowed, port, &[]);
        assert_eq!((route, problems[0].reason), (None, Reason::NotAllowed));
        assert!(problems[0].message.contains(part), "{}", problems[0].message);
    }
    let to_web =
        route("app", "web", 0, json!({ "name": "edge" }), json!([{ "name": "web", "port": 8443 }]));
    let (route, problems) = resolve(json!({}), 443, &[to_web]);
    assert_eq!(route.as_deref(), Some("app/web.udproute/443"), "a free port is a UDPRoute's first");
    assert!(problems[0].message.contains("belongs to UDPRoute app/web"), "{}", problems[0].message);
}

/// The EdgeGateway of a Gateway, with these Services and UDPRoutes of namespace `app` served.
fn serving(gateway: &Value, listeners: &[(u16, &str)]) -> Value {
    let listeners = listeners.iter().map(|(port, service)| {
        json!({ "port": port, "service": format!("app/{service}"), "servicePort": port, "endpoints": 1 })
    });
    let mut edge = edge_of(gateway);
    edge["status"] = json!({ "listeners": listeners.collect::<Vec<_>>() });
    edge
}

/// A tenant who keeps an old, idle route and makes it refer to another tenant's listener must not
/// get that one's clients.
#[test]
fn a_listener_stays_with_the_route_that_is_served_there() {
    let all_namespaces = json!({ "namespaces": { "from": "All" } });
    let listeners = json!([
        listener("quic", 443, all_namespaces.clone()),
        listener("game", 7000, all_namespaces)
    ]);
    let of = |name: &str, second: u32, section: Option<&str>| {
        let parent = json!({ "name": "edge", "namespace": "app", "sectionName": section });
        route("app", name, second, parent, json!([{ "name": "web", "port": 8443 }]))
    };
    let resolve = |listeners: &Value, status: &[(u16, &str)], routes: &[Value]| {
        let gateway = a_gateway("edge", listeners.clone());
        let mut all = vec![of_packrat(), serving(&gateway, status), gateway];
        all.extend(servers());
        all.extend(routes.iter().cloned());
        index(&all).resolve()
    };
    let holder = |resolution: &Resolution, port: u16| served(resolution, port).unwrap().0;
    let both = [of("old", 0, Some("quic")), of("new", 59, Some("quic"))];
    let now = resolve(&listeners, &[(443, "new.udproute")], &both);
    assert_eq!(holder(&now, 443), "app/new.udproute/443");
    assert_eq!(told(&now, "app", "new"), GOOD);
    assert_eq!(told(&now, "app", "old"), GOOD);
    let waits = &now.attachments.routes[&key("app", "old")].parents[0];
    assert_eq!(waits.waits_for, Some(key("app", "new.udproute")));
    let message = &waits.accepted.message;
    assert!(message.contains("but UDPRoute app/new, which is served there, gets"), "{message}");
    // What is served at another port, is gone, or is a Service of that name has no claim to it.
    for status in [&[][..], &[(7000, "new.udproute")], &[(443, "gone.udproute")], &[(443, "new")]] {
        let resolution = resolve(&listeners, status, &both);
        assert_eq!(holder(&resolution, 443), "app/old.udproute/443", "{status:?}");
    }
    // One that names the listener twice is one.
    let mut twice = of("old", 0, Some("quic"));
    let by_port = json!({ "name": "edge", "namespace": "app", "port": 443 });
    twice["spec"]["parentRefs"].as_array_mut().unwrap().push(by_port);
    let resolution = resolve(&listeners, &[(443, "new.udproute")], &[twice, both[1].clone()]);
    let gateway = read_gateway(&a_gateway("edge", listeners.clone()));
    let state = &resolution.attachments.gateways[&key("app", "edge")];
    let status = status::gateway_status(&gateway, state, None, None, at(0));
    assert_eq!(status["listeners"][0]["attachedRoutes"], 2);
    // A route that wants all of them gets what is free, and no more.
    let greedy = [of("old", 0, None), of("new", 59, Some("quic"))];
    let resolution = resolve(&listeners, &[(443, "new.udproute")], &greedy);
    assert_eq!(holder(&resolution, 443), "app/new.udproute/443");
    assert_eq!(holder(&resolution, 7000), "app/old.udproute/7000");
    assert_eq!(told(&resolution, "app", "old"), GOOD);
    // Who leaves, or may not be there any more, loses it.
    let left = [of("old", 0, Some("quic")), of("new", 59, Some("game"))];
    let resolution = resolve(&listeners, &[(443, "new.udproute")], &left);
    assert_eq!(holder(&resolution, 443), "app/old.udproute/443");
    let parent = json!({ "name": "edge", "namespace": "app", "sectionName": "quic" });
    let of_shop = route("shop", "new", 59, parent, json!([{ "name": "web", "port": 8443 }]));
    let own_only = json!([listener("quic", 443, json!({}))]);
    let mut edge = serving(&a_gateway("edge", own_only.clone()), &[]);
    edge["status"]["listeners"] = json!([{ "port": 443, "service": "shop/new.udproute", "servicePort": 443, "endpoints": 1 }]);
    let resolve_shop = |listeners: &Value| {
        let mut all = vec![of_packrat(), edge.clone(), a_gateway("edge", listeners.clone())];
        all.extend([of("old", 0, Some("quic")), of_shop.clone()]);
        all.extend(servers());
        holder(&index(&all).resolve(), 443)
    };
    assert_eq!(resolve_shop(&listeners), "shop/new.udproute/443");
    assert_eq!(resolve_shop(&own_only), "app/old.udproute/443");
}

/// A new UDPRoute must not get the clients of an annotated Service, nor the other way round.
#[test]
fn a_port_stays_with_what_is_served_there_service_or_route() {
    let resolve = |status: &[(u16, &str)], assist: &str, of_route: u32, of_service: u32| {
        let gateway = a_gateway("edge", json!([listener("quic", 443, json!({}))]));
        let parent = json!({ "name": "edge" });
        let mut all = vec![
            of_packrat(),
            serving(&gateway, status),
            gateway,
            service(
                "own",
                of_service,
                &[("assist", assist), ("gateway", "edge")],
                &[("quic", 443)],
            ),
            slice("own", "own-1", &[("quic", 1443)], &[("10.0.0.9", true)]),
            route("app", "web", of_route, parent, json!([{ "name": "web", "port": 8443 }])),
        ];
        all.extend(servers());
        let resolution = index(&all).resolve();
        let is_accepted = told(&resolution, "app", "web")[0];
        let problems = resolution.services.get(&key("app", "own"));
        let problems = problems.map(|view| view.problems.clone()).unwrap_or_default();
        let waits = resolution.attachments.routes[&key("app", "web")].parents[0].waits_for.clone();
        (served(&resolution, 443).unwrap().0, is_accepted, problems, waits)
    };
    for (of_route, of_service) in [(0, 59), (59, 0)] {
        let (holder, accepted, problems, waits) =
            resolve(&[(443, "own")], "enabled", of_route, of_service);
        assert_eq!(holder, "app/own/443");
        assert_eq!(
            (accepted, problems.len(), waits),
            ((true, "Accepted"), 0, Some(key("app", "own")))
        );
        let (holder, accepted, problems, _) =
            resolve(&[(443, "web.udproute")], "enabled", of_route, of_service);
        assert_eq!(holder, "app/web.udproute/443");
        assert_eq!((accepted, problems[0].reason), ((true, "Accepted"), Reason::PortConflict));
        // A free one is the route's; so is one that the Service has given up.
        let (holder, ..) = resolve(&[], "enabled", of_route, of_service);
        assert_eq!(holder, "app/web.udproute/443");
        let (holder, accepted, ..) = resolve(&[(443, "own")], "disabled", of_route, of_service);
        assert_eq!((holder.as_str(), accepted), ("app/web.udproute/443", (true, "Accepted")));
    }
}

/// Nor does a UDPRoute get the port at which another tenant's live stream arrives.
#[test]
fn a_stream_keeps_its_port_when_a_route_asks_for_it() {
    let resolve = |stream: Option<u16>| {
        let gateway = a_gateway(
            "edge",
            json!([listener("tv", 7000, json!({})), listener("quic", 5004, json!({}))]),
        );
        let mut edge = serving(&gateway, &[(7000, "tv")]);
        edge["spec"]["multicast"]["enabled"] = true.into();
        edge["status"]["listeners"][0]["streamPort"] = json!(stream);
        let annotations =
            [("assist", "enabled"), ("gateway", "edge"), ("multicast", "0.0.0.0:5004")];
        let parent = json!({ "name": "edge", "sectionName": "quic" });
        let mut all = vec![
            of_packrat(),
            edge,
            gateway,
            service("tv", 0, &annotations, &[("rtp", 7000)]),
            slice("tv", "tv-1", &[("rtp", 7000)], &[("10.0.0.9", true)]),
            route("app", "web", 0, parent, json!([{ "name": "web", "port": 8443 }])),
        ];
        all.extend(servers());
        let resolution = index(&all).resolve();
        let listener = &resolution.gateways[&key("app", "edge")].listeners[&7000];
        (listener.stream_port(), served(&resolution, 5004).is_some())
    };
    assert_eq!(resolve(Some(5004)), (Some(5004), false));
    assert_eq!(resolve(None), (None, true), "a free one is the route's");
}

fn condition<'a>(conditions: &'a Value, type_: &str) -> (&'a str, &'a str) {
    let all = conditions.as_array().unwrap();
    let found = all.iter().find(|condition| condition["type"] == type_).unwrap();
    (found["status"].as_str().unwrap(), found["reason"].as_str().unwrap())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn the_status_of_a_gateway_follows_its_edge_gateway() {
    let mut gateway = a_gateway("edge", json!([listener("quic", 443, json!({}))]));
    let to_web =
        route("app", "web", 0, json!({ "name": "edge" }), json!([{ "name": "web", "port": 8443 }]));
    let written = |gateway: &Value, edge: Option<&Value>, second: i64| {
        let mut all = vec![of_packrat(), gateway.clone(), to_web.clone()];
        all.extend(edge.cloned());
        all.extend(servers());
        let index = index(&all);
        let state = &index.resolve().attachments.gateways[&key("app", "edge")];
        let edge = index.gateways().get(&key("app", "edge"));
        status::gateway_status(&read_gateway(gateway), state, edge, None, at(second))
    };
    let first = written(&gateway, None, 1);
    assert_eq!(condition(&first["conditions"], "Accepted"), ("True", "Accepted"));
    assert_eq!(condition(&first["conditions"], "Programmed"), ("False", "Pending"));
    assert_eq!(first["conditions"][0]["observedGeneration"], 4);
    let of_listener = &first["listeners"][0];
    assert_eq!(of_listener["attachedRoutes"], 1);
    assert_eq!(of_listener["supportedKinds"], json!([{ "group": GROUP, "kind": "UDPRoute" }]));
    for (type_, expected) in [
        ("Accepted", ("True", "Accepted")),
        ("ResolvedRefs", ("True", "ResolvedRefs")),
        ("Conflicted", ("False", "NoConflicts")),
        ("Programmed", ("False", "Pending")),
    ] {
        assert_eq!(condition(&of_listener["conditions"], type_), expected, "{type_}");
    }

    gateway["status"] = first;
    let mut edge = edge_of(&gateway);
    let condition_of = |type_: &str, status: &str| json!({ "type": type_, "status": status, "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    edge["status"] = json!({
        "observedGeneration": 1, "conditions": [condition_of("Accepted", "True"), condition_of("Programmed", "True")],
    });
    let without_address = written(&gateway, Some(&edge), 2);
    assert_eq!(
        condition(&without_address["conditions"], "Programmed"),
        ("False", "AddressNotAssigned")
    );
    edge["status"]["addresses"] = json!(["192.0.2.1", "lb.example"]);
    let complete = written(&gateway, Some(&edge), 3);
    assert_eq!(condition(&complete["conditions"], "Programmed"), ("True", "Programmed"));
    let addresses = json!([
        { "type": "IPAddress", "value": "192.0.2.1" },
        { "type": "Hostname", "value": "lb.example" },
    ]);
    assert_eq!(complete["addresses"], addresses);
    assert_eq!(
        condition(&complete["listeners"][0]["conditions"], "Programmed"),
        ("True", "Programmed")
    );
    // A condition that stays as it is keeps its time, another one has a new one.
    let time = |type_: &str| {
        let all = complete["conditions"].as_array().unwrap();
        let found = all.iter().find(|condition| condition["type"] == type_).unwrap();
        found["lastTransitionTime"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (time("Accepted"), time("Programmed")),
        ("1970-01-01T00:00:01Z".to_owned(), "1970-01-01T00:00:03Z".to_owned())
    );
    // A spec that has not been taken up yet, and one that the API server refuses.
    edge["metadata"]["generation"] = 2.into();
    assert_eq!(
        condition(&written(&gateway, Some(&edge), 4)["conditions"], "Programmed"),
        ("False", "Pending")
    );
    edge["metadata"]["generation"] = 1.into();
    edge["status"]["conditions"][0]["status"] = "False".into();
    assert_eq!(
        condition(&written(&gateway, Some(&edge), 4)["conditions"], "Programmed"),
        ("False", "NoResources")
    );
}

/// It has nothing to do with the Gateway of that name.
#[test]
fn an_edge_gateway_of_someone_else_is_left_alone() {
    let gateway = a_gateway("edge", json!([listener("quic", 443, json!({}))]));
    let mut edge = edge_of(&gateway);
    edge["metadata"]["ownerReferences"] = json!([]);
    let to_web =
        route("app", "web", 0, json!({ "name": "edge" }), json!([{ "name": "web", "port": 8443 }]));
    let mut all = vec![of_packrat(), edge, gateway.clone(), to_web];
    all.extend(servers());
    let index = index(&all);
    let resolution = index.resolve();
    assert_eq!(served(&resolution, 443), None);
    let state = &resolution.attachments.gateways[&key("app", "edge")];
    let edge = index.gateways().get(&key("app", "edge"));
    let status = status::gateway_status(&read_gateway(&gateway), state, edge, None, at(1));
    assert_eq!(condition(&status["conditions"], "Programmed"), ("False", "Invalid"));
}

#[test]
fn listeners_that_cannot_be_served_are_told_apart() {
    let kinds = |kind: &str| json!({ "kinds": [{ "kind": kind }] });
    let tcp = json!({ "name": "tcp", "port": 443, "protocol": "TCP" });
    let resolution = resolve(
        json!([
            listener("good", 443, json!({})),
            tcp,
            listener("metrics", 9902, json!({})),
            listener("one", 7000, json!({})),
            listener("two", 7000, json!({})),
            listener("kinds", 7001, kinds("TCPRoute")),
            listener(
                "both",
                7002,
                json!({ "kinds": [{ "kind": "TCPRoute" }, { "kind": "UDPRoute" }] })
            ),
        ]),
        &[],
    );
    let state = &resolution.attachments.gateways[&key("app", "edge")];
    let found: Vec<_> = state
        .listeners
        .iter()
        .map(|listener| {
            let reasons = [&listener.accepted, &listener.conflicted, &listener.resolved];
            (
                listener.name.as_str(),
                reasons.map(|finding| finding.reason),
                listener.takes_udp_routes,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("good", ["Accepted", "NoConflicts", "ResolvedRefs"], true),
            ("tcp", ["UnsupportedProtocol", "NoConflicts", "ResolvedRefs"], false),
            ("metrics", ["PortUnavailable", "NoConflicts", "ResolvedRefs"], true),
            ("one", ["HostnameConflict", "HostnameConflict", "ResolvedRefs"], true),
            ("two", ["HostnameConflict", "HostnameConflict", "ResolvedRefs"], true),
            ("kinds", ["Accepted", "NoConflicts", "InvalidRouteKinds"], false),
            ("both", ["Accepted", "NoConflicts", "InvalidRouteKinds"], true),
        ]
    );
    assert_eq!((state.accepted.status, state.accepted.reason), (Some(true), "ListenersNotValid"));
    assert_eq!(resolution.gateways[&key("app", "edge")].ports, [443, 7001, 7002].into());

    // None is left, an address is asked for, and parameters that do not exist.
    let accepted = |change: &dyn Fn(&mut Value)| {
        let mut gateway = a_gateway("edge", json!([listener("quic", 443, json!({}))]));
        change(&mut gateway);
        let state = index(&[of_packrat(), gateway]).resolve().attachments.gateways
            [&key("app", "edge")]
            .clone();
        assert_eq!(state.spec.is_some(), state.accepted.status == Some(true));
        state.accepted.reason
    };
    assert_eq!(accepted(&|_| ()), "Accepted");
    assert_eq!(
        accepted(&|gateway| gateway["spec"]["listeners"][0]["protocol"] = "TLS".into()),
        "ListenersNotValid"
    );
    assert_eq!(
        accepted(&|gateway| gateway["spec"]["addresses"] = json!([{ "value": "192.0.2.1" }])),
        "UnsupportedAddress"
    );
    let reference = json!({ "parametersRef": { "group": "packrat.dev", "kind": "GatewayParameters", "name": "gone" } });
    assert_eq!(
        accepted(&|gateway| gateway["spec"]["infrastructure"] = reference.clone()),
        "InvalidParameters"
    );
}

/// A route may be attached to Gateways of several controllers.
#[test]
fn what_other_controllers_say_about_a_route_stays() {
    use packrat_operator::gateway_api::objects::Read as _;
    let mut to_web =
        route("app", "web", 0, json!({ "name": "edge" }), json!([{ "name": "web", "port": 8443 }]));
    let other = json!({ "parentRef": { "name": "theirs" }, "controllerName": "example.org/other", "conditions": [] });
    to_web["status"] = json!({ "parents": [other.clone()] });
    let read =
        |route: &Value| UdpRoute::read(&serde_json::from_value(route.clone()).unwrap()).unwrap();
    let listeners = json!([listener("quic", 443, json!({}))]);
    let controller = controller_name("packrat");
    let resolution = resolve(listeners.clone(), &[to_web.clone()]);
    let state = &resolution.attachments.routes[&key("app", "web")];
    let status = status::route_status(&read(&to_web), state, &controller, |_| None, at(1));
    assert_eq!(status["parents"].as_array().unwrap().len(), 2);
    assert_eq!(status["parents"][0], other);
    let own = &status["parents"][1];
    assert_eq!(
        (&own["controllerName"], &own["parentRef"]),
        (&json!(controller), &json!({ "name": "edge" }))
    );
    assert_eq!(own["conditions"][0]["observedGeneration"], 2);
    // It has left: only our entry goes.
    to_web["status"] = status;
    to_web["spec"]["parentRefs"] = json!([{ "name": "theirs" }]);
    let resolution = resolve(listeners, &[to_web.clone()]);
    let state = &resolution.attachments.routes[&key("app", "web")];
    let status = status::route_status(&read(&to_web), state, &controller, |_| None, at(2));
    assert_eq!(status["parents"], json!([other]));
}

/// A PackratPolicy of namespace `app`.
fn policy(name: &str, second: u32, target: Value, defaults: Value, overrides: Value) -> Value {
    json!({
        "apiVersion": "packrat.dev/v1alpha1", "kind": "PackratPolicy",
        "metadata": {
            "namespace": "app", "name": name, "generation": 5,
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        },
        "spec": { "targetRefs": [target], "defaults": defaults, "overrides": overrides },
    })
}

fn target(kind: &str, name: &str, section: Option<&str>) -> Value {
    json!({ "group": GROUP, "kind": kind, "name": name, "sectionName": section })
}

fn budget(percent: u32) -> Value {
    json!({ "repair": { "budgetPercent": percent } })
}

#[test]
fn of_defaults_the_most_specific_wins_and_of_overrides_the_least_specific() {
    let layers = [
        target("Gateway", "edge", None),
        target("Gateway", "edge", Some("quic")),
        target("UDPRoute", "web", None),
    ];
    let in_force = |policies: &[Value]| {
        let mut more = vec![route(
            "app",
            "web",
            0,
            json!({ "name": "edge", "sectionName": "quic" }),
            json!([{ "name": "web", "port": 8443 }]),
        )];
        more.extend(policies.iter().cloned());
        let listeners =
            json!([listener("quic", 443, json!({})), listener("game", 7000, json!({}))]);
        let resolution = resolve(listeners, &more);
        let view = &resolution.gateways[&key("app", "edge")];
        view.listeners[&443].overrides.repair_budget_percent
    };
    let of = |layer: usize, defaults: Option<u32>, overrides: Option<u32>| {
        let settings = |percent: Option<u32>| percent.map_or(json!({}), budget);
        policy(
            &format!("p{layer}"),
            0,
            layers[layer].clone(),
            settings(defaults),
            settings(overrides),
        )
    };
    // Gateway, listener, route: what each has as default and as override; what is in force.
    type Said = (Option<u32>, Option<u32>);
    const NOTHING: Said = (None, None);
    let cases: [([Said; 3], Option<u32>); 8] = [
        ([NOTHING, NOTHING, NOTHING], None),
        ([(Some(1), None), NOTHING, NOTHING], Some(1)),
        ([(Some(1), None), (Some(2), None), NOTHING], Some(2)),
        ([(Some(1), None), (Some(2), None), (Some(3), None)], Some(3)),
        ([(None, Some(4)), (None, Some(5)), (None, Some(6))], Some(4)),
        ([NOTHING, (None, Some(5)), (None, Some(6))], Some(5)),
        ([(Some(1), None), NOTHING, (Some(3), Some(6))], Some(6)),
        ([(None, Some(4)), NOTHING, (Some(3), None)], Some(4)),
    ];
    for (said, expected) in cases {
        let policies: Vec<_> = said
            .into_iter()
            .enumerate()
            .map(|(layer, (defaults, overrides))| of(layer, defaults, overrides))
            .collect();
        assert_eq!(in_force(&policies), expected, "{said:?}");
    }
    // Another listener's, and more than the EdgeGateway has.
    let of_game = policy("game", 0, target("Gateway", "edge", Some("game")), budget(7), json!({}));
    assert_eq!(in_force(&[of_game]), None);
    assert_eq!(in_force(&[of(2, Some(1000), None)]), Some(25));
}

#[test]
fn annotations_are_between_the_defaults_and_the_overrides_of_policies() {
    let resolve = |defaults: Value, overrides: Value| {
        let gateway = a_gateway("edge", json!([listener("quic", 443, json!({}))]));
        let annotations =
            [("assist", "enabled"), ("gateway", "edge"), ("config.repair-budget-percent", "10")];
        let resolution = index(&[
            of_packrat(),
            edge_of(&gateway),
            gateway,
            service("own", 0, &annotations, &[("quic", 443)]),
            slice("own", "own-1", &[("quic", 1443)], &[("10.0.0.9", true)]),
            policy("p", 0, target("Gateway", "edge", None), defaults, overrides),
        ])
        .resolve();
        let overrides = resolution.gateways[&key("app", "edge")].listeners[&443].overrides.clone();
        let is_off = resolution.services[&key("app", "own")].is_off;
        (overrides.repair_budget_percent, overrides.idle_timeout_seconds, is_off)
    };
    let both =
        json!({ "repair": { "budgetPercent": 5 }, "sessions": { "idleTimeoutSeconds": 30 } });
    assert_eq!(resolve(json!({}), json!({})), (Some(10), None, false));
    assert_eq!(resolve(both.clone(), json!({})), (Some(10), Some(30), false));
    assert_eq!(resolve(json!({}), both), (Some(5), Some(30), false));
    assert_eq!(resolve(json!({}), json!({ "assist": false })), (Some(10), None, true));
}

#[test]
fn a_policy_is_told_whether_it_is_in_force() {
    let more = [
        route("app", "web", 0, json!({ "name": "edge" }), json!([{ "name": "web", "port": 8443 }])),
        policy("old", 0, target("Gateway", "edge", None), budget(1), json!({})),
        policy("new", 1, target("Gateway", "edge", None), budget(2), json!({})),
        policy("gone", 0, target("Gateway", "gone", None), budget(2), json!({})),
        policy("section", 0, target("Gateway", "edge", Some("gone")), budget(2), json!({})),
        policy("wrong", 0, target("UDPRoute", "web", None), budget(1001), json!({})),
        policy("theirs", 0, target("Gateway", "theirs", None), budget(2), json!({})),
        a_gateway_of("theirs", "other"),
        class("other", "example.org/other"),
    ];
    let resolution = resolve(json!([listener("quic", 443, json!({}))]), &more);
    let told: Vec<_> = resolution
        .policies
        .ancestors
        .iter()
        .map(|(key, ancestors)| {
            let (reference, accepted) = &ancestors[0];
            (key.name.as_str(), reference.kind.as_deref().unwrap(), accepted.reason)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("gone", "Gateway", "TargetNotFound"),
            ("new", "Gateway", "Conflicted"),
            ("old", "Gateway", "Accepted"),
            ("section", "Gateway", "TargetNotFound"),
            ("wrong", "UDPRoute", "Invalid"),
        ]
    );
    let found = resolution.gateways[&key("app", "edge")].listeners[&443].overrides.clone();
    assert_eq!(found.repair_budget_percent, Some(1), "what is wrong or refused changes nothing");
}

fn a_gateway_of(name: &str, class: &str) -> Value {
    let mut gateway = a_gateway(name, json!([listener("quic", 443, json!({}))]));
    gateway["spec"]["gatewayClassName"] = class.into();
    gateway
}

/// Assistance that has stopped by itself is said of the route that it concerns, and of the Gateway.
#[test]
fn assistance_that_has_stopped_by_itself_is_told_at_gateway_and_route() {
    let gateway = a_gateway(
        "edge",
        json!([listener("quic", 443, json!({})), listener("game", 7000, json!({}))]),
    );
    let mut edge = edge_of(&gateway);
    let to = |section: &str| json!({ "name": "edge", "sectionName": section });
    let web = json!([{ "name": "web", "port": 8443 }]);
    let routes = [
        route("app", "web", 0, to("quic"), web.clone()),
        route("app", "game", 1, to("game"), web.clone()),
        route("app", "late", 2, to("game"), web),
    ];
    let message = "UDP port 443: assistance has stopped";
    edge["status"] = json!({
        "readyGateways": 3,
        "listeners": [
            { "port": 443, "service": "app/web.udproute", "servicePort": 443, "endpoints": 1, "stoppedGateways": 2 },
            { "port": 7000, "service": "app/game.udproute", "servicePort": 7000, "endpoints": 1 },
        ],
        "conditions": [{
            "type": "Assisting", "status": "False", "reason": "AssistanceStopped", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    });
    let told = |edge: &Value| {
        let mut all = vec![of_packrat(), edge.clone(), gateway.clone()];
        all.extend(servers());
        all.extend(routes.iter().cloned());
        let index = index(&all);
        let attachments = index.resolve().attachments;
        let of_route = |name: &str| {
            let state = &attachments.routes[&key("app", name)];
            let edges = index.gateways();
            status::route_assisting(&key("app", name), &state.parents[0], &attachments, edges)
        };
        let whole = status::gateway_status(
            &read_gateway(&gateway),
            &attachments.gateways[&key("app", "edge")],
            index.gateways().get(&key("app", "edge")),
            None,
            at(1),
        );
        (whole["conditions"].clone(), ["web", "game", "late"].map(of_route))
    };
    let (of_gateway, [web, game, late]) = told(&edge);
    assert_eq!(condition(&of_gateway, "packrat.dev/Assisting"), ("False", "AssistanceStopped"));
    assert!(of_gateway.to_string().contains(message));
    let web = web.unwrap();
    assert_eq!((web.type_, web.status), ("packrat.dev/Assisting", Some(false)));
    assert!(web.message.contains("stopped by itself on 2 of 3 gateways"), "{}", web.message);
    assert_eq!(game.map(|game| game.status), Some(Some(true)));
    assert_eq!(late, None, "it has no listener");
    edge["status"]["conditions"][0]["reason"] = "SwitchedOff".into();
    let [web, game, late] = told(&edge).1.map(|found| found.map(|finding| finding.reason));
    assert_eq!([web, game, late], [Some("SwitchedOff"), Some("SwitchedOff"), None]);
    // An operator of an earlier version has left no such condition.
    edge["status"]["conditions"] = json!([]);
    let (of_gateway, routes) = told(&edge);
    assert!(!of_gateway.to_string().contains("Assisting"), "{of_gateway}");
    assert_eq!(routes, [None, None, None]);
}

/// GatewayParameters `name` of a namespace.
fn parameters(namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "packrat.dev/v1alpha1", "kind": "GatewayParameters",
        "metadata": { "namespace": namespace, "name": name }, "spec": spec,
    })
}

/// A Gateway's author does not become more than the class lets its Gateways be.
#[test]
fn a_gateways_own_parameters_lower_what_its_class_has_and_no_more() {
    let reference = |namespace: Option<&str>, name: &str| json!({ "group": "packrat.dev", "kind": "GatewayParameters", "namespace": namespace, "name": name });
    let state_with = |of_class: Option<&Value>, own: &Value| {
        let mut class = of_packrat();
        let mut gateway = a_gateway("edge", json!([listener("quic", 443, json!({}))]));
        gateway["spec"]["infrastructure"] = json!({ "parametersRef": reference(None, "own") });
        let mut all = vec![parameters("app", "own", own.clone())];
        if let Some(spec) = of_class {
            class["spec"]["parametersRef"] = reference(Some("packrat-system"), "of-class");
            if !spec.is_null() {
                all.push(parameters("packrat-system", "of-class", spec.clone()));
            }
        }
        all.extend([class, gateway]);
        index(&all).resolve().attachments.gateways[&key("app", "edge")].clone()
    };
    let spec_with = |of_class: Option<&Value>, own: &Value| {
        let state = state_with(of_class, own);
        assert_eq!(state.accepted.status, Some(true), "{}", state.accepted.message);
        (*state.spec.unwrap(), state.accepted.message)
    };
    let as_parameters = |spec: &Value| {
        let parameters: GatewayParametersSpec = serde_json::from_value(spec.clone()).unwrap();
        parameters.edge_gateway("packrat")
    };
    let limits = json!({
        "cacheBytesPerSession": "4Gi", "cacheBytesTotal": "1000000Gi", "repairBudgetPercent": 1000,
        "residualLossPerMillion": 1, "idleTimeoutSeconds": 86400, "maximumSessions": 10_000_000,
        "sessionsPerSource": 10_000_000, "handshakesPerSecondPerSource": 10_000_000,
        "sparseCopies": true, "weakerTokens": true,
    });
    let greedy = json!({
        "cache": { "bytesPerSession": "2Gi", "bytesTotal": "100000Gi" },
        "repair": { "budgetPercent": 1000, "sparseCopies": true },
        "lastMile": { "residualLossPerMillion": 1 },
        "sessions": {
            "idleTimeoutSeconds": 86400, "maximum": 10_000_000, "perSource": 10_000_000,
            "handshakesPerSecondPerSource": 10_000_000,
        },
        "tokens": { "policy": "Off" }, "limits": limits, "endpoints": "Any",
        "envoy": { "image": "example.org/theirs:1" }, "exposure": { "type": "HostNetwork" },
        "multicast": { "enabled": true },
    });
    let class = json!({
        "assist": false, "exposure": { "type": "NodePort" }, "cache": { "bytesTotal": "64Mi" },
        "tokens": { "policy": "Required", "tls": { "secretName": "tls" } },
        "limits": { "maximumSessions": 200_000 },
    });
    let (spec, message) = spec_with(Some(&class), &greedy);
    let mut expected = as_parameters(&class);
    // What only lowers, or was not asked for, is the Gateway's own.
    expected.sessions.maximum = 200_000;
    expected.limits = spec.limits.clone();
    expected.workload = spec.workload.clone();
    expected.exposure = spec.exposure.clone();
    assert_eq!(spec, expected);
    assert_eq!(spec.exposure.type_, packrat_operator::resource::ExposureType::NodePort);
    let most = &spec.limits;
    assert_eq!(
        (most.cache_bytes_per_session.as_deref(), most.cache_bytes_total.as_deref()),
        (Some("1Mi"), Some("64Mi"))
    );
    assert_eq!((most.maximum_sessions, most.repair_budget_percent), (Some(200_000), Some(25)));
    assert!(!most.sparse_copies && !most.weaker_tokens, "{most:?}");
    for part in [
        "tokens.policy off (required is used)",
        "cache.bytesTotal 107374182400000 (67108864 is used)",
        "limits: cache.bytesTotal 1073741824000000 (67108864 is used)",
        "endpoints Any (Pods is used)",
        "envoy.image example.org/theirs:1",
        "exposure.type HostNetwork (NodePort is used)",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }

    // What the class has or allows a Gateway may have, and less.
    let mut generous = greedy.clone();
    generous["tokens"] = json!({ "policy": "Off" });
    let (spec, message) = spec_with(Some(&generous), &greedy);
    assert_eq!(spec.limits, as_parameters(&greedy).limits);
    assert_eq!(spec.cache, as_parameters(&greedy).cache);
    assert_eq!(message, "all listeners can be served");
    // The class demands tokens: those of a Gateway are no weaker.
    let strict = json!({ "tokens": {
        "policy": "Optional", "tls": { "secretName": "tls" }, "bindToNetwork": true, "lifetimeSeconds": 60,
    }});
    let own = json!({ "tokens": { "policy": "Required", "tls": { "secretName": "own" } } });
    let (spec, message) = spec_with(Some(&strict), &own);
    let tokens = &spec.tokens;
    assert_eq!(tokens.policy, packrat_api::token::TokenPolicy::Required, "a stricter policy stays");
    assert_eq!((tokens.lifetime_seconds, tokens.bind_to_network), (60, true));
    assert_eq!(tokens.tls.as_ref().unwrap().secret_name, "own");
    assert!(message.contains("tokens.lifetimeSeconds 300 (60 is used)"), "{message}");
    let modest = json!({ "assist": false, "cache": { "bytesTotal": "2Mi" }, "workload": { "replicas": 5 }, "tokens": class["tokens"] });
    let (spec, message) = spec_with(Some(&class), &modest);
    assert_eq!((spec.cache.bytes_total.as_str(), spec.workload.replicas), ("2Mi", 5));
    assert_eq!(message, "all listeners can be served");
    // A class without parameters limits nothing; one whose parameters are gone allows nothing.
    let (spec, _) = spec_with(None, &greedy);
    assert_eq!(spec.cache, as_parameters(&greedy).cache);
    let refused = state_with(Some(&Value::Null), &modest);
    assert_eq!((refused.accepted.reason, refused.spec), ("InvalidParameters", None));
}
