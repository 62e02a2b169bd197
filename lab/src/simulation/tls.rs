//! TLS whose keys follow from the trial's seed, so that even the ciphertext is the same in every
//! process.
//!
//! Packrat's identifiers are taken from the ciphertext. With random keys two processes would agree
//! on nearly every trial, and differ whenever an identifier happens to matter. **Only a laboratory
//! may do this**: keys that follow from a seed are no secret.

use super::certificate::Certificate;
use super::randomness::{self, Stream};
use curve25519_dalek::montgomery::MontgomeryPoint;
use quinn_proto::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret,
    SupportedKxGroup,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::version::TLS13;
use rustls::{ClientConfig, Error, NamedGroup, PeerMisbehaved, RootCertStore, ServerConfig};
use s2n_quic::provider::tls::rustls::{Client, Server};
use std::cell::RefCell;
use std::sync::Arc;

/// The application protocol of the laboratory.
const APPLICATION_PROTOCOL: &[u8] = b"packrat-lab";

thread_local! {
    /// A trial runs on one thread from its beginning to its end.
    static TRIAL_RANDOM: RefCell<Option<ChaCha8Rng>> = const { RefCell::new(None) };
}

/// All TLS on this thread belongs to the trial with this seed from now on.
pub(crate) fn begin_trial(seed: u64) {
    TRIAL_RANDOM.set(Some(randomness::generator(seed, Stream::Tls)));
}

fn fill(buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
    TRIAL_RANDOM.with_borrow_mut(|random| match random {
        Some(random) => {
            random.fill_bytes(buffer);
            Ok(())
        }
        None => Err(GetRandomFailed),
    })
}

#[derive(Debug)]
struct FromTheSeed;

impl SecureRandom for FromTheSeed {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
        fill(buffer)
    }
}

/// X25519 (RFC 7748) with a private key from the seed.
#[derive(Debug)]
struct X25519;

impl SupportedKxGroup for X25519 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut private = [0; 32];
        fill(&mut private)?;
        let public = MontgomeryPoint::mul_base_clamped(private).to_bytes();
        Ok(Box::new(Exchange { private, public }))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

struct Exchange {
    private: [u8; 32],
    public: [u8; 32],
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let peer: [u8; 32] =
            peer.try_into().map_err(|_| Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare))?;
        let shared = MontgomeryPoint(peer).mul_clamped(self.private);
        Ok(SharedSecret::from(&shared.to_bytes()[..]))
    }

    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        kx_groups: vec![&X25519],
        secure_random: &FromTheSeed,
        ..rustls::crypto::aws_lc_rs::default_provider()
    })
}

/// The TLS of an s2n-quic server.
pub(crate) fn s2n_server(certificate: &Certificate) -> Result<Server, Error> {
    server(certificate).map(Server::from)
}

/// The TLS of a quinn server.
pub(crate) fn quinn_server(certificate: &Certificate) -> Result<QuicServerConfig, Error> {
    let suite = |error: NoInitialCipherSuite| Error::General(error.to_string());
    QuicServerConfig::try_from(server(certificate)?).map_err(suite)
}

/// The TLS of a noq server.
pub(crate) fn noq_server(
    certificate: &Certificate,
) -> Result<noq::crypto::rustls::QuicServerConfig, Error> {
    let suite =
        |error: noq::crypto::rustls::NoInitialCipherSuite| Error::General(error.to_string());
    noq::crypto::rustls::QuicServerConfig::try_from(server(certificate)?).map_err(suite)
}

fn server(certificate: &Certificate) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(certificate.certificate.clone())],
            PrivatePkcs8KeyDer::from(certificate.key.clone()).into(),
        )?;
    config.alpn_protocols = vec![APPLICATION_PROTOCOL.to_vec()];
    Ok(config)
}

/// The TLS of an s2n-quic client, which trusts that server.
pub(crate) fn client(certificate: &Certificate) -> Result<Client, Error> {
    client_config(certificate).map(Client::from)
}

/// The TLS configuration of a quinn client.
pub(crate) fn quinn_client(certificate: &Certificate) -> Result<QuicClientConfig, Error> {
    let suite = |error: NoInitialCipherSuite| Error::General(error.to_string());
    QuicClientConfig::try_from(client_config(certificate)?).map_err(suite)
}

fn client_config(certificate: &Certificate) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate.certificate.clone()))?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![APPLICATION_PROTOCOL.to_vec()];
    Ok(config)
}
