//! Token endpoints without an issuer.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use packrat_real_envoy::free_address;

/// A token endpoint without HTTP/3: a relay of its TCP port alone.
pub(crate) struct TcpOnly(pub(crate) SocketAddr);

impl TcpOnly {
    pub(crate) fn before(port: u16) -> Self {
        let listener = TcpListener::bind(free_address("127.0.0.1")).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let halves =
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)];
                for (mut from, mut to) in halves {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Write);
                    });
                }
            }
        });
        Self(address)
    }
}

/// Serves documents over TLS and TCP, each by its number.
pub(crate) fn serve_documents(
    document: impl Fn(usize) -> String + Send + 'static,
    certificate: &Path,
) -> SocketAddr {
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(certificate, own.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let tls = Arc::new(tls);
    let listener = TcpListener::bind(free_address("127.0.0.1")).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, mut client) in listener.incoming().map_while(Result::ok).enumerate() {
            let mut connection = rustls::ServerConnection::new(Arc::clone(&tls)).unwrap();
            let mut stream = rustls::Stream::new(&mut connection, &mut client);
            let body = document(number);
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).and_then(|_| {
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
            });
            connection.send_close_notify();
            let _ = connection.complete_io(&mut client);
        }
    });
    address
}
