//! A gateway's answers over HTTP.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod gateway;

use gateway::Gateway;
use serde_json::json;

#[test]
fn status_sessions_and_events_show_a_client_but_hide_its_address() {
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
    assert!(
        !sessions.to_string().contains("127.0.0.1:")
            || !session["client"].to_string().contains("127")
    );
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
