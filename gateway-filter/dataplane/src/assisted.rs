//! Which session a sealed datagram names, wherever it comes from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

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

    /// The session has another name now, or none.
    pub(crate) fn rename(&self, session: &Arc<Session>, before: Option<u32>, now: Option<u32>) {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = before
            && let Some(sessions) = by_name.get_mut(&before)
        {
            sessions.retain(|other| other.number != session.number);
            if sessions.is_empty() {
                by_name.remove(&before);
            }
        }
        if let Some(now) = now {
            by_name.entry(now).or_default().push(Arc::clone(session));
        }
        self.count.store(by_name.len(), Ordering::Relaxed);
    }
}
