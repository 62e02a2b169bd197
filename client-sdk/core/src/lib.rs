//! The sans-IO client core (stub of the interface; being written).
#![forbid(unsafe_code)]
use packrat_estimate::Timestamp;
use std::time::Duration;

/// What an application may set.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Longest time an acknowledgement is withheld for a hole; the actual hold follows the measured last mile below it.
    pub maximum_hold: Duration,
    /// Whether acknowledgements may be withheld at all.
    pub hold: bool,
    /// The gateway's static public key, when known: anything else is refused. `None`: trust on first use.
    pub gateway_key: Option<[u8; 32]>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self { maximum_hold: Duration::from_millis(120), hold: true, gateway_key: None }
    }
}

/// What a received datagram was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagram {
    /// The transport's: pass it on.
    Base,
    /// Packrat's: consumed, hide it from the transport.
    Control,
}

/// What the shell should do after [`Assist::handle_timeout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeoutActions {
    /// Make the transport send a packet with an ACK frame now: something that was withheld may be revealed.
    pub force_ack: bool,
}

/// What assistance did for one base connection (accumulated).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AssistStats {
    /// eACK bytes sent (UDP payload).
    pub eack_bytes: u64,
}

/// Assistance of one base connection, at its receiver.
#[derive(Debug)]
pub struct Assist {}

impl Assist {
    /// `seed`: 32 fresh random bytes from the operating system.
    pub fn new(_config: ClientConfig, _seed: [u8; 32], _now: Timestamp) -> Self { Self {} }
    /// A UDP payload arrived (still encrypted, exactly as received, one datagram).
    pub fn on_datagram(&mut self, _datagram: &[u8], _now: Timestamp) -> Datagram { Datagram::Base }
    /// The transport decrypted a 1-RTT packet of the datagram that was passed in last: its packet number.
    pub fn on_packet_number(&mut self, _packet_number: u64, _now: Timestamp) {}
    /// Rewrites the frames of an outgoing 1-RTT packet (plaintext): what is above a hole is not revealed. `room`: largest
    /// length the payload may have. `None`: leave it as it is. `force_ack`: insert an ACK frame if there is none.
    pub fn rewrite_frames(&mut self, _frames: &[u8], _room: usize, _force_ack: bool, _now: Timestamp) -> Option<Vec<u8>> { None }
    /// The next control datagram to send to the peer's address from the base connection's own socket.
    pub fn poll_transmit(&mut self, _now: Timestamp) -> Option<Vec<u8>> { None }
    /// When [`Assist::handle_timeout`] wants to be called.
    pub fn next_timeout(&self) -> Option<Timestamp> { None }
    /// Time has passed. Afterwards call [`Assist::poll_transmit`] until it is empty.
    pub fn handle_timeout(&mut self, _now: Timestamp) -> TimeoutActions { TimeoutActions::default() }
    /// The base connection ends: a last Goodbye is ready in [`Assist::poll_transmit`].
    pub fn close(&mut self, _now: Timestamp) {}
    /// Accumulated figures.
    pub fn stats(&self) -> AssistStats { AssistStats::default() }
    /// Packet numbers received so far as ascending inclusive ranges.
    pub fn received_packet_numbers(&self) -> Vec<(u64, u64)> { Vec::new() }
}
