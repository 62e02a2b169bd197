//! Downloads one file over HTTP/3 (h3) with quinn, assisted.
//!
//! ```text
//! cargo run -p packrat-quinn --example http3 -- 192.0.2.7:443 example.org /file authority.pem
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Buf;
use packrat_quinn::{ClientConfig, Socket};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::{CertificateDer, pem::PemObject};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [remote, host, path, authority] = arguments.as_slice() else {
        return Err("expected: ADDRESS:PORT HOST PATH AUTHORITY.pem".into());
    };
    let remote: SocketAddr = remote.parse()?;

    let mut authorities = rustls::RootCertStore::empty();
    authorities.add(CertificateDer::from_pem_file(authority)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(authorities)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let quic = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));

    let local = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = Socket::bind(local.parse()?, ClientConfig::default())?;
    let endpoint = socket.endpoint()?;
    let connection = endpoint.connect_with(quic, remote, host)?.await?;

    // From here on everything is as without Packrat.
    let (mut driver, mut requests) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
    let driver =
        tokio::spawn(
            async move { std::future::poll_fn(|context| driver.poll_close(context)).await },
        );
    let request = http::Request::get(format!("https://{host}{path}")).body(())?;
    let mut stream = requests.send_request(request).await?;
    stream.finish().await?;
    let response = stream.recv_response().await?;
    let mut bytes = 0;
    while let Some(mut data) = stream.recv_data().await? {
        bytes += data.remaining();
        data.advance(data.remaining());
    }
    let counters = socket.counters();
    println!(
        "{}: {bytes} bytes, {} repaired in time",
        response.status(),
        counters.repaired_in_time
    );

    drop((stream, requests));
    driver.await?;
    endpoint.wait_idle().await;
    Ok(())
}
