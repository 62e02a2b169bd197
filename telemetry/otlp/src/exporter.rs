//! The thread that sends to the collector.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use packrat_dataplane::log::{Level, StandardOutput};
use packrat_dataplane::{Dataplane, DataplaneRef};
use prost::Message;

use crate::headers::{self, HEADERS_VARIABLE, PLAIN_HEADERS_VARIABLE};
use crate::metrics::metrics;
use crate::spans::{Sessions, request};

/// The environment variable that names the collector, as OpenTelemetry's specification defines it.
pub const ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Interval of reading the log, which remembers more lines than are written in that time.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of sending metrics.
const METRICS_INTERVAL: Duration = Duration::from_secs(10);
/// Longest time for a collector to answer.
const COLLECTOR_PATIENCE: Duration = Duration::from_secs(3);
/// Lines of the log that are read at a time.
const LOG_LINES: usize = 1024;

/// The reason why an exporter cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The URL is invalid.
    #[error(
        "{0:?} is no URL of a collector that can be used here; give http://HOST:4318 (without TLS: a collector beside the gateway adds it)"
    )]
    Url(String),
    /// The headers are invalid; not shown, as they may be secret.
    #[error("{HEADERS_VARIABLE} has no headers as key=value,key=value with percent-encoded values")]
    Headers,
    /// The headers would cross a network in the clear.
    #[error(
        "{HEADERS_VARIABLE} has headers, which may be secret, and {0} is reached over a network without TLS: name a collector on this host's loopback interface, which adds TLS, or set {PLAIN_HEADERS_VARIABLE}=true"
    )]
    Plain(String),
    /// The thread could not be started.
    #[error("no thread can be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Sends metrics and spans until it is dropped, and then the remaining ones.
#[derive(Debug)]
pub struct Exporter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Starts to send to the collector at `endpoint` (`http://HOST:PORT`, or with a path to put in
    /// front of OTLP's), with the headers of [`HEADERS_VARIABLE`]. `instance` identifies this
    /// gateway.
    ///
    /// # Errors
    /// The URL or a header is invalid, headers would cross a network in the clear, or no thread can be started.
    pub fn start(
        endpoint: &str,
        instance: &str,
        dataplane: &Arc<Dataplane>,
    ) -> Result<Self, EndpointError> {
        Self::send(endpoint, instance, DataplaneRef::Owned(Arc::clone(dataplane)))
    }

    /// Starts to send for the data plane that `find` returns, once it returns one.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_for(
        endpoint: &str,
        instance: &str,
        find: fn() -> Option<&'static Dataplane>,
    ) -> Result<Self, EndpointError> {
        Self::send(endpoint, instance, DataplaneRef::Found(find))
    }

    fn send(
        endpoint: &str,
        instance: &str,
        dataplane: DataplaneRef,
    ) -> Result<Self, EndpointError> {
        let base = endpoint.trim_end_matches('/');
        // A path is a prefix of the paths that OTLP names.
        let host = base.strip_prefix("http://").and_then(|rest| rest.split('/').next());
        let host = host.filter(|host| !host.is_empty() && !base.contains(['?', '#', ' ']));
        let host = host.ok_or_else(|| EndpointError::Url(endpoint.to_owned()))?;
        let headers = std::env::var(HEADERS_VARIABLE).unwrap_or_default();
        let headers = headers::parse(&headers).ok_or(EndpointError::Headers)?;
        let is_permitted = std::env::var(PLAIN_HEADERS_VARIABLE).is_ok_and(|value| value == "true");
        if !headers.is_empty() && !headers::is_loopback(host) && !is_permitted {
            return Err(EndpointError::Plain(endpoint.to_owned()));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let mut worker = Worker {
            base: base.to_owned(),
            instance: instance.to_owned(),
            headers,
            dataplane,
            agent: ureq::Agent::config_builder()
                .timeout_global(Some(COLLECTOR_PATIENCE))
                .build()
                .into(),
            started: nanoseconds(),
            sessions: Sessions::default(),
            seen: 0,
            random: RandomState::new(),
            numbers: 0,
            failing: false,
        };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("packrat-otlp".to_owned())
            .spawn(move || worker.send_until(&stopped))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread has been printed already; nothing depends on it.
            let _ = thread.join();
        }
    }
}

fn nanoseconds() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

struct Worker {
    base: String,
    instance: String,
    headers: Vec<(String, String)>,
    dataplane: DataplaneRef,
    agent: ureq::Agent,
    started: u64,
    sessions: Sessions,
    /// Number of the last line of the log that was read.
    seen: u64,
    random: RandomState,
    numbers: u64,
    /// True if the last message could not be sent.
    failing: bool,
}

impl Worker {
    fn send_until(&mut self, stopped: &AtomicBool) {
        let mut sent = Instant::now();
        loop {
            std::thread::park_timeout(LOG_INTERVAL);
            let is_last = stopped.load(Ordering::Relaxed);
            self.send_spans();
            if is_last || sent.elapsed() >= METRICS_INTERVAL {
                sent = Instant::now();
                self.send_metrics();
            }
            if is_last {
                return;
            }
        }
    }

    fn send_spans(&mut self) {
        let Some(dataplane) = self.dataplane.get() else { return };
        let lines = dataplane.logger().recent(self.seen, LOG_LINES);
        let Some(last) = lines.last() else { return };
        self.seen = last.number;
        let (random, numbers) = (&self.random, &mut self.numbers);
        let spans = self.sessions.spans(&lines, || {
            *numbers += 1;
            random.hash_one(*numbers)
        });
        if !spans.is_empty() {
            let message = request(spans, &self.instance).encode_to_vec();
            self.send("/v1/traces", &message);
        }
    }

    fn send_metrics(&mut self) {
        let Some(dataplane) = self.dataplane.get() else { return };
        let message = metrics(&dataplane.routes(), &self.instance, self.started, nanoseconds())
            .encode_to_vec();
        self.send("/v1/metrics", &message);
    }

    fn send(&mut self, path: &str, message: &[u8]) {
        let url = format!("{}{path}", self.base);
        let request = self.agent.post(&url).content_type("application/x-protobuf");
        let answer = self
            .headers
            .iter()
            .fold(request, |request, (name, value)| request.header(name, value))
            .send(message);
        // Logged once, not for each message.
        match answer {
            Ok(_) => self.failing = false,
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    let fields = [("url", url.into()), ("error", error.to_string().into())];
                    StandardOutput::line(Level::Warning, "otlp_failed", fields);
                }
            }
        }
    }
}
