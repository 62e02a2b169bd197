//! Servers of all senders: they send as many bytes as they are asked for, and take uploads.

use super::sender::Sender;
use super::{noq, quinn, s2n};
use crate::connection::Server;
use crate::observer::Observer;
use crate::simulation::Simulation;
use crate::simulation::clock::VirtualClock;
use crate::traffic::{Arrivals, answer};
use rand_chacha::ChaCha8Rng;
use s2n_quic::provider::io::testing::spawn;
use std::error::Error;
use std::sync::Arc;

/// Starts a server. `corrupted`: the share of packets that the path loses by itself, for CETEN.
pub(crate) fn start(
    simulation: &Simulation<'_>,
    sender: Sender,
    corrupted: f64,
    random: ChaCha8Rng,
    observer: Observer,
) -> Result<Server, Box<dyn Error>> {
    match sender {
        Sender::S2nCubic | Sender::S2nBbr => {
            s2n::server::start(simulation, sender, random, observer).map(Server::S2n)
        }
        Sender::NoqCubic | Sender::NoqBbr => {
            noq::server::start(simulation, sender, random, observer).map(Server::Noq)
        }
        _ => {
            quinn::server::start(simulation, sender, corrupted, random, observer).map(Server::Quinn)
        }
    }
}

/// Answers every stream; `arrivals` counts the bytes of uploads.
pub(crate) async fn serve(mut server: Server, arrivals: Arc<Arrivals>, clock: VirtualClock) {
    while let Some(mut connection) = server.accept().await {
        let arrivals = Arc::clone(&arrivals);
        spawn(async move {
            while let Some(stream) = connection.accept_stream().await {
                spawn(answer(stream, Arc::clone(&arrivals), clock));
            }
        });
    }
}
