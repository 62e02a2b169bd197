//! Downloads one file over HTTP/3 through any gateway on the path, and prints the effect of
//! assistance.
//!
//! ```text
//! cargo run -p packrat-s2n-quic --example download -- 192.0.2.7:443 example.org /file authority.pem
//! ```

use bytes::Buf;
use h3_util::s2n::s2n_quic_h3;
use packrat_s2n_quic::{ClientConfig, Endpoint, EndpointConfig};
use s2n_quic::provider::tls::rustls;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [remote, host, path, authority] = arguments.as_slice() else {
        return Err("expected: ADDRESS:PORT HOST PATH AUTHORITY.pem".into());
    };
    let remote: std::net::SocketAddr = remote.parse()?;

    // An endpoint is one UDP socket. Everything but `assist` is as without Packrat.
    let tls = rustls::Client::builder()
        .with_certificate(Path::new(authority))?
        .with_application_protocols(["h3"].iter())?
        .build()?;
    let config = EndpointConfig::default().with_assist(ClientConfig::default());
    let local = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let endpoint = Endpoint::bind(local.parse()?, tls, config)?;
    let (connection, assistance) = endpoint.connect(remote, host).await?.split();

    // `connection` is a plain s2n_quic::Connection: anything runs on it.
    let (mut driver, mut requests) =
        h3::client::new(s2n_quic_h3::Connection::new(connection)).await?;
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
    println!("{}: {bytes} bytes", response.status());
    println!("{:#?}", assistance.stats());

    assistance.close();
    drop((requests, assistance));
    driver.abort();
    endpoint.wait_idle(Duration::from_millis(50)).await;
    Ok(())
}
