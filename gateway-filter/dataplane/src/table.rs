//! The sessions of one route, by the address of their client, in a table that outlives listeners and workers.
//!
//! # Order of locks
//!
//! Whoever holds one of these locks takes only locks that come later:
//!
//! 1. `assistance` of one session, never of two
//! 2. the shards of this table; two of them in the order of their index
//! 3. one of: `path` of a session, `upstream` of a session, the index of assisted sessions, the waiting room, the mailbox of
//!    a worker, the settings of a route, the log
//!
//! The shard of a session's client address guards whether the session is closed or displaced, and that address: it changes
//! under the locks of both shards.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use packrat_estimate::Timestamp;

use crate::dataplane::Environment;
use crate::log;
use crate::metrics::Metric;
use crate::route::Route;
use crate::session::{ClientPath, Session};
use crate::worker::Command;

const SHARDS: usize = 64;

type Shard = HashMap<SocketAddr, Arc<Session>>;

/// The sessions of one route.
#[derive(Debug)]
pub(crate) struct SessionTable {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    count: AtomicUsize,
}

impl Default for SessionTable {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            count: AtomicUsize::new(0),
        }
    }
}

/// The locked shards of one or two addresses.
struct Shards<'a> {
    /// With the lower index.
    first: MutexGuard<'a, Shard>,
    /// `None` when both addresses have the same shard.
    second: Option<MutexGuard<'a, Shard>>,
    swapped: bool,
}

impl Shards<'_> {
    fn of_one(&mut self) -> &mut Shard {
        if self.swapped { self.second.as_mut().unwrap_or(&mut self.first) } else { &mut self.first }
    }

    fn of_other(&mut self) -> &mut Shard {
        if self.swapped { &mut self.first } else { self.second.as_mut().unwrap_or(&mut self.first) }
    }
}

impl SessionTable {
    fn index(&self, client: SocketAddr) -> usize {
        self.hasher.hash_one(client) as usize % SHARDS
    }

    #[allow(clippy::indexing_slicing)] // a remainder of SHARDS
    fn lock(&self, index: usize) -> MutexGuard<'_, Shard> {
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard(&self, client: SocketAddr) -> MutexGuard<'_, Shard> {
        self.lock(self.index(client))
    }

    fn shards(&self, one: SocketAddr, other: SocketAddr) -> Shards<'_> {
        let (one, other) = (self.index(one), self.index(other));
        let first = self.lock(one.min(other));
        let second = (one != other).then(|| self.lock(one.max(other)));
        Shards { first, second, swapped: one > other }
    }

    /// The session of a client, which counts as active now.
    pub(crate) fn find(
        &self,
        environment: &Environment,
        path: &ClientPath,
        now: Timestamp,
    ) -> Option<Arc<Session>> {
        let session = {
            let shard = self.shard(path.client);
            let session = shard.get(&path.client)?;
            session.touch(now);
            Arc::clone(session)
        };
        session.follow(environment, path);
        Some(session)
    }

    /// The session of a client, opened when there is none. `None` when it is refused; that is counted and logged.
    pub(crate) fn find_or_open(
        environment: &Environment,
        route: &Arc<Route>,
        path: &ClientPath,
        worker: usize,
        now: Timestamp,
    ) -> Option<Arc<Session>> {
        let table = &route.sessions;
        let client = path.client;
        if let Some(session) = table.find(environment, path, now) {
            return Some(session);
        }
        let settings = route.settings();
        let refused = |reason: String| {
            route.metrics().add(Metric::SessionsRefused, 1);
            environment.logger.about(log::Event::SessionRefused, route, || {
                [("client", environment.logger.client(client)), ("reason", reason.into())]
            });
        };
        let mut shard = table.shard(client);
        let entry = match shard.entry(client) {
            // Another worker was faster.
            Entry::Occupied(entry) => return Some(Arc::clone(entry.get())),
            Entry::Vacant(entry) => entry,
        };
        if table.count.fetch_add(1, Ordering::Relaxed) as u64 >= settings.config.maximum_sessions {
            table.count.fetch_sub(1, Ordering::Relaxed);
            refused(format!("maximum_sessions ({}) reached", settings.config.maximum_sessions));
            return None;
        }
        let session = match Session::open(environment, route, &settings, path, worker, now) {
            Ok(session) => Arc::new(session),
            Err(error) => {
                table.count.fetch_sub(1, Ordering::Relaxed);
                refused(format!("no room for an upstream socket: {error}"));
                return None;
            }
        };
        entry.insert(Arc::clone(&session));
        drop(shard);
        let upstream = session.upstream();
        route.metrics().add(Metric::Sessions, 1);
        route.metrics().add(Metric::SessionsOpened, 1);
        environment.command(worker, Command::Register(Arc::clone(&session), Arc::clone(&upstream)));
        environment.note_receive_buffer(upstream.receive_buffer_bytes());
        session.log(environment, log::Event::SessionOpened, || {
            [("endpoint", upstream.endpoint().to_string().into()), ("worker", worker.into())]
        });
        Some(session)
    }

    /// The client of a session is somewhere else now, as it has proved; its upstream socket stays. Whoever is known at the new
    /// address is not there any more: a session without assistance is closed (most likely datagrams of the moved client have
    /// opened it), an assisted one keeps its upstream socket and hears nothing until its own client proves where it is.
    /// Whether it has moved: not after it was closed.
    pub(crate) fn move_client(
        &self,
        environment: &Environment,
        session: &Arc<Session>,
        path: &ClientPath,
    ) -> bool {
        let (from, displaced) = loop {
            let from = session.client();
            let mut shards = self.shards(from, path.client);
            if session.client() != from {
                continue;
            }
            if session.is_closed() {
                return false;
            }
            let here = |current: &Arc<Session>| current.number == session.number;
            if shards.of_one().get(&from).is_some_and(here) {
                shards.of_one().remove(&from);
            }
            let displaced = shards.of_other().insert(path.client, Arc::clone(session));
            if let Some(other) = &displaced {
                if other.is_assisted() {
                    other.set_displaced(true);
                } else {
                    other.set_closed();
                    self.count.fetch_sub(1, Ordering::Relaxed);
                }
            }
            session.set_path(path);
            session.set_displaced(false);
            break (from, displaced);
        };
        if let Some(other) = displaced.filter(|other| other.is_closed()) {
            environment.command(other.worker, Command::Close(other));
        }
        session.log(environment, log::Event::ClientMoved, || [("from", environment.logger.client(from))]);
        true
    }

    /// Some of the sessions, at most `limit`, those first that have carried most.
    pub(crate) fn busiest(&self, limit: usize) -> Vec<Arc<Session>> {
        let mut sessions: Vec<(u64, Arc<Session>)> = Vec::new();
        for index in 0..SHARDS {
            let shard = self.lock(index);
            sessions.extend(shard.values().map(|session| {
                let bytes = session.totals.to_client_bytes.load(Ordering::Relaxed);
                (bytes, Arc::clone(session))
            }));
        }
        sessions.sort_unstable_by_key(|(bytes, session)| (std::cmp::Reverse(*bytes), session.number));
        sessions.truncate(limit);
        sessions.into_iter().map(|(_, session)| session).collect()
    }

    /// Takes the session out when it is idle since `idle_timeout` (or in any case with `None`); whether it was taken out.
    pub(crate) fn remove(&self, session: &Session, now: Timestamp, idle_timeout: Option<Duration>) -> bool {
        loop {
            let client = session.client();
            let mut shard = self.shard(client);
            if session.client() != client {
                continue;
            }
            // Under the lock of the table, so that a datagram that arrives now either counts as activity or opens a new
            // session.
            if session.is_closed() || idle_timeout.is_some_and(|timeout| session.idle_since() + timeout > now)
            {
                return false;
            }
            if shard.get(&client).is_some_and(|current| current.number == session.number) {
                shard.remove(&client);
            }
            session.set_closed();
            self.count.fetch_sub(1, Ordering::Relaxed);
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::capacity::Capacity;
    use crate::configuration::RouteConfig;
    use crate::dataplane::Dataplane;
    use crate::log::tests::{silent_logger, silent_sink};
    use std::sync::mpsc;

    const THREADS: usize = 8;
    const STEPS: usize = 1500;
    const ADDRESSES: u16 = 24;

    #[test]
    fn threads_that_open_move_and_end_sessions_never_wait_for_each_other_for_ever() {
        let dataplane = Dataplane::start(Options { workers: 2 }, silent_sink()).unwrap();
        let config = RouteConfig::new("web", ["127.0.0.1:9".parse().unwrap()]).unwrap();
        let route = dataplane.configure(config).unwrap();
        let environment = dataplane.environment();
        let (done, all_done) = mpsc::channel();
        for thread in 0..THREADS {
            let (route, environment, done) = (Arc::clone(&route), Arc::clone(environment), done.clone());
            std::thread::spawn(move || {
                let slot = route.slot("127.0.0.1:1".parse().unwrap(), 0);
                let path = |number: usize| ClientPath {
                    client: ([192, 0, 2, 1], 1000 + number as u16 % ADDRESSES).into(),
                    slot: Arc::clone(&slot),
                    local: None,
                };
                let mut state = thread + 1;
                for _ in 0..STEPS {
                    // A linear congruential generator.
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (here, there) = (path(state >> 33), path(state >> 45));
                    let now = environment.now();
                    let session = SessionTable::find_or_open(&environment, &route, &here, thread % 2, now);
                    let Some(session) = session else { continue };
                    match (state >> 60) % 4 {
                        0 if route.sessions.remove(&session, now, None) => {
                            environment.command(session.worker, Command::Close(session));
                        }
                        1 => session.follow_route(&environment),
                        _ => {
                            session.assist(&environment, |_| {
                                route.sessions.move_client(&environment, &session, &there);
                            });
                        }
                    }
                }
                done.send(()).unwrap();
            });
        }
        for _ in 0..THREADS {
            all_done.recv_timeout(Duration::from_secs(60)).expect("a thread waits for ever");
        }
        let in_table: usize = (0..SHARDS).map(|index| route.sessions.lock(index).len()).sum();
        assert_eq!(route.sessions.count.load(Ordering::Relaxed), in_table);
        for index in 0..SHARDS {
            for (address, session) in route.sessions.lock(index).iter() {
                assert_eq!(session.client(), *address);
                assert!(!session.is_closed() && !session.is_displaced());
            }
        }
        dataplane.shutdown();
        assert_eq!(route.metrics().get(Metric::Sessions), 0);
    }

    #[test]
    fn routes_share_what_the_process_can_hold_and_sessions_that_end_make_room() {
        let capacity = Capacity::limited(3, "in a test".to_owned());
        let dataplane = Dataplane::start_with(Options { workers: 1 }, silent_logger(), capacity).unwrap();
        let environment = dataplane.environment();
        let open = |route: &Arc<Route>, port: u16| {
            let slot = route.slot("127.0.0.1:1".parse().unwrap(), 0);
            let path = ClientPath { client: ([192, 0, 2, 1], port).into(), slot, local: None };
            SessionTable::find_or_open(environment, route, &path, 0, environment.now())
        };
        let route = |name: &str| {
            dataplane.configure(RouteConfig::new(name, ["127.0.0.1:9".parse().unwrap()]).unwrap()).unwrap()
        };
        let (web, other) = (route("web"), route("other"));
        assert_eq!(web.summary().maximum_sessions_in_force, 3);
        assert_eq!(web.summary().sessions_limited_by.as_deref(), Some("in a test"));
        let first = open(&web, 1).unwrap();
        assert!(open(&other, 2).is_some() && open(&other, 3).is_some());
        assert!(open(&web, 4).is_none() && open(&other, 4).is_none());
        assert_eq!(web.metrics().get(Metric::SessionsRefused), 1);
        // Those that are there stay.
        assert!(open(&other, 3).is_some() && open(&web, 1).is_some());
        assert!(web.sessions.remove(&first, environment.now(), None));
        environment.command(0, Command::Close(first));
        let begun = std::time::Instant::now();
        while open(&other, 4).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(10), "the place is not given back");
            std::thread::yield_now();
        }
    }
}
