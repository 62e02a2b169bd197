//! A route: what is configured, the sessions of its clients, its metrics. Lives as long as the process, whatever happens to
//! the listeners that use it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use packrat_engine::{Gateway, GatewayConfig};

use crate::assisted::AssistedSessions;
use crate::capacity::Capacity;
use crate::configuration::{ConfigurationError, RouteConfig, RouteSummary};
use crate::downstream::Slot;
use crate::metrics::{Limits, Metric, Metrics};
use crate::stream::{RouteStream, StreamRoute};
use crate::table::SessionTable;
use crate::waiting::WaitingRoom;

/// A configuration in force, with the engine that belongs to it.
pub(crate) struct Settings {
    pub(crate) config: RouteConfig,
    pub(crate) engine: Arc<Gateway>,
    /// The configured key, or the random one that is kept across updates.
    static_key: [u8; 32],
    /// The secret of the cookies.
    secret: [u8; 32],
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The keys stay out of logs.
        formatter.debug_struct("Settings").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Settings {
    /// Settings for `config`. While nothing changes for the engine it stays the one of `previous`, and with it the total of
    /// its caches. `draining`: the engine refuses everybody.
    fn new(config: RouteConfig, previous: Option<&Self>, draining: bool) -> Result<Self, ConfigurationError> {
        let static_key = match (config.read_static_key()?, previous) {
            (Some(key), _) => key,
            (None, Some(previous)) => previous.static_key,
            (None, None) => random_bytes().map_err(ConfigurationError::Random)?,
        };
        let secret = match previous {
            Some(previous) => previous.secret,
            None => random_bytes().map_err(ConfigurationError::Random)?,
        };
        let tokens = config.read_token_policy()?;
        let mut limits = engine_config(&config);
        limits.assist &= !draining;
        let engine = match previous {
            Some(previous) if previous.static_key == static_key && *previous.engine.config() == limits => {
                Arc::clone(&previous.engine)
            }
            _ => Gateway::new(limits, static_key, secret),
        };
        // Another key of the tokens is no reason for another engine.
        engine.set_tokens(tokens);
        Ok(Self { config, engine, static_key, secret })
    }

    /// The public key that clients may pin, in hexadecimal digits.
    pub(crate) fn public_key(&self) -> Option<String> {
        let key = packrat_engine::public_key(&self.static_key).ok()?;
        Some(key.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The engine's limits; what a route does not configure keeps the engine's default.
#[allow(clippy::needless_update)] // the engine's configuration may have more fields than a route sets
fn engine_config(config: &RouteConfig) -> GatewayConfig {
    let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    GatewayConfig {
        assist: config.assist,
        cache_bytes_per_flow: size(config.cache_bytes_per_session),
        cache_bytes_total: size(config.cache_bytes_total),
        repair_budget: config.repair_budget,
        residual_loss_target: config.residual_loss_target,
        maximum_sessions: size(config.maximum_sessions),
        sessions_per_source: config.sessions_per_source,
        handshakes_per_second_per_source: config.handshakes_per_second_per_source,
        handshakes_per_second_without_cookie: config.handshakes_per_second_without_cookie,
        ..GatewayConfig::default()
    }
}

/// Bytes from the operating system.
pub(crate) fn random_bytes() -> Result<[u8; 32], getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// One route of the process.
#[derive(Debug)]
pub struct Route {
    name: String,
    settings: RwLock<Arc<Settings>>,
    /// Grows with every change of the configuration; sessions compare it to see whether theirs is still current.
    generation: AtomicU64,
    draining: AtomicBool,
    pub(crate) sessions: SessionTable,
    pub(crate) assisted: AssistedSessions,
    pub(crate) waiting: WaitingRoom,
    metrics: Metrics,
    slots: Mutex<HashMap<(SocketAddr, usize), Arc<Slot>>>,
    capacity: Arc<Capacity>,
    /// There is nobody to forward to.
    pub(crate) stream_only: AtomicBool,
    /// The live stream, with the configuration that it was made for.
    pub(crate) stream: RwLock<Option<(StreamRoute, Arc<RouteStream>)>>,
}

impl Route {
    pub(crate) fn new(config: RouteConfig, capacity: Arc<Capacity>) -> Result<Self, ConfigurationError> {
        Ok(Self {
            name: config.route.clone(),
            settings: RwLock::new(Arc::new(Settings::new(config, None, false)?)),
            generation: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            sessions: SessionTable::default(),
            assisted: AssistedSessions::default(),
            waiting: WaitingRoom::default(),
            metrics: Metrics::default(),
            slots: Mutex::default(),
            capacity,
            stream_only: AtomicBool::new(false),
            stream: RwLock::default(),
        })
    }

    /// Puts a new configuration in force; on an error the old one stays.
    pub(crate) fn reconfigure(&self, config: RouteConfig) -> Result<(), ConfigurationError> {
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        if settings.config == config && config.static_key_file.is_none() && config.token_keys_file.is_none() {
            return Ok(());
        }
        let draining = self.draining.load(Ordering::Relaxed);
        *settings = Arc::new(Settings::new(config, Some(&settings), draining)?);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// From now on nobody is assisted; sessions hear of it when they look at their configuration.
    pub(crate) fn drain(&self) -> Result<(), ConfigurationError> {
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        self.draining.store(true, Ordering::Relaxed);
        *settings = Arc::new(Settings::new(settings.config.clone(), Some(&settings), true)?);
        self.generation.fetch_add(1, Ordering::Release);
        drop(settings);
        self.show_limits();
        Ok(())
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the gateway that the route is configured with.
    pub fn gateway_name(&self) -> String {
        self.settings().config.gateway.clone()
    }

    /// The namespace that the route is configured with.
    pub fn namespace(&self) -> String {
        self.settings().config.namespace.clone()
    }

    /// Brings the configured limits into the metrics.
    pub(crate) fn show_limits(&self) {
        let settings = self.settings();
        let config = &settings.config;
        self.metrics.set_limits(Limits {
            sessions: config.maximum_sessions.min(self.capacity.sessions()),
            cache_bytes: config.cache_bytes_total,
            repair_budget_ppm: (config.repair_budget * 1e6).round() as u64,
            assist: settings.engine.config().assist,
        });
    }

    /// The addresses that clients send to.
    pub fn listeners(&self) -> Vec<SocketAddr> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let mut listeners: Vec<_> =
            slots.iter().filter(|(_, slot)| slot.is_filled()).map(|((listener, _), _)| *listener).collect();
        listeners.sort_unstable();
        listeners.dedup();
        listeners
    }

    /// Whether clients can reach the route.
    pub(crate) fn has_listener(&self) -> bool {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.values().any(|slot| slot.is_filled())
    }

    /// The public key that clients may pin, in hexadecimal digits.
    pub fn public_key(&self) -> Option<String> {
        self.settings().public_key()
    }

    /// What is configured, without secrets.
    pub fn summary(&self) -> RouteSummary {
        self.settings().config.summary(&self.capacity)
    }

    /// The metrics.
    pub const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Counts datagrams of clients that the shell has dropped because it has no [`crate::Ingress`] for them.
    pub fn count_dropped(&self, datagrams: u64) {
        self.metrics.add(Metric::FromClientDropped, datagrams);
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The slot of a listener on a worker; made when it is asked for the first time.
    pub(crate) fn slot(&self, listener: SocketAddr, worker: usize) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry((listener, worker)).or_insert_with(|| Arc::new(Slot::new(listener))))
    }
}
