//! The memory of an agent per flow: of 10,000 idle flows without a gateway, of 4,000 with a session
//! each, and of one that receives 100 Mbit/s over a last mile that loses 2 %, near and far; and the
//! losses behind the agent of a program with a receive buffer of the system's default.
//!
//! ```text
//! cargo run --release -p packrat-agent --example flows [-- idle | full]
//! ```
//!
//! The agent runs in a process of its own, whose resident memory is read from /proc (Linux).
#![allow(clippy::unwrap_used, clippy::expect_used)] // a measurement, not a library

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use packrat_agent::{
    Agent, Choosing, ClientConfig, Condition, DontFragment, IdentifierScheme, Limits, Service,
    Target,
};
use packrat_emulation::path::{LinkConfig, LossModel, PathConfig, UdpPath};
use packrat_path::{ANY_PORT, Gateway};
use quinn_udp::{Transmit, UdpSocketState};

/// Programs, each of which has a flow: as many as an agent takes.
const FLOWS: u32 = 10_000;
/// Number of flows with a session each: a gateway grants one address at most a quarter of its room.
const ASSISTED: u32 = 4_000;
/// The agent's own limits are for fewer flows than it has in this measurement.
const LIMITS: Limits = Limits {
    flows: FLOWS as usize + 1,
    source_flows: FLOWS as usize + 1,
    idle: Duration::from_secs(3600),
    flow_bytes: 4 << 20,
    total_bytes: 256 << 20,
};
const PATIENCE: Duration = Duration::from_secs(120);
/// 100 Mbit/s of datagrams of this length.
const LENGTH: usize = 1200;
const RATE: u64 = 100_000_000;
const SECONDS: u64 = 8;
const COUNT: u64 = SECONDS * RATE / 8 / LENGTH as u64;

/// The agent's process: it prints its address, and the number of its flows and of the assisted ones for each line that it reads.
fn be_the_agent(to: SocketAddr) {
    let socket = UdpSocket::bind(ANY_PORT).unwrap();
    println!("{}", socket.local_addr().unwrap());
    let config = ClientConfig::default().with_scheme(IdentifierScheme::Payload);
    let dont_fragment = DontFragment::default();
    let service = Service {
        name: "flows".to_owned(),
        socket,
        to: Target::Service(to),
        config,
        dont_fragment,
    };
    let (agent, handle) = Agent::new(vec![service], Choosing::default(), LIMITS).unwrap();
    std::thread::spawn(move || agent.run().unwrap());
    for _ in std::io::stdin().lines() {
        let status = handle.status().unwrap();
        let total = status.total();
        println!(
            "{} {} {} {} {} {}",
            status.services[0].flows.values().sum::<u64>(),
            status.flows_in(Condition::Assisted),
            total.repaired_in_time,
            status.waiting_bytes,
            total.delivered_datagrams,
            total.recovered
        );
    }
}

struct Running {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Running {
    fn start(to: SocketAddr) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(to.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        Self { process, input, output, address: line.trim().parse().unwrap() }
    }

    /// Flows, assisted ones, datagrams repaired in time, bytes that wait, datagrams delivered, and
    /// recovered from symbols.
    fn figures(&mut self) -> [u64; 6] {
        self.input.write_all(b"\n").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let figures: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        figures.try_into().unwrap()
    }

    fn wait_for(&mut self, condition: impl Fn([u64; 6]) -> bool) {
        let begun = Instant::now();
        while !condition(self.figures()) {
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.figures());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn resident(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a datagram to the agent from each of `count` addresses of this host: each is a program to
/// the agent.
fn greet(count: u32, programs: &UdpSocket, agent: SocketAddr) {
    let state = UdpSocketState::new(programs.into()).unwrap();
    for program in 0..count {
        let [_, a, b, c] = (program + 2).to_be_bytes();
        let transmit = Transmit {
            destination: agent,
            ecn: None,
            contents: b"hello",
            segment_size: None,
            src_ip: Some(IpAddr::V4(Ipv4Addr::new(127, a, b, c))),
        };
        state.send(programs.into(), &transmit).unwrap();
        // The agent opens a socket for each.
        if program % 20 == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A server that reads all datagrams and never answers.
fn silent_server() -> SocketAddr {
    let server = UdpSocket::bind(ANY_PORT).unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || while server.recv(&mut [0; 2048]).is_ok() {});
    address
}

fn idle(count: u32, assisted: bool) {
    let server = silent_server();
    let gateway = assisted.then(|| Gateway::for_many(ANY_PORT, server, count + 1));
    let mut agent = Running::start(gateway.as_ref().map_or(server, Gateway::address));
    let programs = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    programs.send_to(b"hello", agent.address).unwrap();
    agent.wait_for(|[flows, ..]| flows == 1);
    let before = agent.resident();
    // A datagram may be lost on a busy host: then the next round has it.
    let begun = Instant::now();
    while agent.figures()[0] < u64::from(count) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", agent.figures());
        greet(count, &programs, agent.address);
    }
    if assisted {
        agent.wait_for(|[_, assisted, ..]| assisted * 100 >= u64::from(count) * 99);
    }
    let [flows, with_session, ..] = agent.figures();
    println!(
        "{flows} idle flows, {with_session} of them with a session: {} bytes each",
        (agent.resident() - before) / flows
    );
}

/// Sends at the rate, ten datagrams at a time; `sample` is called after each thousand.
fn send_at_rate(server: &UdpSocket, to: SocketAddr, mut sample: impl FnMut()) {
    let begun = Instant::now();
    let mut datagram = [0; LENGTH];
    for number in 0..COUNT {
        datagram[..8].copy_from_slice(&number.to_be_bytes());
        let _ = server.send_to(&datagram, to);
        if number % 10 == 0 {
            let due =
                begun + Duration::from_secs_f64(number as f64 * LENGTH as f64 * 8.0 / RATE as f64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        if number % 1000 == 0 {
            sample();
        }
    }
}

/// Reads until no datagram comes for a second, and counts the datagrams.
fn read(program: &UdpSocket) -> u64 {
    program.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut buffer = [0; 70_000];
    let mut count = 0;
    // The system may put datagrams together.
    while let Ok(length) = program.recv(&mut buffer) {
        count += (length / LENGTH) as u64;
    }
    count
}

/// Sends from the server to the program without an agent, and without loss: measures the losses on
/// this host of a program with a receive buffer of the system's default.
fn directly() {
    let (server, program) =
        (UdpSocket::bind(ANY_PORT).unwrap(), UdpSocket::bind(ANY_PORT).unwrap());
    let to = program.local_addr().unwrap();
    let reader = std::thread::spawn(move || read(&program));
    send_at_rate(&server, to, || {});
    let received = reader.join().unwrap();
    println!(
        "no agent, no loss, receive buffer by default: the program missed {}",
        COUNT - received
    );
}

/// One flow at full rate. A hole waits for a round trip of the last mile, as do all datagrams
/// behind it. `receive_buffer`: of the program's socket, or the system's default.
fn full_rate(one_way: Duration, receive_buffer: Option<usize>) {
    let server = UdpSocket::bind(ANY_PORT).unwrap();
    let link = |seed, loss| {
        LinkConfig::new(one_way, 2 * RATE)
            .with_seed(seed)
            .with_loss(LossModel::Independent { rate: loss })
    };
    let gateway = Gateway::start(ANY_PORT, server.local_addr().unwrap());
    let to = gateway.address();
    let path = PathConfig { server: to, upward: link(1, 0.02), downward: link(2, 0.02) };
    let near = UdpPath::start(path).unwrap();
    let mut agent = Running::start(near.address());
    let program = UdpSocket::bind(ANY_PORT).unwrap();
    if let Some(bytes) = receive_buffer {
        let state = UdpSocketState::new((&program).into()).unwrap();
        let _ = state.set_recv_buffer_size((&program).into(), bytes);
        program.set_nonblocking(false).unwrap();
    }
    server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut buffer = [0; 70_000];
    // The question may be lost.
    let from = loop {
        program.send_to(b"hello", agent.address).unwrap();
        if let Ok((_, from)) = server.recv_from(&mut buffer) {
            break from;
        }
    };
    agent.wait_for(|[_, assisted, ..]| assisted == 1);
    let before = agent.resident();
    let reader = std::thread::spawn(move || read(&program));
    let begun = Instant::now();
    let (mut most, mut samples) = (before, Vec::new());
    send_at_rate(&server, from, || {
        most = most.max(agent.resident());
        samples.push(agent.figures()[3]);
    });
    let took = begun.elapsed();
    let received = reader.join().unwrap();
    let [_, _, repaired, _, delivered, recovered] = agent.figures();
    let (mean, most_waited) =
        (samples.iter().sum::<u64>() / samples.len() as u64, samples.iter().max().unwrap());
    println!(
        "one flow at {:.0} Mbit/s, {:?} to the gateway and back, receive buffer {}: \
         {} KiB waited in the mean, at most {}; the process with its buffers grew by {} KiB \
         ({repaired} datagrams repaired in time, {recovered} of them from symbols; of {COUNT} sent, the agent delivered {delivered}, \
         of which the program missed {})",
        (COUNT * LENGTH as u64 * 8) as f64 / took.as_secs_f64() / 1e6,
        2 * one_way,
        receive_buffer.map_or("by default".to_owned(), |bytes| format!("{} KiB", bytes / 1024)),
        mean / 1024,
        most_waited / 1024,
        (most - before) / 1024,
        delivered.saturating_sub(received)
    );
}

fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    if let Ok(to) = what.parse() {
        be_the_agent(to);
        return;
    }
    if what != "full" {
        idle(FLOWS, false);
        idle(ASSISTED, true);
    }
    if what != "idle" {
        full_rate(Duration::from_millis(2), Some(8 << 20));
        full_rate(Duration::from_millis(30), Some(8 << 20));
        full_rate(Duration::from_millis(30), None);
        directly();
    }
}
