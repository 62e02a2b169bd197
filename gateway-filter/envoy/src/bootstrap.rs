//! The bootstrap extension: carries the metrics, with labels, into Envoy's statistics, and answers `/packrat`.
//!
//! All of its hooks run on Envoy's main thread. Envoy refuses the extension when one of them is missing.

use std::collections::HashMap;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use packrat_dataplane::metrics::{Definition, Kind, definitions};

use crate::abi::{
    Buffer, EnvoyBootstrap, EnvoyPointer, LogLevel, ModulePointer, ShutdownCallback, Timer, hook, log,
};
use crate::log_sink::{self, Holder};
use crate::{process, status};

/// Time between two updates of Envoy's statistics.
const FLUSH_MILLISECONDS: u64 = 500;
/// Labels of every metric.
const LABELS: [&str; 2] = ["route", "gateway"];
/// Path of the administration endpoint.
const STATUS_PATH: &str = "/packrat";

const HTTP_OK: u32 = 200;
const HTTP_METHOD_NOT_ALLOWED: u32 = 405;
const HTTP_INTERNAL_SERVER_ERROR: u32 = 500;

/// What Envoy holds for the extension.
struct Extension {
    timer: Timer,
    /// Envoy's numbers of the metrics, in the order of [`definitions`]; `None` for one that Envoy has refused.
    metrics: Vec<Option<usize>>,
    /// What was added to Envoy's counters so far, by route and metric.
    flushed: Mutex<HashMap<(String, usize), u64>>,
    _log: Holder,
}

impl Extension {
    fn new(envoy: &EnvoyBootstrap) -> Self {
        let metrics = definitions()
            .iter()
            .map(|Definition { name, kind, .. }| {
                let id = envoy.define_metric(*kind == Kind::Gauge, name, &LABELS);
                if id.is_none() {
                    log(LogLevel::Error, &format!("{{\"event\":\"metric_refused\",\"name\":\"{name}\"}}"));
                }
                id
            })
            .collect();
        if !envoy
            .register_admin_handler(STATUS_PATH, "Packrat: routes, their configuration and metrics, as JSON")
        {
            log(LogLevel::Warning, "{\"event\":\"admin_endpoint_refused\",\"path\":\"/packrat\"}");
        }
        let timer = envoy.new_timer();
        timer.enable(FLUSH_MILLISECONDS);
        Self { timer, metrics, flushed: Mutex::default(), _log: Holder::new() }
    }

    /// Brings Envoy's statistics up to date.
    fn flush(&self, envoy: &EnvoyBootstrap) {
        let Some(dataplane) = process::existing() else { return };
        let mut flushed = self.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        for route in dataplane.routes() {
            let gateway = route.gateway_name();
            let labels = [route.name(), gateway.as_str()];
            for ((definition, id), value) in
                definitions().iter().zip(&self.metrics).zip(route.metrics().values())
            {
                let Some(id) = *id else { continue };
                match definition.kind {
                    Kind::Gauge => envoy.set_gauge(id, &labels, value),
                    Kind::Counter => {
                        let before = flushed.entry((route.name().to_owned(), id)).or_insert(0);
                        // Also when nothing was added: the series shall exist from the start.
                        envoy.increment_counter(id, &labels, value.saturating_sub(*before));
                        *before = value;
                    }
                }
            }
        }
    }
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
        let config = unsafe { config.bytes() }.trim_ascii();
        if !config.is_empty() && config != b"{}" {
            log(
                LogLevel::Error,
                "{\"event\":\"configuration_refused\",\"error\":\"the bootstrap extension takes no configuration; remove extension_config\"}",
            );
            return ptr::null();
        }
        let extension = Extension::new(&envoy);
        envoy.signal_init_complete();
        Box::into_raw(Box::new(extension)).cast_const().cast()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_bootstrap_extension_config_destroy(extension: ModulePointer) {
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
    _extension: ModulePointer,
    method: Buffer,
    _path: Buffer,
    _body: Buffer,
) -> u32 {
    hook("bootstrap_extension_admin_request", HTTP_INTERNAL_SERVER_ERROR, || {
        // SAFETY: Envoy's pointer, on the main thread.
        let envoy = unsafe { EnvoyBootstrap::new(envoy) };
        // SAFETY: Envoy's buffer, used inside this hook only.
        if unsafe { method.bytes() } != b"GET" {
            envoy.set_admin_response("use GET\n");
            return HTTP_METHOD_NOT_ALLOWED;
        }
        envoy.set_admin_response(&status::status(process::existing()));
        HTTP_OK
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_bootstrap_extension_shutdown(
    _envoy: EnvoyPointer,
    _extension: ModulePointer,
    callback: ShutdownCallback,
    context: EnvoyPointer,
) {
    hook("bootstrap_extension_shutdown", (), || {
        // Tells assisted clients and ends the I/O threads, before Envoy takes down what they use.
        if let Some(dataplane) = process::existing() {
            dataplane.shutdown();
        }
        log_sink::close();
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
