//! One connection: a request, its answer, and the end. However slow the other side is, it is over
//! in [`CONNECTION_DEADLINE`].

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::answer::Answer;
use crate::request::Request;

/// Longest duration of a connection.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(10);
/// Bytes that are written at once: after each of them the time is looked at.
const CHUNK_BYTES: usize = 16 * 1024;

/// Headers of every answer. The page contains only its own style; the policy forbids everything
/// else.
const ANSWER_HEADERS: &str = "X-Content-Type-Options: nosniff\r\n\
    Cache-Control: no-store\r\n\
    Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n\
    Connection: close\r\n";

/// Serves one connection.
///
/// # Errors
/// The other side has gone, or is too slow.
pub(crate) fn serve(
    mut stream: TcpStream,
    respond: impl FnOnce(&Request<'_>) -> Answer,
) -> io::Result<()> {
    let deadline = Instant::now() + CONNECTION_DEADLINE;
    let peer = stream.peer_addr().ok().map(|peer| peer.ip().to_canonical());
    let mut bytes = Vec::new();
    let (answer, has_body) = loop {
        match Request::parse(&bytes) {
            Some(Ok(mut request)) => {
                request.peer = peer;
                break (respond(&request), request.method != "HEAD");
            }
            Some(Err(problem)) => break (Answer::problem(400, problem.to_owned()), true),
            None => {}
        }
        let mut buffer = [0; 1024];
        stream.set_read_timeout(Some(remaining(deadline)?))?;
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(buffer.get(..length).unwrap_or_default());
    };
    let Answer { status, content_type, body } = &answer;
    let (reason, length) = (reason(*status), body.len());
    let mut text = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{ANSWER_HEADERS}\r\n"
    );
    if has_body {
        text.push_str(body);
    }
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(remaining(deadline)?))?;
        let written = stream.write(rest.get(..CHUNK_BYTES).unwrap_or(rest))?;
        rest = rest.get(written..).unwrap_or_default();
    }
    // What the other side has sent and no one has read would turn the end into a reset, which may
    // take the answer with it.
    stream.shutdown(Shutdown::Write)?;
    loop {
        stream.set_read_timeout(Some(remaining(deadline)?))?;
        if stream.read(&mut [0; 1024])? == 0 {
            return Ok(());
        }
    }
}

/// The time that is left; an error when none is.
fn remaining(deadline: Instant) -> io::Result<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(remaining) }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}
