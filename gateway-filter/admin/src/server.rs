//! The answers over plain HTTP, on a separate port.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packrat_dataplane::{Dataplane, prometheus_text};

use crate::answer::{Answer, answer};
use crate::connection;
use crate::history::History;
use crate::request::Request;

/// Time between two readings of the history.
const TICK: Duration = Duration::from_millis(500);
/// Connections at once; further ones are told to come again. Each has a thread of its own, so that
/// a slow reader delays no one.
const MOST_CONNECTIONS: usize = 32;
/// Pause after a connection that could not be accepted: there are no descriptors, or no threads.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest time to reach the server's own port, to end it.
const WAKE_TIMEOUT: Duration = Duration::from_secs(1);

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

/// The state that the server's threads share.
struct Shared {
    source: Source,
    history: Arc<History>,
    connections: AtomicUsize,
    stop: AtomicBool,
}

/// A place among the connections; given back when it is dropped.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let one_more = |count| (count < MOST_CONNECTIONS).then_some(count + 1);
        let connections = &shared.connections;
        connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self(Arc::clone(shared)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves `/metrics`, the page at `/`, and the paths of [`crate::PATHS`], until it is dropped.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
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
        let listener = TcpListener::bind(address).map_err(|error| {
            format!("cannot serve on {address}: {error}; choose another address")
        })?;
        let address = listener.local_addr()?;
        let (connections, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { source, history, connections, stop });
        // From here on, an error ends the threads that run already.
        let mut server = Self { address, shared: Arc::clone(&shared), threads: Vec::new() };
        let ticking = Arc::clone(&shared);
        server.spawn("packrat-history", move || {
            while !ticking.stop.load(Ordering::Relaxed) {
                ticking.history.tick(ticking.source.get(), Instant::now());
                std::thread::park_timeout(TICK);
            }
        })?;
        server.spawn("packrat-admin", move || accept(&listener, &shared))?;
        Ok(server)
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), std::io::Error> {
        self.threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(work)?);
        Ok(())
    }

    /// The address in use.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Takes connections until the server ends.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let Some(place) = Place::take(shared) else {
            refuse(stream);
            continue;
        };
        let serve = move || {
            // A scraper that has disconnected asks again.
            let _ = connection::serve(stream, |request| {
                respond(request, place.0.source.get(), &place.0.history)
            });
        };
        let thread = std::thread::Builder::new().name("packrat-page".to_owned());
        if thread.spawn(serve).is_err() {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Tells a client that there are too many. Never waits.
fn refuse(mut stream: TcpStream) {
    if stream.set_nonblocking(true).is_ok() {
        let _ = stream
            .write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n");
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
        "/metrics" => Answer {
            status: 200,
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            body: prometheus_text(&dataplane.map(Dataplane::routes).unwrap_or_default()),
        },
        "/" => answer(dataplane, history, request.method, "/packrat/overview"),
        _ => answer(dataplane, history, request.method, request.target),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let own = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        // The thread that accepts wakes up.
        let own = SocketAddr::new(own, self.address.port());
        let reached = TcpStream::connect_timeout(&own, WAKE_TIMEOUT).is_ok();
        for thread in std::mem::take(&mut self.threads) {
            thread.thread().unpark();
            // The threads only answer requests; their panics have been printed already. One that
            // cannot be woken ends with the process.
            if reached || thread.thread().name() != Some("packrat-admin") {
                let _ = thread.join();
            }
        }
    }
}
