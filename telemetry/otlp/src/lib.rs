//! Sends a gateway's metrics, and its sessions as spans, to an OpenTelemetry collector: OTLP over
//! HTTP (protobuf), as <https://opentelemetry.io/docs/specs/otlp/> has it. Off unless `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector.
//!
//! [`metrics()`] and [`Sessions`] make the messages, without a socket and without a clock;
//! [`Exporter`] is the thread that sends them. What cannot be sent is dropped: metrics are
//! cumulative, so that the next message includes the same and more; spans are lost. A span is made
//! of the log line of a session's end, so the log's limit (50 lines of an event per second) also
//! limits spans.
#![forbid(unsafe_code)]

mod attributes;
mod exporter;
mod headers;
pub mod messages;
mod metrics;
mod spans;

pub use exporter::{ENDPOINT_VARIABLE, EndpointError, Exporter};
pub use headers::{HEADERS_VARIABLE, PLAIN_HEADERS_VARIABLE};
pub use metrics::metrics;
pub use spans::{MOST_EVENTS, MOST_SESSIONS, Sessions};
