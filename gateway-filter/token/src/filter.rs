//! The thin layer between Envoy and the endpoint.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use std::time::UNIX_EPOCH;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel, MetricType};

use crate::configuration::Configuration;
use crate::endpoint::{Decision, Endpoint, Request};

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|_| -> Box<dyn RootContext> { Box::new(Root::default()) });
}}

/// A plugin configuration in one of Envoy's workers.
#[derive(Default)]
struct Root {
    endpoint: Option<Rc<RefCell<Endpoint>>>,
    counters: Counters,
}

/// Metrics in Envoy. The endpoint also works without them.
#[derive(Default, Clone, Copy)]
struct Counters {
    issued: Option<u32>,
    rate_limited: Option<u32>,
}

impl Counters {
    fn define() -> Self {
        let counter = |name| hostcalls::define_metric(MetricType::Counter, name).ok();
        Self {
            issued: counter("packrat_tokens_issued"),
            rate_limited: counter("packrat_tokens_rate_limited"),
        }
    }

    fn count(self, status: u16) {
        let counter = match status {
            200 => self.issued,
            429 => self.rate_limited,
            _ => None,
        };
        // Envoy refuses only unknown metrics, and the filter cannot help that.
        let _ = counter.map(|counter| hostcalls::increment_metric(counter, 1));
    }
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _length: usize) -> bool {
        let text = self.get_plugin_configuration().unwrap_or_default();
        match Configuration::from_json(&text) {
            Ok(configuration) => {
                log::info!(
                    "issues assist tokens for route {} with key {}",
                    configuration.endpoint.route,
                    configuration.key.id()
                );
                self.endpoint = Some(Rc::new(RefCell::new(Endpoint::new(configuration))));
                self.counters = Counters::define();
                true
            }
            Err(error) => {
                log::error!("{error}");
                false
            }
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        let endpoint = Rc::clone(self.endpoint.as_ref()?);
        Some(Box::new(Exchange { endpoint, counters: self.counters }))
    }
}

/// A token request in progress.
struct Exchange {
    endpoint: Rc<RefCell<Endpoint>>,
    counters: Counters,
}

impl Context for Exchange {}

impl HttpContext for Exchange {
    fn on_http_request_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        let method = self.get_http_request_header(":method").unwrap_or_default();
        let path = self.get_http_request_header(":path").unwrap_or_default();
        let client = self.get_property(vec!["source", "address"]).unwrap_or_default();
        let request =
            Request { method: &method, path: &path, client: &String::from_utf8_lossy(&client) };
        let now = self.get_current_time().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let mut nonce = [0; 8];
        if let Err(error) = getrandom::fill(&mut nonce) {
            // Tokens still differ by their expiry, and the nonce need not be secret.
            log::warn!("no random bytes for a nonce: {error}");
        }
        match self.endpoint.borrow_mut().decide(request, now, u64::from_be_bytes(nonce)) {
            Decision::Continue => Action::Continue,
            Decision::Answer(answer) => {
                self.counters.count(answer.status);
                let headers =
                    answer.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                self.send_http_response(
                    answer.status.into(),
                    headers,
                    Some(answer.body.as_bytes()),
                );
                Action::Pause
            }
        }
    }
}
