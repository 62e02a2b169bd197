//! The gateway on a socket of its own, for laptops, edge boxes and tests.
//!
//! ```text
//! packrat-gateway --listen ADDR --endpoint ADDR [--endpoint ADDR...] [--workers N] [--metrics ADDR] [--drain-seconds N]
//! packrat-gateway --listen ADDR --config FILE [--workers N] [--metrics ADDR] [--drain-seconds N]
//! packrat-gateway --listen ADDR --stream ADDR [--stream-source IP] [--stream-group ADDR]
//! ```
//!
//! `--config` names a JSON file with the configuration of one route, the same that Envoy's filter
//! takes (see the documentation of `packrat-dataplane`). `--metrics` serves, over plain HTTP,
//! Prometheus text at `/metrics`, a page for people at `/`, and the paths that `packrat-admin`
//! documents below `/packrat`. Port 0 picks a free port. Every client of that port can change the
//! format of the log: keep it on the loopback interface or behind a policy.
//!
//! With `--stream`, or a `stream` in the configuration, the route is one live stream for many
//! subscribers (docs/MEDIA.md).
//!
//! Log lines are JSON objects on standard output with the keys `ts`, `level` and `event`
//! (docs/METRICS.md). The line with `"event":"ready"` has `listen`, `metrics` and `stream`, the
//! addresses in use.
//!
//! SIGTERM drains: new clients are no longer assisted. For `--drain-seconds N` (default 5) the
//! gateway still forwards, and still assists its current clients; then it sends them Goodbye, so
//! that they stop waiting for repairs. A second signal, or SIGINT, ends the process at once. The
//! exit code is 0.
#![forbid(unsafe_code)]

mod arguments;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use packrat_admin::Server;
use packrat_dataplane::log::{Level, StandardOutput};
use packrat_dataplane::socket::{bind_reuse_port, local_address};
use packrat_dataplane::{Dataplane, Options};
use packrat_otlp::Exporter;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use arguments::Arguments;

/// Keeps small allocations apart from datagrams, and returns memory to the operating system seconds
/// after a burst of thousands of sessions; the C library's allocator does not.
#[cfg(not(packrat_sanitized))]
#[global_allocator]
static GLOBAL_ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Interval at which a draining gateway checks for a second signal.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            StandardOutput::line(Level::Error, "failed", [("error", error.to_string().into())]);
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    // First of all, so that an early signal already ends the process in order.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let workers = arguments.workers();
    let config = arguments.route_config()?;
    let dataplane =
        std::sync::Arc::new(Dataplane::start(Options { workers }, Box::new(StandardOutput))?);
    dataplane.logger().set_level(arguments.log_level);
    dataplane.logger().set_clients(arguments.log_clients);
    let route = dataplane.configure(config)?;

    let mut listen = arguments.listen;
    let mut attachments = Vec::with_capacity(workers);
    for worker in 0..workers {
        let socket = bind_reuse_port(listen).map_err(|error| {
            format!("cannot listen on {listen}: {error}; choose another --listen address")
        })?;
        // With port 0, the first socket gets the port, and the others join it.
        listen = local_address(std::os::fd::AsFd::as_fd(&socket)).unwrap_or(listen);
        attachments.push(dataplane.listen(&route, listen, worker, socket)?);
    }
    let instance = std::env::var("HOSTNAME").unwrap_or_else(|_| listen.to_string());
    let exporter = arguments
        .otlp
        .as_ref()
        .filter(|endpoint| !endpoint.is_empty())
        .map(|endpoint| Exporter::start(endpoint, &instance, &dataplane))
        .transpose()?;
    let stream = route.stream_upstream();
    if stream.is_none() && route.summary().stream.is_some() {
        return Err("the stream cannot be served, as the line stream_unavailable says".into());
    }
    let metrics =
        arguments.metrics.map(|address| Server::start(address, &dataplane)).transpose()?;
    let address = metrics.as_ref().map(|server| server.address().to_string());
    let fields = [
        ("listen", listen.to_string().into()),
        ("metrics", address.map_or(Value::Null, Value::from)),
        ("stream", stream.map_or(Value::Null, |stream| stream.to_string().into())),
        ("version", env!("CARGO_PKG_VERSION").into()),
    ];
    StandardOutput::line(Level::Info, "ready", fields);
    wait_for_the_end(&mut signals, &dataplane, arguments.drain_time());
    drop(metrics);
    dataplane.shutdown();
    // The exporter still sends the spans of the ended sessions.
    drop(exporter);
    drop(attachments);
    Ok(())
}

/// Returns when the process must end.
fn wait_for_the_end(signals: &mut Signals, dataplane: &Dataplane, drain_time: Duration) {
    if signals.forever().next() != Some(SIGTERM) {
        return;
    }
    dataplane.drain();
    let begun = Instant::now();
    while begun.elapsed() < drain_time && signals.pending().next().is_none() {
        std::thread::sleep(SIGNAL_INTERVAL.min(drain_time));
    }
}
