//! The module in a real Envoy. Needs `PACKRAT_ENVOY` or `.packrat/venv/bin/envoy` in the workspace.

#[path = "../../dataplane/tests/client/mod.rs"]
mod assisted;

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use packrat_assist_token::{Claims, Key, RouteHash};
use packrat_client::{ClientConfig, RefusalReason};
use packrat_real_envoy::{
    EVENT_PATIENCE, Envoy, find_envoy, free_address, listener, module_directory, validates,
};
use packrat_wire::control::{Control, PROTOCOL_VERSION};

/// A server that sends every datagram back, with the port that it came from in front.
struct EchoServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EchoServer {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let address = socket.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 70_000];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                let mut answer = from.port().to_be_bytes().to_vec();
                answer.extend_from_slice(&buffer[..length.min(65_505)]);
                socket.send_to(&answer, from).unwrap();
            }
        });
        Self { address, stop, thread: Some(thread) }
    }

    fn route(&self, more: &str) -> String {
        format!("{{ route: web, gateway: edge, endpoints: [\"{}\"]{more} }}", self.address)
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn client(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(EVENT_PATIENCE)).unwrap();
    socket.connect(to).unwrap();
    socket
}

fn start(program: &Path, workers: usize, listeners: &[String]) -> Envoy {
    Envoy::start_gateway(program, &module_directory(), workers, listeners)
}

/// A server, the address of its route, and the Envoy between them, if there is one.
fn served(workers: usize) -> Option<(EchoServer, SocketAddr, Envoy)> {
    let program = find_envoy()?;
    let (server, address) = (EchoServer::start(), free_address("127.0.0.1"));
    let envoy = start(&program, workers, &[listener("web", address, &server.route(""))]);
    Some((server, address, envoy))
}

/// Asks the server; the port from which the gateway has spoken to it. Fails when anything but the
/// answer comes back.
fn ask(client: &UdpSocket, question: &[u8]) -> u16 {
    client.send(question).unwrap();
    let mut buffer = vec![0; 70_000];
    let length = client.recv(&mut buffer).expect("an answer");
    assert!(buffer[2..length] == *question, "{} bytes came back as {}", question.len(), length - 2);
    u16::from_be_bytes([buffer[0], buffer[1]])
}

#[test]
fn datagrams_pass_both_ways_and_are_counted_with_labels() {
    let Some(program) = find_envoy() else { return };
    let server = EchoServer::start();
    // A wildcard listener: answers have to leave from the address that was asked.
    let address = free_address("0.0.0.0");
    let envoy = start(
        &program,
        2,
        &[listener("web", address, &server.route(", cache_bytes_total: 5000000000"))],
    );
    let mut bytes = 0;
    for (index, ip) in ["127.0.0.1", "127.0.0.2", "127.0.0.3"].iter().cycle().take(12).enumerate() {
        let client = client(SocketAddr::new(ip.parse().unwrap(), address.port()));
        for size in [0, 1, 1200, 1472, 9000, 65_505] {
            ask(&client, &vec![index as u8; size]);
            bytes += size as u64;
        }
    }
    // Each on its own: they are not taken at the same instant.
    envoy.wait_until("the metrics", |envoy| {
        envoy.metric("packrat_to_client_datagrams_total", "web") == Some(72)
            && envoy.metric("packrat_sessions", "web") == Some(12)
            && envoy.metric("packrat_to_server_bytes_total", "web") == Some(bytes)
    });
    assert_eq!(envoy.metric("packrat_sessions_opened_total", "web"), Some(12));
    assert_eq!(envoy.metric("packrat_control_received_total", "web"), Some(0));
    let status: serde_json::Value = serde_json::from_str(&envoy.get("/packrat")).expect("JSON");
    assert_eq!(status["routes"][0]["route"], "web");
    assert_eq!(status["routes"][0]["configuration"]["endpoints"][0], server.address.to_string());
    assert_eq!(status["routes"][0]["metrics"]["packrat_sessions"], 12);
    assert!(envoy.log().contains("\"event\":\"session_opened\""));
    assert_eq!(envoy.terminate(), Some(0), "{}", envoy.log());
    assert!(envoy.log().contains("\"event\":\"session_closed\""));
}

#[test]
fn control_datagrams_stay_in_the_gateway() {
    let Some((_server, address, envoy)) = served(1) else { return };
    let client = client(address);
    let port = ask(&client, b"hello");
    for nonce in 0..6 {
        let (mut discover, mut offer) = (Vec::new(), [0; 100]);
        Control::Discover { nonce, versions: &[PROTOCOL_VERSION], noise: &[] }
            .encode(&mut discover);
        client.send(&discover).unwrap();
        let length = client.recv(&mut offer).unwrap();
        assert!(matches!(Control::decode(&offer[..length]), Ok(Control::Offer { .. })));
    }
    // The next answer is the server's to this question: nothing before it was forwarded.
    assert_eq!(ask(&client, b"still here"), port);
    envoy.wait_until("the count", |envoy| {
        envoy.metric("packrat_control_received_total", "web") == Some(6)
    });
    assert_eq!(envoy.metric("packrat_to_server_datagrams_total", "web"), Some(2));
}

#[test]
fn an_update_changes_nothing_for_sessions_and_loses_nothing() {
    let Some((server, address, mut envoy)) = served(2) else { return };
    let clients: Vec<_> = (0..40).map(|_| client(address)).collect();
    let ports: Vec<_> = clients.iter().map(|client| ask(client, b"before")).collect();

    // Traffic continues while the listeners change under it.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut rounds = 0u32;
            while !stop.load(Ordering::Relaxed) {
                for (client, port) in clients.iter().zip(&ports) {
                    assert_eq!(
                        ask(client, &rounds.to_be_bytes()),
                        *port,
                        "a session has lost its upstream socket"
                    );
                }
                rounds += 1;
            }
            rounds
        });
        // Also when an update fails.
        let _stop = StopOnDrop(&stop);
        for budget in [0.3, 0.4, 0.5] {
            assert!(envoy.update(&[listener(
                "web",
                address,
                &server.route(&format!(", repair_budget: {budget}"))
            )]));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(traffic.join().expect("no datagram was lost") > 0);
    });
    for (client, port) in clients.iter().zip(&ports) {
        assert_eq!(ask(client, b"after"), *port);
    }
    envoy.wait_until("the metrics", |envoy| envoy.metric("packrat_sessions", "web") == Some(40));
    assert_eq!(envoy.metric("packrat_sessions_opened_total", "web"), Some(40));
}

#[test]
fn a_listener_that_goes_and_returns_finds_its_sessions() {
    let Some(program) = find_envoy() else { return };
    let server = EchoServer::start();
    let address = free_address("127.0.0.1");
    let resource = listener("web", address, &server.route(""));
    let mut envoy = start(&program, 2, std::slice::from_ref(&resource));
    let clients: Vec<_> = (0..40).map(|_| client(address)).collect();
    let ports: Vec<_> = clients.iter().map(|client| ask(client, b"before")).collect();
    for returns_at_once in [false, true, false] {
        assert!(envoy.update(&[]));
        if !returns_at_once {
            // Envoy keeps the socket for its drain time. Then no socket is left on the port, no
            // duplicate of the module either.
            envoy.wait_until("the port to be free", |_| UdpSocket::bind(address).is_ok());
        }
        assert!(envoy.update(std::slice::from_ref(&resource)));
        envoy.wait_until("the listener", |_| UdpSocket::bind(address).is_err());
        for (client, port) in clients.iter().zip(&ports) {
            // While the listener was away a question may have been refused (ICMP); that error is
            // old news.
            let _ = client.take_error();
            assert_eq!(ask(client, b"after"), *port);
        }
    }
    envoy.wait_until("the metrics", |envoy| {
        envoy.metric("packrat_sessions_opened_total", "web") == Some(40)
    });
}

#[test]
fn a_bad_configuration_is_refused_and_the_old_one_stays() {
    let Some((server, address, mut envoy)) = served(1) else { return };
    let client = client(address);
    let port = ask(&client, b"before");
    for (value, reason) in [
        (server.route(", repair_budjet: 1"), "repair_budjet"),
        (server.route(", idle_timeout_seconds: 0"), "idle_timeout_seconds"),
        ("{ route: web, endpoints: [] }".to_owned(), "endpoints"),
        (server.route(", static_key_file: /nonexistent/key"), "/nonexistent/key"),
    ] {
        assert!(!envoy.update(&[listener("web", address, &value)]), "accepted: {value}");
        assert!(envoy.log().contains("configuration_refused"));
        assert!(envoy.log().contains(reason), "no reason for {value} in the log:\n{}", envoy.log());
        assert_eq!(ask(&client, b"after"), port);
    }
}

#[test]
fn clients_follow_their_endpoint_when_it_is_replaced() {
    let Some(program) = find_envoy() else { return };
    let (old, new) = (EchoServer::start(), EchoServer::start());
    let address = free_address("127.0.0.1");
    let mut envoy = start(&program, 2, &[listener("web", address, &old.route(""))]);
    let clients: Vec<_> = (0..10).map(|_| client(address)).collect();
    for client in &clients {
        ask(client, b"before");
    }
    assert!(envoy.update(&[listener("web", address, &new.route(""))]));
    // As long as the former server answers, no session moves.
    for client in &clients {
        ask(client, b"between");
    }
    assert_eq!(envoy.metric("packrat_sessions_moved_total", "web").unwrap_or(0), 0);
    drop(old);
    envoy.wait_until("everybody to move", |envoy| {
        for client in &clients {
            // An answer to the one before may be a refusal (ICMP), which is old news.
            let _ = client.send(b"after");
        }
        envoy.metric("packrat_sessions_moved_total", "web") == Some(10)
    });
    for client in &clients {
        ask(client, b"after");
    }
    assert_eq!(envoy.metric("packrat_sessions_opened_total", "web"), Some(10));
}

#[test]
fn validation_accepts_what_is_right_and_refuses_what_is_not() {
    let Some(program) = find_envoy() else { return };
    let address = free_address("127.0.0.1");
    assert!(validates(
        &program,
        &module_directory(),
        &listener("web", address, "{ route: web, endpoints: [\"192.0.2.1:443\"] }")
    ));
    assert!(!validates(
        &program,
        &module_directory(),
        &listener("web", address, "{ route: web, endpoints: [\"192.0.2.1\"] }")
    ));
}

#[test]
fn two_listeners_share_their_route_and_routes_count_separately() {
    let Some(program) = find_envoy() else { return };
    let (one, other) = (EchoServer::start(), EchoServer::start());
    let has_ipv6 = UdpSocket::bind("[::1]:0").is_ok();
    let loopback = if has_ipv6 { "::1" } else { "127.0.0.1" };
    let addresses = [free_address("127.0.0.1"), free_address(loopback), free_address("127.0.0.1")];
    let second = format!("{{ route: media, gateway: edge, endpoints: [\"{}\"] }}", other.address);
    let envoy = start(
        &program,
        2,
        &[
            listener("web4", addresses[0], &one.route("")),
            listener("web6", addresses[1], &one.route("")),
            listener("media", addresses[2], &second),
        ],
    );
    ask(&client(addresses[0]), b"IPv4");
    let six = UdpSocket::bind((loopback, 0)).unwrap();
    six.set_read_timeout(Some(EVENT_PATIENCE)).unwrap();
    six.connect(addresses[1]).unwrap();
    ask(&six, b"IPv6 client, IPv4 server");
    ask(&client(addresses[2]), b"another route");
    envoy.wait_until("the metrics", |envoy| {
        envoy.metric("packrat_sessions", "web") == Some(2)
            && envoy.metric("packrat_sessions", "media") == Some(1)
    });
}

#[test]
fn a_draining_envoy_assists_only_its_current_clients() {
    let Some((_server, address, envoy)) = served(2) else { return };
    let plain = client(address);
    let port = ask(&plain, b"before");
    let mut assisted = assisted::Client::new(address);
    assisted.establish();
    // Takes Envoy out of load balancing; that is no drain yet.
    envoy.post("/healthcheck/fail");
    assert_eq!(ask(&plain, b"between"), port);
    assert!(!envoy.log().contains("\"event\":\"draining\""), "{}", envoy.log());
    envoy.post("/drain_listeners?graceful");
    envoy.wait_until("the drain", |envoy| envoy.log().contains("\"event\":\"draining\""));
    let mut late = assisted::Client::new(address);
    late.wait_for_refusal();
    assert_eq!(ask(&plain, b"after"), port);
    envoy.wait_until("the metrics", |envoy| {
        envoy.metric("packrat_sessions_assisted", "web") == Some(1)
    });
    envoy.terminate();
    assisted.wait_for_goodbye();
}

/// A client without assistance and its server reach each other.
fn assert_forwarded(client: &mut assisted::Client, server: &UdpSocket) {
    client.socket.send(b"plain").unwrap();
    let mut buffer = [0; 100];
    let (length, from) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"plain");
    server.send_to(b"answer", from).unwrap();
    let is_answer = |datagram: Vec<u8>| datagram == b"answer";
    client.turn_until("the answer", |_, received| received.is_some_and(is_answer));
}

#[test]
fn the_filter_helps_who_has_a_token_and_forwards_for_everybody() {
    let Some(program) = find_envoy() else { return };
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(EVENT_PATIENCE)).unwrap();
    let endpoint = server.local_addr().unwrap();
    let address = free_address("127.0.0.1");
    let key = |id: u8| format!("{id}:{}", format!("{id:02x}").repeat(32));
    let route = |keys: &[u8]| {
        let keys: Vec<_> = keys.iter().map(|id| format!("\"{}\"", key(*id))).collect();
        let tokens = format!("tokens: required, token_keys: [{}]", keys.join(", "));
        listener(
            "web",
            address,
            &format!("{{ route: web, gateway: edge, endpoints: [\"{endpoint}\"], {tokens} }}"),
        )
    };
    let mut envoy = start(&program, 2, &[route(&[2])]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let token = |id: u8, expires: u64, route: &str| {
        let claims = Claims { expires, route: RouteHash::of(route), binding: None, nonce: 1 };
        Key::from_text(&key(id)).unwrap().issue(&claims)
    };
    let config = |token: Vec<u8>| {
        ClientConfig::default().with_token(packrat_client::Token::new(token).unwrap())
    };
    let good = token(2, now + 300, "web");

    let (mut client, upstream) = assisted::connect_with(address, &server, config(good.clone()));
    let repairs = || envoy.metric("packrat_repairs_total", "web").unwrap_or_default();
    assisted::transfer_until_repaired(&mut client, &server, upstream, 0, repairs);
    for (token, counter) in [
        (Vec::new(), "missing"),
        (token(2, now - 10, "web"), "expired"),
        (token(3, now + 300, "web"), "forged"),
        (token(2, now + 300, "video"), "elsewhere"),
    ] {
        let mut refused = assisted::Client::with(address, config(token));
        assert_eq!(refused.wait_for_refusal(), RefusalReason::Token, "{counter}");
        assert_forwarded(&mut refused, &server);
        let result = format!("result=\"refused_token_{counter}\"");
        envoy.wait_until(&result, |envoy| {
            envoy.get("/stats/prometheus").lines().any(|line| {
                line.starts_with("packrat_handshakes_total{")
                    && line.contains(&result)
                    && !line.ends_with(" 0")
            })
        });
    }
    assert_eq!(envoy.metric("packrat_sessions_begun_total", "web"), Some(1));

    // Another key, then the old one is gone: the session continues, and later clients need a token
    // of the new key.
    assert!(envoy.update(&[route(&[3, 2])]));
    drop(assisted::connect_with(address, &server, config(good.clone())));
    assert!(envoy.update(&[route(&[3])]));
    let mut late = assisted::Client::with(address, config(good));
    assert_eq!(late.wait_for_refusal(), RefusalReason::Token);
    drop(assisted::connect_with(address, &server, config(token(3, now + 300, "web"))));
    // Also after the rotation.
    let repairs = || envoy.metric("packrat_repairs_total", "web").unwrap_or_default();
    assisted::transfer_until_repaired(&mut client, &server, upstream, 1_000_000, repairs);
}
