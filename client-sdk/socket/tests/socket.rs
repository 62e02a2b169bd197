//! A socket that blocks, through a real gateway and over a last mile that loses datagrams.

use std::collections::BTreeSet;
use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use packrat_path::{ANY_PORT, Datagrams, LossyPath, STEP_PATIENCE, Trials, datagram};
use packrat_socket::{AssistedSocket, Condition, SocketConfig, SocketError};

/// Time without a datagram after which no more are expected.
const SILENCE: Duration = Duration::from_secs(10);

fn socket() -> AssistedSocket {
    AssistedSocket::new(UdpSocket::bind(ANY_PORT).unwrap(), SocketConfig::default()).unwrap()
}

#[test]
fn datagrams_come_repaired_unchanged_and_in_order() {
    const COUNT: u32 = 3000;
    let mut trials = Trials::of("repairs below a socket");
    while trials.go_on() {
        let server = Datagrams::start();
        let path = LossyPath::start(server.address(), 0.04);
        let socket = socket();
        let begun = Instant::now();
        let mut received = vec![false; COUNT as usize];
        let (mut newest, mut out_of_order) = (0, 0);
        let mut buffer = [0; 2048];
        loop {
            assert!(begun.elapsed() < STEP_PATIENCE, "nothing comes");
            // The question may be lost; a busy host may be silent for a while.
            let wait = if received.contains(&true) { SILENCE } else { Duration::from_secs(1) };
            match socket.receive_from(&mut buffer, Some(wait)) {
                Ok((length, peer)) => {
                    assert_eq!(peer, path.address());
                    let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
                    assert!(buffer[..length] == datagram(number), "{number} has changed");
                    // Any path may have copies.
                    if !std::mem::replace(&mut received[number as usize], true) {
                        out_of_order += u64::from(number < newest);
                        newest = newest.max(number);
                    }
                }
                Err(SocketError::TimedOut { .. }) => {
                    if received.contains(&true) {
                        break;
                    }
                    socket.send_to(format!("get {COUNT}").as_bytes(), path.address()).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
            if received.iter().all(|received| *received) {
                break;
            }
        }
        let (lost, flow) = (path.lost(), socket.figures(path.address()).unwrap());
        let counters = flow.counters;
        assert_eq!((flow.condition, counters.sessions), (Condition::Assisted, 1));
        let missing = received.iter().filter(|received| !**received).count() as u64;
        assert!(lost > 60, "{lost}");
        if trials.may_judge(path.is_on_time()) {
            // Some of the lost ones are control datagrams, repairs, or were lost before the session.
            assert!(counters.repaired_in_time * 3 >= lost, "{lost} were lost: {counters:?}");
            assert!(missing * 3 <= lost, "{missing} are missing, {lost} were lost: {counters:?}");
            let late = counters.repaired_late + counters.given_up;
            assert!(
                out_of_order <= late + lost / 10,
                "{out_of_order} of {lost} lost: {counters:?}"
            );
        }
    }
}

/// A server of a protocol that the SDK does not know may act on a datagram that arrives again: none
/// does, even where it is rare and the last mile loses others.
#[test]
fn by_default_no_datagram_of_an_unknown_protocol_leaves_twice() {
    const COUNT: u32 = 60;
    let server = UdpSocket::bind(ANY_PORT).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let path = LossyPath::start(server.local_addr().unwrap(), 0.04);
    let (socket, over) = (socket(), AtomicBool::new(false));
    let asked = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let (mut asked, mut buffer) = (Vec::new(), [0; 2048]);
            while !over.load(Ordering::Relaxed) {
                if let Ok((length, from)) = server.recv_from(&mut buffer)
                    && buffer[..length].starts_with(b"question ")
                {
                    server.send_to(b"answer", from).unwrap();
                    asked.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
                }
            }
            asked
        });
        let begun = Instant::now();
        for number in 0.. {
            assert!(begun.elapsed() < STEP_PATIENCE, "no gateway assists: {:?}", socket.counters());
            if number >= COUNT && socket.counters().sessions > 0 {
                break;
            }
            socket.send_to(format!("question {number}").as_bytes(), path.address()).unwrap();
            let wait = Some(Duration::from_millis(40));
            while socket.receive_from(&mut [0; 2048], wait).is_ok() {}
        }
        over.store(true, Ordering::Relaxed);
        asked.join().unwrap()
    });
    let distinct: BTreeSet<_> = asked.iter().collect();
    assert!(distinct.len() > 30, "too few arrive: {asked:?}");
    assert_eq!(distinct.len(), asked.len(), "some arrive twice: {asked:?}");
}

#[test]
fn an_error_names_the_peer_and_has_the_systems_kind() {
    let peer = "[2001:db8::1]:4000".parse().unwrap();
    let error = socket().send_to(b"over another family", peer).unwrap_err();
    assert!(error.to_string().starts_with("cannot send a datagram to [2001:db8::1]:4000: "));
    let SocketError::Send { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(source.kind(), io::Error::from(error).kind());
}

#[test]
fn silence_ends_a_wait_and_without_a_gateway_everything_passes() {
    let (server, socket) = (UdpSocket::bind(ANY_PORT).unwrap(), socket());
    let mut buffer = [0; 2048];
    let error = socket.receive_from(&mut buffer, Some(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error.to_string(), "no datagram has arrived within 20ms");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::TimedOut);
    socket.send_to(b"hello", server.local_addr().unwrap()).unwrap();
    // The question for a gateway goes to the server as well.
    let client = loop {
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        if &buffer[..length] == b"hello" {
            break from;
        }
    };
    // A call without a wait also returns arrived datagrams; on loopback they arrive when they are
    // sent.
    let nothing = socket.receive_from(&mut buffer, Some(Duration::ZERO));
    assert!(matches!(nothing, Err(SocketError::TimedOut { .. })), "{nothing:?}");
    server.send_to(b"at once", client).unwrap();
    let (length, _) = socket.receive_from(&mut buffer, Some(Duration::ZERO)).unwrap();
    assert_eq!(&buffer[..length], b"at once");
    for said in [&b"one"[..], b"", b"three"] {
        server.send_to(said, client).unwrap();
        let (length, peer) = socket.receive_from(&mut buffer, Some(STEP_PATIENCE)).unwrap();
        assert_eq!((&buffer[..length], peer), (said, server.local_addr().unwrap()));
    }
    // A datagram of a stranger, to whom the program has sent none.
    let stranger = UdpSocket::bind(ANY_PORT).unwrap();
    stranger.send_to(b"anything", client).unwrap();
    let (_, peer) = socket.receive_from(&mut buffer, Some(STEP_PATIENCE)).unwrap();
    assert_eq!(peer, stranger.local_addr().unwrap());
    assert!(socket.figures(peer).is_none());
}

#[test]
fn what_the_program_sends_comes_again_where_it_is_lost() {
    const COUNT: u32 = 3000;
    let mut trials = Trials::of("repairs of what is sent by a socket");
    while trials.go_on() {
        let server = UdpSocket::bind(ANY_PORT).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let path = LossyPath::start(server.local_addr().unwrap(), 0.04);
        let config = SocketConfig::default();
        let socket =
            AssistedSocket::new(UdpSocket::bind(ANY_PORT).unwrap(), config.with_uploads(true))
                .unwrap();
        let over = AtomicBool::new(false);
        let (received, out_of_order) = std::thread::scope(|scope| {
            // Assistance is at work while a thread receives.
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = socket.receive_from(&mut [0; 2048], Some(Duration::from_millis(5)));
                }
            });
            scope.spawn(|| {
                // A gateway is asked for with the first one.
                while socket.counters().sessions == 0 {
                    socket.send_to(b"hello", path.address()).unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                }
                for number in 0..COUNT {
                    socket.send_to(&datagram(number), path.address()).unwrap();
                    if number % 4 == 3 {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            });
            let (mut received, mut newest, mut out_of_order) = (vec![false; COUNT as usize], 0, 0);
            let mut buffer = [0; 2048];
            let begun = Instant::now();
            let mut silent = 0;
            // A busy host may be silent for a while.
            while received.contains(&false) && silent < SILENCE.as_secs() {
                assert!(begun.elapsed() < STEP_PATIENCE, "it does not end");
                let Ok((length, _)) = server.recv_from(&mut buffer) else {
                    silent += u64::from(received.contains(&true));
                    continue;
                };
                silent = 0;
                let Some(number) = buffer.first_chunk().map(|first| u32::from_be_bytes(*first))
                else {
                    continue;
                };
                // Discovery's datagrams, and the first ones, are others.
                if number >= COUNT || length < 1000 {
                    continue;
                }
                assert!(buffer[..length] == datagram(number), "{number} has changed");
                if !std::mem::replace(&mut received[number as usize], true) {
                    out_of_order += u64::from(number < newest);
                    newest = newest.max(number);
                }
            }
            over.store(true, Ordering::Relaxed);
            (received, out_of_order)
        });
        let (lost, counters) = (path.lost_upwards(), socket.counters());
        let missing = received.iter().filter(|received| !**received).count() as u64;
        assert!(lost > 60 && counters.upward_numbered > 2500, "{lost} were lost: {counters:?}");
        if trials.may_judge(path.is_on_time()) {
            assert!(counters.upward_repairs * 2 >= lost, "{lost} were lost: {counters:?}");
            assert!(missing * 3 <= lost, "{missing} are missing, {lost} were lost: {counters:?}");
            assert!(
                out_of_order * 3 <= lost,
                "{out_of_order} came late, {lost} were lost: {counters:?}"
            );
        }
    }
}
