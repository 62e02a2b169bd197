//! The application's handle on the assistance of a connection.

use crate::driver::LateHandle;
use crate::guard::Health;
use crate::interceptor::Paths;
use crate::path::AssistedPath;
use packrat_client::{AssistStats, Token};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

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

/// Figures of one connection, accumulated since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AssistanceStats {
    /// Counters of the core; all zero without assistance.
    pub assist: AssistStats,
    /// Datagrams of the base connection received.
    pub base_datagrams_received: u64,
    /// Control datagrams received and hidden from s2n-quic.
    pub control_datagrams_received: u64,
    /// Control datagrams sent.
    pub control_datagrams_sent: u64,
    /// Control datagrams that the socket refused; they count as lost.
    pub control_send_failures: u64,
    /// Outgoing packets whose frames were rewritten.
    pub packets_rewritten: u64,
    /// Packets sent only to reveal what had been withheld.
    pub acks_forced: u64,
    /// Assistance broke down and was switched off; the connection went on without it.
    pub failed: bool,
}

/// Assistance of one connection, also when it is off (then it only records what arrives).
///
/// Assistance lives as long as the QUIC connection, this handle is for looking at it and for
/// [`Self::set_token`]. s2n-quic counts handles, so that an assistance whose handle is dropped has
/// no handle of the connection either: it goes on, but what it had withheld leaves with the
/// connection's next packet, and it can't make an idle connection send one. Its place is free for
/// the next connection to the same address. While this handle exists, the QUIC connection is not
/// closed by dropping it.
#[derive(Debug)]
pub struct Assistance {
    pub(crate) path: Arc<AssistedPath>,
    pub(crate) paths: Arc<Paths>,
    /// Given to the driver once the handshake is complete.
    pub(crate) handle: LateHandle,
}

impl Assistance {
    /// The handshake of the connection that was prepared for this is complete: acknowledgements can
    /// be forced from now on.
    pub fn connected(&self, connection: &s2n_quic::Connection) {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        handle.get_or_insert_with(|| connection.handle());
    }

    /// True if the core is at work: assistance was asked for, has not failed and was not closed.
    pub fn is_active(&self) -> bool {
        self.path.health() == Health::Active
    }

    /// Figures so far; also after [`Self::close`].
    pub fn stats(&self) -> AssistanceStats {
        let (assist, shell) = self.path.stats();
        AssistanceStats {
            assist,
            base_datagrams_received: shell.base_received,
            control_datagrams_received: shell.control_received,
            control_datagrams_sent: shell.control_sent,
            control_send_failures: shell.control_send_failures,
            packets_rewritten: shell.acks_rewritten,
            acks_forced: shell.acks_forced,
            failed: self.path.health() == Health::Failed,
        }
    }

    /// The 1-RTT packet numbers that s2n-quic has decrypted, as ascending inclusive ranges, with
    /// assistance or without: what a sender declared lost although it is in here was lost
    /// spuriously.
    pub fn received_packet_numbers(&self) -> Vec<(u64, u64)> {
        self.path.received_packet_numbers()
    }

    /// Another token for the handshakes to come: one that was issued after the connection had
    /// begun, or before the last one expires. Where a gateway has refused for
    /// want of a token, the next handshake begins at once; a session that exists goes on. Does
    /// nothing without assistance.
    ///
    /// ```no_run
    /// # fn example(assistance: &packrat_s2n_quic::Assistance, issued: Vec<u8>)
    /// #     -> Result<(), packrat_s2n_quic::TokenTooLong> {
    /// use packrat_s2n_quic::Token;
    ///
    /// assistance.set_token(Token::new(issued)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_token(&self, token: Token) {
        self.path.set_token(token);
    }

    /// The system has told the application that this client's address changes: the gateway then
    /// learns of the move at once, by a name that the path before has not seen. A change of the
    /// address that the system sends from is noticed without this, within 100 ms; one that only a
    /// NAT in between makes, by a missing answer.
    pub fn on_network_change(&self) {
        self.path.on_network_change();
    }

    /// The address that was connected to.
    pub fn remote(&self) -> SocketAddr {
        self.path.remote()
    }

    /// Says goodbye to the gateway now instead of at the end of the connection, which goes on as a
    /// plain one. Idempotent.
    pub fn close(&self) {
        self.paths.end(&self.path);
    }
}

impl Drop for Assistance {
    fn drop(&mut self) {
        if self.path.is_closed() {
            return;
        }
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        match handle {
            Some(handle) => {
                self.path.let_go();
                drop(handle);
            }
            // There is no connection that could end.
            None => self.close(),
        }
    }
}
