//! Subscribers of a real gateway on real sockets, behind a last mile that loses packets.

use core::time::Duration;
use packrat_dataplane::log::Silent;
use packrat_dataplane::metrics::definitions;
use packrat_dataplane::socket::{bind_reuse_port, local_address};
use packrat_dataplane::{Attachment, Dataplane, Options, Route, RouteConfig, StreamRoute};
use packrat_media::rtp::RtpHeader;
use packrat_media::udp::UdpReceiver;
use packrat_media::{Access, Numbers, ReceiverConfig};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

const PACKETS: u16 = 300;
/// Time that a packet waits for its repair: longer than a busy host keeps a thread waiting.
const LATENCY: Duration = Duration::from_secs(3);
/// Longest duration of a step.
const PATIENCE: Duration = Duration::from_secs(60);

fn local() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// A gateway with one stream.
struct Gateway {
    route: Arc<Route>,
    listen: SocketAddr,
    _attachment: Attachment,
    _dataplane: Dataplane,
}

impl Gateway {
    fn listen(&self) -> SocketAddr {
        self.listen
    }

    fn upstream(&self) -> SocketAddr {
        self.route.stream_upstream().unwrap()
    }

    fn metric(&self, name: &str) -> u64 {
        let index =
            definitions().iter().position(|definition| definition.series() == name).expect(name);
        self.route.metrics().values().nth(index).unwrap()
    }

    fn subscribers(&self) -> u64 {
        self.metric("packrat_stream_subscribers")
    }
}

fn gateway() -> Gateway {
    let stream = StreamRoute { sources: vec![[127, 0, 0, 1].into()], ..StreamRoute::new(local()) };
    let dataplane = Dataplane::start(Options { workers: 1 }, Box::new(Silent)).unwrap();
    let route = dataplane.configure(RouteConfig::of_stream("tv", stream).unwrap()).unwrap();
    let socket = bind_reuse_port(local()).unwrap();
    let listen = local_address(socket.as_fd()).unwrap();
    let attachment = dataplane.listen(&route, listen, 0, socket).unwrap();
    Gateway { route, listen, _attachment: attachment, _dataplane: dataplane }
}

/// A client's last mile: every seventh packet towards it is lost, except control datagrams.
async fn lossy(server: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    let near = UdpSocket::bind(local()).await.unwrap();
    let far = UdpSocket::bind(local()).await.unwrap();
    let address = near.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (mut up, mut down, mut client, mut passed) = ([0; 2048], [0; 2048], None, 0);
        loop {
            tokio::select! {
                Ok((length, from)) = near.recv_from(&mut up) => {
                    client = Some(from);
                    far.send_to(&up[..length], server).await.unwrap();
                }
                Ok((length, _)) = far.recv_from(&mut down) => {
                    passed += u32::from(down[0] == 0x80);
                    let lost = down[0] == 0x80 && passed % 7 == 0;
                    if let Some(client) = client && !lost {
                        near.send_to(&down[..length], client).await.unwrap();
                    }
                }
            }
        }
    });
    (address, task)
}

fn packet(number: u16) -> Vec<u8> {
    let header = RtpHeader {
        payload_type: 96,
        sequence: number.wrapping_add(65_400),
        timestamp: u32::from(number) * 90,
        source: 5,
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes.extend((0..200u16).map(|at| (at * 7 + number * 13) as u8));
    bytes
}

async fn subscribe(numbers: Numbers, gateway: SocketAddr) -> UdpReceiver {
    let config = ReceiverConfig { latency: LATENCY, ..ReceiverConfig::default() };
    UdpReceiver::subscribe(gateway, None, numbers, config, Access::default()).await.unwrap()
}

/// Waits until a receiver is subscribed; the receiver must be driven during the wait.
async fn wait(gateway: &Gateway, receivers: &mut [UdpReceiver]) {
    while gateway.subscribers() < receivers.len() as u64 {
        for receiver in &mut *receivers {
            let _ = tokio::time::timeout(Duration::from_millis(20), receiver.next()).await;
        }
    }
}

#[tokio::test]
async fn rtp_comes_whole_in_order_and_without_a_word_to_its_sender() {
    let gateway = gateway();
    let (address, last_mile) = lossy(gateway.listen()).await;
    let mut receivers = [subscribe(Numbers::Rtp, address).await];
    wait(&gateway, &mut receivers).await;
    let [mut receiver] = receivers;
    let (upstream, sender) = (gateway.upstream(), UdpSocket::bind(local()).await.unwrap());
    let sending = tokio::spawn(async move {
        for number in 0..PACKETS {
            sender.send_to(&packet(number), upstream).await.unwrap();
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
    });
    let number = |unit: &[u8]| (0..PACKETS).find(|number| packet(*number) == unit).unwrap();
    let mut numbers = Vec::new();
    while numbers.last().is_none_or(|last| *last < PACKETS - 3) {
        numbers.push(number(&receiver.next().await.unwrap().bytes));
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let counts = receiver.take_statistics().accumulated;
    assert!(counts.recovered_by_gateway >= 30, "{counts:?}");
    // The last packets may be lost without a later one that reveals it.
    assert!(counts.dropped <= 5, "{counts:?}");
    sending.await.unwrap();
    receiver.close().await.unwrap();
    while gateway.subscribers() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(gateway.metric("packrat_stream_resets_total"), 0);
    last_mile.abort();
}

#[tokio::test]
async fn packets_without_numbers_all_come_too() {
    let gateway = gateway();
    let (address, last_mile) = lossy(gateway.listen()).await;
    let mut receivers = [
        subscribe(Numbers::Unknown, address).await,
        subscribe(Numbers::Unknown, gateway.listen()).await,
    ];
    wait(&gateway, &mut receivers).await;
    let (upstream, sender) = (gateway.upstream(), UdpSocket::bind(local()).await.unwrap());
    let sending = tokio::spawn(async move {
        for number in 0..PACKETS {
            sender.send_to(&packet(number), upstream).await.unwrap();
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
    });
    let mut missing: Vec<std::collections::BTreeSet<Vec<u8>>> =
        (0..2).map(|_| (0..PACKETS - 8).map(packet).collect()).collect();
    let end = std::time::Instant::now() + PATIENCE;
    while missing.iter().any(|missing| !missing.is_empty()) && std::time::Instant::now() < end {
        for (receiver, missing) in receivers.iter_mut().zip(&mut missing) {
            if let Ok(unit) = tokio::time::timeout(Duration::from_millis(2), receiver.next()).await
            {
                missing.remove(&unit.unwrap().bytes);
            }
        }
    }
    sending.await.unwrap();
    last_mile.abort();
    assert!(
        missing[0].len() <= 5 && missing[1].is_empty(),
        "{} {}",
        missing[0].len(),
        missing[1].len()
    );
    assert!(gateway.metric("packrat_stream_repairs_arrived_total") >= 20);
}
