//! TLS servers whose certificates can be replaced while they run.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::peers::{Door, Visit};
use crate::certificates::Issued;

/// Longest time for a handshake, and for the head of a request.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(5);

/// Failure to use a server's certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Not PEM.
    #[error("a certificate or key cannot be read: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// Not a usable pair, or not a usable authority.
    #[error("a certificate cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    /// The authority cannot be used.
    #[error("the certificate authority cannot be used: {0}")]
    Authority(#[from] rustls::server::VerifierBuilderError),
}

/// A server's certificate, and the clients that it admits.
#[derive(Clone)]
pub struct ServerIdentity {
    /// Certificate of the server.
    pub issued: Issued,
    /// The authorities of clients' certificates; `None` admits all clients.
    pub clients: Option<String>,
}

impl ServerIdentity {
    /// The configuration of a server.
    ///
    /// # Errors
    /// If a certificate or key is not PEM, or not usable.
    pub fn configuration(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain: Vec<_> = CertificateDer::pem_slice_iter(self.issued.certificate.as_bytes())
            .collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(self.issued.key.as_bytes())?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(bundle) => {
                let mut roots = rustls::RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
                    roots.add(certificate?)?;
                }
                builder.with_client_cert_verifier(
                    WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build()?,
                )
            }
        };
        let mut configuration = builder.with_single_cert(chain, key)?;
        configuration.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(configuration))
    }
}

/// Serves until the process ends. New connections get the newest configuration; `answer` gets the
/// client's certificate.
pub async fn serve<Answer, Answering, Body>(
    listener: TcpListener,
    configuration: watch::Receiver<Arc<ServerConfig>>,
    answer: Answer,
) where
    Answer: Fn(http::Request<Incoming>, Option<CertificateDer<'static>>) -> Answering
        + Clone
        + Send
        + 'static,
    Answering: Future<Output = http::Response<Body>> + Send + 'static,
    Body: hyper::body::Body + Send + Unpin + 'static,
    Body::Data: Send,
    Body::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let door = Door::new();
    loop {
        let (stream, visit) = door.accept(&listener).await;
        let acceptor = TlsAcceptor::from(Arc::clone(&configuration.borrow()));
        let answer = answer.clone();
        tokio::spawn(async move {
            let Some(stream) = shake_hands(acceptor, stream, &visit).await else { return };
            let certificate = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(|chain| chain.first())
                .map(|leaf| leaf.clone().into_owned());
            let visit = &visit;
            let service = service_fn(move |request| {
                let (being_answered, answering) =
                    (visit.request(), answer(request, certificate.clone()));
                async move {
                    // A stream is being answered until its body ends.
                    let answer = answering.await;
                    Ok::<_, Infallible>(
                        answer.map(|body| Kept { body, _until_dropped: being_answered }),
                    )
                }
            });
            let builder = http_builder();
            let mut connection =
                std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
            let served = tokio::select! {
                served = connection.as_mut() => served,
                () = visit.over() => {
                    connection.as_mut().graceful_shutdown();
                    // A peer that does not close the connection is abandoned.
                    tokio::time::timeout(HANDSHAKE_PATIENCE, connection).await.unwrap_or(Ok(()))
                }
            };
            if let Err(error) = served {
                tracing::debug!(event = "connection_failed", error = %error);
            }
        });
    }
}

/// Makes a TLS connection; `None` if the handshake fails or the visit ends before.
async fn shake_hands(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    visit: &Visit,
) -> Option<TlsStream<TcpStream>> {
    let handshake = tokio::time::timeout(HANDSHAKE_PATIENCE, acceptor.accept(stream));
    let shaken = tokio::select! {
        shaken = handshake => shaken.ok()?,
        () = visit.over() => return None,
    };
    shaken.inspect_err(|error| tracing::debug!(event = "handshake_failed", error = %error)).ok()
}

/// HTTP/1.1 and HTTP/2, with the time limits of a server.
fn http_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_PATIENCE);
    // Detects a gateway that has vanished without closing the connection.
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(10)))
        .keep_alive_timeout(Duration::from_secs(10));
    builder
}

/// A body that keeps a value until its end.
struct Kept<Body> {
    body: Body,
    _until_dropped: super::peers::Answering,
}

impl<Body: hyper::body::Body + Unpin> hyper::body::Body for Kept<Body> {
    type Data = Body::Data;
    type Error = Body::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
