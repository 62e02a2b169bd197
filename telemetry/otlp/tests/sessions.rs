//! Log lines become spans.
#![allow(missing_docs, clippy::panic)]

use packrat_dataplane::log::Line;
use packrat_otlp::messages::Span;
use packrat_otlp::{MOST_EVENTS, MOST_SESSIONS, Sessions};
use serde_json::{Value, json};

fn line(fields: Value) -> Line {
    let Value::Object(fields) = fields else { panic!("no object") };
    Line { number: 1, fields }
}

fn event(name: &str, session: usize) -> Line {
    line(
        json!({ "ts": "2026-01-01T00:00:01.000Z", "level": "info", "event": name, "session": session }),
    )
}

fn keys(span: &Span) -> Vec<&str> {
    span.attributes.iter().map(|attribute| attribute.key.as_str()).collect()
}

#[test]
fn a_session_becomes_a_span_with_its_events() {
    let closed = json!({
        "ts": "2026-01-01T00:00:10.000Z", "level": "info", "event": "session_closed", "session": 7, "route": "web",
        "reason": "idle", "seconds": 9.5, "repairs": 3,
    });
    let draining = line(json!({ "ts": "2026-01-01T00:00:02.000Z", "event": "draining" }));
    let lines = [event("session_opened", 7), event("reset", 7), draining, line(closed)];
    let mut number = 0;
    let spans = Sessions::default().spans(&lines, || {
        number += 1;
        number
    });
    let [span] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!(span.end_time_unix_nano - span.start_time_unix_nano, 9_500_000_000);
    assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
    assert_eq!(span.events.len(), 1);
    assert_eq!(span.events[0].name, "reset");
    for key in ["packrat.route", "packrat.reason", "packrat.repairs", "packrat.session"] {
        assert!(keys(span).contains(&key), "{span:?}");
    }
    assert!(!keys(span).contains(&"packrat.ts"));
}

#[test]
fn the_memory_for_open_sessions_is_bounded() {
    let mut sessions = Sessions::default();
    let opened: Vec<Line> =
        (0..MOST_SESSIONS + 10).map(|session| event("session_opened", session)).collect();
    assert!(sessions.spans(&opened, || 1).is_empty());
    let (first, last) = (0, MOST_SESSIONS + 9);
    let mut lines = vec![event("reset", first); MOST_EVENTS + 10];
    lines.extend([
        event("reset", last),
        event("session_closed", first),
        event("session_closed", last),
    ]);
    let events: Vec<usize> =
        sessions.spans(&lines, || 1).iter().map(|span| span.events.len()).collect();
    assert_eq!(events, [MOST_EVENTS, 0]);
}
