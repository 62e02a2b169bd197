//! The agent between real sockets: a QUIC client that knows nothing of Packrat downloads through it,
//! through a real gateway, and over a last mile that loses datagrams.
//!
//! ```text
//!   server (quinn) <-- far segment <-- gateway <-- last mile, delay and loss <-- agent <-- client (quinn)
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packrat_agent::{
    Agent, ClientConfig, Condition, Handle, IdentifierScheme, Limits, Service, Status,
};
use packrat_path::{ANY, FILE_BYTES, Gateway, PATIENCE, Quic, expected, far_segment, last_mile};

/// An agent in a thread of its own; ends when it is dropped.
struct Running {
    handle: Handle,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(to: SocketAddr, limits: Limits) -> Self {
        let socket = UdpSocket::bind(ANY).unwrap();
        let address = socket.local_addr().unwrap();
        let config = ClientConfig::default().with_scheme(IdentifierScheme::Payload);
        let service = Service { name: "web".to_owned(), socket, to, config };
        let (agent, handle) = Agent::new(vec![service], limits).unwrap();
        let thread = std::thread::spawn(move || agent.run().unwrap());
        Self { handle, address, thread: Some(thread) }
    }

    fn status(&self) -> Status {
        self.handle.status().unwrap()
    }

    fn wait_for(&self, what: &str, condition: impl Fn(&Status) -> bool) {
        let begun = Instant::now();
        while !condition(&self.status()) {
            assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}: {:?}", self.status());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_programs_download_over_loss_and_their_holes_are_repaired() {
    let quic = Quic::start();
    let far = far_segment(quic.address());
    let gateway = Gateway::start(ANY, far.address());
    let near = last_mile(gateway.address(), 0.04);
    let agent = Running::start(near.address(), Limits::default());
    let (one, other) = tokio::join!(quic.download(agent.address), quic.download(agent.address));
    assert_eq!((one, other), (expected(), expected()));
    let lost = near.report().downward.link.lost;
    let status = agent.status();
    let total = status.total();
    assert_eq!((total.sessions, status.flows.len()), (2, 2), "{status:?}");
    assert!(lost > 100, "{lost}");
    // Some of the lost ones are control datagrams, repairs, or were lost before the session; and a
    // host that is busy with other things is late for some.
    assert!(total.repaired_in_time * 3 >= lost, "{lost} were lost: {total:?}");
    assert!(total.sent_datagrams > 100 && total.delivered_bytes as usize > 2 * FILE_BYTES);
    let text = status.prometheus();
    assert!(
        text.contains("packrat_agent_flows{service=\"web\",condition=\"assisted\"} 2\n"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_gateway_it_is_a_plain_forwarder() {
    let quic = Quic::start();
    let far = far_segment(quic.address());
    let near = last_mile(far.address(), 0.0);
    let agent = Running::start(near.address(), Limits::default());
    assert_eq!(quic.download(agent.address).await, expected());
    let status = agent.status();
    assert_eq!((status.total().sessions, status.total().kept), (0, 0), "{status:?}");
    assert_eq!(status.flows_in(Condition::Assisted), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_survives_the_end_of_the_gateway_and_is_assisted_by_the_next_one() {
    let quic = Quic::start();
    let far = far_segment(quic.address());
    let gateway = Gateway::start(ANY, far.address());
    let address = gateway.address();
    let near = last_mile(address, 0.02);
    let agent = Running::start(near.address(), Limits::default());
    let half = (FILE_BYTES / 2) as u64;
    let server = far.address();
    let (bytes, gateway) = tokio::join!(quic.download(agent.address), async {
        while agent.status().total().delivered_bytes < half {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        gateway.end();
        tokio::time::sleep(Duration::from_millis(200)).await;
        Gateway::start(address, server)
    });
    assert_eq!(bytes, expected());
    agent.wait_for("a session with the next gateway", |status| status.total().sessions >= 2);
    drop(gateway);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_of_others_and_odd_ones_cost_nothing() {
    let quic = Quic::start();
    let far = far_segment(quic.address());
    let gateway = Gateway::start(ANY, far.address());
    let near = last_mile(gateway.address(), 0.02);
    let agent = Running::start(near.address(), Limits::default());
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let until = Arc::clone(&stop);
    // To everything on this host that could be an upstream socket, from another port: forged numbers,
    // forged control datagrams, empty datagrams; and to the gateway's end of the last mile.
    let ports = move || -> Vec<u16> {
        let table = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
        let of_line = |line: &str| {
            let local = line.split_whitespace().nth(1)?;
            u16::from_str_radix(local.strip_prefix("00000000:")?, 16).ok()
        };
        table.lines().filter_map(of_line).collect()
    };
    let attack = std::thread::spawn(move || {
        let socket = UdpSocket::bind(ANY).unwrap();
        let mut number = 0u32;
        while !until.load(std::sync::atomic::Ordering::Relaxed) {
            for port in ports() {
                number = number.wrapping_add(1);
                let mut numbered = b"\x0bPkr\x29\x00\x00\x07 forged".to_vec();
                numbered.extend_from_slice(&number.to_be_bytes());
                for datagram in [&numbered[..], b"\x0bPkr\x11 control", b"", b"\x40 forged"] {
                    let _ = socket.send_to(datagram, (Ipv4Addr::LOCALHOST, port));
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let bytes = quic.download(agent.address).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    attack.join().unwrap();
    assert_eq!(bytes, expected());
    let status = agent.status();
    assert!(status.services[0].foreign_datagrams > 0, "{status:?}");
    assert_eq!(status.total().sessions, 1);
    assert!(status.total().repaired_in_time > 0, "{status:?}");
}

/// Datagrams as of games, tunnels and probes, alone and in batches.
#[test]
fn datagrams_of_all_sizes_pass_unchanged_in_both_directions() {
    let server = UdpSocket::bind(ANY).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let agent = Running::start(server.local_addr().unwrap(), Limits::default());
    let program = UdpSocket::bind(ANY).unwrap();
    program.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = vec![0; 70_000];
    let mut next = |socket: &UdpSocket| loop {
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        // The agent's question for a gateway goes to the server as well.
        if !buffer[..length].starts_with(b"\x0bPkr") {
            return (buffer[..length].to_vec(), from);
        }
    };
    for length in [1, 0, 2, 1200, 1452, 9000, 60_000, 3] {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
        program.send_to(&bytes, agent.address).unwrap();
        let (arrived, upstream) = next(&server);
        assert!(arrived == bytes, "{length} upwards");
        server.send_to(&bytes, upstream).unwrap();
        let (arrived, from) = next(&program);
        assert!(arrived == bytes, "{length} downwards");
        assert_eq!(from, agent.address);
    }
    // Many at once, some of them of the same size.
    for number in 0..60u16 {
        let length = if number % 17 == 0 { 300 } else { 700 };
        let mut bytes = vec![number as u8; length];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        program.send_to(&bytes, agent.address).unwrap();
    }
    for number in 0..60u16 {
        let (bytes, upstream) = next(&server);
        assert_eq!(u16::from_be_bytes([bytes[0], bytes[1]]), number);
        assert_eq!(bytes.len(), if number % 17 == 0 { 300 } else { 700 });
        server.send_to(&bytes, upstream).unwrap();
    }
    for number in 0..60u16 {
        let (bytes, _) = next(&program);
        assert_eq!(u16::from_be_bytes([bytes[0], bytes[1]]), number);
        assert_eq!(bytes.len(), if number % 17 == 0 { 300 } else { 700 });
    }
}

#[test]
fn no_more_programs_than_there_may_be_and_each_has_a_way_of_its_own() {
    let server = UdpSocket::bind(ANY).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let limits = Limits { flows: 3, ..Limits::default() };
    let agent = Running::start(server.local_addr().unwrap(), limits);
    let programs: Vec<_> = (0..5u8)
        .map(|number| {
            let socket = UdpSocket::bind(ANY).unwrap();
            socket.send_to(&[number], agent.address).unwrap();
            socket
        })
        .collect();
    let (mut buffer, mut seen) = ([0; 2048], Vec::new());
    while let Ok((length, from)) = server.recv_from(&mut buffer) {
        if length == 1 {
            seen.push((buffer[0], from));
        }
    }
    let numbers: Vec<u8> = seen.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    let ways: std::collections::HashSet<_> = seen.iter().map(|(_, from)| *from).collect();
    assert_eq!(ways.len(), 3);
    // Answers find their program.
    for (number, from) in &seen {
        server.send_to(&[*number + 100], from).unwrap();
    }
    for (number, program) in programs.iter().enumerate().take(3) {
        program.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(program.recv(&mut buffer).unwrap(), 1);
        assert_eq!(usize::from(buffer[0]), number + 100);
    }
    let status = agent.status();
    assert_eq!((status.services[0].refused_datagrams, status.flows.len()), (2, 3));
}

/// The client's marks reach the server, and the server's reach the client.
#[test]
fn marks_of_congestion_are_copied_both_ways() {
    use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
    use std::io::IoSliceMut;
    let state = |socket: &UdpSocket| UdpSocketState::new(socket.into()).unwrap();
    let (server, program) = (UdpSocket::bind(ANY).unwrap(), UdpSocket::bind(ANY).unwrap());
    let agent = Running::start(server.local_addr().unwrap(), Limits::default());
    let (of_server, of_program) = (state(&server), state(&program));
    let send = |state: &UdpSocketState, socket: &UdpSocket, to, ecn| {
        let transmit = Transmit {
            destination: to,
            ecn: Some(ecn),
            contents: b"marked",
            segment_size: None,
            src_ip: None,
        };
        state.try_send(socket.into(), &transmit).unwrap();
    };
    let receive = |state: &UdpSocketState, socket: &UdpSocket| {
        let begun = Instant::now();
        loop {
            let (mut buffer, mut meta) = ([0; 70_000], [RecvMeta::default()]);
            let result = state.recv(socket.into(), &mut [IoSliceMut::new(&mut buffer)], &mut meta);
            if result.is_ok() && buffer.starts_with(b"marked") {
                return meta[0];
            }
            assert!(begun.elapsed() < PATIENCE, "nothing comes");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    for mark in [EcnCodepoint::Ect0, EcnCodepoint::Ce, EcnCodepoint::Ect1] {
        send(&of_program, &program, agent.address, mark);
        let arrived = receive(&of_server, &server);
        assert_eq!(arrived.ecn, Some(mark), "upwards");
        send(&of_server, &server, arrived.addr, mark);
        assert_eq!(receive(&of_program, &program).ecn, Some(mark), "downwards");
    }
}
