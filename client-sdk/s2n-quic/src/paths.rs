//! The paths of an endpoint: who uses them, and when they end.

use crate::key_phases::KeyPhases;
use crate::path::AssistedPath;
use crate::released::ReleasedDatagrams;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The paths of an endpoint by remote address. Connections to the same address share one: for a
/// gateway they are one flow.
///
/// ```text
///   Attachment::assist       s2n-quic begins a connection         the last connection is gone
///   ------------------> expected ---------------------> in use ------------------------------> ended
///                           | its handle is dropped                                              ^
///                           +--------------------------------------------------------------------+
/// ```
#[derive(Debug, Default)]
pub(crate) struct Paths {
    by_remote: Mutex<HashMap<SocketAddr, Users>>,
    /// True if the client has its uploads repaired.
    uploads: AtomicBool,
    pub(crate) released: ReleasedDatagrams,
    pub(crate) keys: KeyPhases,
}

/// A path and its users.
#[derive(Debug)]
struct Users {
    path: Arc<AssistedPath>,
    /// The application's handles.
    handles: usize,
    /// Handles whose connections have not begun.
    expected: usize,
    /// Connections that s2n-quic has.
    connections: usize,
}

/// An address as s2n-quic may write it differently: mapped to IPv6, with a scope.
fn canonical(remote: SocketAddr) -> SocketAddr {
    SocketAddr::new(remote.ip().to_canonical(), remote.port())
}

impl Paths {
    /// Enables the repair of uploads from here on.
    pub(crate) fn repair_uploads(&self) {
        self.uploads.store(true, Ordering::Relaxed);
    }

    /// True if uploads are repaired.
    pub(crate) fn repairs_uploads(&self) -> bool {
        self.uploads.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Users>> {
        self.by_remote.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to `remote` is about to begin: joins the existing path, or enters the one that
    /// `make` returns. Returns true if it is new.
    pub(crate) fn join(
        &self,
        remote: SocketAddr,
        make: impl FnOnce() -> AssistedPath,
    ) -> (Arc<AssistedPath>, bool) {
        let mut paths = self.lock();
        let known = paths.get_mut(&canonical(remote));
        if let Some(users) = known
            && users.path.is_usable()
        {
            users.handles += 1;
            users.expected += 1;
            return (Arc::clone(&users.path), false);
        }
        let path = Arc::new(make());
        let connections = paths.get(&canonical(remote)).map_or(0, |users| users.connections);
        let users = Users { path: Arc::clone(&path), handles: 1, expected: 1, connections };
        let before = paths.insert(canonical(remote), users);
        drop(paths);
        if let Some(before) = before {
            before.path.close();
        }
        (path, true)
    }

    /// A handle of the path is dropped.
    pub(crate) fn on_handle_dropped(&self, path: &Arc<AssistedPath>) {
        self.change(path.remote(), |users| {
            if !Arc::ptr_eq(&users.path, path) {
                return false;
            }
            users.handles -= 1;
            users.expected = users.expected.min(users.handles);
            users.handles == 0 && users.connections == 0
        });
    }

    /// Called when s2n-quic has begun a connection.
    pub(crate) fn on_begun(&self, remote: SocketAddr) {
        self.change(remote, |users| {
            users.connections += 1;
            users.expected = users.expected.saturating_sub(1);
            false
        });
    }

    /// A connection does not exist any more.
    pub(crate) fn on_gone(&self, remote: SocketAddr) {
        self.change(remote, |users| {
            users.connections = users.connections.saturating_sub(1);
            users.connections == 0 && users.expected == 0
        });
    }

    /// Changes the users of an address; ends the path if `change` returns that it has no user left.
    fn change(&self, remote: SocketAddr, change: impl FnOnce(&mut Users) -> bool) {
        let mut paths = self.lock();
        let Some(users) = paths.get_mut(&canonical(remote)) else { return };
        if !change(users) {
            return;
        }
        let ended = paths.remove(&canonical(remote));
        drop(paths);
        if let Some(users) = ended {
            users.path.close();
        }
    }

    /// The path of datagrams from this address.
    pub(crate) fn get(&self, remote: SocketAddr) -> Option<Arc<AssistedPath>> {
        self.lock().get(&canonical(remote)).map(|users| Arc::clone(&users.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_gateway::{SERVER_ADDRESS, new_path};

    fn server() -> SocketAddr {
        SERVER_ADDRESS.parse().unwrap()
    }

    fn join(paths: &Paths) -> (Arc<AssistedPath>, bool) {
        paths.join(server(), || new_path(true, paths.released.clone()).0)
    }

    #[test]
    fn a_path_ends_with_its_last_connection() {
        let paths = Paths::default();
        let (path, is_new) = join(&paths);
        assert!(is_new);
        paths.on_begun(server());
        let (second, is_new) = join(&paths);
        assert!(!is_new && Arc::ptr_eq(&path, &second), "one path for one address");
        paths.on_gone(server());
        assert!(!path.is_closed(), "another connection is about to begin");
        paths.on_begun(server());
        paths.on_handle_dropped(&path);
        paths.on_handle_dropped(&path);
        assert!(!path.is_closed() && paths.get(server()).is_some(), "it outlives its handles");
        paths.on_gone(server());
        assert!(path.is_closed() && paths.get(server()).is_none());
    }

    #[test]
    fn a_handle_whose_connection_never_begins_leaves_nothing_behind() {
        let paths = Paths::default();
        let (path, _) = join(&paths);
        paths.on_handle_dropped(&path);
        assert!(path.is_closed() && paths.get(server()).is_none());
    }

    #[test]
    fn a_path_that_was_closed_is_followed_by_another() {
        let paths = Paths::default();
        let (first, _) = join(&paths);
        paths.on_begun(server());
        first.close();
        assert!(paths.get(server()).is_some(), "the gateway may still send numbers");
        let (second, is_new) = join(&paths);
        assert!(is_new && !Arc::ptr_eq(&first, &second));
        paths.on_begun(server());
        // The handle and the connection of the first one.
        paths.on_handle_dropped(&first);
        paths.on_gone(server());
        assert!(!second.is_closed());
        paths.on_gone(server());
        assert!(second.is_closed());
    }

    #[test]
    fn an_address_is_the_same_in_every_notation() {
        let paths = Paths::default();
        join(&paths);
        assert!(paths.get("[::ffff:127.0.0.1]:9".parse().unwrap()).is_some());
        assert!(paths.get("127.0.0.1:10".parse().unwrap()).is_none());
    }
}
