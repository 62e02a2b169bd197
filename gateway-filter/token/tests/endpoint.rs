//! Answers of the token endpoint, without Envoy.

use core::time::Duration;

use packrat_assist_token::{Key, Keys, RouteHash, TokenError, from_text, verify};
use packrat_token_issuer::configuration::Configuration;
use packrat_token_issuer::endpoint::{Answer, Decision, Endpoint, Request};
use proptest::prelude::*;
use serde_json::Value;

const NOW: Duration = Duration::from_secs(1_800_000_000);
const PATH: &str = "/.well-known/packrat";

fn endpoint(more: &str) -> Endpoint {
    let text = format!(
        r#"{{"route":"web","token_keys":["2:{}","1:{}"],"udp":{{"port":4433}},"gateway_key":"{}"{more}}}"#,
        "02".repeat(32),
        "01".repeat(32),
        "ab".repeat(32)
    );
    Endpoint::new(Configuration::from_json(text.as_bytes()).unwrap())
}

fn keys() -> Keys {
    Keys { current: Key::new(2, [2; 32]), previous: None }
}

fn answer(endpoint: &mut Endpoint, method: &str, path: &str, client: &str) -> Answer {
    match endpoint.decide(Request { method, path, client }, NOW, 7) {
        Decision::Answer(answer) => answer,
        Decision::Continue => panic!("{method} {path} was passed on"),
    }
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
}

#[test]
fn the_document_has_everything_a_client_needs() {
    let mut endpoint = endpoint("");
    for (method, path) in [("GET", PATH), ("HEAD", PATH), ("GET", "/.well-known/packrat?a=b")] {
        let answer = answer(&mut endpoint, method, path, "192.0.2.1:5000");
        assert_eq!(answer.status, 200);
        assert_eq!(header(&answer, "cache-control"), Some("no-store"));
        assert_eq!(header(&answer, "content-type"), Some("application/json"));
        let document: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(document["version"], 1);
        assert_eq!(document["udp"], serde_json::json!({ "port": 4433 }));
        assert_eq!(document["gateway_key"], "ab".repeat(32));
        assert_eq!(document["expires"], NOW.as_secs() + 300);
        assert_eq!(document["parameters"]["maximum_hold_ms"], 1000);
        let token = from_text(document["token"].as_str().unwrap()).unwrap();
        let claims = verify(
            &token,
            &keys(),
            NOW.as_secs(),
            "2001:db8::1".parse().unwrap(),
            RouteHash::of("web"),
        )
        .unwrap();
        assert_eq!((claims.expires, claims.nonce, claims.binding), (NOW.as_secs() + 300, 7, None));
    }
}

#[test]
fn tokens_are_bound_to_the_clients_network_when_configured() {
    let mut endpoint = endpoint(r#","bind":{"ipv4_prefix":24,"ipv6_prefix":56}"#);
    for (client, inside, outside) in [
        ("192.0.2.1:5000", "192.0.2.9", "192.0.3.1"),
        ("[2001:db8:0:100::1]:5000", "2001:db8:0:1ff::", "2001:db8:0:200::"),
        ("[::ffff:192.0.2.1]:5000", "192.0.2.9", "2001:db8::1"),
    ] {
        let answer = answer(&mut endpoint, "GET", PATH, client);
        let document: Value = serde_json::from_str(&answer.body).unwrap();
        let token = from_text(document["token"].as_str().unwrap()).unwrap();
        let check = |peer: &str| {
            verify(&token, &keys(), NOW.as_secs(), peer.parse().unwrap(), RouteHash::of("web"))
                .map(|_| ())
        };
        assert_eq!(check(inside), Ok(()), "{client}");
        assert_eq!(check(outside), Err(TokenError::OtherNetwork), "{client}");
    }
}

#[test]
fn other_methods_and_other_paths() {
    let mut passing = endpoint("");
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "", "get"] {
        let answer = answer(&mut passing, method, PATH, "192.0.2.1:5000");
        assert_eq!((answer.status, header(&answer, "allow")), (405, Some("GET, HEAD")), "{method}");
    }
    let mut alone = endpoint(r#","other_paths":"not_found""#);
    for path in [
        "/",
        "",
        "/.well-known/packrat/",
        "/.well-known/packrats",
        "//.well-known/packrat",
        "/?/.well-known/packrat",
    ] {
        let request = Request { method: "GET", path, client: "192.0.2.1:5000" };
        assert_eq!(passing.decide(request, NOW, 7), Decision::Continue, "{path}");
        assert_eq!(answer(&mut alone, "GET", path, "192.0.2.1:5000").status, 404, "{path}");
    }
}

#[test]
fn a_client_that_asks_too_often_learns_when_to_retry() {
    let mut endpoint = endpoint(r#","rate":{"per_minute":6,"burst":2}"#);
    let ask = |endpoint: &mut Endpoint, client: &str, at: Duration| match endpoint.decide(
        Request { method: "GET", path: PATH, client },
        at,
        7,
    ) {
        Decision::Answer(answer) => answer,
        Decision::Continue => panic!("passed on"),
    };
    assert_eq!(ask(&mut endpoint, "192.0.2.1:1", NOW).status, 200);
    assert_eq!(ask(&mut endpoint, "192.0.2.1:2", NOW).status, 200);
    let refused = ask(&mut endpoint, "192.0.2.1:3", NOW);
    assert_eq!((refused.status, header(&refused, "retry-after")), (429, Some("10")));
    assert_eq!(ask(&mut endpoint, "192.0.2.2:1", NOW).status, 200);
    assert_eq!(ask(&mut endpoint, "192.0.2.1:4", NOW + Duration::from_secs(10)).status, 200);
}

proptest! {
    #[test]
    fn arbitrary_requests_do_not_panic(method in ".{0,10}", path in ".{0,60}", client in ".{0,40}", now: u32) {
        let mut endpoint = endpoint("");
        let request = Request { method: &method, path: &path, client: &client };
        let _ = endpoint.decide(request, Duration::from_secs(now.into()), 7);
        let decision = endpoint.decide(Request { path: PATH, method: "GET", ..request }, NOW, 7);
        let issued = matches!(decision, Decision::Answer(Answer { status: 200, .. }));
        prop_assert!(issued);
    }
}
