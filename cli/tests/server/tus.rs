//! Uploads by the tus protocol, version 1.0.0, as far as `packrat put --tus` uses it: a double,
//! which breaks connections on request.

use bytes::Buf;
use h3::error::StreamError;
use h3::server::RequestStream;
use http::{Method, Request, Response};
use std::collections::HashMap;
use std::sync::Mutex;
use tokio::sync::Notify;

/// A path ending in `-breaking` closes the connection after each further piece of this many bytes of an upload.
const BREAK_AFTER: usize = 1_300_000;
/// `/tus-taking-parts` keeps at most this many bytes of each request, and reports that.
const PART: usize = 1_000_000;

/// The uploads of a server.
#[derive(Default)]
pub(crate) struct Uploads(
    pub(super) Mutex<HashMap<String, Upload>>,
    /// A client has seen an offer to resume.
    pub(super) Notify,
);

#[derive(Clone)]
pub(super) struct Upload {
    pub(super) length: usize,
    metadata: String,
    pub(super) content: Vec<u8>,
}

impl Uploads {
    pub(crate) async fn respond<S: h3::quic::BidiStream<bytes::Bytes>>(
        &self,
        request: &Request<()>,
        stream: &mut RequestStream<S, bytes::Bytes>,
        quic: &quinn::Connection,
    ) -> Result<(), StreamError> {
        let path = request.uri().path().to_owned();
        let field = |name| request.headers().get(name).map(|value| value.to_str().unwrap());
        let number = |name| field(name).map(|value| value.parse::<usize>().unwrap());
        let mut response = Response::builder().header("tus-resumable", "1.0.0");
        let speaks_tus = field("tus-resumable") == Some("1.0.0");
        let known = self.0.lock().unwrap().get(&path).cloned();
        let (status, mut body) = match (request.method(), known) {
            // What it has, for the tests.
            (&Method::GET, Some(known)) => {
                (200, [known.metadata.as_bytes(), b"\n", &known.content].concat())
            }
            _ if !speaks_tus => (412, Vec::new()),
            // It does not speak tus: it takes the request's body.
            (&Method::POST, _) if path == "/tus-none" => (200, Vec::new()),
            (&Method::POST, _) => {
                let metadata = field("upload-metadata").unwrap();
                let place = self.create(&path, number("upload-length").unwrap(), metadata);
                // As a server behind a proxy writes it.
                response = response.header("location", format!("http://localhost{place}"));
                (201, Vec::new())
            }
            (_, None) => (404, Vec::new()),
            (&Method::HEAD, Some(known)) => {
                response = response
                    .header("upload-offset", known.content.len())
                    .header("upload-length", known.length);
                (200, Vec::new())
            }
            (&Method::PATCH, Some(known))
                if number("upload-offset") != Some(known.content.len()) =>
            {
                (409, Vec::new())
            }
            (&Method::PATCH, Some(known)) => {
                assert_eq!(field("content-type"), Some("application/offset+octet-stream"));
                assert_eq!(number("content-length"), Some(known.length - known.content.len()));
                let had = known.content.len();
                let Some((status, has)) = self.take(&path, had, stream, quic).await? else {
                    return Ok(());
                };
                response = response.header("upload-offset", has);
                (status, Vec::new())
            }
            _ => (405, Vec::new()),
        };
        stream.send_response(response.status(status).body(()).unwrap()).await?;
        if !body.is_empty() {
            stream.send_data(std::mem::take(&mut body).into()).await?;
        }
        stream.finish().await?;
        // A stream that is dropped while its body still comes is reset, and its answer may be lost with it.
        while let Ok(Some(_)) = stream.recv_data().await {}
        Ok(())
    }

    /// Begins an upload: its path.
    pub(super) fn create(&self, path: &str, length: usize, metadata: &str) -> String {
        let mut uploads = self.0.lock().unwrap();
        let (place, metadata) = (format!("{path}/{}", uploads.len()), metadata.to_owned());
        uploads.insert(place.clone(), Upload { length, metadata, content: Vec::new() });
        place
    }

    /// Takes the rest of an upload that has this many bytes: the status, and its bytes now. `None`:
    /// the connection is broken.
    pub(super) async fn take<S: h3::quic::BidiStream<bytes::Bytes>>(
        &self,
        path: &str,
        had: usize,
        stream: &mut RequestStream<S, bytes::Bytes>,
        quic: &quinn::Connection,
    ) -> Result<Option<(u16, usize)>, StreamError> {
        let is_failing = path.starts_with("/tus-failing");
        while let Some(mut chunk) = stream.recv_data().await? {
            let mut uploads = self.0.lock().unwrap();
            let content = &mut uploads.get_mut(path).unwrap().content;
            while chunk.has_remaining() {
                let part = chunk.chunk();
                content.extend_from_slice(part);
                let length = part.len();
                chunk.advance(length);
            }
            if path.ends_with("-forgetting/0") {
                uploads.remove(path);
                // The next upload is another one.
                uploads.insert(
                    String::new(),
                    Upload { length: 0, metadata: String::new(), content: Vec::new() },
                );
                quic.close(7_u32.into(), b"break");
                return Ok(None);
            }
            if path.contains("-breaking/") && content.len() >= had + BREAK_AFTER {
                quic.close(7_u32.into(), b"break");
                // Bytes that have come already are not read.
                return Ok(None);
            }
            if is_failing {
                break;
            }
        }
        let mut uploads = self.0.lock().unwrap();
        let content = &mut uploads.get_mut(path).unwrap().content;
        if path.starts_with("/tus-taking-parts") {
            content.truncate(had + PART);
        }
        Ok(Some((if is_failing { 403 } else { 204 }, content.len())))
    }
}
