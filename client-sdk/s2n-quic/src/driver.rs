//! Keeps the timers of one assisted path.

use crate::path::{AssistedPath, Step};
use std::sync::Arc;
use std::time::Duration;

/// A shim that asks to be called in the past is called again after this long, not in a busy loop.
const SHORTEST_SLEEP: Duration = Duration::from_micros(500);

/// Runs until the path is closed or its shim has failed.
pub(crate) async fn drive(path: Arc<AssistedPath>) {
    loop {
        match path.step() {
            Step::Ended => return,
            Step::Remind => path.remind(),
            Step::Until(None) => path.wake.notified().await,
            Step::Until(Some(next)) => {
                let sleep = path.host().sleep_until(next.max(path.host().now() + SHORTEST_SLEEP));
                tokio::select! {
                    // In this order always, so that a simulation does the same each time.
                    biased;
                    () = path.wake.notified() => {}
                    () = sleep => {}
                }
            }
        }
    }
}
