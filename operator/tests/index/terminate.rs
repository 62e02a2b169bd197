//! Connections that end at the gateway: the Services that may have it, and the messages when
//! something is missing.

use std::collections::BTreeMap;

use packrat_operator::index::{Certificate, Index, Resolution, Upstream};
use packrat_operator::problem::Reason;
use packrat_operator::status::service_condition;
use packrat_operator::workload::{Kind, Platform, objects};
use serde_json::{Value, json};

use super::{edge, index, key, service, slice};

const ASK: [(&str, &str); 3] =
    [("assist", "enabled"), ("mode", "terminate"), ("certificate", "web-tls")];

fn entries(name: &str) -> BTreeMap<String, Vec<u8>> {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    [("tls.crt", made.cert.pem()), ("tls.key", made.signing_key.serialize_pem())]
        .map(|(name, text)| (name.to_owned(), text.into_bytes()))
        .into()
}

fn labels() -> BTreeMap<String, String> {
    [("packrat.dev/for-gateways".to_owned(), "true".to_owned())].into()
}

/// A Service with a TCP port, behind an EdgeGateway with this spec.
fn a_service(spec: Value, annotations: &[(&str, &str)], speaks: Option<&str>) -> Index {
    let edge = edge(spec);
    let mut web = service("web", 0, annotations, &[]);
    web["spec"]["ports"] = json!([{ "name": "http", "port": 443, "protocol": "TCP" }]);
    if let Some(speaks) = speaks {
        web["spec"]["ports"][0]["appProtocol"] = speaks.into();
    }
    let mut slice = slice("web", "web-1", &[], &[("10.0.0.1", true)]);
    slice["ports"] = json!([{ "name": "http", "port": 8080, "protocol": "TCP" }]);
    index(&[edge, web, slice])
}

fn allowed() -> Value {
    json!({ "terminate": "Allowed" })
}

fn with_certificate(mut index: Index) -> Resolution {
    let read = Certificate::read(&labels(), &entries("shop.example"));
    assert!(index.set_certificate(key("app", "web-tls"), read));
    index.resolve()
}

fn problems(resolution: &Resolution) -> Vec<(Reason, String)> {
    let problems = &resolution.services[&key("app", "web")].problems;
    problems.iter().map(|problem| (problem.reason, problem.message.clone())).collect()
}

#[test]
fn a_service_without_udp_has_http3_if_its_edge_gateway_allows() {
    let resolution = with_certificate(a_service(allowed(), &ASK, None));
    assert_eq!(problems(&resolution), []);
    let view = &resolution.gateways[&key("app", "default")];
    let listener = &view.listeners[&443];
    assert_eq!(listener.endpoints, ["10.0.0.1:8080".parse().unwrap()]);
    let terminated = listener.terminated.as_ref().unwrap();
    assert_eq!(terminated.upstream, Upstream::Http1);
    assert!(terminated.certificate.is_some() && listener.tcp.is_some());
    let service = &resolution.services[&key("app", "web")];
    let (holds, reason, message) = service_condition(&key("app", "web"), service, None).unwrap();
    assert_eq!((holds, reason), (true, "Terminated"));
    assert!(message.contains("port 443") && message.contains("not assisted"), "{message}");

    // Clients come by both protocols, and gateways go to servers by TCP alone.
    let platform = Platform { egress_policy: true, ..Platform::default() };
    let model = packrat_operator::model::GatewayModel::default();
    let all = objects(&key("app", "default"), &model, view, &platform);
    let of = |kind: Kind| &all.iter().find(|object| object.kind == kind).unwrap().content["spec"];
    let ports = of(Kind::Service)["ports"].as_array().unwrap();
    assert_eq!(ports.iter().map(|port| &port["protocol"]).collect::<Vec<_>>(), ["UDP", "TCP"]);
    let egress = of(Kind::NetworkPolicy)["egress"].as_array().unwrap();
    assert_eq!(egress.last().unwrap()["ports"], json!([{ "port": 8080, "protocol": "TCP" }]));

    let h2 = with_certificate(a_service(allowed(), &ASK, Some("kubernetes.io/h2c")));
    let listener = &h2.gateways[&key("app", "default")].listeners[&443];
    assert_eq!(listener.terminated.as_ref().unwrap().upstream, Upstream::Http2);
}

#[test]
fn nothing_ends_at_a_gateway_that_does_not_let_it() {
    for (spec, annotations, reason, part) in [
        (json!({}), &ASK[..], Reason::NotAllowed, "set its spec.terminate to Allowed"),
        (allowed(), &[ASK[0], ("mode", "split")], Reason::InvalidAnnotation, "assist or terminate"),
    ] {
        let resolution = with_certificate(a_service(spec, annotations, None));
        let told = problems(&resolution);
        assert!(told[0].0 == reason && told[0].1.contains(part), "{told:?}");
        assert!(resolution.gateways[&key("app", "default")].listeners.is_empty());
    }
    // Settings that would break an encrypted connection to the server are not tried.
    let told = problems(&with_certificate(a_service(allowed(), &ASK, Some("https"))));
    assert!(told[0].1.contains("appProtocol https"), "{told:?}");
    let with_tcp = [&ASK[..], &[("tcp", "passthrough")]].concat();
    let told = problems(&with_certificate(a_service(allowed(), &with_tcp, None)));
    assert!(told[0].1.contains("exclude each other"), "{told:?}");
}

/// The port stays the Service's: another one must not get it in between.
#[test]
fn what_is_wrong_with_a_certificate_is_told_at_the_service() {
    let certificate = |resolution: &Resolution| {
        let listener = &resolution.gateways[&key("app", "default")].listeners[&443];
        listener.terminated.as_ref().unwrap().certificate.clone()
    };
    let without = a_service(allowed(), &ASK[..2], None).resolve();
    assert!(problems(&without)[0].1.contains("name its Secret"), "{:?}", problems(&without));
    assert_eq!(certificate(&without), None);

    let mut index = a_service(allowed(), &ASK, None);
    assert_eq!(index.certificates(), [key("app", "web-tls")].into());
    assert!(problems(&index.resolve())[0].1.contains("has not been read yet"));
    assert!(!index.has_certificate(&key("app", "web-tls")));
    let told = |index: &mut Index, read| {
        index.set_certificate(key("app", "web-tls"), read);
        let resolution = index.resolve();
        let view = &resolution.services[&key("app", "web")];
        service_condition(&key("app", "web"), view, None).unwrap()
    };
    let (holds, reason, message) = told(&mut index, Err("does not exist".to_owned()));
    assert_eq!((holds, reason), (false, "NoCertificate"));
    assert!(message.contains("Secret app/web-tls does not exist"), "{message}");
    let read = Certificate::read(&labels(), &entries("shop.example"));
    assert_eq!(told(&mut index, read.clone()).1, "Terminated");
    assert!(index.has_certificate(&key("app", "web-tls")));
    // One that has worked stays in use.
    assert_eq!(told(&mut index, Err("does not exist".to_owned())).1, "NoCertificate");
    assert_eq!(certificate(&index.resolve()), read.ok());
}

/// A tenant's Secret must not bring to Envoy what that would refuse.
#[test]
fn a_secret_is_refused_that_a_gateway_would_refuse() {
    let (one, other) = (entries("a.example"), entries("b.example"));
    let with = |entry: &str, value: &[u8]| {
        let mut changed = one.clone();
        changed.insert(entry.to_owned(), value.to_vec());
        changed
    };
    let mut without_key = one.clone();
    without_key.remove("tls.key");
    // An invalid certificate in between: Envoy refuses the chain, and its listener with it.
    let between = b"-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    let ed25519 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    for (labels, entries, part) in [
        (BTreeMap::new(), one.clone(), "is not for gateways"),
        (labels(), without_key, "has no entry tls.key"),
        (labels(), with("tls.crt", b"text"), "no certificate"),
        (labels(), with("tls.crt", &[0xff]), "no PEM"),
        (labels(), with("tls.crt", &[&one["tls.crt"][..], between].concat()), "no certificate"),
        (labels(), with("tls.key", b"text"), "tls.key that is no RSA key"),
        (labels(), with("tls.key", ed25519.serialize_pem().as_bytes()), "no RSA key"),
        (labels(), with("tls.key", &other["tls.key"]), "not the key of tls.crt"),
    ] {
        let error = Certificate::read(&labels, &entries).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    let read = Certificate::read(&labels(), &one).unwrap();
    assert!(!format!("{read:?}").contains("PRIVATE"), "{read:?}");
}

/// The operator may read more Secrets than are its business.
#[test]
fn a_secret_is_looked_at_only_where_connections_may_end() {
    let names = |spec: Value, annotations: &[(&str, &str)]| {
        a_service(spec, annotations, None).certificates().into_iter().collect::<Vec<_>>()
    };
    let secret = [key("app", "web-tls")];
    assert_eq!(names(allowed(), &ASK), secret);
    assert_eq!(names(json!({}), &ASK), []);
    assert_eq!(names(allowed(), &ASK[1..]), [], "it asks for nothing");
    assert_eq!(names(allowed(), &[&ASK[..], &[("gateway", "other")]].concat()), []);
    let of_another = json!({ "terminate": "Allowed", "class": "other" });
    assert_eq!(names(of_another, &ASK), []);
}

/// A cluster has thousands of slices with TCP ports: other Services' slices are no work.
#[test]
fn slices_without_udp_matter_to_services_that_ask() {
    let in_index = |mut index: Index| {
        let slice = json!({
            "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "namespace": "app", "name": "web-2", "labels": { "kubernetes.io/service-name": "web" } },
            "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }], "endpoints": [],
        });
        let slice = serde_json::from_value(slice).unwrap();
        let model = packrat_operator::model::SliceModel::read(&slice);
        index.set_slice(key("app", "web-2"), model)
    };
    assert!(in_index(a_service(allowed(), &ASK, None)));
    assert!(!in_index(a_service(allowed(), &ASK[..1], None)));
    // Its TCP connections may be passed through.
    let both = service("web", 0, &[("tcp", "passthrough")], &[("quic", 443)]);
    assert!(in_index(index(&[both])));
}
