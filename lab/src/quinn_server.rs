//! quinn servers with randomness from the seed.

use crate::certificate::Certificate;
use crate::clock::VirtualClock;
use crate::congestion::Answer;
use crate::observer::Observer;
use crate::quinn_ceten::CetenConfig;
use crate::quinn_observer::{Observed, QlogReader};
use crate::quinn_runtime::{VirtualRuntime, VirtualSocket};
use crate::randomness;
use crate::s2n_server::WINDOW_BYTES;
use crate::sender::Sender;
use crate::tls;
use hmac::{Hmac, Mac};
use quinn::congestion::{BbrConfig, CubicConfig, NewRenoConfig};
use quinn::crypto::{CryptoError, HmacKey};
use quinn::{
    ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig, QlogConfig, ServerConfig,
    TransportConfig, ValidationTokenConfig,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use s2n_quic::provider::io::testing::Handle;
use sha2::Sha256;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Length of the connection identifiers, bytes: quinn's own choice.
pub(crate) const CONNECTION_ID: usize = 8;

/// Starts a server with the sender's congestion control.
pub(crate) fn start(
    handle: &Handle,
    sender: Sender,
    corrupted: f64,
    clock: VirtualClock,
    certificate: &Certificate,
    mut random: ChaCha8Rng,
    observer: Observer,
) -> Result<Endpoint, Box<dyn Error>> {
    let runtime = VirtualRuntime::new(clock);
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
    let mut qlog = QlogConfig::default();
    qlog.start_time(runtime.base());
    qlog.writer(Box::new(QlogReader::new(clock, observer)));
    transport.qlog_stream(qlog.into_stream());
    let mut tokens = ValidationTokenConfig::default();
    // Tokens for a next connection, which never comes, are random.
    tokens.sent(0);
    let mut server = ServerConfig::with_crypto(Arc::new(tls::quinn_server(certificate)?));
    server.transport_config(Arc::new(transport)).validation_token_config(tokens);
    let mut config = EndpointConfig::new(Arc::new(ResetKey(randomness::bytes(&mut random))));
    config.rng_seed(Some(randomness::bytes(&mut random)));
    let identifiers = Arc::new(Mutex::new(random));
    config.cid_generator(move || Box::new(ConnectionIds(Arc::clone(&identifiers))));
    let socket = handle.builder().build()?.socket();
    let socket = Arc::new(VirtualSocket(socket));
    Ok(Endpoint::new_with_abstract_socket(config, Some(server), socket, Arc::new(runtime))?)
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

/// Connection identifiers from the seed: packets authenticate them, and Packrat's identifiers
/// therefore depend on them.
pub(crate) struct ConnectionIds(pub(crate) Arc<Mutex<ChaCha8Rng>>);

impl ConnectionIds {
    /// The bytes of the next one.
    pub(crate) fn draw(&self) -> [u8; CONNECTION_ID] {
        let mut id = [0; CONNECTION_ID];
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(&mut id);
        id
    }
}

impl ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&self.draw())
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The key of stateless reset tokens, for the same reason.
pub(crate) struct ResetKey(pub(crate) [u8; 32]);

impl ResetKey {
    /// Bytes of a signature.
    pub(crate) const LENGTH: usize = 32;

    fn mac(&self, data: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(data);
        Some(mac)
    }

    pub(crate) fn write_signature(&self, data: &[u8], signature: &mut [u8]) {
        if let Some(mac) = self.mac(data) {
            let code = mac.finalize().into_bytes();
            signature.iter_mut().zip(code).for_each(|(to, from)| *to = from);
        }
    }

    pub(crate) fn is_signed(&self, data: &[u8], signature: &[u8]) -> bool {
        self.mac(data).is_some_and(|mac| mac.verify_slice(signature).is_ok())
    }
}

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        self.write_signature(data, signature);
    }

    fn signature_len(&self) -> usize {
        Self::LENGTH
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        self.is_signed(data, signature).then_some(()).ok_or(CryptoError)
    }
}
