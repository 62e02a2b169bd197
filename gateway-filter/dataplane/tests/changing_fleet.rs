//! Many clients that change port and gateway at once, on real sockets.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::Client;
use gateway::{Gateway, socket};
use packrat_api::affinity::Affinity;
use packrat_api::route::{Hidden, RouteConfig};
use packrat_client::ClientConfig;

use crate::client;
use crate::gateway;

/// Servers that send each datagram back, with their number behind it.
struct Echoes {
    addresses: Vec<SocketAddr>,
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Echoes {
    fn start(count: u8) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let sockets: Vec<UdpSocket> = (0..count).map(|_| socket("127.0.0.1:0")).collect();
        let addresses = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let threads = (0..count).zip(sockets).map(|(number, socket)| {
            let ended = Arc::clone(&ended);
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 2000];
                while !ended.load(Ordering::Relaxed) {
                    // The port of an upstream that has gone may be another test's by now.
                    if let Ok((length @ ..64, from)) = socket.recv_from(&mut buffer) {
                        buffer[length] = number;
                        socket.send_to(&buffer[..=length], from).unwrap();
                    }
                }
            })
        });
        Self { addresses, threads: threads.collect(), ended }
    }
}

impl Drop for Echoes {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// A client that asks, and is answered by the server with this number.
struct Asking {
    client: Client,
    server: Option<u8>,
    asked: u32,
}

impl Asking {
    /// The server that answers now.
    fn ask(&mut self) -> u8 {
        self.asked += 1;
        let question = [&[0x41, 0xff][..], &self.asked.to_be_bytes(), &[7; 10]].concat();
        let (mut answer, mut sent) = (None, None::<Instant>);
        self.client.turn_until("an answer", |client, received| {
            // The path may lose it: a full socket, or a session that has just ended.
            if sent.is_none_or(|sent| sent.elapsed() > Duration::from_millis(500)) {
                client.socket.send(&question).unwrap();
                sent = Some(Instant::now());
            }
            if let Some(datagram) = received {
                client.assist.on_datagram(&datagram, client.now());
                if let Some((server, asked)) = datagram.split_last()
                    && asked == question
                {
                    answer = Some(*server);
                }
            }
            answer.is_some()
        });
        answer.unwrap()
    }

    /// Goes on from another port behind this gateway, until that assists it.
    fn go_to(&mut self, gateway: SocketAddr) {
        let socket = socket("127.0.0.1:0");
        socket.connect(gateway).unwrap();
        self.client.go_on_from(socket);
        let sessions = self.client.assist.stats().sessions;
        self.client.socket.send(&[0x41, 0xff, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
        self.client.take_part_until("a session", |client| {
            client.is_established() && client.assist.stats().sessions > sessions
        });
    }
}

/// Ten servers, chosen by port; four gateways, then two of them, then four again. All clients change
/// port and gateway eight times.
#[test]
fn every_client_keeps_its_server_while_gateways_become_fewer_and_more() {
    let servers = Echoes::start(10);
    let gateway = || {
        let mut config = RouteConfig::new("web", servers.addresses.clone()).unwrap();
        config.affinity = Affinity::Port;
        config.static_key = Some(Hidden::new("0f".repeat(32)));
        Gateway::start("127.0.0.1:0", config)
    };
    let mut fleet: Vec<Gateway> = (0..4).map(|_| gateway()).collect();
    let mut clients: Vec<Asking> = (0..20)
        .map(|number| Asking {
            client: Client::with(fleet[number % 4].listen, ClientConfig::default()),
            server: None,
            asked: 0,
        })
        .collect();
    let mut taken_over = 0;
    for step in 0..=8 {
        match step {
            3 => {
                for gateway in fleet.drain(2..) {
                    taken_over += gateway.metric("sessions_taken_over_total");
                    gateway.dataplane.shutdown();
                }
            }
            6 => fleet.extend((0..2).map(|_| gateway())),
            _ => {}
        }
        let gateways: Vec<SocketAddr> = fleet.iter().map(|gateway| gateway.listen).collect();
        std::thread::scope(|scope| {
            for (number, asking) in clients.iter_mut().enumerate() {
                let gateway = gateways[(number + step) % gateways.len()];
                scope.spawn(move || {
                    if let Some(server) = asking.server {
                        asking.go_to(gateway);
                        assert_eq!(asking.ask(), server, "client {number} at step {step}");
                    } else {
                        asking.server = Some(asking.ask());
                        asking.client.establish();
                    }
                });
            }
        });
    }
    let used: HashSet<_> = clients.iter().map(|asking| asking.server).collect();
    assert!(used.len() > 4, "{used:?}");
    taken_over += fleet.iter().map(|each| each.metric("sessions_taken_over_total")).sum::<u64>();
    assert!(taken_over >= 80, "{taken_over} of 160 moves");
}
