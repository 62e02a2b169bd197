//! The answers over plain HTTP, on a separate port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packrat_dataplane::{Dataplane, prometheus_text};
use tiny_http::{Header, Request, Response};

use crate::answer::{Answer, answer};
use crate::history::History;

/// Longest wait for a request before the thread takes its next reading.
const TICK: Duration = Duration::from_millis(500);

/// Finds the data plane, which may be made later than the server.
type Find = dyn Fn() -> Option<&'static Dataplane> + Send + Sync;

enum Source {
    Owned(Arc<Dataplane>),
    Found(Box<Find>),
}

impl Source {
    fn get(&self) -> Option<&Dataplane> {
        match self {
            Self::Owned(dataplane) => Some(dataplane),
            Self::Found(find) => find(),
        }
    }
}

/// Serves `/metrics`, the page at `/`, and the paths of [`crate::PATHS`], until it is dropped.
pub struct Server {
    server: Arc<tiny_http::Server>,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds `address` and starts to serve for `dataplane`.
    ///
    /// # Errors
    /// The address cannot be bound, or no thread can be started.
    pub fn start(
        address: SocketAddr,
        dataplane: &Arc<Dataplane>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        Self::serve(address, Source::Owned(Arc::clone(dataplane)), Arc::default())
    }

    /// Binds `address` and starts to serve for the data plane that `find` returns at each request.
    /// The caller keeps the history up to date.
    ///
    /// # Errors
    /// The address cannot be bound, or no thread can be started.
    pub fn start_for(
        address: SocketAddr,
        find: impl Fn() -> Option<&'static Dataplane> + Send + Sync + 'static,
        history: Arc<History>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        Self::serve(address, Source::Found(Box::new(find)), history)
    }

    fn serve(
        address: SocketAddr,
        source: Source,
        history: Arc<History>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let server = tiny_http::Server::http(address).map_err(|error| {
            format!("cannot serve on {address}: {error}; choose another address")
        })?;
        let server = Arc::new(server);
        let address = server.server_addr().to_ip().unwrap_or(address);
        let stop = Arc::new(AtomicBool::new(false));
        let (serving, stopped) = (Arc::clone(&server), Arc::clone(&stop));
        let thread =
            std::thread::Builder::new().name("packrat-admin".to_owned()).spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    history.tick(source.get(), Instant::now());
                    if let Ok(Some(request)) = serving.recv_timeout(TICK) {
                        respond(request, source.get(), &history);
                    }
                }
            })?;
        Ok(Self { server, address, stop, thread: Some(thread) })
    }

    /// The address in use.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

fn respond(request: Request, dataplane: Option<&Dataplane>, history: &History) {
    let path = request.url().split('?').next().unwrap_or_default();
    let answer = match path {
        "/metrics" => Answer {
            status: 200,
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            body: prometheus_text(&dataplane.map(Dataplane::routes).unwrap_or_default()),
        },
        "/" => answer(dataplane, history, request.method().as_str(), "/packrat/overview"),
        _ => answer(dataplane, history, request.method().as_str(), request.url()),
    };
    let mut response = Response::from_string(answer.body).with_status_code(answer.status);
    let headers = [
        ("Content-Type", answer.content_type),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
        // The page contains only its own style. The policy forbids everything else.
        (
            "Content-Security-Policy",
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
    ];
    for (name, value) in headers {
        if let Ok(header) = Header::from_bytes(name, value) {
            response.add_header(header);
        }
    }
    // A scraper that has disconnected asks again.
    let _ = request.respond(response);
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            // The thread only answers requests; its panic has been printed already.
            let _ = thread.join();
        }
    }
}
