//! A socket on tokio, through a real gateway and over a last mile that loses datagrams.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packrat_path::{ANY_PORT, Datagrams, LossyPath, STEP_PATIENCE, Trials, datagram};
use packrat_socket::{AsyncAssistedSocket, Condition, SocketConfig};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// Time without a datagram after which no more are expected.
const SILENCE: Duration = Duration::from_secs(10);

async fn socket() -> AsyncAssistedSocket {
    AsyncAssistedSocket::new(UdpSocket::bind(ANY_PORT).await.unwrap(), SocketConfig::default())
}

fn in_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().unwrap().block_on(test);
}

/// Other branches of `select!` win every few milliseconds: a dropped call loses no arrived
/// datagram.
#[test]
fn dropped_calls_do_not_impair_repair_contents_and_order() {
    const COUNT: u32 = 3000;
    let mut trials = Trials::of("repairs below a socket on tokio");
    while trials.go_on() {
        let server = Datagrams::start();
        let path = LossyPath::start(server.address(), 0.04);
        in_runtime(async {
            let socket = socket().await;
            let begun = Instant::now();
            let mut received = vec![false; COUNT as usize];
            let (mut newest, mut out_of_order, mut dropped_calls) = (0, 0, 0u64);
            let mut buffer = [0; 2048];
            let mut last = Instant::now();
            while received.contains(&false) {
                assert!(begun.elapsed() < STEP_PATIENCE, "nothing comes");
                let result = tokio::select! {
                    result = socket.receive_from(&mut buffer) => result,
                    () = tokio::time::sleep(Duration::from_millis(3)) => {
                        dropped_calls += 1;
                        let has_begun = received.contains(&true);
                        let wait = if has_begun { SILENCE } else { Duration::from_secs(1) };
                        // The question may be lost; a busy host may be silent for a while.
                        if dropped_calls == 1 || last.elapsed() >= wait {
                            if has_begun {
                                break;
                            }
                            let question = format!("get {COUNT}");
                            socket.send_to(question.as_bytes(), path.address()).await.unwrap();
                            last = Instant::now();
                        }
                        continue;
                    }
                };
                let (length, peer) = result.unwrap();
                last = Instant::now();
                assert_eq!(peer, path.address());
                let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
                assert!(buffer[..length] == datagram(number), "{number} has changed");
                // Any path may have copies.
                if !std::mem::replace(&mut received[number as usize], true) {
                    out_of_order += u64::from(number < newest);
                    newest = newest.max(number);
                }
            }
            let (lost, flow) = (path.lost(), socket.figures(path.address()).unwrap());
            let counters = flow.counters;
            assert_eq!((flow.condition, counters.sessions), (Condition::Assisted, 1));
            let missing = received.iter().filter(|received| !**received).count() as u64;
            assert!(lost > 60 && dropped_calls > 0, "{lost} lost, {dropped_calls} dropped");
            if trials.may_judge(path.is_on_time()) {
                // Some of the lost ones are control datagrams, repairs, or were lost before the session.
                assert!(counters.repaired_in_time * 3 >= lost, "{lost} were lost: {counters:?}");
                assert!(
                    missing * 3 <= lost,
                    "{missing} are missing, {lost} were lost: {counters:?}"
                );
                let late = counters.repaired_late + counters.given_up;
                assert!(
                    out_of_order <= late + lost / 10,
                    "{out_of_order} of {lost} lost: {counters:?}"
                );
            }
        });
    }
}

#[test]
fn without_a_gateway_all_passes_and_tasks_share_the_socket() {
    in_runtime(async {
        let server = UdpSocket::bind(ANY_PORT).await.unwrap();
        let socket = Arc::new(socket().await);
        let receiver = tokio::spawn({
            let socket = Arc::clone(&socket);
            async move {
                let mut buffer = [0; 4];
                let mut taken = Vec::new();
                while taken.len() < 3 {
                    let (length, peer) = socket.receive_from(&mut buffer).await.unwrap();
                    taken.push((buffer[..length].to_vec(), peer));
                }
                taken
            }
        });
        // The task waits already; the question for a gateway goes to the server as well.
        let address = server.local_addr().unwrap();
        socket.send_to(b"hello", address).await.unwrap();
        let mut buffer = [0; 2048];
        let client = loop {
            let (length, from) = server.recv_from(&mut buffer).await.unwrap();
            if &buffer[..length] == b"hello" {
                break from;
            }
        };
        for said in [&b"one"[..], b"", b"three"] {
            server.send_to(said, client).await.unwrap();
        }
        let taken = timeout(STEP_PATIENCE, receiver).await.unwrap().unwrap();
        let expected = [&b"one"[..], b"", b"thre"].map(|said| (said.to_vec(), address));
        assert_eq!(taken, expected, "what does not fit is cut off");
        // A gateway is asked for again, although no datagram wakes a task.
        let mut another = [0; 16];
        let waiting = socket.receive_from(&mut another);
        let asked = async { while !server.recv_from(&mut buffer).await.unwrap().0.gt(&8) {} };
        tokio::select! {
            biased;
            () = asked => {}
            result = waiting => panic!("{result:?}"),
            () = tokio::time::sleep(STEP_PATIENCE) => panic!("its timers do not run"),
        }
    });
}
