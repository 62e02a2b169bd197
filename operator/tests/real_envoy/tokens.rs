//! Tokens: given out over TLS by a gateway that the operator configures, taken by the same gateway.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use packrat_api::token::TokenPolicy;
use packrat_assist_token::from_text;
use packrat_client::{ClientConfig, RefusalReason};
use packrat_operator::envoy::TOKEN_CERTIFICATE;
use packrat_operator::keys::GatewayKeys;
use packrat_operator::resource::{TcpPolicy, TokenTls};
use packrat_operator::workload::certificate_file;
use packrat_real_envoy::EVENT_PATIENCE;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::envoy;
use super::operator::Cluster;
use super::scene::{OneRoute, Scene, agree};
use super::{assisted, assisted_client};

/// Seconds after which the keys are exchanged, and for which a token is good.
const ROTATION: i64 = 3600;
const LIFETIME: i64 = 300;

/// The filter of `PACKRAT_TOKEN_WASM`, or the one that `make token` has built. Without one it is
/// `None` and a line is printed; with `CI=true` that is a failure.
fn find_filter() -> Option<PathBuf> {
    let built =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(".packrat/packrat-token.wasm");
    let filter = std::env::var_os("PACKRAT_TOKEN_WASM").map_or(built, PathBuf::from);
    if filter.exists() {
        return Some(filter);
    }
    let hint =
        format!("nothing at {}: set PACKRAT_TOKEN_WASM or run `make token`", filter.display());
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
    println!("SKIPPED: {hint}");
    None
}

/// The Secret of the EdgeGateway's `tokens.tls` as mounted in a Pod: a certificate, its key, and
/// the file by which Envoy finds them.
fn certificate() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let certificate = rcgen::generate_simple_self_signed(vec!["edge.example".to_owned()]).unwrap();
    fs::write(path.join("tls.crt"), certificate.cert.pem()).unwrap();
    fs::write(path.join("tls.key"), certificate.signing_key.serialize_pem()).unwrap();
    let file = certificate_file(TOKEN_CERTIFICATE, path.to_str().unwrap(), false);
    fs::write(path.join("token.json"), file.to_string()).unwrap();
    directory
}

/// The document that a client gets at the gateway's port.
fn ask(route: &OneRoute, certificate: &Path) -> Value {
    let mut document = Value::Null;
    route.envoy.wait_until("a token", |_| {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--max-time", "20", "--cacert"])
            .arg(certificate.join("tls.crt"))
            .args(["--connect-to", &format!("edge.example:443:127.0.0.1:{}", route.port)])
            .arg("https://edge.example/.well-known/packrat")
            .output()
            .unwrap_or_else(|error| panic!("this test needs curl, which does not start: {error}"));
        document = serde_json::from_slice(&output.stdout).unwrap_or_default();
        document["token"].is_string()
    });
    document
}

/// True if a client that shows this token is assisted.
fn is_assisted(route: &OneRoute, token: &[u8]) -> bool {
    let gateway = SocketAddr::from(([127, 0, 0, 1], route.port));
    let config = ClientConfig::default().with_token(packrat_client::Token::new(token).unwrap());
    let (mut client, upstream) = assisted_client(&route.server, gateway, config);
    let mut answer = None;
    client.take_part_until("the session or the refusal", |client| {
        let stats = client.assist.stats();
        answer = match stats.refusal {
            Some(reason) => Some(Err(reason)),
            None => (stats.reports > 0).then_some(Ok(())),
        };
        answer.is_some()
    });
    match answer.unwrap() {
        Ok(()) => {
            assisted::transfer(&mut client, &route.server, upstream, 0..100);
            true
        }
        Err(reason) => {
            assert_eq!(reason, RefusalReason::Token);
            false
        }
    }
}

/// The keys after the next step of their rotation, at the gateway as well.
fn step(route: &OneRoute, keys: &mut GatewayKeys, now: &mut i64, seconds: i64) {
    *now += seconds;
    assert!(keys.advance(*now, ROTATION, LIFETIME).unwrap(), "a step is due");
    route.scene.replica.keys(keys);
    let wanted = keys.verifying();
    route.envoy.wait_until("the gateway to have the keys", |envoy| {
        envoy::listeners(envoy).iter().any(|(name, _, listener)| {
            let filter = &listener["listener_filters"][0]["typed_config"]["filter_config"]["value"];
            name.starts_with("udp-") && filter["token_keys"] == json!(wanted)
        })
    });
    agree(&route.envoy, &route.scene.replica, 2);
}

/// A gateway that gives tokens out, with this many sessions at most.
fn giving_tokens(sessions: u64) -> Option<(OneRoute, TempDir)> {
    let filter = find_filter()?;
    let certificate = certificate();
    let scene = Scene::of(|| {
        let mut cluster = Cluster::new();
        cluster.surroundings.token_filter = filter.to_str().unwrap().to_owned();
        cluster.surroundings.token_certificate =
            certificate.path().join("token.json").to_str().unwrap().to_owned();
        cluster
    });
    let localhost = std::net::Ipv4Addr::LOCALHOST.into();
    let route = OneRoute::of(scene?, &[], localhost, localhost)?;
    let replica = &route.scene.replica;
    replica.gateway(|model| {
        model.spec.tokens.policy = TokenPolicy::Required;
        model.spec.tokens.tls =
            Some(TokenTls { secret_name: "edge-tls".to_owned(), server_name: None });
        model.spec.sessions.maximum = i32::try_from(sessions).unwrap();
    });
    agree(&route.envoy, replica, 2);
    Some((route, certificate))
}

/// However many connect and ask for no token, files are left for sessions.
#[test]
fn connections_for_tokens_are_limited() {
    let Some((route, certificate)) = giving_tokens(12) else { return };
    ask(&route, certificate.path());
    let connect = || TcpStream::connect(("127.0.0.1", route.port)).unwrap();
    let count = format!("connection_limit.token_{}.active_connections", route.port);
    let wait_for = |connections: u64| {
        let line = format!("{count}: {connections}\n");
        let what = format!("{connections} connections");
        route.envoy.wait_until(&what, |envoy| envoy.get(&format!("/stats?filter={count}")) == line);
    };
    wait_for(0);
    // A quarter.
    let held: Vec<TcpStream> = (0..3).map(|_| connect()).collect();
    wait_for(3);
    let mut above = connect();
    above.set_read_timeout(Some(EVENT_PATIENCE)).unwrap();
    let closed = above.read(&mut [0; 10]);
    assert!(!closed.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "it is closed");
    for mut stream in &held {
        stream.set_nonblocking(true).unwrap();
        let error = stream.read(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "it is kept");
    }
    drop(held);
    ask(&route, certificate.path());
}

#[test]
fn tokens_are_issued_accepted_and_survive_one_key_rotation() {
    let Some((route, certificate)) = giving_tokens(1000) else { return };
    let replica = &route.scene.replica;
    let document = ask(&route, certificate.path());
    let mut keys = route.scene.cluster.keys.clone();
    assert_eq!(document["gateway_key"], keys.public_key_text());
    assert_eq!(document["udp"], json!({ "port": route.port }));
    let token = from_text(document["token"].as_str().unwrap()).unwrap();
    assert!(is_assisted(&route, &token));
    assert!(!is_assisted(&route, &[]), "without one nobody is");

    // The next key is announced, then used. The old token is good all the time, and so is a new
    // one.
    let mut now = jiff::Timestamp::now().as_second() + 2 * ROTATION;
    step(&route, &mut keys, &mut now, 0);
    assert!(is_assisted(&route, &token), "announced");
    step(&route, &mut keys, &mut now, 600);
    assert!(is_assisted(&route, &token), "exchanged once");
    let newer = from_text(ask(&route, certificate.path())["token"].as_str().unwrap()).unwrap();
    assert!(is_assisted(&route, &newer));

    // The second exchange leaves no place for the first key.
    step(&route, &mut keys, &mut now, 2 * ROTATION);
    step(&route, &mut keys, &mut now, 600);
    assert!(!is_assisted(&route, &token), "exchanged twice");
    assert!(is_assisted(&route, &newer));
    // TCP connections to the port go through to the servers, except connections that name the host
    // at which tokens are given out.
    let tcp = super::tcp::server("hello");
    replica.gateway(|model| {
        model.spec.tokens.policy = TokenPolicy::Required;
        model.spec.tokens.tls = Some(TokenTls {
            secret_name: "edge-tls".to_owned(),
            server_name: Some("edge.example".to_owned()),
        });
        model.spec.tcp = TcpPolicy::Passthrough;
    });
    let endpoint = route.server.local_addr().unwrap();
    replica.service_with_tcp("web", route.port, &[endpoint], Some(tcp), &[]);
    route.envoy.wait_until("the listener with both", |envoy| {
        let names = envoy::listeners(envoy).into_iter().map(|(name, _, _)| name);
        names.collect::<Vec<_>>() == [format!("tcp-{}", route.port), format!("udp-{}", route.port)]
    });
    assert!(ask(&route, certificate.path())["token"].is_string());
    // The client speaks first, as TLS does.
    route.envoy.wait_until("the server", |_| {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", route.port)) else { return false };
        stream.set_read_timeout(Some(EVENT_PATIENCE)).unwrap();
        let mut answer = [0; 10];
        stream.write_all(b"bytes").is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && &answer == b"hellobytes"
    });
}
