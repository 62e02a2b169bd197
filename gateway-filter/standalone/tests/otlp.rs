//! Metrics and sessions arrive at an OpenTelemetry collector. The collector is a double that uses
//! this project's own messages; tools/check-otlp compares them with OpenTelemetry's.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use packrat_otlp::messages::{Data, ExportMetricsServiceRequest, ExportTraceServiceRequest};
use prost::Message;

use crate::program::{PATIENCE, Program, socket};

/// Serves until the test ends; path, media type and body of each request.
fn collector() -> (String, Receiver<(String, String, Vec<u8>)>) {
    let server = tiny_http::Server::http("127.0.0.1:0").unwrap();
    let address = server.server_addr().to_ip().unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for mut request in server.incoming_requests() {
            let mut body = Vec::new();
            request.as_reader().read_to_end(&mut body).unwrap();
            let kind = request.headers().iter().find(|header| header.field.equiv("Content-Type"));
            let kind = kind.map(|header| header.value.to_string()).unwrap_or_default();
            let path = request.url().to_owned();
            request.respond(tiny_http::Response::empty(200)).unwrap();
            if sender.send((path, kind, body)).is_err() {
                return;
            }
        }
    });
    (format!("http://{address}"), receiver)
}

#[test]
fn metrics_and_sessions_arrive_at_a_collector() {
    let (url, received) = collector();
    let server = socket();
    let endpoint = server.local_addr().unwrap();
    let more = format!("--otlp {url} --drain-seconds 0");
    let mut gateway = Program::start(&format!("--listen 127.0.0.1:0 --endpoint {endpoint} {more}"));
    let listen = gateway.line("ready")["listen"].as_str().unwrap().to_owned();
    let client = socket();
    client.send_to(b"a question", &listen).unwrap();
    let mut buffer = [0; 100];
    let (length, _) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"a question");
    // The end of the process ends the session, and the exporter sends everything left.
    gateway.signal("-TERM");
    let (mut bytes, mut span) = (0, None);
    let begun = Instant::now();
    while bytes == 0 || span.is_none() {
        assert!(begun.elapsed() < PATIENCE, "{bytes} bytes to servers, span {span:?}");
        let Ok((path, kind, body)) = received.recv_timeout(Duration::from_secs(1)) else {
            continue;
        };
        assert_eq!(kind, "application/x-protobuf");
        match path.as_str() {
            "/v1/metrics" => bytes = bytes.max(bytes_to_server(&body)),
            "/v1/traces" => {
                let message = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
                span = Some(message.resource_spans[0].scope_spans[0].spans[0].clone());
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(bytes, 10);
    let span = span.unwrap();
    assert_eq!((span.name.as_str(), span.trace_id.len()), ("packrat.session", 16));
    assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    let keys: Vec<&str> = span.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
    for key in ["packrat.route", "packrat.reason", "packrat.to_server_bytes"] {
        assert!(keys.contains(&key), "{keys:?}");
    }
    // No client's address is sent.
    let address = client.local_addr().unwrap().ip().to_string();
    let client = span.attributes.iter().find(|attribute| attribute.key == "packrat.client");
    assert!(!format!("{client:?}").contains(&address), "{client:?}");
}

/// The value of a counter, with the route as an attribute.
fn bytes_to_server(body: &[u8]) -> i64 {
    let message = ExportMetricsServiceRequest::decode(body).unwrap();
    let metrics = &message.resource_metrics[0].scope_metrics[0].metrics;
    let metric =
        metrics.iter().find(|metric| metric.name == "packrat_to_server_bytes_total").unwrap();
    let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
    assert!(sum.is_monotonic);
    assert!(sum.data_points[0].attributes.iter().any(|attribute| attribute.key == "route"));
    sum.data_points[0].as_int.unwrap()
}

#[test]
fn an_unusable_collector_is_refused_and_a_missing_one_tolerated() {
    let start = |more: &str| {
        Program::start(&format!("--listen 127.0.0.1:0 --endpoint 127.0.0.1:9 --otlp {more}"))
    };
    let mut refused = start("https://a:4318");
    assert!(refused.line("failed")["error"].as_str().unwrap().contains("without TLS"));
    assert_eq!(refused.wait(), Some(1));
    // No collector is there, and no other program will be.
    let mut gateway = start("http://127.0.0.1:1 --drain-seconds 0");
    gateway.line("ready");
    gateway.signal("-TERM");
    gateway.line("otlp_failed");
    assert_eq!(gateway.wait(), Some(0));
}
