//! A gateway that is asked over HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use packrat_api::status::Sessions;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use url::Url;

use super::cluster::{Forward, Place, told};
use super::error::OperateError;

/// Time within which a gateway must answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer that is read.
const LARGEST_ANSWER: u64 = 64 << 20;

/// Envoy's counts of TCP connections to servers.
const TCP_CONNECTIONS: &str =
    "/stats/prometheus?filter=%5Ecluster%5C.servers-%5B0-9%5D%2B%5C.upstream_cx_(active|total)%24";

/// The port in a line of Prometheus text about TCP connections, the value, and whether it counts
/// all connections so far.
fn tcp_connections(line: &str) -> Option<(u16, f64, bool)> {
    let counts = line.strip_prefix("envoy_cluster_upstream_cx_")?;
    let (what, rest) = counts.split_once("{envoy_cluster_name=\"servers-")?;
    let (port, value) = rest.split_once("\"}")?;
    let is_total = match what {
        "total" => true,
        "active" => false,
        _ => return None,
    };
    Some((port.parse().ok()?, value.trim().parse().ok()?, is_total))
}

/// A gateway that commands ask.
#[derive(Debug, Clone)]
pub(crate) struct AskedGateway {
    base: Url,
    agent: ureq::Agent,
    /// The gateway's place in a cluster, and the way to it.
    within: Option<(Place, Arc<Forward>)>,
}

/// The status of a gateway, to calculate with.
pub(crate) type Status = packrat_api::status::Status<f64>;
/// A route of it.
pub(crate) type Route = packrat_api::status::RouteStatus<f64>;
/// Log lines of a gateway.
pub(crate) type Events = packrat_api::status::Events<Map<String, Value>>;

impl AskedGateway {
    pub(crate) fn new(base: Url) -> Self {
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(ANSWER_TIMEOUT))
            .http_status_as_error(true)
            .build()
            .into();
        Self { base, agent, within: None }
    }

    /// A gateway in a cluster.
    pub(crate) fn forwarded(place: Place, forward: Forward) -> Result<Self, OperateError> {
        let text = format!("http://{}", forward.address());
        let base = text.parse().map_err(|_| {
            OperateError::NoGateway(format!("{text}, where {place} is forwarded to, is no URL"))
        })?;
        Ok(Self { within: Some((place, Arc::new(forward))), ..Self::new(base) })
    }

    /// The gateway's place in a cluster.
    pub(crate) fn place(&self) -> Option<&Place> {
        self.within.as_ref().map(|(place, _)| place)
    }

    /// The gateway's Pod, or its URL.
    pub(crate) fn name(&self) -> String {
        self.place().map_or_else(|| self.base.to_string(), Place::to_string)
    }

    /// The host of its URL.
    pub(crate) fn host(&self) -> Option<&str> {
        self.base.host_str()
    }

    pub(crate) fn url(&self) -> &Url {
        &self.base
    }

    /// The body of the answer to a GET.
    pub(crate) fn text(&self, path: &str) -> Result<String, OperateError> {
        self.get(path).map_err(|source| self.unreachable(path, source))
    }

    fn target(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        let (path, query) =
            path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        url.set_path(path);
        url.set_query(query);
        url
    }

    fn get(&self, path: &str) -> Result<String, ureq::Error> {
        let mut answer = self.agent.get(self.target(path).as_str()).call()?;
        answer.body_mut().with_config().limit(LARGEST_ANSWER).read_to_string()
    }

    fn unreachable(&self, path: &str, source: ureq::Error) -> OperateError {
        match &self.within {
            Some((place, forward)) => OperateError::PodUnreachable {
                pod: place.to_string(),
                problem: forward.trouble().unwrap_or_else(|| told(&source)),
            },
            None => OperateError::Unreachable { url: self.target(path), source: Box::new(source) },
        }
    }

    fn json<T: DeserializeOwned>(&self, path: &str) -> Result<T, OperateError> {
        self.parse(&self.text(path)?)
    }

    fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T, OperateError> {
        serde_json::from_str(text).map_err(|error| OperateError::NotAGateway {
            url: self.base.clone(),
            problem: error.to_string(),
        })
    }

    pub(crate) fn status(&self) -> Result<Status, OperateError> {
        self.json("/packrat")
    }

    pub(crate) fn sessions(&self, limit: usize) -> Result<Sessions, OperateError> {
        self.json(&format!("/packrat/sessions?limit={limit}"))
    }

    /// A session by its number, with the engine's counters.
    pub(crate) fn session(&self, number: u64) -> Result<Sessions, OperateError> {
        self.json(&format!("/packrat/sessions?session={number}"))
    }

    /// The sessions of the client at this address, with or without a port; the same.
    pub(crate) fn sessions_of(&self, address: &str) -> Result<Sessions, OperateError> {
        self.json(&format!("/packrat/sessions?client={address}"))
    }

    pub(crate) fn events(&self, after: u64) -> Result<Events, OperateError> {
        self.json(&format!("/packrat/events?after={after}"))
    }

    /// The events within a session after number `after`; observes it for a while. `None` without
    /// such a session.
    pub(crate) fn session_events(
        &self,
        session: u64,
        after: u64,
    ) -> Result<Option<Events>, OperateError> {
        let path = format!("/packrat/events?session={session}&after={after}");
        match self.get(&path) {
            Ok(text) => self.parse(&text).map(Some),
            Err(ureq::Error::StatusCode(404)) => Ok(None),
            Err(source) => Err(self.unreachable(&path, source)),
        }
    }

    /// TCP connections that are passed through, by the gateway's port: current ones, and all so
    /// far. Empty for a gateway without Envoy.
    pub(crate) fn tcp_connections(&self) -> BTreeMap<u16, (f64, f64)> {
        let text = self.get(TCP_CONNECTIONS).unwrap_or_default();
        let mut found = BTreeMap::<u16, (f64, f64)>::new();
        for line in text.lines() {
            let Some((port, value, is_total)) = tcp_connections(line) else { continue };
            let of_port = found.entry(port).or_default();
            *(if is_total { &mut of_port.1 } else { &mut of_port.0 }) = value;
        }
        found
    }

    /// Prometheus text, wherever this gateway has it.
    pub(crate) fn metrics(&self) -> Result<String, OperateError> {
        self.text("/stats/prometheus").or_else(|_| self.text("/metrics"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_connections_are_those_of_servers() {
        let line = |name: &str| format!("envoy_cluster_upstream_cx_{name}");
        let read = |name: &str| tcp_connections(&line(name));
        assert_eq!(read("active{envoy_cluster_name=\"servers-443\"} 3"), Some((443, 3.0, false)));
        assert_eq!(read("total{envoy_cluster_name=\"servers-443\"} 10"), Some((443, 10.0, true)));
        for other in [
            "total{envoy_cluster_name=\"packrat-operator\"} 1",
            "connect_fail{envoy_cluster_name=\"servers-443\"} 1",
            "active{envoy_cluster_name=\"servers-web\"} 1",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
        assert_eq!(tcp_connections("# TYPE envoy_cluster_upstream_cx_active gauge"), None);
    }
}
