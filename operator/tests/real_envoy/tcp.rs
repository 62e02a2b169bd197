//! TCP connections that a gateway passes through to the servers of a route.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use packrat_operator::drain::CONNECTIONS_PATH;
use packrat_operator::resource::TcpPolicy;
use packrat_operator::xds::file_of;
use packrat_operator::xds::wire::{CLUSTER_TYPE, LISTENER_TYPE};
use packrat_real_envoy::{EVENT_PATIENCE, Envoy, find, free_port};
use tokio::net::TcpSocket;

use super::envoy::Entry;
use super::operator::Replica;
use super::scene::{OneRoute, Scene, agree, exchange, socket};
use super::{ask, page};

/// The query of `packrat stat` about TCP connections.
const COUNTED: &str = "%5Ecluster%5C.servers-%5B0-9%5D%2B%5C.upstream_cx_(active|total)%24";
/// Asks a route for TCP.
pub(crate) const ASK: [(&str, &str); 1] = [("packrat.dev/tcp", "passthrough")];

/// A server that sends each connection its name and then echoes the received bytes.
pub(crate) fn server(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let _ = stream.write_all(name.as_bytes());
                let mut buffer = [0; 1000];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// A connection to a gateway and the server that has answered. Tried again, as a listener may just be
/// coming or changing.
fn connect(envoy: &Envoy, port: u16, expected: &str) -> TcpStream {
    let mut found = None;
    envoy.wait_until("a server that answers by TCP", |_| {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut name = vec![0; expected.len()];
        let is_it = stream.read_exact(&mut name).is_ok() && name == expected.as_bytes();
        found = Some(stream);
        is_it
    });
    found.unwrap()
}

/// Sends bytes, and expects the same back.
fn echoes(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(EVENT_PATIENCE)).unwrap();
    let sent = [7; 5000];
    stream.write_all(&sent).unwrap();
    let mut back = [0; 5000];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, sent);
}

fn is_refused(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port))
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Waits until Envoy has acknowledged the newest configuration.
fn acknowledged(envoy: &Envoy, replica: &Replica) {
    envoy.wait_until("the newest configuration to be acknowledged", |_| {
        let (newest, acknowledged) = replica.versions();
        newest.is_some() && newest == acknowledged
    });
}

/// A browser comes by TCP first, and a client whose network blocks UDP never comes by anything else.
#[test]
fn tcp_connections_go_to_the_servers_of_the_route_and_last() {
    let Some(OneRoute { scene, envoy, server: udp, port, client, source }) = OneRoute::begin(&[])
    else {
        return;
    };
    let (replica, endpoint) = (&scene.replica, udp.local_addr().unwrap());
    let (first, second) = (server("first"), server("second"));
    let serve = |tcp: u16, annotations: &[(&str, &str)]| {
        replica.service_with_tcp("web", port, &[endpoint], Some(tcp), annotations);
    };
    // Without permission, the annotation has no effect.
    serve(first, &ASK);
    agree(&envoy, replica, 1);
    assert!(is_refused(port));

    replica.gateway(|model| model.spec.tcp = TcpPolicy::Allowed);
    agree(&envoy, replica, 2);
    let mut early = connect(&envoy, port, "first");
    echoes(&mut early);
    assert_eq!(exchange(&client, &udp), source, "the same port has UDP, as before");
    acknowledged(&envoy, replica);
    // A Pod that ends waits for connections as for sessions.
    let count =
        |envoy: &Envoy| envoy.get(CONNECTIONS_PATH).trim().rsplit(' ').next().map(str::to_owned);
    envoy.wait_until("the connection to be counted", |envoy| count(envoy).as_deref() == Some("1"));

    // As packrat stat asks, by way of the loopback interface.
    let counted = envoy.get(&format!("/stats/prometheus?filter={COUNTED}"));
    let line = |what: &str, value: u32| {
        format!("envoy_cluster_upstream_cx_{what}{{envoy_cluster_name=\"servers-{port}\"}} {value}")
    };
    assert!(counted.lines().any(|found| found == line("active", 1)), "{counted}");
    assert!(counted.lines().all(|line| line.starts_with('#') || line.contains("servers-")));

    // Its servers change: new connections go to the new one, and present connections stay.
    serve(second, &ASK);
    let late = connect(&envoy, port, "second");
    echoes(&mut early);
    // The operator restarts without taking a resource away.
    let scene = scene.restart(|| echoes(&mut early));
    let replica = &scene.replica;
    replica.gateway(|model| model.spec.tcp = TcpPolicy::Allowed);
    replica.service_with_tcp("web", port, &[endpoint], Some(second), &ASK);
    replica.complete();
    // It has asked again, so that the replica knows what it has.
    acknowledged(&envoy, replica);
    agree(&envoy, replica, 2);
    echoes(&mut early);

    // The route asks no longer: new connections are refused, and present ones have the time that
    // draining takes.
    replica.service_with_tcp("web", port, &[endpoint], Some(second), &[]);
    agree(&envoy, replica, 1);
    envoy.wait_until("connections to be refused", |_| is_refused(port));
    echoes(&mut early);
    drop((early, late));
    assert_eq!(exchange(&client, &udp), source);
}

/// True if the system looks after the other end of a client's connection: with a timer of the kind 2
/// (proc_net_tcp).
fn is_asked_for(client: SocketAddr) -> bool {
    let remote = format!("0100007F:{:04X}", client.port());
    let connections = fs::read_to_string("/proc/net/tcp").unwrap();
    connections.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(2) == Some(&remote.as_str())
            && words.get(5).is_some_and(|timer| timer.starts_with("02:"))
    })
}

/// A flood of connections does not take resources that sessions need.
#[test]
fn connections_of_a_route_are_limited() {
    let Some(OneRoute { scene, envoy, server: udp, port, client, source }) = OneRoute::begin(&[])
    else {
        return;
    };
    let replica = &scene.replica;
    let tcp = server("hello");
    replica.gateway(|model| {
        model.spec.tcp = TcpPolicy::Passthrough;
        // A quarter of it.
        model.spec.sessions.maximum = 12;
    });
    replica.service_with_tcp("web", port, &[udp.local_addr().unwrap()], Some(tcp), &[]);
    agree(&envoy, replica, 2);
    let mut held: Vec<TcpStream> = (0..3).map(|_| connect(&envoy, port, "hello")).collect();
    // The connection of a client that has vanished becomes free: the system asks for it.
    envoy.wait_until("the connections to be asked for", |_| {
        held.iter().all(|stream| is_asked_for(stream.local_addr().unwrap()))
    });
    let mut above = TcpStream::connect(("127.0.0.1", port)).unwrap();
    above.set_read_timeout(Some(EVENT_PATIENCE)).unwrap();
    assert!(!matches!(above.read(&mut [0; 100]), Ok(1..)), "it is closed");
    held.iter_mut().for_each(echoes);
    assert_eq!(exchange(&client, &udp), source);
    held.pop();
    connect(&envoy, port, "hello");
}

/// Memory that comes to an end is kept for sessions.
#[test]
fn a_gateway_without_memory_refuses_connections_and_no_session() {
    let Some(mut scene) = Scene::begin() else { return };
    // Less than an Envoy has when it starts.
    scene.memory = 1 << 20;
    let local = Ipv4Addr::LOCALHOST.into();
    let Some(OneRoute { scene, envoy, server: udp, port, client, source }) =
        OneRoute::of(scene, &[], local, local)
    else {
        return;
    };
    let replica = &scene.replica;
    replica.gateway(|model| model.spec.tcp = TcpPolicy::Passthrough);
    replica.service_with_tcp("web", port, &[udp.local_addr().unwrap()], Some(server("no")), &[]);
    agree(&envoy, replica, 2);
    envoy.wait_until("connections to be refused", |envoy| {
        let refused = TcpStream::connect(("127.0.0.1", port)).is_ok_and(|mut stream| {
            stream.set_read_timeout(Some(EVENT_PATIENCE)).unwrap();
            !matches!(stream.read(&mut [0; 100]), Ok(1..))
        });
        refused && envoy.get("/stats?filter=overload_reject").contains(": 1")
    });
    assert_eq!(exchange(&client, &udp), source);
    // Its page is read, and it is ready.
    let page = page(&envoy, "metrics-node");
    for path in ["/ready", "/stats/prometheus"] {
        assert_eq!(ask(local, page, "GET", path).0, 200, "{path}");
    }
}

/// TCP is also passed through with the last configuration.
#[test]
fn a_gateway_that_starts_without_an_operator_passes_tcp_through() {
    let Some(scene) = Scene::begin() else { return };
    let (udp, port) = (socket(), free_port());
    let replica = &scene.replica;
    replica.gateway(|model| model.spec.tcp = TcpPolicy::Allowed);
    let endpoint: SocketAddr = udp.local_addr().unwrap();
    replica.service_with_tcp("web", port, &[endpoint], Some(server("last")), &ASK);
    replica.complete();
    let mut resources = replica.resources();
    while resources.len() < 3 {
        std::thread::sleep(Duration::from_millis(10));
        resources = replica.resources();
    }
    let away = TcpSocket::new_v4().unwrap();
    away.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let entry = Entry {
        operator: away.local_addr().unwrap(),
        last: file_of(&resources, LISTENER_TYPE),
        clusters: Some(file_of(&resources, CLUSTER_TYPE)),
    };
    let envoy = scene.envoy_by(&entry);
    echoes(&mut connect(&envoy, port, "last"));
    assert_eq!(replica.connected(), 0, "it has the configuration of the operator");
}

/// A server that takes the PROXY protocol: Caddy.
struct Caddy(Child);

impl Caddy {
    fn start(folder: &Path, port: u16) -> Option<Self> {
        let program = find("PACKRAT_CADDY", ".packrat/bin/caddy", "tools/install-demo-parts")?;
        let configuration = format!(
            "{{\n admin off\n auto_https off\n servers {{\n  listener_wrappers {{\n   proxy_protocol {{\n    allow 127.0.0.0/8\n   }}\n  }}\n }}\n}}\nhttp://:{port} {{\n bind 127.0.0.1\n respond {{remote_host}}\n}}\n"
        );
        let file = folder.join("Caddyfile");
        fs::write(&file, configuration).unwrap();
        let child = Command::new(program)
            .args(["run", "--adapter", "caddyfile", "--config"])
            .arg(&file)
            .env("HOME", folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self(child))
    }
}

impl Drop for Caddy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Over TCP a server need not ask for the client's address.
#[test]
fn a_server_that_takes_the_proxy_protocol_knows_its_clients() {
    let folder = tempfile::tempdir().unwrap();
    let tcp = free_port();
    let Some(_caddy) = Caddy::start(folder.path(), tcp) else { return };
    let Some(OneRoute { scene, envoy, server: udp, port, .. }) = OneRoute::begin(&[]) else {
        return;
    };
    let (replica, endpoint) = (&scene.replica, udp.local_addr().unwrap());
    replica.gateway(|model| model.spec.tcp = TcpPolicy::Allowed);
    let seen = |expected: &str| {
        envoy.wait_until("the address that the server sees", |_| {
            let output = Command::new("curl")
                .args(["--silent", "--max-time", "5", "--interface", "127.0.0.2"])
                .arg(format!("http://127.0.0.1:{port}/"))
                .output()
                .unwrap_or_else(|error| panic!("this test needs curl: {error}"));
            output.stdout == expected.as_bytes()
        });
    };
    replica.service_with_tcp("web", port, &[endpoint], Some(tcp), &ASK);
    seen("127.0.0.1");
    let with_address = [("packrat.dev/tcp", "proxy-protocol")];
    replica.service_with_tcp("web", port, &[endpoint], Some(tcp), &with_address);
    seen("127.0.0.2");
}
