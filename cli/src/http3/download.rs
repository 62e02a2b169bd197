//! One GET request, over HTTP/3, or over TCP if UDP brings no answer.
//!
//! UDP has half of the time to connect for itself. TCP is tried beside it then, or at once when UDP
//! has failed, also behind its handshake before a byte of the body has come; a server that announces HTTP/3 there (Alt-Svc) is asked again over HTTP/3.

use super::connection::{Exchanged, Http3, Requests, Stream, request_head};
use super::error::GetError;
use super::head::Head;
use super::redirect::{self, MOST_REDIRECTS};
use super::report::{Progress, Report};
use super::request::Request;
use super::resume::Resume;
use super::sink::Sink;
use super::{alternative, over_tcp};
use bytes::Buf;
use http::{HeaderMap, header};
use packrat_wire::hexadecimal;
use sha2::{Digest, Sha256};
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Longest time an open-ended wait takes.
pub(crate) const ENDLESS_WAIT: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// Downloads `request` into `sink`, and reports events to `progress`. Dropping the future ends the
/// download.
///
/// Must run inside a Tokio runtime with I/O and time enabled.
///
/// # Errors
/// See [`GetError`]. The sink has the bytes that had arrived by then.
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

/// Downloads from the URL, or from the place that redirects lead to.
async fn run(
    request: &Request,
    sink: &mut impl Sink,
    progress: &mut impl FnMut(Progress),
    bytes: &mut u64,
) -> Result<Report, GetError> {
    let mut request = request.clone();
    for _ in 0..=MOST_REDIRECTS {
        match fetch(&request, sink, progress, bytes).await {
            Err(GetError::Redirect { location: Some(location), .. }) if request.follow => {
                request = redirect::next(&request, &location)?;
            }
            result => return result,
        }
    }
    Err(GetError::TooManyRedirects { url: request.url.to_string(), limit: MOST_REDIRECTS })
}

async fn fetch(
    request: &Request,
    sink: &mut impl Sink,
    progress: &mut impl FnMut(Progress),
    bytes: &mut u64,
) -> Result<Report, GetError> {
    let connection = match connect(request, progress).await? {
        Way::Udp(http3, requests) => {
            match over_http3(request, *http3, requests, sink, progress, bytes).await {
                // A network may let a handshake through, and nothing behind it.
                Err(error @ GetError::Transfer { bytes: 0, .. }) if request.may_use_tcp => {
                    over_tcp::connect(request).await.map_err(|_| error)?
                }
                result => return result,
            }
        }
        Way::Tcp(connection) => *connection,
    };
    let (remote, connect_time) = (connection.remote, connection.connect_time);
    progress(Progress::Connected { remote });
    let message = http_request(request).map_err(|error| broken(error.to_string()))?;
    let started = Instant::now();
    let stop = tokio::time::sleep(request.stop_after.unwrap_or(ENDLESS_WAIT));
    tokio::pin!(stop);
    let mut answer = connection.send(request, message).await?;
    if let Some(other) = at_alternative(request, answer.response.headers())
        // The body waits meanwhile.
        && let Ok((http3, requests)) = Http3::connect(&other, progress).await
    {
        return over_http3(&other, http3, requests, sink, progress, bytes).await;
    }
    let protocol = answer.protocol;
    let head = head_of(request, &answer.response, progress)?;
    let stop = Stop { after: request.stop_after, started, timer: stop };
    let exchanged =
        receive(request, head, async || answer.next_chunk().await, sink, progress, bytes, stop)
            .await?;
    Ok(Report { connect_time, ..exchanged.report(protocol, remote) })
}

fn broken(reason: String) -> GetError {
    GetError::Transfer { bytes: 0, reason }
}

/// A connection to the server.
enum Way {
    Udp(Box<Http3>, Requests),
    Tcp(Box<over_tcp::Connection>),
}

/// Connects over UDP, or over TCP if that may be used and UDP brings no answer.
async fn connect(request: &Request, progress: &mut impl FnMut(Progress)) -> Result<Way, GetError> {
    let udp = async {
        let (http3, requests) = Http3::connect(request, progress).await?;
        Ok::<_, GetError>(Way::Udp(Box::new(http3), requests))
    };
    if !request.may_use_tcp {
        return udp.await;
    }
    let hurry = Notify::new();
    let tcp = async {
        tokio::select! {
            () = hurry.notified() => {}
            () = tokio::time::sleep(request.connect_timeout / 2) => {}
        }
        over_tcp::connect(request).await.map(|connection| Way::Tcp(Box::new(connection)))
    };
    tokio::pin!(udp, tcp);
    tokio::select! {
        biased;
        way = &mut udp => match way {
            Err(error) if gave_nothing(&error) => {
                hurry.notify_one();
                tcp.await.map_err(|of_tcp| more_telling(error, of_tcp))
            }
            way => way,
        },
        way = &mut tcp => match way {
            Ok(way) => Ok(way),
            Err(of_tcp) => udp.await.map_err(|error| more_telling(error, of_tcp)),
        },
    }
}

/// True if UDP may be at fault.
const fn gave_nothing(error: &GetError) -> bool {
    matches!(
        error,
        GetError::Unreachable { .. } | GetError::Connect { .. } | GetError::ConnectTimedOut { .. }
    )
}

/// The one of two failures that the user can act on: a server that answers by TCP, and is not
/// trusted, is there.
fn more_telling(udp: GetError, tcp: GetError) -> GetError {
    match tcp {
        GetError::Certificate { .. } if gave_nothing(&udp) => tcp,
        _ => udp,
    }
}

/// The request to the server's HTTP/3 address by its own announcement, unless that was tried.
fn at_alternative(request: &Request, headers: &HeaderMap) -> Option<Request> {
    let (own, own_port) = request.target();
    let (host, port) = alternative::http3(headers)?;
    let target = (host.unwrap_or_else(|| own.clone()), port);
    // The certificate must also be valid for the URL's host there.
    let connect_timeout = request.connect_timeout / 2;
    (target != (own, own_port)).then(|| Request {
        connect_to: Some(target),
        connect_timeout,
        ..request.clone()
    })
}

async fn over_http3(
    request: &Request,
    mut http3: Http3,
    mut requests: Requests,
    sink: &mut impl Sink,
    progress: &mut impl FnMut(Progress),
    bytes: &mut u64,
) -> Result<Report, GetError> {
    let exchange = exchange(request, &mut requests, sink, progress, bytes);
    let exchanged = http3.during(request, exchange).await;
    http3.close(request, requests, exchanged).await
}

async fn exchange(
    request: &Request,
    requests: &mut Requests,
    sink: &mut impl Sink,
    progress: &mut impl FnMut(Progress),
    bytes: &mut u64,
) -> Result<Exchanged, GetError> {
    let started = Instant::now();
    let message = http_request(request).map_err(|error| broken(error.to_string()))?;
    let stop = tokio::time::sleep(request.stop_after.unwrap_or(ENDLESS_WAIT));
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
    let head = head_of(request, &response, progress)?;
    let chunks = async || next_chunk(&mut stream).await.map_err(|error| error.to_string());
    let stop = Stop { after: request.stop_after, started, timer: stop };
    receive(request, head, chunks, sink, progress, bytes, stop).await
}

fn head_of<T>(
    request: &Request,
    response: &http::Response<T>,
    progress: &mut impl FnMut(Progress),
) -> Result<Head, GetError> {
    progress(Progress::Answered { status: response.status(), headers: response.headers().clone() });
    let status = response.status().as_u16();
    let mut head = Head::read(&request.url, request.resume.as_ref(), status, response.headers())?;
    head.complete |= request.head_only;
    Ok(head)
}

/// The limit of the time from the request on.
struct Stop<'a> {
    after: Option<Duration>,
    started: Instant,
    timer: Pin<&'a mut tokio::time::Sleep>,
}

impl Stop<'_> {
    /// Waits for `work`; `None` if the limit comes first.
    async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.timer.as_mut() => None,
        }
    }

    fn is_over(&self) -> bool {
        self.timer.is_elapsed() || self.after.is_some_and(|limit| self.started.elapsed() >= limit)
    }
}

/// The next part of a body, not before `due`.
async fn next_at<B>(
    due: Option<Instant>,
    next: &mut impl AsyncFnMut() -> Result<Option<B>, String>,
) -> Result<Option<B>, String> {
    if let Some(due) = due {
        tokio::time::sleep_until(due.into()).await;
    }
    next().await
}

/// Hashes a part of a body, and puts it into the sink.
fn put(
    mut part: impl Buf,
    digest: &mut Sha256,
    sink: &mut impl Sink,
    bytes: &mut u64,
) -> std::io::Result<()> {
    while part.has_remaining() {
        let chunk = part.chunk();
        let length = chunk.len();
        digest.update(chunk);
        sink.put(chunk)?;
        *bytes += length as u64;
        part.advance(length);
    }
    Ok(())
}

/// Takes a body. `next`: its next part.
async fn receive<B: Buf>(
    request: &Request,
    head: Head,
    mut next: impl AsyncFnMut() -> Result<Option<B>, String>,
    sink: &mut impl Sink,
    progress: &mut impl FnMut(Progress),
    bytes: &mut u64,
    mut stop: Stop<'_>,
) -> Result<Exchanged, GetError> {
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
        let due = request
            .limit_rate
            .map(|rate| stop.started + Duration::from_secs_f64(*bytes as f64 / f64::from(rate)));
        let Some(chunk) = stop.or(next_at(due, &mut next)).await else {
            stopped = true;
            break;
        };
        let chunk = chunk.map_err(|reason| GetError::Transfer { bytes: *bytes, reason })?;
        let Some(chunk) = chunk else { break };
        put(chunk, &mut digest, sink, bytes).map_err(unwritable(sink.name()))?;
        progress(Progress::Data { bytes: *bytes });
        // A body that arrives without a pause must not outrun the time limit.
        let is_whole = head.expected_bytes.is_some_and(|expected| head.offset + *bytes >= expected);
        if stop.is_over() && !is_whole {
            stopped = true;
            break;
        }
    }
    let transfer_time = stop.started.elapsed();
    if !stopped && !request.head_only {
        head.check_length(*bytes)?;
    }
    Ok(Exchanged {
        status: head.status,
        bytes: *bytes,
        resumed_from: head.offset,
        expected_bytes: head.expected_bytes,
        location: None,
        transfer_time,
        sha256: hexadecimal::encode(&digest.finalize()),
        partial: stopped,
    })
}

async fn next_chunk(
    stream: &mut Stream,
) -> Result<Option<impl Buf + use<>>, h3::error::StreamError> {
    stream.recv_data().await
}

fn http_request(request: &Request) -> Result<http::Request<()>, http::Error> {
    let method = if request.head_only { http::Method::HEAD } else { http::Method::GET };
    let mut message = request_head(request, method);
    if let Some(Resume { offset, validator, .. }) = &request.resume {
        message = message.header(header::RANGE, format!("bytes={offset}-"));
        if let Some(validator) = validator {
            message = message.header(header::IF_RANGE, validator);
        }
    }
    message.body(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
