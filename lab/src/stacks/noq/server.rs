//! noq servers with randomness from the seed.
//!
//! noq is a fork of quinn: it paces at the rate that its congestion control asks for, and takes
//! back a reduction whose losses arrive after all. Its own BBR is unusable here: it draws its waits
//! from the operating system. Therefore noq gets the controls of [`crate::congestion`].

use super::observer::{Control, Factory};
use crate::congestion::{Bbr, Cubic};
use crate::observer::Observer;
use crate::simulation::{Simulation, randomness, tls};
use crate::stacks::identity::{ConnectionIds, ResetKey, seeded_identity};
use crate::stacks::runtime::{VirtualRuntime, VirtualSocket};
use crate::stacks::s2n::WINDOW_BYTES;
use crate::stacks::sender::Sender;
use noq::{Endpoint, EndpointConfig, ServerConfig, TransportConfig, ValidationTokenConfig};
use rand_chacha::ChaCha8Rng;
use std::error::Error;
use std::sync::{Arc, Mutex};

/// Packets that may arrive before one that was sent earlier, of the CUBIC sender: stacks that adapt (ngtcp2, nginx, haproxy) come to
/// about that at these rates, and leave the rest to the time threshold.
const REORDERING_PACKETS: u32 = 128;

seeded_identity!(noq);

/// Starts a server with the sender's congestion control.
pub(crate) fn start(
    Simulation { handle, clock, certificate, .. }: &Simulation<'_>,
    sender: Sender,
    mut random: ChaCha8Rng,
    observer: Observer,
) -> Result<Endpoint, Box<dyn Error>> {
    let runtime = VirtualRuntime::new(*clock);
    let mut transport = TransportConfig::default();
    transport.send_window(WINDOW_BYTES);
    let of_control = random.clone();
    let control: Box<dyn Fn(u16) -> Control + Send + Sync> = match sender {
        Sender::NoqBbr => {
            Box::new(move |datagram| Control::Bbr(Box::new(Bbr::new(datagram, of_control.clone()))))
        }
        _ => {
            transport.packet_threshold(REORDERING_PACKETS);
            Box::new(|datagram| Control::Cubic(Cubic::new(datagram)))
        }
    };
    transport.congestion_controller_factory(Arc::new(Factory { control, runtime, observer }));
    let mut tokens = ValidationTokenConfig::default();
    // Tokens for a next connection, which never comes, are random.
    tokens.sent(0);
    let mut server = ServerConfig::with_crypto(Arc::new(tls::noq_server(certificate)?));
    server.transport_config(Arc::new(transport)).validation_token_config(tokens);
    let mut config = EndpointConfig::new(Arc::new(ResetKey(randomness::bytes(&mut random))));
    config.rng_seed(Some(randomness::bytes(&mut random)));
    let identifiers = ConnectionIds(Arc::new(Mutex::new(random)));
    config.cid_generator(Arc::new(move || Box::new(identifiers.clone())));
    let socket = VirtualSocket(handle.builder().build()?.socket());
    let runtime = Arc::new(runtime);
    Ok(Endpoint::new_with_abstract_socket(config, Some(server), Box::new(socket), runtime)?)
}
