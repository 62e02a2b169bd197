//! The baseline that needs the server's credentials: a gateway that ends the connection and begins another one.

use crate::certificate::{Certificate, SERVER_NAME};
use crate::observer::Observer;
use crate::randomness::{self, ConnectionIds, Seeded, Stream};
use crate::sender::{self, Sender, limits, request, requested};
use crate::tls;
use s2n_quic::client::Connect;
use s2n_quic::provider::io::testing::{Handle, spawn};
use s2n_quic::stream::BidirectionalStream;
use s2n_quic::{Client, Server};
use std::error::Error;
use std::net::SocketAddr;

/// Starts the gateway's two ends: the address that clients connect to, and the one it connects from.
pub(crate) fn start(
    handle: &Handle,
    sender: Sender,
    certificate: &Certificate,
    server: SocketAddr,
    seed: u64,
    observer: Observer,
) -> Result<(SocketAddr, SocketAddr), Box<dyn Error>> {
    let random = randomness::generator(seed, Stream::SplitServer);
    let front = sender::start(handle, sender, certificate, random, observer)?;
    let random = randomness::generator(seed, Stream::SplitClient);
    let back = Client::builder()
        .with_tls(tls::client(certificate)?)?
        .with_io(handle.builder().build()?)?
        .with_limits(limits()?)?
        .with_connection_id(ConnectionIds::new(random.clone())?)?
        .with_random(Seeded(random))?
        .start()?;
    let addresses = (front.local_addr()?, back.local_addr()?);
    spawn(accept(front, back, server));
    Ok(addresses)
}

async fn accept(mut front: Server, back: Client, server: SocketAddr) {
    while let Some(mut connection) = front.accept().await {
        // Opened at once, so that the handshakes of both segments overlap as far as they can.
        let attempt = back.connect(Connect::new(server).with_server_name(SERVER_NAME));
        spawn(async move {
            let Ok(mut behind) = attempt.await else { return };
            while let Ok(Some(downstream)) = connection.accept_bidirectional_stream().await {
                let Ok(upstream) = behind.open_bidirectional_stream().await else { return };
                spawn(relay(upstream, downstream));
            }
        });
    }
}

async fn relay(mut upstream: BidirectionalStream, mut downstream: BidirectionalStream) {
    let Some(size) = requested(&mut downstream).await else { return };
    if upstream.send(request(size)).await.is_err() {
        return;
    }
    while let Ok(Some(data)) = upstream.receive().await {
        if downstream.send(data).await.is_err() {
            return;
        }
    }
    let _ = downstream.finish();
}
