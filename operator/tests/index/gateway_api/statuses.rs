//! Statuses of Gateways and UDPRoutes.

use packrat_operator::gateway_api::controller_name;
use packrat_operator::gateway_api::objects::UdpRoute;
use packrat_operator::status::gateway_api as status;
use serde_json::{Value, json};

use super::super::{cases, key};
use super::{
    GROUP, a_gateway, at, condition, edge_of, index, listener, of_packrat, quic_gateway,
    read_gateway, resolve, route, served, servers, to_web,
};

#[test]
fn the_status_of_a_gateway_follows_its_edge_gateway() {
    let mut gateway = quic_gateway();
    let to_web = self::to_web("web", 0);
    let written = |gateway: &Value, edge: Option<&Value>, second: i64| {
        let mut all = vec![of_packrat(), gateway.clone(), to_web.clone()];
        all.extend(edge.cloned());
        all.extend(servers());
        let index = index(&all);
        let state = &index.resolve().attachments.gateways[&key("app", "edge")];
        let edge = index.gateways.get(&key("app", "edge"));
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
    let assert_programmed = |edge: &Value, second: i64, status: &str, reason: &str| {
        let written = written(&gateway, Some(edge), second);
        assert_eq!(condition(&written["conditions"], "Programmed"), (status, reason));
        written
    };
    assert_programmed(&edge, 2, "False", "AddressNotAssigned");
    edge["status"]["addresses"] = json!(["192.0.2.1", "lb.example"]);
    let complete = assert_programmed(&edge, 3, "True", "Programmed");
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
    assert_programmed(&edge, 4, "False", "Pending");
    edge["metadata"]["generation"] = 1.into();
    edge["status"]["conditions"][0]["status"] = "False".into();
    assert_programmed(&edge, 4, "False", "NoResources");
}

/// The EdgeGateway is unrelated to the Gateway of that name.
#[test]
fn an_edge_gateway_of_someone_else_is_left_alone() {
    let gateway = quic_gateway();
    let mut edge = edge_of(&gateway);
    edge["metadata"]["ownerReferences"] = json!([]);
    let to_web = self::to_web("web", 0);
    let mut all = vec![of_packrat(), edge, gateway.clone(), to_web];
    all.extend(servers());
    let index = index(&all);
    let resolution = index.resolve();
    assert_eq!(served(&resolution, 443), None);
    let state = &resolution.attachments.gateways[&key("app", "edge")];
    let edge = index.gateways.get(&key("app", "edge"));
    let status = status::gateway_status(&read_gateway(&gateway), state, edge, None, at(1));
    assert_eq!(condition(&status["conditions"], "Programmed"), ("False", "Invalid"));
}

#[test]
fn listeners_that_cannot_be_served_are_told_apart() {
    let cases = cases(include_str!("unserved.yaml"));
    let listeners: Vec<_> = cases.iter().map(|case| case["listener"].clone()).collect();
    let resolution = resolve(json!(listeners), &[]);
    let state = &resolution.attachments.gateways[&key("app", "edge")];
    assert_eq!(state.listeners.len(), cases.len());
    for (found, case) in state.listeners.iter().zip(&cases) {
        let findings = [&found.accepted, &found.conflicted, &found.resolved];
        let said = json!([findings.map(|finding| finding.reason), found.takes_udp_routes]);
        assert_eq!(said, json!([case["reasons"], case["takes"]]), "{}", found.name);
    }
    assert_eq!((state.accepted.status, state.accepted.reason), (Some(true), "ListenersNotValid"));
    assert_eq!(resolution.gateways[&key("app", "edge")].ports, [443, 7001, 7002].into());
}

#[test]
fn gateways_that_cannot_be_served_are_told_apart() {
    // No listener is left, an address is asked for, and the parameters do not exist.
    let accepted = |change: &dyn Fn(&mut Value)| {
        let mut gateway = quic_gateway();
        change(&mut gateway);
        let attachments = index(&[of_packrat(), gateway]).resolve().attachments;
        let state = attachments.gateways[&key("app", "edge")].clone();
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
    let mut to_web = self::to_web("web", 0);
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

/// Assistance that has stopped by itself is reported at the route that it concerns, and at the
/// Gateway.
#[test]
fn stopped_assistance_is_reported_at_gateway_and_route() {
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
            let edges = &*index.gateways;
            status::route_assisting(&key("app", name), &state.parents[0], &attachments, edges)
        };
        let whole = status::gateway_status(
            &read_gateway(&gateway),
            &attachments.gateways[&key("app", "edge")],
            index.gateways.get(&key("app", "edge")),
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
