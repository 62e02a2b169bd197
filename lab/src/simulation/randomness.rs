//! Everything random in a trial, from its seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use s2n_quic::provider::connection_id::{self, ConnectionInfo, LocalId};
use s2n_quic::provider::{random, stateless_reset_token};
use std::convert::Infallible;
use std::error::Error;

/// A consumer of randomness: each has a stream of its own, so that an additional draw of one does
/// not affect the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The sender's QUIC stack.
    Server,
    /// The receiver's QUIC stack.
    Client,
    /// The QUIC stacks of a gateway that splits the connection.
    SplitServer,
    SplitClient,
    /// The client core's session keys and nonces.
    Assist,
    /// The gateway engine's session keys.
    Gateway,
    /// All TLS keys of the trial.
    Tls,
}

/// The generator of one stream of a trial.
pub(crate) fn generator(seed: u64, stream: Stream) -> ChaCha8Rng {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(stream as u64 + 1);
    generator
}

/// 32 bytes of a generator.
pub(crate) fn bytes(generator: &mut ChaCha8Rng) -> [u8; 32] {
    let mut bytes = [0; 32];
    generator.fill_bytes(&mut bytes);
    bytes
}

/// s2n-quic's source of randomness: connection identifiers, skipped packet numbers, jitter.
pub(crate) struct Seeded(pub(crate) ChaCha8Rng);

impl random::Provider for Seeded {
    type Generator = Self;
    type Error = Infallible;

    fn start(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

impl random::Generator for Seeded {
    fn public_random_fill(&mut self, destination: &mut [u8]) {
        self.0.fill_bytes(destination);
    }

    fn private_random_fill(&mut self, destination: &mut [u8]) {
        self.0.fill_bytes(destination);
    }
}

/// Length of the connection identifiers, bytes: s2n-quic's own choice.
const CONNECTION_ID: usize = 16;

/// Connection identifiers from the seed: packets authenticate them, and Packrat's identifiers
/// therefore depend on them.
pub(crate) struct ConnectionIds {
    random: ChaCha8Rng,
    /// Returned again if a new one would be refused, which the length rules out.
    last: LocalId,
}

impl ConnectionIds {
    /// Creates identifiers from this generator.
    ///
    /// # Errors
    /// Never with the length that they have here.
    pub(crate) fn new(mut random: ChaCha8Rng) -> Result<Self, Box<dyn Error>> {
        let last =
            draw(&mut random).ok_or("s2n-quic refused a connection identifier of 16 bytes")?;
        Ok(Self { random, last })
    }
}

fn draw(random: &mut ChaCha8Rng) -> Option<LocalId> {
    let mut id = [0; CONNECTION_ID];
    random.fill_bytes(&mut id);
    LocalId::try_from_bytes(&id)
}

impl connection_id::Generator for ConnectionIds {
    fn generate(&mut self, _: &ConnectionInfo<'_>) -> LocalId {
        self.last = draw(&mut self.random).unwrap_or(self.last);
        self.last
    }
}

impl connection_id::Validator for ConnectionIds {
    fn validate(&self, _: &ConnectionInfo<'_>, buffer: &[u8]) -> Option<usize> {
        (buffer.len() >= CONNECTION_ID).then_some(CONNECTION_ID)
    }
}

/// Stateless reset tokens from the seed, for the same reason.
pub(crate) struct ResetTokens(pub(crate) ChaCha8Rng);

impl stateless_reset_token::Provider for ResetTokens {
    type Generator = Self;
    type Error = Infallible;

    fn start(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

impl stateless_reset_token::Generator for ResetTokens {
    const ENABLED: bool = false;

    fn generate(&mut self, _: &[u8]) -> s2n_quic_core::stateless_reset::Token {
        let mut token = [0; s2n_quic_core::stateless_reset::token::LEN];
        self.0.fill_bytes(&mut token);
        token.into()
    }
}
