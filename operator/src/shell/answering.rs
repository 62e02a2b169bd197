//! For tests: an API server that gives prepared answers.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::Client;
use serde_json::Value;
use tokio::net::TcpListener;

/// The client of an API server that answers requests (method, body) with a status and an object.
/// Without an answer the request waits.
pub(super) async fn api_server(
    answer: impl Fn(&Method, Value) -> Option<(u16, Value)> + Clone + Send + 'static,
) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    let body = serde_json::from_slice(&body).unwrap_or_default();
                    let Some((status, object)) = answer(&head.method, body) else {
                        return std::future::pending().await;
                    };
                    let response = Response::builder().status(status);
                    response.body(Full::new(Bytes::from(object.to_string())))
                }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            tokio::spawn(async move {
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    Client::try_from(config).unwrap()
}
