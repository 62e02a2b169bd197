//! Ports stay with the Service or the UDPRoute that is served there.

use packrat_operator::index::Resolution;
use packrat_operator::problem::Reason;
use packrat_operator::status::gateway_api as status;
use serde_json::{Value, json};

use super::super::{key, service, slice};
use super::{
    GOOD, a_gateway, at, edge_of, index, listener, of_packrat, quic_gateway, read_gateway, route,
    served, servers, told,
};

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
    // A route at another port, a route that is gone, and a Service of that name have no claim to
    // it.
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
    // A route that wants all listeners gets only the free ones.
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
        let gateway = quic_gateway();
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
