//! The bootstrap extension: carries the metrics, with labels, into Envoy's statistics, and answers
//! the paths of `packrat-admin`.
//!
//! All of its hooks run on Envoy's main thread. Envoy refuses the extension when one of them is
//! missing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use packrat_admin::{ANSWERED_PATHS, History, Server, answer};
use packrat_dataplane::log::{Clients, Level, StandardOutput};
use packrat_dataplane::metrics::{Definition, Kind, definitions, process as of_process};
use packrat_otlp::{ENDPOINT_VARIABLE, Exporter};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::abi::{
    Buffer, EnvoyBootstrap, EnvoyPointer, ModulePointer, ShutdownCallback, Timer, hook,
    is_validation_mode,
};
use crate::process;

/// Time between two updates of Envoy's statistics.
const FLUSH_MILLISECONDS: u64 = 500;
/// Labels of every metric of a route.
const ROUTE_LABELS: [&str; 3] = ["route", "gateway", "namespace"];
/// The label of a metric of the process.
const PROCESS_LABELS: [&str; 1] = ["gateway"];

const HTTP_METHOD_NOT_ALLOWED: u32 = 405;
const HTTP_INTERNAL_SERVER_ERROR: u32 = 500;

/// `extension_config` of the extension; everything may be left out.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Configuration {
    /// Address of a port of the module's own for the overview page, over plain HTTP.
    page: Option<SocketAddr>,
    /// Lowest level of log lines.
    log_level: Option<String>,
    /// The form of clients in log lines.
    log_clients: Option<String>,
    /// An OpenTelemetry collector, `http://HOST:PORT`; without it the one that the environment
    /// names.
    otlp: Option<String>,
}

/// Sends to the configured collector, if any. A broken collector must not keep Envoy from
/// forwarding.
fn exporter(configuration: &Configuration) -> Option<Exporter> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let endpoint = configuration.otlp.clone().or_else(|| variable(ENDPOINT_VARIABLE))?;
    let instance =
        variable("POD_NAME").or_else(|| variable("HOSTNAME")).unwrap_or_else(|| "envoy".to_owned());
    Exporter::start_for(&endpoint, &instance, process::existing)
        .inspect_err(|error| {
            let fields = [("url", endpoint.as_str().into()), ("error", error.to_string().into())];
            StandardOutput::line(Level::Error, "otlp_failed", fields);
        })
        .ok()
}

/// A metric as Envoy knows it.
struct Registered {
    /// Envoy's number; `None` when Envoy has refused it.
    id: Option<usize>,
    kind: Kind,
    /// Values of a series' own labels, beside the labels that every series has.
    values: Vec<&'static str>,
}

/// Envoy's handle of the extension.
struct Extension {
    timer: Timer,
    /// Metrics in the order of [`definitions`].
    of_routes: Vec<Registered>,
    /// Metrics in the order of [`of_process::definitions`].
    of_process: Vec<Registered>,
    /// The amounts added to Envoy's counters so far, by labels, in the order of the metrics; `None`
    /// before the first time.
    flushed: Mutex<BTreeMap<Vec<String>, Vec<Option<u64>>>>,
    history: Arc<History>,
    exporter: Mutex<Option<Exporter>>,
    _page: Option<Server>,
}

/// Defines each name once, with the names of its labels.
fn register(
    envoy: &EnvoyBootstrap,
    common: &[&'static str],
    all: &[Definition],
) -> Vec<Registered> {
    let mut known: BTreeMap<&str, Option<usize>> = BTreeMap::new();
    all.iter()
        .map(|Definition { name, kind, labels, .. }| {
            let id = *known.entry(name).or_insert_with(|| {
                let labels: Vec<&str> =
                    common.iter().copied().chain(labels.iter().map(|(label, _)| *label)).collect();
                let id = envoy.define_metric(*kind == Kind::Gauge, name, &labels);
                if id.is_none() {
                    StandardOutput::line(
                        Level::Error,
                        "metric_refused",
                        [("name", name.as_ref().into())],
                    );
                }
                id
            });
            Registered { id, kind: *kind, values: labels.iter().map(|(_, value)| *value).collect() }
        })
        .collect()
}

impl Extension {
    fn new(envoy: &EnvoyBootstrap, configuration: &Configuration) -> Result<Self, String> {
        let history = Arc::new(History::default());
        let page = configuration
            .page
            .map(|address| Server::start_for(address, process::existing, Arc::clone(&history)))
            .transpose()
            .map_err(|error| error.to_string())?;
        for (path, help, changes) in ANSWERED_PATHS {
            if !envoy.register_admin_handler(path, help, changes) {
                StandardOutput::line(
                    Level::Warning,
                    "admin_endpoint_refused",
                    [("path", path.into())],
                );
            }
        }
        let timer = envoy.new_timer();
        timer.enable(FLUSH_MILLISECONDS);
        Ok(Self {
            timer,
            of_routes: register(envoy, &ROUTE_LABELS, definitions()),
            of_process: register(envoy, &PROCESS_LABELS, of_process::definitions()),
            flushed: Mutex::default(),
            history,
            // Envoy that only checks a configuration has nothing to send.
            exporter: Mutex::new(if is_validation_mode() { None } else { exporter(configuration) }),
            _page: page,
        })
    }

    /// Brings Envoy's statistics up to date.
    fn flush(&self, envoy: &EnvoyBootstrap) {
        let Some(dataplane) = process::existing() else { return };
        self.history.tick(Some(dataplane), Instant::now());
        let routes = dataplane.routes();
        for route in &routes {
            let labels = [route.name().to_owned(), route.gateway_name(), route.namespace()];
            self.set(envoy, &labels, &self.of_routes, route.metrics().values());
        }
        self.forget(envoy, |labels| {
            let is_route = labels.len() == ROUTE_LABELS.len();
            is_route
                && !routes
                    .iter()
                    .any(|route| labels.first().is_some_and(|name| name == route.name()))
        });
        if let Some(route) = routes.first() {
            self.set(envoy, &[route.gateway_name()], &self.of_process, of_process::values());
        }
    }

    /// Sets the levels of removed routes to 0. Envoy cannot forget a series: if a route comes back,
    /// its counters continue from their last value.
    fn forget(&self, envoy: &EnvoyBootstrap, is_gone: impl Fn(&[String]) -> bool) {
        let mut flushed = self.flushed.lock();
        let gone: Vec<Vec<String>> =
            flushed.keys().filter(|labels| is_gone(labels)).cloned().collect();
        for labels in gone {
            flushed.remove(&labels);
            for metric in self.of_routes.iter().filter(|metric| metric.kind == Kind::Gauge) {
                let Some(id) = metric.id else { continue };
                let labels: Vec<&str> = labels
                    .iter()
                    .map(String::as_str)
                    .chain(metric.values.iter().copied())
                    .collect();
                envoy.set_gauge(id, &labels, 0);
            }
        }
    }

    fn set(
        &self,
        envoy: &EnvoyBootstrap,
        labels: &[String],
        metrics: &[Registered],
        values: impl IntoIterator<Item = u64>,
    ) {
        let mut flushed = self.flushed.lock();
        if !flushed.contains_key(labels) {
            flushed.insert(labels.to_vec(), vec![None; metrics.len()]);
        }
        let Some(flushed) = flushed.get_mut(labels) else { return };
        for ((metric, before), value) in metrics.iter().zip(flushed).zip(values) {
            // Most values do not change within half a second. The first time, zeros are also
            // recorded, so that each series exists from the start.
            let Some(id) = metric.id.filter(|_| *before != Some(value)) else { continue };
            let labels_of_metric: Vec<&str> =
                labels.iter().map(String::as_str).chain(metric.values.iter().copied()).collect();
            match metric.kind {
                Kind::Gauge => envoy.set_gauge(id, &labels_of_metric, value),
                Kind::Counter | Kind::Histogram => {
                    let added = value.saturating_sub(before.unwrap_or_default());
                    envoy.increment_counter(id, &labels_of_metric, added);
                }
            }
            *before = Some(value);
        }
    }
}

fn configure(envoy: &EnvoyBootstrap, config: &[u8]) -> Result<Extension, String> {
    let config = config.trim_ascii();
    let configuration: Configuration = if config.is_empty() {
        Configuration::default()
    } else {
        serde_json::from_slice(config).map_err(|error| {
            format!(
                "extension_config cannot be read: {error}; it may have page, log_level, log_clients and otlp"
            )
        })?
    };
    let level = configuration.log_level.as_deref().map(str::parse::<Level>).transpose()?;
    let clients = configuration.log_clients.as_deref().map(str::parse::<Clients>).transpose()?;
    process::set_log(level, clients);
    Extension::new(envoy, &configuration)
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_bootstrap_extension_config_new(
    envoy: EnvoyPointer,
    _name: Buffer,
    config: Buffer,
) -> ModulePointer {
    hook("bootstrap_extension_config_new", ptr::null(), || {
        // SAFETY: Envoy's pointer, on the main thread.
        let envoy = unsafe { EnvoyBootstrap::new(envoy) };
        // SAFETY: Envoy's buffer, used inside this hook only.
        let config = unsafe { config.bytes() };
        match configure(&envoy, config) {
            Ok(extension) => {
                envoy.signal_init_complete();
                Box::into_raw(Box::new(extension)).cast_const().cast()
            }
            Err(error) => {
                StandardOutput::line(
                    Level::Error,
                    "configuration_refused",
                    [("error", error.into())],
                );
                ptr::null()
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_bootstrap_extension_config_destroy(
    extension: ModulePointer,
) {
    hook("bootstrap_extension_config_destroy", (), || {
        // SAFETY: made by `config_new`; Envoy destroys it once.
        drop(unsafe { Box::from_raw(extension.cast_mut().cast::<Extension>()) });
    });
}

/// The extension has no state beside its configuration, whose pointer it shares.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_bootstrap_extension_new(
    extension: ModulePointer,
    _envoy: EnvoyPointer,
) -> ModulePointer {
    extension
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_bootstrap_extension_destroy(_extension: ModulePointer) {}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_bootstrap_extension_timer_fired(
    envoy: EnvoyPointer,
    extension: ModulePointer,
    _timer: EnvoyPointer,
) {
    hook("bootstrap_extension_timer_fired", (), || {
        // SAFETY: made by `config_new` and alive; only shared references are made.
        let extension = unsafe { &*extension.cast::<Extension>() };
        // SAFETY: Envoy's pointer, on the main thread.
        extension.flush(&unsafe { EnvoyBootstrap::new(envoy) });
        extension.timer.enable(FLUSH_MILLISECONDS);
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_bootstrap_extension_admin_request(
    envoy: EnvoyPointer,
    extension: ModulePointer,
    method: Buffer,
    path: Buffer,
    _body: Buffer,
) -> u32 {
    hook("bootstrap_extension_admin_request", HTTP_INTERNAL_SERVER_ERROR, || {
        // SAFETY: made by `config_new` and alive; only shared references are made.
        let extension = unsafe { &*extension.cast::<Extension>() };
        // SAFETY: Envoy's pointer, on the main thread.
        let envoy = unsafe { EnvoyBootstrap::new(envoy) };
        // SAFETY: Envoy's buffers, used inside this hook only.
        let (method, path) = unsafe { (method.bytes(), path.bytes()) };
        let (Ok(method), Ok(path)) = (std::str::from_utf8(method), std::str::from_utf8(path))
        else {
            envoy.set_admin_response("the request is no text\n");
            return HTTP_METHOD_NOT_ALLOWED;
        };
        let answer = answer(process::existing(), &extension.history, method, path);
        envoy.set_admin_response(&answer.body);
        u32::from(answer.status)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_bootstrap_extension_shutdown(
    _envoy: EnvoyPointer,
    extension: ModulePointer,
    callback: ShutdownCallback,
    context: EnvoyPointer,
) {
    hook("bootstrap_extension_shutdown", (), || {
        // Notifies assisted clients and ends the I/O threads, before Envoy takes down what they
        // use.
        if let Some(dataplane) = process::existing() {
            dataplane.shutdown();
        }
        // SAFETY: made by `config_new` and alive; only shared references are made.
        let extension = unsafe { &*extension.cast::<Extension>() };
        // Sends what those ends have left, and waits for it.
        drop(extension.exporter.lock().take());
    });
    if let Some(callback) = callback {
        // SAFETY: Envoy's own callback with its own context, called once.
        unsafe { callback(context) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_bootstrap_extension_server_initialized(
    _envoy: EnvoyPointer,
    _extension: ModulePointer,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_bootstrap_extension_worker_thread_initialized(
    _envoy: EnvoyPointer,
    _extension: ModulePointer,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_bootstrap_extension_drain_started(
    _envoy: EnvoyPointer,
    _extension: ModulePointer,
) {
    hook("bootstrap_extension_drain_started", (), || {
        if let Some(dataplane) = process::existing() {
            dataplane.drain();
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_bootstrap_extension_config_scheduled(
    _envoy: EnvoyPointer,
    _extension: ModulePointer,
    _event: u64,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_bootstrap_extension_http_callout_done(
    _envoy: EnvoyPointer,
    _extension: ModulePointer,
    _callout: u64,
    _result: u32,
    _headers: EnvoyPointer,
    _header_count: usize,
    _body: EnvoyPointer,
    _body_count: usize,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_bootstrap_extension_file_changed(
    _envoy: EnvoyPointer,
    _extension: ModulePointer,
    _path: Buffer,
    _events: u32,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_bootstrap_extension_cluster_add_or_update(
    _envoy: EnvoyPointer,
    _extension: ModulePointer,
    _name: Buffer,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_bootstrap_extension_cluster_removal(
    _envoy: EnvoyPointer,
    _extension: ModulePointer,
    _name: Buffer,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_bootstrap_extension_listener_add_or_update(
    _envoy: EnvoyPointer,
    _extension: ModulePointer,
    _name: Buffer,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_bootstrap_extension_listener_removal(
    _envoy: EnvoyPointer,
    _extension: ModulePointer,
    _name: Buffer,
) {
}
