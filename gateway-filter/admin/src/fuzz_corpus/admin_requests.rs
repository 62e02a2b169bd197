//! Bytes that arrive at the port with a gateway's pages: requests, their paths and queries.
//!
//! Input: byte 0 is the number of bytes that arrive at once (0: all); the rest is the stream.

use std::sync::{Arc, OnceLock};

use packrat_dataplane::log::Silent;
use packrat_dataplane::{Dataplane, Options, RouteConfig};
use packrat_pages::{Answer, LONGEST_HEAD, Request};

use crate::history::History;
use crate::server::respond;

/// A name that is not harmless on a page.
const ROUTE: &str = "<b>\"&'";

fn dataplane() -> &'static Arc<Dataplane> {
    static DATAPLANE: OnceLock<Arc<Dataplane>> = OnceLock::new();
    DATAPLANE.get_or_init(|| {
        let dataplane = Dataplane::start(Options { workers: 1 }, Box::new(Silent)).unwrap();
        dataplane
            .configure(RouteConfig::new(ROUTE, ["127.0.0.1:9".parse().unwrap()]).unwrap())
            .unwrap();
        Arc::new(dataplane)
    })
}

/// Level and clients of the log.
fn settings() -> (&'static str, &'static str) {
    let logger = dataplane().logger();
    (logger.level().name(), logger.clients().name())
}

/// Reads a request as it arrives, and answers it; panics when an answer breaks a promise.
pub fn admin_requests(data: &[u8]) {
    let (&pace, bytes) = data.split_first().unwrap_or((&0, &[]));
    let pace = if pace == 0 { bytes.len().max(1) } else { usize::from(pace) };
    let logger = dataplane().logger();
    logger.set_level("info".parse().unwrap());
    logger.set_clients("hashed".parse().unwrap());

    let mut arrived = 0;
    let parsed = loop {
        if let Some(parsed) = Request::parse(&bytes[..arrived]) {
            break parsed;
        }
        assert!(arrived < LONGEST_HEAD, "waits for more than the longest head");
        if arrived == bytes.len() {
            assert!(!bytes.windows(4).any(|four| four == b"\r\n\r\n"), "a whole head is ignored");
            return;
        }
        arrived = bytes.len().min(arrived + pace);
    };
    // Bytes behind the head are not examined.
    if let Some(end) = bytes[..arrived].windows(4).position(|four| four == b"\r\n\r\n") {
        assert_eq!(Request::parse(&bytes[..end + 4]).as_ref(), Some(&parsed));
    }
    let Ok(request) = parsed else { return };
    assert!(request.target.starts_with('/'));
    let without = respond(&request, None, &History::default());
    assert_eq!(settings(), ("info", "hashed"), "changed without a data plane");
    check(&request, &without);

    let history = History::default();
    let answer = respond(&request, Some(dataplane()), &history);
    check(&request, &answer);
    if settings() != ("info", "hashed") {
        // Bytes behind the head need not be text.
        let text = String::from_utf8_lossy(&bytes[..arrived]).to_ascii_lowercase();
        let (path, query) = request.target.split_once('?').expect("a query");
        assert_eq!((request.method, path, answer.status), ("POST", "/packrat/log", 200));
        assert!(query.contains("level=") || query.contains("clients="));
        assert!(text.contains("\r\nx-requested-with:"), "a page of another site could send it");
        // Twice is once.
        let now = settings();
        respond(&request, Some(dataplane()), &history);
        assert_eq!(settings(), now);
    }
}

fn check(request: &Request<'_>, answer: &Answer) {
    let Answer { status, content_type, body } = answer;
    assert!([200, 400, 403, 404, 405, 503].contains(status), "{status}");
    assert!(body.ends_with('\n') || *status == 200, "{body:?}");
    match *content_type {
        "application/json" => {
            serde_json::from_str::<serde_json::Value>(body).expect("JSON");
        }
        "text/html; charset=utf-8" => {
            assert!(!body.contains(ROUTE) && !body.contains("<script"), "a name is not escaped");
        }
        text => assert!(text.starts_with("text/plain"), "{text}"),
    }
    let reads = ["GET", "HEAD"].contains(&request.method);
    assert!(reads || request.method == "POST" || *status != 200, "{} is answered", request.method);
    if *status == 404 || *status == 405 {
        assert!(body.contains("/packrat") || body.contains("use GET"), "{body} names no way");
    }
}
