//! One GET request over HTTP/3.

use super::connect::{Connected, IDLE_TIMEOUT, connect};
use super::error::GetError;
use super::head::Head;
use super::report::{Progress, Report};
use super::request::Request;
use super::resume::Resume;
use super::sink::Sink;
use bytes::Buf;
use h3::client::{RequestStream, SendRequest};
use h3_util::s2n::s2n_quic_h3;
use http::header;
use packrat_token_client::AssistToken;
use packrat_wire::hexadecimal;
use sha2::{Digest, Sha256};
use std::convert::Infallible;
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
    let Connected { endpoint, connection, remote, qlog, received } =
        connect(request, progress).await?;
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
        received_packet_numbers: received.ranges(),
        partial: body.stopped,
    })
}

/// Lets the assistance have each token that comes, and the key of its gateway.
async fn pass_on_tokens(
    tokens: Option<watch::Receiver<AssistToken>>,
    assistance: &packrat_s2n_quic::Assistance,
) -> Infallible {
    if let Some(mut tokens) = tokens {
        while tokens.changed().await.is_ok() {
            let AssistToken { gateway_key, token, .. } = &*tokens.borrow_and_update();
            assistance.set_access(*gateway_key, token);
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
    let status = response.status().as_u16();
    let head = Head::read(&request.url, request.resume.as_ref(), status, response.headers())?;
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
    if !stopped {
        head.check_length(*bytes)?;
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
