//! What an operator can be told about a session that is alive.

use std::net::SocketAddr;

use serde::Serialize;
use serde_json::Value;

/// One client's session now; totals since it was opened.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct SessionSnapshot {
    /// The number in log lines.
    pub session: u64,
    /// The client as log lines show it.
    pub client: Value,
    /// The server that it is forwarded to.
    pub endpoint: SocketAddr,
    /// Name of its assistance in the protocol, while it is assisted.
    pub assistance: Option<u32>,
    /// Age.
    pub seconds: f64,
    /// Datagrams forwarded to the client.
    pub to_client_datagrams: u64,
    /// Payload bytes forwarded to the client.
    pub to_client_bytes: u64,
    /// Datagrams forwarded to the server.
    pub to_server_datagrams: u64,
    /// Payload bytes forwarded to the server.
    pub to_server_bytes: u64,
    /// Datagrams recorded for possible repair.
    pub recorded: u64,
    /// Recorded datagrams that eACKs showed to be missing.
    pub missing: u64,
    /// Missing datagrams that were sent again.
    pub repairs: u64,
    /// Repaired datagrams that eACKs showed to have arrived.
    pub repairs_arrived: u64,
    /// Resets of either side.
    pub resets: u64,
    /// Bytes kept for repair now.
    pub cache_bytes: u64,
    /// Smoothed last-mile round trip; 0: not known.
    pub last_mile_round_trip_microseconds: u64,
    /// Last-mile loss in parts per million.
    pub last_mile_loss_ppm: u64,
    /// First round trip to the server, with its time to answer; 0: not known.
    pub far_round_trip_microseconds: u64,
}
