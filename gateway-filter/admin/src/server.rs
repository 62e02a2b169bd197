//! The answers over plain HTTP, on a separate port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packrat_dataplane::{Dataplane, DataplaneRef, prometheus_text};
use packrat_pages::{Answer, Pages, Request};

use crate::answer::{CLIENTS_PATH, answer, clients};
use crate::history::History;

/// Time between two readings of the history.
const READING_TICK: Duration = Duration::from_millis(500);

/// Serves `/metrics`, the page at `/`, and the paths of [`crate::ANSWERED_PATHS`], until it is dropped.
pub struct Server {
    pages: Pages,
    stop: Arc<AtomicBool>,
    ticking: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Server").field("address", &self.address()).finish_non_exhaustive()
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
        Self::serve(address, DataplaneRef::Owned(Arc::clone(dataplane)), Arc::default())
    }

    /// Binds `address` and starts to serve for the data plane that `find` returns at each request.
    /// The caller keeps the history up to date.
    ///
    /// # Errors
    /// The address cannot be bound, or no thread can be started.
    pub fn start_for(
        address: SocketAddr,
        find: fn() -> Option<&'static Dataplane>,
        history: Arc<History>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        Self::serve(address, DataplaneRef::Found(find), history)
    }

    fn serve(
        address: SocketAddr,
        dataplane: DataplaneRef,
        history: Arc<History>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let (dataplane, stop) = (Arc::new(dataplane), Arc::new(AtomicBool::new(false)));
        let answering = (Arc::clone(&dataplane), Arc::clone(&history));
        let pages = Pages::serve(address, move |request| {
            let (dataplane, history) = &answering;
            respond(request, dataplane.get(), history)
        })?;
        let has_stopped = Arc::clone(&stop);
        let ticking =
            std::thread::Builder::new().name("packrat-history".to_owned()).spawn(move || {
                while !has_stopped.load(Ordering::Relaxed) {
                    history.tick(dataplane.get(), Instant::now());
                    std::thread::park_timeout(READING_TICK);
                }
            })?;
        Ok(Self { pages, stop, ticking: Some(ticking) })
    }

    /// The address in use.
    pub const fn address(&self) -> SocketAddr {
        self.pages.address()
    }
}

/// The answer to a request over plain HTTP, which a browser may have made.
pub(crate) fn respond(
    request: &Request<'_>,
    dataplane: Option<&Dataplane>,
    history: &History,
) -> Answer {
    if request.method == "POST"
        && let Some(objection) = request.objection()
    {
        return Answer::problem(403, objection.to_owned());
    }
    match request.target.split('?').next().unwrap_or_default() {
        "/metrics" if request.method != "GET" && request.method != "HEAD" => {
            Answer::problem(405, format!("/metrics takes no {}; use GET", request.method))
        }
        "/metrics" => Answer::prometheus(prometheus_text(
            &dataplane.map(Dataplane::routes).unwrap_or_default(),
        )),
        CLIENTS_PATH => match (request.method, request.peer) {
            ("GET" | "HEAD", Some(peer)) => {
                let query = request.target.split_once('?').map_or("", |(_, query)| query);
                clients(dataplane, peer, query)
            }
            ("GET" | "HEAD", None) => Answer::problem(403, "it is not known who asks".to_owned()),
            (method, _) => {
                Answer::problem(405, format!("{CLIENTS_PATH} takes no {method}; use GET"))
            }
        },
        "/" => answer(dataplane, history, request.method, "/packrat/overview"),
        _ => answer(dataplane, history, request.method, request.target),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.ticking.take() {
            thread.thread().unpark();
            // It only reads; its panics have been printed already.
            let _ = thread.join();
        }
    }
}
