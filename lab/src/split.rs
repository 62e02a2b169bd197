//! The baseline that needs the server's credentials: a gateway that ends the connection and begins
//! another one.

use crate::certificate::{Certificate, SERVER_NAME};
use crate::clock::VirtualClock;
use crate::observer::Observer;
use crate::randomness::{self, ConnectionIds, Seeded, Stream};
use crate::s2n_server::limits;
use crate::sender::{self, Sender};
use crate::server::{Server, ServerStream};
use crate::tls;
use bytes::Bytes;
use s2n_quic::Client;
use s2n_quic::client::Connect;
use s2n_quic::provider::io::testing::{Handle, spawn};
use s2n_quic::stream::BidirectionalStream;
use std::error::Error;
use std::net::SocketAddr;

/// Starts the gateway's two ends: the address that clients connect to, and the one it connects
/// from. A sender learns the share of its packets that the path loses by itself.
pub(crate) fn start(
    handle: &Handle,
    (sender, corrupted): (Sender, f64),
    clock: VirtualClock,
    certificate: &Certificate,
    server: SocketAddr,
    seed: u64,
    observer: Observer,
) -> Result<(SocketAddr, SocketAddr), Box<dyn Error>> {
    let random = randomness::generator(seed, Stream::SplitServer);
    let front = sender::start(handle, sender, corrupted, clock, certificate, random, observer)?;
    let random = randomness::generator(seed, Stream::SplitClient);
    let back = Client::builder()
        .with_tls(tls::client(certificate)?)?
        .with_io(handle.builder().build()?)?
        .with_limits(limits()?)?
        .with_connection_id(ConnectionIds::new(random.clone())?)?
        .with_random(Seeded(random))?
        .start()?;
    let addresses = (front.address()?, back.local_addr()?);
    spawn(accept(front, back, server));
    Ok(addresses)
}

async fn accept(mut front: Server, back: Client, server: SocketAddr) {
    while let Some(mut connection) = front.accept().await {
        // Opened at once, so that the handshakes of both segments overlap as far as they can.
        let attempt = back.connect(Connect::new(server).with_server_name(SERVER_NAME));
        spawn(async move {
            let Ok(mut behind) = attempt.await else { return };
            while let Some(downstream) = connection.accept_stream().await {
                let Ok(upstream) = behind.open_bidirectional_stream().await else { return };
                spawn(relay(upstream, downstream));
            }
        });
    }
}

async fn relay(mut upstream: BidirectionalStream, mut downstream: ServerStream) {
    let Some((request, begun)) = downstream.requested().await else { return };
    if upstream.send(request.bytes()).await.is_err() {
        return;
    }
    if request.upload {
        let mut left = request.size - begun.min(request.size);
        let early = Bytes::from(vec![0; begun as usize]);
        if !early.is_empty() && upstream.send(early).await.is_err() {
            return;
        }
        while left > 0 {
            let Some(data) = downstream.receive().await else { return };
            left = left.saturating_sub(data.len() as u64);
            if upstream.send(data).await.is_err() {
                return;
            }
        }
    }
    while let Ok(Some(data)) = upstream.receive().await {
        if !downstream.send(data).await {
            return;
        }
    }
    downstream.finish();
}
