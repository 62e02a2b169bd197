//! Many clients at once on all threads of the program, while some move, operators look, and it drains.
//! `make check-sanitizers` runs it with programs that sanitizers have instrumented.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use packrat_emulation::flood::Flood;
use serde_json::Value;

use crate::client::{self, Client, connect, transfer};
use crate::program::{PATIENCE, Program, get};

const CLIENTS: usize = 6;
const WORKERS: &str = "4";
/// Datagrams of one transfer.
const DATAGRAMS: usize = 200;

fn metric(metrics: &Value, name: &str) -> u64 {
    let text = get(metrics, "/metrics");
    let series = |line: &&str| line.starts_with(&format!("packrat_{name}{{"));
    let value = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
    text.lines().filter(series).filter_map(value).sum()
}

/// Gives the client another port, which its next message announces.
fn change_port(client: &mut Client, gateway: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(gateway).unwrap();
    client.go_on_from(socket);
}

/// Three transfers; every second client has another port for each.
fn use_assistance(
    number: usize,
    client: &mut Client,
    server: &UdpSocket,
    upstream: SocketAddr,
    gateway: SocketAddr,
) {
    for round in 0..3 {
        let first = round * DATAGRAMS;
        if round > 0 && number.is_multiple_of(2) {
            change_port(client, gateway);
            let reports = client.assist.stats().reports;
            let mut next = first + 1_000_000;
            // The gateway answers at the new address once it has been proved.
            client.turn_until("an answer at the new address", |client, received| {
                match received {
                    Some(datagram) => _ = client.assist.on_datagram(&datagram, client.now()),
                    None => {
                        next += 1;
                        server.send_to(&client::encrypted(next), upstream).unwrap();
                    }
                }
                client.assist.stats().reports > reports
            });
        }
        transfer(client, server, upstream, first..first + DATAGRAMS);
    }
}

/// Clients on all threads are repaired while others move and operators read the pages.
#[test]
fn clients_on_all_threads_are_repaired_during_moves_and_queries() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("route.json");
    let endpoint = server.local_addr().unwrap();
    // No session ends because its client is late.
    let route =
        format!(r#"{{"route":"web","endpoints":["{endpoint}"],"idle_timeout_seconds":3600}}"#);
    std::fs::write(&file, route).unwrap();
    let config = file.to_str().unwrap();
    let arguments = ["--listen", "127.0.0.1:0", "--config", config, "--workers", WORKERS];
    let more = ["--metrics", "127.0.0.1:0", "--drain-seconds", "1", "--log-level", "debug"];
    let mut program = Program::start(&[&arguments[..], &more[..]].concat());
    let ready = program.line("ready");
    let gateway: SocketAddr = ready["listen"].as_str().unwrap().parse().unwrap();
    let metrics = &ready["metrics"];
    // The test reads the log, because the program blocks when the pipe is full.
    let mut log = program.take_output();
    let reader = std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()).unwrap());

    let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(gateway, &server)).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let assisted: Vec<_> = clients
            .iter_mut()
            .enumerate()
            .map(|(number, (client, upstream))| {
                let (server, upstream) = (&server, *upstream);
                scope.spawn(move || use_assistance(number, client, server, upstream, gateway))
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for path in ["/metrics", "/packrat/overview", "/packrat/sessions", "/packrat/log"] {
                    get(metrics, path);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        scope.spawn(|| {
            // Sessions that begin and end beside them, on all threads.
            let flood = Flood {
                random: 2000,
                forged: 500,
                sources: 50,
                duration: Duration::from_secs(2),
                seed: 1,
            };
            flood.run(gateway, &over).unwrap();
        });
        let failed = assisted.into_iter().filter_map(|thread| thread.join().err()).last();
        over.store(true, Ordering::Relaxed);
        if let Some(failure) = failed {
            std::panic::resume_unwind(failure);
        }
    });
    assert!(metric(metrics, "repairs_total") > 0);
    assert_eq!(metric(metrics, "assistance_panics_total"), 0);
    assert_eq!(metric(metrics, "sessions_assisted"), CLIENTS as u64);
    assert!(metric(metrics, "paths_moved_total") >= CLIENTS as u64);

    // It drains in the middle of what the clients are doing.
    program.signal("-TERM");
    for (client, _) in &mut clients {
        client.wait_for_goodbye();
    }
    assert_eq!(program.wait(), Some(0));
    assert!(reader.join().unwrap() > 0);
}
