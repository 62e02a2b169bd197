//! TCP connections to the ports of routes: their owners, their destinations, and the objects that
//! decide.

use packrat_operator::index::{GatewayView, Passthrough, Resolution};
use packrat_operator::model::GatewayModel;
use packrat_operator::object_key::ObjectKey;
use packrat_operator::problem::Reason;
use packrat_operator::workload::{Kind, Platform, objects};
use serde_json::{Value, json};

use super::gateway_api::{a_gateway, edge_of, listener, of_packrat, route};
use super::{edge, index, key, service, slice};

/// Adds TCP ports to a Service or to an EndpointSlice.
fn with_tcp(mut object: Value, ports: &[(&str, u16)]) -> Value {
    let at = if object["kind"] == "Service" { "/spec/ports" } else { "/ports" };
    let all = object.pointer_mut(at).unwrap().as_array_mut().unwrap();
    all.extend(
        ports.iter().map(|(name, port)| json!({ "name": name, "port": port, "protocol": "TCP" })),
    );
    object
}

/// A Service with UDP and TCP port 443, behind an EdgeGateway with this spec.
fn resolve(spec: Value, annotations: &[(&str, &str)], tcp: &[(&str, u16)]) -> Resolution {
    let edge = edge(spec);
    let annotations = [&[("assist", "enabled")], annotations].concat();
    let endpoints = [("10.0.0.1", true), ("10.0.0.2", false)];
    index(&[
        edge,
        with_tcp(service("web", 0, &annotations, &[("quic", 443)]), tcp),
        with_tcp(slice("web", "web-1", &[("quic", 8443)], &endpoints), &[("https", 9443)]),
    ])
    .resolve()
}

fn passed(resolution: &Resolution) -> Option<Vec<String>> {
    let tcp = &resolution.gateways[&key("app", "default")].listeners[&443].tcp;
    tcp.as_ref().map(|passed| passed.weights.keys().map(ToString::to_string).collect())
}

fn problems(resolution: &Resolution) -> Vec<(Reason, String)> {
    let problems = &resolution.services[&key("app", "web")].problems;
    problems.iter().map(|problem| (problem.reason, problem.message.clone())).collect()
}

const HTTPS: [(&str, u16); 1] = [("https", 443)];

/// The EdgeGateway decides whether there is TCP at all, and a Service whether for itself.
#[test]
fn a_service_has_tcp_where_its_edge_gateway_lets_it() {
    let ready = Some(vec!["10.0.0.1:9443".to_owned()]);
    let (ask, refuse) = (("tcp", "passthrough"), ("tcp", "off"));
    for (policy, annotations, expected) in [
        ("Off", &[][..], None),
        ("Allowed", &[], None),
        ("Allowed", &[ask], ready.clone()),
        ("Allowed", &[refuse], None),
        ("Passthrough", &[], ready.clone()),
        ("Passthrough", &[ask], ready.clone()),
        ("Passthrough", &[refuse], None),
    ] {
        let resolution = resolve(json!({ "tcp": policy }), annotations, &HTTPS);
        assert_eq!(passed(&resolution), expected, "{policy} {annotations:?}");
        assert_eq!(problems(&resolution), [], "{policy} {annotations:?}");
    }
    let with_address = resolve(json!({ "tcp": "Allowed" }), &[("tcp", "proxy-protocol")], &HTTPS);
    assert_eq!(passed(&with_address), ready);
    let listener = &with_address.gateways[&key("app", "default")].listeners[&443];
    assert!(listener.tcp.as_ref().unwrap().proxy_protocol);
    let refused = resolve(json!({}), &[ask], &HTTPS);
    assert_eq!(passed(&refused), None);
    let told = problems(&refused);
    assert_eq!(told[0].0, Reason::NotAllowed);
    assert!(told[0].1.contains("set its spec.tcp to Allowed"), "{told:?}");
}

/// No other port is taken for it: a Service decides the use of each of its ports.
#[test]
fn tcp_goes_to_the_port_of_the_same_number_only() {
    for ports in [&[][..], &[("https", 8443)]] {
        let told =
            problems(&resolve(json!({ "tcp": "Allowed" }), &[("tcp", "passthrough")], ports));
        assert_eq!(told[0].0, Reason::NoSuchPort);
        assert!(told[0].1.contains("no TCP port 443"), "{told:?}");
        // If a gateway passes all through, Services without a TCP port get no message.
        let resolution = resolve(json!({ "tcp": "Passthrough" }), &[], ports);
        assert_eq!((passed(&resolution), problems(&resolution)), (None, Vec::new()));
    }
    // The number is the Service's port, whatever port the gateway has for it.
    let mapped = resolve(
        json!({ "tcp": "Allowed" }),
        &[("tcp", "passthrough"), ("port", "443:8080")],
        &[("http", 8080)],
    );
    assert!(problems(&mapped)[0].1.contains("no UDP port 8080"), "{:?}", problems(&mapped));
}

/// A port is one Service's, for both protocols.
#[test]
fn no_service_gets_the_tcp_port_of_another_ones_route() {
    let edge = edge(json!({ "tcp": "Allowed" }));
    let ask = [("assist", "enabled"), ("tcp", "passthrough")];
    let resolution = index(&[
        edge,
        service("web", 0, &[("assist", "enabled")], &[("quic", 443)]),
        slice("web", "web-1", &[("quic", 8443)], &[("10.0.0.1", true)]),
        with_tcp(service("thief", 9, &ask, &[("quic", 443)]), &HTTPS),
        with_tcp(
            slice("thief", "thief-1", &[("quic", 1)], &[("10.0.0.66", true)]),
            &[("https", 1)],
        ),
    ])
    .resolve();
    assert_eq!(passed(&resolution), None);
    let thief = &resolution.services[&key("app", "thief")];
    assert_eq!((thief.listeners.len(), thief.problems[0].reason), (0, Reason::PortConflict));
}

/// Tokens are given out at the same TCP port: by their own name only, if there is one.
#[test]
fn tokens_and_tcp_share_a_port_by_name() {
    let with = |tls: Value| json!({ "tcp": "Passthrough", "tokens": { "policy": "Optional", "tls": tls } });
    let without_name = resolve(with(json!({ "secretName": "tls" })), &[], &HTTPS);
    assert_eq!(passed(&without_name), None);
    let told = problems(&without_name);
    assert_eq!(told[0].0, Reason::NotAllowed);
    assert!(told[0].1.contains("spec.tokens.tls.serverName"), "{told:?}");
    let named = with(json!({ "secretName": "tls", "serverName": "tokens.example" }));
    let resolution = resolve(named.clone(), &[], &HTTPS);
    assert!(passed(&resolution).is_some() && problems(&resolution).is_empty());
    // A route without tokens has the port to itself.
    let mut weaker = with(json!({ "secretName": "tls" }));
    weaker["limits"] = json!({ "weakerTokens": true });
    assert!(passed(&resolve(weaker, &[("config.tokens", "off")], &HTTPS)).is_some());
}

/// Service, and NetworkPolicy in both directions.
#[test]
fn what_is_in_front_of_and_behind_gateways_has_the_tcp_port() {
    let resolution = resolve(json!({ "tcp": "Passthrough" }), &[], &HTTPS);
    let view = &resolution.gateways[&key("app", "default")];
    let made = |view: &GatewayView| {
        let platform = Platform { egress_policy: true, ..Platform::default() };
        let key = ObjectKey::new("app", "default");
        let made = objects(&key, &GatewayModel::default(), view, &platform);
        let content =
            |kind| made.iter().find(|object| object.kind == kind).unwrap().content["spec"].clone();
        (content(Kind::Service), content(Kind::NetworkPolicy))
    };
    let protocols = |ports: &Value, number: u16| -> Vec<String> {
        let ports = ports.as_array().unwrap().iter().filter(|port| port["port"] == number);
        ports.map(|port| port["protocol"].as_str().unwrap().to_owned()).collect()
    };
    let (service, policy) = made(view);
    assert_eq!(protocols(&service["ports"], 443), ["UDP", "TCP"]);
    assert_eq!(protocols(&policy["ingress"][0]["ports"], 443), ["UDP", "TCP"]);
    let servers = policy["egress"].as_array().unwrap().iter().find(|rule| {
        rule["to"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == "app"
    });
    let servers = &servers.unwrap()["ports"];
    assert_eq!(
        (protocols(servers, 8443), protocols(servers, 9443)),
        (vec!["UDP".into()], vec!["TCP".into()])
    );
    let off = resolve(json!({}), &[], &HTTPS);
    let (service, policy) = made(&off.gateways[&key("app", "default")]);
    assert_eq!(protocols(&service["ports"], 443), ["UDP"]);
    assert_eq!(protocols(&policy["ingress"][0]["ports"], 443), ["UDP"]);
}

/// Another namespace opens only its UDP ports with a grant for UDPRoutes.
#[test]
fn a_grant_for_udp_routes_opens_no_tcp_port() {
    let of_granted = |kinds: &[&str]| {
        let gateway = a_gateway("edge", json!([listener("quic", 443, json!({}))]));
        let mut edge = edge_of(&gateway);
        edge["spec"]["tcp"] = "Allowed".into();
        let services = json!([{ "name": "web", "namespace": "shop", "port": 8443 }]);
        let mut route = route("app", "web", 0, json!({ "name": "edge" }), services);
        route["metadata"]["annotations"] = json!({ "packrat.dev/tcp": "passthrough" });
        let from = kinds.iter().map(
            |kind| json!({ "group": "gateway.networking.k8s.io", "kind": kind, "namespace": "app" }),
        );
        let grant = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "ReferenceGrant",
            "metadata": { "namespace": "shop", "name": "grant" },
            "spec": {
                "from": from.collect::<Vec<_>>(), "to": [{ "group": "", "kind": "Service" }],
            },
        });
        let mut web = with_tcp(service("web", 0, &[], &[("quic", 8443)]), &[("https", 8443)]);
        let slice = slice("web", "web-1", &[("quic", 1443)], &[("10.0.0.1", true)]);
        let mut slice = with_tcp(slice, &[("https", 2443)]);
        slice["endpoints"][0]["targetRef"]["namespace"] = "shop".into();
        for object in [&mut web, &mut slice] {
            object["metadata"]["namespace"] = "shop".into();
        }
        let resolution = index(&[of_packrat(), edge, gateway, route, grant, web, slice]).resolve();
        let view = &resolution.gateways[&key("app", "edge")];
        assert_eq!(view.listeners[&443].endpoints.len(), 1, "UDP is open");
        let told: Vec<_> = view.problems.iter().map(|(_, problem)| problem.reason).collect();
        let passed = view.listeners[&443].tcp.as_ref();
        (passed.map_or(0, |passed| passed.weights.len()), told)
    };
    assert_eq!(of_granted(&["UDPRoute"]), (0, vec![Reason::NotAllowed]));
    assert_eq!(of_granted(&["UDPRoute", "TCPRoute"]), (1, Vec::new()));
}

/// UDPRoutes ask by the same annotation; connections are shared by weight, as clients are.
#[test]
fn a_udp_route_has_tcp_with_the_weights_of_its_destinations() {
    let with = |tcp: &str, annotation: Option<&str>, services: Value| {
        let gateway = a_gateway("edge", json!([listener("quic", 443, json!({}))]));
        let mut edge = edge_of(&gateway);
        edge["spec"]["tcp"] = tcp.into();
        let mut route = route("app", "web", 0, json!({ "name": "edge" }), services);
        if let Some(annotation) = annotation {
            route["metadata"]["annotations"] = json!({ "packrat.dev/tcp": annotation });
        }
        let quic = &[("quic", 8443)];
        let https = &[("https", 8443)];
        let slice_of = |name: &str, at: &str| {
            let slice = slice(name, &format!("{name}-1"), &[("quic", 1443)], &[(at, true)]);
            with_tcp(slice, &[("https", 2443)])
        };
        index(&[
            of_packrat(),
            edge,
            gateway,
            route,
            with_tcp(service("web", 0, &[], quic), https),
            slice_of("web", "10.0.0.1"),
            with_tcp(service("canary", 0, &[], quic), https),
            slice_of("canary", "10.0.0.2"),
            service("udp", 0, &[], quic),
            slice_of("udp", "10.0.0.3"),
        ])
        .resolve()
    };
    let passed = |resolution: &Resolution| {
        resolution.gateways[&key("app", "edge")].listeners[&443].tcp.clone()
    };
    let shared = json!([
        { "name": "web", "port": 8443, "weight": 3 }, { "name": "canary", "port": 8443 },
        { "name": "udp", "port": 8443, "weight": 2 },
    ]);
    let weights = [("10.0.0.1:2443", 3.0), ("10.0.0.2:2443", 1.0)];
    let weights = weights.map(|(at, weight)| (at.parse().unwrap(), weight)).into();
    let expected = Some(Passthrough { weights, refused: 2.0, proxy_protocol: false });
    assert_eq!(passed(&with("Passthrough", None, shared.clone())), expected);
    assert_eq!(passed(&with("Allowed", Some("passthrough"), shared.clone())), expected);
    for (tcp, annotation) in [
        ("Allowed", None),
        ("Passthrough", Some("off")),
        ("Off", Some("passthrough")),
        ("Allowed", Some("yes")),
    ] {
        let resolution = with(tcp, annotation, shared.clone());
        assert_eq!(passed(&resolution), None, "{tcp} {annotation:?}");
        let told: Vec<Reason> = resolution.gateways[&key("app", "edge")]
            .problems
            .iter()
            .map(|(_, problem)| problem.reason)
            .collect();
        let expected = match annotation {
            Some("passthrough") => vec![Reason::NotAllowed],
            Some("yes") => vec![Reason::InvalidAnnotation],
            _ => Vec::new(),
        };
        assert_eq!(told, expected, "{tcp} {annotation:?}");
    }
    let udp_only = json!([{ "name": "udp", "port": 8443 }]);
    assert_eq!(passed(&with("Passthrough", None, udp_only)), None);
}
