//! Observers of the QUIC stacks: of s2n-quic through its events, of quinn and noq
//! through their congestion controls.

use packrat_client::{Assist, ClientConfig, ClientEvent, PacketNumber, Timestamp};
use packrat_engine::SessionEvent;
use s2n_quic::provider::event::events::{
    AckRangeReceived, Congestion, DuplicatePacket, DuplicatePacketError, PacketHeader, PacketLost,
    PacketReceived, PacketSent, PacketSkipped, RecoveryMetrics, SlowStartExitCause,
    SlowStartExited,
};
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A sender's totals.
#[derive(Debug, Clone, Default)]
pub(crate) struct SenderFigures {
    /// 1-RTT packets sent.
    pub(crate) sent: u64,
    /// Numbers of the 1-RTT packets that it declared lost.
    pub(crate) declared_lost: BTreeSet<u64>,
    /// Times that it reduced its window.
    pub(crate) congestion_events: u64,
    /// Packet numbers left out on purpose.
    pub(crate) skipped: u64,
    /// Set if there was congestion since the last look at the path.
    congested: bool,
    window_last: u32,
    window_sum: f64,
    window_samples: u64,
    window_most: u32,
    largest_acknowledged: Option<u64>,
    /// The end of slow start, if it ended.
    pub(crate) slow_start_ended: Option<f64>,
    /// Packets received that were too late for the receiver's window of packet numbers.
    pub(crate) too_old: u64,
    /// The trace, only when tracing.
    pub(crate) trace: Vec<TraceEvent>,
}

impl SenderFigures {
    /// The congestion window, bytes: mean and most.
    pub(crate) fn window(&self) -> [f64; 2] {
        [self.window_sum / self.window_samples.max(1) as f64, f64::from(self.window_most)]
    }
}

/// An event of a trial, with its time (virtual seconds).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum TraceEvent {
    /// The sender sent a 1-RTT packet.
    Sent {
        /// The time of the event.
        at: f64,
        /// Number of the packet.
        number: u64,
        /// Length of the packet.
        bytes: usize,
    },
    /// The sender learned that packets up to this one have arrived; those below may be missing.
    Acknowledged {
        /// The time of the event.
        at: f64,
        /// The largest packet number acknowledged so far.
        largest: u64,
    },
    /// The sender looked at its path after an acknowledgement.
    Window {
        /// The time of the event.
        at: f64,
        /// Largest number of bytes in flight.
        window: u32,
        /// Bytes in flight.
        in_flight: u32,
        /// The newest sample of the round trip, milliseconds.
        round_trip_ms: f64,
    },
    /// The sender declared a packet lost.
    DeclaredLost {
        /// The time of the event.
        at: f64,
        /// Number of the packet.
        number: u64,
        /// True if it has arrived at the receiver, sooner or later.
        arrived: bool,
    },
    /// The sender reduced its window.
    Congestion {
        /// The time of the event.
        at: f64,
    },
    /// The sender left slow start.
    SlowStartEnded {
        /// The time of the event.
        at: f64,
        /// The cause.
        cause: &'static str,
    },
    /// A datagram was offered to the last mile.
    LastMile {
        /// The time of the event.
        at: f64,
        /// True if it went to the client.
        down: bool,
        /// Base connection, control, or repair.
        kind: DatagramKind,
        /// UDP payload.
        bytes: usize,
        /// True if the medium lost it, or the queue dropped it.
        lost: bool,
        /// The time at which it comes out at the other end, if it does.
        arrives: Option<f64>,
        /// The packet number in it, if it is known.
        number: Option<u64>,
        /// Bytes in the gateway's cache afterwards, if there is a gateway.
        cache_bytes: Option<u64>,
        /// Distinguishes datagrams of the same trial; repairs share the value of their original.
        #[serde(skip)]
        identity: u64,
    },
    /// The receiver dropped a packet that came too late for its window of packet numbers.
    TooOld {
        /// The time of the event.
        at: f64,
        /// Number of the packet.
        number: u64,
    },
    /// An event of assistance at the client.
    #[serde(untagged)]
    Client {
        /// The time of the event.
        at: f64,
        /// The event.
        client: ClientEvent,
    },
    /// An event of assistance at the gateway.
    #[serde(untagged)]
    Gateway {
        /// The time of the event.
        at: f64,
        /// The event.
        gateway: SessionEvent,
    },
}

/// The kind of a datagram on the last mile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DatagramKind {
    /// The base connection's.
    Base,
    /// Packrat's: handshake, eACKs, reports.
    Control,
    /// The base connection's, sent again by the gateway.
    Repair,
}

impl TraceEvent {
    /// The time of the event.
    pub fn at(&self) -> f64 {
        match self {
            Self::Sent { at, .. }
            | Self::Acknowledged { at, .. }
            | Self::Window { at, .. }
            | Self::DeclaredLost { at, .. }
            | Self::Congestion { at }
            | Self::SlowStartEnded { at, .. }
            | Self::LastMile { at, .. }
            | Self::TooOld { at, .. }
            | Self::Client { at, .. }
            | Self::Gateway { at, .. } => *at,
        }
    }
}

/// Listens to one s2n-quic endpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observer {
    figures: Arc<Mutex<SenderFigures>>,
    tracing: bool,
    /// See [`Self::recording`].
    record: Option<Arc<Mutex<Assist>>>,
}

impl Observer {
    /// Creates an observer. `tracing`: whether to record each event.
    pub(crate) fn new(tracing: bool) -> Self {
        Self { tracing, ..Self::default() }
    }

    /// A 1-RTT packet was sent.
    pub(crate) fn sent(&self, at: f64, number: u64, bytes: usize) {
        self.lock().sent += 1;
        self.trace(|| TraceEvent::Sent { at, number, bytes });
    }

    /// A 1-RTT packet was declared lost.
    pub(crate) fn declared_lost(&self, at: f64, number: u64) {
        self.lock().declared_lost.insert(number);
        self.trace(|| TraceEvent::DeclaredLost { at, number, arrived: false });
    }

    /// A packet number was left out on purpose.
    pub(crate) fn skipped(&self) {
        self.lock().skipped += 1;
    }

    /// Called after congestion: the window may be smaller at the next look at the path.
    pub(crate) fn congestion(&self) {
        self.lock().congested = true;
    }

    /// Slow start has ended.
    pub(crate) fn slow_start_ended(&self, at: f64, cause: &'static str) {
        self.trace(|| TraceEvent::SlowStartEnded { at, cause });
        self.lock().slow_start_ended.get_or_insert(at);
    }

    /// The state of the path after an acknowledgement, bytes.
    pub(crate) fn window(&self, at: f64, window: u32, in_flight: u32, round_trip: Duration) {
        let round_trip_ms = round_trip.as_secs_f64() * 1e3;
        self.trace(|| TraceEvent::Window { at, window, in_flight, round_trip_ms });
        let mut figures = self.lock();
        // Congestion during recovery causes no further reduction.
        if std::mem::take(&mut figures.congested) && window < figures.window_last {
            figures.congestion_events += 1;
            if self.tracing {
                figures.trace.push(TraceEvent::Congestion { at });
            }
        }
        figures.window_last = window;
        figures.window_sum += f64::from(window);
        figures.window_samples += 1;
        figures.window_most = figures.window_most.max(window);
    }

    /// Packets up to this number are acknowledged.
    pub(crate) fn acknowledged(&self, at: f64, largest: u64) {
        if self.tracing {
            let mut figures = self.lock();
            if figures.largest_acknowledged.is_none_or(|before| before < largest) {
                figures.largest_acknowledged = Some(largest);
                figures.trace.push(TraceEvent::Acknowledged { at, largest });
            }
        }
    }

    /// The way of the client's events into the trace, when tracing.
    pub(crate) fn of_client(&self) -> Option<packrat_client::Observer> {
        let observer = self.clone();
        let keep = move |now: Timestamp, event: &ClientEvent| {
            observer.trace(|| TraceEvent::Client { at: now.as_secs_f64(), client: *event });
        };
        self.tracing.then(|| packrat_client::Observer::new(keep))
    }

    /// For a client without assistance: a record of its packet numbers traces its holes, as
    /// assistance does elsewhere. It sends no datagrams.
    pub(crate) fn recording(mut self) -> Self {
        self.record = self.of_client().map(|observer| {
            let config = ClientConfig::default().with_maximum_hold(Duration::ZERO);
            let mut record = Assist::new(config, [0; 32], Timestamp::ZERO);
            record.observe(observer);
            Arc::new(Mutex::new(record))
        });
        self
    }

    fn trace(&self, event: impl FnOnce() -> TraceEvent) {
        if self.tracing {
            self.lock().trace.push(event());
        }
    }

    fn lock(&self) -> MutexGuard<'_, SenderFigures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn figures(&self) -> SenderFigures {
        self.lock().clone()
    }
}

impl Subscriber for Observer {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_packet_sent(&mut self, _: &mut (), meta: &ConnectionMeta, event: &PacketSent) {
        if let PacketHeader::OneRtt { number, .. } = event.packet_header {
            self.sent(seconds(meta), number, event.packet_len);
        }
    }

    fn on_ack_range_received(
        &mut self,
        _: &mut (),
        meta: &ConnectionMeta,
        event: &AckRangeReceived,
    ) {
        if matches!(event.packet_header, PacketHeader::OneRtt { .. }) {
            self.acknowledged(seconds(meta), *event.ack_range.end());
        }
    }

    fn on_packet_lost(&mut self, _: &mut (), meta: &ConnectionMeta, event: &PacketLost) {
        // A probe for the path's MTU that is lost is no loss.
        if let PacketHeader::OneRtt { number, .. } = event.packet_header
            && !event.is_mtu_probe
        {
            self.declared_lost(seconds(meta), number);
        }
    }

    fn on_packet_skipped(&mut self, _: &mut (), _: &ConnectionMeta, _: &PacketSkipped) {
        self.skipped();
    }

    fn on_congestion(&mut self, _: &mut (), _: &ConnectionMeta, _: &Congestion) {
        self.congestion();
    }

    fn on_slow_start_exited(&mut self, _: &mut (), meta: &ConnectionMeta, event: &SlowStartExited) {
        let cause = match event.cause {
            SlowStartExitCause::PacketLoss { .. } => "loss",
            SlowStartExitCause::Rtt { .. } => "round_trip",
            _ => "threshold",
        };
        self.slow_start_ended(seconds(meta), cause);
    }

    fn on_recovery_metrics(&mut self, _: &mut (), meta: &ConnectionMeta, event: &RecoveryMetrics) {
        let (window, in_flight) = (event.congestion_window, event.bytes_in_flight);
        self.window(seconds(meta), window, in_flight, event.latest_rtt);
    }

    fn on_packet_received(&mut self, _: &mut (), meta: &ConnectionMeta, event: &PacketReceived) {
        if let PacketHeader::OneRtt { number, .. } = event.packet_header
            && let Some(record) = &self.record
        {
            let micros = meta.timestamp.duration_since_start().as_micros();
            let now = Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
            record
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .on_packet_number(PacketNumber::new(number), now);
        }
    }

    fn on_duplicate_packet(&mut self, _: &mut (), meta: &ConnectionMeta, event: &DuplicatePacket) {
        if let DuplicatePacketError::TooOld { .. } = event.error
            && let PacketHeader::OneRtt { number, .. } = event.packet_header
        {
            self.lock().too_old += 1;
            self.trace(|| TraceEvent::TooOld { at: seconds(meta), number });
        }
    }
}

fn seconds(meta: &ConnectionMeta) -> f64 {
    meta.timestamp.duration_since_start().as_secs_f64()
}
