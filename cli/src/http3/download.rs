//! One GET request, over HTTP/3, or over TCP if UDP brings no answer.
//!
//! UDP has half of the time to connect for itself. TCP is tried beside it then, or at once when UDP
//! has failed; a server that announces HTTP/3 there (Alt-Svc) is asked again over HTTP/3. Behind
//! UDP's handshake, TCP brings the rest if the connection breaks, or stalls while its server is
//! there: a path that loses large datagrams only does so.

use super::connection::{Exchanged, Requests, Stream, request_head};
use super::connections::{Connection, Connections};
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
use sha2::Digest;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until};

/// Longest time an open-ended wait takes.
pub(crate) const ENDLESS_WAIT: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// Time for a server's sign of life.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// The part of a body that has arrived.
struct Arrived {
    /// Its end, which a further request begins at.
    end: Resume,
    /// Bytes of it that this run has brought.
    bytes: u64,
    /// Time of the last progress, or at which the next bytes are due.
    since: Instant,
}

/// The part of the body, for the transfer and its watch.
struct Shared(Mutex<Arrived>);

impl Shared {
    fn new(request: &Request) -> Self {
        let end = request.resume.clone().unwrap_or_default();
        Self(Mutex::new(Arrived { end, bytes: 0, since: Instant::now() }))
    }

    /// Begins a body where its head says: the bytes that this run had brought before.
    fn begin(&self, head: &Head) -> u64 {
        let mut arrived = self.lock();
        if head.offset == 0 {
            arrived.end = Resume { validator: head.validator.clone(), ..Resume::default() };
        }
        arrived.bytes
    }

    fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Downloads `request` into `sink`, and reports events to `progress`. Dropping the future ends the
/// download. Connections stay in `connections`.
///
/// Must run inside a Tokio runtime with I/O and time enabled.
///
/// # Errors
/// See [`GetError`]. The sink has the bytes that had arrived by then.
pub(crate) async fn download(
    connections: &Connections,
    request: &Request,
    sink: &mut impl Sink,
    mut progress: impl FnMut(Progress),
) -> Result<Report, GetError> {
    let arrived = Shared::new(request);
    let run = run(connections, request, sink, &mut progress, &arrived);
    let Some(limit) = request.max_time else { return run.await };
    let result = tokio::time::timeout(limit, run).await;
    result.unwrap_or_else(|_| Err(GetError::TimedOut { after: limit, bytes: arrived.lock().bytes }))
}

/// Downloads from the URL, or from the place that redirects lead to.
async fn run(
    connections: &Connections,
    request: &Request,
    sink: &mut impl Sink,
    progress: &mut impl FnMut(Progress),
    arrived: &Shared,
) -> Result<Report, GetError> {
    let mut request = request.clone();
    for _ in 0..=MOST_REDIRECTS {
        match fetch(connections, &request, sink, progress, arrived).await {
            Err(GetError::Redirect { location: Some(location), .. }) if request.follow => {
                request = redirect::next(&request, &location)?;
            }
            result => return result,
        }
    }
    Err(GetError::TooManyRedirects { url: request.url.to_string(), limit: MOST_REDIRECTS })
}

async fn fetch(
    connections: &Connections,
    request: &Request,
    sink: &mut impl Sink,
    progress: &mut impl FnMut(Progress),
    arrived: &Shared,
) -> Result<Report, GetError> {
    let connection = match connect(connections, request, progress).await? {
        Way::Udp(standing) => {
            return over_udp(connections, request, request, standing, sink, progress, arrived)
                .await;
        }
        Way::Tcp(connection) => *connection,
    };
    progress(Progress::Connected { remote: connection.remote });
    let answered = OverTcp::ask(request, connection).await?;
    if let Some(other) = at_alternative(request, answered.answer.response.headers())
        // The body waits meanwhile.
        && let Ok(standing) = connections.to(&other, progress).await
    {
        return over_udp(connections, request, &other, standing, sink, progress, arrived).await;
    }
    answered.receive(request, sink, progress, arrived).await
}

fn broken(reason: String) -> GetError {
    GetError::Transfer { bytes: 0, reason }
}

/// A connection over HTTP/3, and true if it is new.
type Standing = (Arc<Connection>, bool);

/// A connection to the server.
enum Way {
    Udp(Standing),
    Tcp(Box<over_tcp::Connection>),
}

/// Connects over UDP, or over TCP if that may be used and UDP brings no answer.
async fn connect(
    connections: &Connections,
    request: &Request,
    progress: &mut impl FnMut(Progress),
) -> Result<Way, GetError> {
    let udp = async { connections.to(request, progress).await.map(Way::Udp) };
    if !request.may_use_tcp {
        return udp.await;
    }
    if request.proxy().is_some() || connections.stall(request) {
        let connection = over_tcp::connect(request).await?;
        return Ok(Way::Tcp(Box::new(connection)));
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

/// Downloads over a connection at `at`, and over TCP if that breaks or stalls.
async fn over_udp(
    connections: &Connections,
    request: &Request,
    at: &Request,
    mut standing: Standing,
    sink: &mut impl Sink,
    progress: &mut impl FnMut(Progress),
    arrived: &Shared,
) -> Result<Report, GetError> {
    loop {
        let (connection, is_new) = &standing;
        let ended = {
            let mut requests = connection.requests.clone();
            let exchange = exchange(at, &mut requests, sink, progress, arrived);
            let udp = pin!(connection.http3.during(at, exchange));
            let tcp = pin!(after_stalls(request, connection, arrived));
            tokio::select! {
                biased;
                exchanged = udp => Ok(exchanged),
                answered = tcp, if request.may_use_tcp => Err(answered),
            }
        };
        let (answered, rest) = match ended {
            Ok(Ok(exchanged)) => {
                let report = connection.http3.report(at, exchanged);
                let connect_time = if *is_new { report.connect_time } else { Duration::ZERO };
                return Ok(Report { connect_time, ..report });
            }
            // The server has given up a connection that stood unused.
            Ok(Err(GetError::Transfer { bytes: 0, .. }))
                if !is_new && !connection.http3.is_open() && !connections.stall(at) =>
            {
                standing = connections.to(at, progress).await?;
                continue;
            }
            Ok(Err(error @ GetError::Transfer { .. })) if request.may_use_tcp => {
                the_rest(request, arrived).await.ok_or(error)?
            }
            Ok(Err(error)) => return Err(error),
            Err(answered) => {
                connections.end_stalling(at, connection);
                answered
            }
        };
        progress(Progress::Connected { remote: answered.remote });
        return answered.receive(&rest, sink, progress, arrived).await;
    }
}

/// Waits until the download stalls although its server is there, and TCP brings the rest: the
/// answer, and its request.
async fn after_stalls(
    request: &Request,
    connection: &Connection,
    arrived: &Shared,
) -> (OverTcp, Request) {
    loop {
        let since = arrived.lock().since;
        sleep_until((since + request.connect_timeout).into()).await;
        if arrived.lock().since != since {
            continue;
        }
        // A path that is down altogether is left to the idle timeout: assistance may go on after it.
        let newest = connection.http3.newest_packet();
        let is_open = connection.http3.is_open();
        sleep(ANSWER_WAIT).await;
        if is_open && connection.http3.newest_packet() != newest {
            let answered = the_rest(request, arrived).await;
            match answered.filter(|_| arrived.lock().since == since) {
                Some(answered) => return answered,
                None => sleep(request.connect_timeout).await,
            }
        }
    }
}

/// Asks for the rest of the body over TCP: the answer if it begins where the body ends, and its
/// request.
async fn the_rest(request: &Request, arrived: &Shared) -> Option<(OverTcp, Request)> {
    let end = Some(arrived.lock().end.clone()).filter(|end| end.offset > 0);
    // Without a validator the server may have another version.
    if end.as_ref().is_some_and(|end| end.validator.is_none()) {
        return None;
    }
    let rest = Request { resume: end, ..request.clone() };
    let answered = OverTcp::ask(&rest, over_tcp::connect(&rest).await.ok()?).await.ok()?;
    let response = &answered.answer.response;
    let status = response.status().as_u16();
    let head = Head::read(&rest.url, rest.resume.as_ref(), status, response.headers());
    let begins_there =
        head.is_ok_and(|head| head.offset == rest.resume.as_ref().map_or(0, |end| end.offset));
    begins_there.then_some((answered, rest))
}

/// A request over TCP, and its answer.
struct OverTcp {
    answer: over_tcp::Answer,
    remote: SocketAddr,
    connect_time: Duration,
    started: Instant,
}

impl OverTcp {
    async fn ask(request: &Request, connection: over_tcp::Connection) -> Result<Self, GetError> {
        let (remote, connect_time) = (connection.remote, connection.connect_time);
        let message = http_request(request).map_err(|error| broken(error.to_string()))?;
        let started = Instant::now();
        let answer = connection.send(request, message).await?;
        Ok(Self { answer, remote, connect_time, started })
    }

    async fn receive(
        mut self,
        request: &Request,
        sink: &mut impl Sink,
        progress: &mut impl FnMut(Progress),
        arrived: &Shared,
    ) -> Result<Report, GetError> {
        let head = head_of(request, &self.answer.response, progress)?;
        let stop = Stop::new(request, self.started);
        let protocol = self.answer.protocol;
        let chunks = async || self.answer.next_chunk().await;
        let exchanged = receive(request, head, chunks, sink, progress, arrived, stop).await?;
        let proxy = request.proxy().map(|proxy| proxy.uri().to_string());
        Ok(Report {
            connect_time: self.connect_time,
            proxy,
            ..exchanged.report(protocol, self.remote)
        })
    }
}

async fn exchange(
    request: &Request,
    requests: &mut Requests,
    sink: &mut impl Sink,
    progress: &mut impl FnMut(Progress),
    arrived: &Shared,
) -> Result<Exchanged, GetError> {
    let started = Instant::now();
    arrived.lock().since = started;
    let message = http_request(request).map_err(|error| broken(error.to_string()))?;
    let mut stop = Stop::new(request, started);

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
    let response = stop.or(response).await;
    let response =
        response.ok_or_else(|| broken("no response before the time limit".to_owned()))?;
    let (mut stream, response) =
        response.map_err(|error| broken(format!("no response: {error}")))?;
    let head = head_of(request, &response, progress)?;
    let chunks = async || next_chunk(&mut stream).await.map_err(|error| error.to_string());
    receive(request, head, chunks, sink, progress, arrived, stop).await
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
struct Stop {
    after: Option<Duration>,
    started: Instant,
    timer: Pin<Box<tokio::time::Sleep>>,
}

impl Stop {
    fn new(request: &Request, started: Instant) -> Self {
        let after = request.stop_after;
        let timer = Box::pin(sleep_until((started + after.unwrap_or(ENDLESS_WAIT)).into()));
        Self { after, started, timer }
    }

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
fn put(mut part: impl Buf, arrived: &Shared, sink: &mut impl Sink) -> std::io::Result<()> {
    while part.has_remaining() {
        let chunk = part.chunk();
        let length = chunk.len();
        sink.put(chunk)?;
        let mut arrived = arrived.lock();
        arrived.end.digest.update(chunk);
        arrived.end.offset += length as u64;
        arrived.bytes += length as u64;
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
    arrived: &Shared,
    mut stop: Stop,
) -> Result<Exchanged, GetError> {
    let unwritable = |name: String| move |source| GetError::Write { target: name, source };
    sink.begin(head.offset, head.validator.as_deref()).map_err(unwritable(sink.name()))?;
    let first = arrived.begin(&head);
    let bytes = || arrived.lock().bytes;
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
        let due = request.limit_rate.map(|rate| {
            stop.started + Duration::from_secs_f64((bytes() - first) as f64 / f64::from(rate))
        });
        arrived.lock().since = due.unwrap_or_else(Instant::now).max(Instant::now());
        let Some(chunk) = stop.or(next_at(due, &mut next)).await else {
            stopped = true;
            break;
        };
        let chunk = chunk.map_err(|reason| GetError::Transfer { bytes: bytes(), reason })?;
        let Some(chunk) = chunk else { break };
        put(chunk, arrived, sink).map_err(unwritable(sink.name()))?;
        progress(Progress::Data { bytes: bytes() - first });
        // A body that arrives without a pause must not outrun the time limit.
        let end = arrived.lock().end.offset;
        let is_whole = head.expected_bytes.is_some_and(|expected| end >= expected);
        if stop.is_over() && !is_whole {
            stopped = true;
            break;
        }
    }
    let transfer_time = stop.started.elapsed();
    let arrived = arrived.lock();
    if !stopped && !request.head_only {
        head.check_length(arrived.bytes - first)?;
    }
    Ok(Exchanged {
        status: head.status,
        bytes: arrived.bytes,
        resumed_from: arrived.end.offset - arrived.bytes,
        expected_bytes: head.expected_bytes,
        location: None,
        transfer_time,
        sha256: hexadecimal::encode(&arrived.end.digest.clone().finalize()),
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
    use sha2::Sha256;

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
