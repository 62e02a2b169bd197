//! HTTP over a Unix socket, for an administration interface without a port.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use crate::EVENT_PATIENCE;

/// The body of the answer to a request without one.
pub(crate) fn request(socket: &str, method: &str, path: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(EVENT_PATIENCE))?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(body_of(&String::from_utf8_lossy(&answer)))
}

/// The body of an HTTP/1.1 answer, whole: the server chooses how many chunks it has.
pub fn body_of(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    if is_chunked { without_chunks(body) } else { body.to_owned() }
}

/// A body without the lengths of its chunks (RFC 9112, section 7.1).
fn without_chunks(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((length, after)) = rest.split_once("\r\n")
        && let Ok(length) = usize::from_str_radix(length, 16)
        && let Some(chunk) = after.get(..length)
        && length > 0
    {
        body.push_str(chunk);
        rest = after.get(length + 2..).unwrap_or_default();
    }
    body
}
