//! A certificate authority for one run.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::command::{Failure, Outcome};

/// PEM texts.
#[derive(Debug)]
pub(crate) struct Certificate {
    /// The certificate that a client must trust.
    pub(crate) authority: String,
    /// The server's certificate and the authority's.
    pub(crate) chain: String,
    /// The server's private key.
    pub(crate) key: String,
}

impl Certificate {
    /// Makes an authority and a certificate for this name.
    pub(crate) fn create(name: &str) -> Outcome<Self> {
        create(name).map_err(|error| Failure(format!("no certificate for {name}: {error}")))
    }
}

fn create(name: &str) -> Result<Certificate, rcgen::Error> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "Packrat test authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);

    let mut server = CertificateParams::new([name.to_owned()])?;
    server.distinguished_name.push(DnType::CommonName, name);
    server.use_authority_key_identifier_extension = true;
    let server_key = KeyPair::generate()?;
    let certificate = server.signed_by(&server_key, &issuer)?;
    let chain = certificate.pem() + &authority_certificate.pem();
    Ok(Certificate {
        authority: authority_certificate.pem(),
        chain,
        key: server_key.serialize_pem(),
    })
}
