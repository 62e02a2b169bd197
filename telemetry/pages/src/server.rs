//! The server: a thread that accepts, and one for each connection.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::answer::Answer;
use crate::connection;
use crate::request::Request;

/// Connections at once; further clients are asked to come again. Each has a thread of its own, so
/// that a slow reader delays no one.
const MOST_CONNECTIONS: usize = 32;
/// Pause after a connection that could not be accepted: there are no descriptors, or no threads.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest time to reach the server's own port, to end it.
const WAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// Answers a request; on a thread of its own.
type Respond = dyn Fn(&Request<'_>) -> Answer + Send + Sync;

/// The state that the server's threads share.
struct Shared {
    respond: Box<Respond>,
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

/// Pages that are served until this is dropped.
pub struct Pages {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pages").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Pages {
    /// Binds `address` and serves the answers of `respond`.
    ///
    /// # Errors
    /// The address cannot be bound, or no thread can be started.
    pub fn serve(
        address: SocketAddr,
        respond: impl Fn(&Request<'_>) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).map_err(|error| {
            let text = format!("cannot serve on {address}: {error}; choose another address");
            io::Error::new(error.kind(), text)
        })?;
        let address = listener.local_addr()?;
        let (connections, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { respond: Box::new(respond), connections, stop });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("packrat-admin".to_owned());
        let thread = thread.spawn(move || accept(&listener, &of_thread))?;
        Ok(Self { address, shared, thread: Some(thread) })
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
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let Some(place) = Place::take(shared) else {
            refuse(stream);
            continue;
        };
        let serve = move || {
            // A scraper that has disconnected asks again.
            let _ = connection::serve(stream, |request| (place.0.respond)(request));
        };
        let thread = std::thread::Builder::new().name("packrat-page".to_owned());
        if thread.spawn(serve).is_err() {
            std::thread::sleep(ACCEPT_PAUSE);
        }
    }
}

/// Answers a client that there are too many connections. Never waits.
fn refuse(mut stream: TcpStream) {
    if stream.set_nonblocking(true).is_ok() {
        let _ = stream
            .write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n");
    }
}

impl Drop for Pages {
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
        // It only hands requests on; its panics have been printed already. One that cannot be woken
        // ends with the process.
        if let Some(thread) = self.thread.take().filter(|_| reached) {
            let _ = thread.join();
        }
    }
}
