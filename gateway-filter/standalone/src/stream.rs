//! One live stream for many subscribers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use packrat_dataplane::log::{Level, StandardOutput};
use packrat_dataplane::{
    GatewayConfig, StreamConfig, StreamCounters, StreamFigures, StreamGauges, StreamOptions, StreamServer,
};
use serde_json::{Map, Value};
use signal_hook::iterator::Signals;

use crate::arguments::Arguments;

/// How often the counters are logged.
const REPORT: Duration = Duration::from_secs(60);
/// How often a signal is looked for.
const POLL: Duration = Duration::from_millis(50);

/// Serves the stream until a signal comes.
pub(crate) fn run(
    arguments: &Arguments,
    upstream: SocketAddr,
    signals: &mut Signals,
) -> Result<(), Box<dyn std::error::Error>> {
    let options = StreamOptions {
        listen: arguments.listen,
        upstream,
        source: arguments.stream_source,
        group: arguments.stream_group,
        static_key: None,
        limits: GatewayConfig::default(),
        stream: StreamConfig::default(),
    };
    let server = StreamServer::start(options).map_err(|error| {
        format!(
            "cannot serve the stream from {upstream} at {}: {error}; check both addresses",
            arguments.listen
        )
    })?;
    let fields = [
        ("listen", server.listen().to_string().into()),
        ("stream", server.upstream().to_string().into()),
        ("version", env!("CARGO_PKG_VERSION").into()),
    ];
    StandardOutput::line(Level::Info, "ready", fields);
    let mut reported = Instant::now();
    while signals.pending().next().is_none() {
        std::thread::sleep(POLL);
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            report(&server.figures());
        }
    }
    report(&server.figures());
    Ok(())
}

fn report(figures: &StreamFigures) {
    let mut counters = Map::new();
    let names = StreamCounters::FIELDS.iter().chain(StreamGauges::FIELDS).map(|(name, _)| *name);
    let values = figures.counters.values().into_iter().chain(figures.gauges.values());
    counters.extend(names.zip(values).map(|(name, value)| (name.to_owned(), Value::from(value))));
    let fields = [
        ("sent", figures.sent.into()),
        ("dropped", figures.dropped.into()),
        ("foreign", figures.foreign.into()),
        ("counters", counters.into()),
    ];
    StandardOutput::line(Level::Info, "stream", fields);
}
