//! Assist tokens from issuer to verifier: issued by the WebAssembly filter in a real Envoy,
//! requested by `packrat get`, verified by a gateway. Needs Envoy (`tools/install-demo-parts`) and the
//! filter (`make token`).

use issuer::{Issuer, Parts};
use local_gateway::LocalGateway;
use packrat_assist_token::{Claims, Key, Keys, RouteHash, TokenError, from_text, to_text, verify};
use packrat_dataplane::metrics::definitions;
use serde_json::{Value, json};
use server::{Server, file};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

use crate::issuer;
use crate::local_gateway;
use crate::server;
use crate::token_endpoints::{TcpOnly, serve_documents};

const PATH: &str = "/.well-known/packrat";
const KEY: &str = "2:0202020202020202020202020202020202020202020202020202020202020202";

fn configuration(gateway_key: &str, udp_port: u16, more: &Value) -> String {
    let mut configuration = json!({
        "route": "web", "token_keys": [KEY], "gateway_key": gateway_key, "udp": { "port": udp_port },
        "rate": { "per_minute": 6000, "burst": 1000 },
    });
    for (name, value) in more.as_object().unwrap() {
        configuration[name] = value.clone();
    }
    configuration.to_string()
}

fn some_key() -> String {
    "ab".repeat(32)
}

fn keys() -> Keys {
    Keys { current: Key::from_text(KEY).unwrap(), previous: None }
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Status, header and body of a request with curl; checks that it used this version of HTTP.
fn curl(issuer: &Issuer, version: &str, path: &str, arguments: &[&str]) -> (u16, String, String) {
    let option = if version == "2" { "--http2" } else { "--http1.1" };
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "20",
            "--dump-header",
            "-",
            option,
            "--cacert",
        ])
        .arg(issuer.certificate())
        .args(["--write-out", "\n%{http_code} %{http_version}"])
        .args(arguments)
        .arg(issuer.url(path))
        .output()
        .unwrap_or_else(|error| panic!("this test needs curl, which does not start: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (answer, last) = text.rsplit_once('\n').unwrap();
    let (header, body) = answer.split_once("\r\n\r\n").unwrap();
    let (status, used) = last.split_once(' ').unwrap();
    assert_eq!(used, version);
    (status.parse().unwrap(), header.to_ascii_lowercase(), body.to_owned())
}

fn get(folder: &Path, url: &str, authority: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_packrat"))
        .current_dir(folder)
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .args(["get", url, "--cacert", authority.to_str().unwrap()])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn tokens_over_every_version_of_http() {
    let Some(parts) = Parts::find() else { return };
    let before = unix_now();
    let more =
        json!({ "lifetime_seconds": 60, "maximum_hold_ms": 90, "bind": { "ipv4_prefix": 8 } });
    let issuer = Issuer::start(&parts, 1, Some(&configuration(&some_key(), 4433, &more)));
    let folder = tempfile::tempdir().unwrap();
    let over_http3 =
        get(folder.path(), &issuer.url(PATH), &issuer.certificate(), &["-o", "-", "--no-assist"]);
    assert!(over_http3.status.success(), "{}", errors(&over_http3));
    let mut documents = vec![String::from_utf8(over_http3.stdout).unwrap()];
    for version in ["1.1", "2"] {
        let (status, header, body) = curl(&issuer, version, PATH, &[]);
        assert_eq!(status, 200);
        assert!(header.contains("\r\ncache-control: no-store"), "{header}");
        assert!(header.contains("\r\ncontent-type: application/json"), "{header}");
        documents.push(body);

        let (status, header, body) = curl(&issuer, version, PATH, &["--head"]);
        assert!(status == 200 && !header.contains('{') && !body.contains('{'), "{header}{body}");
        assert!(header.contains("content-type: application/json"), "{header}");
        let (status, header, _) = curl(&issuer, version, PATH, &["--request", "POST"]);
        assert!(status == 405 && header.contains("\r\nallow: get, head"), "{header}");
        assert_eq!(curl(&issuer, version, "/other", &[]).2, "behind");
        assert_eq!(curl(&issuer, version, "/other", &["--request", "POST"]).2, "behind");
    }
    let mut tokens = Vec::new();
    for document in documents {
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["version"], 1);
        assert_eq!(document["udp"], json!({ "port": 4433 }));
        assert_eq!(document["gateway_key"], some_key());
        assert_eq!(document["parameters"], json!({ "maximum_hold_ms": 90 }));
        let expires = document["expires"].as_u64().unwrap();
        assert!((before + 60..=unix_now() + 60).contains(&expires), "{expires}");
        let token = from_text(document["token"].as_str().unwrap()).unwrap();
        let check = |now: u64, peer: &str, route: &str| {
            verify(&token, &keys(), now, peer.parse::<IpAddr>().unwrap(), RouteHash::of(route))
                .map(|claims| claims.expires)
        };
        assert_eq!(check(expires, "127.9.9.9", "web"), Ok(expires));
        assert_eq!(check(expires, "128.0.0.1", "web"), Err(TokenError::OtherNetwork));
        assert_eq!(check(expires, "127.0.0.1", "video"), Err(TokenError::OtherRoute));
        assert_eq!(check(expires + 1, "127.0.0.1", "web"), Err(TokenError::Expired { seconds: 1 }));
        tokens.push(token);
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 3, "every token is another one");
    let metrics = issuer.admin("/stats?filter=packrat_tokens_issued");
    assert!(metrics.contains("packrat_tokens_issued: 5"), "{metrics}");
}

#[test]
fn a_client_that_asks_too_often_must_wait() {
    let Some(parts) = Parts::find() else { return };
    let more = json!({ "rate": { "per_minute": 1, "burst": 3 }, "other_paths": "not_found" });
    let issuer = Issuer::start(&parts, 1, Some(&configuration(&some_key(), 4433, &more)));
    let asked: Vec<_> = (0..5).map(|_| curl(&issuer, "2", PATH, &[])).collect();
    let statuses: Vec<_> = asked.iter().map(|(status, ..)| *status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    let (_, header, body) = &asked[4];
    let (_, wait) = header.split_once("\r\nretry-after: ").unwrap();
    let wait: u64 = wait.lines().next().unwrap().trim().parse().unwrap();
    assert!((1..=60).contains(&wait) && !body.contains("token\""), "{wait} {body}");
    assert_eq!(curl(&issuer, "1.1", "/other", &[]).0, 404);

    // Over HTTP/3 the issuer recognises the same client, and the command explains the refusal.
    let folder = tempfile::tempdir().unwrap();
    let output = get(
        folder.path(),
        &issuer.url("/file"),
        &issuer.certificate(),
        &["--assist-token-from", "auto"],
    );
    assert_eq!(output.status.code(), Some(22), "{}", errors(&output));
    assert!(
        errors(&output).contains("no assist token") && errors(&output).contains("429"),
        "{}",
        errors(&output)
    );
}

#[test]
fn a_wrong_configuration_is_refused_with_its_reason() {
    let Some(parts) = Parts::find() else { return };
    for (more, part) in [
        (json!({ "lifetime_seconds": 1 }), "lifetime_seconds"),
        (json!({ "gateway_key": "abc" }), "gateway_key"),
    ] {
        let log = Issuer::refuses(&parts, &configuration(&some_key(), 4433, &more));
        assert!(log.contains(part), "{log}");
    }
}

/// A gateway with tokens.
struct TokenGateway(LocalGateway);

impl TokenGateway {
    fn start(server: &Server, tokens: &str) -> Self {
        Self(LocalGateway::start(&Self::config(server, tokens, KEY)))
    }

    fn config(server: &Server, tokens: &str, key: &str) -> Value {
        json!({
            "route": "web", "endpoints": [server.address], "tokens": tokens, "token_keys": [key],
        })
    }

    /// Makes the gateway require tokens, and accept another key's.
    fn configure(&self, server: &Server, key: &str) {
        self.0.configure(&Self::config(server, "required", key));
    }

    fn metric(&self, name: &str) -> u64 {
        let index =
            definitions().iter().position(|definition| definition.series() == name).unwrap();
        self.0.route.metrics().values().nth(index).unwrap()
    }
}

/// A server, a gateway in front of it that requires tokens, and their issuer.
struct Scene {
    server: Server,
    gateway: TokenGateway,
    /// The gateway's public key.
    public: String,
    issuer: Issuer,
    folder: TempDir,
    /// Certificates of the server and of the issuer.
    authorities: PathBuf,
}

impl Scene {
    /// Starts all; `more`: changes of the issuer's configuration.
    fn start(parts: &Parts, more: &Value) -> Self {
        let server = Server::start(&["localhost"], false);
        let gateway = TokenGateway::start(&server, "required");
        let public = gateway.0.route.public_key().unwrap();
        let port = gateway.0.address.port();
        let issuer = Issuer::start(parts, 1, Some(&configuration(&public, port, more)));
        let folder = tempfile::tempdir().unwrap();
        let authorities = folder.path().join("authorities.pem");
        let scene = Self { server, gateway, public, issuer, folder, authorities };
        scene.trust(&[&scene.server.authority, &scene.issuer.certificate()]);
        scene
    }

    fn trust(&self, certificates: &[&Path]) {
        let texts = certificates.iter().map(|file| fs::read_to_string(file).unwrap());
        fs::write(&self.authorities, texts.collect::<String>()).unwrap();
    }

    /// The file, by the gateway's address.
    fn url(&self) -> String {
        format!("https://localhost:{}/file", self.gateway.0.address.port())
    }

    fn get(&self, url: &str, arguments: &[&str]) -> Output {
        get(self.folder.path(), url, &self.authorities, arguments)
    }

    /// Downloads through the gateway: the report on assistance, and the summary.
    fn download(&self, arguments: &[&str]) -> (Value, String) {
        let output = self.get(&self.url(), &[&["--json", "-o", "file"], arguments].concat());
        assert!(output.status.success(), "{}", errors(&output));
        assert_eq!(fs::read(self.folder.path().join("file")).unwrap(), file());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (report["assist"].clone(), errors(&output))
    }
}

/// A gateway that requires tokens assists only clients with one, and forwards for all.
#[test]
fn required_tokens_limit_assistance_but_not_forwarding() {
    let Some(parts) = Parts::find() else { return };
    let scene = Scene::start(&parts, &json!({}));
    let (assist, summary) = scene.download(&["--assist-token-from", &scene.issuer.url(PATH)]);
    assert_eq!(assist["gateway"], true, "{summary}");
    assert_eq!(
        (&assist["gateway_key"], &assist["gateway_pinned"]),
        (&json!(scene.public), &json!(true))
    );
    assert!(!summary.contains("first use"), "{summary}");

    let missing = "packrat_handshakes_total{result=\"refused_token_missing\"}";
    assert_eq!(scene.gateway.metric(missing), 0);
    let (assist, summary) = scene.download(&[]);
    assert!(scene.gateway.metric(missing) > 0);
    assert_eq!(
        (&assist["gateway"], &assist["state"]),
        (&json!(false), &json!("refused")),
        "{summary}"
    );
    assert_eq!(assist["refusal"], "token");
    assert!(
        summary.contains("asks for an assist token") && summary.contains("--assist-token-from"),
        "{summary}"
    );
}

/// The URL is the server's own, and the document names the gateway. The certificate is still the
/// server's.
#[test]
fn a_tokens_document_names_the_gateway() {
    let Some(parts) = Parts::find() else { return };
    let scene = Scene::start(&parts, &json!({}));
    let (endpoint, own_url) = (scene.issuer.url(PATH), scene.server.url("/file"));
    let output = scene.get(&own_url, &["--json", "-o", "file", "--assist-token-from", &endpoint]);
    assert!(output.status.success(), "{}", errors(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["assist"]["gateway"], &report["assist"]["gateway_pinned"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(report["remote"], scene.gateway.0.address.to_string());
    assert_eq!(scene.gateway.metric("packrat_sessions_begun_total"), 1);
    let other_name = own_url.replace("localhost", "127.0.0.1");
    let output = scene.get(&other_name, &["--assist-token-from", &endpoint]);
    assert_eq!(output.status.code(), Some(60), "the name is not verified: {}", errors(&output));

    // Without a gateway on the path, the token is useless but harmless.
    let direct = scene.server.address.to_string();
    let arguments = ["--assist-token-from", &endpoint, "--connect-to", &direct];
    let output = scene.get(&own_url, &arguments);
    assert!(
        output.status.success() && errors(&output).contains("no gateway on the path"),
        "{}",
        errors(&output)
    );
}

#[test]
fn a_token_for_another_gateway_is_of_no_use() {
    let Some(parts) = Parts::find() else { return };
    let scene = Scene::start(&parts, &json!({}));
    let port = scene.gateway.0.address.port();
    let other = configuration(&some_key(), port, &json!({}));
    let other = Issuer::start(&parts, 1, Some(&other));
    scene.trust(&[&scene.server.authority, &scene.issuer.certificate(), &other.certificate()]);
    let endpoint = other.url(PATH);
    let (assist, summary) = scene.download(&["--assist-token-from", &endpoint]);
    assert_eq!(assist["gateway"], false, "{summary}");
    assert!(summary.contains("not the one whose key is known"), "{summary}");

    // The user's key overrides the document's.
    let arguments = ["--assist-token-from", &endpoint, "--gateway-key", &scene.public];
    let output = scene.get(&scene.url(), &arguments);
    assert_eq!(output.status.code(), Some(90), "{}", errors(&output));
    assert!(errors(&output).contains(&some_key()), "{}", errors(&output));
    // An endpoint that is no token endpoint.
    let no_endpoint = scene.issuer.url("/other");
    let output = scene.get(&scene.url(), &["--assist-token-from", &no_endpoint]);
    assert_eq!(output.status.code(), Some(8), "{}", errors(&output));
    assert!(errors(&output).contains("not that of a token endpoint"), "{}", errors(&output));
}

#[test]
fn a_download_that_lasts_longer_than_its_token_gets_another_one() {
    let Some(parts) = Parts::find() else { return };
    let Scene { server, gateway, issuer, folder, authorities, .. } =
        Scene::start(&parts, &json!({ "lifetime_seconds": 10 }));
    // At first, the gateway accepts tokens of another key only. It refuses the first one, and the
    // client would retry with it after five minutes.
    gateway.configure(&server, &KEY.replace('2', "3"));
    let mut download = Command::new(env!("CARGO_BIN_EXE_packrat"))
        .current_dir(folder.path())
        .env("XDG_STATE_HOME", folder.path())
        .args([
            "get",
            &server.url("/stall"),
            "--cacert",
            authorities.to_str().unwrap(),
            "-o",
            "file",
        ])
        .args(["--max-time", "200", "--assist-token-from", &issuer.url(PATH)])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = std::time::Instant::now();
    let mut wait_until = |happened: &dyn Fn() -> bool| {
        while !happened() {
            assert!(download.try_wait().unwrap().is_none(), "the download has ended");
            assert!(started.elapsed().as_secs() < 150, "the token was not renewed");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    wait_until(&|| gateway.metric("packrat_handshakes_total{result=\"refused_token_forged\"}") > 0);
    gateway.configure(&server, KEY);
    wait_until(&|| gateway.metric("packrat_sessions_begun_total") > 0);
    let metrics = issuer.admin("/stats?filter=packrat_tokens_issued");
    assert!(!metrics.contains("packrat_tokens_issued: 1\n"), "{metrics}");
    download.kill().unwrap();
    download.wait().unwrap();
}

#[test]
fn a_token_endpoint_without_http3_is_asked_over_tcp() {
    let Some(parts) = Parts::find() else { return };
    let scene = Scene::start(&parts, &json!({ "rate": { "per_minute": 1, "burst": 1 } }));
    let relay = TcpOnly::before(scene.issuer.port);
    let endpoint = |host: &str| format!("https://{host}:{}{PATH}", relay.0.port());
    let ask = |endpoint: &str| {
        let arguments = ["--json", "-o", "file", "--assist-token-from", endpoint];
        scene.get(&scene.server.url("/file"), &arguments)
    };
    // The name is also verified here.
    let output = ask(&endpoint("127.0.0.1"));
    assert_eq!(output.status.code(), Some(60), "{}", errors(&output));
    let output = ask(&endpoint("localhost"));
    assert!(output.status.success(), "{}", errors(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["assist"]["gateway"], true, "{report:#}");
    // The command passes the HTTP error on: this was the only token of the minute.
    let output = ask(&endpoint("localhost"));
    assert_eq!(output.status.code(), Some(22), "{}", errors(&output));
    assert!(errors(&output).contains("429"), "{}", errors(&output));
}

#[test]
fn a_gateway_is_trusted_on_first_use_unless_its_key_is_known() {
    let server = Server::start(&["localhost"], false);
    let gateway = TokenGateway::start(&server, "off");
    let public = gateway.0.route.public_key().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("https://localhost:{}/file", gateway.0.address.port());
    let download = |arguments: &[&str]| {
        let output =
            get(folder.path(), &url, &server.authority, &[&["-o", "file"], arguments].concat());
        assert!(output.status.success(), "{}", errors(&output));
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), file());
        errors(&output)
    };
    let summary = download(&[]);
    assert!(
        summary.contains(&format!("trusted on first use; --gateway-key {public} pins it")),
        "{summary}"
    );
    let summary = download(&["--gateway-key", &public]);
    assert!(
        summary.contains("the gateway repaired") && !summary.contains("first use"),
        "{summary}"
    );
    let summary = download(&["--gateway-key", &some_key()]);
    assert!(summary.contains("not the one whose key is known"), "{summary}");
    let output = get(folder.path(), &url, &server.authority, &["--gateway-key", "abc"]);
    assert!(output.status.code() == Some(2) && errors(&output).contains("64 hexadecimal digits"));
}

/// A permission of the gateway's route, for five minutes, as text.
fn token() -> String {
    let route = RouteHash::of("web");
    let claims = Claims { expires: unix_now() + 300, route, binding: None, nonce: 5 };
    to_text(&keys().current.issue(&claims))
}

/// A running `packrat agent`, and a program that sends to it now and then; both end when it is
/// dropped.
struct Agent {
    process: Child,
    program: UdpSocket,
}

impl Agent {
    fn start(to: SocketAddr, arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_packrat"))
            .args(["agent", "--silent", "--to", &to.to_string()])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let listen = line.split(' ').nth(3).unwrap();
        let program = UdpSocket::bind("127.0.0.1:0").unwrap();
        program.connect(listen).unwrap();
        Self { process, program }
    }

    fn wait_until(&mut self, happened: impl Fn() -> bool) {
        let started = Instant::now();
        while !happened() {
            assert!(self.process.try_wait().unwrap().is_none(), "the agent has ended");
            assert!(started.elapsed() < Duration::from_secs(60), "nothing happens");
            self.program.send(b"hello").unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn an_agent_takes_the_token_that_its_file_has_now() {
    let server = Server::start(&["localhost"], false);
    let gateway = TokenGateway::start(&server, "required");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, to_text(&[7; 60])).unwrap();
    let mut agent =
        Agent::start(gateway.0.address, &["--assist-token-file", path.to_str().unwrap()]);
    agent.wait_until(|| {
        gateway.metric("packrat_handshakes_total{result=\"refused_token_forged\"}") > 0
    });
    // Half written, and then whole.
    fs::write(&path, "no token!").unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    fs::write(&path, token()).unwrap();
    agent.wait_until(|| gateway.metric("packrat_sessions_begun_total") > 0);
}

/// A gateway after a new setup has another key, which the token endpoint gives.
#[test]
fn a_running_agent_follows_its_gateway_to_another_key() {
    let server = Server::start(&["localhost"], false);
    let gateway = TokenGateway::start(&server, "required");
    let public = gateway.0.route.public_key().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    let keys = [some_key(), public];
    let document = move |number: usize| {
        // The first is renewed after six seconds.
        let lifetime = if number == 0 { 8 } else { 300 };
        let (key, expires) = (&keys[number.min(1)], unix_now() + lifetime);
        json!({ "version": 1, "gateway_key": key, "token": token(), "expires": expires })
            .to_string()
    };
    let endpoint = serve_documents(document, &authority);
    let url = format!("https://localhost:{}{PATH}", endpoint.port());
    let arguments = ["--assist-token-from", &url, "--cacert", authority.to_str().unwrap()];
    let mut agent = Agent::start(gateway.0.address, &arguments);
    // The gateway would also begin a session with a client that does not accept it, and hear no
    // more.
    agent.wait_until(|| gateway.metric("packrat_eacks_total{result=\"decoded\"}") > 0);
}

/// Size, start-up and memory (medians of 5), for the filter's README: `cargo test -p packrat --test
/// token -- --ignored --nocapture`.
#[test]
#[ignore = "prints figures and checks nothing"]
fn figures() {
    let Some(parts) = Parts::find() else { return };
    let with = configuration(&some_key(), 4433, &json!({}));
    println!("module: {} bytes", parts.module_size());
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for workers in [1, 4] {
        for (name, configuration) in [("without", None), ("with", Some(with.as_str()))] {
            let (mut start_ups, mut memory) = (Vec::new(), Vec::new());
            for run in 0..5 {
                let issuer = Issuer::start(&parts, workers, configuration);
                start_ups.push(issuer.start_up);
                memory.push(issuer.memory());
                if configuration.is_some() && workers == 1 && run == 4 {
                    for _ in 0..200 {
                        curl(&issuer, "2", PATH, &[]);
                    }
                    let [allocated, resident] = issuer.memory().map(mebibytes);
                    println!(
                        "after 200 tokens: allocated {allocated:.2} MiB, resident {resident:.1} MiB"
                    );
                }
            }
            start_ups.sort_unstable();
            memory.sort_unstable();
            let (start_up, [allocated, resident]) =
                (start_ups[2].as_millis(), memory[2].map(mebibytes));
            println!(
                "{workers} workers, {name} the filter: start-up {start_up} ms, allocated {allocated:.2} MiB, resident {resident:.1} MiB"
            );
        }
    }
}
