//! Index of assisted sessions by session id.

use std::collections::HashMap;
use std::sync::Arc;

use packrat_wire::SessionId;

use super::assistance::SessionIds;
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// The assisted sessions of one route by the id that sealed datagrams carry. Ids are random: among
/// a hundred thousand sessions two with the same id are to be expected, so that each id has a list.
#[derive(Debug)]
pub(crate) struct AssistedSessions<T> {
    by_id: RwLock<HashMap<SessionId, Vec<Arc<T>>>>,
    count: AtomicUsize,
}

impl<T> Default for AssistedSessions<T> {
    fn default() -> Self {
        Self { by_id: RwLock::default(), count: AtomicUsize::new(0) }
    }
}

impl<T> AssistedSessions<T> {
    /// True if there are no assisted sessions; free of locks.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The sessions with this id.
    pub(crate) fn with_id(&self, id: SessionId) -> Vec<Arc<T>> {
        self.by_id.read().get(&id).cloned().unwrap_or_default()
    }

    /// Replaces the ids of a session, which may have none now.
    pub(crate) fn replace(&self, session: &Arc<T>, before: SessionIds, now: SessionIds) {
        let mut by_id = self.by_id.write();
        for id in before.into_iter().flatten() {
            if let Some(sessions) = by_id.get_mut(&id) {
                sessions.retain(|other| !Arc::ptr_eq(other, session));
                if sessions.is_empty() {
                    by_id.remove(&id);
                }
            }
        }
        for id in now.into_iter().flatten() {
            by_id.entry(id).or_default().push(Arc::clone(session));
        }
        self.count.store(by_id.len(), Ordering::Relaxed);
    }
}
