//! The claim of a session to its path: when its client was last heard there, and which session is
//! there instead of it.

use std::sync::{Arc, Weak};

use packrat_wire::estimate::Timestamp;

use super::occupancy::{Occupancy, Occupant};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The claim of a session to its path. `S` are sessions.
#[derive(Debug)]
pub(super) struct PathClaim<S> {
    /// The time at which the client last sealed something at its path, and the time at which it was
    /// asked whether it is still there, in microseconds; 0: never.
    heard: AtomicU64,
    asked: AtomicU64,
    /// Another client has proved to be at this client's path: this session sends no datagrams there
    /// until its client shows up elsewhere.
    displaced: AtomicBool,
    /// The session that has displaced this one, which is without assistance: what the server still
    /// sends here is probably for its client.
    successor: Mutex<Weak<S>>,
}

impl<S> Default for PathClaim<S> {
    fn default() -> Self {
        Self {
            heard: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            displaced: AtomicBool::new(false),
            successor: Mutex::default(),
        }
    }
}

impl<S> PathClaim<S> {
    /// The time at which the client last sealed something at its path.
    pub(super) fn heard(&self) -> Option<Timestamp> {
        time(&self.heard)
    }

    /// The time at which the client was first asked whether it is still there.
    pub(super) fn asked(&self) -> Option<Timestamp> {
        time(&self.asked)
    }

    pub(super) fn note_heard(&self, heard: Timestamp) {
        self.heard.fetch_max(heard.as_micros(), Ordering::Relaxed);
    }

    /// The claim of this session's `occupant`; notes that its client is asked, if it has to be.
    pub(super) fn occupancy(&self, occupant: &Occupant, now: Timestamp) -> Occupancy {
        let occupancy = occupant.occupancy(now);
        if occupancy == Occupancy::Ask && !occupant.is_being_asked(now) {
            self.asked.store(now.as_micros().max(1), Ordering::Relaxed);
        }
        occupancy
    }

    pub(super) fn is_displaced(&self) -> bool {
        self.displaced.load(Ordering::Relaxed)
    }

    pub(super) fn set_displaced(&self, displaced: bool) {
        self.displaced.store(displaced, Ordering::Relaxed);
        *self.successor.lock() = Weak::new();
    }

    pub(super) fn set_successor(&self, successor: &Arc<S>) {
        *self.successor.lock() = Arc::downgrade(successor);
        self.displaced.store(true, Ordering::Relaxed);
    }

    /// The session that has displaced this one.
    pub(super) fn successor(&self) -> Option<Arc<S>> {
        if !self.is_displaced() {
            return None;
        }
        self.successor.lock().upgrade()
    }
}

fn time(cell: &AtomicU64) -> Option<Timestamp> {
    match cell.load(Ordering::Relaxed) {
        0 => None,
        microseconds => Some(Timestamp::from_micros(microseconds)),
    }
}
