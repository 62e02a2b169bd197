//! The sessions of an I/O thread that are not assured: there is no proof that their clients receive
//! at their addresses. When there is little room, some of them leave (conntrack's "early drop"), so
//! that datagrams with forged sources do not keep clients out, whether or not a server answers
//! them.
//!
//! ```text
//!   opened --> new --client and server have both spoken twice, and there is room--> mutual
//!               | |                                                                  | |
//!               | +-------------------- the client proves its address ---------------+-+--> (not here)
//!               v                                                                    v
//!         the oldest leaves: more new ones                          the newest leaves: assured
//!         than free places, in the last fifth                       sessions need its place
//! ```
//!
//! A fifth of the places is for new sessions and free places: whatever has spoken before, a client
//! that comes finds a place, and has time to prove its address. In the rest a mutual session keeps
//! its place for as long as assured sessions do not need it: the sessions from before a flood keep
//! theirs.

use std::collections::{BTreeSet, HashMap};

use crate::session::FlowId;

/// Places for sessions, of the process or of a route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) taken: u64,
    pub(crate) limit: u64,
}

impl Room {
    /// The places that are not only for sessions that are new: four fifths.
    const fn lasting(self) -> u64 {
        self.limit - self.limit / 5
    }

    /// True if this number of new sessions is too large: more than four fifths of the places are
    /// taken, and there are more new sessions than free places. So new sessions never take more
    /// than half of the places that others leave, and new clients find a place even then.
    const fn has_too_many_new(self, new: u64) -> bool {
        self.taken > self.lasting() && new > self.limit.saturating_sub(self.taken)
    }

    /// Lasting places that are free beside this number of new sessions; `None` if more than all are
    /// taken.
    const fn free_lasting(self, new: u64) -> Option<u64> {
        self.lasting().checked_sub(self.taken.saturating_sub(new))
    }
}

/// The places of a route and of the process, and the I/O threads among which sessions are divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) in_route: Room,
    pub(crate) in_process: Room,
    pub(crate) threads: u64,
}

/// The sessions of a route: the oldest first, as [`FlowId`]s only grow.
#[derive(Debug, Default)]
struct OfRoute {
    new: BTreeSet<FlowId>,
    mutual: BTreeSet<FlowId>,
}

impl OfRoute {
    fn new_count(&self) -> u64 {
        self.new.len() as u64
    }
}

/// The sessions that are not assured.
#[derive(Debug, Default)]
pub(crate) struct Unassured {
    /// Sessions of each route, by a number of the route that the caller chooses.
    routes: HashMap<usize, OfRoute>,
    /// New ones of all routes.
    new_count: u64,
}

impl Unassured {
    /// A session has been opened; one that has another upstream socket keeps its place.
    pub(crate) fn insert(&mut self, route: usize, session: FlowId) {
        let sessions = self.routes.entry(route).or_default();
        if !sessions.mutual.contains(&session) && sessions.new.insert(session) {
            self.new_count += 1;
        }
    }

    /// The session is assured, or has ended.
    pub(crate) fn remove(&mut self, route: usize, session: FlowId) {
        let Some(sessions) = self.routes.get_mut(&route) else { return };
        if sessions.new.remove(&session) {
            self.new_count -= 1;
        }
        sessions.mutual.remove(&session);
        if sessions.new.is_empty() && sessions.mutual.is_empty() {
            self.routes.remove(&route);
        }
    }

    /// Gives a session a lasting place, as its client and server have both spoken twice. False if
    /// all such places are taken, or it has one.
    pub(crate) fn settle(&mut self, route: usize, session: FlowId, places: Places) -> bool {
        let Some(sessions) = self.routes.get_mut(&route) else { return false };
        let Places { in_route, in_process, threads } = places;
        let has_room = |room: Room, new: u64| room.free_lasting(new * threads) > Some(0);
        let settles = has_room(in_route, sessions.new_count())
            && has_room(in_process, self.new_count)
            && sessions.new.remove(&session);
        if settles {
            self.new_count -= 1;
            sessions.mutual.insert(session);
        }
        settles
    }

    /// The session that has to leave, and its route: the oldest new session, of the route or of all
    /// routes, if there are too many new sessions; the newest mutual session, if assured sessions
    /// need its lasting place.
    pub(crate) fn surplus(&self, route: usize, places: Places) -> Option<(usize, FlowId)> {
        let Places { in_route, in_process, threads } = places;
        let oldest = |(&route, sessions): (&usize, &OfRoute)| {
            sessions.new.first().map(|session| (route, *session))
        };
        let newest = |(&route, sessions): (&usize, &OfRoute)| {
            sessions.mutual.last().map(|session| (route, *session))
        };
        let own = self.routes.get_key_value(&route);
        let count = own.map_or(0, |(_, sessions)| sessions.new_count());
        // One that is alone has only just come: it stays, also when it has taken the last place.
        if count > 1 && in_route.has_too_many_new(count * threads) {
            return oldest(own?);
        }
        if self.new_count > 1 && in_process.has_too_many_new(self.new_count * threads) {
            return self.routes.iter().filter_map(oldest).min_by_key(|(_, session)| *session);
        }
        if in_route.free_lasting(count * threads).is_none()
            && let Some(newest) = own.and_then(newest)
        {
            return Some(newest);
        }
        if in_process.free_lasting(self.new_count * threads).is_none() {
            return self.routes.iter().filter_map(newest).max_by_key(|(_, session)| *session);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1000;

    /// A thread of a process with sessions of two routes.
    #[derive(Default)]
    struct Process {
        unassured: Unassured,
        assured: u64,
        next: u64,
        /// Sessions in which client and server have both spoken twice.
        mutual: BTreeSet<FlowId>,
        evicted: Vec<FlowId>,
    }

    const fn wide(taken: u64) -> Room {
        Room { taken, limit: 100_000 }
    }

    impl Process {
        fn mutual_count(&self) -> u64 {
            self.unassured.routes.values().map(|sessions| sessions.mutual.len() as u64).sum()
        }

        fn taken(&self) -> u64 {
            self.assured + self.unassured.new_count + self.mutual_count()
        }

        fn places(&self) -> Places {
            let taken = self.taken();
            Places { in_route: wide(taken), in_process: Room { taken, limit: LIMIT }, threads: 1 }
        }

        fn holds(&self, session: FlowId) -> bool {
            let mut routes = self.unassured.routes.values();
            routes.any(|route| route.new.contains(&session) || route.mutual.contains(&session))
        }

        /// Opens a session, if there is room.
        fn open(&mut self, route: usize) -> Option<FlowId> {
            if self.taken() >= LIMIT {
                return None;
            }
            self.next += 1;
            let session = FlowId::new(self.next);
            self.unassured.insert(route, session);
            while let Some((route, surplus)) = self.unassured.surplus(route, self.places()) {
                let is_mutual = self.mutual.contains(&surplus);
                if is_mutual && self.unassured.settle(route, surplus, self.places()) {
                    continue;
                }
                self.unassured.remove(route, surplus);
                self.evicted.push(surplus);
            }
            Some(session)
        }

        fn assure(&mut self, route: usize, session: FlowId) -> bool {
            let is_there = self.holds(session);
            self.unassured.remove(route, session);
            self.assured += u64::from(is_there);
            is_there
        }
    }

    #[test]
    fn floods_exclude_no_honest_client_and_end_no_assured_session() {
        let mut process = Process::default();
        // An honest client for every hundred forged sources, which needs a round trip, in which a
        // hundred more come. Two routes: the flood is on one of them.
        for _ in 0..700 {
            let honest = process.open(1).expect("no room for an honest client");
            for _ in 0..100 {
                process.open(0);
            }
            assert!(process.assure(1, honest), "evicted, with {} assured", process.assured);
            assert!(process.taken() < LIMIT);
        }
        assert_eq!(process.assured, 700);
        assert!(process.evicted.len() > 69_000);
    }

    #[test]
    fn new_clients_come_in_while_any_place_is_free() {
        let mut process = Process { assured: 990, ..Process::default() };
        for _ in 0..100 {
            assert!(process.open(0).is_some());
        }
        assert_eq!((process.unassured.new_count, process.taken()), (5, 995));
        // The last ones stay.
        let expected: Vec<FlowId> = (1..=95).map(FlowId::new).collect();
        assert_eq!(process.evicted, expected);
    }

    #[test]
    fn the_oldest_leaves_first_and_nobody_while_there_is_room() {
        let mut process = Process::default();
        let opened: Vec<FlowId> = (0..800).filter_map(|number| process.open(number % 2)).collect();
        assert_eq!((opened.len(), process.evicted.len()), (800, 0));
        process.open(0);
        process.open(1);
        assert_eq!(process.evicted, opened[..2]);
    }

    /// A flood whose sources speak twice, to a server that answers, has all lasting places; new
    /// sessions and sessions that prove their address are served all the same.
    #[test]
    fn a_flood_that_speaks_twice_excludes_no_honest_client() {
        let mut process = Process::default();
        let before: Vec<FlowId> = (0..50).filter_map(|_| process.open(1)).collect();
        process.mutual.extend(&before);
        for round in 0..900 {
            let honest = process.open(1).expect("no room for an honest client");
            for _ in 0..20 {
                let forged = process.open(0).expect("no room for those after it");
                process.mutual.insert(forged);
            }
            if round < 700 {
                assert!(process.assure(1, honest), "evicted, with {} assured", process.assured);
            }
            let lasts = before.iter().filter(|session| process.holds(**session)).count();
            assert_eq!(lasts, 50, "sessions from before have left");
            assert!(process.taken() < LIMIT);
        }
        assert_eq!((process.assured, process.mutual_count()), (700, 100));
    }

    #[test]
    fn a_route_with_a_limit_of_its_own_takes_from_itself_only() {
        let mut unassured = Unassured::default();
        (0..50).for_each(|number| unassured.insert(number as usize % 2, FlowId::new(number)));
        let places = |taken, limit, threads| Places {
            in_route: Room { taken, limit },
            in_process: wide(50),
            threads,
        };
        assert_eq!(unassured.surplus(1, places(25, 30, 1)), Some((1, FlowId::new(1))));
        assert_eq!(unassured.surplus(1, places(24, 30, 1)), None);
        // One that has a lasting place keeps it when its upstream socket is another one.
        assert!(unassured.settle(1, FlowId::new(1), places(24, 30, 1)));
        unassured.insert(1, FlowId::new(1));
        assert_eq!(unassured.surplus(1, places(25, 30, 1)), Some((1, FlowId::new(3))));
        // Limits too small to have a fifth refuse newcomers, and keep present sessions.
        assert_eq!(unassured.surplus(1, places(3, 3, 1)), None);
        // One that has taken the last place of its route stays.
        unassured.insert(2, FlowId::new(50));
        assert_eq!(unassured.surplus(2, places(30, 30, 2)), None);
    }
}
