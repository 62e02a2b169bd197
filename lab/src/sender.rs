//! The sender: an unmodified QUIC server that sends as many bytes as it is asked for.

use crate::certificate::Certificate;
use crate::clock::VirtualClock;
use crate::observer::Observer;
use crate::server::{Server, ServerStream};
use crate::{quinn_server, s2n_server};
use bytes::Bytes;
use rand_chacha::ChaCha8Rng;
use s2n_quic::provider::io::testing::{Handle, spawn};
use std::error::Error;

/// Bytes given to the stream at a time.
const CHUNK: usize = 64 * 1024;
static ZEROES: [u8; CHUNK] = [0; CHUNK];

/// A QUIC stack and its congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sender {
    /// s2n-quic with CUBIC.
    S2nCubic,
    /// s2n-quic with BBR, version 2.
    S2nBbr,
    /// quinn with CUBIC.
    QuinnCubic,
    /// quinn with NewReno.
    QuinnNewReno,
    /// quinn with BBR, version 1.
    QuinnBbr,
}

packrat_emulation::choices!(Sender, "sender", [
    S2nCubic "s2n-cubic",
    S2nBbr "s2n-bbr",
    QuinnCubic "quinn-cubic",
    QuinnNewReno "quinn-newreno",
    QuinnBbr "quinn-bbr",
]);

/// Starts a server.
pub(crate) fn start(
    handle: &Handle,
    sender: Sender,
    clock: VirtualClock,
    certificate: &Certificate,
    random: ChaCha8Rng,
    observer: Observer,
) -> Result<Server, Box<dyn Error>> {
    match sender {
        Sender::S2nCubic | Sender::S2nBbr => {
            s2n_server::start(handle, sender, certificate, random, observer).map(Server::S2n)
        }
        Sender::QuinnCubic | Sender::QuinnNewReno | Sender::QuinnBbr => {
            let endpoint =
                quinn_server::start(handle, sender, clock, certificate, random, observer)?;
            Ok(Server::Quinn(endpoint))
        }
    }
}

/// Answers every stream: a request is a number of bytes (big-endian, eight bytes), the answer is
/// that many zeroes.
pub(crate) async fn serve(mut server: Server) {
    while let Some(mut connection) = server.accept().await {
        spawn(async move {
            while let Some(stream) = connection.accept_stream().await {
                spawn(answer(stream));
            }
        });
    }
}

async fn answer(mut stream: ServerStream) {
    let Some(mut left) = stream.requested().await else { return };
    while left > 0 {
        let length = left.min(CHUNK as u64);
        if !stream.send(Bytes::from_static(&ZEROES).slice(..length as usize)).await {
            return;
        }
        left -= length;
    }
    stream.finish();
}

/// The request for `size` bytes.
pub(crate) fn request(size: u64) -> Bytes {
    Bytes::copy_from_slice(&size.to_be_bytes())
}
