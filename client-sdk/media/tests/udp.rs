//! Sender and receiver on real sockets: a stream that loses packets on the way is whole at the
//! other end.

use core::time::Duration;
use packrat_media::udp::{UdpReceiver, UdpSender};
use packrat_media::{MediaKey, ReceiverConfig, Sender, SenderConfig};
use std::net::SocketAddr;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

const SOURCE: u32 = 7;
const UNITS: u32 = 60;
/// Longest duration of a step.
const PATIENCE: Duration = Duration::from_secs(60);

/// Passes datagrams between one client and `server`, and drops every fifth one towards the client.
async fn lossy(server: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
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
                    passed += 1;
                    if let Some(client) = client && passed % 5 != 0 {
                        near.send_to(&down[..length], client).await.unwrap();
                    }
                }
            }
        }
    });
    (address, task)
}

#[tokio::test]
async fn lost_units_are_asked_for_and_come() {
    let key = MediaKey::new([3; 32]);
    let config = SenderConfig { source: SOURCE, repeats: false };
    let sender = Sender::new(config, key.clone(), [9; 16]);
    let mut sender = UdpSender::bind(([127, 0, 0, 1], 0).into(), sender).await.unwrap();
    let (address, middle) = lossy(sender.local_address().unwrap()).await;
    let config = ReceiverConfig { latency: Duration::from_secs(3), ..ReceiverConfig::default() };
    let mut receiver = UdpReceiver::connect(address, SOURCE, config, key, None).await.unwrap();
    let sending = tokio::spawn(async move {
        sender.wait_for_receiver(PATIENCE).await.unwrap();
        for number in 0..UNITS {
            sender.send(&number.to_be_bytes()).await.unwrap();
            sender.serve(Duration::from_millis(3)).await.unwrap();
        }
        sender.serve(PATIENCE).await.unwrap();
    });
    let mut numbers = Vec::new();
    // The last packet may be lost, and then the receiver does not know that it was sent.
    while numbers.last().is_none_or(|last| *last < UNITS - 2) {
        let unit = receiver.next().await.unwrap();
        numbers.push(u32::from_be_bytes(unit.bytes.try_into().unwrap()));
    }
    assert_eq!(numbers, (0..UNITS - 1).collect::<Vec<_>>());
    let counts = receiver.take_statistics().accumulated;
    assert!(counts.recovered_end_to_end >= 8, "{counts:?}");
    sending.abort();
    middle.abort();
}

/// An attacker who has seen the receiver's datagrams sends them from another address: at once, and
/// again later.
#[tokio::test]
async fn a_request_that_someone_repeats_moves_no_stream() {
    let key = MediaKey::new([3; 32]);
    let config = SenderConfig { source: SOURCE, repeats: false };
    let sender = Sender::new(config, key.clone(), [9; 16]);
    let mut sender = UdpSender::bind(([127, 0, 0, 1], 0).into(), sender).await.unwrap();
    let server = sender.local_address().unwrap();
    // A relay: records the receiver's datagrams, and forwards them.
    let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = near.local_addr().unwrap();
    let (seen, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let middle = tokio::spawn(async move {
        let (mut up, mut down, mut client) = ([0; 2048], [0; 2048], None);
        loop {
            tokio::select! {
                Ok((length, from)) = near.recv_from(&mut up) => {
                    client = Some(from);
                    seen.send(up[..length].to_vec()).unwrap();
                    far.send_to(&up[..length], server).await.unwrap();
                }
                Ok((length, _)) = far.recv_from(&mut down) => {
                    let Some(client) = client else { continue };
                    near.send_to(&down[..length], client).await.unwrap();
                }
            }
        }
    });
    let config = ReceiverConfig { latency: Duration::from_millis(50), ..ReceiverConfig::default() };
    let mut receiver = UdpReceiver::connect(address, SOURCE, config, key, None).await.unwrap();
    let sending = tokio::spawn(async move {
        sender.wait_for_receiver(PATIENCE).await.unwrap();
        for number in 0..2000u32 {
            sender.send(&number.to_be_bytes()).await.unwrap();
            sender.serve(Duration::from_millis(2)).await.unwrap();
        }
    });
    let victim = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut number = 0;
    while number < 1200 {
        let unit = receiver.next().await.unwrap();
        number = u32::from_be_bytes(unit.bytes.try_into().unwrap());
        while let Ok(request) = requests.try_recv() {
            victim.send_to(&request, server).await.unwrap();
            victim.send_to(&request, server).await.unwrap();
        }
    }
    // Datagrams received before have no effect; one not received before causes at most a question.
    let mut got = Vec::new();
    while let Ok(length) = victim.try_recv(&mut [0; 2048]) {
        got.push(length);
    }
    assert!(got.len() <= 3 && got.iter().all(|length| *length <= 64), "{got:?}");
    sending.abort();
    middle.abort();
}
