//! The sender of one connection: packets, loss detection, retransmission.

use super::cubic::{Cubic, Segment};
use packrat_wire::estimate::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Packets that must have arrived behind a lost one (RFC 9002, section 6.1.1; Sidekick24, section
/// 4.3.1).
const REORDERING_PACKETS: usize = 3;
/// The round trip before one was measured.
const ASSUMED_ROUND_TRIP: Duration = Duration::from_millis(333);

/// A packet whose fate is not known, or that has passed the proxy.
#[derive(Debug, Clone, Copy)]
struct Packet {
    chunk: u64,
    sent_at: Timestamp,
    /// Set if a quACK has confirmed the packet at the proxy; where quACKs move the window, it does
    /// not fill that any more.
    passed: bool,
}

/// The use that a sender makes of quACKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuackUse {
    /// No use: no quACKs come.
    None,
    /// Retransmissions of missing packets.
    Retransmit,
    /// Retransmissions; also, datagrams that have passed the proxy do not fill the window any more.
    MoveWindow,
}

/// The chunks of an upload, a packet each.
#[derive(Debug)]
struct Chunks {
    all: u64,
    next: u64,
    /// Chunks that can be sent so far.
    available: u64,
    again: VecDeque<u64>,
    delivered: Vec<bool>,
}

impl Chunks {
    /// The next chunk to send, lost ones first.
    fn next(&mut self) -> Option<u64> {
        while let Some(chunk) = self.again.pop_front() {
            if !self.delivered[chunk as usize] {
                return Some(chunk);
            }
        }
        (self.next < self.all.min(self.available)).then(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// Measured round trips.
#[derive(Debug, Default)]
struct RoundTrips {
    /// Smoothed, and its variation.
    smoothed: Option<(Duration, Duration)>,
    /// The shortest round trips, of the path and of the near segment: without the delays of queues.
    shortest: Option<Duration>,
    near: Option<Duration>,
}

/// The knowledge that quACKs bring.
#[derive(Debug)]
struct QuackState {
    uses: QuackUse,
    threshold: usize,
    /// Entries of the proxy's log that are known here.
    known: usize,
    /// Packets that the proxy may still see, in the order of sending.
    unquacked: VecDeque<u64>,
    /// Number of later packets reported by echoes, by packet.
    overtaken: BTreeMap<u64, usize>,
}

/// A sender of a number of chunks.
#[derive(Debug)]
pub(super) struct Sender {
    cubic: Cubic,
    chunks: Chunks,
    quacks: QuackState,
    next_number: u64,
    packets: BTreeMap<u64, Packet>,
    /// Packets that fill the window.
    in_flight: usize,
    /// Entries of the receiver's log that are known here.
    acknowledged: usize,
    largest: Option<u64>,
    round_trips: RoundTrips,
    /// The last packet that filled the window, and probes since then.
    last_sent: Timestamp,
    probes: u32,
}

impl Sender {
    pub(super) fn new(chunks: u64, available: u64, uses: QuackUse, threshold: usize) -> Self {
        Self {
            cubic: Cubic::new(),
            chunks: Chunks {
                all: chunks,
                next: 0,
                available,
                again: VecDeque::new(),
                delivered: vec![false; chunks as usize],
            },
            quacks: QuackState {
                uses,
                threshold,
                known: 0,
                unquacked: VecDeque::new(),
                overtaken: BTreeMap::new(),
            },
            next_number: 0,
            packets: BTreeMap::new(),
            in_flight: 0,
            acknowledged: 0,
            largest: None,
            round_trips: RoundTrips::default(),
            last_sent: Timestamp::ZERO,
            probes: 0,
        }
    }

    pub(super) fn window(&self) -> f64 {
        self.cubic.window()
    }

    /// Makes this many more chunks available.
    pub(super) fn provide(&mut self, chunks: u64) {
        self.chunks.available = self.chunks.available.max(chunks);
    }

    /// The next packet to send, as its number and its chunk.
    pub(super) fn poll_transmit(&mut self, now: Timestamp) -> Option<(u64, u64)> {
        if (self.in_flight as f64) >= self.cubic.window().floor() {
            return None;
        }
        self.send(now)
    }

    fn send(&mut self, now: Timestamp) -> Option<(u64, u64)> {
        let chunk = self.chunks.next()?;
        let number = self.next_number;
        self.next_number += 1;
        self.packets.insert(number, Packet { chunk, sent_at: now, passed: false });
        self.in_flight += 1;
        self.last_sent = now;
        if self.quacks.uses != QuackUse::None {
            self.quacks.unquacked.push_back(number);
        }
        Some((number, chunk))
    }

    /// Time at which [`Self::on_timeout`] must be called.
    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        let (smoothed, variation) =
            self.round_trips.smoothed.unwrap_or((ASSUMED_ROUND_TRIP, ASSUMED_ROUND_TRIP / 2));
        let period = smoothed + (variation * 4).max(Duration::from_millis(1));
        let period = period + Duration::from_millis(25);
        (!self.packets.is_empty()).then(|| self.last_sent + period * (1 << self.probes.min(10)))
    }

    /// Called after a silence: sends the oldest packet's chunk again (RFC 9002, section 6.2).
    pub(super) fn on_timeout(&mut self, now: Timestamp) -> Option<(u64, u64)> {
        self.probes += 1;
        let oldest = self.packets.values().next().map(|packet| packet.chunk)?;
        self.chunks.again.push_front(oldest);
        self.send(now)
    }

    /// Called when an acknowledgement reports this part of the receiver's log.
    pub(super) fn on_acknowledgement(&mut self, log: &[u64], now: Timestamp) {
        let Some(new) = log.get(self.acknowledged..) else { return };
        self.acknowledged = log.len();
        let Some(largest) = new.iter().copied().max() else { return };
        self.probes = 0;
        if self.largest.is_none_or(|before| before < largest) {
            self.largest = Some(largest);
            if let Some(packet) = self.packets.get(&largest) {
                self.measure(now.saturating_since(packet.sent_at));
            }
        }
        for number in new {
            let Some(packet) = self.packets.remove(number) else { continue };
            self.chunks.delivered[packet.chunk as usize] = true;
            if !self.has_left_window(&packet) {
                self.in_flight -= 1;
                self.cubic.on_arrived(packet.sent_at, self.smoothed(), now);
            }
        }
        self.find_lost(now);
    }

    fn has_left_window(&self, packet: &Packet) -> bool {
        packet.passed && self.quacks.uses == QuackUse::MoveWindow
    }

    fn smoothed(&self) -> Duration {
        self.round_trips.smoothed.map_or(ASSUMED_ROUND_TRIP, |(smoothed, _)| smoothed)
    }

    fn measure(&mut self, sample: Duration) {
        self.round_trips.shortest =
            Some(self.round_trips.shortest.map_or(sample, |before| before.min(sample)));
        self.round_trips.smoothed = Some(match self.round_trips.smoothed {
            None => (sample, sample / 2),
            Some((smoothed, variation)) => {
                let error = smoothed.abs_diff(sample);
                ((smoothed * 7 + sample) / 8, (variation * 3 + error) / 4)
            }
        });
    }

    /// Declares packets lost that are too far below the largest arrived one, or too old.
    fn find_lost(&mut self, now: Timestamp) {
        let Some(largest) = self.largest else { return };
        let late = self.smoothed() * 9 / 8;
        let lost: Vec<(u64, Packet)> = self
            .packets
            .range(..largest)
            .filter(|(number, packet)| {
                **number + REORDERING_PACKETS as u64 <= largest
                    || now.saturating_since(packet.sent_at) >= late
            })
            .map(|(number, packet)| (*number, *packet))
            .collect();
        for (number, packet) in lost {
            self.lose(number, &packet, Segment::Path, now);
        }
    }

    fn lose(&mut self, number: u64, packet: &Packet, segment: Segment, now: Timestamp) {
        self.packets.remove(&number);
        if !self.has_left_window(packet) {
            self.in_flight -= 1;
        }
        self.chunks.again.push_back(packet.chunk);
        self.cubic.on_lost(packet.sent_at, segment, now);
    }

    /// A quACK, made when this part of the proxy's log had passed.
    pub(super) fn on_quack(&mut self, log: &[u64], now: Timestamp) {
        let Some(new) = log.get(self.quacks.known..) else { return };
        self.quacks.known = log.len();
        let Some(&last) = new.last() else { return };
        self.probes = 0;
        self.measure_near(last, now);
        let new: BTreeSet<u64> = new.iter().copied().collect();
        let sent: Vec<u64> =
            self.quacks.unquacked.iter().copied().filter(|number| *number <= last).collect();
        let missing: Vec<u64> =
            sent.iter().copied().filter(|number| !new.contains(number)).collect();
        // As many sums as this decode no larger difference.
        if missing.len() > self.quacks.threshold {
            // A Reset: packets sent until now are left to acknowledgements.
            self.quacks.unquacked.retain(|number| *number > last);
            return;
        }
        self.quacks.unquacked.retain(|number| *number > last || missing.contains(number));
        for number in &new {
            self.pass(*number, now);
        }
        let near = self.near_share();
        for number in missing {
            let later = sent.iter().filter(|later| **later > number && new.contains(later)).count();
            if later < REORDERING_PACKETS {
                continue;
            }
            self.quacks.unquacked.retain(|other| *other != number);
            if let Some(packet) = self.packets.get(&number).copied() {
                self.lose(number, &packet, Segment::Near(near), now);
            }
        }
    }

    /// Called when echoes report that the proxy has seen these packets; others remain unknown.
    pub(super) fn on_echo(&mut self, numbers: &[u64], now: Timestamp) {
        self.probes = 0;
        for number in numbers {
            let Some(place) = self.quacks.unquacked.iter().position(|other| other == number) else {
                continue;
            };
            self.measure_near(*number, now);
            self.quacks.unquacked.remove(place);
            self.quacks.overtaken.remove(number);
            self.pass(*number, now);
            let before: Vec<u64> = self.quacks.unquacked.iter().take(place).copied().collect();
            for missing in before {
                let later = self.quacks.overtaken.entry(missing).or_default();
                *later += 1;
                if *later >= REORDERING_PACKETS {
                    self.quacks.overtaken.remove(&missing);
                    self.quacks.unquacked.retain(|other| *other != missing);
                    if let Some(packet) = self.packets.get(&missing).copied() {
                        self.lose(missing, &packet, Segment::Near(self.near_share()), now);
                    }
                }
            }
        }
    }

    fn measure_near(&mut self, number: u64, now: Timestamp) {
        let Some(packet) = self.packets.get(&number) else { return };
        let sample = now.saturating_since(packet.sent_at);
        self.round_trips.near =
            Some(self.round_trips.near.map_or(sample, |before| before.min(sample)));
    }

    /// The proxy has seen a packet.
    fn pass(&mut self, number: u64, now: Timestamp) {
        let near = self.round_trips.near.unwrap_or(ASSUMED_ROUND_TRIP);
        let Some(packet) = self.packets.get_mut(&number).filter(|packet| !packet.passed) else {
            return;
        };
        packet.passed = true;
        if self.quacks.uses == QuackUse::MoveWindow {
            self.in_flight -= 1;
            self.cubic.on_arrived(packet.sent_at, near, now);
        }
    }

    /// The near segment's share of the round trip.
    fn near_share(&self) -> f64 {
        let near = self.round_trips.near.unwrap_or(ASSUMED_ROUND_TRIP).as_secs_f64();
        let whole = self.round_trips.shortest.unwrap_or(ASSUMED_ROUND_TRIP).as_secs_f64();
        (near / whole).clamp(0.01, 1.0)
    }
}
