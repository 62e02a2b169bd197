//! s2n-quic servers.

use crate::certificate::Certificate;
use crate::observer::Observer;
use crate::randomness::{ConnectionIds, ResetTokens, Seeded};
use crate::sender::Sender;
use crate::tls;
use rand_chacha::ChaCha8Rng;
use s2n_quic::Server;
use s2n_quic::provider::congestion_controller::{self, Bbr, Cubic};
use s2n_quic::provider::io::testing::Handle;
use s2n_quic::provider::limits::Limits;
use std::error::Error;

/// Flow control windows and send buffers, bytes: large enough that they never limit a trial.
pub(crate) const WINDOW_BYTES: u64 = 32 << 20;
const SEND_BUFFER: u32 = 8 << 20;

/// Limits of both ends: only the network and the congestion control decide.
pub(crate) fn limits() -> Result<Limits, Box<dyn Error>> {
    Ok(Limits::new()
        .with_data_window(WINDOW_BYTES)?
        .with_bidirectional_remote_data_window(WINDOW_BYTES)?
        .with_bidirectional_local_data_window(WINDOW_BYTES)?
        .with_max_send_buffer_size(SEND_BUFFER)?)
}

/// Starts a server with BBR if the sender's name contains it, else with CUBIC.
pub(crate) fn start(
    handle: &Handle,
    sender: Sender,
    certificate: &Certificate,
    random: ChaCha8Rng,
    observer: Observer,
) -> Result<Server, Box<dyn Error>> {
    match sender {
        Sender::S2nBbr => build(handle, Bbr::default(), certificate, random, observer),
        _ => build(handle, Cubic::default(), certificate, random, observer),
    }
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
