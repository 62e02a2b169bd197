//! The sender: an unmodified QUIC server that sends as many bytes as it is asked for.

use crate::certificate::Certificate;
use crate::observer::Observer;
use crate::randomness::{ConnectionIds, ResetTokens, Seeded};
use crate::tls;
use bytes::Bytes;
use rand_chacha::ChaCha8Rng;
use s2n_quic::Server;
use s2n_quic::provider::congestion_controller::{self, Bbr, Cubic};
use s2n_quic::provider::io::testing::{Handle, spawn};
use s2n_quic::provider::limits::Limits;
use s2n_quic::stream::BidirectionalStream;
use serde::Serialize;
use std::error::Error;
use std::str::FromStr;

/// Flow control windows and send buffers, bytes: never what limits a trial.
const WINDOW: u64 = 32 << 20;
const SEND_BUFFER: u32 = 8 << 20;
/// Bytes given to the stream at a time.
const CHUNK: usize = 64 * 1024;
static ZEROES: [u8; CHUNK] = [0; CHUNK];

/// A QUIC stack and its congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sender {
    /// s2n-quic with CUBIC.
    S2nCubic,
    /// s2n-quic with BBR, version 2.
    S2nBbr,
}

impl Sender {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::S2nCubic, Self::S2nBbr];

    /// The name on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S2nCubic => "s2n-cubic",
            Self::S2nBbr => "s2n-bbr",
        }
    }
}

impl FromStr for Sender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|sender| sender.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("there is no sender {text:?}; choose one of {known}")
        })
    }
}

/// Limits of both ends: nothing but the network and the congestion control decides.
pub(crate) fn limits() -> Result<Limits, Box<dyn Error>> {
    Ok(Limits::new()
        .with_data_window(WINDOW)?
        .with_bidirectional_remote_data_window(WINDOW)?
        .with_bidirectional_local_data_window(WINDOW)?
        .with_max_send_buffer_size(SEND_BUFFER)?)
}

/// Starts a server.
pub(crate) fn start(
    handle: &Handle,
    sender: Sender,
    certificate: &Certificate,
    random: ChaCha8Rng,
    observer: Observer,
) -> Result<Server, Box<dyn Error>> {
    match sender {
        Sender::S2nCubic => build(handle, Cubic::default(), certificate, random, observer),
        Sender::S2nBbr => build(handle, Bbr::default(), certificate, random, observer),
    }
}

/// Answers every stream: a request is a number of bytes (big-endian, eight bytes), the answer is that many zeroes.
pub(crate) async fn serve(mut server: Server) {
    while let Some(mut connection) = server.accept().await {
        spawn(async move {
            while let Ok(Some(stream)) = connection.accept_bidirectional_stream().await {
                spawn(answer(stream));
            }
        });
    }
}

async fn answer(mut stream: BidirectionalStream) {
    let Some(mut left) = requested(&mut stream).await else { return };
    while left > 0 {
        let length = left.min(CHUNK as u64);
        // An error means that the client has gone.
        if stream.send(Bytes::from_static(&ZEROES).slice(..length as usize)).await.is_err() {
            return;
        }
        left -= length;
    }
    let _ = stream.finish();
}

/// Reads a request; `None` when it is none.
pub(crate) async fn requested(stream: &mut BidirectionalStream) -> Option<u64> {
    let request = stream.receive().await.ok()??;
    Some(u64::from_be_bytes(request.get(..8)?.try_into().ok()?))
}

/// The request for `size` bytes.
pub(crate) fn request(size: u64) -> Bytes {
    Bytes::copy_from_slice(&size.to_be_bytes())
}

fn build<C>(
    handle: &Handle,
    congestion_control: C,
    certificate: &Certificate,
    random: ChaCha8Rng,
    observer: Observer,
) -> Result<Server, Box<dyn Error>>
where
    C: congestion_controller::Provider,
{
    Ok(Server::builder()
        .with_tls(tls::server(certificate)?)?
        .with_event(observer)?
        .with_io(handle.builder().build()?)?
        .with_limits(limits()?)?
        .with_connection_id(ConnectionIds::new(random.clone())?)?
        .with_stateless_reset_token(ResetTokens(random.clone()))?
        .with_random(Seeded(random))?
        .with_congestion_controller(congestion_control)?
        .start()?)
}
