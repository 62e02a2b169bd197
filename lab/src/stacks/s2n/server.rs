//! s2n-quic servers.

use super::limits::limits;
use crate::observer::Observer;
use crate::simulation::randomness::{ConnectionIds, ResetTokens, Seeded};
use crate::simulation::{Simulation, tls};
use crate::stacks::sender::Sender;
use rand_chacha::ChaCha8Rng;
use s2n_quic::Server;
use s2n_quic::provider::congestion_controller::{self, Bbr, Cubic};
use std::error::Error;

/// Starts a server with BBR if the sender's name contains it, else with CUBIC.
pub(crate) fn start(
    simulation: &Simulation<'_>,
    sender: Sender,
    random: ChaCha8Rng,
    observer: Observer,
) -> Result<Server, Box<dyn Error>> {
    match sender {
        Sender::S2nBbr => build(simulation, Bbr::default(), random, observer),
        _ => build(simulation, Cubic::default(), random, observer),
    }
}

fn build(
    Simulation { handle, certificate, .. }: &Simulation<'_>,
    congestion_control: impl congestion_controller::Provider,
    random: ChaCha8Rng,
    observer: Observer,
) -> Result<Server, Box<dyn Error>> {
    Ok(Server::builder()
        .with_tls(tls::s2n_server(certificate)?)?
        .with_event(observer)?
        .with_io(handle.builder().build()?)?
        .with_limits(limits()?)?
        .with_connection_id(ConnectionIds::new(random.clone())?)?
        .with_stateless_reset_token(ResetTokens(random.clone()))?
        .with_random(Seeded(random))?
        .with_congestion_controller(congestion_control)?
        .start()?)
}
