//! Downloads a file by quinn with assistance to the standard output, and prints the figures.
//!
//! Usage: application ADDRESS NAME CERTIFICATE    of the server of packrat-path
use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use packrat_quinn::{ClientConfig, Socket};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::{CertificateDer, pem::PemObject};

// The others are linked.
use {packrat_media as _, packrat_s2n_quic as _, packrat_socket as _, packrat_token_client as _};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, name, certificate] = arguments.as_slice() else {
        return Err("expected: ADDRESS NAME CERTIFICATE".into());
    };
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_protocol_versions(&[&rustls::version::TLS13])?
    .with_root_certificates(roots)
    .with_no_client_auth();
    tls.alpn_protocols = vec![b"packrat-test".to_vec()];
    let tls = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));

    let socket = Socket::bind("0.0.0.0:0".parse()?, ClientConfig::default())?;
    let endpoint = socket.endpoint()?;
    let connection = endpoint.connect_with(tls, address.parse()?, name)?.await?;
    let (mut ask, mut stream) = connection.open_bi().await?;
    ask.write_all(b"the file").await?;
    std::io::stdout().write_all(&stream.read_to_end(1 << 30).await?)?;
    connection.close(0u32.into(), b"");
    let counters = socket.counters();
    eprintln!("{} {}", counters.sessions, counters.repaired_in_time);
    Ok(())
}
