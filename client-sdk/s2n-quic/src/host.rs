//! The host of the shell: its clock, its timers, and the base connection's own socket.

use packrat_wire::estimate::Timestamp;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::time::{Duration, Instant};

/// A future that completes when its time has come.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where an assisted endpoint runs. The operating system's sockets and clock for applications;
/// another one where s2n-quic's I/O is another, as in a simulation in virtual time.
pub trait Host: Debug + Send + Sync + 'static {
    /// Now, since an origin that stays the same.
    fn now(&self) -> Timestamp;

    /// Sends a datagram from the address and port that s2n-quic itself sends from. Must not block.
    ///
    /// # Errors
    /// When the datagram could not be sent; it counts as lost.
    fn send(&self, datagram: &[u8], remote: SocketAddr) -> io::Result<()>;

    /// Completes at `at`, or at once when that is past.
    fn sleep_until(&self, at: Timestamp) -> Sleep;
}

/// The operating system, with Tokio's timers.
#[derive(Debug)]
pub(crate) struct OperatingSystem {
    pub(crate) socket: UdpSocket,
    origin: Instant,
}

impl OperatingSystem {
    /// Sends from `socket`, which must not block; the clock begins now.
    pub(crate) fn new(socket: UdpSocket) -> Self {
        Self { socket, origin: Instant::now() }
    }
}

/// An instant that is beyond what the platform can represent is replaced by one that is this far
/// away.
const FAR_AWAY: Duration = Duration::from_secs(24 * 3600);

impl Host for OperatingSystem {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn send(&self, datagram: &[u8], remote: SocketAddr) -> io::Result<()> {
        self.socket.send_to(datagram, remote).map(|_| ())
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        let instant = self.origin.checked_add(at.saturating_since(Timestamp::ZERO));
        Box::pin(tokio::time::sleep_until(
            instant.unwrap_or_else(|| Instant::now() + FAR_AWAY).into(),
        ))
    }
}
