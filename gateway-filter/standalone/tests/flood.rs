//! A flood of garbage and forged handshakes costs neither another client its assistance nor the
//! gateway its memory.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::client::{self, connect, transfer};
use crate::program::{Program, file, get, metric, socket};
use packrat_emulation::flood::Flood;

/// Datagrams of one wave of the flood.
const RANDOM: usize = 40_000;
const FORGED: usize = 10_000;
const SOURCES: usize = 200;
const MAXIMUM_SESSIONS: u64 = 64;
/// Long enough that most of a wave reaches the gateway, instead of overflowing its receive buffer.
const TIME: Duration = Duration::from_millis(1200);
/// Control datagrams and forged handshakes that reach the gateway at least, and repairs meanwhile.
const RECEIVED: u64 = 50_000;
const REFUSED: u64 = 5_000;
const REPAIRED: u64 = 20;
/// Waves until that much has happened, on the slowest machine.
const MOST_WAVES: u64 = 200;
const DATAGRAMS: usize = 1000;
/// Memory for the sockets, buffers and log lines of the permitted sessions.
const MOST_GROWTH_KILOBYTES: u64 = 32 * 1024;

fn resident_kilobytes(program: &Program) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Sends a wave of the flood, and does this meanwhile; how many datagrams were sent.
fn wave(listen: SocketAddr, seed: u64, mut meanwhile: impl FnMut()) -> usize {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flooding = scope.spawn(|| {
            let (random, forged, sources, duration) = (RANDOM, FORGED, SOURCES, TIME);
            let flood = Flood { random, forged, sources, duration, seed };
            let sent = flood.run(listen, &AtomicBool::new(false)).unwrap();
            is_over.store(true, Ordering::Relaxed);
            sent
        });
        while !is_over.load(Ordering::Relaxed) {
            meanwhile();
        }
        flooding.join().unwrap()
    })
}

#[test]
fn a_flood_harms_neither_another_clients_transfer_nor_memory() {
    let server = socket();
    let endpoint = server.local_addr().unwrap();
    let route = format!(
        r#"{{"route":"web","gateway":"edge","endpoints":["{endpoint}"],"maximum_sessions":{MAXIMUM_SESSIONS}}}"#
    );
    let file = file(&route);
    let more = "--workers 2 --metrics 127.0.0.1:0";
    let mut program =
        Program::start(&format!("--listen 127.0.0.1:0 --config {} {more}", file.display()));
    let ready = program.ready();
    let listen = ready["listen"].as_str().unwrap().parse().unwrap();
    let metrics = &ready["metrics"];

    let (mut client, upstream) = connect(listen, &server);
    let mut first = 0;
    let mut next_transfer = |client: &mut client::Client| {
        let range = first..first + DATAGRAMS;
        first = range.end;
        let begun = Instant::now();
        transfer(client, &server, upstream, range);
        begun.elapsed()
    };
    // The second transfer does not include the one-time costs.
    next_transfer(&mut client);
    let undisturbed = next_transfer(&mut client);
    let (memory, repairs) = (resident_kilobytes(&program), metric(metrics, "repairs_total"));
    // On a busy machine less of a wave reaches the gateway, and a queue seems to stand now and then,
    // whose losses are not repaired.
    let mut waves = 0;
    let has_seen_enough = || {
        metric(metrics, "control_received_total") > RECEIVED
            && metric(metrics, "handshakes_total{result=\"refused_cookie\"}") > REFUSED
            && metric(metrics, "repairs_total") >= repairs + REPAIRED
    };
    let (mut sent, mut disturbed) = (0, Vec::new());
    while !has_seen_enough() {
        waves += 1;
        assert!(waves < MOST_WAVES, "{}", get(metrics, "/metrics"));
        let transfer = || disturbed.push(next_transfer(&mut client));
        sent += wave(listen, waves, transfer);
    }
    let growth = resident_kilobytes(&program).saturating_sub(memory);
    let mean = disturbed.iter().sum::<Duration>() / disturbed.len() as u32;
    let ratio = undisturbed.as_secs_f64() / mean.as_secs_f64();
    let received = metric(metrics, "control_received_total");
    println!(
        "{sent} datagrams of a flood in {waves} waves, {received} control datagrams received; memory {memory} kB and {growth} kB more; \
         {} transfers meanwhile at {ratio:.2} of the speed without a flood",
        disturbed.len()
    );

    assert!(growth < MOST_GROWTH_KILOBYTES, "{growth} kB more");
    assert_eq!(metric(metrics, "sessions_begun_total"), 1);
    assert_eq!(metric(metrics, "sessions_assisted"), 1);
    assert_eq!(metric(metrics, "paths_moved_total"), 0);
    assert!(metric(metrics, "sessions") <= MAXIMUM_SESSIONS);
    assert!(metric(metrics, "sessions_refused_total") > 0);
    assert_eq!(metric(metrics, "assistance_panics_total"), 0);
    // And it still works.
    next_transfer(&mut client);
    program.signal("-INT");
    program.assert_end();
}
