//! Assistance over real sockets: a client with Packrat's core gets repaired what its last mile loses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod gateway;

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use gateway::{Gateway, PATIENCE, config, receive, socket};
use packrat_client::{Assist, AssistState, ClientConfig, Datagram};
use packrat_estimate::Timestamp;

const DATAGRAMS: usize = 400;
const LOST_EVERY: usize = 20;

/// A datagram that looks encrypted: every identifier is different.
fn encrypted(number: usize) -> Vec<u8> {
    let mut state = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..1200)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8 | 0x40
        })
        .collect()
}

struct Client {
    socket: UdpSocket,
    assist: Assist,
    start: Instant,
}

impl Client {
    fn new(gateway: &Gateway) -> Self {
        let socket = gateway.client();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let assist = Assist::new(ClientConfig::default(), [7; 32], Timestamp::ZERO);
        Self { socket, assist, start: Instant::now() }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.start.elapsed().as_micros() as u64)
    }

    /// Does what is due, and waits a millisecond for a datagram of the gateway.
    fn turn(&mut self) -> Option<Vec<u8>> {
        let now = self.now();
        if self.assist.next_timeout().is_some_and(|timeout| timeout <= now) {
            self.assist.handle_timeout(now);
        }
        while let Some(datagram) = self.assist.poll_transmit(now) {
            self.socket.send(&datagram).unwrap();
        }
        let mut buffer = vec![0; 2000];
        let length = self.socket.recv(&mut buffer).ok()?;
        buffer.truncate(length);
        Some(buffer)
    }

    fn turn_until(&mut self, what: &str, mut done: impl FnMut(&mut Self, Option<Vec<u8>>) -> bool) {
        let start = Instant::now();
        loop {
            let received = self.turn();
            if done(self, received) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain for {what}: {:?}", self.assist.stats());
        }
    }

    /// Takes part in the handshake until the session is there.
    fn establish(&mut self) {
        self.turn_until("the session", |client, received| {
            if let Some(datagram) = received {
                client.assist.on_datagram(&datagram, client.now());
            }
            client.assist.stats().state == AssistState::Established
        });
    }
}

/// The client and the address that the server sees it at.
fn connect(gateway: &Gateway, server: &UdpSocket) -> (Client, SocketAddr) {
    let mut client = Client::new(gateway);
    client.socket.send(b"hello").unwrap();
    let (question, upstream) = receive(server);
    assert_eq!(question, b"hello");
    client.establish();
    (client, upstream)
}

#[test]
fn what_the_last_mile_loses_is_repaired_unchanged() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    let (mut client, upstream) = connect(&gateway, &server);
    assert_eq!(gateway.metric("sessions_assisted"), 1);

    let numbers: HashMap<Vec<u8>, usize> = (0..DATAGRAMS).map(|number| (encrypted(number), number)).collect();
    let sender = std::thread::spawn(move || {
        for number in 0..DATAGRAMS {
            server.send_to(&encrypted(number), upstream).unwrap();
            if number % 10 == 9 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        server
    });
    let mut arrivals = vec![0; DATAGRAMS];
    let mut missing = DATAGRAMS;
    client.turn_until("all datagrams", |client, received| {
        let Some(datagram) = received else { return missing == 0 };
        let now = client.now();
        let number = numbers.get(&datagram).copied();
        if let Some(number) = number {
            arrivals[number] += 1;
            // The last mile: some datagrams are lost the first time.
            if number % LOST_EVERY == 7 && arrivals[number] == 1 {
                return false;
            }
        }
        match client.assist.on_datagram(&datagram, now) {
            Datagram::Control => assert!(number.is_none()),
            Datagram::Base => {
                let number = number.expect("nothing but what the server sent");
                client.assist.on_packet_number(number as u64, now);
                if arrivals[number] == 1 + usize::from(number % LOST_EVERY == 7) {
                    missing -= 1;
                }
            }
        }
        missing == 0
    });
    let server = sender.join().unwrap();
    let lost = (DATAGRAMS / LOST_EVERY) as u64;
    assert!(gateway.metric("repairs_total") >= lost, "{} repairs", gateway.metric("repairs_total"));
    assert_eq!(gateway.metric("assistance_panics_total"), 0);
    assert_eq!(gateway.metric("resets_gateway_total") + gateway.metric("resets_client_total"), 0);
    assert!(gateway.metric("cache_high_water_bytes") > 0);
    // Control datagrams went to the gateway alone.
    server.set_nonblocking(true).unwrap();
    assert!(server.recv_from(&mut [0; 10]).is_err());
}

#[test]
fn a_session_that_ends_says_goodbye_and_frees_its_cache() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    let (mut client, upstream) = connect(&gateway, &server);
    for number in 0..50 {
        server.send_to(&encrypted(number), upstream).unwrap();
    }
    gateway.wait_for("cached datagrams", |gateway| gateway.metric("cache_bytes") > 0);
    gateway.dataplane.shutdown();
    assert_eq!(gateway.metric("cache_bytes"), 0);
    assert_eq!(gateway.metric("sessions_assisted"), 0);
    client.turn_until("the goodbye", |client, received| {
        if let Some(datagram) = received {
            client.assist.on_datagram(&datagram, client.now());
        }
        client.assist.stats().state != AssistState::Established
    });
}

#[test]
fn switching_assistance_off_ends_it_and_forwarding_goes_on() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    let (mut client, upstream) = connect(&gateway, &server);
    let mut plain = config(&[&server]);
    plain.assist = false;
    gateway.dataplane.configure(plain).unwrap();
    client.socket.send(b"still here").unwrap();
    assert_eq!(receive(&server), (b"still here".to_vec(), upstream));
    gateway.wait_for("the end of assistance", |gateway| gateway.metric("sessions_assisted") == 0);
    client.turn_until("the goodbye", |client, received| {
        if let Some(datagram) = received {
            client.assist.on_datagram(&datagram, client.now());
        }
        client.assist.stats().state != AssistState::Established
    });
    server.send_to(b"answer", upstream).unwrap();
    client.turn_until("the answer", |_, received| received.is_some_and(|datagram| datagram == b"answer"));
}
