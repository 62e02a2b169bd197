//! The application's handle on the assistance of a connection.

use crate::path::AssistedPath;
use crate::paths::Paths;
use packrat_client::{AssistStats, Health, ShimStats, Token};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of the next handle.
static NEXT_HANDLE: AtomicU64 = AtomicU64::new(0);

/// A connected s2n-quic connection and its assistance.
#[derive(Debug)]
pub struct Connection {
    pub(crate) connection: s2n_quic::Connection,
    pub(crate) assistance: Assistance,
}

impl Connection {
    /// The plain connection, for whatever runs on top of it, and the handle of its assistance,
    /// which lives as long as the connection.
    pub fn split(self) -> (s2n_quic::Connection, Assistance) {
        (self.connection, self.assistance)
    }

    /// The handle of the assistance.
    pub fn assistance(&self) -> &Assistance {
        &self.assistance
    }
}

/// Figures of the connections between an endpoint and one address, accumulated since the first was
/// opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AssistanceStats {
    /// Counters of the core; all zero without assistance.
    pub assist: AssistStats,
    /// Counters of the shim; all zero without assistance.
    pub shim: ShimStats,
    /// Datagrams of the base connection received.
    pub base_datagrams_received: u64,
    /// Control datagrams received and hidden from s2n-quic.
    pub control_datagrams_received: u64,
    /// Control datagrams sent.
    pub control_datagrams_sent: u64,
    /// Control datagrams that the socket refused; they count as lost.
    pub control_send_failures: u64,
    /// Assistance failed and was switched off; the connection continued without it.
    pub failed: bool,
}

/// Assistance of one connection, also when it is off (it then only counts arrivals).
///
/// Assistance lives as long as the QUIC connection; this handle is for looking at it and for
/// [`Self::set_access`]. Connections of an endpoint to the same address share one assistance, which
/// lives as long as the last of them.
///
/// s2n-quic counts handles: while this one exists, dropping its connection does not close it. If
/// the handle is dropped, assistance continues, but it cannot make an idle connection send the
/// datagram that a replacement gateway waits for.
#[derive(Debug)]
pub struct Assistance {
    pub(crate) path: Arc<AssistedPath>,
    pub(crate) paths: Arc<Paths>,
    number: u64,
}

impl Assistance {
    pub(crate) fn new(path: Arc<AssistedPath>, paths: Arc<Paths>) -> Self {
        Self { path, paths, number: NEXT_HANDLE.fetch_add(1, Ordering::Relaxed) }
    }

    /// Called when the handshake of the connection that was prepared for this is complete: from now
    /// on, the connection can be made to send a packet.
    pub fn connected(&self, connection: &s2n_quic::Connection) {
        self.path.add_connection(self.number, connection.handle());
    }

    /// True if assistance is at work: it was asked for, has not failed and was not closed.
    pub fn is_active(&self) -> bool {
        self.path.health() == Health::Active && !self.path.is_closed()
    }

    /// Figures so far; also after [`Self::close`].
    pub fn stats(&self) -> AssistanceStats {
        let (assist, shim, shell) = self.path.stats();
        AssistanceStats {
            assist,
            shim,
            base_datagrams_received: shell.base_received,
            control_datagrams_received: shell.control_received,
            control_datagrams_sent: shell.control_sent,
            control_send_failures: shell.control_send_failures,
            failed: self.path.health() == Health::Failed,
        }
    }

    /// Sets the gateway to accept (`None`: any, on first use) and the token of future handshakes.
    /// Use it for a token that was issued after the connection had begun, or before the last one
    /// expires. If a gateway has refused for lack of a token, the next handshake begins at once. A
    /// session with another gateway ends; any other session continues. Has no effect without
    /// assistance.
    ///
    /// ```no_run
    /// # fn example(assistance: &packrat_s2n_quic::Assistance, gateway_key: [u8; 32], issued: Vec<u8>)
    /// #     -> Result<(), packrat_s2n_quic::TokenTooLong> {
    /// use packrat_s2n_quic::Token;
    ///
    /// assistance.set_access(gateway_key, &Token::new(issued)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_access(&self, gateway_key: impl Into<Option<[u8; 32]>>, token: &Token) {
        self.path.set_access(gateway_key.into(), token);
    }

    /// Reports that the system has announced a change of this client's address. The gateway then
    /// learns of the move at once, by a name that the previous path has not seen. Without this
    /// call, a change of the local address is detected within 100 ms; a change made only by a NAT,
    /// by a missing answer.
    pub fn on_network_change(&self) {
        self.path.on_network_change();
    }

    /// The address that was connected to.
    pub fn remote(&self) -> SocketAddr {
        self.path.remote()
    }

    /// Ends the session with the gateway now instead of at the end of the connection, which
    /// continues without assistance. Idempotent.
    pub fn close(&self) {
        self.path.close();
    }
}

impl Drop for Assistance {
    fn drop(&mut self) {
        self.path.remove_connection(self.number);
        self.paths.on_handle_dropped(&self.path);
    }
}
