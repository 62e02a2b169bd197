//! An HTTPS server over TCP: HTTP/2, or HTTP/1.1 alone.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::{Identity, fields, file, first_byte};

/// A running server; it ends when dropped.
pub(crate) struct TcpServer {
    pub(crate) address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl TcpServer {
    /// Starts a server at a port, which speaks this protocol and announces its alternative.
    pub(crate) fn start(
        identity: &Identity,
        port: u16,
        protocol: &'static str,
        alternative: Option<String>,
    ) -> Self {
        let tls = identity.tls(protocol.as_bytes());
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = serve(listener, TlsAcceptor::from(Arc::new(tls)), protocol, alternative) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address: told.recv().unwrap(), _stop: stop }
    }
}

async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    protocol: &'static str,
    alternative: Option<String>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, alternative) = (tls.clone(), alternative.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(|request: http::Request<Incoming>| {
                let answer = respond(&request, alternative.as_deref());
                async move { Ok::<_, Infallible>(answer) }
            });
            let stream = TokioIo::new(stream);
            // Clients may leave at any moment.
            if protocol == "h2" {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(stream, service).await;
            } else {
                let builder = hyper::server::conn::http1::Builder::new();
                let _ = builder.serve_connection(stream, service).await;
            }
        });
    }
}

fn respond(
    request: &http::Request<Incoming>,
    alternative: Option<&str>,
) -> http::Response<Full<Bytes>> {
    let mut response = http::Response::builder().header("etag", "\"one\"");
    if let Some(alternative) = alternative {
        response = response.header("alt-svc", alternative);
    }
    let host = request.uri().host().map(str::to_owned).or_else(|| {
        let host = request.headers().get("host")?.to_str().ok()?;
        Some(host.split(':').next()?.to_owned())
    });
    let content = file();
    let range = request.headers().get("range").map(|range| range.to_str().unwrap());
    let (status, body) = match (request.uri().path(), range) {
        _ if !matches!(host.as_deref(), Some("localhost" | "other.example")) => (400, Vec::new()),
        ("/file" | "/file-over-tcp" | "/silent", None) => (200, content),
        ("/fields", _) => (200, fields(request.headers())),
        ("/file" | "/stall", Some(range)) => {
            let first = first_byte(range);
            let value = format!("bytes {first}-{}/{}", content.len() - 1, content.len());
            response = response.header("content-range", value);
            (206, content[first..].to_vec())
        }
        _ => (404, Vec::new()),
    };
    let response = response.status(status).header("content-length", body.len());
    response.body(Full::new(Bytes::from(body))).unwrap()
}
