//! An attack to test gateways with: garbage, and handshakes with forged senders.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use packrat_wire::control::{Control, FIRST_BYTE, MAGIC, PROTOCOL_VERSION};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Datagrams that are sent in one go; in between the flood waits for its pace.
const BATCH_DATAGRAMS: usize = 50;
/// Longest garbage that looks like the base connection: the gateway forwards it, as any UDP proxy
/// does, and the link behind the gateway is not under attack.
const LONGEST_PLAIN: u64 = 64;

/// The datagrams of an attack, their sources and their time.
#[derive(Debug, Clone, Copy)]
pub struct Flood {
    /// Datagrams of random bytes: some like the base connection, most like control datagrams,
    /// sealed ones among them.
    pub random: usize,
    /// Inits with guessed cookies, and Discovers whose answers are not awaited; half of the latter
    /// bring a Noise message along.
    pub forged: usize,
    /// Sockets that send it.
    pub sources: usize,
    /// Time that it takes, if the machine is fast enough.
    pub duration: Duration,
    /// The seed of the datagrams' contents.
    pub seed: u64,
}

impl Flood {
    /// Sends everything to `target` unless `stop` is set before; returns the number of datagrams.
    ///
    /// # Errors
    /// When no socket can be had.
    pub fn run(&self, target: SocketAddr, stop: &AtomicBool) -> io::Result<usize> {
        let local: SocketAddr = match target {
            SocketAddr::V4(_) => (Ipv4Addr::LOCALHOST, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::LOCALHOST, 0).into(),
        };
        let sources: Vec<_> =
            (0..self.sources.max(1)).map(|_| UdpSocket::bind(local)).collect::<io::Result<_>>()?;
        let (mut random, total) = (ChaCha8Rng::seed_from_u64(self.seed), self.random + self.forged);
        let every = total.checked_div(self.forged).unwrap_or(usize::MAX);
        let begun = Instant::now();
        let mut sent = 0;
        while sent < total && !stop.load(Ordering::Relaxed) {
            for _ in 0..BATCH_DATAGRAMS.min(total - sent) {
                let datagram = if sent % every == every - 1 {
                    forged(&mut random)
                } else {
                    garbage(&mut random)
                };
                let source = &sources[random.next_u64() as usize % sources.len()];
                // Errors are ignored: a full buffer does not end the attack.
                let _ = source.send_to(&datagram, target);
                sent += 1;
            }
            let due = self.duration.mul_f64(sent as f64 / total as f64);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        Ok(sent)
    }
}

fn bytes(random: &mut ChaCha8Rng, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    random.fill_bytes(&mut bytes);
    bytes
}

/// Garbage: a third each like the base connection, like a control datagram, and sealed for a
/// session that may exist.
fn garbage(random: &mut ChaCha8Rng) -> Vec<u8> {
    let (kind, length) = (random.next_u32() % 3, random.next_u64());
    if kind == 0 {
        return bytes(random, 1 + length % LONGEST_PLAIN);
    }
    let mut garbage = bytes(random, 6 + length % 1200);
    if kind == 1 {
        garbage[0] = FIRST_BYTE;
        garbage[1..4].copy_from_slice(&MAGIC);
        return garbage;
    }
    let (session, counter) = (random.next_u32(), random.next_u32());
    let mut sealed = Vec::new();
    Control::Sealed {
        session: packrat_wire::SessionId::new(session),
        counter: packrat_wire::MessageCounter::new(counter),
        ciphertext: &garbage,
    }
    .encode(&mut sealed);
    sealed
}

/// A handshake of a client that does not receive at its address.
fn forged(random: &mut ChaCha8Rng) -> Vec<u8> {
    let (mut forged, nonce, kind) = (Vec::new(), random.next_u64(), random.next_u32() % 4);
    if kind < 2 {
        // An ephemeral key, and params that can be met: the gateway derives keys for it as long as
        // it is not busy.
        let noise = [&bytes(random, 32)[..], &[1, 191, 129, 0, 1, 0, 0, 0]].concat();
        let noise = if kind == 0 { &[][..] } else { &noise };
        Control::Discover { nonce, versions: &[PROTOCOL_VERSION], noise }.encode(&mut forged);
    } else {
        let mut cookie = [0; 16];
        random.fill_bytes(&mut cookie);
        let (noise, cookie_time) = (bytes(random, 96), random.next_u32() % 100);
        Control::Init { nonce, cookie_time, cookie, noise: &noise }.encode(&mut forged);
    }
    forged
}
