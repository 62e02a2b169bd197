//! Connections over real sockets to a QUIC server of another make (quinn), with failing
//! and with real shims.

use super::*;
use crate::connection::Assistance;
use packrat_client::Health;
use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox, Received};
use packrat_wire::estimate::Timestamp;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

const BODY: usize = 2_000_000;
/// Longest duration of a test.
const LIMIT: Duration = Duration::from_secs(60);

/// Starts a server that sends [`BODY`] bytes on every stream that a client opens; returns its
/// address and certificate.
fn server() -> (SocketAddr, String) {
    start_server(false)
}

/// A server that updates its keys every few milliseconds.
fn server_that_updates_keys() -> (SocketAddr, String) {
    start_server(true)
}

fn start_server(updates_keys: bool) -> (SocketAddr, String) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], certified.signing_key.into())
        .unwrap();
    tls.alpn_protocols = vec![b"test".to_vec()];
    let tls = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    let endpoint = quinn::Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = endpoint.local_addr().unwrap();
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            tokio::spawn(async move {
                let Ok(connection) = incoming.await else { return };
                if updates_keys {
                    let connection = connection.clone();
                    tokio::spawn(async move {
                        while connection.close_reason().is_none() {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                            connection.force_key_update();
                        }
                    });
                }
                while let Ok((mut sender, mut receiver)) = connection.accept_bi().await {
                    tokio::spawn(async move {
                        let _ = receiver.read_to_end(16).await;
                        let _ = sender.write_all(&vec![0x5a; BODY]).await;
                        let _ = sender.finish();
                        let _ = sender.stopped().await;
                    });
                }
            });
        }
    });
    (address, certified.cert.pem())
}

fn client_tls(certificate: &str) -> tls::rustls::Client {
    let tls = tls::rustls::Client::builder().with_certificate(certificate).unwrap();
    tls.with_application_protocols(["test"].iter()).unwrap().build().unwrap()
}

fn endpoint(certificate: &str, assist: Option<ClientConfig>) -> Endpoint {
    let tls = client_tls(certificate);
    let config = EndpointConfig::default().with_assist(assist);
    Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), tls, config).unwrap()
}

/// Fetches the body once.
async fn fetch(connection: &s2n_quic::Connection) -> usize {
    let transfer = async {
        let mut stream = connection.handle().open_bidirectional_stream().await.unwrap();
        stream.send(s2n_quic_bytes(b"go")).await.unwrap();
        stream.finish().unwrap();
        let mut count = 0;
        while let Some(chunk) = stream.receive().await.unwrap() {
            assert!(chunk.iter().all(|&byte| byte == 0x5a));
            count += chunk.len();
        }
        count
    };
    tokio::time::timeout(LIMIT, transfer).await.expect("the transfer stands still")
}

fn s2n_quic_bytes(data: &'static [u8]) -> bytes::Bytes {
    bytes::Bytes::from_static(data)
}

/// A relay in front of `server`: `down` passes on each datagram that comes from there.
fn relay<F, Passing>(server: SocketAddr, mut down: F) -> SocketAddr
where
    F: FnMut(Arc<tokio::net::UdpSocket>, SocketAddr, Vec<u8>) -> Passing + Send + 'static,
    Passing: Future<Output = ()> + Send,
{
    let open = || {
        let socket = socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        tokio::net::UdpSocket::from_std(socket).unwrap()
    };
    let (front, back) = (Arc::new(open()), open());
    let address = front.local_addr().unwrap();
    tokio::spawn(async move {
        back.connect(server).await.unwrap();
        let (mut from_client, mut from_server) = (vec![0; 65_536], vec![0; 65_536]);
        let mut client = None;
        loop {
            tokio::select! {
                Ok((length, from)) = front.recv_from(&mut from_client) => {
                    client = Some(from);
                    // As a gateway does: control datagrams end here.
                    if !packrat_wire::is_control(&from_client[..length]) {
                        let _ = back.send(&from_client[..length]).await;
                    }
                }
                Ok(length) = back.recv(&mut from_server) => {
                    let Some(client) = client else { continue };
                    down(Arc::clone(&front), client, from_server[..length].to_vec()).await;
                }
            }
        }
    });
    address
}

/// A relay that puts `injected` in front of every datagram to the client; the counter holds the
/// number of insertions.
fn injecting_relay(server: SocketAddr, injected: Vec<u8>) -> (SocketAddr, Arc<AtomicUsize>) {
    let (count, injected) = (Arc::new(AtomicUsize::new(0)), Arc::new(injected));
    let counter = Arc::clone(&count);
    let address = relay(server, move |front, client, datagram| {
        let (counter, injected) = (Arc::clone(&counter), Arc::clone(&injected));
        async move {
            let _ = front.send_to(&injected, client).await;
            counter.fetch_add(1, Ordering::Relaxed);
            let _ = front.send_to(&datagram, client).await;
        }
    });
    (address, count)
}

/// Forged control datagrams of every type.
fn forgeries() -> Vec<Vec<u8>> {
    use packrat_wire::control::{Control, PROTOCOL_VERSION, RefusalReason};
    let (nonce, noise) = (0xa5a5, &[0xa5; 100][..]);
    [
        Control::Discover { nonce, versions: &[PROTOCOL_VERSION], noise },
        Control::Offer { nonce, version: PROTOCOL_VERSION, cookie_time: 7, cookie: [0xa5; 16] },
        Control::Init { nonce, cookie_time: 7, cookie: [0xa5; 16], noise },
        Control::InitAck { nonce, noise },
        Control::Refusal { nonce, reason: RefusalReason::Full, versions: &[PROTOCOL_VERSION] },
        Control::Sealed {
            session: packrat_wire::SessionId::new(7),
            counter: packrat_wire::MessageCounter::new(7),
            ciphertext: noise,
        },
    ]
    .iter()
    .map(|control| {
        let mut datagram = Vec::new();
        control.encode(&mut datagram);
        datagram
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_gateway_assistance_changes_nothing() {
    let (server, certificate) = server();
    for assist in [None, Some(ClientConfig::default())] {
        let assisted = assist.is_some();
        let endpoint = endpoint(&certificate, assist);
        let (connection, assistance) = endpoint.connect(server, "localhost").await.unwrap().split();
        assert_eq!(fetch(&connection).await, BODY);
        assert_eq!(assistance.is_active(), assisted);
        let stats = assistance.stats();
        assert_eq!(
            (stats.control_datagrams_received, stats.shim.kept, stats.failed),
            (0, 0, false)
        );
        assert_eq!(
            stats.control_datagrams_sent > 0,
            assisted,
            "only an assisted connection asks for a gateway"
        );
        assert!(stats.base_datagrams_received as usize > BODY / 1500, "{stats:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_control_datagrams_never_reach_s2n_quic_and_do_no_harm() {
    let (server, certificate) = server();
    for forgery in forgeries() {
        let (relay, injected) = injecting_relay(server, forgery);
        let endpoint = endpoint(&certificate, Some(ClientConfig::default()));
        let (connection, assistance) = endpoint.connect(relay, "localhost").await.unwrap().split();
        assert_eq!(fetch(&connection).await, BODY);
        let stats = assistance.stats();
        assert!(stats.control_datagrams_received > 0);
        assert!(stats.control_datagrams_received <= injected.load(Ordering::Relaxed) as u64);
        assert_eq!(
            stats.control_datagrams_received, stats.assist.control_dropped,
            "each was refused"
        );
        assert!(!stats.failed && assistance.is_active());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shim_that_panics_at_any_time_leaves_the_connection_intact() {
    let (server, certificate) = server();
    let endpoint = endpoint(&certificate, None);
    for calls in [1, 2, 3, 10, 100, 1000] {
        let mut shim = Guarded::new(Some(endpoint.shim(server, ClientConfig::default()).unwrap()));
        shim.fail_at(calls);
        let (connection, assistance) =
            endpoint.connect_with(server, "localhost", shim).await.unwrap().split();
        assert_eq!(fetch(&connection).await, BODY);
        assert!(assistance.stats().failed && !assistance.is_active(), "after {calls} calls");
        assert_eq!(fetch(&connection).await, BODY, "and the connection goes on");
    }
}

/// A gateway in front of `server`, and a last mile that loses every `period`-th datagram to the
/// client.
fn gateway(server: SocketAddr, period: usize) -> SocketAddr {
    let socket = socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    let front = tokio::net::UdpSocket::from_std(socket).unwrap();
    tokio::spawn(async move {
        let back =
            tokio::net::UdpSocket::from_std(socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap())
                .unwrap();
        back.connect(server).await.unwrap();
        let engine = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
        let mut flow = Flow::new(Arc::clone(&engine));
        let begun = std::time::Instant::now();
        let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
        let (mut client, mut sent) = (None, 0);
        loop {
            let mut out = Outbox::new();
            let (now, wake) = (Timestamp::from_millis(1000) + begun.elapsed(), flow.next_timeout());
            let wait = wake.map_or(LIMIT, |wake| wake.saturating_since(now));
            let mut datagrams: Vec<Vec<u8>> = Vec::new();
            tokio::select! {
                Ok((length, from)) = front.recv_from(&mut up) => {
                    client = Some(from);
                    let said = &up[..length];
                    if !packrat_wire::is_control(said) {
                        let _ = back.send(said).await;
                        continue;
                    }
                    match engine.receive(said, from, now, &mut out) {
                        Received::Done(_) => {}
                        Received::Begin(begin) => {
                            flow.begin(begin, [5; 32], now, &mut out);
                        }
                        Received::ForFlow => flow.control(said, now, &mut out),
                    }
                }
                Ok(length) = back.recv(&mut down) => {
                    let number = flow.forward(&down[..length], now);
                    let number = number.as_ref().map_or(&[][..], |number| &number[..]);
                    datagrams.push([number, &down[..length]].concat());
                }
                () = tokio::time::sleep(wait) => {
                    flow.handle_timeout(Timestamp::from_millis(1000) + begun.elapsed(), &mut out);
                }
            }
            datagrams.extend(out.datagrams().map(<[u8]>::to_vec));
            let Some(client) = client else { continue };
            for datagram in datagrams {
                sent += 1;
                if !(sent as usize).is_multiple_of(period) {
                    let _ = front.send_to(&datagram, client).await;
                }
            }
        }
    });
    address
}

/// Waits until a gateway assists: earlier datagrams are neither numbered nor repaired.
async fn established(assistance: &Assistance) {
    tokio::time::timeout(LIMIT, async {
        while assistance.stats().assist.state != packrat_client::AssistState::Established {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("no gateway assists");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lossy_last_mile_loses_is_repaired_below_s2n_quic() {
    let (server, certificate) = server();
    let gateway = gateway(server, 20);
    let endpoint = endpoint(&certificate, Some(ClientConfig::default()));
    let (connection, assistance) = endpoint.connect(gateway, "localhost").await.unwrap().split();
    established(&assistance).await;
    assert_eq!(fetch(&connection).await, BODY);
    let stats = assistance.stats();
    assert_eq!(stats.assist.state, packrat_client::AssistState::Established);
    assert!(stats.shim.numbered as usize > BODY / 1500 / 2, "{stats:?}");
    assert!(stats.assist.filled_in_time > 0 && stats.shim.kept > 0, "{stats:?}");
}

/// The congestion window of a connection's first report.
#[derive(Debug, Clone, Default)]
struct FirstWindow(Arc<std::sync::OnceLock<u32>>);

impl event::Subscriber for FirstWindow {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &event::ConnectionMeta, _: &event::ConnectionInfo) {}

    fn on_recovery_metrics(
        &mut self,
        (): &mut (),
        _: &event::ConnectionMeta,
        event: &event::events::RecoveryMetrics,
    ) {
        let _ = self.0.set(event.congestion_window);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_applications_own_builder_keeps_its_congestion_controller() {
    use s2n_quic::provider::congestion_controller::bbr;

    const WINDOW_BYTES: u32 = 54_321;
    let (server, certificate) = server();
    let gateway = gateway(server, 20);
    let bbr = bbr::Builder::default().with_initial_congestion_window(WINDOW_BYTES).build();
    let builder = s2n_quic::Client::builder()
        .with_tls(client_tls(&certificate))
        .unwrap()
        .with_congestion_controller(bbr)
        .unwrap();
    let (local, window) = ((Ipv4Addr::LOCALHOST, 0).into(), FirstWindow::default());
    let endpoint =
        Endpoint::with_builder(local, builder, window.clone(), EndpointConfig::default()).unwrap();
    let (connection, assistance) = endpoint.connect(gateway, "localhost").await.unwrap().split();
    established(&assistance).await;
    assert_eq!(fetch(&connection).await, BODY);
    assert_eq!(window.0.get(), Some(&WINDOW_BYTES));
    assert!(assistance.stats().assist.filled_in_time > 0, "{:?}", assistance.stats());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_the_same_address_share_their_assistance() {
    let (server, certificate) = server();
    let gateway = gateway(server, 20);
    let endpoint = endpoint(&certificate, Some(ClientConfig::default()));
    let (first, assistance) = endpoint.connect(gateway, "localhost").await.unwrap().split();
    let (second, same) = endpoint.connect(gateway, "localhost").await.unwrap().split();
    established(&assistance).await;
    let (one, other) = tokio::join!(fetch(&first), fetch(&second));
    assert_eq!((one, other), (BODY, BODY));
    assert_eq!(assistance.stats().assist.sessions, 1);
    assert!(assistance.stats().assist.filled_in_time > 0);
    // It outlives the first of them.
    drop((first, assistance));
    assert_eq!(fetch(&second).await, BODY);
    assert!(same.is_active());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_after_a_closed_one_has_its_own_assistance() {
    let (server, certificate) = server();
    let endpoint = endpoint(&certificate, Some(ClientConfig::default()));
    let (first, assistance) = endpoint.connect(server, "localhost").await.unwrap().split();
    assistance.close();
    assert!(!assistance.is_active());
    let (second, new) = endpoint.connect(server, "localhost").await.unwrap().split();
    assert!(new.is_active());
    assert_eq!(fetch(&first).await, BODY, "the first one goes on as a plain connection");
    assert_eq!(fetch(&second).await, BODY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn assistance_outlives_its_handle_and_ends_with_its_connection() {
    let (server, certificate) = server();
    let endpoint = endpoint(&certificate, Some(ClientConfig::default()));
    let (connection, _) = endpoint.connect(server, "localhost").await.unwrap().split();
    let path = endpoint.attachment.paths.get(server).unwrap();
    assert_eq!(fetch(&connection).await, BODY);
    assert!(path.health() == Health::Active && !path.is_closed(), "it ended with its handle");
    drop(connection);
    tokio::time::timeout(LIMIT, async {
        while !path.is_closed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it outlives its connection");
    assert!(endpoint.attachment.paths.get(server).is_none());
}

/// The events that report the keys under which a client sends, in order.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Seen {
    KeyUpdate,
    Received(u64),
    Sent,
}

/// Records these events.
#[derive(Clone, Default)]
struct Recorder(Arc<std::sync::Mutex<Vec<Seen>>>);

impl Recorder {
    fn push(&self, seen: Seen) {
        self.0.lock().unwrap().push(seen);
    }
}

impl event::Subscriber for Recorder {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &event::ConnectionMeta, _: &event::ConnectionInfo) {}

    fn on_key_update(
        &mut self,
        (): &mut (),
        _: &event::ConnectionMeta,
        event: &event::events::KeyUpdate,
    ) {
        if let event::events::KeyType::OneRtt { .. } = event.key_type {
            self.push(Seen::KeyUpdate);
        }
    }

    fn on_packet_received(
        &mut self,
        (): &mut (),
        _: &event::ConnectionMeta,
        event: &event::events::PacketReceived,
    ) {
        if let event::events::PacketHeader::OneRtt { number, .. } = event.packet_header {
            self.push(Seen::Received(number));
        }
    }

    fn on_packet_sent(
        &mut self,
        (): &mut (),
        _: &event::ConnectionMeta,
        _: &event::events::PacketSent,
    ) {
        self.push(Seen::Sent);
    }
}

/// A relay that delivers every thirtieth datagram to the client after the next ten, and then
/// pauses.
fn reordering_relay(server: SocketAddr) -> SocketAddr {
    let (mut count, mut late) = (0, Vec::new());
    relay(server, move |front, client, datagram| {
        count += 1;
        // Not during the handshake.
        let is_late = count > 20 && count % 30 == 0;
        let now = if is_late {
            late = datagram;
            None
        } else {
            Some(datagram)
        };
        let after = (count % 30 == 10 && !late.is_empty()).then(|| std::mem::take(&mut late));
        async move {
            if let Some(now) = now {
                let _ = front.send_to(&now, client).await;
            }
            if let Some(late) = after {
                tokio::time::sleep(Duration::from_millis(2)).await;
                let _ = front.send_to(&late, client).await;
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_packet_of_old_keys_causes_no_datagram_under_them() {
    let (server, certificate) = server_that_updates_keys();
    let recorder = Recorder::default();
    let relay = reordering_relay(server);
    let (local, config) = ((Ipv4Addr::LOCALHOST, 0).into(), EndpointConfig::default());
    let tls = client_tls(&certificate);
    let endpoint = Endpoint::bind_with_events(local, tls, recorder.clone(), config).unwrap();
    let (connection, _assistance) = endpoint.connect(relay, "localhost").await.unwrap().split();
    // Until some have been late enough: how many are depends on the speed of the host.
    let begun = std::time::Instant::now();
    while updates_taken_back(&recorder) == 0 {
        assert!(begun.elapsed() < LIMIT, "no packet was late enough: the test shows nothing");
        assert_eq!(fetch(&connection).await, BODY);
    }
}

/// The number of key updates that a late packet has caused, each of which is taken back: the next event
/// but the packet itself is the update that does.
fn updates_taken_back(recorder: &Recorder) -> usize {
    let seen = recorder.0.lock().unwrap().clone();
    let (mut highest, mut taken_back) = (0, 0);
    for (at, event) in seen.iter().enumerate() {
        if let (Seen::KeyUpdate, Some(&Seen::Received(number))) = (event, seen.get(at + 1))
            && number < highest
            // The connection is still at work: that one may not have been recorded yet.
            && let Some(next) = seen.get(at + 2)
        {
            taken_back += 1;
            assert_eq!(*next, Seen::KeyUpdate, "after packet {number}");
        }
        if let Seen::Received(number) = event {
            highest = highest.max(*number);
        }
    }
    taken_back
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packet_numbers_are_recorded_for_who_asks() {
    let (server, certificate) = server();
    let received = crate::ReceivedPacketNumbers::default();
    let tls = client_tls(&certificate);
    let (local, config) = ((Ipv4Addr::LOCALHOST, 0).into(), EndpointConfig::default());
    let endpoint = Endpoint::bind_with_events(local, tls, received.clone(), config).unwrap();
    let (connection, assistance) = endpoint.connect(server, "localhost").await.unwrap().split();
    assert_eq!(fetch(&connection).await, BODY);
    let packets: u64 = received.ranges().iter().map(|(first, last)| last - first + 1).sum();
    let datagrams = assistance.stats().base_datagrams_received;
    assert!(packets as usize > BODY / 1500 && packets <= datagrams, "{packets}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_to_connect_have_their_reason() {
    let (server, certificate) = server();
    let endpoint = endpoint(&certificate, Some(ClientConfig::default()));
    let error = endpoint.connect(server, "not a name").await.unwrap_err();
    assert!(matches!(error, ConnectError::ServerName { .. }), "{error}");
    let error = endpoint.connect(server, "other.example").await.unwrap_err();
    assert!(matches!(error, ConnectError::Tls { local: true, .. }), "{error}");
    // The port of the discard protocol, which the system gives to no socket.
    let closed = (Ipv4Addr::LOCALHOST, 9).into();
    match endpoint.connect(closed, "localhost").await.unwrap_err() {
        ConnectError::Unreachable { source, .. } => {
            assert_eq!(source.kind(), std::io::ErrorKind::ConnectionRefused);
        }
        error => panic!("{error}"),
    }
    // A failed attempt has no lasting effect.
    assert_eq!(fetch(&endpoint.connect(server, "localhost").await.unwrap().split().0).await, BODY);
}
