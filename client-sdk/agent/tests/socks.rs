//! The SOCKS listener on real sockets, spoken to in bytes as RFC 1928 has them.
#![cfg(target_os = "linux")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use packrat_agent::{Choosing, ClientConfig, DontFragment, Limits, SocksListener, choose};

use packrat_path::{ANY_PORT, STEP_PATIENCE};

use crate::own_process;
use crate::running::{Running, next, udp, udp_at};

impl Running {
    /// An agent with a SOCKS listener alone.
    fn with_socks(allow: &[&str]) -> Self {
        let socket = TcpListener::bind(ANY_PORT).unwrap();
        let address = socket.local_addr().unwrap();
        let listener = SocksListener {
            name: "socks".to_owned(),
            socket,
            config: ClientConfig::default(),
            dont_fragment: DontFragment::default(),
            allow: allow.iter().map(|rule| rule.parse().unwrap()).collect(),
        };
        let choosing = Choosing { socks: Some(listener), turn: None };
        Self::of(address, Vec::new(), choosing, Limits::default())
    }

    fn refused(&self) -> u64 {
        self.status().services[0].refused_datagrams
    }
}

/// A socket at the address of the name `localhost` on this host.
fn udp_by_name() -> UdpSocket {
    udp_at(choose(("localhost", 0).to_socket_addrs().unwrap()).unwrap())
}

/// A program with its association.
struct Program {
    control: TcpStream,
    socket: UdpSocket,
    relay: SocketAddr,
}

impl Program {
    fn associate(agent: &Running) -> Self {
        let mut control = TcpStream::connect(agent.address).unwrap();
        control.set_read_timeout(Some(STEP_PATIENCE)).unwrap();
        control.write_all(&[5, 1, 0]).unwrap();
        let mut chosen = [0; 2];
        control.read_exact(&mut chosen).unwrap();
        assert_eq!(chosen, [5, 0]);
        control.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        let mut answer = [0; 10];
        control.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..8], [5, 0, 0, 1, 127, 0, 0, 1]);
        let port = u16::from_be_bytes([answer[8], answer[9]]);
        Self { control, socket: udp(), relay: (Ipv4Addr::LOCALHOST, port).into() }
    }

    fn send(&self, header: &[u8], payload: &[u8]) {
        self.socket.send_to(&[header, payload].concat(), self.relay).unwrap();
    }
}

/// The header for a destination by address.
fn by_address(to: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(to) = to else { unreachable!("the test uses IPv4 only") };
    [&[0, 0, 0, 1][..], &to.ip().octets(), &to.port().to_be_bytes()].concat()
}

fn by_name(name: &str, port: u16) -> Vec<u8> {
    [&[0, 0, 0, 3, name.len() as u8][..], name.as_bytes(), &port.to_be_bytes()].concat()
}

/// A program reaches several destinations, and each answer names its source.
#[test]
fn a_program_reaches_destinations_and_answers_name_their_source() {
    let agent = Running::with_socks(&[]);
    let program = Program::associate(&agent);
    let servers = [udp(), udp()];
    for (server, payload) in servers.iter().zip([&b"one"[..], b""]) {
        let address = server.local_addr().unwrap();
        program.send(&by_address(address), payload);
        let (arrived, upstream) = next(server);
        assert_eq!(arrived, payload);
        server.send_to(b"answer", upstream).unwrap();
        let expected = [&by_address(address)[..], b"answer"].concat();
        assert_eq!(next(&program.socket), (expected, program.relay));
    }
    // By name; the datagrams that come before its address is known arrive as well.
    let server = udp_by_name();
    let address = server.local_addr().unwrap();
    for number in 0..3 {
        program.send(&by_name("localhost", address.port()), &[b'n', number]);
    }
    assert_eq!([(); 3].map(|()| next(&server).0), [b"n\x00", b"n\x01", b"n\x02"]);
    let status = agent.status();
    assert_eq!((status.flows.len(), status.services[0].refused_datagrams), (3, 0), "{status:?}");
    assert!(status.flows.iter().any(|flow| flow.destination == Some(address)), "{status:?}");
}

#[test]
fn an_association_and_its_flows_end_with_its_connection() {
    let agent = Running::with_socks(&[]);
    let server = udp();
    let (first, second) = (Program::associate(&agent), Program::associate(&agent));
    let header = by_address(server.local_addr().unwrap());
    for program in [&first, &second] {
        program.send(&header, b"hello");
        assert_eq!(next(&server).0, b"hello");
    }
    let Program { control, socket, relay } = first;
    drop(control);
    agent.wait_for("the end of a flow", |status| status.flows.len() == 1);
    // The relay is closed, which the system reports to a connected socket.
    socket.connect(relay).unwrap();
    let begun = Instant::now();
    while socket.send(b"x").err().map(|error| error.kind()) != Some(ErrorKind::ConnectionRefused) {
        assert!(begun.elapsed() < STEP_PATIENCE, "the relay is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    second.send(&header, b"again");
    assert_eq!(next(&server).0, b"again");
}

#[test]
fn only_the_program_itself_reaches_only_allowed_destinations() {
    let (allowed, named, other) = (udp(), udp_by_name(), udp());
    let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
    let rule = format!("127.0.0.0/8:{}", port(&allowed));
    let by_address_of_name = named.local_addr().unwrap().to_string();
    let agent = Running::with_socks(&[&rule, &by_address_of_name, "*.example:443"]);
    let program = Program::associate(&agent);
    let good = by_address(allowed.local_addr().unwrap());
    let mut fragment = good.clone();
    fragment[2] = 1;
    for refused in [
        by_address(other.local_addr().unwrap()),
        by_name("localhost", port(&other)),
        by_address((Ipv4Addr::UNSPECIFIED, port(&allowed)).into()),
        by_address((Ipv4Addr::BROADCAST, port(&allowed)).into()),
        fragment,
        b"\0\0\0\x07".to_vec(),
    ] {
        let before = agent.refused();
        program.send(&refused, b"no");
        agent.wait_for("a refusal", |status| status.services[0].refused_datagrams == before + 1);
    }
    // Another host's datagram to the relay: 127.0.0.2 is not the program's address.
    let stranger = UdpSocket::bind("127.0.0.2:0").unwrap();
    let before = agent.refused();
    stranger.send_to(&[&good[..], b"no"].concat(), program.relay).unwrap();
    agent.wait_for("a refusal", |status| status.services[0].refused_datagrams == before + 1);
    // A name that leads to an allowed network.
    program.send(&by_name("localhost", port(&named)), b"yes");
    assert_eq!(next(&named).0, b"yes");
}

#[test]
fn a_program_that_keeps_talking_loses_only_its_own_association() {
    let agent = Running::with_socks(&[]);
    let server = udp();
    let (mut noisy, quiet) = (Program::associate(&agent), Program::associate(&agent));
    // The agent may close it in between.
    let _ = noisy.control.write_all(&[0; 4096]);
    let end = noisy.control.read(&mut [0; 16]);
    let is_reset = |error: std::io::Error| error.kind() == ErrorKind::ConnectionReset;
    assert!(end.map_or_else(is_reset, |length| length == 0), "it is still there");
    quiet.send(&by_address(server.local_addr().unwrap()), b"hello");
    assert_eq!(next(&server).0, b"hello");
}

#[test]
fn a_connection_without_a_free_descriptor_is_accepted_later() {
    own_process::with_descriptors(64, "socks::with_few_descriptors");
}

#[test]
#[ignore = "runs in a process of its own, which another test makes"]
fn with_few_descriptors() {
    let agent = Running::with_socks(&[]);
    let first = Program::associate(&agent);
    let mut used: Vec<_> =
        std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).take(256).collect();
    // This descriptor is for the program's end; the agent lacks one for the other end.
    used.pop().unwrap();
    let mut control = TcpStream::connect(agent.address).unwrap();
    control.write_all(&[5, 1, 0]).unwrap();
    // The agent has time to try. Without it the test shows less, but fails no more.
    std::thread::sleep(Duration::from_millis(300));
    drop(used);
    control.set_read_timeout(Some(STEP_PATIENCE)).unwrap();
    let mut chosen = [0; 2];
    control.read_exact(&mut chosen).unwrap();
    assert_eq!(chosen, [5, 0]);
    drop(first);
}

#[test]
fn what_is_no_request_for_datagrams_is_refused_and_closed() {
    let agent = Running::with_socks(&[]);
    for (said, expected) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], &b""[..]),
        (b"\x05\x01\x02", b"\x05\xff"),
        (
            b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50",
            b"\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00",
        ),
    ] {
        let mut control = TcpStream::connect(agent.address).unwrap();
        control.set_read_timeout(Some(STEP_PATIENCE)).unwrap();
        control.write_all(said).unwrap();
        let mut answer = Vec::new();
        // Bytes that were not read make the system reset the connection.
        let _ = control.read_to_end(&mut answer);
        assert_eq!(answer, expected, "{said:?}");
    }
}

/// Programs remove one header from the result of one call, even if the system could coalesce
/// several datagrams.
#[test]
fn a_program_gets_each_datagram_by_itself() {
    use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
    use std::io::IoSliceMut;
    const COUNT: usize = 10;
    let agent = Running::with_socks(&[]);
    let (program, server) = (Program::associate(&agent), udp());
    let address = server.local_addr().unwrap();
    program.send(&by_address(address), b"all together");
    let (_, upstream) = next(&server);
    let of_program = UdpSocketState::new((&program.socket).into()).unwrap();
    let transmit = Transmit {
        destination: upstream,
        ecn: None,
        contents: &[7; 100 * COUNT],
        segment_size: Some(100),
        src_ip: None,
    };
    UdpSocketState::new((&server).into()).unwrap().try_send((&server).into(), &transmit).unwrap();
    let (begun, mut arrived) = (Instant::now(), 0);
    while arrived < COUNT {
        let (mut buffer, mut meta) = ([0; 70_000], [RecvMeta::default()]);
        let buffers = &mut [IoSliceMut::new(&mut buffer)];
        if of_program.recv((&program.socket).into(), buffers, &mut meta).is_ok() {
            assert_eq!(meta[0].len, 10 + 100, "several at once");
            arrived += 1;
        } else {
            assert!(begun.elapsed() < STEP_PATIENCE, "{arrived} have come");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Runs a tool of the system; true if it succeeds.
fn done(line: &str) -> bool {
    let mut words = line.split(' ');
    let status = std::process::Command::new(words.next().unwrap()).args(words).status();
    status.is_ok_and(|status| status.success())
}

/// Other flows, to this host and elsewhere, do not hide it.
#[test]
fn a_change_of_network_is_seen_whatever_else_is_sent() {
    let thread = std::thread::spawn(|| {
        let made = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_ok()
            && done("ip link set lo up")
            && done("ip address add 10.77.0.1/32 dev lo")
            && done("ip address add 10.77.0.2/32 dev lo")
            && done("ip route add 10.78.0.0/24 dev lo src 10.77.0.1");
        if !made {
            return false;
        }
        let agent = Running::with_socks(&[]);
        let program = Program::associate(&agent);
        program.send(&by_address("10.78.0.9:443".parse().unwrap()), b"far");
        agent.wait_for("a flow", |status| status.flows.len() == 1);
        let server = udp();
        program.send(&by_address(server.local_addr().unwrap()), b"near");
        assert_eq!(next(&server).0, b"near");
        assert_eq!(agent.status().network_changes, 0);
        assert!(done("ip route replace 10.78.0.0/24 dev lo src 10.77.0.2"));
        agent.wait_for("another network", |status| status.network_changes == 1);
        true
    });
    if !thread.join().unwrap() {
        let hint = "network namespaces cannot be made here: root and iproute2 are needed";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
        println!("SKIPPED: {hint}");
    }
}
