//! One PUT or POST request over HTTP/3.

use super::connection::{Exchanged, Http3, Requests, Stream, request_head};
use super::download::ENDLESS_WAIT;
use super::error::GetError;
use super::report::{Progress, Report};
use super::request::Request;
use super::source::Source;
use bytes::{Buf, Bytes};
use h3::error::{Code, StreamError};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use packrat_wire::hexadecimal;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::io::Write;
use std::path::Path;
use std::time::Instant;
use url::Url;

/// The body of a request, and its description.
pub(crate) struct Upload {
    /// PUT or POST, or PATCH for the rest of one.
    pub(crate) method: Method,
    /// Fields of the request in addition to the usual ones, such as the type of the body.
    pub(crate) headers: HeaderMap,
    /// The body, or the rest of it.
    pub(crate) source: Source,
    /// State of the upload at the server.
    pub(crate) begun: Begun,
    /// The length of the whole, if the server must confirm that it has this much (`Upload-Offset`).
    pub(crate) whole: Option<u64>,
    /// The place at which the server has offered to resume.
    pub(crate) offered: Option<String>,
}

/// The field in which a server reports how much it has of an upload that it remembers.
pub(crate) const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
/// The field that distinguishes a whole upload from a part.
pub(crate) const UPLOAD_COMPLETE: HeaderName = HeaderName::from_static("upload-complete");
/// The field for the version of the draft of resumable uploads.
pub(crate) const INTEROP_VERSION: HeaderName =
    HeaderName::from_static("upload-draft-interop-version");
/// The status by which a server offers to resume.
const UPLOAD_RESUMPTION_SUPPORTED: u16 = 104;

/// The number in a field of a response.
pub(crate) fn number(response: &Response<()>, name: &HeaderName) -> Option<u64> {
    text(response, name)?.trim().parse().ok()
}

fn text<'a>(response: &'a Response<()>, name: &HeaderName) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// The field for the type of a body; without one the server guesses.
pub(crate) fn content_type(content_type: Option<HeaderValue>) -> HeaderMap {
    content_type.into_iter().map(|content_type| (header::CONTENT_TYPE, content_type)).collect()
}

/// The part of an upload that the server has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Begun {
    /// Bytes of it.
    pub(crate) offset: u64,
    /// Fed with them, so that the report's digest covers the whole body.
    pub(crate) digest: Sha256,
}

impl Begun {
    /// The first bytes of a file.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) async fn of(file: &Path, offset: u64) -> Result<Self, GetError> {
        let mut begun = Self { offset, ..Self::default() };
        if offset > 0 {
            let mut source = Source::open_range(file, 0..offset)?;
            while let Some(chunk) = source.next().await? {
                begun.digest.update(&chunk);
            }
        }
        Ok(begun)
    }
}

/// Uploads as described by `request`, writes the body of the server's answer to `answer`, and
/// reports events to `progress`. Dropping the future ends the upload.
///
/// Must run inside a Tokio runtime with I/O and time enabled.
///
/// # Errors
/// See [`GetError`]. The server may have the bytes sent by then.
pub(crate) async fn upload(
    request: &Request,
    mut upload: Upload,
    answer: &mut impl Write,
    mut progress: impl FnMut(Progress),
) -> Result<Report, GetError> {
    let mut bytes = 0;
    let limit = request.max_time;
    let run = async {
        let (http3, mut requests) = Http3::connect(request, &mut progress).await?;
        let exchange =
            exchange(request, &mut upload, &mut requests, answer, &mut progress, &mut bytes);
        let exchanged = http3.during(request, exchange).await;
        http3.close(request, requests, exchanged).await
    };
    let Some(limit) = limit else { return run.await };
    let result = tokio::time::timeout(limit, run).await;
    result.unwrap_or(Err(GetError::TimedOut { after: limit, bytes }))
}

/// The sending half, and the receiving one.
type Halves =
    (h3::client::RequestStream<SendHalf, Bytes>, h3::client::RequestStream<ReceiveHalf, Bytes>);
type SendHalf = h3_util::s2n::s2n_quic_h3::SendStream<Bytes>;
type ReceiveHalf = h3_util::s2n::s2n_quic_h3::RecvStream;

pub(crate) async fn exchange(
    request: &Request,
    upload: &mut Upload,
    requests: &mut Requests,
    answer: &mut impl Write,
    progress: &mut impl FnMut(Progress),
    bytes: &mut u64,
) -> Result<Exchanged, GetError> {
    let started = Instant::now();
    let message = head(request, upload).map_err(unsent)?;
    let version = message.headers().get(INTEROP_VERSION).cloned();
    let stream: Stream = requests.send_request(message).await.map_err(unsent)?;
    let (mut sending, mut receiving): Halves = stream.split();
    let Begun { offset, mut digest } = upload.begun.clone();
    let expected_bytes = upload.source.length().map(|rest| offset + rest);
    progress(Progress::Sending { expected_bytes, resumed_from: offset });

    let stop = tokio::time::sleep(request.stop_after.unwrap_or(ENDLESS_WAIT));
    let progress = RefCell::new(progress);
    let told = &mut |event| (progress.borrow_mut())(event);
    let send = send(&mut upload.source, &mut sending, &mut digest, told, bytes);
    let response = response(&mut receiving, |interim| {
        (progress.borrow_mut())(answered(interim));
        upload.offered = place_offered(interim, version.as_ref()).or(upload.offered.take());
    });
    let (sent, response) = until_answered(send, response, stop).await?;
    let mut exchanged = Exchanged {
        status: 0,
        bytes: *bytes,
        resumed_from: offset,
        expected_bytes,
        location: None,
        transfer_time: started.elapsed(),
        sha256: hexadecimal::encode(&digest.finalize()),
        partial: true,
    };
    let Some(response) = response else {
        sending.stop_stream(Code::H3_REQUEST_CANCELLED);
        return Ok(exchanged);
    };
    let broken = |reason: String| GetError::Transfer { bytes: *bytes, reason };
    let response = response.map_err(|error| match &sent {
        Some(Err(error)) => broken(error.to_string()),
        _ => broken(format!("no response: {error}")),
    })?;
    (progress.borrow_mut())(answered(&response));
    let judged = judge(&request.url, &upload.method, &response);
    let is_sent = matches!(sent, Some(Ok(())));
    if judged.is_err() || !is_sent {
        sending.stop_stream(Code::H3_REQUEST_CANCELLED);
    }
    judged?;
    exchanged.status = response.status().as_u16();
    if !is_sent {
        return Err(GetError::Unread { status: exchanged.status, bytes: *bytes });
    }
    has_all(&response, upload.whole).map_err(broken)?;
    exchanged.location = text(&response, &header::LOCATION).map(str::to_owned);
    read_answer(&mut receiving, answer, |error| {
        broken(format!("the answer, with HTTP status {}, broke: {error}", exchanged.status))
    })
    .await?;
    exchanged.transfer_time = started.elapsed();
    exchanged.partial = false;
    Ok(exchanged)
}

/// The error of a request that was not sent.
fn unsent(error: impl std::fmt::Display) -> GetError {
    GetError::Transfer { bytes: 0, reason: error.to_string() }
}

/// Sends and receives until there is a response, or `stop`: the outcome of sending, if it has ended,
/// and the response.
async fn until_answered(
    send: impl Future<Output = Result<(), Unsent>>,
    receive: impl Future<Output = Result<Response<()>, StreamError>>,
    stop: impl Future<Output = ()>,
) -> Result<(Option<Result<(), StreamError>>, Option<Result<Response<()>, StreamError>>), GetError>
{
    let (mut send, mut receive, mut stop) =
        (std::pin::pin!(send), std::pin::pin!(receive), std::pin::pin!(stop));
    let mut sent = None;
    loop {
        // A server may answer before it has everything (RFC 9114, section 4.1).
        tokio::select! {
            biased;
            response = &mut receive => return Ok((sent, Some(response))),
            result = &mut send, if sent.is_none() => match result {
                // The server's answer gives the reason why it stops reading.
                Err(Unsent::Stream(error)) => sent = Some(Err(error)),
                Err(Unsent::Source(error)) => return Err(error),
                Ok(()) => sent = Some(Ok(())),
            },
            () = &mut stop => return Ok((sent, None)),
        }
    }
}

/// Copies the body of an answer. `broken`: the error if it does not end.
async fn read_answer(
    stream: &mut h3::client::RequestStream<ReceiveHalf, Bytes>,
    answer: &mut impl Write,
    broken: impl Fn(StreamError) -> GetError,
) -> Result<(), GetError> {
    let unwritable = |source| GetError::Write { target: "the answer".to_owned(), source };
    while let Some(mut chunk) = stream.recv_data().await.map_err(&broken)? {
        while chunk.has_remaining() {
            let part = chunk.chunk();
            let length = part.len();
            answer.write_all(part).map_err(unwritable)?;
            chunk.advance(length);
        }
    }
    Ok(())
}

/// A server that remembers an upload may take only a part of the data, and report how much.
fn has_all(response: &Response<()>, whole: Option<u64>) -> Result<(), String> {
    match (whole, number(response, &UPLOAD_OFFSET)) {
        _ if text(response, &UPLOAD_COMPLETE) == Some("?0") => {
            Err("the server has taken only a part".to_owned())
        }
        (Some(whole), Some(has)) if has != whole => {
            Err(format!("the server has taken {has} of {whole} bytes"))
        }
        (Some(_), None) => Err("the server does not say how much it has taken".to_owned()),
        _ => Ok(()),
    }
}

/// The place of an upload that a server offers to resume, if it speaks this version.
fn place_offered(interim: &Response<()>, version: Option<&HeaderValue>) -> Option<String> {
    let offers = interim.status() == UPLOAD_RESUMPTION_SUPPORTED
        && version.is_some()
        && interim.headers().get(INTEROP_VERSION) == version;
    text(interim, &header::LOCATION).filter(|_| offers).map(str::to_owned)
}

/// Why the body was not sent.
enum Unsent {
    Source(GetError),
    Stream(StreamError),
}

async fn send(
    source: &mut Source,
    stream: &mut h3::client::RequestStream<SendHalf, Bytes>,
    digest: &mut Sha256,
    progress: &mut impl FnMut(Progress),
    bytes: &mut u64,
) -> Result<(), Unsent> {
    loop {
        let chunk = source.next().await;
        if chunk.is_err() {
            // The promised bytes will not come: the server must not take this for all of it.
            stream.stop_stream(Code::H3_REQUEST_CANCELLED);
        }
        let Some(chunk) = chunk.map_err(Unsent::Source)? else { break };
        let length = chunk.len() as u64;
        digest.update(&chunk);
        stream.send_data(chunk).await.map_err(Unsent::Stream)?;
        *bytes += length;
        progress(Progress::Data { bytes: *bytes });
    }
    stream.finish().await.map_err(Unsent::Stream)
}

/// The event of a response.
pub(crate) fn answered(response: &Response<()>) -> Progress {
    Progress::Answered { status: response.status(), headers: response.headers().clone() }
}

/// The final response. `interim` gets the informational ones before.
pub(crate) async fn response(
    stream: &mut h3::client::RequestStream<ReceiveHalf, Bytes>,
    mut interim: impl FnMut(&Response<()>),
) -> Result<Response<()>, StreamError> {
    loop {
        let response = stream.recv_response().await?;
        if !response.status().is_informational() {
            return Ok(response);
        }
        interim(&response);
    }
}

/// Interprets a response to an upload.
pub(crate) fn judge(url: &Url, method: &Method, response: &Response<()>) -> Result<(), GetError> {
    let (url, method) = (url.to_string(), method.clone());
    let status = response.status().as_u16();
    match response.status() {
        status if status.is_success() => Ok(()),
        // The answer to the upload is elsewhere (RFC 9110, section 15.4.4).
        StatusCode::SEE_OTHER => Ok(()),
        StatusCode::MOVED_PERMANENTLY
        | StatusCode::FOUND
        | StatusCode::TEMPORARY_REDIRECT
        | StatusCode::PERMANENT_REDIRECT => {
            let location = text(response, &header::LOCATION).map(str::to_owned);
            Err(GetError::Redirect { url, status, location })
        }
        code if code.is_client_error() || code.is_server_error() => {
            Err(GetError::Refused { url, method, status })
        }
        _ => Err(GetError::Unclear { url, method, status }),
    }
}

fn head(request: &Request, upload: &Upload) -> Result<http::Request<()>, http::Error> {
    let mut message = request_head(request, upload.method.clone());
    if let Some(length) = upload.source.length() {
        message = message.header(header::CONTENT_LENGTH, length);
    }
    if let Some(headers) = message.headers_mut() {
        for (name, value) in &upload.headers {
            // The user's own come first.
            headers.entry(name).or_insert_with(|| value.clone());
        }
    }
    message.body(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16) -> Response<()> {
        let response = Response::builder().status(status).header("location", "/elsewhere");
        response.body(()).unwrap()
    }

    #[test]
    fn a_status_says_what_has_become_of_an_upload() {
        let request = Request::new("https://host/path").unwrap();
        let judged = |status| judge(&request.url, &Method::PUT, &response(status));
        for taken in [200, 201, 202, 204, 303] {
            assert!(judged(taken).is_ok(), "{taken}");
        }
        let words = |status| {
            let error = judged(status).unwrap_err();
            (error.exit_code(), error.to_string())
        };
        for (status, code, text) in [
            (308, 47, "redirected (HTTP status 308) to /elsewhere"),
            (405, 22, "refused the PUT with HTTP status 405: it takes no such uploads"),
            (413, 22, "too much"),
            (418, 22, "refused the PUT with HTTP status 418"),
            (503, 22, "try again later"),
            (304, 22, "does not say whether it has taken it"),
            (799, 22, "does not say whether it has taken it"),
        ] {
            let (exit, words) = words(status);
            assert_eq!(exit, code, "{status}");
            assert!(words.contains(text), "{words}");
        }
    }

    #[tokio::test]
    async fn the_request_says_how_much_comes() {
        let request = Request::new("https://user:secret@host/path#fragment").unwrap();
        let upload = |length| Upload {
            method: Method::POST,
            headers: content_type(Some(HeaderValue::from_static("text/plain"))),
            source: Source::reading("it".to_owned(), length, std::io::empty()),
            begun: Begun::default(),
            whole: None,
            offered: None,
        };
        let message = head(&request, &upload(Some(7))).unwrap();
        assert_eq!(message.uri().to_string(), "https://host/path");
        assert_eq!(message.method(), Method::POST);
        assert_eq!(message.headers()[header::CONTENT_LENGTH], "7");
        assert_eq!(message.headers()[header::CONTENT_TYPE], "text/plain");
        assert!(!message.headers().contains_key(header::EXPECT));
        let unknown = head(&request, &upload(None)).unwrap();
        assert!(!unknown.headers().contains_key(header::CONTENT_LENGTH));
    }
}
