//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use packrat_dataplane::log::{Clients, Level};
use packrat_dataplane::{RouteConfig, StreamRoute, route_from_json};

/// Packrat's gateway on a socket of its own: forwards UDP between clients and servers and repairs
/// what the last mile loses.
#[derive(Debug, Parser)]
#[command(name = "packrat-gateway", version)]
pub(crate) struct Arguments {
    /// Address that clients send to.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: SocketAddr,

    /// Server to forward to; may be given several times.
    #[arg(
        long = "endpoint",
        value_name = "ADDR",
        required_unless_present_any = ["config", "stream"],
        conflicts_with_all = ["config", "stream"]
    )]
    endpoints: Vec<SocketAddr>,

    /// JSON file with the configuration of the route, instead of --endpoint.
    #[arg(long, value_name = "FILE", conflicts_with = "stream")]
    config: Option<PathBuf>,

    /// Instead of forwarding: a live stream arrives at this address (of this host, or a multicast
    /// group, which is joined) and goes to all clients that subscribe at the --listen address.
    #[arg(long, value_name = "ADDR")]
    pub(crate) stream: Option<SocketAddr>,

    /// The only host that may send the stream.
    #[arg(long, value_name = "IP", requires = "stream")]
    pub(crate) stream_source: Option<IpAddr>,

    /// Multicast group to which the stream is sent once, instead of a copy to each subscriber.
    #[arg(long, value_name = "ADDR", requires = "stream")]
    pub(crate) stream_group: Option<SocketAddr>,

    /// Subscribers of the stream at the same time.
    #[arg(long, value_name = "N", requires = "stream", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) stream_clients: u32,

    /// Threads, each with a socket of its own [default: one per processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// Seconds between SIGTERM and the end of the process. Forwarding and running assistance
    /// continue meanwhile; no new client is assisted, and assisted clients get a Goodbye at the end.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=3600))]
    drain_seconds: u16,

    /// Address to serve Prometheus metrics (/metrics), the overview page (/) and the status
    /// (/packrat) on, over plain HTTP.
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<SocketAddr>,

    /// An OpenTelemetry collector (OTLP over HTTP, without TLS) that metrics and sessions, as spans, are sent to: http://HOST:4318
    #[arg(long, value_name = "URL", env = packrat_otlp::ENDPOINT_VARIABLE)]
    pub(crate) otlp: Option<String>,

    /// Lowest level of log lines: debug, info, warning or error. POST /packrat/log?level= changes
    /// it later.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: Level,

    /// Clients in log lines: hashed, shown or hidden.
    #[arg(long, value_name = "HOW", default_value = "hashed")]
    pub(crate) log_clients: Clients,
}

impl Arguments {
    /// Time for which the gateway still forwards after SIGTERM.
    pub(crate) fn drain_time(&self) -> Duration {
        Duration::from_secs(self.drain_seconds.into())
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.map_or_else(
            || std::thread::available_parallelism().map_or(1, usize::from),
            usize::from,
        )
    }

    /// The route of `--config`, or one named "default" for the endpoints.
    pub(crate) fn route_config(&self) -> Result<RouteConfig, Box<dyn std::error::Error>> {
        if let Some(upstream) = self.stream {
            let stream = StreamRoute {
                sources: self.stream_source.into_iter().collect(),
                group: self.stream_group,
                maximum_clients: self.stream_clients,
                ..StreamRoute::new(upstream)
            };
            return Ok(RouteConfig::of_stream("default", stream)?);
        }
        let Some(path) = &self.config else {
            return Ok(RouteConfig::new("default", self.endpoints.iter().copied())?);
        };
        let text = std::fs::read(path).map_err(|error| {
            format!("cannot read the configuration {}: {error}", path.display())
        })?;
        route_from_json(&text).map_err(|error| format!("{}: {error}", path.display()).into())
    }
}
