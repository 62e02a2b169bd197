//! A gateway that is asked over HTTP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use url::Url;

use super::cluster::{Forward, Place, told};
use super::error::OperateError;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer that is read.
const LARGEST_ANSWER: u64 = 64 << 20;

/// One gateway.
#[derive(Debug, Clone)]
pub(crate) struct Gateway {
    base: Url,
    agent: ureq::Agent,
    /// Where it is in a cluster, and the way to it.
    within: Option<(Place, Arc<Forward>)>,
}

/// What `/packrat` says.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Status {
    /// The gateway's version.
    pub(crate) version: String,
    /// Whether it is going away.
    #[serde(default)]
    pub(crate) draining: bool,
    /// Metrics of its process, by series.
    #[serde(default)]
    pub(crate) process: BTreeMap<String, f64>,
    /// Its routes.
    pub(crate) routes: Vec<Route>,
}

/// A route of `/packrat`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Route {
    /// The name.
    pub(crate) route: String,
    /// The addresses that clients send to.
    #[serde(default)]
    pub(crate) listeners: Vec<SocketAddr>,
    /// What is configured.
    pub(crate) configuration: Configuration,
    /// Metrics, by series.
    pub(crate) metrics: BTreeMap<String, f64>,
}

/// The part of a route's configuration that commands look at.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Configuration {
    pub(crate) gateway: String,
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) endpoints: Vec<SocketAddr>,
    pub(crate) assist: bool,
    pub(crate) maximum_sessions: u64,
    pub(crate) maximum_sessions_in_force: u64,
    pub(crate) sessions_limited_by: Option<String>,
    #[serde(default)]
    pub(crate) repair_budget: f64,
}

/// What `/packrat/sessions` says.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Sessions {
    /// How many there are; fewer may be listed.
    pub(crate) total: u64,
    /// Those that have carried most, first.
    pub(crate) sessions: Vec<Session>,
}

/// A session of `/packrat/sessions`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Session {
    /// The gateway's Pod, in a cluster.
    #[serde(skip)]
    pub(crate) pod: Option<String>,
    pub(crate) session: u64,
    pub(crate) route: String,
    pub(crate) client: Option<String>,
    pub(crate) endpoint: String,
    pub(crate) assistance: Option<u32>,
    pub(crate) seconds: f64,
    pub(crate) to_client_bytes: u64,
    pub(crate) recorded: u64,
    pub(crate) missing: u64,
    pub(crate) repairs_arrived: u64,
    pub(crate) resets: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) last_mile_round_trip_microseconds: u64,
}

/// What `/packrat/events` says.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Events {
    /// The number to go on from.
    pub(crate) newest: u64,
    /// Log lines.
    pub(crate) events: Vec<Map<String, Value>>,
}

impl Gateway {
    pub(crate) fn new(base: Url) -> Self {
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
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

    /// Where it is in a cluster.
    pub(crate) fn place(&self) -> Option<&Place> {
        self.within.as_ref().map(|(place, _)| place)
    }

    /// Its Pod, or its URL.
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
        let mut url = self.base.clone();
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        url.set_path(path);
        url.set_query(query);
        let unreachable = |source| match &self.within {
            Some((place, forward)) => OperateError::PodUnreachable {
                pod: place.to_string(),
                problem: forward.trouble().unwrap_or_else(|| told(&source)),
            },
            None => OperateError::Unreachable { url: url.clone(), source: Box::new(source) },
        };
        let mut answer = self.agent.get(url.as_str()).call().map_err(unreachable)?;
        answer.body_mut().with_config().limit(LARGEST_ANSWER).read_to_string().map_err(unreachable)
    }

    fn json<T: DeserializeOwned>(&self, path: &str) -> Result<T, OperateError> {
        serde_json::from_str(&self.text(path)?)
            .map_err(|error| OperateError::NotAGateway { url: self.base.clone(), problem: error.to_string() })
    }

    pub(crate) fn status(&self) -> Result<Status, OperateError> {
        self.json("/packrat")
    }

    pub(crate) fn sessions(&self, limit: usize) -> Result<Sessions, OperateError> {
        self.json(&format!("/packrat/sessions?limit={limit}"))
    }

    pub(crate) fn events(&self, after: u64) -> Result<Events, OperateError> {
        self.json(&format!("/packrat/events?after={after}"))
    }

    /// Prometheus text, wherever this gateway has it.
    pub(crate) fn metrics(&self) -> Result<String, OperateError> {
        self.text("/stats/prometheus").or_else(|_| self.text("/metrics"))
    }
}
