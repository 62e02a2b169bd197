//! The observer of quinn: through its congestion control, and through its qlog.

use crate::observer::Observer;
use crate::simulation::clock::VirtualClock;
use crate::stacks::runtime::VirtualRuntime;
use quinn::congestion::{Controller, ControllerFactory};
use quinn::{QlogConfig, QlogStream};
use quinn_proto::RttEstimator;
use serde::Deserialize;
use std::any::Any;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A congestion control of quinn's that is listened to.
pub(crate) struct Observed {
    inner: Box<dyn Controller>,
    runtime: VirtualRuntime,
    observer: Observer,
    /// The newest sample of the round trip.
    round_trip: Duration,
}

struct Factory<F> {
    inner: Arc<F>,
    runtime: VirtualRuntime,
    observer: Observer,
}

impl<F: ControllerFactory + Send + Sync + 'static> ControllerFactory for Factory<F> {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Observed {
            inner: Arc::clone(&self.inner).build(now, current_mtu),
            runtime: self.runtime,
            observer: self.observer.clone(),
            round_trip: Duration::ZERO,
        })
    }
}

impl Observed {
    /// Makes the controllers of `inner`, and observes them.
    pub(crate) fn factory<F: ControllerFactory + Send + Sync + 'static>(
        inner: Arc<F>,
        runtime: VirtualRuntime,
        observer: Observer,
    ) -> Arc<dyn ControllerFactory + Send + Sync> {
        Arc::new(Factory { inner, runtime, observer })
    }

    fn window_u32(&self) -> u32 {
        u32::try_from(self.inner.window()).unwrap_or(u32::MAX)
    }
}

impl Controller for Observed {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        round_trip: &RttEstimator,
    ) {
        self.round_trip = now.saturating_duration_since(sent);
        self.inner.on_ack(now, sent, bytes, app_limited, round_trip);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest: Option<u64>,
    ) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
        let in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
        let at = self.runtime.seconds(now);
        self.observer.window(at, self.window_u32(), in_flight, self.round_trip);
        if let Some(largest) = largest {
            self.observer.acknowledged(at, largest);
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        persistent: bool,
        lost_bytes: u64,
    ) {
        let before = self.inner.window();
        self.inner.on_congestion_event(now, sent, persistent, lost_bytes);
        self.observer.congestion();
        if self.inner.window() < before {
            self.observer.slow_start_ended(self.runtime.seconds(now), "loss");
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            runtime: self.runtime,
            observer: self.observer.clone(),
            round_trip: self.round_trip,
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self.inner.into_any()
    }
}

/// Reads quinn's qlog while quinn writes it: only the log contains the packets that were declared
/// lost.
pub(crate) struct QlogReader {
    clock: VirtualClock,
    observer: Observer,
    /// Numbers received by a receiver, whose own packets are irrelevant.
    received: Option<ReceivedNumbers>,
    /// The beginning of a record that is not complete.
    rest: Vec<u8>,
    next_number: u64,
}

/// The 1-RTT packet numbers that have arrived.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceivedNumbers(Arc<Mutex<BTreeSet<u64>>>);

impl ReceivedNumbers {
    /// As ascending inclusive ranges.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for &number in numbers.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        ranges
    }
}

#[derive(Deserialize)]
struct Record<'a> {
    name: &'a str,
    #[serde(borrow)]
    data: Data<'a>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    header: Header<'a>,
}

#[derive(Deserialize)]
struct Header<'a> {
    packet_type: &'a str,
    packet_number: Option<u64>,
    length: Option<usize>,
}

impl QlogReader {
    /// A reader that passes the log's events to the observer; virtual time is taken from the clock.
    pub(crate) fn new(clock: VirtualClock, observer: Observer) -> Self {
        Self { clock, observer, received: None, rest: Vec::new(), next_number: 0 }
    }

    /// Records the packets that arrive, instead of the sent ones.
    pub(crate) fn of_receiver(self, received: ReceivedNumbers) -> Self {
        Self { received: Some(received), ..self }
    }

    /// The log of a connection, which this reader reads.
    pub(crate) fn stream(self, runtime: VirtualRuntime) -> Option<QlogStream> {
        let mut log = QlogConfig::default();
        log.start_time(runtime.base()).writer(Box::new(self));
        log.into_stream()
    }

    fn record(&mut self, line: &[u8]) {
        // The records of other events have another form.
        let Ok(Record { name, data: Data { header } }) = serde_json::from_slice::<Record>(line)
        else {
            return;
        };
        let Some(number) = header.packet_number.filter(|_| header.packet_type == "1RTT") else {
            return;
        };
        if let Some(received) = &self.received {
            if name.ends_with(":packet_received") {
                received.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
            }
            return;
        }
        let at = self.clock.now().as_secs_f64();
        if name.ends_with(":packet_lost") {
            self.observer.declared_lost(at, number);
        } else if name.ends_with(":packet_sent") {
            (self.next_number..number).for_each(|_| self.observer.skipped());
            self.next_number = number + 1;
            self.observer.sent(at, number, header.length.unwrap_or(0));
        }
    }
}

impl Write for QlogReader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A serializer writes a few bytes at a time: each is searched once.
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.rest.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.rest);
                // JSON text sequences (RFC 7464) begin each record with a separator.
                self.record(line.strip_prefix(&[0x1e]).unwrap_or(&line));
                self.rest = line;
                self.rest.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
