//! The gateways that a command is about: one named by its URL, or a cluster's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clap::Args;
use kube::ResourceExt;
use packrat_api::status::{ComparisonStatus, Stage};
use packrat_figures::Figures;
use packrat_figures::comparison::Comparison;
use packrat_operator::envoy::METRICS_PORT;
use packrat_operator::resource::EdgeGateway;
use url::Url;

use super::cluster::{Cluster, ClusterOptions, Place, is_ready};
use super::error::OperateError;
use super::gateway::{AskedGateway, Route, Status};

/// Gateways that are asked at the same time.
const PARALLEL_GATEWAYS: usize = 16;

/// Which gateways.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// Gateway without Kubernetes: the URL of Envoy's administration port or of
    /// `packrat-gateway --metrics`, for example http://127.0.0.1:9901
    #[arg(long, value_name = "URL", env = "PACKRAT_GATEWAY")]
    gateway: Option<Url>,

    /// Only this EdgeGateway, or the sidecars of this name
    #[arg(long, value_name = "NAME", conflicts_with = "gateway")]
    edge_gateway: Option<String>,

    #[command(flatten)]
    pub(crate) cluster: ClusterOptions,
}

impl Target {
    /// The gateway that is named by its URL.
    pub(crate) fn single(&self) -> Option<AskedGateway> {
        self.gateway.clone().map(AskedGateway::new)
    }

    /// True if no option chooses gateways.
    pub(crate) fn is_default(&self) -> bool {
        let ClusterOptions { namespace, all_namespaces, context, kubeconfig } = &self.cluster;
        self.gateway.is_none()
            && self.edge_gateway.is_none()
            && namespace.is_none()
            && !all_namespaces
            && context.is_none()
            && kubeconfig.is_none()
    }

    /// The gateway that is named, or all ready ones of the namespace.
    pub(crate) fn gateways(&self) -> Result<Gateways, OperateError> {
        match self.single() {
            Some(gateway) => Ok(Gateways { members: vec![gateway], _cluster: None }),
            None => self.of(Cluster::connect(&self.cluster, false)?),
        }
    }

    /// All ready gateways of the namespace that the cluster is looked at in.
    pub(crate) fn of(&self, cluster: Cluster) -> Result<Gateways, OperateError> {
        let mut members = Vec::new();
        for (place, pod) in cluster.gateway_pods()? {
            if is_ready(&pod) && self.wants(&place.edge_gateway) {
                members.push(forwarded(&cluster, place)?);
            }
        }
        if members.is_empty() {
            return Err(self.none(&cluster)?);
        }
        Ok(Gateways { members, _cluster: Some(cluster) })
    }

    pub(crate) fn wants(&self, edge_gateway: &str) -> bool {
        self.edge_gateway.as_deref().is_none_or(|wanted| wanted == edge_gateway)
    }

    /// Why there is no gateway to ask.
    fn none(&self, cluster: &Cluster) -> Result<OperateError, OperateError> {
        let here = cluster.namespace().map_or_else(
            || "in this cluster".to_owned(),
            |namespace| format!("in namespace {namespace}"),
        );
        let names: Vec<String> = cluster
            .edge_gateways()?
            .iter()
            .map(ResourceExt::name_any)
            .filter(|name| self.wants(name))
            .collect();
        if !names.is_empty() {
            return Ok(OperateError::NoGateway(format!(
                "no gateway of EdgeGateway {} is ready {here}; `packrat check` says why",
                names.join(", ")
            )));
        }
        let wanted = self.edge_gateway.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let everywhere = kube::Api::<EdgeGateway>::all(cluster.client().clone());
        // A user who may not list other namespaces gets an answer for this one only.
        let everything = cluster.list(&everywhere, "").unwrap_or_default();
        let mut namespaces: Vec<String> =
            everything.iter().filter_map(ResourceExt::namespace).collect();
        namespaces.sort();
        namespaces.dedup();
        let hint = if namespaces.is_empty() {
            "make one (docs/QUICKSTART.md), or name a gateway without Kubernetes with --gateway URL"
                .to_owned()
        } else {
            format!("there are some in {}: choose with -n, or all with -A", namespaces.join(", "))
        };
        Ok(OperateError::NoGateway(format!("there is no EdgeGateway{wanted} {here}; {hint}")))
    }
}

/// A gateway behind a forwarded port.
pub(crate) fn forwarded(cluster: &Cluster, place: Place) -> Result<AskedGateway, OperateError> {
    let forward = cluster.forward(&place.namespace, &place.pod, METRICS_PORT)?;
    AskedGateway::forwarded(place, forward)
}

/// The gateways of a command.
#[derive(Debug)]
pub(crate) struct Gateways {
    pub(crate) members: Vec<AskedGateway>,
    /// Forwarded connections live in its runtime.
    _cluster: Option<Cluster>,
}

/// A route, on one gateway or on all gateways of an EdgeGateway, and its events in a period.
#[derive(Debug, Clone)]
pub(crate) struct RouteFigures {
    /// `None` for a gateway that is named by its URL.
    pub(crate) place: Option<Place>,
    /// Gateways that are added up here.
    pub(crate) gateways: usize,
    pub(crate) route: Route,
    pub(crate) figures: Figures,
    /// Gateways of these on which assistance has stopped by itself, and on which it is on trial.
    pub(crate) stopped: usize,
    pub(crate) on_trial: usize,
}

impl RouteFigures {
    /// Sessions of all sizes on all gateways.
    pub(crate) fn comparison(&self) -> Comparison {
        let mut all = Comparison::default();
        for size in self.route.comparison.iter().flat_map(|status| &status.sizes) {
            all.merge(&Comparison::from_buckets(&size.assisted, &size.holdout));
        }
        all
    }
}

/// Figures of the routes, and the gateways that could not be asked.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) routes: Vec<RouteFigures>,
    pub(crate) problems: Vec<OperateError>,
}

/// TCP connections of a route that are passed through, beside the gateway's own metrics.
pub(crate) const TCP_CONNECTIONS: &str = "tcp_connections";
/// TCP connections of a route since the gateways run.
const TCP_CONNECTIONS_TOTAL: &str = "tcp_connections_total";

type Reading = BTreeMap<String, f64>;

impl Gateways {
    /// Asks all gateways at once. The answers are in the gateways' order.
    pub(crate) fn each<T: Send>(&self, ask: impl Fn(&AskedGateway) -> T + Sync) -> Vec<T> {
        self.each_numbered(|_, gateway| ask(gateway))
    }

    /// Asks all gateways at once, each with its number.
    pub(crate) fn each_numbered<T: Send>(
        &self,
        ask: impl Fn(usize, &AskedGateway) -> T + Sync,
    ) -> Vec<T> {
        let mut answers = Vec::new();
        let numbered: Vec<(usize, &AskedGateway)> = self.members.iter().enumerate().collect();
        for some in numbered.chunks(PARALLEL_GATEWAYS) {
            let ask = &ask;
            answers.extend(std::thread::scope(|scope| {
                let threads: Vec<_> = some
                    .iter()
                    .map(|&(number, gateway)| scope.spawn(move || ask(number, gateway)))
                    .collect();
                threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<_>>()
            }));
        }
        answers
    }

    /// Measures each route for `window`. The gateways of an EdgeGateway are added up, unless
    /// `by_pod`. Fails when no gateway answers.
    pub(crate) fn figures(&self, window: Duration, by_pod: bool) -> Result<Measured, OperateError> {
        let ask = |gateway: &AskedGateway| (Instant::now(), gateway.status());
        let before = self.each(ask);
        std::thread::sleep(window);
        let after = self.each(|gateway| (Instant::now(), with_tcp_connections(gateway)));
        let mut problems = Vec::new();
        let mut groups: BTreeMap<(Option<Place>, String), Group> = BTreeMap::new();
        for ((gateway, (begun, before)), (ended, after)) in
            self.members.iter().zip(before).zip(after)
        {
            match (before, after) {
                (Ok(before), Ok(after)) => {
                    let seconds = ended.saturating_duration_since(begun).as_secs_f64();
                    let mut place = gateway.place().cloned();
                    if let Some(place) = place.as_mut().filter(|_| !by_pod) {
                        place.pod.clear();
                    }
                    for route in &after.routes {
                        let key = (place.clone(), route.route.clone());
                        let group = groups.entry(key).or_insert_with(|| Group::new(route));
                        group.add(&before, route, seconds);
                    }
                }
                (Err(problem), _) | (_, Err(problem)) => problems.push(problem),
            }
        }
        if problems.len() == self.members.len()
            && let Some(problem) = problems.pop()
        {
            return Err(problem);
        }
        let routes = groups.into_iter().map(|((place, _), group)| group.figures(place)).collect();
        Ok(Measured { routes, problems })
    }
}

/// The status of a gateway, with the TCP connections of each route beside its own metrics.
fn with_tcp_connections(gateway: &AskedGateway) -> Result<Status, OperateError> {
    let mut status = gateway.status()?;
    let mut found = gateway.tcp_connections();
    for route in &mut status.routes {
        let ports: BTreeSet<u16> = route.listeners.iter().map(|listener| listener.port()).collect();
        for (active, total) in ports.iter().filter_map(|port| found.remove(port)) {
            *route.metrics.entry(TCP_CONNECTIONS.to_owned()).or_default() += active;
            *route.metrics.entry(TCP_CONNECTIONS_TOTAL.to_owned()).or_default() += total;
        }
    }
    Ok(status)
}

/// Readings of a route on several gateways, added up.
struct Group {
    route: Route,
    gateways: usize,
    before: Reading,
    after: Reading,
    seconds: f64,
    round_trips: BTreeMap<&'static str, (f64, f64)>,
    comparison: Option<ComparisonStatus>,
    stopped: usize,
    on_trial: usize,
}

/// Figures whose mean over the gateways is shown, instead of their sum.
const ROUND_TRIPS: [&str; 2] =
    ["packrat_last_mile_round_trip_microseconds", "packrat_far_round_trip_microseconds"];

impl Group {
    fn new(route: &Route) -> Self {
        Self {
            route: route.clone(),
            gateways: 0,
            before: Reading::new(),
            after: Reading::new(),
            seconds: 0.0,
            round_trips: BTreeMap::new(),
            comparison: None,
            stopped: 0,
            on_trial: 0,
        }
    }

    /// Sessions of several gateways are compared together.
    fn compare(&mut self, status: &ComparisonStatus) {
        match status.stage {
            Stage::Assisting => {}
            Stage::Stopped => self.stopped += 1,
            Stage::Trial => self.on_trial += 1,
        }
        let all = self.comparison.get_or_insert_with(|| ComparisonStatus {
            sizes: Vec::new(),
            retry_seconds: None,
            ..status.clone()
        });
        for size in &status.sizes {
            let place = all.sizes.iter().position(|known| known.least_bytes == size.least_bytes);
            let Some(known) = place.and_then(|place| all.sizes.get_mut(place)) else {
                all.sizes.push(size.clone());
                continue;
            };
            for (sum, more) in
                [(&mut known.assisted, &size.assisted), (&mut known.holdout, &size.holdout)]
            {
                for (bucket, count) in more {
                    let sum = sum.entry(*bucket).or_default();
                    *sum = sum.saturating_add(*count);
                }
            }
        }
    }

    fn add(&mut self, before: &Status, route: &Route, seconds: f64) {
        let nothing = Reading::new();
        let earlier = before.routes.iter().find(|earlier| earlier.route == route.route);
        let earlier = earlier.map_or(&nothing, |earlier| &earlier.metrics);
        for (series, value) in &route.metrics {
            // A counter that went back started again; in a sum with others that would no longer be
            // seen.
            let before =
                earlier.get(series).copied().filter(|before| before <= value).unwrap_or_default();
            *self.before.entry(series.clone()).or_default() += before;
            *self.after.entry(series.clone()).or_default() += value;
        }
        for series in ROUND_TRIPS {
            let value = route.metrics.get(series).copied().unwrap_or_default();
            if value > 0.0 {
                let weight =
                    route.metrics.get("packrat_sessions").copied().unwrap_or_default().max(1.0);
                let sum = self.round_trips.entry(series).or_default();
                sum.0 += value * weight;
                sum.1 += weight;
            }
        }
        if let Some(comparison) = &route.comparison {
            self.compare(comparison);
        }
        self.seconds = self.seconds.max(seconds);
        self.gateways += 1;
    }

    fn figures(mut self, place: Option<Place>) -> RouteFigures {
        for (series, (sum, weight)) in self.round_trips {
            self.after.insert(series.to_owned(), sum / weight);
        }
        self.route.metrics = self.after;
        self.route.comparison = self.comparison;
        RouteFigures {
            stopped: self.stopped,
            on_trial: self.on_trial,
            place,
            gateways: self.gateways,
            figures: Figures::between(&self.before, &self.route.metrics, self.seconds),
            route: self.route,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_figures::comparison::Confidence;
    use serde_json::json;

    fn status(received: f64, sessions: f64, round_trip: f64) -> Status {
        serde_json::from_value(json!({ "version": "0", "routes": [{
            "route": "web",
            "configuration": {
                "gateway": "shop/edge", "endpoints": [], "assist": true, "maximum_sessions": 1, "maximum_sessions_in_force": 1,
            },
            "metrics": {
                "packrat_to_client_bytes_total": received, "packrat_sessions": sessions,
                "packrat_last_mile_round_trip_microseconds": round_trip,
            },
        }]}))
        .unwrap()
    }

    #[test]
    fn gateways_add_up_and_a_restarted_one_counts_from_zero() {
        let after =
            [status(2000.0, 1.0, 4000.0), status(500.0, 3.0, 8000.0), status(0.0, 0.0, 0.0)];
        let before = [status(1000.0, 1.0, 4000.0), status(9e9, 3.0, 8000.0), status(0.0, 0.0, 0.0)];
        let mut group = Group::new(&after[0].routes[0]);
        for (before, after) in before.iter().zip(&after) {
            group.add(before, &after.routes[0], 1.0);
        }
        let all = group.figures(None);
        assert_eq!(all.gateways, 3);
        assert_eq!(all.figures.sessions, 4.0);
        assert_eq!(all.figures.goodput_bits, 8.0 * 1500.0);
        assert_eq!(all.figures.last_mile_round_trip, Some(0.007));
    }

    #[test]
    fn sessions_of_all_gateways_are_compared_together() {
        let with = |stage: &str, assisted: u64, holdout: u64| {
            let mut status = status(0.0, 0.0, 0.0);
            let comparison = json!({ "holdout": 0.05, "stage": stage, "sizes": [
                { "least_bytes": 256_000, "assisted": { "260": assisted }, "holdout": {} },
                { "least_bytes": 1_000_000, "assisted": {}, "holdout": { "240": holdout } },
            ]});
            status.routes[0].comparison = Some(serde_json::from_value(comparison).unwrap());
            status
        };
        let gateways = [with("assisting", 20, 15), with("stopped", 15, 16), with("trial", 0, 0)];
        let mut group = Group::new(&gateways[0].routes[0]);
        for gateway in &gateways {
            group.add(gateway, &gateway.routes[0], 1.0);
        }
        let all = group.figures(None);
        assert_eq!((all.stopped, all.on_trial), (1, 1));
        let comparison = all.comparison();
        assert_eq!((comparison.assisted.count(), comparison.holdout.count()), (35, 31));
        // Bucket 260 is a doubling above bucket 240.
        let gain = comparison.benefit(Confidence::Usual).interval().unwrap();
        assert!((gain.estimate - 2.0).abs() < 1e-9, "{gain:?}");
    }
}
