//! An HTTP/3 server of another implementation (quinn, h3-quinn) than the client's, in its own
//! thread.

mod draft;
#[allow(dead_code, reason = "not every test that has this server has TCP")]
pub(crate) mod proxy;
#[allow(dead_code, reason = "not every test that has this server has TCP")]
pub(crate) mod tcp;
mod tus;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Bytes of `/file`.
pub(crate) const FILE_SIZE: usize = 3_000_000;
/// `/stall` sends this many bytes of [`FILE_SIZE`] and then nothing more.
pub(crate) const STALL_AFTER: usize = 200_000;

/// Content of `/file`.
pub(crate) fn file() -> Vec<u8> {
    // A linear congruential generator: every byte position matters, and no file is needed.
    let mut state = 1_u64;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(FILE_SIZE).collect()
}

/// A running server; it ends when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// PEM of the authority that signed its certificate.
    pub(crate) authority: PathBuf,
    #[allow(dead_code, reason = "not every test that has this server has TCP")]
    pub(crate) identity: Identity,
    _stop: oneshot::Sender<()>,
}

/// A certificate, and the authority that has signed it.
pub(crate) struct Identity {
    /// PEM of the authority.
    pub(crate) authority: PathBuf,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    _folder: tempfile::TempDir,
}

impl Identity {
    /// A certificate for these names.
    pub(crate) fn new(names: &[&str], expired: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let authority_certificate = authority.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let mut leaf =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
                .unwrap();
        if expired {
            leaf.not_before = rcgen::date_time_ymd(2001, 1, 1);
            leaf.not_after = rcgen::date_time_ymd(2002, 1, 1);
        }
        let leaf_key = KeyPair::generate().unwrap();
        let leaf = leaf.signed_by(&leaf_key, &issuer).unwrap();
        let authority_file = folder.path().join("authority.pem");
        std::fs::write(&authority_file, authority_certificate.pem()).unwrap();
        Self {
            authority: authority_file,
            certificate: leaf.der().clone(),
            key: leaf_key.into(),
            _folder: folder,
        }
    }

    /// The settings of a server that speaks this protocol.
    pub(crate) fn tls(&self, protocol: &[u8]) -> rustls::ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .unwrap();
        tls.alpn_protocols = vec![protocol.to_vec()];
        tls
    }
}

impl Server {
    /// Starts a server whose certificate is for these names.
    pub(crate) fn start(names: &[&str], expired: bool) -> Self {
        Self::of(Identity::new(names, expired))
    }

    /// Starts a server with this certificate.
    pub(crate) fn of(identity: Identity) -> Self {
        let tls = identity.tls(b"h3");
        let tls = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
        let config = quinn::ServerConfig::with_crypto(Arc::new(tls));

        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let endpoint =
                    quinn::Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
                tell.send(endpoint.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = serve(endpoint) => {}
                    _ = stopped => {}
                }
            });
        });
        Self {
            address: told.recv().unwrap(),
            authority: identity.authority.clone(),
            identity,
            _stop: stop,
        }
    }

    /// The URL of a path on this server under `localhost`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }
}

async fn serve(endpoint: quinn::Endpoint) {
    let uploads = Arc::new(tus::Uploads::default());
    let mut number = 0;
    while let Some(incoming) = endpoint.accept().await {
        number += 1;
        let uploads = Arc::clone(&uploads);
        tokio::spawn(async move {
            let Ok(connection) = incoming.await else { return };
            let quic = connection.clone();
            let Ok(mut h3) = h3::server::Connection::<_, bytes::Bytes>::new(
                h3_quinn::Connection::new(connection),
            )
            .await
            else {
                return;
            };
            while let Ok(Some(resolver)) = h3.accept().await {
                let (uploads, quic) = (Arc::clone(&uploads), quic.clone());
                tokio::spawn(async move {
                    let Ok((request, mut stream)) = resolver.resolve_request().await else {
                        return;
                    };
                    if request.uri().path() == "/file-over-tcp" {
                        quic.close(7_u32.into(), b"no");
                        return;
                    }
                    if request.uri().path().starts_with("/connection/") {
                        let response = http::Response::new(());
                        let _ = stream.send_response(response).await;
                        let _ = stream.send_data(number.to_string().into()).await;
                        let _ = stream.finish().await;
                        return;
                    }
                    if request.uri().path().starts_with("/tus") {
                        let _ = uploads.respond(&request, &mut stream, &quic).await;
                        return;
                    }
                    if request.uri().path().starts_with("/draft") {
                        let _ = uploads.respond_by_draft(&request, &mut stream, &quic).await;
                        return;
                    }
                    // Clients may leave at any moment.
                    let _ = respond(&request, &mut stream).await;
                });
            }
        });
    }
}

/// Takes an upload; its hash is the answer's body.
async fn take<S: h3::quic::BidiStream<bytes::Bytes>>(
    request: &http::Request<()>,
    stream: &mut h3::server::RequestStream<S, bytes::Bytes>,
) -> Result<(), h3::error::StreamError> {
    use bytes::Buf;
    use sha2::{Digest, Sha256};
    let status = match request.uri().path() {
        // It does not even read it.
        "/refused" => Some(403),
        "/moved" => Some(308),
        "/unclear" => Some(304),
        _ => None,
    };
    if let Some(status) = status {
        let response = http::Response::builder().status(status).header("location", "/taken");
        stream.send_response(response.body(()).unwrap()).await?;
        stream.stop_sending(h3::error::Code::H3_NO_ERROR);
        return stream.finish().await;
    }
    let (mut digest, mut length) = (Sha256::new(), 0_u64);
    while let Some(mut chunk) = stream.recv_data().await? {
        if request.uri().path() == "/stall" {
            std::future::pending::<()>().await;
        }
        length += chunk.remaining() as u64;
        digest.update(chunk.copy_to_bytes(chunk.remaining()));
    }
    let said = request.headers().get("content-length").map(|said| said.to_str().unwrap());
    let whole = said.is_none_or(|said| said == length.to_string());
    let sum: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let response = http::Response::builder().status(if whole { 201 } else { 400 });
    let response = response.header("location", "/taken").body(()).unwrap();
    stream.send_response(response).await?;
    let answer = match request.uri().path() {
        "/fields" => fields(request.headers()),
        _ => format!("{} {sum} {}", request.method(), said.unwrap_or("-")).into_bytes(),
    };
    stream.send_data(answer.into()).await?;
    stream.finish().await
}

/// The first position of a range: 100 of `bytes=100-`.
fn first_byte(range: &str) -> usize {
    range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse().unwrap()
}

/// The place that a redirect leads to.
fn redirect(request: &http::Request<()>) -> Option<&str> {
    match (request.uri().path(), request.uri().query()) {
        ("/loop", _) => Some("/loop"),
        ("/to", Some("plain")) => Some("http://me:open-sesame@localhost/file"),
        ("/to", place) => place,
        _ => None,
    }
}

/// The fields of a request, one a line.
fn fields(headers: &http::HeaderMap) -> Vec<u8> {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\n"].concat()
    };
    headers.iter().flat_map(line).collect()
}

async fn respond<S: h3::quic::BidiStream<bytes::Bytes>>(
    request: &http::Request<()>,
    stream: &mut h3::server::RequestStream<S, bytes::Bytes>,
) -> Result<(), h3::error::StreamError> {
    if matches!(*request.method(), http::Method::PUT | http::Method::POST) {
        return take(request, stream).await;
    }
    let content = file();
    let mut response = http::Response::builder().header("etag", "\"one\"");
    if let Some(place) = redirect(request) {
        response = response.header("location", place);
    }
    let range = request.headers().get("range").map(|range| range.to_str().unwrap().to_owned());
    let same = request.headers().get("if-range").is_none_or(|validator| validator == "\"one\"");
    let (response, body, stall) = match (request.uri().path(), range.filter(|_| same)) {
        ("/file" | "/stall" | "/breaking", Some(range)) if first_byte(&range) >= content.len() => {
            let response =
                response.status(416).header("content-range", format!("bytes */{}", content.len()));
            (response, b"no such bytes".to_vec(), false)
        }
        ("/file" | "/stall" | "/breaking", Some(range)) => {
            let first = first_byte(&range);
            let header = format!("bytes {first}-{}/{}", content.len() - 1, content.len());
            let response = response.status(206).header("content-range", header);
            (
                response.header("content-length", content.len() - first),
                content[first..].to_vec(),
                false,
            )
        }
        ("/file", None) => (response.header("content-length", content.len()), content, false),
        ("/stall", None) => (
            response.header("content-length", content.len()),
            content[..STALL_AFTER].to_vec(),
            true,
        ),
        ("/silent", None) => std::future::pending().await,
        ("/short", None) => {
            (response.header("content-length", 1000), content[..10].to_vec(), false)
        }
        ("/breaking", None) => (
            response.header("content-length", content.len()),
            content[..STALL_AFTER].to_vec(),
            false,
        ),
        // The query is the place, or names it.
        ("/to" | "/loop", _) => (response.status(302), Vec::new(), false),
        ("/fields", None) => (response, fields(request.headers()), false),
        ("/moved", None) => (response.status(302).header("location", "/file"), Vec::new(), false),
        _ => (response.status(404), b"no such thing".to_vec(), false),
    };
    stream.send_response(response.body(()).unwrap()).await?;
    if request.method() != http::Method::HEAD {
        stream.send_data(body.into()).await?;
    }
    if stall {
        std::future::pending::<()>().await;
    }
    stream.finish().await
}
