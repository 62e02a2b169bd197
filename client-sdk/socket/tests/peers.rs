//! The flows of a socket, without one.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use packrat_client::Timestamp;
use packrat_eack::Identifier;
use packrat_socket::{Condition, Limits, Peers, SocketConfig, Wire};
use packrat_wire::number::NumberKey;
use tracing_subscriber::util::SubscriberInitExt;

#[derive(Default)]
struct Port {
    delivered: Vec<(SocketAddr, Vec<u8>, u8)>,
    asked: Vec<SocketAddr>,
}

impl Wire<u8> for Port {
    fn deliver(&mut self, peer: SocketAddr, datagram: &[u8], mark: u8) {
        self.delivered.push((peer, datagram.to_vec(), mark));
    }

    fn transmit(&mut self, peer: SocketAddr, _: &[u8]) {
        self.asked.push(peer);
    }

    fn source(&self, _: SocketAddr) -> Option<IpAddr> {
        Some([192, 0, 2, 1].into())
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The first datagram to a peer asks for a gateway; strangers are not asked.
#[test]
fn only_peers_with_a_datagram_are_asked_for_a_gateway() {
    let (mut port, now) = (Port::default(), Timestamp::from_millis(1000));
    let mut peers = Peers::new(SocketConfig::default(), Limits::default());
    let (peer, stranger) = (address("[::ffff:192.0.2.7]:443"), address("198.51.100.9:443"));
    peers.on_sending(peer, None, now, &mut port);
    peers.on_sending(peer, None, now, &mut port);
    peers.on_sent(peer, 3, 3600, now);
    assert_eq!(port.asked, [peer], "once, at the address that the program has used");
    for (from, mark) in [(stranger, 1), (peer, 2)] {
        peers.on_received(from, [(&b"hello"[..], mark)], now, &mut port);
    }
    let hello = b"hello".to_vec();
    assert_eq!(port.delivered, [(stranger, hello.clone(), 1), (peer, hello, 2)]);
    assert_eq!(port.asked, [peer]);
    assert!(peers.figures(stranger, now).is_none());
    // The same peer through a socket of IPv4.
    let figures = peers.figures(address("192.0.2.7:443"), now).unwrap();
    assert_eq!((figures.counters.sent_datagrams, figures.counters.delivered_bytes), (3, 5));
    assert_eq!((figures.condition, peers.flows_in(Condition::Asking)), (Condition::Asking, 1));
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn each_change_of_a_flows_condition_is_one_event() {
    let (log, mut now) = (Log::default(), Timestamp::from_millis(1000));
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    let _guard = subscriber.set_default();
    let (mut port, peer) = (Port::default(), address("192.0.2.7:443"));
    let mut peers = Peers::new(SocketConfig::default(), Limits::default());
    peers.on_sending(peer, None, now, &mut port);
    peers.on_sending(peer, None, now, &mut port);
    while peers.flows_in(Condition::NoGateway) == 0 {
        now = now.max(peers.next_timeout().unwrap());
        peers.handle_timeout(now, &mut port);
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[0].contains("peer=192.0.2.7:443 condition=\"asking\""), "{log}");
    assert!(lines[1].contains("condition=\"no_gateway\""), "{log}");
}

#[test]
fn a_peer_beyond_the_limit_is_unassisted_until_another_is_idle() {
    let (mut port, now) = (Port::default(), Timestamp::from_millis(1000));
    let limits = Limits { flows: 1, idle: Duration::from_secs(30), ..Limits::default() };
    let mut peers = Peers::new(SocketConfig::default(), limits);
    let (first, second) = (address("192.0.2.7:443"), address("192.0.2.8:443"));
    peers.on_sending(first, None, now, &mut port);
    peers.on_sending(second, None, now, &mut port);
    peers.on_received(second, [(&b"hello"[..], 0)], now, &mut port);
    assert_eq!((port.asked.as_slice(), port.delivered.len()), (&[first][..], 1));
    // The first one is asked for a while, and then it is over.
    let mut now = now;
    while let Some(due) = peers.next_timeout() {
        assert!(due < Timestamp::from_millis(1000) + Duration::from_secs(31), "it never ends");
        now = now.max(due);
        peers.handle_timeout(now, &mut port);
    }
    assert!(port.asked.iter().all(|peer| *peer == first) && port.asked.len() > 1);
    peers.on_sending(second, None, now, &mut port);
    assert_eq!(port.asked.last(), Some(&second));
    assert!(peers.figures(first, now).is_none());
}

/// A gateway numbers until it knows that the session is over: a goodbye may be lost.
#[test]
fn an_evicted_peers_gateway_still_numbers_for_a_while() {
    let (mut port, now) = (Port::default(), Timestamp::from_millis(1000));
    let limits = Limits { flows: 1, ..Limits::default() };
    let mut peers = Peers::new(SocketConfig::default(), limits);
    let (first, second) = (address("192.0.2.7:443"), address("192.0.2.8:443"));
    let number = NumberKey::new([1, 2]).header(5, Identifier::from_hash(7));
    let numbered = [&number[..], b"numbered"].concat();
    let message = b"\x0bPkr\x28 a message of the gateway's";
    let all = [(&numbered[..], 1), (&message[..], 2), (&b"plain"[..], 3)];
    peers.on_sending(first, None, now, &mut port);
    let later = now + Duration::from_secs(11);
    peers.on_sending(second, None, later, &mut port);
    assert!(peers.figures(first, later).is_none());
    peers.on_received(address("[::ffff:192.0.2.7]:443"), all, later, &mut port);
    let delivered = |port: &mut Port| {
        let all = std::mem::take(&mut port.delivered);
        all.into_iter().map(|(_, datagram, mark)| (datagram, mark)).collect::<Vec<_>>()
    };
    assert_eq!(delivered(&mut port), [(b"numbered".to_vec(), 1), (b"plain".to_vec(), 3)]);
    // The peer has a flow again, which does not know that session.
    let again = later + Duration::from_secs(11);
    peers.on_sending(first, None, again, &mut port);
    assert!(peers.figures(first, again).is_some());
    peers.on_received(first, [(&numbered[..], 1)], again, &mut port);
    assert_eq!(delivered(&mut port), [(b"numbered".to_vec(), 1)]);
    // Datagrams of a peer that never had a flow are not interpreted.
    peers.on_received(address("192.0.2.9:443"), all, again, &mut port);
    assert_eq!(delivered(&mut port).len(), 3);
}
