//! A server that answers each datagram at once, as a game's.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// Bytes of a datagram: a small state of a game.
const DATAGRAM_BYTES: usize = 200;

/// The datagram with this number: the number, big-endian, and bytes that follow from it.
pub(crate) fn datagram(number: u64) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while bytes.len() < DATAGRAM_BYTES {
        // xorshift: the bytes after the number differ everywhere.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes
}

/// A running echo; ends when it is dropped.
#[derive(Debug)]
pub(super) struct Echo {
    pub(super) address: SocketAddr,
    /// Answers sent.
    pub(super) answers: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Echo {
    pub(super) fn start() -> std::io::Result<Self> {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket)?;
        let address = socket.local_addr()?;
        let answers = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&answers);
        let task = tokio::spawn(async move {
            let mut buffer = [0; 2048];
            loop {
                // An error belongs to an earlier datagram, whose client has gone.
                let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
                if buffer.get(..length) == Some(&datagram(number_of(&buffer))[..])
                    && socket.send_to(&buffer[..length], from).await.is_ok()
                {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(Self { address, answers, task })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn number_of(datagram: &[u8; 2048]) -> u64 {
    datagram.first_chunk().map_or(0, |number| u64::from_be_bytes(*number))
}
