//! Which session a sealed datagram names, wherever it comes from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::assistance::Names;
use crate::session::Session;

/// The assisted sessions of one route by the number that sealed datagrams name. Numbers are random: among a hundred thousand
/// sessions two of the same number are to be expected, so that each number has a list.
#[derive(Debug, Default)]
pub(crate) struct AssistedSessions {
    by_name: RwLock<HashMap<u32, Vec<Arc<Session>>>>,
    count: AtomicUsize,
}

impl AssistedSessions {
    /// Whether there is none; free of locks.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The sessions of this name.
    pub(crate) fn named(&self, name: u32) -> Vec<Arc<Session>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(&name).cloned().unwrap_or_default()
    }

    /// The session has other names now, or none.
    pub(crate) fn rename(&self, session: &Arc<Session>, before: Names, now: Names) {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        for name in before.into_iter().flatten() {
            if let Some(sessions) = by_name.get_mut(&name) {
                sessions.retain(|other| other.number != session.number);
                if sessions.is_empty() {
                    by_name.remove(&name);
                }
            }
        }
        for name in now.into_iter().flatten() {
            by_name.entry(name).or_default().push(Arc::clone(session));
        }
        self.count.store(by_name.len(), Ordering::Relaxed);
    }
}
