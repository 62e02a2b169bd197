//! The sessions of an I/O thread that are not assured, as the kernel's connection tracking has them:
//! client and server have not both spoken twice. When there is little room, the oldest of them
//! leave (conntrack's "early drop"), so that datagrams with forged sources keep no one out.

use std::collections::{BTreeSet, HashMap};

use crate::session::FlowId;

/// Places for sessions, of the process or of a route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) taken: u64,
    pub(crate) limit: u64,
}

impl Room {
    /// True if `unassured` sessions are too many: more than four fifths are taken, and there are
    /// more such sessions than free places. So they never take more than half of what the others
    /// leave, and new clients find a place even then.
    fn has_too_many(self, unassured: u64) -> bool {
        let is_tight = self.taken > self.limit - self.limit / 5;
        is_tight && unassured > self.limit.saturating_sub(self.taken)
    }
}

/// The sessions that are not assured, by route and age.
#[derive(Debug, Default)]
pub(crate) struct Unassured {
    /// Of each route, a number that the caller chooses: the oldest first, as [`FlowId`]s only grow.
    routes: HashMap<usize, BTreeSet<FlowId>>,
    count: u64,
}

impl Unassured {
    pub(crate) fn insert(&mut self, route: usize, session: FlowId) {
        if self.routes.entry(route).or_default().insert(session) {
            self.count += 1;
        }
    }

    /// The session is assured, or has ended.
    pub(crate) fn remove(&mut self, route: usize, session: FlowId) {
        let Some(sessions) = self.routes.get_mut(&route) else { return };
        if sessions.remove(&session) {
            self.count -= 1;
        }
        if sessions.is_empty() {
            self.routes.remove(&route);
        }
    }

    /// The session that has to leave, and its route: the oldest of the route, or of all routes, where
    /// there are too many. `threads`: I/O threads, of which each has its part of the sessions.
    pub(crate) fn surplus(
        &self,
        route: usize,
        in_route: Room,
        in_process: Room,
        threads: u64,
    ) -> Option<(usize, FlowId)> {
        let oldest = |(&route, sessions): (&usize, &BTreeSet<FlowId>)| {
            sessions.first().map(|session| (route, *session))
        };
        let sessions = self.routes.get(&route);
        let count = sessions.map_or(0, |sessions| sessions.len() as u64);
        // One that is alone has only just come: it stays, also when it has taken the last place.
        if count > 1 && in_route.has_too_many(count * threads) {
            return oldest((&route, sessions?));
        }
        if self.count > 1 && in_process.has_too_many(self.count * threads) {
            return self.routes.iter().filter_map(oldest).min_by_key(|(_, session)| *session);
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
        evicted: Vec<FlowId>,
    }

    impl Process {
        fn taken(&self) -> u64 {
            self.assured + self.unassured.count
        }

        /// Opens a session, if there is room.
        fn open(&mut self, route: usize) -> Option<FlowId> {
            if self.taken() >= LIMIT {
                return None;
            }
            self.next += 1;
            let session = FlowId::new(self.next);
            self.unassured.insert(route, session);
            let in_route = |process: &Self| Room { taken: process.taken(), limit: 100_000 };
            let room = |process: &Self| Room { taken: process.taken(), limit: LIMIT };
            while let Some((route, surplus)) =
                self.unassured.surplus(route, in_route(self), room(self), 1)
            {
                self.unassured.remove(route, surplus);
                self.evicted.push(surplus);
            }
            Some(session)
        }

        fn assure(&mut self, route: usize, session: FlowId) -> bool {
            let before = self.unassured.count;
            self.unassured.remove(route, session);
            self.assured += before - self.unassured.count;
            before > self.unassured.count
        }
    }

    #[test]
    fn a_flood_keeps_no_honest_client_out_and_ends_no_assured_session() {
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
        assert_eq!((process.unassured.count, process.taken()), (5, 995));
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

    #[test]
    fn a_route_with_a_limit_of_its_own_takes_from_itself_only() {
        let mut unassured = Unassured::default();
        (0..50).for_each(|number| unassured.insert(number as usize % 2, FlowId::new(number)));
        let (tight, wide) = (Room { taken: 25, limit: 30 }, Room { taken: 50, limit: 100_000 });
        assert_eq!(unassured.surplus(1, tight, wide, 1), Some((1, FlowId::new(1))));
        assert_eq!(unassured.surplus(1, Room { taken: 24, limit: 30 }, wide, 1), None);
        // Limits too small to have a fifth refuse newcomers, and keep who is there.
        assert_eq!(unassured.surplus(1, Room { taken: 3, limit: 3 }, wide, 1), None);
        // One that has taken the last place of its route stays.
        unassured.insert(2, FlowId::new(50));
        assert_eq!(unassured.surplus(2, Room { taken: 30, limit: 30 }, wide, 2), None);
    }
}
