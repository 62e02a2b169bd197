//! A gateway's answers over HTTP.

use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::gateway::{Gateway, PATIENCE};

#[test]
fn status_sessions_and_events_hide_a_clients_address() {
    let gateway = Gateway::start("web");
    gateway.ask();
    let status = gateway.json("/packrat");
    assert_eq!(status["routes"][0]["listeners"], json!([gateway.listen.to_string()]));
    assert_eq!(status["routes"][0]["metrics"]["packrat_to_client_datagrams_total"], 1);
    assert!(status["process"]["packrat_process_resident_memory_bytes"].as_u64().unwrap() > 1 << 20);
    let sessions = gateway.json("/packrat/sessions?limit=5");
    assert_eq!(sessions["total"], 1);
    let session = &sessions["sessions"][0];
    assert_eq!((&session["route"], &session["to_client_bytes"]), (&json!("web"), &json!(25)));
    assert!(!session["client"].to_string().contains("127.0.0.1"), "{session}");
    let events = gateway.json("/packrat/events?after=0");
    let opened = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .find(|event| event["event"] == "session_opened");
    assert_eq!(opened.unwrap()["client"], session["client"]);
    assert_eq!(opened.unwrap()["session"], session["session"]);
    let newest = events["newest"].as_u64().unwrap();
    assert_eq!(gateway.json(&format!("/packrat/events?after={newest}"))["events"], json!([]));
}

/// The page determines the requester, not the query.
#[test]
fn a_server_reads_the_addresses_of_its_own_clients() {
    let gateway = Gateway::start("web");
    gateway.ask();
    let all = gateway.json("/packrat/clients?requester=192.0.2.1");
    assert_eq!(all["total"], 1);
    let found = &all["clients"][0];
    assert_eq!(found["server"], gateway.server.local_addr().unwrap().to_string());
    let upstream = found["upstream"].as_str().unwrap();
    assert_eq!(gateway.json(&format!("/packrat/clients?upstream={upstream}"))["total"], 1);
    assert_eq!(gateway.json("/packrat/clients?upstream=127.0.0.1:1")["total"], 0);
    assert!(gateway.request("GET", "/packrat/clients?upstream=me").0.contains(" 400 "));
    assert!(gateway.request("POST", "/packrat/clients").0.contains(" 405 "));
}

#[test]
fn the_log_is_changed_by_post_alone() {
    let gateway = Gateway::start("web");
    assert_eq!(gateway.json("/packrat/log"), json!({ "level": "info", "clients": "hashed" }));
    assert!(gateway.request("POST", "/packrat/log?level=loud").0.contains(" 400 "));
    assert!(gateway.request("POST", "/packrat/log?level=debug&clients=shown").0.contains(" 200 "));
    assert_eq!(
        gateway.json("/packrat/log?level=error"),
        json!({ "level": "debug", "clients": "shown" })
    );
    gateway.ask();
    let sessions = gateway.json("/packrat/sessions");
    assert!(
        sessions["sessions"][0]["client"].as_str().unwrap().starts_with("127.0.0.1:"),
        "{sessions}"
    );
}

#[test]
fn a_page_in_a_browser_cannot_change_the_log() {
    let gateway = Gateway::start("web");
    // A form of another site, and a page of a site whose name leads here.
    for headers in [
        "Host: 127.0.0.1:9100\r\nOrigin: http://evil.example\r\nContent-Type: text/plain\r\n",
        "Host: evil.example:9100\r\nX-Requested-With: fetch\r\n",
    ] {
        let (head, body) = gateway.request_with("POST", "/packrat/log?clients=shown", headers);
        assert!(head.contains(" 403 "), "{head} {body}");
    }
    // The question that a browser asks before it sends such a header gets no permission.
    let (head, _) = gateway.request("OPTIONS", "/packrat/log");
    assert!(head.contains(" 405 ") && !head.contains("Access-Control"), "{head}");
    assert_eq!(gateway.json("/packrat/log"), json!({ "level": "info", "clients": "hashed" }));
}

#[test]
fn clients_that_say_and_read_nothing_keep_no_one_else_waiting() {
    let gateway = Gateway::start("web");
    let address = gateway.admin.address();
    // Some never finish their request, some never read the answer, and the rest is refused.
    let mut slow: Vec<TcpStream> = (0..30).map(|_| TcpStream::connect(address).unwrap()).collect();
    for (number, stream) in slow.iter_mut().enumerate() {
        let request: &[u8] =
            if number % 2 == 0 { b"GET / HT" } else { b"GET /metrics HTTP/1.1\r\n\r\n" };
        stream.write_all(request).unwrap();
    }
    assert!(gateway.request("GET", "/metrics").1.contains("packrat_sessions{route=\"web\""));
    slow.extend((0..200).map(|_| TcpStream::connect(address).unwrap()));
    slow.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    let is_refused = |stream: &mut TcpStream| {
        let mut answer = [0; 100];
        let length = stream.read(&mut answer).unwrap_or_default();
        String::from_utf8_lossy(&answer[..length]).contains(" 503 ")
    };
    let deadline = Instant::now() + PATIENCE;
    while !slow.iter_mut().skip(30).any(is_refused) {
        assert!(Instant::now() < deadline, "there is no limit of connections");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(slow);
    let deadline = Instant::now() + PATIENCE;
    // A connection that is refused may be closed before it has asked.
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    while !ask().is_ok_and(|answer| answer.contains(" 200 ")) {
        assert!(Instant::now() < deadline, "the places are not given back");
    }
}

#[test]
fn answers_to_wrong_requests_name_the_right_ones() {
    let gateway = Gateway::start("web");
    let (head, body) = gateway.request("GET", "/nothing");
    assert!(head.contains(" 404 ") && body.contains("/packrat/sessions"), "{head} {body}");
    assert!(gateway.request("POST", "/packrat").0.contains(" 405 "));
    assert!(gateway.request("GET", "/packrat/sessions?limit=many").0.contains(" 400 "));
    assert!(gateway.request("GET", "/metrics").1.contains("packrat_sessions{route=\"web\""));
}

#[test]
fn the_page_is_one_document_and_names_cannot_break_it() {
    let gateway = Gateway::start("<script>alert(1)</script>");
    gateway.ask();
    let (head, body) = gateway.request("GET", "/");
    assert!(head.contains("text/html") && head.contains("default-src 'none'"), "{head}");
    assert!(body.starts_with("<!doctype html>") && body.trim_end().ends_with("</html>"));
    assert!(
        !body.contains("<script") && !body.contains("src=") && !body.contains("href="),
        "{body}"
    );
    assert!(body.contains("&lt;script&gt;alert(1)"), "{body}");
    assert!(body.contains("session_opened") && body.contains("loss hidden"), "{body}");
}

#[test]
fn events_of_a_session_are_asked_for_by_its_number() {
    let gateway = Gateway::start("web");
    gateway.ask();
    let session = gateway.json("/packrat/sessions")["sessions"][0]["session"].as_u64().unwrap();
    // The client is not assisted: nothing is reconciled.
    let path = format!("/packrat/events?session={session}&seconds=5");
    assert_eq!(gateway.json(&path), json!({ "newest": 0, "events": [] }));
    let (head, body) = gateway.request("GET", "/packrat/events?session=1000000");
    assert!(head.contains(" 404 ") && body.contains("/packrat/sessions"), "{head} {body}");
    assert!(gateway.request("GET", "/packrat/events?session=all").0.contains(" 400 "));
}
