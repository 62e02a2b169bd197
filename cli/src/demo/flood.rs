//! An attack on the gateway during a download.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use packrat_emulation::flood::Flood;

/// Random datagrams for a download of [`DOWNLOAD_BYTES`]; in proportion for others.
const RANDOM_DATAGRAMS: u64 = 200_000;
/// Forged handshakes for a download of [`DOWNLOAD_BYTES`]; in proportion for others.
const FORGED_HANDSHAKES: u64 = 50_000;
/// Bytes of the demo's default download.
const DOWNLOAD_BYTES: u64 = 25_000_000;
/// Duration of the flood; the download takes somewhat longer at the networks' rate.
const FLOOD_TIME: Duration = Duration::from_secs(9);
/// Number of addresses from which the flood comes.
const FLOOD_SOURCES: usize = 50;

/// A flood in progress.
pub(crate) struct RunningFlood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

impl RunningFlood {
    /// Starts a flood, for a download of `size` bytes.
    pub(crate) fn start(size: u64, seed: u64, target: SocketAddr) -> Self {
        let share = size as f64 / DOWNLOAD_BYTES as f64;
        let count = |number: u64| (number as f64 * share) as usize;
        let flood = Flood {
            random: count(RANDOM_DATAGRAMS),
            forged: count(FORGED_HANDSHAKES),
            sources: FLOOD_SOURCES,
            duration: FLOOD_TIME.mul_f64(share),
            seed,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("flood".to_owned());
        let thread = thread.spawn(move || flood.run(target, &stopped).unwrap_or_default());
        Self { stop, thread: thread.ok() }
    }

    /// Stops the flood; returns the number of datagrams sent.
    pub(crate) fn stop(mut self) -> u64 {
        self.join()
    }

    fn join(&mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.thread.take().and_then(|thread| thread.join().ok());
        sent.unwrap_or_default() as u64
    }
}

impl Drop for RunningFlood {
    fn drop(&mut self) {
        self.join();
    }
}
