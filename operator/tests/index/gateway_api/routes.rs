//! Listeners of UDPRoutes, and the destinations of their datagrams.

use packrat_operator::index::{Index, Lingering, Operator};
use packrat_operator::policy::Policy;
use packrat_operator::problem::Reason;
use serde_json::{Value, json};

use super::super::{cases, key, service, slice, take};
use super::{
    GOOD, GROUP, a_gateway, class, edge_of, index, listener, namespace, of_packrat, quic_gateway,
    resolve, route, served, servers, to_web, told,
};

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
    for case in cases(include_str!("listeners.yaml")) {
        let [of, section, reason] =
            ["of", "section", "reason"].map(|field| case[field].as_str().unwrap());
        let expected = (reason == "Accepted", reason);
        let parent = json!({ "name": "edge", "namespace": "app", "sectionName": section });
        let services = json!([{ "name": "web", "namespace": "app", "port": 8443 }]);
        let mut more = vec![grant.clone(), route(of, "web", 0, parent, services)];
        more.extend(namespaces.clone());
        let resolution = resolve(json!([listener("quic", 443, case["allowed"].clone())]), &more);
        assert_eq!(told(&resolution, of, "web")[0], expected, "{case}");
        assert_eq!(served(&resolution, 443).is_some(), expected.0, "{case}");
    }
}

/// The older one has a free listener that two want, whatever their order.
#[test]
fn the_older_of_two_routes_has_a_free_listener() {
    let resolution =
        resolve(json!([listener("quic", 443, json!({}))]), &[to_web("a", 9), to_web("b", 1)]);
    assert_eq!(served(&resolution, 443).unwrap().0, "app/b.udproute/443");
    assert_eq!(told(&resolution, "app", "b"), GOOD);
    assert_eq!(told(&resolution, "app", "a"), GOOD);
    let waits = &resolution.attachments.routes[&key("app", "a")].parents[0];
    assert_eq!(waits.waits_for, Some(key("app", "b.udproute")));
    assert!(waits.accepted.message.contains("older UDPRoute app/b"), "{}", waits.accepted.message);
    assert_eq!(resolution.attachments.routes[&key("app", "b")].parents[0].waits_for, None);
}

#[test]
fn missing_and_forbidden_destinations_are_reported_and_unused() {
    let parent = json!({ "name": "edge", "namespace": "app" });
    let listeners = json!([listener("quic", 443, json!({ "namespaces": { "from": "All" } }))]);
    let grant = |allowed: &Value| {
        json!({
            "apiVersion": format!("{GROUP}/v1beta1"), "kind": "ReferenceGrant",
            "metadata": { "namespace": "app", "name": "grant" },
            "spec": {
                "from": [{ "group": GROUP, "kind": "UDPRoute", "namespace": allowed[0] }],
                "to": [{ "group": "", "kind": "Service", "name": allowed[1] }],
            },
        })
    };
    for case in cases(include_str!("destinations.yaml")) {
        let [of, reason] = ["of", "reason"].map(|field| case[field].as_str().unwrap());
        let expected = (reason == "ResolvedRefs", reason);
        let mut more = vec![route(of, "web", 0, parent.clone(), json!([case["to"]]))];
        more.extend(case["grant"].is_array().then(|| grant(&case["grant"])));
        let resolution = resolve(listeners.clone(), &more);
        assert_eq!(told(&resolution, of, "web"), [(true, "Accepted"), expected], "{case}");
        let endpoints = served(&resolution, 443).unwrap().1;
        assert_eq!(endpoints.is_empty(), !expected.0, "{case}");
    }
}

/// Sessions drain; no client that is new gets to the Pods of a namespace that has closed itself, or of a Service
/// that is gone.
#[test]
fn a_grant_that_is_revoked_lets_no_new_client_in() {
    let grant = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ReferenceGrant",
        "metadata": { "namespace": "app", "name": "grant" },
        "spec": {
            "from": [{ "group": GROUP, "kind": "UDPRoute", "namespace": "shop" }],
            "to": [{ "group": "", "kind": "Service" }],
        },
    });
    let to = |name: &str| json!({ "name": name, "namespace": "app", "port": 8443 });
    let of_route = |services: Value, without: &[&str]| {
        let gateway = a_gateway(
            "edge",
            json!([listener("quic", 443, json!({ "namespaces": { "from": "All" } }))]),
        );
        let parent = json!({ "name": "edge", "namespace": "app" });
        let mut all = vec![of_packrat(), edge_of(&gateway), gateway, grant.clone()];
        all.extend(servers());
        all.push(route("shop", "web", 0, parent, services));
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        all.retain(|object| !without.contains(&name(object).as_str()));
        index(&all).resolve()
    };
    let both = json!([to("web"), to("canary")]);
    for (without, expected) in [
        // A Service whose Pods are away for a moment takes clients.
        (&["web-1", "canary-1"][..], (3, false)),
        (&["grant"], (3, true)),
        (&["web-1", "canary"], (3, true)),
        // Others are served, and the closed one's Pods are endpoints no more.
        (&["canary"], (1, false)),
    ] {
        let mut lingering = Lingering::default();
        lingering.extend(&mut of_route(both.clone(), &[]), 0, |_| 60);
        let mut now = of_route(both.clone(), without);
        lingering.extend(&mut now, 1, |_| 60);
        let listener = &now.gateways[&key("app", "edge")].listeners[&443];
        assert_eq!((listener.endpoints.len(), listener.is_leaving), expected, "{without:?}");
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
    // A destination's weight is shared by all its endpoints.
    assert_eq!(shares(json!([to("web", 9), to("canary", 1)])), (3, vec![9.0, 0.5, 0.5], 0.0));
    assert_eq!(shares(json!([to("web", 1), to("canary", 2)])), (3, vec![], 0.0), "all the same");
    assert_eq!(shares(json!([to("web", 1), to("canary", 0)])), (1, vec![], 0.0));
    assert_eq!(shares(json!([{ "name": "canary", "port": 8443 }])), (2, vec![], 0.0));
    // The share of a missing Service is dropped.
    assert_eq!(shares(json!([to("web", 1), to("gone", 4)])), (1, vec![1.0], 4.0));
    assert_eq!(shares(json!([to("gone", 4)])), (0, vec![], 4.0));
}

#[test]
fn each_operator_serves_the_gateways_of_its_own_class_only() {
    let gateway = quic_gateway();
    let to_web = self::to_web("web", 0);
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
    // If the class is another controller's from now on, the objects made for it go. If it is
    // another Packrat operator's, that one takes them over.
    let abandoned = |controller: &str| resolve(&with(controller), "packrat").abandoned.len();
    assert_eq!(abandoned("example.org/gateway-controller"), 1);
    assert_eq!(abandoned("packrat.dev/gateway-controller/blue"), 0);
    assert_eq!(abandoned("packrat.dev/gateway-controller"), 0);
}

/// An annotation exposes a Service if a listener lets it.
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
    let to_web = self::to_web("web", 0);
    let (route, problems) = resolve(json!({}), 443, &[to_web]);
    assert_eq!(route.as_deref(), Some("app/web.udproute/443"), "a free port is a UDPRoute's first");
    assert!(problems[0].message.contains("belongs to UDPRoute app/web"), "{}", problems[0].message);
}
