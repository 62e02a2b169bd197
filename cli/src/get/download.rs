//! One GET request over HTTP/3.

use super::connection::{Exchanged, Http3, Requests, Stream, request_head};
use super::error::GetError;
use super::head::Head;
use super::report::{Progress, Report};
use super::request::Request;
use super::resume::Resume;
use super::sink::Sink;
use bytes::Buf;
use http::header;
use packrat_wire::hexadecimal;
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};

/// Longest time an open-ended wait takes.
pub(crate) const NEVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);

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
    let (mut http3, mut requests) = Http3::connect(request, progress).await?;
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
    let mut message = request_head(request, http::Method::GET);
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
