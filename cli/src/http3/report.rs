//! Report and progress of a transfer.

use http::{HeaderMap, StatusCode};
use packrat_s2n_quic::AssistanceStats;
use std::net::SocketAddr;
use std::time::Duration;

/// A finished transfer, or what there was of it before [`super::Request::stop_after`].
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// HTTP status code.
    pub(crate) status: u16,
    /// The protocol, by the name that TLS has for it (ALPN): `h3`, `h2` or `http/1.1`.
    pub(crate) protocol: &'static str,
    /// The server's address.
    pub(crate) remote: SocketAddr,
    /// Bytes of the body that arrived, or were sent, in this run.
    pub(crate) bytes: u64,
    /// Bytes that were there before and were not transferred again.
    pub(crate) resumed_from: u64,
    /// Bytes of the whole body, when that was known before its end.
    pub(crate) expected_bytes: Option<u64>,
    /// URL of an upload, if the server gave one.
    pub(crate) location: Option<String>,
    /// Name lookup, and the handshakes of QUIC, or of TCP, and of TLS.
    pub(crate) connect_time: Duration,
    /// Time from sending the request to the last byte of a download, or to the answer to an upload.
    pub(crate) transfer_time: Duration,
    /// SHA-256 of the body, with the bytes that were there before, in hexadecimal.
    pub(crate) sha256: String,
    /// Counters of assistance; `None` when it was off.
    pub(crate) assist: Option<AssistanceStats>,
    /// The source of the gateway's key; `None`: any gateway on the path was trusted.
    pub(crate) gateway_key: Option<KnownKey>,
    /// True if a token was shown to the gateway.
    pub(crate) with_token: bool,
    /// The connection's own figures.
    pub(crate) connection: ConnectionFigures,
    /// The proxy that it came through.
    pub(crate) proxy: Option<String>,
    /// Stopped by [`super::Request::stop_after`] before the end.
    pub(crate) partial: bool,
}

/// A connection's own figures.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionFigures {
    /// 1-RTT packet numbers received, as ascending inclusive ranges.
    pub(crate) received_packet_numbers: Vec<(u64, u64)>,
    /// Packets that this end has declared lost.
    pub(crate) declared_lost: u64,
    /// The connection's smallest round trip, when there was one over UDP.
    pub(crate) round_trip: Option<Duration>,
}

impl Report {
    /// A report on nothing yet.
    pub(crate) fn new(protocol: &'static str, remote: SocketAddr) -> Self {
        Self {
            status: 0,
            protocol,
            remote,
            bytes: 0,
            resumed_from: 0,
            expected_bytes: None,
            location: None,
            connect_time: Duration::ZERO,
            transfer_time: Duration::ZERO,
            sha256: String::new(),
            assist: None,
            gateway_key: None,
            with_token: false,
            connection: ConnectionFigures::default(),
            proxy: None,
            partial: false,
        }
    }

    /// Bytes of the body per second of transfer, in Mbit/s.
    pub(crate) fn goodput_mbps(&self) -> f64 {
        let seconds = self.transfer_time.as_secs_f64();
        if seconds > 0.0 { self.bytes as f64 * 8e-6 / seconds } else { 0.0 }
    }

    /// Seconds of transfer.
    pub(crate) fn seconds(&self) -> f64 {
        self.transfer_time.as_secs_f64()
    }
}

/// The source of a gateway's key that was known before the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownKey {
    /// The user, or a token's document.
    Given,
    /// The host's HTTPS record.
    Dns,
}

/// An event during a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Progress {
    /// An address is being tried.
    Connecting {
        /// The address.
        remote: SocketAddr,
    },
    /// The connection stands, the request is on its way.
    Connected {
        /// The address.
        remote: SocketAddr,
    },
    /// The head of a response, also of a redirect or an error.
    Answered { status: StatusCode, headers: HeaderMap },
    /// The response has begun.
    Response {
        /// HTTP status code.
        status: u16,
        /// Bytes of the whole body, when known.
        expected_bytes: Option<u64>,
        /// Bytes that were there before.
        resumed_from: u64,
    },
    /// The body of an upload is being sent.
    Sending {
        /// Bytes of it, when known.
        expected_bytes: Option<u64>,
        /// Bytes that the server has already.
        resumed_from: u64,
    },
    /// Part of the body has arrived and was written, or was read and handed to QUIC.
    Data {
        /// Bytes of this run so far.
        bytes: u64,
    },
}
