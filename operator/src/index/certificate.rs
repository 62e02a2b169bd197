//! Certificates of tenants, with their keys.

use std::collections::BTreeMap;

use packrat_api::route::Hidden;
use rustls::SignatureAlgorithm;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::tenant_secrets::check_label;

/// Entry of a Secret of type kubernetes.io/tls with the chain of certificates.
const CHAIN_ENTRY: &str = "tls.crt";
/// Entry of a Secret of type kubernetes.io/tls with the private key.
const KEY_ENTRY: &str = "tls.key";

/// A certificate with its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate, and those between it and its authority.
    pub chain: String,
    /// Private key of the certificate.
    pub key: Hidden,
}

impl Certificate {
    /// Reads a Secret. `labels` and `entries`: its own.
    ///
    /// # Errors
    /// The fault of the Secret. Pairs that a gateway would refuse are refused here: a Secret of one
    /// tenant must not show as a fault of the gateway.
    pub fn read(
        labels: &BTreeMap<String, String>,
        entries: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, String> {
        check_label(labels)?;
        let text = |entry: &str| {
            let bytes = entries.get(entry).ok_or_else(|| {
                format!("has no entry {entry}; a Secret of type kubernetes.io/tls has both")
            })?;
            String::from_utf8(bytes.clone())
                .map_err(|_| format!("has an entry {entry} that is no PEM"))
        };
        let (chain, key) = (text(CHAIN_ENTRY)?, Hidden::new(text(KEY_ENTRY)?));
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
        let certificates = certificates
            .ok()
            // Envoy also reads the certificates in between.
            .filter(|found| !found.is_empty() && found.iter().all(is_certificate))
            .ok_or_else(|| format!("has an entry {CHAIN_ENTRY} that is no certificate in PEM"))?;
        let private = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
            .ok()
            .and_then(|found| any_supported_type(&found).ok())
            .filter(|found| {
                matches!(found.algorithm(), SignatureAlgorithm::RSA | SignatureAlgorithm::ECDSA)
            })
            .ok_or_else(|| {
                format!("has an entry {KEY_ENTRY} that is no RSA key (2048 bits or more) or ECDSA key (P-256, P-384) in PEM")
            })?;
        CertifiedKey::new(certificates, private).keys_match().map_err(|_| {
            format!("has an entry {KEY_ENTRY} that is not the key of {CHAIN_ENTRY}")
        })?;
        Ok(Self { chain, key })
    }
}

fn is_certificate(bytes: &CertificateDer<'_>) -> bool {
    webpki::EndEntityCert::try_from(bytes).is_ok()
}
