//! The discovery service with a real Envoy: Envoy has the index's resources. Needs `PACKRAT_ENVOY`
//! or `.packrat/venv/bin/envoy`.

#[path = "../../../gateway-filter/dataplane/tests/client/mod.rs"]
mod assisted;
mod certificates;
mod envoy;
mod last;
mod operator;
mod scene;
mod tcp;
mod terminate;
mod tokens;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use operator::Cluster;
use packrat_api::token::TokenPolicy;
use packrat_client::ClientConfig;
use packrat_operator::resource::TokenTls;
use packrat_real_envoy::{EVENT_PATIENCE, body_of, free_port};
use scene::{OneRoute, Scene, agree, exchange, has_ipv6, socket};
use serde_json::{Value, json};

#[test]
fn envoy_forwards_with_assistance_what_the_index_says() {
    let Some(route) = OneRoute::begin(&[("packrat.dev/config.idle-timeout-seconds", "77")]) else {
        return;
    };
    let OneRoute { scene, envoy, server, port, .. } = &route;
    let server_address = server.local_addr().unwrap();
    let listeners = agree(envoy, &scene.replica, 1);
    let listener = &listeners[0];
    assert_eq!(listener["address"]["socket_address"]["port_value"], *port);
    assert_eq!(listener["udp_listener_config"]["downstream_socket_config"]["prefer_gro"], true);
    let filter = &listener["listener_filters"][0]["typed_config"];
    assert_eq!(
        filter["dynamic_module_config"],
        json!({ "name": "packrat_envoy", "do_not_close": true, "metrics_namespace": "packrat" })
    );
    let configuration = &filter["filter_config"]["value"];
    assert_eq!(configuration["route"], format!("app/web/{port}"));
    assert_eq!(configuration["gateway"], "app/default");
    assert_eq!(configuration["endpoints"], json!([server_address.to_string()]));
    assert_eq!(configuration["idle_timeout_seconds"], 77.0);
    assert_eq!(configuration["cache_bytes_total"], "268435456");

    // With assistance: datagrams that the last mile loses are repaired.
    repaired(&route, ([127, 0, 0, 1], *port).into());
    let status: Value = serde_json::from_str(&envoy.get("/packrat")).unwrap();
    assert_eq!(status["routes"][0]["public_key"], scene.cluster.keys.public_key_text());
}

/// A gateway that does not hear of the newest configuration is not reported to have it.
#[test]
fn the_version_that_envoy_has_acknowledged_is_known() {
    let Some(OneRoute { scene, envoy, server, port, .. }) = OneRoute::begin(&[]) else { return };
    let replica = &scene.replica;
    let is_current = || {
        let (newest, acknowledged) = replica.versions();
        newest.is_some() && acknowledged == newest
    };
    envoy.wait_until("the first acknowledgement", |_| is_current());
    let signal = |name: &str| {
        let id = envoy.id().to_string();
        assert!(std::process::Command::new("kill").args([name, &id]).status().unwrap().success());
    };
    let (before, _) = replica.versions();
    signal("-STOP");
    let setting = [("packrat.dev/config.idle-timeout-seconds", "77")];
    replica.service("web", port, &[server.local_addr().unwrap()], &setting);
    envoy.wait_until("the newest configuration", |_| replica.versions().0 != before);
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(replica.versions().1, before, "it has not answered");
    signal("-CONT");
    envoy.wait_until("the acknowledgement", |_| is_current());
}

/// A download of an assisted client, some of which the last mile loses, and which the gateway
/// repairs.
fn repaired(route: &OneRoute, gateway: SocketAddr) {
    let (mut client, upstream) = assisted_client(&route.server, gateway, ClientConfig::default());
    client.establish();
    let repairs = || {
        let status: Value = serde_json::from_str(&route.envoy.get("/packrat")).unwrap_or_default();
        status["routes"][0]["metrics"]["packrat_repairs_total"].as_u64().unwrap_or_default()
    };
    assisted::transfer_until_repaired(&mut client, &route.server, upstream, 0, repairs);
}

/// A client with Packrat's core, and the gateway as the server sees it. Its handshake has not
/// begun.
fn assisted_client(
    server: &UdpSocket,
    gateway: SocketAddr,
    config: ClientConfig,
) -> (assisted::Client, SocketAddr) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let hello = format!("hello {}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let client = assisted::Client::with(gateway, config);
    let start = Instant::now();
    server.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut buffer = [0; 100];
    loop {
        assert!(start.elapsed() < EVENT_PATIENCE, "nothing has reached the server");
        client.socket.send(hello.as_bytes()).unwrap();
        // Datagrams of other clients may still be there, more than once.
        while let Ok((length, upstream)) = server.recv_from(&mut buffer) {
            if &buffer[..length] == hello.as_bytes() {
                return (client, upstream);
            }
        }
    }
}

/// IPv4 and IPv6 clients at one listener, and IPv6 everywhere else: server, operator, the page with
/// metrics.
#[test]
fn everything_works_with_ipv6() {
    if !has_ipv6() {
        return;
    }
    let localhost = IpAddr::from(Ipv6Addr::LOCALHOST);
    let Some(scene) = Scene::of(|| Cluster::at("[::1]:0", "::")) else { return };
    let Some(route) = OneRoute::of(scene, &[], localhost, localhost) else { return };
    let OneRoute { scene, envoy, server, port, client, source } = &route;
    assert!(source.is_ipv6() && source.ip() == localhost);
    let listeners = agree(envoy, &scene.replica, 1);
    let address = &listeners[0]["address"]["socket_address"];
    assert_eq!((&address["address"], &address["ipv4_compat"]), (&json!("::"), &json!(true)));
    let configuration =
        &listeners[0]["listener_filters"][0]["typed_config"]["filter_config"]["value"];
    assert_eq!(
        configuration["endpoints"],
        json!([format!("[::1]:{}", server.local_addr().unwrap().port())])
    );

    repaired(&route, (Ipv6Addr::LOCALHOST, *port).into());
    repaired(&route, (Ipv4Addr::LOCALHOST, *port).into());
    let old = socket();
    old.connect((Ipv4Addr::LOCALHOST, *port)).unwrap();
    exchange(&old, server);

    // An IPv4 endpoint takes the place of the IPv6 one, and the other way round.
    let other = socket();
    scene.replica.service("web", *port, &[other.local_addr().unwrap()], &[]);
    agree(envoy, &scene.replica, 1);
    exchange(client, &other);
    exchange(&old, &other);
    scene.replica.service("web", *port, &[server.local_addr().unwrap()], &[]);
    agree(envoy, &scene.replica, 1);
    exchange(client, server);
}

#[test]
fn sessions_survive_every_change_and_a_restart_of_the_operator() {
    let Some(OneRoute { scene, envoy, server, port, client, source }) = OneRoute::begin(&[]) else {
        return;
    };
    let replica = &scene.replica;
    let (other, other_port) = (socket(), free_port());
    let (server_address, other_address) =
        (server.local_addr().unwrap(), other.local_addr().unwrap());

    // Another Service comes.
    replica.service("other", other_port, &[other_address], &[]);
    agree(&envoy, replica, 2);
    let second = socket();
    second.connect(("127.0.0.1", other_port)).unwrap();
    exchange(&second, &other);
    assert_eq!(exchange(&client, &server), source);

    // Its own listener changes.
    let before = replica.resources()[&format!("udp-{port}")].version.clone();
    replica.service(
        "web",
        port,
        &[server_address],
        &[("packrat.dev/config.repair-budget-percent", "20")],
    );
    envoy.wait_until("a new version", |_| {
        replica.resources()[&format!("udp-{port}")].version != before
    });
    agree(&envoy, replica, 2);
    assert_eq!(exchange(&client, &server), source);

    // A change of endpoints that leaves its own alone, and the time that it takes.
    let far: Vec<SocketAddr> = vec![server_address];
    replica.service("other", other_port, &far, &[]);
    let start = Instant::now();
    envoy.wait_until("the new endpoint in Envoy", |envoy| {
        envoy::listeners(envoy).iter().any(|(name, _, listener)| {
            *name == format!("udp-{other_port}")
                && listener.to_string().contains(&server_address.to_string())
        })
    });
    println!("a change of endpoints has reached Envoy after {:?}", start.elapsed());
    agree(&envoy, replica, 2);

    // The operator restarts, and does not know everything at first: no resource may be taken away.
    let versions = envoy.get("/stats?filter=listener_manager.listener_(added|modified|removed)");
    let scene =
        scene.restart(|| assert_eq!(exchange(&client, &server), source, "without an operator"));
    let replica = &scene.replica;
    envoy.wait_until("Envoy to connect again", |_| replica.connected() == 1);
    assert_eq!(envoy::listeners(&envoy).len(), 2);
    replica.service(
        "web",
        port,
        &[server_address],
        &[("packrat.dev/config.repair-budget-percent", "20")],
    );
    replica.service("other", other_port, &far, &[]);
    replica.complete();
    envoy.wait_until("a snapshot", |_| replica.resources().len() == 2);
    agree(&envoy, replica, 2);
    assert_eq!(exchange(&client, &server), source);
    let again = envoy.get("/stats?filter=listener_manager.listener_(added|modified|removed)");
    assert_eq!(versions, again, "Envoy was sent what it had");

    // The Service goes: its listener is served for a while, then it is gone; the other one stays.
    replica.gateway(|model| model.spec.drain.seconds = 2);
    replica.service("other", other_port, &[], &[]);
    envoy.wait_until("the listener to be gone", |envoy| envoy::listeners(envoy).len() == 1);
    agree(&envoy, replica, 1);
    assert_eq!(exchange(&client, &server), source);
}

/// A replica that has just started has not seen the route that is draining; its sessions keep their
/// time.
#[test]
fn a_route_removed_during_an_operator_restart_still_drains() {
    let Some(OneRoute { scene, envoy, server, port, .. }) = OneRoute::begin(&[]) else { return };
    let (server_address, other_port) = (server.local_addr().unwrap(), free_port());
    scene.replica.service("other", other_port, &[server_address], &[]);
    agree(&envoy, &scene.replica, 2);
    let client = socket();
    client.connect(("127.0.0.1", other_port)).unwrap();
    let source = exchange(&client, &server);

    let scene = scene.restart(|| {});
    let replica = &scene.replica;
    replica.gateway(|model| model.spec.drain.seconds = 3600);
    // The change that the restarted operator sends at once shows that Envoy has heard of
    // everything.
    replica.service(
        "web",
        port,
        &[server_address],
        &[("packrat.dev/config.idle-timeout-seconds", "77")],
    );
    replica.complete();
    envoy.wait_until("the change", |envoy| {
        envoy::listeners(envoy).iter().any(|(_, _, listener)| listener.to_string().contains("77"))
    });
    assert_eq!(exchange(&client, &server), source, "the route is draining");
    assert_eq!(envoy::listeners(&envoy).len(), 2);
    // Their time is over.
    replica.gateway(|model| model.spec.drain.seconds = 0);
    agree(&envoy, replica, 1);
}

/// An address of this machine that is not one of the loopback interface.
fn strange_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // The socket does not send a packet.
    socket.connect((Ipv4Addr::new(192, 0, 2, 200), 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// The port of a page with metrics.
pub(crate) fn page(envoy: &packrat_real_envoy::Envoy, name: &str) -> SocketAddr {
    let mut found = None;
    envoy.wait_until("the listener", |envoy| {
        let listeners: Value =
            serde_json::from_str(&envoy.get("/listeners?format=json")).unwrap_or_default();
        let statuses = listeners["listener_statuses"].as_array().cloned().unwrap_or_default();
        let status = statuses.iter().find(|status| status["name"] == name);
        found = status.and_then(|status| {
            u16::try_from(status["local_address"]["socket_address"]["port_value"].as_u64()?).ok()
        });
        found.is_some_and(|port| port != 0)
    });
    (Ipv4Addr::LOCALHOST, found.unwrap()).into()
}

/// The status of the answer to a request from this address, and its body.
pub(crate) fn ask(from: IpAddr, page: SocketAddr, method: &str, target: &str) -> (u16, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(page).await.unwrap()
    });
    let mut stream: TcpStream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(EVENT_PATIENCE)).unwrap();
    write!(
        stream,
        "{method} {target} HTTP/1.1\r\nHost: gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let answer = read_answer(&mut stream);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_default(), answer)
}

/// Reads an answer to its end. Envoy closes the connection a second after one that it makes itself.
fn read_answer(stream: &mut TcpStream) -> String {
    let (mut answer, mut more) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&answer);
        let is_whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let length = |line: &str| line.strip_prefix("content-length: ")?.parse().ok();
            head.lines().find_map(length).is_some_and(|length: usize| body.len() >= length)
        });
        let length = if is_whole { 0 } else { stream.read(&mut more).unwrap() };
        if length == 0 {
            return text.into_owned();
        }
        answer.extend_from_slice(&more[..length]);
    }
}

/// Pages of Envoy that show keys or change something: no listener leads there.
const UNREACHABLE_PAGES: [&str; 5] =
    ["/packrat/log", "/config_dump", "/quitquitquit", "/packrat/../config_dump", "/packrat/"];

/// Strangers find no client and no session on the page with metrics, begin no observation, and have
/// Envoy's main thread make no long list; on no page can anything be changed.
#[test]
fn strangers_read_totals_and_ask_for_no_client_and_no_session() {
    let Some(OneRoute { envoy, .. }) = OneRoute::begin(&[]) else { return };
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut strangers = vec![(local, page(&envoy, "metrics-node"))];
    match strange_address() {
        Some(address) => strangers.push((address, page(&envoy, "metrics"))),
        None => println!("SKIPPED: this machine has no address beside the loopback interface"),
    }
    for (from, page) in strangers {
        for path in ["/stats/prometheus", "/ready", "/packrat"] {
            assert_eq!(ask(from, page, "GET", path).0, 200, "{path} from {from}");
            assert_eq!(ask(from, page, "POST", path).0, 404, "{path} from {from}");
        }
        for target in [
            "/packrat/sessions",
            "/packrat/sessions?limit=10000",
            "/packrat/sessions?client=127.0.0.1",
            "/packrat/sessions?x&client=127.0.0.1",
            "/packrat/sessions?session=1",
            "/packrat/events?after=0",
            "/packrat/events?session=1&seconds=600",
            "/packrat?client=127.0.0.1",
            "/packrat?",
            "/stats/prometheus?filter=.*",
            "/server_info",
        ] {
            let (status, answer) = ask(from, page, "GET", target);
            assert_eq!(status, 403, "{target} from {from}");
            assert!(answer.contains("kubectl port-forward"), "{target} from {from}: {answer}");
            assert_eq!(ask(from, page, "POST", target).0, 404, "{target} from {from}");
        }
        for target in
            UNREACHABLE_PAGES.into_iter().chain(["/packrat%2Fsessions", "//packrat/sessions"])
        {
            assert_eq!(ask(from, page, "GET", target).0, 404, "{target} from {from}");
        }
    }
}

/// A port-forward leads there: `packrat explain`, `tap` and `top` work by it.
#[test]
fn a_gateways_loopback_pages_are_read_only_and_show_sessions() {
    let Some(OneRoute { envoy, .. }) = OneRoute::begin(&[]) else { return };
    let (local, page) = (IpAddr::V4(Ipv4Addr::LOCALHOST), page(&envoy, "metrics"));
    let json = |target: &str| -> Value {
        let (status, answer) = ask(local, page, "GET", target);
        assert_eq!(status, 200, "{target}: {answer}");
        serde_json::from_str(&body_of(&answer)).unwrap()
    };
    let sessions = json("/packrat/sessions?client=127.0.0.1");
    let session = sessions["sessions"][0]["session"].as_u64().expect("its session");
    assert_eq!(json("/packrat/sessions?client=127.0.0.9")["sessions"], json!([]));
    assert_eq!(json("/packrat/sessions?limit=10000")["total"], 1);
    json(&format!("/packrat/events?session={session}&after=0"));
    for target in ["/packrat", "/packrat/events?after=0", "/server_info"] {
        json(target);
        assert_eq!(ask(local, page, "POST", target).0, 404, "{target}");
    }
    for target in UNREACHABLE_PAGES {
        assert_eq!(ask(local, page, "GET", target).0, 404, "{target}");
        assert_eq!(ask(local, page, "POST", target).0, 404, "{target}");
    }
}

/// A server sees the gateway in its client's place: it may ask for the client's address, only of
/// its own clients, whatever address it claims.
#[test]
fn a_server_reads_the_addresses_of_its_own_clients() {
    let Some(OneRoute { envoy, client, source, server, .. }) = OneRoute::begin(&[]) else { return };
    let clients = |from: [u8; 4], page: &str, query: &str| -> Value {
        let page = self::page(&envoy, page);
        let target = format!("/packrat/clients{query}");
        let (status, answer) = ask(IpAddr::from(from), page, "GET", &target);
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&body_of(&answer)).unwrap()
    };
    let own = [127, 0, 0, 1];
    for page in ["metrics", "metrics-node"] {
        let found = clients(own, page, "");
        assert_eq!(found["total"], 1);
        let found = &found["clients"][0];
        assert_eq!(found["client"], client.local_addr().unwrap().to_string());
        assert_eq!(found["upstream"], source.to_string());
        assert_eq!(found["server"], server.local_addr().unwrap().to_string());
        assert_eq!(clients(own, page, &format!("?upstream={source}"))["total"], 1);
        assert_eq!(clients(own, page, "?upstream=127.0.0.1:1")["total"], 0);
        // The requester is another server, and claims not to be.
        for query in ["", "?requester=127.0.0.1", "?requester=127.0.0.1&requester=127.0.0.1"] {
            assert_eq!(clients([127, 0, 0, 2], page, query)["total"], 0, "{query}");
        }
        let (status, _) = ask(own.into(), self::page(&envoy, page), "POST", "/packrat/clients");
        assert_eq!(status, 404);
    }
    // A request that has come by no page is refused.
    let without = envoy.get("/packrat/clients");
    assert!(without.contains("not known who asks"), "{without}");
}

#[test]
fn what_envoy_refuses_is_told_and_costs_nobody_else_anything() {
    let Some(OneRoute { scene, envoy, server, port, client, .. }) = OneRoute::begin(&[]) else {
        return;
    };
    let (replica, taken) = (&scene.replica, free_port());
    let server_address = server.local_addr().unwrap();

    // A certificate that does not exist: the listener of the tokens is refused, the routes are not.
    replica.gateway(|model| {
        model.spec.tokens.policy = TokenPolicy::Optional;
        model.spec.tokens.tls =
            Some(TokenTls { secret_name: "nowhere".to_owned(), server_name: None });
    });
    replica.service("second", taken, &[server_address], &[]);
    envoy.wait_until("a refusal", |_| !replica.refusals().is_empty());
    let refusals = replica.refusals();
    assert!(refusals[0].contains(&format!("token-{port}")), "{refusals:?}");
    envoy.wait_until("the routes", |envoy| {
        let names: Vec<_> = envoy::listeners(envoy).into_iter().map(|(name, _, _)| name).collect();
        names.contains(&format!("udp-{port}")) && names.contains(&format!("udp-{taken}"))
    });
    exchange(&client, &server);

    // Envoy takes changes of something else: the token listener is refused as before, and the
    // refusal is still reported.
    for far in ["192.0.2.7", "192.0.2.8"] {
        replica.service("second", taken, &[format!("{far}:443").parse().unwrap()], &[]);
        envoy.wait_until("the change of the other route", |envoy| {
            let told = replica.refusals();
            assert!(
                told.first().is_some_and(|reason| reason.contains(&format!("token-{port}"))),
                "{told:?}"
            );
            envoy::listeners(envoy)
                .iter()
                .any(|(_, _, listener)| listener.to_string().contains(far))
        });
    }

    // A listener that is right again is taken, and the refusal is forgotten.
    replica.gateway(|_| {});
    envoy.wait_until("Envoy to be content", |_| replica.refusals().is_empty());
    agree(&envoy, replica, 2);
    exchange(&client, &server);
}

#[test]
fn a_gateway_gets_its_own_configuration_only() {
    let Some(scene) = Scene::begin() else { return };
    let (replica, server) = (&scene.replica, socket());
    replica.service("web", free_port(), &[server.local_addr().unwrap()], &[]);
    replica.complete();
    // The certificate belongs to another EdgeGateway.
    let mut stranger = Cluster::new();
    stranger.gateway.name = "stranger".to_owned();
    stranger.authority = scene.cluster.authority.clone();
    let envoy = scene.envoy_of(&stranger);
    envoy.wait_until("Envoy to be turned away and to try again", |envoy| {
        let tried = envoy.get("/stats?filter=cluster.packrat-operator.upstream_rq_total");
        tried.trim().rsplit(' ').next().and_then(|count| count.parse::<u32>().ok()) >= Some(2)
    });
    assert!(envoy::listeners(&envoy).is_empty());
    assert_eq!(replica.connected(), 0);
    // The certificate belongs to a former EdgeGateway of the same name.
    let (gateway, now) = (&scene.cluster.gateway, jiff::Timestamp::now().as_second());
    let former = scene.cluster.authority.issue_gateway(gateway, "former", now).unwrap();
    let envoy = scene.envoy_with(&former);
    envoy.wait_until("Envoy to be turned away and to try again", |envoy| {
        let tried = envoy.get("/stats?filter=cluster.packrat-operator.upstream_rq_total");
        tried.trim().rsplit(' ').next().and_then(|count| count.parse::<u32>().ok()) >= Some(2)
    });
    assert!(envoy::listeners(&envoy).is_empty());
    // One of another authority does not even get that far.
    let envoy = scene.envoy_of(&Cluster::new());
    envoy.wait_until("the failed handshake", |envoy| {
        envoy.get("/stats?filter=cluster.packrat-operator.ssl.connection_error|cluster.packrat-operator.ssl.fail_verify").lines().any(|line| !line.ends_with(": 0"))
    });
    assert_eq!(replica.connected(), 0);
}

#[test]
fn a_gateway_that_drains_forwards_until_its_sessions_have_ended() {
    let idle = [("packrat.dev/config.idle-timeout-seconds", "2")];
    let Some(route) = OneRoute::begin(&idle) else { return };
    let OneRoute { envoy, server, client, source, .. } = &route;

    let (admin, start) = (envoy::admin(envoy), Instant::now());
    let draining =
        std::thread::spawn(move || packrat_operator::drain::drain(&admin, EVENT_PATIENCE));
    envoy.wait_until("the drain to begin", |envoy| envoy.log().contains("\"event\":\"draining\""));
    assert_eq!(exchange(client, server), *source, "forwarding goes on");
    // The client falls silent, and the session ends.
    assert_eq!(draining.join().unwrap().unwrap(), packrat_operator::drain::End::NoSessions);
    println!("drained after {:?}", start.elapsed());
    assert!(
        packrat_operator::drain::drain(Path::new("/nobody"), Duration::ZERO).is_err(),
        "nobody is there"
    );
}
