//! The agent between real sockets: an unmodified QUIC client downloads through the agent, a real
//! gateway, and a last mile that loses datagrams.
//!
//! ```text
//!   server (quinn) <-- far segment <-- gateway <-- last mile, delay and loss <-- agent <-- client (quinn)
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packrat_agent::{
    Agent, Choosing, ClientConfig, Condition, DontFragment, IdentifierScheme, Limits, Service,
    Target,
};
use packrat_path::{
    ANY_PORT, Datagrams, FILE_BYTES, Gateway, LossyPath, Quic, STEP_PATIENCE, Trials, datagram,
    expected, far_segment, last_mile, most_copies,
};

use crate::running::Running;

impl Running {
    pub(crate) fn start(to: SocketAddr, limits: Limits) -> Self {
        Self::with(to, limits, ClientConfig::default())
    }

    fn with(to: SocketAddr, limits: Limits, config: ClientConfig) -> Self {
        let mut any = to;
        any.set_port(0);
        let socket = UdpSocket::bind(any).unwrap();
        let address = socket.local_addr().unwrap();
        let config = config.with_scheme(IdentifierScheme::Payload);
        let dont_fragment = DontFragment::default();
        let service = Service {
            name: "web".to_owned(),
            socket,
            to: Target::Service(to),
            config,
            dont_fragment,
        };
        Self::of(address, vec![service], Choosing::default(), limits)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_programs_download_over_loss_and_their_holes_are_repaired() {
    let quic = Quic::start();
    let mut trials = Trials::of("repairs of downloads through an agent");
    while trials.go_on() {
        let path = LossyPath::start(quic.address(), 0.04);
        let agent = Running::start(path.address(), Limits::default());
        let (one, other) = tokio::join!(quic.download(agent.address), quic.download(agent.address));
        assert_eq!((one, other), (expected(), expected()));
        let (lost, status) = (path.lost(), agent.status());
        let total = status.total();
        assert_eq!((total.sessions, status.flows.len()), (2, 2), "{status:?}");
        assert_eq!(total.upward_numbered, 0, "uploads are not wished");
        assert!(lost > 100, "{lost}");
        assert!(total.sent_datagrams > 100 && total.delivered_bytes as usize > 2 * FILE_BYTES);
        let text = status.prometheus();
        assert!(
            text.contains("packrat_agent_flows{service=\"web\",condition=\"assisted\"} 2\n"),
            "{text}"
        );
        if trials.may_judge(path.is_on_time()) {
            // Some of the lost ones are control datagrams, repairs, or were lost before the session.
            assert!(total.repaired_in_time * 3 >= lost, "{lost} were lost: {total:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_programs_upload_is_repaired_where_that_is_wished() {
    let quic = Quic::start();
    let mut trials = Trials::of("repairs of uploads through an agent");
    while trials.go_on() {
        let path = LossyPath::start(quic.address(), 0.04);
        let config = ClientConfig::default().with_uploads(true);
        let agent = Running::with(path.address(), Limits::default(), config);
        let sum = quic.upload(agent.address).await;
        assert_eq!(sum, expected());
        let lost = path.lost_upwards();
        let total = agent.status().total();
        assert!(lost > 60 && total.upward_numbered > 2000, "{lost} were lost: {total:?}");
        if trials.may_judge(path.is_on_time()) {
            // Some of the lost ones are repairs, or were lost before the session.
            assert!(total.upward_repairs * 2 >= lost, "{lost} were lost: {total:?}");
        }
    }
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
async fn a_download_survives_its_gateway_and_is_assisted_by_the_next() {
    let quic = Quic::start();
    let far = far_segment(quic.address());
    // No other test opens a port that the system chooses there: the gateway's stays free.
    let gateway = Gateway::start(([127, 0, 0, 9], 0).into(), far.address());
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

/// The service's address as the agent sees it: passes all datagrams on, and injects forged ones
/// among the last mile's. It also makes a stranger send to the agent's upstream socket.
struct Forger {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Forger {
    /// Every tenth datagram towards the agent has company.
    const EVERY: u64 = 10;

    fn start(to: SocketAddr) -> Self {
        let (front, back) =
            (UdpSocket::bind(ANY_PORT).unwrap(), UdpSocket::bind(ANY_PORT).unwrap());
        let address = front.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        for socket in [&front, &back] {
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        }
        let (agent, stopped) = (Arc::new(OnceLock::new()), Arc::clone(&stop));
        let (seen, from) = (Arc::clone(&agent), front.try_clone().unwrap());
        let out = back.try_clone().unwrap();
        let upwards = std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, source)) = from.recv_from(&mut buffer) else { continue };
                let _ = seen.set(source);
                let _ = out.send_to(&buffer[..length], to);
            }
            0
        });
        let stopped = Arc::clone(&stop);
        let downwards = std::thread::spawn(move || {
            let stranger = UdpSocket::bind(ANY_PORT).unwrap();
            let (mut buffer, mut passed, mut forged) = ([0; 65_536], 0u64, 0);
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, _)) = back.recv_from(&mut buffer) else { continue };
                let Some(agent) = agent.get() else { continue };
                let _ = front.send_to(&buffer[..length], agent);
                passed += 1;
                if passed % Self::EVERY == 0 {
                    let mut numbered = b"\x0bPkr\x29\x00\x00\x07 forged".to_vec();
                    numbered.extend_from_slice(&passed.to_be_bytes());
                    for datagram in [&numbered[..], b"\x0bPkr\x11 control", b"", b"\x40 forged"] {
                        let _ = front.send_to(datagram, agent);
                        let _ = stranger.send_to(datagram, agent);
                        forged += 1;
                    }
                }
            }
            forged
        });
        Self { address, stop, threads: vec![upwards, downwards] }
    }

    /// Ends it; how many datagrams it has forged in the service's name.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_datagrams_and_those_of_strangers_cost_nothing() {
    let quic = Quic::start();
    let far = far_segment(quic.address());
    let gateway = Gateway::start(ANY_PORT, far.address());
    let near = last_mile(gateway.address(), 0.02);
    let forger = Forger::start(near.address());
    let agent = Running::start(forger.address, Limits::default());
    let bytes = quic.download(agent.address).await;
    let forged = forger.end();
    assert_eq!(bytes, expected());
    let status = agent.status();
    let total = status.total();
    assert!(forged > 400, "{forged}");
    // The stranger's never reach the shim; of the others, a quarter is no control datagram of the
    // session's.
    assert!(status.services[0].foreign_datagrams > 0, "{status:?}");
    assert!(total.control_dropped > 0, "{forged} were forged: {status:?}");
    assert_eq!(total.sessions, 1);
    assert!(total.repaired_in_time > 0, "{status:?}");
}

/// A game, which acts upon each datagram; its datagrams never wait.
#[test]
fn a_program_gets_no_numbered_datagram_twice() {
    const COUNT: u32 = 1500;
    let server = Datagrams::start();
    let path = LossyPath::start(server.address(), 0.04);
    let capture = concat!(env!("CARGO_TARGET_TMPDIR"), "/towards_the_agent");
    path.near.capture(File::create(capture).unwrap());
    let config = ClientConfig::default().with_maximum_hold(Duration::ZERO);
    let agent = Running::with(path.address(), Limits::default(), config);
    let program = UdpSocket::bind(ANY_PORT).unwrap();
    let (mut came, mut buffer) = (HashMap::<Vec<u8>, usize>::new(), [0; 2048]);
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < STEP_PATIENCE, "it does not end");
        // The question may be lost; a busy host may be silent for a while.
        let is_over = came.contains_key(&datagram(COUNT - 1));
        let wait = if came.is_empty() || is_over { 1 } else { 10 };
        program.set_read_timeout(Some(Duration::from_secs(wait))).unwrap();
        match program.recv(&mut buffer) {
            Ok(length) => *came.entry(buffer[..length].to_vec()).or_default() += 1,
            Err(_) if came.is_empty() => {
                program.send_to(format!("get {COUNT}").as_bytes(), agent.address).unwrap();
            }
            Err(_) => break,
        }
    }
    let (lost, total) = (path.lost(), agent.status().total());
    drop(path);
    let most = most_copies(&std::fs::read(capture).unwrap());
    let too_often = |(datagram, count): &(&Vec<u8>, &usize)| **count > most[*datagram];
    assert_eq!(came.iter().filter(too_often).count(), 0, "{lost} were lost: {total:?}");
    assert!(lost > 20 && came.len() > 1000, "{lost} were lost: {total:?}");
}

/// Datagrams as of games, tunnels and probes, alone and in batches.
#[test]
fn datagrams_of_all_sizes_pass_unchanged_in_both_directions() {
    let server = UdpSocket::bind(ANY_PORT).unwrap();
    server.set_read_timeout(Some(STEP_PATIENCE)).unwrap();
    let agent = Running::start(server.local_addr().unwrap(), Limits::default());
    let program = UdpSocket::bind(ANY_PORT).unwrap();
    program.set_read_timeout(Some(STEP_PATIENCE)).unwrap();
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
fn programs_are_limited_and_each_has_its_own_path() {
    let server = UdpSocket::bind(ANY_PORT).unwrap();
    server.set_read_timeout(Some(STEP_PATIENCE)).unwrap();
    let limits = Limits { flows: 3, ..Limits::default() };
    let agent = Running::start(server.local_addr().unwrap(), limits);
    let programs: Vec<_> = (0..5u8)
        .map(|number| {
            let socket = UdpSocket::bind(ANY_PORT).unwrap();
            socket.send_to(&[number], agent.address).unwrap();
            socket
        })
        .collect();
    let (mut buffer, mut seen) = ([0; 2048], Vec::new());
    while seen.len() < 3 {
        // The agent's questions for a gateway go to the server as well.
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        if length == 1 {
            seen.push((buffer[0], from));
        }
    }
    agent.wait_for("two refusals", |status| status.services[0].refused_datagrams >= 2);
    let numbers: Vec<u8> = seen.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    let ways: std::collections::HashSet<_> = seen.iter().map(|(_, from)| *from).collect();
    assert_eq!(ways.len(), 3);
    // Answers find their program.
    for (number, from) in &seen {
        server.send_to(&[*number + 100], from).unwrap();
    }
    for (number, program) in programs.iter().enumerate().take(3) {
        program.set_read_timeout(Some(STEP_PATIENCE)).unwrap();
        assert_eq!(program.recv(&mut buffer).unwrap(), 1);
        assert_eq!(usize::from(buffer[0]), number + 100);
    }
    let status = agent.status();
    assert_eq!((status.services[0].refused_datagrams, status.flows.len()), (2, 3));
}

/// The client's marks reach the server, and the server's reach the client, each on its own
/// datagram, also where many come together.
#[test]
fn marks_of_congestion_are_copied_both_ways() {
    use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
    use std::io::IoSliceMut;
    const MARKS: [Option<EcnCodepoint>; 4] =
        [Some(EcnCodepoint::Ect0), Some(EcnCodepoint::Ce), None, Some(EcnCodepoint::Ect1)];
    let state = |socket: &UdpSocket| UdpSocketState::new(socket.into()).unwrap();
    let (server, program) =
        (UdpSocket::bind(ANY_PORT).unwrap(), UdpSocket::bind(ANY_PORT).unwrap());
    let agent = Running::start(server.local_addr().unwrap(), Limits::default());
    let (of_server, of_program) = (state(&server), state(&program));
    // Two of each mark, and their numbers.
    let send = |state: &UdpSocketState, socket: &UdpSocket, to| {
        for number in 0..16u8 {
            let transmit = Transmit {
                destination: to,
                ecn: MARKS[usize::from(number / 2 % 4)],
                contents: &[b'm', number],
                segment_size: None,
                src_ip: None,
            };
            state.try_send(socket.into(), &transmit).unwrap();
        }
    };
    // All of them, and the address that they come from.
    let receive = |state: &UdpSocketState, socket: &UdpSocket| {
        let (begun, mut marks, mut from) = (Instant::now(), [None; 16], None);
        while marks.contains(&None) {
            let (mut buffer, mut meta) = ([0; 70_000], [RecvMeta::default()]);
            let result = state.recv(socket.into(), &mut [IoSliceMut::new(&mut buffer)], &mut meta);
            // The agent's question for a gateway goes to the server as well.
            if result.is_ok() && meta[0].stride <= 2 {
                for datagram in buffer[..meta[0].len].chunks(meta[0].stride) {
                    assert_eq!(datagram[0], b'm');
                    marks[usize::from(datagram[1])] = Some(meta[0].ecn);
                }
                from = Some(meta[0].addr);
            } else {
                assert!(begun.elapsed() < STEP_PATIENCE, "not all come: {marks:?}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        (marks.map(Option::unwrap), from.unwrap())
    };
    let expected: [_; 16] = std::array::from_fn(|number| MARKS[number / 2 % 4]);
    send(&of_program, &program, agent.address);
    let (marks, upstream) = receive(&of_server, &server);
    assert_eq!(marks, expected, "upwards");
    send(&of_server, &server, upstream);
    assert_eq!(receive(&of_program, &program).0, expected, "downwards");
}

/// A name that comes to lead to the agent itself.
#[test]
fn a_service_is_never_the_agent_itself() {
    let server = UdpSocket::bind(ANY_PORT).unwrap();
    server.set_read_timeout(Some(STEP_PATIENCE)).unwrap();
    let agent = Running::start(server.local_addr().unwrap(), Limits::default());
    let mut circle = agent.address;
    for ip in [agent.address.ip(), Ipv4Addr::UNSPECIFIED.into()] {
        circle.set_ip(ip);
        agent.handle.set_targets(0, vec![circle]);
    }
    let program = UdpSocket::bind(ANY_PORT).unwrap();
    program.send_to(b"where to?", agent.address).unwrap();
    let mut buffer = [0; 2048];
    assert_eq!(server.recv(&mut buffer).unwrap(), 9);
    let status = agent.status();
    assert_eq!((status.services[0].to, status.flows.len()), (server.local_addr().ok(), 1));

    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let to = SocketAddr::from(([127, 0, 0, 3], socket.local_addr().unwrap().port()));
    let service = Service {
        name: "circle".to_owned(),
        socket,
        to: Target::Service(to),
        config: ClientConfig::default(),
        dont_fragment: DontFragment::default(),
    };
    let error = Agent::new(vec![service], Choosing::default(), Limits::default()).err().unwrap();
    assert!(error.to_string().contains("own address"), "{error}");
}

/// Does something on a host of its own, whose only network has this MTU, in a thread. `None`: such
/// a host cannot be made here.
#[cfg(target_os = "linux")]
fn on_a_host_with_mtu<R: Send + 'static>(mtu: u16, work: fn() -> R) -> Option<R> {
    let thread = std::thread::spawn(move || {
        let made = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_ok()
            && std::process::Command::new("ip")
                .args(["link", "set", "lo", "up", "mtu", &mtu.to_string()])
                .status()
                .is_ok_and(|status| status.success());
        made.then(work)
    });
    let result = thread.join().unwrap();
    if result.is_none() {
        let hint = "network namespaces cannot be made here: root and iproute2 are needed";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
        println!("SKIPPED: {hint}");
    }
    result
}

/// Long datagrams that would get through from a program's own socket are not lost: they are
/// fragmented if they are longer than the path MTU, except for QUIC, which finds the path MTU
/// itself.
#[cfg(target_os = "linux")]
#[test]
fn long_datagrams_are_fragmented_unless_the_program_speaks_quic() {
    fn work() {
        for any in [ANY_PORT, SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 0))] {
            let server = UdpSocket::bind(any).unwrap();
            server.set_read_timeout(Some(STEP_PATIENCE)).unwrap();
            let agent = Running::start(server.local_addr().unwrap(), Limits::default());
            let mut buffer = vec![0; 70_000];
            let mut next = |socket: &UdpSocket| loop {
                let (length, from) = socket.recv_from(&mut buffer).unwrap();
                if !buffer[..length].starts_with(b"\x0bPkr") {
                    return (length, from);
                }
            };
            let [game, quic] = [(); 2].map(|()| {
                let program = UdpSocket::bind(any).unwrap();
                program.set_read_timeout(Some(STEP_PATIENCE)).unwrap();
                program
            });
            for length in [1300, 4000, 60_000] {
                game.send_to(&vec![1; length], agent.address).unwrap();
                let (arrived, upstream) = next(&server);
                assert_eq!(arrived, length, "upwards, {any}");
                server.send_to(&vec![1; length], upstream).unwrap();
                assert_eq!(next(&game).0, length, "downwards, {any}");
            }
            for length in [1252, 4000, 1253] {
                let mut initial = vec![0xc0; length];
                initial[1..5].copy_from_slice(&[0, 0, 0, 1]);
                quic.send_to(&initial, agent.address).unwrap();
            }
            assert_eq!(next(&server).0, 1252);
            assert_eq!(next(&server).0, 1253, "the probe between them is too long, {any}");
            assert_eq!(agent.status().services[0].send_errors, 1);
        }
    }
    on_a_host_with_mtu(1400, work);
}

/// A path that goes away and comes back with the address that it had, as another Wi-Fi's: looking alone
/// does not show it.
#[cfg(target_os = "linux")]
#[test]
fn the_host_reports_another_network_with_the_same_address() {
    fn ip(arguments: &str) {
        let status = std::process::Command::new("ip").args(arguments.split(' ')).status();
        assert!(status.unwrap().success(), "ip {arguments}");
    }
    fn join() {
        ip("address add 192.0.2.10/32 dev lo");
        // Datagrams to the server stay on this host, and have that source address.
        ip("route add local 203.0.113.0/24 dev lo src 192.0.2.10");
    }
    fn work() {
        join();
        let server = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        server.set_read_timeout(Some(STEP_PATIENCE)).unwrap();
        let to = SocketAddr::from(([203, 0, 113, 7], server.local_addr().unwrap().port()));
        let agent = Running::start(to, Limits::default());
        let program = UdpSocket::bind(ANY_PORT).unwrap();
        program.send_to(b"hello", agent.address).unwrap();
        let (_, from) = server.recv_from(&mut [0; 2048]).unwrap();
        assert_eq!(from.ip(), IpAddr::from([192, 0, 2, 10]));
        assert_eq!(agent.status().network_changes, 0);
        ip("route del local 203.0.113.0/24 dev lo");
        ip("address del 192.0.2.10/32 dev lo");
        join();
        let begun = Instant::now();
        while agent.status().network_changes == 0 {
            assert!(begun.elapsed() < STEP_PATIENCE, "it does not notice");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    on_a_host_with_mtu(1400, work);
}
