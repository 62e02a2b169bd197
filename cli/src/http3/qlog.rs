//! `--qlog`: what QUIC and assistance did on a connection, for viewers of qlog such as qvis.
//!
//! A JSON text sequence (RFC 7464) of qlog 0.3 (draft-ietf-quic-qlog-main-schema-02), the newest
//! version that qvis reads. s2n-quic's events have the names of draft-ietf-quic-qlog-quic-events;
//! the events of assistance have a namespace of their own, `packrat`.

use packrat_client::{ClientEvent, Observer};
use s2n_quic::provider::event::events::{DuplicatePacketError, Frame, PacketHeader};
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber, events};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Version of the main schema.
const QLOG_VERSION: &str = "0.3";
/// Namespace of the events of assistance.
const EVENT_NAMESPACE: &str = "packrat";
/// The first byte of a record in a JSON text sequence.
const RECORD_SEPARATOR: u8 = 0x1e;

/// The qlog of one connection; complete when it is dropped.
pub(super) struct Qlog(SharedLog);

/// Takes the events of QUIC.
#[derive(Clone)]
pub(super) struct SharedLog(Arc<Mutex<Log>>);

pub(super) struct Log {
    out: BufWriter<File>,
    started: Instant,
    /// Frames of the packet that is being made.
    frames_sent: Vec<Value>,
    /// The packet received last: frames and events follow that belong to it.
    received: Option<Received>,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
}

struct Received {
    time: f64,
    header: PacketHeader,
    bytes: usize,
    frames: Vec<Value>,
    acknowledged: Vec<Value>,
    /// Events since then: a qlog is in the order of time.
    behind: Vec<Value>,
}

impl Qlog {
    /// A new file at `path`, in place of the one that may be there. `title`: of the trace.
    pub(super) fn create(path: &Path, title: &str) -> io::Result<Self> {
        let mut log = Log {
            out: BufWriter::new(File::create(path)?),
            started: Instant::now(),
            frames_sent: Vec::new(),
            received: None,
            error: None,
        };
        let reference = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        log.record(&json!({
            "qlog_version": QLOG_VERSION,
            "qlog_format": "JSON-SEQ",
            "title": title,
            "trace": {
                "vantage_point": {
                    "name": concat!("packrat/", env!("CARGO_PKG_VERSION")),
                    "type": "client",
                },
                "title": title,
                "common_fields": {
                    "protocol_type": ["QUIC", "HTTP3"],
                    "time_format": "relative",
                    "reference_time": milliseconds(reference),
                },
            },
        }))?;
        Ok(Self(SharedLog(Arc::new(Mutex::new(log)))))
    }

    /// Takes the events of assistance.
    pub(super) fn observer(&self) -> Observer {
        let log = self.0.clone();
        Observer::new(move |_, event| log.lock().assistance(event))
    }

    /// Takes the events of QUIC.
    pub(super) fn subscriber(&self) -> SharedLog {
        self.0.clone()
    }

    /// Writes the rest. The first error of writing is returned here.
    pub(super) fn finish(&self) -> io::Result<()> {
        let log = &mut *self.0.lock();
        log.flush_received();
        match log.error.take() {
            Some(error) => Err(error),
            None => log.out.flush(),
        }
    }
}

impl Drop for Qlog {
    fn drop(&mut self) {
        // A download that has failed has another error to tell of.
        let _ = self.finish();
    }
}

impl SharedLog {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn now(&self) -> f64 {
        milliseconds(self.started.elapsed())
    }

    fn record(&mut self, record: &Value) -> io::Result<()> {
        self.out.write_all(&[RECORD_SEPARATOR])?;
        serde_json::to_writer(&mut self.out, record)?;
        self.out.write_all(b"\n")
    }

    fn write(&mut self, event: &Value) {
        if self.error.is_none() {
            self.error = self.record(event).err();
        }
    }

    /// An event of now.
    fn event(&mut self, name: &str, data: &Value) {
        let event = json!({ "time": self.now(), "name": name, "data": data });
        match &mut self.received {
            Some(received) => received.behind.push(event),
            None => self.write(&event),
        }
    }

    fn assistance(&mut self, event: &ClientEvent) {
        if let Ok(Value::Object(mut data)) = serde_json::to_value(event)
            && let Some(Value::String(name)) = data.shift_remove("event")
        {
            self.event(&format!("{EVENT_NAMESPACE}:{name}"), &Value::Object(data));
        }
    }

    fn flush_received(&mut self) {
        let Some(received) = self.received.take() else { return };
        let Received { time, header, bytes, mut frames, acknowledged, behind } = received;
        let ack = frames.iter_mut().find(|frame| frame["frame_type"] == "ack");
        if let Some(Value::Object(ack)) = ack
            && !acknowledged.is_empty()
        {
            ack.insert("acked_ranges".to_owned(), Value::Array(acknowledged));
        }
        let data = packet(&header, bytes, frames);
        self.write(&json!({ "time": time, "name": "transport:packet_received", "data": data }));
        behind.iter().for_each(|event| self.write(event));
    }
}

impl Subscriber for SharedLog {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_connection_started(
        &mut self,
        _: &mut (),
        _: &ConnectionMeta,
        event: &events::ConnectionStarted,
    ) {
        let local = SocketAddr::from(event.path.local_addr.clone());
        let remote = SocketAddr::from(event.path.remote_addr.clone());
        let data = json!({
            "ip_version": if remote.is_ipv4() { "v4" } else { "v6" },
            "src_ip": local.ip(),
            "dst_ip": remote.ip(),
            "protocol": "QUIC",
            "src_port": local.port(),
            "dst_port": remote.port(),
        });
        self.lock().event("connectivity:connection_started", &data);
    }

    fn on_connection_closed(
        &mut self,
        _: &mut (),
        _: &ConnectionMeta,
        event: &events::ConnectionClosed,
    ) {
        let data = json!({ "reason": event.error.to_string() });
        let mut log = self.lock();
        log.flush_received();
        log.event("connectivity:connection_closed", &data);
    }

    fn on_frame_sent(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::FrameSent) {
        self.lock().frames_sent.push(frame(&event.frame));
    }

    fn on_packet_sent(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::PacketSent) {
        let mut log = self.lock();
        let frames = std::mem::take(&mut log.frames_sent);
        let data = packet(&event.packet_header, event.packet_len, frames);
        log.flush_received();
        log.event("transport:packet_sent", &data);
    }

    fn on_packet_received(
        &mut self,
        _: &mut (),
        _: &ConnectionMeta,
        event: &events::PacketReceived,
    ) {
        let mut log = self.lock();
        log.flush_received();
        log.received = Some(Received {
            time: log.now(),
            header: event.packet_header.clone(),
            bytes: event.packet_len,
            frames: Vec::new(),
            acknowledged: Vec::new(),
            behind: Vec::new(),
        });
    }

    fn on_frame_received(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::FrameReceived) {
        if let Some(received) = &mut self.lock().received
            && received.header == event.packet_header
        {
            received.frames.push(frame(&event.frame));
        }
    }

    fn on_ack_range_received(
        &mut self,
        _: &mut (),
        _: &ConnectionMeta,
        event: &events::AckRangeReceived,
    ) {
        if let Some(received) = &mut self.lock().received
            && received.header == event.packet_header
        {
            let (first, last) = (event.ack_range.start(), event.ack_range.end());
            received.acknowledged.push(json!([first, last]));
        }
    }

    fn on_duplicate_packet(
        &mut self,
        _: &mut (),
        _: &ConnectionMeta,
        event: &events::DuplicatePacket,
    ) {
        // Repairs that came too late for s2n-quic's window of packet numbers are here.
        let too_old = matches!(event.error, DuplicatePacketError::TooOld { .. });
        let data = json!({
            "header": header(&event.packet_header),
            "trigger": "duplicate",
            "details": { "reason": if too_old { "too_old" } else { "duplicate" } },
        });
        self.lock().event("transport:packet_dropped", &data);
    }

    fn on_packet_lost(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::PacketLost) {
        let data = json!({ "header": header(&event.packet_header) });
        self.lock().event("recovery:packet_lost", &data);
    }

    fn on_recovery_metrics(
        &mut self,
        _: &mut (),
        _: &ConnectionMeta,
        event: &events::RecoveryMetrics,
    ) {
        let data = json!({
            "min_rtt": milliseconds(event.min_rtt),
            "smoothed_rtt": milliseconds(event.smoothed_rtt),
            "latest_rtt": milliseconds(event.latest_rtt),
            "rtt_variance": milliseconds(event.rtt_variance),
            "pto_count": event.pto_count,
            "congestion_window": event.congestion_window,
            "bytes_in_flight": event.bytes_in_flight,
        });
        self.lock().event("recovery:metrics_updated", &data);
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

fn packet(packet_header: &PacketHeader, bytes: usize, frames: Vec<Value>) -> Value {
    json!({ "header": header(packet_header), "raw": { "length": bytes }, "frames": frames })
}

fn header(header: &PacketHeader) -> Value {
    let (name, number) = match *header {
        PacketHeader::Initial { number, .. } => ("initial", Some(number)),
        PacketHeader::Handshake { number, .. } => ("handshake", Some(number)),
        PacketHeader::ZeroRtt { number, .. } => ("0RTT", Some(number)),
        PacketHeader::OneRtt { number, .. } => ("1RTT", Some(number)),
        PacketHeader::Retry { .. } => ("retry", None),
        PacketHeader::VersionNegotiation { .. } => ("version_negotiation", None),
        PacketHeader::StatelessReset { .. } => ("stateless_reset", None),
        _ => ("unknown", None),
    };
    let mut header = Map::from_iter([("packet_type".to_owned(), name.into())]);
    header.extend(number.map(|number| ("packet_number".to_owned(), number.into())));
    Value::Object(header)
}

/// A frame as qlog has it. s2n-quic reports no ranges of an ACK frame that it sends.
fn frame(frame: &Frame) -> Value {
    match frame {
        Frame::Padding { len, .. } => json!({ "frame_type": "padding", "length": len }),
        Frame::Ping { .. } => json!({ "frame_type": "ping" }),
        Frame::Ack { .. } => json!({ "frame_type": "ack" }),
        Frame::ResetStream { id, error_code, final_size, .. } => json!({
            "frame_type": "reset_stream",
            "stream_id": id,
            "error_code": error_code,
            "final_size": final_size,
        }),
        Frame::StopSending { id, error_code, .. } => {
            json!({ "frame_type": "stop_sending", "stream_id": id, "error_code": error_code })
        }
        Frame::Crypto { offset, len, .. } => {
            json!({ "frame_type": "crypto", "offset": offset, "length": len })
        }
        Frame::NewToken { .. } => json!({ "frame_type": "new_token" }),
        Frame::Stream { id, offset, len, is_fin, .. } => json!({
            "frame_type": "stream",
            "stream_id": id,
            "offset": offset,
            "length": len,
            "fin": is_fin,
        }),
        Frame::MaxData { value, .. } => json!({ "frame_type": "max_data", "maximum": value }),
        Frame::MaxStreamData { id, value, .. } => {
            json!({ "frame_type": "max_stream_data", "stream_id": id, "maximum": value })
        }
        Frame::MaxStreams { value, .. } => json!({ "frame_type": "max_streams", "maximum": value }),
        Frame::DataBlocked { data_limit, .. } => {
            json!({ "frame_type": "data_blocked", "limit": data_limit })
        }
        Frame::StreamDataBlocked { stream_id, stream_data_limit, .. } => json!({
            "frame_type": "stream_data_blocked",
            "stream_id": stream_id,
            "limit": stream_data_limit,
        }),
        Frame::StreamsBlocked { stream_limit, .. } => {
            json!({ "frame_type": "streams_blocked", "limit": stream_limit })
        }
        Frame::NewConnectionId { sequence_number, retire_prior_to, .. } => json!({
            "frame_type": "new_connection_id",
            "sequence_number": sequence_number,
            "retire_prior_to": retire_prior_to,
        }),
        Frame::RetireConnectionId { .. } => json!({ "frame_type": "retire_connection_id" }),
        Frame::PathChallenge { .. } => json!({ "frame_type": "path_challenge" }),
        Frame::PathResponse { .. } => json!({ "frame_type": "path_response" }),
        Frame::ConnectionClose { .. } => json!({ "frame_type": "connection_close" }),
        Frame::HandshakeDone { .. } => json!({ "frame_type": "handshake_done" }),
        Frame::Datagram { len, .. } => json!({ "frame_type": "datagram", "length": len }),
        _ => json!({ "frame_type": "unknown" }),
    }
}
