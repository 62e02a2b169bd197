//! Uploads by draft-ietf-httpbis-resumable-upload, as far as `packrat put` uses it: a double, which
//! breaks connections on request.

use super::tus::Uploads;
use bytes::Bytes;
use h3::error::StreamError;
use h3::server::RequestStream;
use http::{Method, Request, Response};
use sha2::{Digest, Sha256};

/// Interoperability version that it speaks.
const VERSION: &str = "9";

impl Uploads {
    /// Answers with the method, the sum and the length of a whole upload.
    pub(crate) async fn respond_by_draft<S: h3::quic::BidiStream<Bytes>>(
        &self,
        request: &Request<()>,
        stream: &mut RequestStream<S, Bytes>,
        quic: &quinn::Connection,
    ) -> Result<(), StreamError> {
        let path = request.uri().path().to_owned();
        let field = |name| request.headers().get(name).map(|value| value.to_str().unwrap());
        let number = |name| field(name).map(|value| value.parse::<usize>().unwrap());
        let known = self.0.lock().unwrap().get(&path).cloned();
        let has = known.as_ref().map_or(0, |known| known.content.len());
        let place = match (request.method(), known) {
            (&Method::GET, _) if path == "/draft-seen" => {
                self.1.notify_one();
                stream.send_response(Response::new(())).await?;
                return stream.finish().await;
            }
            (&Method::GET, Some(known)) => {
                stream.send_response(Response::new(())).await?;
                stream.send_data([b"\n", &known.content[..]].concat().into()).await?;
                return stream.finish().await;
            }
            (&Method::HEAD, Some(known)) => {
                let is_complete = if has == known.length { "?1" } else { "?0" };
                let response = Response::builder().status(204).header("upload-offset", has);
                let response = response.header("upload-length", known.length);
                let response = response.header("upload-complete", is_complete).body(()).unwrap();
                stream.send_response(response).await?;
                return stream.finish().await;
            }
            (&Method::PATCH, Some(known)) => {
                assert_eq!(field("content-type"), Some("application/partial-upload"));
                assert_eq!(field("upload-complete"), Some("?1"));
                assert_eq!(number("upload-offset"), Some(has));
                assert_eq!(number("content-length"), Some(known.length - has));
                path
            }
            (&Method::PUT | &Method::POST, None) => {
                assert_eq!(field("upload-complete"), Some("?1"));
                let place = self.create(&path, number("content-length").unwrap(), "");
                if field("upload-draft-interop-version") == Some(VERSION) {
                    let offer = Response::builder().status(104).header("location", &place);
                    let offer = offer.header("upload-draft-interop-version", VERSION);
                    stream.send_response(offer.body(()).unwrap()).await?;
                    // What breaks then would take the offer with it.
                    self.1.notified().await;
                }
                place
            }
            _ => {
                stream.send_response(Response::builder().status(404).body(()).unwrap()).await?;
                return stream.finish().await;
            }
        };
        let Some((_, has)) = self.take(&place, has, stream, quic).await? else { return Ok(()) };
        let content = self.0.lock().unwrap()[&place].content.clone();
        let sum: String =
            Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        let response = Response::builder().status(201).header("upload-complete", "?1");
        let response = response.header("location", "/made").body(()).unwrap();
        stream.send_response(response).await?;
        stream.send_data(format!("{} {sum} {has}", request.method()).into()).await?;
        stream.finish().await
    }
}
