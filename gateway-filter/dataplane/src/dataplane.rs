//! The dataplane of a process: workers, routes, and what they share.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use packrat_estimate::Timestamp;

use crate::capacity::Capacity;
use crate::configuration::{ConfigurationError, RouteConfig};
use crate::downstream::{Attachment, Descriptors, Reading};
use crate::ingress::Ingress;
use crate::log::{Event, LogSink, Logger};
use crate::route::Route;
use crate::snapshot::SessionSnapshot;
use crate::socket::raise_descriptor_limit;
use crate::steering::{self, Steering};
use crate::worker::{self, Command, Mailbox};

/// A receive buffer below this loses bursts at a few hundred Mbit/s; the operator is told once.
const SMALL_RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// How to start a dataplane.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Number of workers, each with an I/O thread; at least 1.
    pub workers: usize,
}

/// Why the dataplane cannot start or attach a socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataplaneError {
    /// The operating system refused a thread, an epoll instance or an eventfd.
    #[error("I/O thread {worker} cannot be started: {source}; check the limits of threads and open files")]
    Worker {
        /// Which of the workers, from 0.
        worker: usize,
        /// What the operating system said.
        source: io::Error,
    },
    /// The socket of a listener cannot be used.
    #[error("the socket of listener {listener} cannot be used: {source}")]
    Listener {
        /// The address that clients send to.
        listener: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
}

/// What all parts of a dataplane share.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) logger: Logger,
    pub(crate) descriptors: Descriptors,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) steering: Steering,
    mailboxes: Vec<Mailbox>,
    origin: Instant,
    numbers: AtomicU64,
    small_buffer_noted: AtomicBool,
    draining: AtomicBool,
}

impl Environment {
    pub(crate) fn new(
        workers: usize,
        logger: Logger,
        capacity: Arc<Capacity>,
    ) -> Result<Self, DataplaneError> {
        let mailboxes = (0..workers.max(1))
            .map(|worker| Mailbox::new().map_err(|source| DataplaneError::Worker { worker, source }))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            logger,
            descriptors: Mutex::default(),
            capacity,
            steering: Steering::default(),
            mailboxes,
            origin: Instant::now(),
            numbers: AtomicU64::new(1),
            small_buffer_noted: AtomicBool::new(false),
            draining: AtomicBool::new(false),
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// What the calendar's time was at the origin of [`Self::now`], since 1970; changes when the clock is set.
    pub(crate) fn unix_origin(&self) -> Duration {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        unix.saturating_sub(self.origin.elapsed())
    }

    /// A number that was not used before in this dataplane.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn mailbox(&self, worker: usize) -> Option<&Mailbox> {
        // A worker that does not exist can come from a shell only; its sessions are served by one that does.
        self.mailboxes.get(worker % self.mailboxes.len().max(1))
    }

    /// Number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.mailboxes.len()
    }

    pub(crate) fn command(&self, worker: usize, command: Command) {
        if let Some(mailbox) = self.mailbox(worker) {
            mailbox.post(command);
        }
    }

    pub(crate) fn note_receive_buffer(&self, bytes: usize) {
        if bytes < SMALL_RECEIVE_BUFFER_BYTES && !self.small_buffer_noted.swap(true, Ordering::Relaxed) {
            self.logger.log(Event::ReceiveBufferSmall, || {
                [
                    ("bytes", bytes.into()),
                    (
                        "advice",
                        "bursts may be lost: raise net.core.rmem_max to 8388608 or grant CAP_NET_ADMIN"
                            .into(),
                    ),
                ]
            });
        }
    }
}

/// The dataplane of a process. Dropping it ends every session and every thread.
#[derive(Debug)]
pub struct Dataplane {
    environment: Arc<Environment>,
    routes: Mutex<HashMap<String, Arc<Route>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Dataplane {
    /// Starts the I/O threads. They sleep while there is nothing to do.
    ///
    /// # Errors
    /// [`DataplaneError::Worker`] when the operating system refuses.
    pub fn start(options: Options, sink: Box<dyn LogSink>) -> Result<Self, DataplaneError> {
        let logger = Logger::new(sink);
        let descriptors = raise_descriptor_limit();
        if let Err(error) = &descriptors {
            logger.log(Event::WorkerError, || {
                [
                    ("message", "the limit of open files could not be raised".into()),
                    ("error", error.to_string().into()),
                ]
            });
        }
        Self::start_with(options, logger, Capacity::of_process(&descriptors))
    }

    /// Starts the I/O threads for at most as many sessions as `capacity` says.
    pub(crate) fn start_with(
        options: Options,
        logger: Logger,
        capacity: Arc<Capacity>,
    ) -> Result<Self, DataplaneError> {
        let environment = Arc::new(Environment::new(options.workers, logger, capacity)?);
        let dataplane = Self {
            environment: Arc::clone(&environment),
            routes: Mutex::default(),
            threads: Mutex::default(),
        };
        for worker in 0..environment.mailboxes.len() {
            let thread = worker::spawn(worker, Arc::clone(&environment))
                .map_err(|source| DataplaneError::Worker { worker, source })?;
            dataplane.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(dataplane)
    }

    /// Puts a configuration in force: makes its route, or changes the one of that name. Sessions stay; those whose endpoint
    /// is gone move with the next datagram of their client.
    ///
    /// # Errors
    /// [`ConfigurationError`] when the key cannot be read; then nothing changes.
    pub fn configure(&self, config: RouteConfig) -> Result<Arc<Route>, ConfigurationError> {
        let config = config.checked()?;
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let route = match routes.get(&config.route) {
            Some(route) => {
                route.reconfigure(config)?;
                Arc::clone(route)
            }
            None => {
                let route = Arc::new(Route::new(config, Arc::clone(&self.environment.capacity))?);
                if self.environment.draining.load(Ordering::Relaxed) {
                    route.drain()?;
                }
                routes.insert(route.name().to_owned(), Arc::clone(&route));
                route
            }
        };
        drop(routes);
        route.follow_stream(&self.environment);
        route.show_limits();
        let summary = route.summary();
        let capacity = &self.environment.capacity;
        if capacity.shall_report(summary.maximum_sessions) {
            self.environment.logger.about(Event::SessionsLimited, &route, || {
                [
                    ("maximum_sessions", summary.maximum_sessions.into()),
                    ("in_force", summary.maximum_sessions_in_force.into()),
                    ("reason", capacity.reason().into()),
                ]
            });
        }
        self.environment.logger.about(Event::RouteConfigured, &route, || {
            let endpoints: Vec<String> = summary.endpoints.iter().map(ToString::to_string).collect();
            [("endpoints", endpoints.into()), ("public_key", route.public_key().into())]
        });
        Ok(route)
    }

    /// All routes, sorted by name.
    pub fn routes(&self) -> Vec<Arc<Route>> {
        let mut routes: Vec<_> =
            self.routes.lock().unwrap_or_else(PoisonError::into_inner).values().map(Arc::clone).collect();
        routes.sort_unstable_by(|one, other| one.name().cmp(other.name()));
        routes
    }

    #[cfg(test)]
    pub(crate) const fn environment(&self) -> &Arc<Environment> {
        &self.environment
    }

    /// The sessions of `route` that are alive, at most `limit`, those first that have carried most.
    pub fn sessions(&self, route: &Route, limit: usize) -> Vec<SessionSnapshot> {
        let busiest = route.sessions.busiest(limit);
        busiest.iter().map(|session| session.snapshot(&self.environment)).collect()
    }

    /// Whether [`Self::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.environment.draining.load(Ordering::Relaxed)
    }

    /// The logger, for lines of the shell.
    pub fn logger(&self) -> &Logger {
        &self.environment.logger
    }

    /// Lends the dataplane a socket that clients of `route` send to, for sending to them. `open` returns the socket, and is
    /// given the descriptors of all sockets lent before: inside Envoy they are duplicates of listener sockets, and must not
    /// be taken for the listener's own. `worker`: from 0.
    ///
    /// # Errors
    /// [`DataplaneError::Listener`] when `open` fails or its socket is not a UDP socket.
    pub fn attach(
        &self,
        route: &Arc<Route>,
        listener: SocketAddr,
        worker: usize,
        open: impl FnOnce(&HashSet<RawFd>) -> io::Result<OwnedFd>,
    ) -> Result<Attachment, DataplaneError> {
        Attachment::fill(&self.environment, route, listener, worker, Reading::Elsewhere, open)
            .map_err(|source| DataplaneError::Listener { listener, source })
    }

    /// Like [`Dataplane::attach`], and the I/O thread of the worker reads most or all of what clients send, on a socket of its own
    /// beside the one that `open` returns: much cheaper where the shell takes one datagram at a time. The shell must go on
    /// reading: it gets what comes before the kernel is told otherwise, and everything where the kernel or the listener does not allow it.
    ///
    /// # Errors
    /// [`DataplaneError::Listener`] when `open` fails or its socket is not a UDP socket.
    pub fn attach_and_read(
        &self,
        route: &Arc<Route>,
        listener: SocketAddr,
        worker: usize,
        open: impl FnOnce(&HashSet<RawFd>) -> io::Result<OwnedFd>,
    ) -> Result<Attachment, DataplaneError> {
        let attachment = Attachment::fill(&self.environment, route, listener, worker, Reading::Beside, open)
            .map_err(|source| DataplaneError::Listener { listener, source })?;
        if attachment.is_newly_read_here() {
            let ingress = self.ingress(route, &attachment, worker);
            self.environment.command(worker, Command::Listen(Box::new(ingress)));
            steering::join(&self.environment, &attachment.slot);
        }
        Ok(attachment)
    }

    /// Like [`Dataplane::attach`], and the I/O thread of the worker also reads what clients send.
    ///
    /// # Errors
    /// [`DataplaneError::Listener`] when the socket is not a UDP socket.
    pub fn listen(
        &self,
        route: &Arc<Route>,
        listener: SocketAddr,
        worker: usize,
        socket: OwnedFd,
    ) -> Result<Attachment, DataplaneError> {
        let attachment =
            Attachment::fill(&self.environment, route, listener, worker, Reading::Here, |_| Ok(socket))
                .map_err(|source| DataplaneError::Listener { listener, source })?;
        self.environment.command(worker, Command::Listen(Box::new(self.ingress(route, &attachment, worker))));
        Ok(attachment)
    }

    /// The entrance for what clients send to the listener of `attachment`.
    pub fn ingress(&self, route: &Arc<Route>, attachment: &Attachment, worker: usize) -> Ingress {
        Ingress::new(Arc::clone(&self.environment), Arc::clone(route), Arc::clone(&attachment.slot), worker)
    }

    /// The gateway is going away: assisted clients are told now, so that none of them waits for it any more, and nobody begins
    /// to be assisted. Forwarding goes on. There is no way back.
    pub fn drain(&self) {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        if self.environment.draining.swap(true, Ordering::Relaxed) {
            return;
        }
        for route in routes.values() {
            if let Err(error) = route.drain() {
                self.environment
                    .logger
                    .about(Event::ConfigurationRefused, route, || [("error", error.to_string().into())]);
            }
            route.follow_stream(&self.environment);
        }
        drop(routes);
        self.environment.logger.log(Event::Draining, || []);
        for worker in 0..self.environment.mailboxes.len() {
            self.environment.command(worker, Command::FollowRoutes);
        }
    }

    /// Ends every session (assisted clients are told) and waits for the threads.
    pub fn shutdown(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if threads.is_empty() {
            return;
        }
        for worker in 0..self.environment.mailboxes.len() {
            self.environment.command(worker, Command::Stop);
        }
        for thread in threads {
            if thread.join().is_err() {
                self.environment
                    .logger
                    .log(Event::WorkerError, || [("message", "an I/O thread had panicked".into())]);
            }
        }
        self.environment.logger.log(Event::Shutdown, || []);
    }
}

impl Drop for Dataplane {
    fn drop(&mut self) {
        self.shutdown();
    }
}
