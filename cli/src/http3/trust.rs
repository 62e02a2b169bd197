//! Certificate verification.

use super::error::{CertificateFault, GetError};
use super::request::Trust;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Reads the certificates of a PEM file.
///
/// # Errors
/// When the file cannot be read or has no certificate in it.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, GetError> {
    let fault = |reason: String| GetError::TrustFile { path: path.to_owned(), reason };
    let certificates = CertificateDer::pem_file_iter(path)
        .map_err(|error| fault(error.to_string()))?
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| fault(error.to_string()))?;
    if certificates.is_empty() {
        Err(fault("there is no certificate in it".to_owned()))
    } else {
        Ok(certificates)
    }
}

/// The reason why a certificate was refused: s2n-quic passes on only a TLS alert.
pub(super) type Verdict = Arc<Mutex<Option<rustls::Error>>>;

/// TLS settings for HTTP/3 with these roots; `verdict` takes the reason when the server's
/// certificate is refused.
pub(super) fn client_tls(
    trust: &Trust,
    verdict: &Verdict,
) -> Result<s2n_quic::provider::tls::rustls::Client, GetError> {
    client_config(trust, verdict, &[b"h3"]).map(s2n_quic::provider::tls::rustls::Client::from)
}

/// TLS settings with these roots, for these protocols (ALPN), best first.
pub(super) fn client_config(
    trust: &Trust,
    verdict: &Verdict,
    protocols: &[&[u8]],
) -> Result<rustls::ClientConfig, GetError> {
    let mut roots = RootCertStore::empty();
    let mut complaints = String::new();
    if trust.system_roots {
        let native = rustls_native_certs::load_native_certs();
        let (_, ignored) = roots.add_parsable_certificates(native.certs);
        complaints = native.errors.iter().map(|error| format!("{error}; ")).collect();
        tracing::debug!(ignored, errors = native.errors.len(), "system roots loaded");
    }
    for certificate in &trust.additional {
        roots.add(certificate.clone()).map_err(|error| GetError::NoTrust {
            reason: format!("a given certificate is unusable: {error}"),
        })?;
    }
    if roots.is_empty() {
        let reason =
            format!("{complaints}the system has no certificate authorities and none was given");
        return Err(GetError::NoTrust { reason });
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| GetError::NoTrust { reason: error.to_string() })?;
    let verifier = Arc::new(WitnessedVerifier { verifier, verdict: Arc::clone(verdict) });
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| GetError::Local { reason: error.to_string() })?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// The ordinary verifier, which also records its verdict.
#[derive(Debug)]
struct WitnessedVerifier {
    verifier: Arc<WebPkiServerVerifier>,
    verdict: Verdict,
}

impl WitnessedVerifier {
    fn witness<T>(&self, result: Result<T, rustls::Error>) -> Result<T, rustls::Error> {
        if let Err(error) = &result {
            *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        }
        result
    }
}

impl ServerCertVerifier for WitnessedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.witness(self.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        ))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.witness(self.verifier.verify_tls12_signature(message, certificate, signature))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.witness(self.verifier.verify_tls13_signature(message, certificate, signature))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// The fault of a certificate that the verifier has refused.
pub(super) fn fault(error: &rustls::Error) -> CertificateFault {
    let rustls::Error::InvalidCertificate(error) = error else {
        return CertificateFault::Other(error.to_string());
    };
    match error {
        // A bad signature: the authority has the name of a trusted one, but another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            CertificateFault::UnknownIssuer
        }
        CertificateError::NotValidForName => CertificateFault::WrongName { names: Vec::new() },
        CertificateError::NotValidForNameContext { presented, .. } => {
            CertificateFault::WrongName { names: presented.clone() }
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            CertificateFault::Expired
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            CertificateFault::NotYetValid
        }
        CertificateError::Revoked => CertificateFault::Revoked,
        other => CertificateFault::Other(other.to_string()),
    }
}
