//! The baseline that needs the server's credentials: a gateway that ends the connection and begins
//! another one.

use crate::connection::{self, Outcome, Server};
use crate::observer::Observer;
use crate::simulation::certificate::SERVER_NAME;
use crate::simulation::randomness::{self, ConnectionIds, Seeded, Stream};
use crate::simulation::{Simulation, tls};
use crate::stacks::{self, Sender, limits};
use bytes::Bytes;
use s2n_quic::Client;
use s2n_quic::client::Connect;
use s2n_quic::provider::io::testing::spawn;
use s2n_quic::stream::BidirectionalStream;
use std::error::Error;
use std::net::SocketAddr;

/// Starts the gateway's two ends: the address that clients connect to, and the one it connects
/// from. A sender learns the share of its packets that the path loses by itself.
pub(crate) fn start(
    simulation: &Simulation<'_>,
    (sender, corrupted): (Sender, f64),
    server: SocketAddr,
    seed: u64,
    observer: Observer,
) -> Result<(SocketAddr, SocketAddr), Box<dyn Error>> {
    let random = randomness::generator(seed, Stream::SplitServer);
    let front = stacks::start(simulation, sender, corrupted, random, observer)?;
    let random = randomness::generator(seed, Stream::SplitClient);
    let back = Client::builder()
        .with_tls(tls::client(&simulation.certificate)?)?
        .with_io(simulation.handle.builder().build()?)?
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

/// Relays a stream, until one of its ends has gone.
async fn relay(mut upstream: BidirectionalStream, mut downstream: connection::Stream) -> Outcome {
    let Some((request, begun)) = downstream.requested().await else { return Ok(()) };
    upstream.send(request.bytes()).await?;
    if request.upload {
        let mut left = request.size - begun.min(request.size);
        let early = Bytes::from(vec![0; begun as usize]);
        if !early.is_empty() {
            upstream.send(early).await?;
        }
        while left > 0 {
            let Some(data) = downstream.receive().await? else { return Ok(()) };
            left = left.saturating_sub(data.len() as u64);
            upstream.send(data).await?;
        }
    }
    while let Ok(Some(data)) = upstream.receive().await {
        downstream.send(data).await?;
    }
    downstream.finish()
}
