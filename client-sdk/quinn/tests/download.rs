//! quinn downloads from quinn, and uploads, through a real gateway and over a last mile that loses datagrams.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use packrat_path::{ANY_PORT, LossyPath, Quic, STEP_PATIENCE, Trials, expected, far_segment};
use packrat_quinn::{ClientConfig, Condition, Socket, SocketError};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_least_a_third_of_the_losses_is_hidden_from_the_server() {
    let mut trials = Trials::of("losses that are hidden from quinn's server");
    while trials.go_on() {
        let quic = Quic::start();
        let path = LossyPath::start(quic.address(), 0.04);
        let socket = Socket::bind(ANY_PORT, ClientConfig::default()).unwrap();
        let endpoint = socket.endpoint().unwrap();
        assert_eq!(quic.download_with(&endpoint, path.address()).await, expected());
        let (lost, counters) = (path.lost(), socket.counters());
        let flow = socket.figures(path.address()).unwrap();
        assert_eq!((counters.sessions, flow.condition), (1, Condition::Assisted), "{counters:?}");
        assert!(lost > 60, "{lost}");
        assert!(counters.sent_datagrams > 100 && counters.delivered_bytes > 3_000_000);
        // The server itself has to repair the drops of the far segment's queue.
        let (dropped, declared) = (path.dropped(), quic.declared_lost().await);
        if trials.may_judge(path.is_on_time()) {
            // Some of the lost ones are control datagrams, repairs, or were lost before the session.
            assert!(counters.repaired_in_time * 3 >= lost, "{lost} were lost: {counters:?}");
            assert!(
                declared * 3 <= dropped * 3 + lost * 2,
                "{lost} were lost on the last mile, {dropped} dropped before it; the server declared {declared} lost"
            );
        }
    }
}

#[tokio::test]
async fn an_address_in_use_and_a_missing_runtime_are_errors() {
    let socket = Socket::bind(ANY_PORT, ClientConfig::default()).unwrap();
    let taken = socket.endpoint().unwrap().local_addr().unwrap();
    let error = Socket::bind(taken, ClientConfig::default()).unwrap_err();
    assert!(matches!(error, SocketError::Bind { local, .. } if local == taken), "{error}");
    let outside = std::thread::spawn(move || {
        [Socket::bind(ANY_PORT, ClientConfig::default()).err(), socket.endpoint().err()]
    });
    let errors = outside.join().unwrap();
    assert!(matches!(errors, [Some(SocketError::NoRuntime), Some(SocketError::NoRuntime)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_gateway_it_is_a_socket_like_quinns_own() {
    let quic = Quic::start();
    let far = far_segment(quic.address());
    // A socket of IPv6 that also serves IPv4, as clients have it where both are there.
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let Ok(socket) = Socket::bind(any, ClientConfig::default()) else {
        // A host without IPv6.
        return;
    };
    let endpoint = socket.endpoint().unwrap();
    let SocketAddr::V4(address) = far.address() else { unreachable!("it is one of IPv4") };
    let mapped = SocketAddr::from((address.ip().to_ipv6_mapped(), address.port()));
    assert_eq!(quic.download_with(&endpoint, mapped).await, expected());
    let counters = socket.counters();
    assert_eq!((counters.sessions, counters.kept), (0, 0), "{counters:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_two_servers_have_their_own_gateways() {
    let (one, other) = (Quic::start(), Quic::start());
    let first = LossyPath::start(one.address(), 0.02);
    let second = LossyPath::start(other.address(), 0.02);
    let socket = Socket::bind(ANY_PORT, ClientConfig::default()).unwrap();
    let endpoint = socket.endpoint().unwrap();
    let (a, b) = tokio::join!(
        one.download_with(&endpoint, first.address()),
        other.download_with(&endpoint, second.address())
    );
    assert_eq!((a, b), (expected(), expected()));
    for path in [&first, &second] {
        let flow = socket.figures(path.address()).unwrap();
        assert_eq!(flow.condition, Condition::Assisted);
        assert!(flow.counters.repaired() > 0, "{flow:?}");
    }
    assert_eq!(socket.counters().sessions, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_ends_says_goodbye() {
    let quic = Quic::start();
    let path = LossyPath::start(quic.address(), 0.0);
    let socket = Socket::bind(ANY_PORT, ClientConfig::default()).unwrap();
    let endpoint = socket.endpoint().unwrap();
    assert_eq!(quic.download_with(&endpoint, path.address()).await, expected());
    assert_eq!(path.gateway.assisted(), 1);
    endpoint.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    drop((endpoint, socket));
    let begun = Instant::now();
    while path.gateway.assisted() > 0 {
        assert!(begun.elapsed() < STEP_PATIENCE, "the gateway still has the session");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_losses_on_the_last_mile_are_repaired_below_quinn() {
    let quic = Quic::start();
    let mut trials = Trials::of("repairs of uploads below quinn");
    while trials.go_on() {
        let path = LossyPath::start(quic.address(), 0.04);
        let socket = Socket::bind(ANY_PORT, ClientConfig::default().with_uploads(true)).unwrap();
        let endpoint = socket.endpoint().unwrap();
        let sum = quic.upload_with(&endpoint, path.address()).await;
        assert_eq!(sum, expected());
        let (lost, counters) = (path.lost_upwards(), socket.counters());
        assert!(lost > 60, "{lost}");
        assert!(counters.upward_numbered > 2000, "{counters:?}");
        if trials.may_judge(path.is_on_time()) {
            // Some of the lost ones are repairs, or were lost before the session.
            assert!(counters.upward_repairs * 2 >= lost, "{lost} were lost: {counters:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_without_a_gateway_leaves_as_it_is() {
    let quic = Quic::start();
    let far = far_segment(quic.address());
    let socket = Socket::bind(ANY_PORT, ClientConfig::default().with_uploads(true)).unwrap();
    let endpoint = socket.endpoint().unwrap();
    let sum = quic.upload_with(&endpoint, far.address()).await;
    assert_eq!((sum, socket.counters().upward_numbered), (expected(), 0));
}
