//! Sessions as spans: from the client's first datagram to the session's end. The session's log
//! lines become the span's events.

use std::collections::HashMap;

use packrat_dataplane::log::Line;
use serde_json::{Map, Value};

use crate::attributes::{field, resource, scope};
use crate::messages::{
    Event, ExportTraceServiceRequest, KeyValue, ResourceSpans, SERVER_KIND, ScopeSpans, Span,
};

/// Maximum number of sessions with remembered events.
pub const MOST_SESSIONS: usize = 10_000;
/// Maximum number of remembered events of a session.
pub const MOST_EVENTS: usize = 64;
/// Fields of every line that a span has in another place.
const NOT_ATTRIBUTES: [&str; 5] = ["ts", "level", "event", "session", "suppressed"];

/// Events of the sessions that have not ended yet.
#[derive(Debug, Default)]
pub struct Sessions {
    open: HashMap<u64, Vec<Event>>,
}

impl Sessions {
    /// Takes in log lines, and returns the spans of the sessions that have ended. `random` returns
    /// a new number each time.
    pub fn spans(&mut self, lines: &[Line], mut random: impl FnMut() -> u64) -> Vec<Span> {
        let mut spans = Vec::new();
        for Line { fields, .. } in lines {
            let Some(session) = fields.get("session").and_then(Value::as_u64) else { continue };
            let Some(time) = time_of(fields) else { continue };
            match name_of(fields) {
                "session_opened" => {
                    if self.open.len() < MOST_SESSIONS {
                        self.open.insert(session, Vec::new());
                    }
                }
                "session_closed" => {
                    let events = self.open.remove(&session).unwrap_or_default();
                    spans.push(span(session, fields, time, events, &mut random));
                }
                name => {
                    if let Some(events) =
                        self.open.get_mut(&session).filter(|events| events.len() < MOST_EVENTS)
                    {
                        events.push(Event {
                            time_unix_nano: time,
                            name: name.to_owned(),
                            attributes: attributes(fields),
                        });
                    }
                }
            }
        }
        spans
    }
}

fn name_of(fields: &Map<String, Value>) -> &str {
    fields.get("event").and_then(Value::as_str).unwrap_or_default()
}

/// Nanoseconds since 1970.
fn time_of(fields: &Map<String, Value>) -> Option<u64> {
    let time: jiff::Timestamp = fields.get("ts")?.as_str()?.parse().ok()?;
    u64::try_from(time.as_nanosecond()).ok()
}

fn attributes(fields: &Map<String, Value>) -> Vec<KeyValue> {
    let told = fields.iter().filter(|(key, _)| !NOT_ATTRIBUTES.contains(&key.as_str()));
    told.map(|(key, value)| field(&format!("packrat.{key}"), value)).collect()
}

fn span(
    session: u64,
    fields: &Map<String, Value>,
    end: u64,
    events: Vec<Event>,
    random: &mut impl FnMut() -> u64,
) -> Span {
    let seconds = fields.get("seconds").and_then(Value::as_f64).unwrap_or_default().max(0.0);
    let trace_id = [random().to_be_bytes(), random().to_be_bytes()].concat();
    let mut attributes = attributes(fields);
    attributes.push(field("packrat.session", &session.into()));
    Span {
        trace_id,
        span_id: random().to_be_bytes().to_vec(),
        name: "packrat.session".to_owned(),
        kind: SERVER_KIND,
        start_time_unix_nano: end.saturating_sub((seconds * 1e9) as u64),
        end_time_unix_nano: end,
        attributes,
        events,
    }
}

/// The message with these spans.
pub(crate) fn request(spans: Vec<Span>, instance: &str) -> ExportTraceServiceRequest {
    let scope_spans = vec![ScopeSpans { scope: scope(), spans }];
    let resource_spans = vec![ResourceSpans { resource: resource(instance), scope_spans }];
    ExportTraceServiceRequest { resource_spans }
}
