//! Limits and policies.

use std::sync::PoisonError;

use crate::sync::RwLock;

/// Answer of a route's senders to losses that they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SenderAnswer {
    /// Unknown: losses of the medium are hidden, unless the route's sessions find that the senders
    /// tolerate them ([`crate::SenderMemory`]).
    #[default]
    Unknown,
    /// Senders answer each loss (CUBIC, NewReno): losses of the medium are hidden.
    Always,
    /// Senders answer more than [`TOLERATED_LOSS`] in a round trip (BBRv2, BBRv3): fewer losses are
    /// neither hidden nor repaired, because the sender would only lose by the delay.
    AboveTolerance,
    /// Senders answer no loss (BBRv1): losses are neither hidden nor repaired.
    Never,
}

/// Share of lost datagrams up to which losses are left to BBRv2 and BBRv3. They tolerate 2 % in a
/// round trip (draft-ietf-ccwg-bbr, `BBR.LossThresh`) and give way little to slightly more; a wait
/// costs them more.
pub const TOLERATED_LOSS: f64 = 0.03;

/// Limits and policies, the same for every flow of a route.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GatewayConfig {
    /// True if clients may ask for assistance at all; otherwise they are refused and forwarded
    /// plainly.
    pub assist: bool,
    /// True if sessions may begin. Otherwise existing sessions go on, and further clients are
    /// refused as without `assist`.
    pub begins_sessions: bool,
    /// Bytes of datagrams that one flow may keep for repair.
    pub cache_bytes_per_flow: usize,
    /// Bytes that all flows together may keep.
    pub cache_bytes_total: usize,
    /// Repairs as a share of the forwarded bytes (0.25 = 25 %), per flow and for all flows
    /// together. If the measured loss alone needs more (above 16.7 % with the default), it rises
    /// with the loss, to twice this at most.
    pub repair_budget: f64,
    /// Second copies that thin live streams get at once if a repair would be too late for their
    /// receiver's buffer, as a share of the forwarded bytes of such a stream; 0: off, also for
    /// first and rare datagrams of other flows.
    pub early_copies: f64,
    /// Probability with which a repaired datagram may still be missing when it is needed.
    pub residual_loss_target: f64,
    /// Flows that may be assisted at the same time.
    pub maximum_sessions: usize,
    /// Sessions that clients of one address (IPv6: of one /64) may have at the same time.
    pub sessions_per_source: u32,
    /// Sessions that clients of one address (IPv6: of one /64) may begin per second, with bursts
    /// of as many.
    pub handshakes_per_second_per_source: u32,
    /// Handshakes per second below which a client need not echo a cookie before its session is
    /// prepared; 0: it always must. Such a client is sent one datagram, not longer than its own,
    /// until it has sealed a message.
    pub handshakes_per_second_without_cookie: u32,
    /// Longest packet, headers of IP and UDP included, that the paths to clients carry: datagrams
    /// that a number would make longer go without it.
    pub longest_packet: u16,
    /// Answer of the senders to losses.
    pub sender: SenderAnswer,
    /// Share of the clients that are refused assistance, 0 to 1, to be compared with assisted
    /// clients. A client is one address (IPv6: one /64).
    pub holdout: f64,
    /// Number of sessions of which one is a trial: it shows an unknown sender its losses, and
    /// checks the answers. If senders seem to answer losses, one of four times as many; 0: no
    /// trials.
    pub sender_trials: u32,
    /// True if datagrams of sparse flows are sent twice to clients without a session.
    pub sparse_copies: bool,
    /// False if it is known that no queue has lost the missing datagrams, as only a laboratory's
    /// last mile can show.
    pub queues_lose: bool,
}

impl GatewayConfig {
    /// True if a client that asks for assistance may have it.
    pub(crate) const fn takes_clients(&self) -> bool {
        self.assist && self.begins_sessions
    }
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            assist: true,
            begins_sessions: true,
            cache_bytes_per_flow: 1 << 20,
            cache_bytes_total: 256 << 20,
            repair_budget: 0.25,
            early_copies: 0.5,
            residual_loss_target: 1e-5,
            maximum_sessions: 25_000,
            sessions_per_source: 4096,
            handshakes_per_second_per_source: 100,
            handshakes_per_second_without_cookie: 100,
            longest_packet: 1500,
            sender: SenderAnswer::Unknown,
            holdout: 0.0,
            sender_trials: 8,
            sparse_copies: false,
            queues_lose: true,
        }
    }
}

/// The configuration in force. Sessions read it on use, so that a change applies to running
/// sessions, whose use of a limit stays counted.
#[derive(Debug)]
pub(crate) struct ConfigInForce(RwLock<GatewayConfig>);

impl ConfigInForce {
    pub(crate) fn new(config: GatewayConfig) -> Self {
        Self(RwLock::new(config))
    }

    pub(crate) fn get(&self) -> GatewayConfig {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, config: GatewayConfig) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
    }
}
