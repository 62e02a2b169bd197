//! A server of plain datagrams, as of games and tunnels.

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::ANY_PORT;

/// Bytes of each datagram.
const DATAGRAM_BYTES: usize = 1200;
/// Datagrams that are sent together, so that the host need not be exact.
const BURST_DATAGRAMS: u32 = 4;
/// Time between two bursts: 7.7 Mbit/s.
const BURST_INTERVAL: Duration = Duration::from_millis(5);

/// The datagram with this number: the number, big-endian, and bytes that follow from it.
pub fn datagram(number: u32) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    // xorshift: the bytes behind the number differ everywhere.
    let mut state = number.wrapping_mul(2_654_435_761) | 1;
    while bytes.len() < DATAGRAM_BYTES {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes
}

/// The most copies of each datagram that a program may receive, given a capture of the path to it:
/// one of each numbered datagram, however often it was sent, and as many of each unnumbered one as
/// were captured. A client cannot know whether the server has sent an unnumbered datagram twice.
pub fn most_copies(capture: &[u8]) -> HashMap<Vec<u8>, usize> {
    let (mut most, mut numbered, mut rest) = (HashMap::new(), HashSet::new(), capture);
    while let Some((length, behind)) = rest.split_first_chunk() {
        let (datagram, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
        rest = behind;
        let (base, is_first) = match datagram.strip_prefix(b"\x0bPkr\x29") {
            Some(behind) => (&behind[3..], numbered.insert(&behind[3..])),
            None => (datagram, true),
        };
        *most.entry(base.to_vec()).or_default() += usize::from(is_first);
    }
    most
}

/// Answers a datagram `get N` with the datagrams 0 to N − 1.
pub struct Datagrams {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Datagrams {
    /// Starts one.
    pub fn start() -> Self {
        let socket = UdpSocket::bind(ANY_PORT).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let address = socket.local_addr().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !until.load(Ordering::Relaxed) {
                let Ok((length, client)) = socket.recv_from(&mut buffer) else { continue };
                let asked = std::str::from_utf8(&buffer[..length]).unwrap_or_default();
                let count = asked.strip_prefix("get ").and_then(|count| count.parse().ok());
                for number in 0..count.unwrap_or(0) {
                    let _ = socket.send_to(&datagram(number), client);
                    if number % BURST_DATAGRAMS == BURST_DATAGRAMS - 1 {
                        std::thread::sleep(BURST_INTERVAL);
                    }
                }
            }
        });
        Self { address, over, thread: Some(thread) }
    }

    /// Address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
