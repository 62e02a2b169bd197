//! Many clients at once on all threads of the program, while some move, operators look, and it drains.
//! `make check-sanitizers` runs it with programs that sanitizers have instrumented.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use packrat_emulation::flood::Flood;

use crate::client::{self, Client, connect, transfer};
use crate::program::{Program, file, get, metric, socket};

const CLIENTS: usize = 6;
const WORKERS: u32 = 4;
/// Datagrams of one transfer.
const DATAGRAMS: usize = 200;

const BESIDE: Flood =
    Flood { random: 2000, forged: 500, sources: 50, duration: Duration::from_secs(2), seed: 1 };

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
    let server = socket();
    let endpoint = server.local_addr().unwrap();
    // No session ends because its client is late.
    let route =
        format!(r#"{{"route":"web","endpoints":["{endpoint}"],"idle_timeout_seconds":3600}}"#);
    let file = file(&route);
    let more =
        format!("--workers {WORKERS} --metrics 127.0.0.1:0 --drain-seconds 1 --log-level debug");
    let mut program =
        Program::start(&format!("--listen 127.0.0.1:0 --config {} {more}", file.display()));
    let ready = program.ready();
    let gateway: SocketAddr = ready["listen"].as_str().unwrap().parse().unwrap();
    let metrics = &ready["metrics"];

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
            BESIDE.run(gateway, &over).unwrap();
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
    program.assert_end();
}
