//! A certificate authority for one demo.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use super::error::DemoError;

/// The files of a certificate for `localhost`, 127.0.0.1 and ::1, and of the authority that signed
/// it.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    /// PEM: the authority that a client must trust.
    pub(crate) authority: PathBuf,
    /// PEM: the server's certificate, then the authority's.
    pub(crate) chain: PathBuf,
    /// PEM: the server's private key.
    pub(crate) key: PathBuf,
}

impl Certificate {
    /// Makes both and writes them into `folder`.
    pub(crate) fn create(folder: &Path) -> Result<Self, DemoError> {
        let (authority, chain, key) =
            pem().map_err(|error| DemoError::Certificate(error.to_string()))?;
        let files = Self {
            authority: folder.join("authority.pem"),
            chain: folder.join("server.pem"),
            key: folder.join("server.key"),
        };
        for (file, content) in
            [(&files.authority, authority), (&files.chain, chain), (&files.key, key)]
        {
            fs::write(file, content).map_err(|error| DemoError::write(file, error))?;
        }
        Ok(files)
    }
}

fn pem() -> Result<(String, String, String), rcgen::Error> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "Packrat demo authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);

    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut server = CertificateParams::new(names)?;
    server.distinguished_name.push(DnType::CommonName, "localhost");
    server.use_authority_key_identifier_extension = true;
    let server_key = KeyPair::generate()?;
    let certificate = server.signed_by(&server_key, &issuer)?;
    let chain = certificate.pem() + &authority_certificate.pem();
    Ok((authority_certificate.pem(), chain, server_key.serialize_pem()))
}
