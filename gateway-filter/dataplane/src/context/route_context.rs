//! A route as its sessions see it: its name, the settings in force and its metrics.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use packrat_api::route::RouteConfig;
use packrat_api::sender::SenderKind;
use packrat_api::status::{ComparisonStatus, RouteSummary, Stage};
use packrat_engine::{Gateway, GatewayConfig, SenderAnswer};
use packrat_figures::comparison::Interval;
use packrat_wire::estimate::Timestamp;
use packrat_wire::hexadecimal;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::benefit::{BenefitOfRoute, Change, Origin, TRIAL_HOLDOUT, Transferred};
use super::environment::Environment;
use super::named_servers::NamedServers;
use crate::configuration::{
    ConfigurationError, read_peer_keys, read_static_key, read_token_admission, summary,
};
use crate::log::{Event, LogSubject, Logger};
use crate::metrics::{Limits, Metric, Metrics};
use crate::random::Random;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, RwLock};

/// A configuration in force, with the keys that belong to it.
pub(crate) struct Settings {
    pub(crate) config: RouteConfig,
    /// The number of the configuration. The route's generation is never less, and not the same once
    /// there is something to follow.
    pub(crate) generation: u64,
    /// The configured key, or the random one that is kept across updates.
    static_key: Zeroizing<[u8; 32]>,
    /// The secrets that the gateways of the address share; without any, it is the static key.
    peer_keys: Vec<Zeroizing<[u8; 32]>>,
    /// The servers that connection IDs name.
    pub(crate) named_servers: NamedServers,
    /// The secret that source ports are derived with; a successor with the same key has the same.
    pub(crate) source_port_key: Zeroizing<[u8; 32]>,
    /// The secret that the clients of the holdout are chosen with, of this route alone.
    holdout_key: Zeroizing<[u8; 32]>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The keys stay out of logs.
        formatter.debug_struct("Settings").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Settings {
    fn new(
        environment: &Environment,
        config: RouteConfig,
        previous: Option<&Self>,
    ) -> Result<Self, ConfigurationError> {
        let static_key = match (read_static_key(&config)?, previous) {
            (Some(key), _) => key,
            (None, Some(previous)) => previous.static_key.clone(),
            (None, None) => random_key(&environment.random)?,
        };
        let peer_keys = read_peer_keys(&config)?;
        let label = b"packrat source port";
        let source_port_key = Zeroizing::new(
            Sha256::new_with_prefix(label).chain_update(*static_key).finalize().into(),
        );
        let holdout_key = Zeroizing::new(
            Sha256::new_with_prefix(b"packrat holdout")
                .chain_update(*static_key)
                .chain_update(config.route.as_bytes())
                .finalize()
                .into(),
        );
        let generation = previous.map_or(0, |previous| previous.generation + 1);
        let named_servers = NamedServers::of(&config)?;
        Ok(Self {
            config,
            generation,
            static_key,
            peer_keys,
            named_servers,
            source_port_key,
            holdout_key,
        })
    }

    /// True if there may be other gateways with the same key, and a client must not get another server
    /// than it had through them.
    pub(crate) fn shares_clients(&self) -> bool {
        let Self { config, .. } = self;
        let has_key = config.static_key.is_some() || config.static_key_file.is_some();
        has_key && config.assist && config.endpoints.len() > 1
    }

    /// True if clients of other gateways may come here in mid-connection.
    pub(crate) fn expects_clients_of_others(&self) -> bool {
        self.shares_clients() || (self.config.assist && !self.config.peers.is_empty())
    }

    /// True if this address is another gateway's, with the same key.
    pub(crate) fn is_peer(&self, address: SocketAddr) -> bool {
        self.config.peers.contains(&address)
    }

    /// The public key that clients may pin, in hexadecimal digits.
    fn public_key(&self) -> Option<String> {
        let key = packrat_engine::public_key(&self.static_key).ok()?;
        Some(hexadecimal::encode(&key))
    }
}

/// A fresh key.
fn random_key(random: &Random) -> Result<Zeroizing<[u8; 32]>, ConfigurationError> {
    random.bytes().map(Zeroizing::new).map_err(ConfigurationError::Random)
}

/// The engine's limits.
fn engine_config(config: &RouteConfig) -> GatewayConfig {
    let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    GatewayConfig {
        assist: config.assist,
        begins_sessions: true,
        cache_bytes_per_flow: size(config.cache_bytes_per_session),
        cache_bytes_total: size(config.cache_bytes_total),
        repair_budget: config.repair_budget,
        early_copies: config.early_copies,
        sparse_copies: config.sparse_copies,
        residual_loss_target: config.residual_loss_target,
        maximum_sessions: size(config.maximum_sessions),
        sessions_per_source: config.sessions_per_source,
        handshakes_per_second_per_source: config.handshakes_per_second_per_source,
        handshakes_per_second_without_cookie: config.handshakes_per_second_without_cookie,
        sender: match config.sender {
            SenderKind::Any => SenderAnswer::Unknown,
            SenderKind::LossBased => SenderAnswer::Always,
            SenderKind::Bbr => SenderAnswer::AboveTolerance,
            SenderKind::Bbr1 => SenderAnswer::Never,
        },
        holdout: config.holdout,
        ..GatewayConfig::default()
    }
}

/// The part of a route that its sessions need.
#[derive(Debug)]
pub(crate) struct RouteContext {
    pub(crate) environment: Arc<Environment>,
    name: String,
    /// One for as long as the route exists: a change of the configuration applies to the sessions
    /// that run, and what they have used of a limit stays counted.
    pub(crate) engine: Arc<Gateway>,
    settings: RwLock<Arc<Settings>>,
    /// Grows with every change of the configuration; sessions compare it to see whether theirs is
    /// still current.
    generation: AtomicU64,
    draining: AtomicBool,
    benefit: Mutex<BenefitOfRoute>,
    /// The time at which assistance that has stopped by itself is tried again, in microseconds.
    retry_at: AtomicU64,
    pub(crate) metrics: Metrics,
}

impl RouteContext {
    pub(crate) fn new(
        config: RouteConfig,
        environment: Arc<Environment>,
    ) -> Result<Self, ConfigurationError> {
        let name = config.route.clone();
        let settings = Settings::new(&environment, config, None)?;
        let engine = Gateway::sharing(
            engine_config(&settings.config),
            *settings.static_key,
            *random_key(&environment.random)?,
            Arc::clone(&environment.work),
        );
        engine.set_keys(*settings.static_key, &settings.peer_keys);
        engine.set_tokens(read_token_admission(&settings.config)?);
        engine.set_holdout_key(*settings.holdout_key);
        Ok(Self {
            environment,
            name,
            engine,
            settings: RwLock::new(Arc::new(settings)),
            generation: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            benefit: Mutex::default(),
            retry_at: AtomicU64::new(u64::MAX),
            metrics: Metrics::default(),
        })
    }

    /// Puts a new configuration in force, also for sessions that run; on an error the old one
    /// stays.
    pub(crate) fn reconfigure(&self, config: RouteConfig) -> Result<(), ConfigurationError> {
        let mut settings = self.settings.write();
        if settings.config == config
            && config.static_key_file.is_none()
            && config.token_keys_file.is_none()
        {
            return Ok(());
        }
        let tokens = read_token_admission(&config)?;
        let next = Settings::new(&self.environment, config, Some(&settings))?;
        if engine_config(&next.config) != engine_config(&settings.config) {
            // The old policy's comparison does not apply to another policy.
            let mut benefit = self.benefit.lock();
            benefit.begin_again();
            self.show_benefit(&benefit);
        }
        self.engine.reconfigure(self.limits(&next.config));
        self.engine.set_tokens(tokens);
        let keys = |settings: &Settings| (settings.static_key.clone(), settings.peer_keys.clone());
        if keys(&next) != keys(&settings) {
            self.engine.set_keys(*next.static_key, &next.peer_keys);
            self.engine.set_holdout_key(*next.holdout_key);
        }
        *settings = Arc::new(next);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Stops assisting further clients. Assisted clients stay assisted, as no other gateway would
    /// assist them while the network sends them here.
    pub(crate) fn drain(&self) {
        let settings = self.settings.write();
        self.draining.store(true, Ordering::Relaxed);
        self.engine.reconfigure(self.limits(&settings.config));
        drop(settings);
    }

    /// The limits in force: the configuration, as far as the state of the route allows it.
    fn limits(&self, config: &RouteConfig) -> GatewayConfig {
        let mut limits = engine_config(config);
        limits.begins_sessions &= !self.draining.load(Ordering::Relaxed);
        match self.benefit.lock().stage() {
            Stage::Assisting => {}
            Stage::Stopped => limits.assist = false,
            Stage::Trial => limits.holdout = limits.holdout.max(TRIAL_HOLDOUT),
        }
        limits
    }

    /// Compares a session that has ended with others. True if assistance stops by itself with that, so
    /// that the sessions of all threads have to follow.
    pub(crate) fn compare(&self, session: &Transferred, client: IpAddr, now: Timestamp) -> bool {
        let settings = self.settings();
        if settings.config.holdout == 0.0 {
            return false;
        }
        let address = self.engine.hash_of_source(client);
        let origin = Origin { address, network: self.engine.hash_of_network(client) };
        let mut benefit = self.benefit.lock();
        let change = benefit.note(session, origin, now);
        self.show_benefit(&benefit);
        drop(benefit);
        let Some(change) = change else { return false };
        self.follow_benefit();
        let fields = |Interval { lower, estimate, upper }: Interval| {
            [("speedup", estimate.into()), ("lower", lower.into()), ("upper", upper.into())]
        };
        match change {
            Change::Stopped { interval, until } => self.log(Event::AssistanceStopped, || {
                let [speedup, lower, upper] = fields(interval);
                let seconds = until.saturating_since(now).as_secs();
                [speedup, lower, upper, ("retry_seconds", seconds.into())]
            }),
            Change::Resumed { interval } => {
                self.log(Event::AssistanceResumed, || fields(interval));
            }
        }
        matches!(change, Change::Stopped { .. })
    }

    /// Tries assistance that has stopped by itself again, when it is time. A client asks.
    pub(crate) fn try_again(&self, now: Timestamp) {
        if now.as_micros() < self.retry_at.load(Ordering::Relaxed) {
            return;
        }
        let mut benefit = self.benefit.lock();
        let is_tried = benefit.try_again(now);
        self.show_benefit(&benefit);
        drop(benefit);
        if is_tried {
            self.follow_benefit();
            self.log(Event::AssistanceTried, || []);
        }
    }

    /// Puts the present result of the comparison in force.
    fn follow_benefit(&self) {
        let settings = self.settings.write();
        self.engine.reconfigure(self.limits(&settings.config));
        self.generation.fetch_add(1, Ordering::Release);
        drop(settings);
        self.show_limits();
    }

    fn show_benefit(&self, benefit: &BenefitOfRoute) {
        let retry_at = benefit.until().map_or(u64::MAX, Timestamp::as_micros);
        self.retry_at.store(retry_at, Ordering::Relaxed);
        let comparison = benefit.comparison();
        let (assisted, holdout) = (comparison.assisted.count(), comparison.holdout.count());
        let interval = benefit.benefit().interval();
        let ppm =
            |end: fn(Interval) -> f64| interval.map_or(0, |interval| (end(interval) * 1e6) as u64);
        for (metric, level) in [
            (Metric::SpeedupEstimate, ppm(|interval| interval.estimate)),
            (Metric::SpeedupLower, ppm(|interval| interval.lower)),
            (Metric::SpeedupUpper, ppm(|interval| interval.upper)),
            (Metric::ComparedAssisted, assisted),
            (Metric::ComparedHoldout, holdout),
            (Metric::AssistanceStopped, (benefit.stage() == Stage::Stopped).into()),
        ] {
            self.metrics.set(metric, level);
        }
    }

    /// Sessions to compare; `None` if all clients are assisted.
    pub(crate) fn comparison(&self) -> Option<ComparisonStatus> {
        let holdout = self.settings().config.holdout;
        let now = self.environment.now();
        (holdout > 0.0).then(|| self.benefit.lock().status(holdout, now))
    }

    /// Brings the configured limits into the metrics.
    pub(crate) fn show_limits(&self) {
        // Held until the end, so that the settings shown last are the settings in force.
        let settings = self.settings.read();
        let config = &settings.config;
        self.metrics.levels.set_limits(Limits {
            sessions: config.maximum_sessions.min(self.environment.capacity.sessions()),
            cache_bytes: config.cache_bytes_total,
            repair_budget_ppm: (config.repair_budget * 1e6).round() as u64,
            assist: self.engine.config().assist,
        });
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn summary(&self) -> RouteSummary {
        summary(&self.settings().config, &self.environment.capacity)
    }

    pub(crate) fn public_key(&self) -> Option<String> {
        self.settings().public_key()
    }

    /// Writes a line about this route.
    pub(crate) fn log<const N: usize>(
        &self,
        event: Event,
        fields: impl FnOnce() -> [(&'static str, Value); N],
    ) {
        self.environment.logger.about(event, self, fields);
    }
}

impl LogSubject for RouteContext {
    fn describe(&self, line: &mut Map<String, Value>, _logger: &Logger) {
        let settings = self.settings();
        line.insert("route".to_owned(), self.name.as_str().into());
        line.insert("gateway".to_owned(), settings.config.gateway.as_str().into());
        line.insert("namespace".to_owned(), settings.config.namespace.as_str().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The engine's own defaults are for tests and labs; they equal a route's defaults.
    #[test]
    fn the_engine_and_a_route_have_the_same_defaults() {
        let config = RouteConfig::new("web", ["192.0.2.1:443".parse().unwrap()]).unwrap();
        assert_eq!(engine_config(&config), GatewayConfig::default());
    }
}
