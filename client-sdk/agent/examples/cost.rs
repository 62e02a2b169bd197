//! The cost of an agent: the time that it adds to a datagram's way, and the processor time per
//! datagram, without a gateway, and assisted by a real one over a path without losses.
//!
//! ```text
//! cargo run --release -p packrat-agent --example cost
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used)] // a measurement, not a library

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use packrat_agent::{
    Agent, Choosing, ClientConfig, Condition, DontFragment, Handle, IdentifierScheme, Limits,
    Service, Target,
};
use packrat_path::Gateway;
use quinn_udp::{Transmit, UdpSocketState};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Echoes of one series, and the pause between two.
const ECHOES: usize = 5000;
const PAUSE: Duration = Duration::from_micros(500);
/// Datagrams of one size that a server sends at once, and how often.
const AT_ONCE: usize = 20;
const BATCHES: usize = 20_000;
const EVERY: Duration = Duration::from_micros(400);
const LENGTH: usize = 1200;
const PATIENCE: Duration = Duration::from_secs(10);

struct Running {
    address: SocketAddr,
    handle: Handle,
}

/// An agent in a thread of this name.
fn agent(to: SocketAddr) -> Running {
    let socket = UdpSocket::bind(ANY).unwrap();
    let address = socket.local_addr().unwrap();
    let config = ClientConfig::default().with_scheme(IdentifierScheme::Payload);
    let dont_fragment = DontFragment::default();
    let service =
        Service { name: "cost".to_owned(), socket, to: Target::Service(to), config, dont_fragment };
    let (agent, handle) =
        Agent::new(vec![service], Choosing::default(), Limits::default()).unwrap();
    let thread = std::thread::Builder::new().name("measured".to_owned());
    thread.spawn(move || agent.run().unwrap()).unwrap();
    Running { address, handle }
}

/// Time that the threads of this name have been running, by the kernel's account.
fn processor_time(name: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let of_name = tasks.filter(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    let time = of_name.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(time.sum::<u64>())
}

fn server() -> UdpSocket {
    let server = UdpSocket::bind(ANY).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    server
}

/// Round trips to an echo, ascending.
fn round_trips(to: SocketAddr) -> Vec<Duration> {
    let program = server();
    let mut buffer = [0; 2048];
    let mut times: Vec<_> = (0..ECHOES as u64)
        .map(|number| {
            let begun = Instant::now();
            program.send_to(&number.to_be_bytes(), to).unwrap();
            while program.recv(&mut buffer).unwrap() != 8 || buffer[..8] != number.to_be_bytes() {}
            let passed = begun.elapsed();
            std::thread::sleep(PAUSE);
            passed
        })
        .collect();
    times.sort_unstable();
    times
}

fn latency() {
    let echo = server();
    let to = echo.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = echo.recv_from(&mut buffer) {
            if !buffer.starts_with(b"\x0bPkr") {
                let _ = echo.send_to(&buffer[..length], from);
            }
        }
    });
    let running = agent(to);
    let (direct, through) = (round_trips(to), round_trips(running.address));
    running.handle.stop();
    for (name, share) in [("median", 0.5), ("p99", 0.99)] {
        let at =
            |times: &[Duration]| times[(times.len() as f64 * share) as usize].as_secs_f64() * 1e6;
        println!(
            "{name:>8}: {:5.1} us there and back through the agent, {:5.1} us directly: {:5.1} us added",
            at(&through),
            at(&direct),
            at(&through) - at(&direct)
        );
    }
}

/// A server sends in batches, 480 Mbit/s; a program reads.
fn throughput(assisted: bool) {
    let server = server();
    let gateway = Gateway::start(ANY, server.local_addr().unwrap());
    let running = agent(if assisted { gateway.address() } else { server.local_addr().unwrap() });
    let program = self::server();
    program.send_to(b"hello", running.address).unwrap();
    let mut buffer = [0; 70_000];
    let mut from = server.recv_from(&mut buffer).unwrap();
    while &buffer[..from.0] != b"hello" {
        from = server.recv_from(&mut buffer).unwrap();
    }
    let begun = Instant::now();
    while assisted && running.handle.status().unwrap().flows_in(Condition::Assisted) == 0 {
        assert!(begun.elapsed() < PATIENCE, "no gateway");
        std::thread::sleep(Duration::from_millis(10));
    }
    let state = UdpSocketState::new((&server).into()).unwrap();
    let of_program = UdpSocketState::new((&program).into()).unwrap();
    let _ = of_program.set_recv_buffer_size((&program).into(), 8 << 20);
    program.set_nonblocking(false).unwrap();
    program.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 70_000];
        while program.recv(&mut buffer).is_ok() {}
    });
    let before = processor_time("measured");
    let (mut data, mut random) = (vec![0u8; AT_ONCE * LENGTH], 1u64);
    let begun = Instant::now();
    for batch in 0..BATCHES {
        for word in data.chunks_exact_mut(8) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            word.copy_from_slice(&random.to_le_bytes());
        }
        let transmit = Transmit {
            destination: from.1,
            ecn: None,
            contents: &data,
            segment_size: Some(LENGTH),
            src_ip: None,
        };
        let _ = state.try_send((&server).into(), &transmit);
        let due = begun + EVERY * batch as u32;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    reader.join().unwrap();
    let spent = processor_time("measured") - before;
    let total = running.handle.status().unwrap().total();
    running.handle.stop();
    println!(
        "{:>10}: {:.3} us of processor time per datagram ({} of {} delivered, {} eACKs)",
        if assisted { "assisted" } else { "plain" },
        spent.as_secs_f64() * 1e6 / total.delivered_datagrams as f64,
        total.delivered_datagrams,
        AT_ONCE * BATCHES,
        total.eacks
    );
}

fn main() {
    latency();
    throughput(false);
    throughput(true);
}
