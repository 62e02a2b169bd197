//! Drains an Envoy with Packrat's filter before it ends: asks for it on the administration
//! interface, after which no client begins to be assisted, and waits until no session is left.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Path of Envoy's counts of the connections to the clusters of TCP servers, and of the connections
/// that end at it.
pub const CONNECTIONS_PATH: &str = "/stats?filter=%5E(cluster%5C.servers-.*%5C.upstream|http%5C.terminated-.*%5C.downstream)_cx_active%24";
/// Time between two looks at the number of sessions.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time for one request.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);
/// Shortest time before "no session" ends the wait: a load balancer, which hears of the end at the
/// same time as Envoy, may send new clients for as long.
const SETTLING_TIME: Duration = Duration::from_secs(5);
/// Time before Envoy is asked to drain. The nodes learn of the end at the same time as this
/// command, and send new clients here until then (kube-proxy: for a second). These clients stay for
/// the whole drain, and shall be assisted during it.
const NOTICE_TIME: Duration = Duration::from_secs(3);

/// The reason for the end of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// No session is left, and no TCP connection.
    NoSessions,
    /// The time is up.
    TimeIsUp,
    /// Envoy has ended by itself.
    Gone,
}

/// Drains, after a moment, the Envoy whose administration interface is the socket `admin`; returns when no session is left,
/// though not within the first seconds, or after `longest`. An Envoy that is too busy to answer is
/// asked again: giving up would end its sessions.
///
/// # Errors
/// When Envoy does not take the request to drain.
pub fn drain(admin: &Path, longest: Duration) -> std::io::Result<End> {
    let start = Instant::now();
    let end = start + longest;
    let pause =
        || std::thread::sleep(LOOK_INTERVAL.min(end.saturating_duration_since(Instant::now())));
    std::thread::sleep(NOTICE_TIME.min(longest / 4));
    while let Err(error) = request(admin, "POST", "/drain_listeners?graceful&skip_exit") {
        if is_gone(&error) || Instant::now() >= end {
            return Err(error);
        }
        pause();
    }
    while Instant::now() < end {
        match request(admin, "GET", "/packrat/sessions?limit=0").map(|body| sessions(&body)) {
            Ok(Some(0)) if start.elapsed() >= SETTLING_TIME && connections(admin) == Some(0) => {
                return Ok(End::NoSessions);
            }
            // An unknown count does not mean that there are no connections.
            Ok(_) => {}
            Err(error) if is_gone(&error) => return Ok(End::Gone),
            Err(_) => {}
        }
        pause();
    }
    Ok(End::TimeIsUp)
}

/// Ends the Envoy whose administration interface is the socket `admin`, at once.
///
/// # Errors
/// When Envoy does not take the request.
pub fn quit(admin: &Path) -> std::io::Result<()> {
    request(admin, "POST", "/quitquitquit").map(drop)
}

/// True if Envoy is gone, because its socket refuses connections or does not exist. An Envoy that
/// is only slow is not gone.
fn is_gone(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}

/// Sessions of all routes, from the module's page.
fn sessions(body: &str) -> Option<u64> {
    serde_json::from_str::<Value>(body).ok()?["total"].as_u64()
}

/// TCP connections that are passed through, and connections that end here, of all routes.
fn connections(admin: &Path) -> Option<u64> {
    total(&request(admin, "GET", CONNECTIONS_PATH).ok()?)
}

/// The sum of counts as Envoy lists them.
fn total(counts: &str) -> Option<u64> {
    counts.lines().map(|line| line.rsplit_once(": ")?.1.trim().parse::<u64>().ok()).sum()
}

fn request(admin: &Path, method: &str, path: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(admin)?;
    stream.set_read_timeout(Some(REQUEST_PATIENCE))?;
    stream.set_write_timeout(Some(REQUEST_PATIENCE))?;
    // Envoy takes no HTTP/1.0.
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        return Err(std::io::Error::other(format!("{method} {path} was answered with {status}")));
    }
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Ok(if is_chunked { without_chunks(body) } else { body.to_owned() })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together() {
        assert_eq!(without_chunks("3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"), "abc0123456789");
        assert_eq!(without_chunks("ff\r\ntoo short"), "");
    }

    /// An administration interface that does not answer the first request of each kind, and then
    /// reports that no session is left.
    #[test]
    fn an_envoy_that_is_too_busy_to_answer_is_asked_again() {
        let directory = tempfile::tempdir().unwrap();
        let admin = directory.path().join("admin.sock");
        let listener = std::os::unix::net::UnixListener::bind(&admin).unwrap();
        let envoy = std::thread::spawn(move || {
            let mut asked = Vec::new();
            let mut silent = Vec::new();
            while asked.len() < 4 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 256];
                let length = stream.read(&mut request).unwrap();
                let line =
                    String::from_utf8_lossy(&request[..length]).lines().next().unwrap().to_owned();
                let again = asked.contains(&line);
                asked.push(line);
                if again {
                    let body = r#"{ "total": 1 }"#;
                    write!(
                        stream,
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                        body.len()
                    )
                    .unwrap();
                } else {
                    silent.push(stream);
                }
            }
            asked
        });
        // The interface ends after two requests for the sessions.
        assert_eq!(drain(&admin, Duration::from_secs(60)).unwrap(), End::Gone);
        let asked = envoy.join().unwrap();
        assert_eq!(asked[0], asked[1]);
        assert!(asked[0].starts_with("POST /drain_listeners?graceful&skip_exit "), "{asked:?}");
        assert!(asked[3].starts_with("GET /packrat/sessions?limit=0 "), "{asked:?}");
    }

    #[test]
    fn what_is_unknown_is_not_none() {
        assert_eq!(sessions(r#"{ "total": 5, "sessions": [] }"#), Some(5));
        assert_eq!(sessions(r#"{ "total": 0, "sessions": [] }"#), Some(0));
        assert_eq!(sessions("{}"), None);
        assert_eq!(sessions("no JSON"), None);
        assert_eq!(total(""), Some(0), "no TCP connection is passed through anywhere");
        let name = |port: u16| format!("cluster.servers-{port}.upstream_cx_active");
        assert_eq!(total(&format!("{}: 0\n{}: 3\n", name(443), name(444))), Some(3));
        assert_eq!(total("service is unavailable"), None);
    }
}
