//! A server that answers each datagram at once, as a game's.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::super::both_ends::echo_datagram;

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
                if buffer.get(..length) == Some(&echo_datagram(number_of(&buffer))[..])
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
