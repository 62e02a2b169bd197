//! Keeps the timers of one assisted connection.

use crate::path::AssistedPath;
use s2n_quic::connection::Handle;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A core that asks to be called in the past is called again after this long, not in a busy loop.
const SHORTEST_SLEEP: Duration = Duration::from_micros(500);

/// The connection's handle, once the handshake is complete and as long as the application has its
/// own handle of the assistance: s2n-quic keeps a connection open for as long as one of its handles
/// exists.
pub(crate) type LateHandle = Arc<Mutex<Option<Handle>>>;

/// Runs until the path is closed or its core has failed.
pub(crate) async fn drive(path: Arc<AssistedPath>, handle: LateHandle) {
    loop {
        let step = path.step();
        if step.ended {
            return;
        }
        if step.force_ack
            && let Some(handle) = &mut *handle.lock().unwrap_or_else(PoisonError::into_inner)
        {
            // A PING makes s2n-quic send a packet; the interceptor puts the ACK frame into it. An
            // error means that the connection has ended, and the application learns
            // that from its streams.
            let _ = handle.ping();
        }
        match step.next {
            Some(next) => {
                let sleep = path.host().sleep_until(next.max(path.host().now() + SHORTEST_SLEEP));
                tokio::select! {
                    // In this order always, so that a simulation does the same each time.
                    biased;
                    () = path.wake.notified() => {}
                    () = sleep => {}
                }
            }
            None => path.wake.notified().await,
        }
    }
}
