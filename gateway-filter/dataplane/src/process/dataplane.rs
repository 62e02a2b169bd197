//! The data plane of a process: its workers and routes.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::io_thread;
use crate::configuration::ConfigurationError;
use crate::context::Environment;
use crate::listener::{Attachment, Command, Ingress, Listeners, Mailboxes};
use crate::log::{Event, LogSink, Logger};
use crate::route::Route;
use crate::socket::{Capacity, ListenerAddress, Reader, raise_descriptor_limit};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use packrat_api::route::RouteConfig;
use packrat_api::status::{ClientOfServer, Events, SessionEvent, SessionSnapshot};
use packrat_wire::estimate::Timestamp;

/// The options of a data plane.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Number of workers, each with an I/O thread; at least 1.
    pub workers: usize,
}

/// The reason why a data plane cannot start or attach a socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataplaneError {
    /// The operating system refused a thread, an epoll instance or an eventfd.
    #[error(
        "I/O thread {worker} cannot be started: {source}; check the limits of threads and open files"
    )]
    Worker {
        /// Which of the workers, from 0.
        worker: usize,
        /// The operating system's error.
        source: io::Error,
    },
    /// The socket of a listener cannot be used.
    #[error("the socket of listener {listener} cannot be used: {source}")]
    Listener {
        /// The address that clients send to.
        listener: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
}

/// The reason why a session cannot be observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObservationError {
    /// There is no session with this number.
    #[error(
        "no session {0}: it has ended, or another gateway has it; /packrat/sessions lists them"
    )]
    NoSession(u64),
    /// The number of observed sessions is at its limit.
    #[error("too many sessions are observed; wait until the time of one is over")]
    TooMany,
}

/// The data plane of a process. Dropping it ends every session and every thread.
#[derive(Debug)]
pub struct Dataplane {
    environment: Arc<Environment>,
    listeners: Arc<Listeners>,
    routes: Mutex<HashMap<String, Arc<Route>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    draining: AtomicBool,
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

    /// Starts the I/O threads for at most `capacity` sessions.
    pub(crate) fn start_with(
        options: Options,
        logger: Logger,
        capacity: Arc<Capacity>,
    ) -> Result<Self, DataplaneError> {
        let environment = Arc::new(Environment::new(logger, capacity));
        let failed = |(worker, source)| DataplaneError::Worker { worker, source };
        let mailboxes = Arc::new(Mailboxes::new(options.workers).map_err(failed)?);
        let dataplane = Self {
            environment: Arc::clone(&environment),
            listeners: Arc::new(Listeners::new(&environment, Arc::clone(&mailboxes))),
            routes: Mutex::default(),
            threads: Mutex::default(),
            draining: AtomicBool::new(false),
        };
        for worker in 0..mailboxes.workers() {
            let thread = io_thread::spawn(worker, Arc::clone(&environment), Arc::clone(&mailboxes))
                .map_err(|source| failed((worker, source)))?;
            dataplane.threads.lock().push(thread);
        }
        Ok(dataplane)
    }

    /// Puts a configuration in force: makes its route, or changes the route of that name. Sessions
    /// stay; a session whose endpoint is gone moves with the next datagram of its client.
    ///
    /// # Errors
    /// [`ConfigurationError`] when the key cannot be read; then nothing changes.
    pub fn configure(&self, config: RouteConfig) -> Result<Arc<Route>, ConfigurationError> {
        let config = config.checked()?;
        let mut routes = self.routes.lock();
        let mut is_switched_off = false;
        let route = match routes.get(&config.route) {
            Some(route) => {
                let was_on = route.context.engine.config().assist;
                is_switched_off = was_on && !config.assist;
                route.context.reconfigure(config)?;
                Arc::clone(route)
            }
            None => {
                let route = Arc::new(Route::new(config, Arc::clone(&self.environment))?);
                if self.is_draining() {
                    route.context.drain();
                }
                routes.insert(route.name().to_owned(), Arc::clone(&route));
                route
            }
        };
        drop(routes);
        self.listeners.mailboxes.follow_stream(&route);
        if is_switched_off {
            // Now, and not with the next word of each client.
            self.listeners.mailboxes.post_to_all(|| Command::FollowRoutes);
        }
        route.context.show_limits();
        let summary = route.summary();
        let capacity = &self.environment.capacity;
        if capacity.shall_report(summary.maximum_sessions) {
            route.context.log(Event::SessionsLimited, || {
                [
                    ("maximum_sessions", summary.maximum_sessions.into()),
                    ("in_force", summary.maximum_sessions_in_force.into()),
                    ("reason", capacity.reason().into()),
                ]
            });
        }
        route.context.log(Event::RouteConfigured, || {
            let endpoints: Vec<String> =
                summary.endpoints.iter().map(ToString::to_string).collect();
            [("endpoints", endpoints.into()), ("public_key", route.public_key().into())]
        });
        Ok(route)
    }

    /// All routes, sorted by name. Also forgets routes that have been unused for a while, because a
    /// display of the routes calls this again and again.
    pub fn routes(&self) -> Vec<Arc<Route>> {
        self.routes_at(self.environment.now())
    }

    fn routes_at(&self, now: Timestamp) -> Vec<Arc<Route>> {
        let mut routes = self.routes.lock();
        // The shell's configurations and listeners, and threads with a session of the route, also
        // hold a reference.
        routes.retain(|_, route| {
            let is_over = route.is_over(Arc::strong_count(route) > 1, now);
            if is_over {
                route.context.log(Event::RouteForgotten, || []);
            }
            !is_over
        });
        let mut routes: Vec<_> = routes.values().map(Arc::clone).collect();
        routes.sort_unstable_by(|one, other| one.name().cmp(other.name()));
        routes
    }

    #[cfg(test)]
    pub(crate) fn mailboxes(&self) -> &Arc<Mailboxes> {
        &self.listeners.mailboxes
    }

    /// The sessions of `route` that are alive, at most `limit`, those first that have carried most.
    pub fn sessions(&self, route: &Route, limit: usize) -> Vec<SessionSnapshot> {
        let busiest = route.sessions.busiest(limit);
        busiest.iter().map(|session| session.snapshot()).collect()
    }

    /// The session with this number in log lines, on any route, with what the engine has counted.
    pub fn session(&self, number: u64) -> Option<SessionSnapshot> {
        let routes = self.routes();
        let session = routes.iter().find_map(|route| route.sessions.numbered(number))?;
        Some(session.detailed_snapshot())
    }

    /// The sessions of the client at this address, of one port or all; the same.
    pub fn sessions_of_client(&self, address: IpAddr, port: Option<u16>) -> Vec<SessionSnapshot> {
        let routes = self.routes();
        let sessions = routes.iter().flat_map(|route| route.sessions.of_client(address, port));
        sessions.map(|session| session.detailed_snapshot()).collect()
    }

    /// The clients of the server at this address, and what it sees in their place.
    pub fn clients_of_server(&self, server: IpAddr) -> Vec<ClientOfServer> {
        let routes = self.routes();
        let sessions = routes.iter().flat_map(|route| route.sessions.of_server(server));
        sessions.filter_map(|session| session.client_of_server()).collect()
    }

    /// Observes a session for `duration` from now, at least, and returns its events after number
    /// `after`, at most `limit`. `session`: its number in log lines. The first request for a
    /// session begins to observe it.
    ///
    /// # Errors
    /// [`ObservationError`] when there is no such session, or too many are observed.
    pub fn observe(
        &self,
        session: u64,
        duration: Duration,
        after: u64,
        limit: usize,
    ) -> Result<Events<SessionEvent>, ObservationError> {
        let Environment { observations, .. } = &*self.environment;
        let now = self.environment.now();
        if let Some(found) = self.routes().iter().find_map(|route| route.sessions.numbered(session))
        {
            if !observations.observe(session, now + duration, now) {
                return Err(ObservationError::TooMany);
            }
            found.engine_side.observe(true);
        }
        // The events of a session that has ended are there for the rest of the time.
        observations
            .after(session, after, limit, now)
            .map(|(newest, events)| Events { newest, events })
            .ok_or(ObservationError::NoSession(session))
    }

    /// True if [`Self::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// The logger, for lines of the shell.
    pub fn logger(&self) -> &Logger {
        &self.environment.logger
    }

    /// Lends the data plane a socket that clients of `route` send to, for sending to them. `open`
    /// returns the socket, and is given the descriptors of all sockets lent before: inside Envoy
    /// they are duplicates of listener sockets, and must not be taken for the listener's own.
    /// `worker`: from 0.
    ///
    /// The I/O thread of the worker reads most or all of the clients' datagrams, on a socket of its
    /// own beside the one that `open` returns: much cheaper if the shell takes one datagram at a
    /// time. The shell must continue to read: it gets the datagrams that come before the kernel is
    /// steered, and all datagrams if the kernel or the listener does not allow steering.
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
        self.attach(route, listener, worker, Reader::Both, open)
    }

    /// Hands the data plane a socket that clients of `route` send to. The I/O thread of the worker
    /// reads it.
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
        self.attach(route, listener, worker, Reader::IoThread, |_| Ok(socket))
    }

    fn attach(
        &self,
        route: &Arc<Route>,
        listener: SocketAddr,
        worker: usize,
        reader: Reader,
        open: impl FnOnce(&HashSet<RawFd>) -> io::Result<OwnedFd>,
    ) -> Result<Attachment, DataplaneError> {
        let address = ListenerAddress::new(listener);
        Attachment::new(&self.listeners, route, address, worker, reader, open)
            .map_err(|source| DataplaneError::Listener { listener, source })
    }

    /// The entrance for datagrams that clients send to the listener of `attachment`.
    pub fn ingress(&self, route: &Arc<Route>, attachment: &Attachment, worker: usize) -> Ingress {
        let mailboxes = Arc::clone(&self.listeners.mailboxes);
        Ingress::new(mailboxes, Arc::clone(route), Arc::clone(&attachment.slot), worker)
    }

    /// Prepares the gateway's end: no further client is assisted. Forwarding continues, and so does
    /// the assistance of assisted clients, until [`Self::shutdown`] sends them Goodbye. There is no
    /// way back.
    pub fn drain(&self) {
        let routes = self.routes.lock();
        if self.draining.swap(true, Ordering::Relaxed) {
            return;
        }
        for route in routes.values() {
            route.context.drain();
        }
        drop(routes);
        self.environment.logger.log(Event::Draining, || []);
    }

    /// Ends every session (assisted clients get Goodbye) and waits for the threads.
    pub fn shutdown(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return;
        }
        self.listeners.mailboxes.post_to_all(|| Command::Stop);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::StandardOutput;

    #[test]
    fn a_route_without_config_listener_and_session_is_forgotten() {
        let dataplane = Dataplane::start(Options { workers: 1 }, Box::new(StandardOutput)).unwrap();
        let config =
            |name: &str| RouteConfig::new(name, ["192.0.2.1:443".parse().unwrap()]).unwrap();
        let configured = dataplane.configure(config("configured")).unwrap();
        drop(dataplane.configure(config("gone")).unwrap());
        let names = |now: Duration| -> Vec<String> {
            let now = dataplane.environment.now() + now;
            dataplane.routes_at(now).iter().map(|route| route.name().to_owned()).collect()
        };
        assert_eq!(names(Duration::ZERO), ["configured", "gone"]);
        assert_eq!(names(Duration::from_secs(30)), ["configured", "gone"]);
        assert_eq!(names(Duration::from_secs(90)), ["configured"]);
        drop(configured);
        assert_eq!(names(Duration::from_secs(91)), ["configured"]);
    }
}
