//! quinn servers with randomness from the seed.

use super::ceten::CetenConfig;
use super::observer::{Observed, QlogReader};
use crate::congestion::Answer;
use crate::observer::Observer;
use crate::simulation::{Simulation, randomness, tls};
use crate::stacks::identity::{ConnectionIds, ResetKey, seeded_identity};
use crate::stacks::runtime::{VirtualRuntime, VirtualSocket};
use crate::stacks::s2n::WINDOW_BYTES;
use crate::stacks::sender::Sender;
use quinn::congestion::{BbrConfig, CubicConfig, NewRenoConfig};
use quinn::{Endpoint, EndpointConfig, ServerConfig, TransportConfig, ValidationTokenConfig};
use rand_chacha::ChaCha8Rng;
use std::error::Error;
use std::sync::{Arc, Mutex};

seeded_identity!(quinn);

/// Starts a server with the sender's congestion control.
pub(crate) fn start(
    Simulation { handle, clock, certificate, .. }: &Simulation<'_>,
    sender: Sender,
    corrupted: f64,
    mut random: ChaCha8Rng,
    observer: Observer,
) -> Result<Endpoint, Box<dyn Error>> {
    let runtime = VirtualRuntime::new(*clock);
    let mut transport = TransportConfig::default();
    transport.send_window(WINDOW_BYTES);
    if let Sender::CetenP | Sender::CetenA = sender {
        let answer = match sender {
            Sender::CetenP => Answer::Probabilistic,
            _ => Answer::Adaptive,
        };
        let seed = randomness::bytes(&mut random);
        let inner = Arc::new(CetenConfig { answer, corrupted, seed });
        let observed = Observed::factory(inner, runtime, observer.clone());
        transport.congestion_controller_factory(observed);
    } else {
        congestion_of(sender, &mut transport, runtime, &observer);
    }
    transport.qlog_stream(QlogReader::new(*clock, observer).stream(runtime));
    let mut tokens = ValidationTokenConfig::default();
    // Tokens for a next connection, which never comes, are random.
    tokens.sent(0);
    let mut server = ServerConfig::with_crypto(Arc::new(tls::quinn_server(certificate)?));
    server.transport_config(Arc::new(transport)).validation_token_config(tokens);
    let (config, _) = endpoint_config(random);
    let socket = Arc::new(VirtualSocket(handle.builder().build()?.socket()));
    Ok(Endpoint::new_with_abstract_socket(config, Some(server), socket, Arc::new(runtime))?)
}

/// The configuration of an endpoint with this randomness, and its connection identifiers.
pub(super) fn endpoint_config(mut random: ChaCha8Rng) -> (EndpointConfig, ConnectionIds) {
    let mut config = EndpointConfig::new(Arc::new(ResetKey(randomness::bytes(&mut random))));
    config.rng_seed(Some(randomness::bytes(&mut random)));
    let identifiers = ConnectionIds(Arc::new(Mutex::new(random)));
    let of_endpoint = identifiers.clone();
    config.cid_generator(move || Box::new(of_endpoint.clone()));
    (config, identifiers)
}

/// Gives a transport the congestion control of quinn that the sender is named after.
pub(crate) fn congestion_of(
    sender: Sender,
    transport: &mut TransportConfig,
    runtime: VirtualRuntime,
    observer: &Observer,
) {
    let observer = observer.clone();
    let observed = match sender {
        Sender::QuinnNewReno => {
            Observed::factory(Arc::new(NewRenoConfig::default()), runtime, observer)
        }
        Sender::QuinnBbr => Observed::factory(Arc::new(BbrConfig::default()), runtime, observer),
        _ => Observed::factory(Arc::new(CubicConfig::default()), runtime, observer),
    };
    transport.congestion_controller_factory(observed);
}
