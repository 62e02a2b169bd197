//! The documents of a gateway: [`packrat_api::status`] filled in.

use std::collections::BTreeMap;
use std::net::IpAddr;

use packrat_api::status::{Distribution, Events, RouteStatus, Sessions, Status};
use packrat_dataplane::log::Line;
use packrat_dataplane::metrics::{Definition, Kind, Metric, Summary, definitions, process};
use packrat_dataplane::socket::network;
use packrat_dataplane::{Dataplane, Route};

/// All routes with their configuration and metrics.
pub(crate) fn status(dataplane: Option<&Dataplane>) -> Status {
    let routes = dataplane.map(Dataplane::routes).unwrap_or_default();
    let routes: Vec<RouteStatus> = routes.iter().map(|route| route_status(route)).collect();
    let listeners = routes.iter().flat_map(|route| route.listeners.iter().copied());
    let servers = routes.iter().flat_map(|route| route.configuration.endpoints.iter().copied());
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        draining: dataplane.is_some_and(Dataplane::is_draining),
        process: by_series(process::definitions(), process::values()),
        network: network(listeners, servers),
        routes,
    }
}

fn route_status(route: &Route) -> RouteStatus {
    RouteStatus {
        route: route.name().to_owned(),
        public_key: route.public_key(),
        listeners: route.listeners(),
        configuration: route.summary(),
        metrics: by_series(definitions(), route.metrics().values()),
        distributions: route
            .metrics()
            .summaries()
            .iter()
            .map(|summary| (summary.series(), distribution(summary)))
            .collect(),
        comparison: route.comparison(),
    }
}

/// Counters and gauges by series.
fn by_series(
    definitions: &[Definition],
    values: impl IntoIterator<Item = u64>,
) -> BTreeMap<String, u64> {
    definitions
        .iter()
        .zip(values)
        .filter(|(definition, _)| definition.kind != Kind::Histogram)
        .map(|(definition, value)| (definition.series(), value))
        .collect()
}

/// Number, mean and quantiles, in the unit of the histogram's name.
fn distribution(summary: &Summary) -> Distribution {
    Distribution {
        count: summary.count,
        mean: summary.mean(),
        p50: summary.quantile(0.5),
        p90: summary.quantile(0.9),
        p99: summary.quantile(0.99),
    }
}

/// Live sessions of all routes, at most `limit`.
pub(crate) fn sessions(dataplane: Option<&Dataplane>, limit: usize) -> Sessions {
    let mut all = Sessions::default();
    let Some(dataplane) = dataplane else { return all };
    for route in dataplane.routes() {
        all.total += route.metrics().get(Metric::Sessions);
        all.sessions.extend(dataplane.sessions(&route, limit));
    }
    all.sessions.sort_by_key(|session| std::cmp::Reverse(session.to_client_bytes));
    all.sessions.truncate(limit);
    all
}

/// One session, in detail.
pub(crate) fn session(dataplane: Option<&Dataplane>, number: u64) -> Sessions {
    let sessions: Vec<_> =
        dataplane.and_then(|dataplane| dataplane.session(number)).into_iter().collect();
    Sessions { total: sessions.len() as u64, sessions }
}

/// The sessions of a client, in detail.
pub(crate) fn sessions_of_client(
    dataplane: Option<&Dataplane>,
    client: IpAddr,
    port: Option<u16>,
) -> Sessions {
    let sessions =
        dataplane.map(|dataplane| dataplane.sessions_of_client(client, port)).unwrap_or_default();
    Sessions { total: sessions.len() as u64, sessions }
}

/// The last log lines after number `after`.
pub(crate) fn events(dataplane: Option<&Dataplane>, after: u64, limit: usize) -> Events<Line> {
    let events =
        dataplane.map(|dataplane| dataplane.logger().recent(after, limit)).unwrap_or_default();
    let newest = events
        .last()
        .map(|line| line.number)
        .or_else(|| dataplane.map(|dataplane| dataplane.logger().newest()))
        .unwrap_or_default();
    Events { newest, events }
}
