//! One GET request over HTTP/3.

use super::connect::{Connected, IDLE_TIMEOUT, connect};
use super::error::GetError;
use super::report::{Progress, Report};
use super::request::{Request, Resume};
use bytes::Buf;
use h3::client::{RequestStream, SendRequest};
use h3_util::s2n::s2n_quic_h3;
use http::header::{self, HeaderMap};
use packrat_wire::hexadecimal;
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::io;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Time within which the last datagrams (CONNECTION_CLOSE, Goodbye) leave.
const CLOSING_TIME: Duration = Duration::from_millis(30);
/// HTTP/3's H3_NO_ERROR (RFC 9114, section 8.1).
const H3_NO_ERROR: u32 = 0x100;
/// Longest time an open-ended wait takes.
const NEVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);

type Opener = s2n_quic_h3::OpenStreams;
type Stream = RequestStream<s2n_quic_h3::BidiStream<bytes::Bytes>, bytes::Bytes>;

/// Where the body goes. Every [`io::Write`] is a sink.
pub(crate) trait Sink {
    /// The body begins, at byte `offset` of it: what lies behind is thrown away. `version`: the
    /// ETag or Last-Modified date of a body that begins at byte 0, when the server tells one.
    ///
    /// # Errors
    /// When the sink cannot be written.
    fn begin(&mut self, offset: u64, version: Option<&str>) -> io::Result<()>;

    /// Takes the next bytes.
    ///
    /// # Errors
    /// When they cannot be written.
    fn put(&mut self, data: &[u8]) -> io::Result<()>;

    /// Name of the sink, for messages.
    fn name(&self) -> String;
}

impl<W: io::Write> Sink for W {
    fn begin(&mut self, _offset: u64, _version: Option<&str>) -> io::Result<()> {
        Ok(())
    }

    fn put(&mut self, data: &[u8]) -> io::Result<()> {
        self.write_all(data)
    }

    fn name(&self) -> String {
        "the output".to_owned()
    }
}

/// Downloads `request` into `sink`, telling `progress` what happens. Dropping the future ends the
/// download.
///
/// Must run inside a Tokio runtime with I/O and time enabled.
///
/// # Errors
/// See [`GetError`]. What had arrived by then is in the sink.
pub(crate) async fn download(
    request: &Request,
    sink: &mut impl Sink,
    mut progress: impl FnMut(Progress),
) -> Result<Report, GetError> {
    let mut bytes = 0;
    let Some(limit) = request.max_time else {
        return run(request, sink, &mut progress, &mut bytes).await;
    };
    let result = tokio::time::timeout(limit, run(request, sink, &mut progress, &mut bytes)).await;
    result.unwrap_or(Err(GetError::TimedOut { after: limit, bytes }))
}

async fn run(
    request: &Request,
    sink: &mut impl Sink,
    progress: &mut impl FnMut(Progress),
    bytes: &mut u64,
) -> Result<Report, GetError> {
    let started = Instant::now();
    let Connected { endpoint, connection, remote, qlog } = connect(request, progress).await?;
    let connect_time = started.elapsed();
    progress(Progress::Connected { remote });

    let (quic, assistance) = connection.split();
    let mut handle = quic.handle();
    // A silent server is noticed by the idle timeout; a lost tail is asked for again.
    let _ = handle.keep_alive(true);
    let broken = |reason: String| GetError::Transfer { bytes: 0, reason };
    let (mut driver, mut requests) = h3::client::new(s2n_quic_h3::Connection::new(quic))
        .await
        .map_err(|error| broken(format!("HTTP/3 did not start: {error}")))?;
    let driver =
        tokio::spawn(
            async move { std::future::poll_fn(|context| driver.poll_close(context)).await },
        );

    let exchanged = tokio::select! {
        biased;
        result = exchange(request, &mut requests, sink, progress, bytes) => result,
        never = pass_on_tokens(request.later_tokens.clone(), &assistance) => match never {},
    };
    let result = exchanged.map_err(|error| match error {
        GetError::Transfer { bytes, reason } => {
            // The connection knows better why it ended than the layers above it.
            let reason = handle.ping().map_or_else(connection_end, |()| reason);
            GetError::Transfer { bytes, reason }
        }
        error => error,
    });

    let stats = assistance.stats();
    let received_packet_numbers = assistance.received_packet_numbers();
    assistance.close();
    drop(assistance);
    handle.close(H3_NO_ERROR.into());
    drop((requests, handle));
    driver.abort();
    endpoint.wait_idle(CLOSING_TIME).await;

    let body = result?;
    if let (Some(qlog), Some(path)) = (qlog, &request.qlog) {
        let target = path.display().to_string();
        qlog.finish().map_err(|source| GetError::Write { target, source })?;
    }
    Ok(Report {
        status: body.head.status,
        remote,
        bytes: *bytes,
        resumed_from: body.head.offset,
        expected_bytes: body.head.expected_bytes,
        connect_time,
        transfer_time: body.transfer_time,
        sha256: body.sha256,
        assist: request.assist.is_some().then_some(stats),
        gateway_pinned: request
            .assist
            .as_ref()
            .is_some_and(|assist| assist.access.gateway_key.is_some()),
        with_token: request.assist.as_ref().is_some_and(|assist| !assist.access.token.is_empty()),
        received_packet_numbers,
        partial: body.stopped,
    })
}

/// Lets the assistance have each token that comes.
async fn pass_on_tokens(
    tokens: Option<watch::Receiver<packrat_s2n_quic::Token>>,
    assistance: &packrat_s2n_quic::Assistance,
) -> Infallible {
    if let Some(mut tokens) = tokens {
        while tokens.changed().await.is_ok() {
            assistance.set_token(tokens.borrow_and_update().clone());
        }
    }
    std::future::pending().await
}

fn connection_end(error: s2n_quic::connection::Error) -> String {
    use s2n_quic::connection::Error;
    match error {
        Error::IdleTimerExpired { .. } => {
            format!(
                "the server was silent for {} s; it or the network is down",
                IDLE_TIMEOUT.as_secs()
            )
        }
        Error::StatelessReset { .. } => {
            "the server has lost the connection's state (restarted?)".to_owned()
        }
        Error::Closed { .. } | Error::Application { .. } => {
            format!("the server closed the connection ({error})")
        }
        error => error.to_string(),
    }
}

/// Header of the response.
struct Head {
    status: u16,
    offset: u64,
    expected_bytes: Option<u64>,
    validator: Option<String>,
    /// Everything was there already: what follows is a message for humans, not the body.
    complete: bool,
}

struct Body {
    head: Head,
    transfer_time: Duration,
    sha256: String,
    stopped: bool,
}

async fn exchange(
    request: &Request,
    requests: &mut SendRequest<Opener, bytes::Bytes>,
    sink: &mut impl Sink,
    progress: &mut impl FnMut(Progress),
    bytes: &mut u64,
) -> Result<Body, GetError> {
    let started = Instant::now();
    let broken = |reason: String| GetError::Transfer { bytes: 0, reason };
    let message = http_request(request).map_err(|error| broken(error.to_string()))?;
    let stop = tokio::time::sleep(request.stop_after.unwrap_or(NEVER));
    tokio::pin!(stop);

    let response = async {
        let mut stream = requests.send_request(message).await?;
        // A server that has answered already may stop reading the request (RFC 9114 section 4.1):
        // its answer counts.
        let finished = stream.finish().await;
        let response = match stream.recv_response().await {
            Ok(response) => response,
            Err(error) => return Err(finished.err().unwrap_or(error)),
        };
        Ok::<_, h3::error::StreamError>((stream, response))
    };
    let (mut stream, response) = tokio::select! {
        result = response => result.map_err(|error| broken(format!("no response: {error}")))?,
        () = &mut stop => return Err(broken("no response before the time limit".to_owned())),
    };
    let head = head(request, response.status().as_u16(), response.headers())?;
    let mut digest = match &request.resume {
        Some(resume) if head.offset > 0 => resume.digest.clone(),
        _ => Sha256::new(),
    };
    let unwritable = |name: String| move |source| GetError::Write { target: name, source };
    sink.begin(head.offset, head.validator.as_deref()).map_err(unwritable(sink.name()))?;
    progress(Progress::Response {
        status: head.status,
        expected_bytes: head.expected_bytes,
        resumed_from: head.offset,
    });

    let mut stopped = false;
    loop {
        if head.complete {
            break;
        }
        let chunk = tokio::select! {
            biased;
            chunk = next_chunk(&mut stream) => chunk,
            () = &mut stop => {
                stopped = true;
                break;
            }
        };
        let chunk = chunk
            .map_err(|error| GetError::Transfer { bytes: *bytes, reason: error.to_string() })?;
        let Some(mut chunk) = chunk else { break };
        while chunk.has_remaining() {
            let part = chunk.chunk();
            let length = part.len();
            digest.update(part);
            sink.put(part).map_err(unwritable(sink.name()))?;
            *bytes += length as u64;
            chunk.advance(length);
        }
        progress(Progress::Data { bytes: *bytes });
        // A body that arrives without a pause must not outrun the time limit.
        if stop.is_elapsed() || request.stop_after.is_some_and(|limit| started.elapsed() >= limit) {
            stopped = head.expected_bytes.is_none_or(|expected| head.offset + *bytes < expected);
            if stopped {
                break;
            }
        }
    }
    let transfer_time = started.elapsed();
    if let Some(expected) = head.expected_bytes
        && !stopped
        && head.offset + *bytes != expected
    {
        return Err(GetError::Truncated { bytes: head.offset + *bytes, expected });
    }
    Ok(Body { head, transfer_time, sha256: hexadecimal::encode(&digest.finalize()), stopped })
}

async fn next_chunk(
    stream: &mut Stream,
) -> Result<Option<impl Buf + use<>>, h3::error::StreamError> {
    stream.recv_data().await
}

fn http_request(request: &Request) -> Result<http::Request<()>, http::Error> {
    let mut target = request.url.clone();
    target.set_fragment(None);
    // Credentials in the URL are not sent: there is no option for them yet, and HTTP/3 forbids them
    // in :authority.
    let _ = target.set_username("");
    let _ = target.set_password(None);
    let mut message = http::Request::get(target.as_str())
        .header(header::USER_AGENT, concat!("packrat/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT, "*/*");
    if let Some(Resume { offset, validator, .. }) = &request.resume {
        message = message.header(header::RANGE, format!("bytes={offset}-"));
        if let Some(validator) = validator {
            message = message.header(header::IF_RANGE, validator);
        }
    }
    message.body(())
}

fn head(request: &Request, status: u16, headers: &HeaderMap) -> Result<Head, GetError> {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let url = || request.url.to_string();
    let length: Option<u64> = text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
    // Weak validators do not vouch for single bytes (RFC 9110, section 13.1.5).
    let validator = text(header::ETAG)
        .filter(|tag| !tag.starts_with("W/"))
        .or_else(|| text(header::LAST_MODIFIED))
        .map(str::to_owned);
    let asked = request.resume.as_ref().map_or(0, |resume| resume.offset);
    let cannot_resume = |reason: String| GetError::Range { offset: asked, reason };
    if asked > 0
        && matches!(status, 206 | 416)
        && let Some(known) = request.resume.as_ref().and_then(|resume| resume.validator.as_deref())
        && let Some(current) = validator.as_deref()
        // An ETag says nothing about a date. Servers that heed If-Range never get here with another version.
        && known.starts_with('"') == current.starts_with('"')
        && known != current
    {
        return Err(cannot_resume("the server has another version of the file now".to_owned()));
    }
    match status {
        206 if asked > 0 => {
            let range = text(header::CONTENT_RANGE).unwrap_or_default();
            let (first, complete) = parse_content_range(range)
                .ok_or_else(|| cannot_resume(format!("the server's Content-Range is {range:?}")))?;
            if first != asked {
                return Err(cannot_resume(format!("the server continues at byte {first}")));
            }
            Ok(Head {
                status,
                offset: asked,
                expected_bytes: complete.or(length.map(|length| length + asked)),
                validator,
                complete: false,
            })
        }
        416 if asked > 0 => match text(header::CONTENT_RANGE).and_then(parse_unsatisfied_range) {
            // An earlier run was stopped after the last byte, before the file got its name.
            Some(length) if length == asked => Ok(Head {
                status,
                offset: asked,
                expected_bytes: Some(length),
                validator,
                complete: true,
            }),
            _ => Err(cannot_resume("the server has no such byte (HTTP status 416)".to_owned())),
        },
        301 | 302 | 303 | 307 | 308 => Err(GetError::Redirect {
            url: url(),
            status,
            location: text(header::LOCATION).unwrap_or("nowhere").to_owned(),
        }),
        200..=299 => {
            Ok(Head { status, offset: 0, expected_bytes: length, validator, complete: false })
        }
        _ => Err(GetError::Status { url: url(), status }),
    }
}

/// First byte and complete length out of `bytes 100-199/200` (RFC 9110, section 14.4).
fn parse_content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, complete) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.parse().ok()?, complete.parse().ok()))
}

/// Complete length out of `bytes */200`, which answers a request for bytes that are not there (RFC
/// 9110, section 14.4).
fn parse_unsatisfied_range(value: &str) -> Option<u64> {
    value.strip_prefix("bytes */")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_range() {
        assert_eq!(parse_content_range("bytes 100-199/200"), Some((100, Some(200))));
        assert_eq!(parse_content_range("bytes 0-0/*"), Some((0, None)));
        assert_eq!(parse_content_range("bytes */200"), None);
        assert_eq!(parse_content_range("items 1-2/3"), None);
    }

    #[test]
    fn credentials_and_fragments_are_not_sent() {
        let request = Request::new("https://user:secret@host/path?query#fragment").unwrap();
        let message = http_request(&request).unwrap();
        assert_eq!(message.uri().to_string(), "https://host/path?query");
        assert_eq!(message.method(), http::Method::GET);
        assert!(!message.headers().contains_key(header::RANGE));
    }

    #[test]
    fn a_resumed_request_asks_for_the_rest_of_the_same_version() {
        let mut request = Request::new("https://host/path").unwrap();
        request.resume =
            Some(Resume { offset: 10, validator: Some("\"a\"".to_owned()), digest: Sha256::new() });
        let message = http_request(&request).unwrap();
        assert_eq!(message.headers()[header::RANGE], "bytes=10-");
        assert_eq!(message.headers()[header::IF_RANGE], "\"a\"");

        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_RANGE, "bytes 10-19/20".parse().unwrap());
        let answer = head(&request, 206, &headers).unwrap();
        assert_eq!((answer.offset, answer.expected_bytes), (10, Some(20)));
        // The body has changed: the server sends all of it.
        assert_eq!(head(&request, 200, &HeaderMap::new()).unwrap().offset, 0);
        headers.insert(header::CONTENT_RANGE, "bytes 5-19/20".parse().unwrap());
        assert!(matches!(head(&request, 206, &headers), Err(GetError::Range { offset: 10, .. })));
        // A server that does not understand If-Range must not get two versions mixed.
        headers.insert(header::CONTENT_RANGE, "bytes 10-19/20".parse().unwrap());
        headers.insert(header::ETAG, "\"b\"".parse().unwrap());
        assert!(matches!(head(&request, 206, &headers), Err(GetError::Range { offset: 10, .. })));
    }

    #[test]
    fn nothing_is_missing_when_the_body_ends_where_the_part_does() {
        let mut request = Request::new("https://host/path").unwrap();
        request.resume =
            Some(Resume { offset: 10, validator: Some("\"a\"".to_owned()), digest: Sha256::new() });
        let answer = |range: Option<&str>, tag: Option<&str>| {
            let mut headers = HeaderMap::new();
            for (name, value) in [(header::CONTENT_RANGE, range), (header::ETAG, tag)] {
                value.and_then(|value| headers.insert(name, value.parse().unwrap()));
            }
            head(&request, 416, &headers)
        };
        for tag in [None, Some("\"a\"")] {
            let head = answer(Some("bytes */10"), tag).unwrap();
            assert_eq!((head.complete, head.offset, head.expected_bytes), (true, 10, Some(10)));
        }
        for (range, tag) in [
            (Some("bytes */9"), None),
            (Some("bytes */*"), None),
            (None, None),
            (Some("bytes */10"), Some("\"b\"")),
        ] {
            assert!(
                matches!(answer(range, tag), Err(GetError::Range { offset: 10, .. })),
                "{range:?} {tag:?}"
            );
        }
    }

    #[test]
    fn statuses_become_errors() {
        let request = Request::new("https://host/path").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::LOCATION, "https://elsewhere/".parse().unwrap());
        let redirect = head(&request, 302, &headers).err().unwrap();
        assert!(redirect.to_string().contains("https://elsewhere/"), "{redirect}");
        assert_eq!(head(&request, 503, &headers).err().unwrap().exit_code(), 22);
    }
}
