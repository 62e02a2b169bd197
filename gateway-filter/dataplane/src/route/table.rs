//! The sessions of one route, by their path (the address of the client, and the one it sends to), in
//! a table that outlives listeners and workers.
//!
//! # Order of locks
//!
//! A thread that holds one of these locks takes only locks that come later:
//!
//! 1. `assistance` of one session, never of two
//! 2. the shards of this table; two of them in the order of their index
//! 3. `upstream` of a session
//! 4. one of: `path` of a session, the index of assisted sessions, the pending datagrams, the mailbox
//!    of a worker, the settings of a route, the log
//!
//! The shard of a session's path guards whether the session is closed or displaced, and that path:
//! it changes under the locks of both shards.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_engine::{NetworkPath, PathUse};
use packrat_wire::estimate::Timestamp;

use crate::context::RouteContext;
use crate::log::Event;
use crate::metrics::Metric;
use crate::session::{AssistedSessions, ClientPath, Newcomer, Occupancy, Session};
use crate::socket::{EndpointAddress, RouteRoom};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, RandomState};

/// Number of parts of the table, each with its own lock.
const TABLE_SHARDS: usize = 64;

type Shard = HashMap<NetworkPath, Arc<Session>>;

/// The sessions of one route.
#[derive(Debug)]
pub(crate) struct SessionTable {
    shards: [Mutex<Shard>; TABLE_SHARDS],
    hasher: RandomState,
    count: AtomicUsize,
    /// Sessions that the engine assists.
    pub(crate) assisted: Arc<AssistedSessions<Session>>,
}

/// A session for a client that has just asked for one.
#[derive(Debug)]
pub(crate) enum Opened {
    /// Session that another thread has opened first.
    Before(Arc<Session>),
    /// The session is new: its I/O thread has to be notified to read the upstream socket.
    Now(Arc<Session>),
}

/// The outcome of a client's move.
#[derive(Debug)]
pub(crate) enum Moved {
    /// The session was closed before.
    Closed,
    /// The client is at its new path. A session without assistance that was known there, and has
    /// sent its server no datagrams, has been taken out of the table: its I/O thread has to close
    /// it.
    From(NetworkPath, Option<Arc<Session>>),
    /// The move has to wait: this session is at the new path, and its client has to be asked.
    Held(Arc<Session>),
    /// Another session is at the new path, and speaks.
    Refused,
}

impl Moved {
    /// The engine's word for it.
    pub(crate) fn path_use(&self) -> PathUse {
        match self {
            Self::Closed | Self::From(..) => PathUse::Free,
            Self::Held(_) => PathUse::Asked,
            Self::Refused => PathUse::InUse,
        }
    }
}

impl Default for SessionTable {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::default(),
            count: AtomicUsize::new(0),
            assisted: Arc::default(),
        }
    }
}

fn refuse(route: &RouteContext, path: &ClientPath, reason: String) {
    route.metrics.add(Metric::SessionsRefused, 1);
    route.log(Event::SessionRefused, || {
        let client = route.environment.logger.client(path.client.get());
        [("client", client), ("reason", reason.into())]
    });
}

/// A place among the sessions of a route: given back when it is dropped, also by a panic.
struct Place<'a> {
    count: &'a AtomicUsize,
    /// Sessions that had one before.
    before: u64,
}

impl<'a> Place<'a> {
    /// Takes one, if there are fewer than `limit`. The count is never above the limit, not even for a
    /// moment: others would be refused, or ended, for a session that never was.
    fn take(count: &'a AtomicUsize, limit: u64) -> Option<Self> {
        let one_more = |taken: usize| ((taken as u64) < limit).then_some(taken + 1);
        let before = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self { count, before: before as u64 })
    }

    /// A session has it from now on.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The locked shards of one or two paths.
struct Shards<'a> {
    /// Shard with the lower index.
    first: MutexGuard<'a, Shard>,
    /// `None` when both paths have the same shard.
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
    fn index(&self, path: NetworkPath) -> usize {
        self.hasher.hash_one(path) as usize % TABLE_SHARDS
    }

    #[allow(clippy::indexing_slicing)] // a remainder of TABLE_SHARDS
    fn lock(&self, index: usize) -> MutexGuard<'_, Shard> {
        self.shards[index].lock()
    }

    fn shard(&self, path: NetworkPath) -> MutexGuard<'_, Shard> {
        self.lock(self.index(path))
    }

    fn shards(&self, one: NetworkPath, other: NetworkPath) -> Shards<'_> {
        let (one, other) = (self.index(one), self.index(other));
        let first = self.lock(one.min(other));
        let second = (one != other).then(|| self.lock(one.max(other)));
        Shards { first, second, swapped: one > other }
    }

    /// The session at a path, which counts as active now.
    pub(crate) fn find(&self, path: NetworkPath, now: Timestamp) -> Option<Arc<Session>> {
        let shard = self.shard(path);
        let session = shard.get(&path)?;
        session.touch(now);
        Some(Arc::clone(session))
    }

    /// The session at a path; it is as idle as before.
    pub(crate) fn peek(&self, path: NetworkPath) -> Option<Arc<Session>> {
        self.shard(path).get(&path).map(Arc::clone)
    }

    /// Opens a session for a client that had none, with the endpoint `known` or the one that
    /// follows from its address. `None` when the session is refused; that is counted and logged.
    pub(crate) fn open(
        &self,
        route: &Arc<RouteContext>,
        path: &ClientPath,
        known: Option<EndpointAddress>,
        worker: usize,
        now: Timestamp,
    ) -> Option<Opened> {
        let settings = route.settings();
        let network = path.network();
        let mut shard = self.shard(network);
        let entry = match shard.entry(network) {
            Entry::Occupied(entry) => return Some(Opened::Before(Arc::clone(entry.get()))),
            Entry::Vacant(entry) => entry,
        };
        if !settings.config.new_clients {
            refuse(route, path, "the route is about to go".to_owned());
            return None;
        }
        let limit = settings.config.maximum_sessions;
        let Some(place) = Place::take(&self.count, limit) else {
            refuse(route, path, format!("maximum_sessions ({limit}) reached"));
            return None;
        };
        let per_source = settings.config.sessions_per_source.into();
        let room = RouteRoom { taken: place.before, limit, per_source };
        let client = Newcomer { path, known };
        match Session::open(route, &settings, &self.assisted, client, room, worker, now) {
            Ok(session) => {
                place.keep();
                // Before another thread can find it, and end it.
                route.metrics.add(Metric::Sessions, 1);
                Some(Opened::Now(Arc::clone(entry.insert(Arc::new(session)))))
            }
            Err(error) => {
                drop(place);
                refuse(route, path, format!("no room for an upstream socket: {error}"));
                None
            }
        }
    }

    /// Moves the client of a session to another path, as it has proved; its upstream socket stays.
    /// A session that is known there and speaks keeps the path. If it does not speak, its client
    /// has left. An assisted session keeps its upstream socket and receives nothing until its own
    /// client proves its address. A session without assistance was probably opened by datagrams of
    /// the moved client: its server's datagrams are passed to that client from now on, until no
    /// more come.
    #[must_use]
    pub(crate) fn move_client(
        &self,
        session: &Arc<Session>,
        path: &ClientPath,
        now: Timestamp,
    ) -> Moved {
        let to = path.network();
        loop {
            let from = session.network();
            let mut shards = self.shards(from, to);
            if session.network() != from {
                continue;
            }
            if session.is_closed() {
                return Moved::Closed;
            }
            let occupant = shards.of_other().get(&to).filter(|other| other.id != session.id);
            match occupant.map(|occupant| (occupant.occupancy(now), occupant)) {
                Some((Occupancy::Ask, occupant)) => return Moved::Held(Arc::clone(occupant)),
                Some((Occupancy::Stays, _)) => return Moved::Refused,
                Some((Occupancy::GivesWay, _)) | None => {}
            }
            let here = |current: &Arc<Session>| current.id == session.id;
            if shards.of_one().get(&from).is_some_and(here) {
                shards.of_one().remove(&from);
            }
            let mut displaced = shards.of_other().insert(to, Arc::clone(session));
            if let Some(other) = displaced.as_ref().filter(|other| other.id != session.id) {
                if other.is_assisted() {
                    other.set_displaced(true);
                } else if other.has_asked() {
                    other.set_successor(session);
                } else {
                    other.set_closed();
                    self.count.fetch_sub(1, Ordering::Relaxed);
                }
            }
            session.set_path(path);
            session.set_displaced(false);
            drop(shards);
            return Moved::From(from, displaced.take_if(|other| other.is_closed()));
        }
    }

    /// The number of sessions.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed) as u64
    }

    /// Some of the sessions, at most `limit`, those first that have carried most.
    pub(crate) fn busiest(&self, limit: usize) -> Vec<Arc<Session>> {
        // The best so far, the least of them first: the rest of the table is neither kept nor
        // sorted.
        let mut best = BTreeMap::new();
        for index in 0..TABLE_SHARDS {
            for session in self.lock(index).values() {
                let bytes = session.totals.to_client_bytes.load(Ordering::Relaxed);
                let rank = (bytes, Reverse(session.id));
                let is_better = best.first_key_value().is_none_or(|(least, _)| rank > *least);
                if best.len() < limit || is_better {
                    best.insert(rank, Arc::clone(session));
                }
                if best.len() > limit {
                    best.pop_first();
                }
            }
        }
        best.into_values().rev().collect()
    }

    /// The session with this number in log lines.
    pub(crate) fn numbered(&self, number: u64) -> Option<Arc<Session>> {
        (0..TABLE_SHARDS).find_map(|index| {
            self.lock(index).values().find(|session| session.id.get() == number).map(Arc::clone)
        })
    }

    /// The sessions of clients at this address; without a port, at any of its ports.
    pub(crate) fn of_client(&self, address: IpAddr, port: Option<u16>) -> Vec<Arc<Session>> {
        let is_there = |session: &&Arc<Session>| {
            let client = session.client().get();
            client.ip().to_canonical() == address.to_canonical()
                && port.is_none_or(|port| client.port() == port)
        };
        (0..TABLE_SHARDS)
            .flat_map(|index| {
                self.lock(index).values().filter(is_there).map(Arc::clone).collect::<Vec<_>>()
            })
            .collect()
    }

    /// The sessions whose server is at this address.
    pub(crate) fn of_server(&self, address: IpAddr) -> Vec<Arc<Session>> {
        let is_there = |session: &&Arc<Session>| {
            session.upstream().endpoint().get().ip().to_canonical() == address.to_canonical()
        };
        (0..TABLE_SHARDS)
            .flat_map(|index| {
                self.lock(index).values().filter(is_there).map(Arc::clone).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Takes the session out when it is idle since `idle_timeout` (or in any case with `None`);
    /// true if it was taken out.
    pub(crate) fn remove(
        &self,
        session: &Session,
        now: Timestamp,
        idle_timeout: Option<Duration>,
    ) -> bool {
        loop {
            let path = session.network();
            let mut shard = self.shard(path);
            if session.network() != path {
                continue;
            }
            // Under the lock of the table, so that a datagram that arrives now either counts as
            // activity or opens a new session.
            if session.is_closed()
                || idle_timeout.is_some_and(|timeout| session.idle_since() + timeout > now)
            {
                return false;
            }
            if shard.get(&path).is_some_and(|current| current.id == session.id) {
                shard.remove(&path);
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
    use crate::listener::{Command, Forwarder};
    use crate::log::{Logger, Silent};
    use crate::process::Dataplane;
    use crate::route::Route;
    use crate::socket::{Capacity, ClientAddress, ListenerAddress};
    use packrat_api::route::RouteConfig;
    use std::sync::mpsc;

    const THREADS: usize = 8;
    const STEPS: usize = 1500;
    const ADDRESSES: u16 = 24;

    fn path(route: &Route, port: u16) -> ClientPath {
        let slot = route.slot(ListenerAddress::new("127.0.0.1:1".parse().unwrap()), 0);
        let client = ClientAddress::new(([192, 0, 2, 1], port).into());
        ClientPath { client, slot, local: None }
    }

    #[test]
    fn threads_that_open_move_and_end_sessions_do_not_deadlock() {
        let dataplane = Dataplane::start(Options { workers: 2 }, Box::new(Silent)).unwrap();
        let config = RouteConfig::new("web", ["127.0.0.1:9".parse().unwrap()]).unwrap();
        let route = dataplane.configure(config).unwrap();
        let mailboxes = dataplane.mailboxes();
        let (done, all_done) = mpsc::channel();
        for thread in 0..THREADS {
            let (route, mailboxes, done) =
                (Arc::clone(&route), Arc::clone(mailboxes), done.clone());
            std::thread::spawn(move || {
                let mut forwarder = Forwarder::new(Arc::clone(&mailboxes), thread % 2);
                let path = |number: usize| path(&route, 1000 + number as u16 % ADDRESSES);
                let mut state = thread + 1;
                for _ in 0..STEPS {
                    // A linear congruential generator.
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let (here, there) = (path(state >> 33), path(state >> 45));
                    let now = route.context.environment.now();
                    let session = forwarder.find_or_open(&route, &here, None, None, now);
                    let Some(session) = session else { continue };
                    match (state >> 60) % 4 {
                        0 if route.sessions.remove(&session, now, None) => {
                            mailboxes.post(session.worker, Command::Close(session));
                        }
                        1 => assert!(session.follow_route().is_none()),
                        _ => {
                            session.assist(|_| {
                                let moved = route.sessions.move_client(&session, &there, now);
                                if let Moved::From(_, Some(displaced)) = moved {
                                    mailboxes.post(displaced.worker, Command::Close(displaced));
                                }
                            });
                        }
                    }
                }
                done.send(()).unwrap();
            });
        }
        for _ in 0..THREADS {
            all_done.recv_timeout(Duration::from_secs(120)).expect("a thread waits for ever");
        }
        let in_table: usize = (0..TABLE_SHARDS).map(|index| route.sessions.lock(index).len()).sum();
        assert_eq!(route.sessions.count.load(Ordering::Relaxed), in_table);
        for index in 0..TABLE_SHARDS {
            for (path, session) in route.sessions.lock(index).iter() {
                assert_eq!(session.network(), *path);
                assert!(!session.is_closed() && !session.is_displaced());
            }
        }
        dataplane.shutdown();
        assert_eq!(route.metrics().get(Metric::Sessions), 0);
    }

    #[test]
    fn a_session_is_lasting_once_both_ends_have_spoken_twice() {
        let dataplane = Dataplane::start(Options { workers: 1 }, Box::new(Silent)).unwrap();
        let config = RouteConfig::new("web", ["127.0.0.1:9".parse().unwrap()]).unwrap();
        let route = dataplane.configure(config).unwrap();
        let mut forwarder = Forwarder::new(Arc::clone(dataplane.mailboxes()), 0);
        let now = route.context.environment.now();
        let mut open = |port: u16, to_server: u64, to_client: u64| {
            let session =
                forwarder.find_or_open(&route, &path(&route, port), None, None, now).unwrap();
            session.totals.to_server_datagrams.store(to_server, Ordering::Relaxed);
            session.totals.to_client_datagrams.store(to_client, Ordering::Relaxed);
            session
        };
        let mut lengths = Vec::new();
        for (port, to_server, to_client) in [(1, 9, 0), (2, 1, 9), (3, 9, 1), (4, 2, 2)] {
            let session = open(port, to_server, to_client);
            let ends = |seconds: u64| {
                let later = now + Duration::from_secs(seconds);
                route.sessions.remove(&session, later, Some(session.idle_timeout()))
            };
            lengths.push((1..).find(|seconds| ends(*seconds)).unwrap());
        }
        assert_eq!(lengths, [10, 10, 10, 120]);
        dataplane.shutdown();
    }

    #[test]
    fn the_busiest_sessions_come_first() {
        let dataplane = Dataplane::start(Options { workers: 1 }, Box::new(Silent)).unwrap();
        let config = RouteConfig::new("web", ["127.0.0.1:9".parse().unwrap()]).unwrap();
        let route = dataplane.configure(config).unwrap();
        let mut forwarder = Forwarder::new(Arc::clone(dataplane.mailboxes()), 0);
        let now = route.context.environment.now();
        let mut expected: Vec<(u64, u64)> = (0..100u16)
            .map(|port| {
                let session =
                    forwarder.find_or_open(&route, &path(&route, port), None, None, now).unwrap();
                let bytes = u64::from(port * 37 % 10);
                session.totals.to_client_bytes.store(bytes, Ordering::Relaxed);
                (bytes, session.id.get())
            })
            .collect();
        expected.sort_by_key(|(bytes, id)| (Reverse(*bytes), *id));
        for limit in [0, 1, 25, 100, 1000] {
            let busiest = route.sessions.busiest(limit);
            let ids: Vec<u64> = busiest.iter().map(|session| session.id.get()).collect();
            let expected: Vec<u64> = expected.iter().take(limit).map(|(_, id)| *id).collect();
            assert_eq!(ids, expected, "the first {limit}");
        }
        dataplane.shutdown();
    }

    #[test]
    fn routes_share_the_process_limit_and_ended_sessions_make_room() {
        let capacity = Capacity::limited(3, "in a test".to_owned());
        let dataplane =
            Dataplane::start_with(Options { workers: 1 }, Logger::new(Box::new(Silent)), capacity)
                .unwrap();
        let mut forwarder = Forwarder::new(Arc::clone(dataplane.mailboxes()), 0);
        let mut open = |route: &Arc<Route>, port: u16| {
            let now = route.context.environment.now();
            forwarder.find_or_open(route, &path(route, port), None, None, now)
        };
        let route = |name: &str| {
            dataplane
                .configure(RouteConfig::new(name, ["127.0.0.1:9".parse().unwrap()]).unwrap())
                .unwrap()
        };
        let (web, other) = (route("web"), route("other"));
        assert_eq!(web.summary().maximum_sessions_in_force, 3);
        assert_eq!(web.summary().sessions_limited_by.as_deref(), Some("in a test"));
        let first = open(&web, 1).unwrap();
        assert!(open(&other, 2).is_some() && open(&other, 3).is_some());
        assert!(open(&web, 4).is_none() && open(&other, 4).is_none());
        assert_eq!(web.metrics().get(Metric::SessionsRefused), 1);
        // Sessions that are there stay.
        assert!(open(&other, 3).is_some() && open(&web, 1).is_some());
        assert!(web.sessions.remove(&first, web.context.environment.now(), None));
        dataplane.mailboxes().post(0, Command::Close(first));
        let begun = std::time::Instant::now();
        while open(&other, 4).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(120), "the permit is not given back");
            std::thread::yield_now();
        }
    }
}
