//! Clients of a route that leaves half of them without assistance, each at an address of its own, one
//! after the other until it is dropped.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use packrat_client::{AssistState, ClientConfig};

use crate::client::{Client, encrypted};
use crate::place::PATIENCE;

/// Datagrams of a session, with room for some that get lost: more than it must have to be counted.
const DATAGRAMS: usize = 300;
/// Datagrams that are sent together, and the time between them for clients that are to be slow.
const TOGETHER: usize = 20;
const SLOWLY: Duration = Duration::from_millis(15);

/// The arm to which the server is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slow {
    Assisted,
    HeldOut,
}

pub(crate) struct Clients {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Clients {
    /// `network`: the second byte of their addresses.
    pub(crate) fn start(gateway: SocketAddr, server: UdpSocket, network: u8, slow: Slow) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            for number in 1..=u16::MAX {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                // A network has one vote.
                let [high, low] = number.to_be_bytes();
                visit(gateway, &server, &format!("127.{network}.{low}.{}:0", high + 1), slow);
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking(), "a client has failed");
        }
    }
}

/// A client asks, gets its answer, and a later datagram from the server.
fn visit(gateway: SocketAddr, server: &UdpSocket, local: &str, slow: Slow) {
    let mut client = Client::from(local, gateway, ClientConfig::default());
    client.socket.send(b"\xc3hello").unwrap();
    let (_, upstream) = server.recv_from(&mut [0; 100]).unwrap();
    client.take_part_until("an answer", |client| {
        let stats = client.assist.stats();
        stats.refusal.is_some() || stats.state == AssistState::Established && stats.reports > 0
    });
    let is_assisted = client.assist.stats().refusal.is_none();
    let is_slow = is_assisted == (slow == Slow::Assisted);
    for number in 0..DATAGRAMS {
        server.send_to(&encrypted(number), upstream).unwrap();
        if number % TOGETHER == 0 {
            // The others are not sent at once, so that no buffer overflows.
            sleep(if is_slow { SLOWLY } else { Duration::from_micros(300) });
        }
    }
}
