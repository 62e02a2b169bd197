//! The servers' certificate: the same in every trial, so that handshakes have the same length.

use rcgen::{CertificateParams, KeyPair};

/// PKCS #8 (RFC 5958) in front of an Ed25519 private key.
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
/// A private key without a secret to protect: it never leaves the laboratory.
const PRIVATE_KEY: [u8; 32] = *b"a key for virtual servers only!!";

/// The name that the certificate is valid for.
pub(crate) const SERVER_NAME: &str = "localhost";

/// A certificate and its key, DER.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

/// Ed25519 signatures have no randomness in them.
pub(crate) fn fixed() -> Result<Certificate, rcgen::Error> {
    let der = [&PKCS8_ED25519[..], &PRIVATE_KEY].concat();
    let key = KeyPair::try_from(der)?;
    let certificate = CertificateParams::new([SERVER_NAME.to_owned()])?.self_signed(&key)?;
    Ok(Certificate { certificate: certificate.der().to_vec(), key: key.serialize_der() })
}
