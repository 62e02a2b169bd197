//! The real-time path, end to end over the loopback interface.
//!
//! Counts and order are asserted, and that nothing is early; lateness depends on the machine and is
//! printed (`--nocapture`).
// The lint's exception for tests does not reach the functions that tests share.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use packrat_emulation::path::{LinkConfig, LossModel, PathConfig, UdpPath};

/// Time limit of each step, longer than any of them takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time after which a datagram that has not arrived never will, on a host that is not busy.
const QUIET: Duration = Duration::from_millis(200);
/// Datagrams that may be under way at once: neither the link's queue nor a buffer of the kernel's
/// overflows while a busy host lets a reader wait.
const UNDER_WAY: u64 = 20;

fn socket() -> UdpSocket {
    socket_at("127.0.0.1:0".parse().unwrap())
}

fn socket_at(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// An address of the loopback interface at which no other test opens a port that the system
/// chooses: a port that was given back is still free there.
#[cfg(target_os = "linux")]
const QUIET_HOST: &str = "127.0.0.77:0";
#[cfg(not(target_os = "linux"))] // elsewhere the loopback interface has one address
const QUIET_HOST: &str = "127.0.0.1:0";

fn config(server: &UdpSocket) -> PathConfig {
    let link = LinkConfig::new(Duration::from_millis(2), 50_000_000);
    PathConfig { server: server.local_addr().unwrap(), upward: link, downward: link }
}

/// The number of the next datagram.
fn number(socket: &UdpSocket) -> u32 {
    let mut buffer = [0; 65_536];
    let length = socket.recv(&mut buffer).unwrap();
    u32::from_be_bytes(buffer[length - 4..length].try_into().unwrap())
}

fn numbered(number: u32) -> Vec<u8> {
    let mut payload = vec![0x40; 1196];
    payload.extend_from_slice(&number.to_be_bytes());
    payload
}

/// Lets the server learn the address behind which the client is.
fn introduce(client: &UdpSocket, path: &UdpPath, server: &UdpSocket) -> SocketAddr {
    client.send_to(b"hello", path.address()).unwrap();
    server.recv_from(&mut [0; 16]).unwrap().1
}

/// Sends numbered datagrams at 40 Mbit/s; the arrived ones, and the time until the last.
fn flood(
    (client, server): (&UdpSocket, &UdpSocket),
    path: &UdpPath,
    behind: SocketAddr,
    count: u32,
) -> (Vec<u32>, Duration) {
    let arrived = AtomicU64::new(0);
    let gone = || arrived.load(Ordering::Relaxed) + path.report().downward.link.lost;
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            // 40 Mbit/s, in pairs, as a paced sender would, unless the reader is behind.
            let mut known = 0;
            for number in 0..count {
                let due = Duration::from_micros(u64::from(number / 2) * 480);
                thread::sleep(due.saturating_sub(begun.elapsed()));
                while u64::from(number) >= known + UNDER_WAY {
                    assert!(begun.elapsed() < PATIENCE, "they do not arrive");
                    thread::sleep(Duration::from_millis(1));
                    known = gone();
                }
                server.send_to(&numbered(number), behind).unwrap();
            }
        });
        let mut seen = Vec::new();
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut buffer = [0; 65_536];
        let mut took = Duration::ZERO;
        loop {
            let Ok(length) = client.recv(&mut buffer) else {
                if gone() == u64::from(count) {
                    break;
                }
                assert!(begun.elapsed() < PATIENCE, "they do not arrive");
                continue;
            };
            took = begun.elapsed();
            seen.push(u32::from_be_bytes(buffer[length - 4..length].try_into().unwrap()));
            arrived.fetch_add(1, Ordering::Relaxed);
        }
        (seen, took)
    })
}

#[test]
fn delivers_in_order_at_its_rate_and_says_what_it_lost() {
    let (client, server) = (socket(), socket());
    let mut config = config(&server);
    config.downward = config.downward.with_loss(LossModel::Independent { rate: 0.04 }).with_seed(9);
    let path = UdpPath::start(config).unwrap();
    let behind = introduce(&client, &path, &server);

    let count = 5_000;
    let (seen, took) = flood((&client, &server), &path, behind, count);
    let report = path.report();
    println!("{count} datagrams in {took:?}: {report:?}");
    let down = report.downward;
    assert_eq!((down.link.offered, down.link.queue_dropped), (u64::from(count), 0));
    assert_eq!(down.link.offered, down.link.delivered + down.link.lost);
    assert_eq!(report.socket_drops, 0);
    assert_eq!(down.released, down.link.delivered);
    assert_eq!(down.lateness.total, down.released);
    assert_eq!(seen.len() as u64, down.released);
    assert!(seen.is_sorted());
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), seen.len());
    // Five standard deviations of a binomial distribution.
    assert!((130..=270).contains(&down.link.lost), "{} lost", down.link.lost);
    assert_eq!(report.upward.link.lost, 0);
    // Never faster than the link's rate and delay: 192 microseconds each. Slower is the machine's
    // affair.
    let transmission = Duration::from_micros(192) * down.released as u32;
    assert!(took >= transmission + Duration::from_millis(2), "{took:?}");
}

#[test]
fn holds_every_datagram_for_the_delay() {
    let (client, server) = (socket(), socket());
    let mut config = config(&server);
    config.upward.delay = Duration::from_millis(30);
    let path = UdpPath::start(config).unwrap();
    for _ in 0..5 {
        let sent = Instant::now();
        introduce(&client, &path, &server);
        assert!(sent.elapsed() >= Duration::from_millis(30));
    }
}

#[test]
fn carries_datagrams_of_every_size_unchanged_both_ways() {
    let (client, server) = (socket(), socket());
    let path = UdpPath::start(config(&server)).unwrap();
    let behind = introduce(&client, &path, &server);
    let mut buffer = vec![0; 65_536];
    for size in [0, 1, 1200, 1472, 9000, 65_507] {
        let payload: Vec<u8> = (0..size).map(|n| (n * 31 % 251) as u8).collect();
        client.send_to(&payload, path.address()).unwrap();
        let length = server.recv(&mut buffer).unwrap();
        assert!(buffer[..length] == payload[..], "{size} bytes towards the server");
        server.send_to(&payload, behind).unwrap();
        let length = client.recv(&mut buffer).unwrap();
        assert!(buffer[..length] == payload[..], "{size} bytes towards the client");
    }
}

#[test]
fn each_client_has_its_own_address_and_answers() {
    let server = socket();
    let path = UdpPath::start(config(&server)).unwrap();
    let clients = [socket(), socket(), socket()];
    let behind: Vec<SocketAddr> =
        clients.iter().map(|client| introduce(client, &path, &server)).collect();
    assert_eq!(behind.iter().collect::<HashSet<_>>().len(), 3);
    for (number, address) in (0..).zip(&behind) {
        server.send_to(&numbered(number), address).unwrap();
    }
    for (expected, client) in (0..).zip(&clients) {
        assert_eq!(number(client), expected);
    }
    for client in &clients {
        client.set_read_timeout(Some(QUIET)).unwrap();
        assert!(client.recv(&mut [0; 2048]).is_err(), "another one's");
    }
    assert_eq!(path.report().clients, 3);
}

#[test]
fn two_servers_behind_one_path_share_its_links() {
    let (server, other) = (socket(), socket());
    let mut path = UdpPath::start(config(&server)).unwrap();
    let door = path.open_door(other.local_addr().unwrap()).unwrap();
    let (client, neighbour) = (socket(), socket());
    let behind = introduce(&client, &path, &server);
    neighbour.send_to(b"hello", door).unwrap();
    let beside = other.recv_from(&mut [0; 16]).unwrap().1;
    server.send_to(&numbered(1), behind).unwrap();
    other.send_to(&numbered(2), beside).unwrap();
    let mut buffer = [0; 2048];
    for (socket, address) in [(&client, path.address()), (&neighbour, door)] {
        let (_, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(from, address);
    }
    let report = path.report();
    assert_eq!((report.clients, report.downward.link.offered), (2, 2));
    assert_eq!(report.upward.link.offered, 2);
}

#[test]
fn paths_can_be_chained_and_an_absent_server_does_not_stop_them() {
    let (client, server) = (socket(), socket_at(QUIET_HOST.parse().unwrap()));
    let address = server.local_addr().unwrap();
    let far = UdpPath::start(config(&server)).unwrap();
    let link = LinkConfig::new(Duration::from_millis(1), 0);
    let near =
        UdpPath::start(PathConfig { server: far.address(), upward: link, downward: link }).unwrap();

    drop(server);
    let released = || far.report().upward.released + far.report().upward.send_errors;
    let begun = Instant::now();
    while released() < 5 {
        assert!(begun.elapsed() < PATIENCE, "they do not pass");
        client.send_to(b"nobody hears this", near.address()).unwrap();
        thread::sleep(Duration::from_millis(10));
    }
    let server = socket_at(address);
    client.send_to(b"hello", near.address()).unwrap();
    let mut buffer = [0; 64];
    let behind = loop {
        let (length, behind) = server.recv_from(&mut buffer).unwrap();
        if &buffer[..length] == b"hello" {
            break behind;
        }
    };
    server.send_to(b"welcome", behind).unwrap();
    let length = client.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"welcome");
}

#[test]
fn a_dropped_path_frees_its_port() {
    let (client, server) = (socket(), socket());
    // Another program may be given the port in between.
    let is_free = |_| {
        let path = UdpPath::start(config(&server)).unwrap();
        introduce(&client, &path, &server);
        let address = path.address();
        drop(path);
        UdpSocket::bind(address).is_ok()
    };
    assert!((0..5).any(is_free));
}

#[test]
fn a_rebinding_changes_clients_ports_and_closes_the_old_ones() {
    let (client, server) = (socket(), socket());
    let path = UdpPath::start(config(&server)).unwrap();
    let before = introduce(&client, &path, &server);
    path.rebind();
    let after = introduce(&client, &path, &server);
    assert_ne!(before, after);
    assert_eq!(introduce(&client, &path, &server), after);
    server.send_to(b"to the old port", before).unwrap();
    server.send_to(b"to the new port", after).unwrap();
    let mut buffer = [0; 100];
    let length = client.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"to the new port");
    client.set_read_timeout(Some(QUIET)).unwrap();
    assert!(client.recv(&mut buffer).is_err());
    assert_eq!(path.report().clients, 2);
}

#[test]
#[cfg(target_os = "linux")] // elsewhere the loopback interface has one address
fn a_client_that_roams_has_another_address() {
    let (client, server) = (socket(), socket());
    let path = UdpPath::start(config(&server)).unwrap();
    let before = introduce(&client, &path, &server);
    path.roam();
    let after = introduce(&client, &path, &server);
    assert_ne!(before.ip(), after.ip());
    server.send_to(b"hello", after).unwrap();
    let mut buffer = [0; 100];
    let length = client.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"hello");
}
