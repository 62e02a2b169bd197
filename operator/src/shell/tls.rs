//! TLS servers whose certificates can be replaced while they run.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::certificates::Issued;

/// Longest time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections at once.
const CONNECTIONS: usize = 4096;

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

/// A server's certificate, and the clients that it lets in.
#[derive(Clone)]
pub struct ServerIdentity {
    /// Its certificate.
    pub issued: Issued,
    /// The authorities that clients' certificates must come from; `None` lets everybody in.
    pub clients: Option<String>,
}

impl ServerIdentity {
    /// The configuration of a server.
    ///
    /// # Errors
    /// When something is not PEM, or not usable.
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
    Body: hyper::body::Body + Send + 'static,
    Body::Data: Send,
    Body::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // No descriptors: they come back when connections end.
                tracing::warn!(event = "accept_failed", error = %error);
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&configuration.borrow()));
        let answer = answer.clone();
        tokio::spawn(async move {
            let _slot = slot;
            let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    return tracing::debug!(event = "handshake_failed", error = %error);
                }
                Err(_) => return,
            };
            let certificate = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(|chain| chain.first())
                .map(|leaf| leaf.clone().into_owned());
            let service = service_fn(move |request| {
                let answering = answer(request, certificate.clone());
                async move { Ok::<_, Infallible>(answering.await) }
            });
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
            // A gateway that has vanished without a word is noticed.
            builder
                .http2()
                .timer(TokioTimer::new())
                .keep_alive_interval(Some(Duration::from_secs(10)))
                .keep_alive_timeout(Duration::from_secs(10));
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(event = "connection_failed", error = %error);
            }
        });
    }
}
