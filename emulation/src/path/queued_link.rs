//! One direction of a path whose rate, delay and outages change with time, and whose queue decides
//! when a datagram leaves it, sans-IO.
//!
//! A [`super::Link`] knows the fate of a datagram when it is offered. This link does not: a later
//! arrival can push an earlier one out, and CoDel decides by the time that a datagram has waited.
//! So it holds the datagrams, and its caller asks for their fates.

use std::collections::VecDeque;
use std::iter;

use packrat_wire::estimate::Timestamp;

use super::airtime::{Air, Station};
use super::delay::{DelayModel, DelayProcess};
use super::discipline::{QueueManagement, Queued, Waiting};
use super::link::{LinkCounters, Verdict};
use super::loss::{LossModel, LossProcess};
use super::outages::{OutageModel, OutageProcess};
use super::recording::{OPPORTUNITY_BYTES, RateRecording, Replay};

/// Bytes of IPv4 and UDP headers, which a recorded rate carries as well.
const HEADER_BYTES: usize = 28;

/// The rate of a transmitter.
#[derive(Debug, Clone, PartialEq)]
pub enum Rate {
    /// Transmission takes no time, and nothing waits.
    Unlimited,
    /// Bits per second of UDP payload.
    Constant(u64),
    /// The rate of a recording, which counts the headers of IP and UDP.
    Recorded(Replay<RateRecording>),
}

impl Rate {
    /// Mean rate, bits per second; 0 when there is no limit.
    pub fn mean(&self) -> u64 {
        match self {
            Self::Unlimited => 0,
            Self::Constant(rate) => *rate,
            Self::Recorded(replay) => replay.recording.mean_rate(),
        }
    }
}

/// Configuration of a [`QueuedLink`].
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedLinkConfig {
    /// Propagation delay, one way.
    pub delay: DelayModel,
    /// The transmitter.
    pub rate: Rate,
    /// The queue in front of it.
    pub queue: QueueManagement,
    /// Loss on the medium, after the queue, datagram by datagram.
    pub loss: LossModel,
    /// Times in which the medium loses everything.
    pub outages: Option<OutageModel>,
    /// Decides everything random on this link but the outages.
    pub seed: u64,
    /// Decides random outages: the two directions of a segment may have the same.
    pub outage_seed: u64,
    /// The air that both directions of a link share, only with a constant rate.
    pub air: Option<(Air, Station)>,
}

/// A datagram's end on a link.
#[derive(Debug, Clone, PartialEq)]
pub struct Fate<D> {
    /// The datagram, as it was offered.
    pub datagram: D,
    /// The verdict on the datagram.
    pub verdict: Verdict,
    /// True if the queue marked it (RFC 3168: CE).
    pub marked: bool,
}

/// A datagram between queue and medium.
#[derive(Debug, Clone)]
struct InTransmission<D> {
    queued: Queued<D>,
    /// Nanoseconds.
    since: u64,
    /// Bytes of IP that are left.
    left: usize,
}

/// One direction of a path. It holds the datagrams that wait, and reports the fate of each.
#[derive(Debug, Clone)]
pub struct QueuedLink<D> {
    rate: Rate,
    waiting: Waiting<D>,
    /// The datagram on the transmitter, only with a recorded rate, whose opportunities may end in
    /// its middle.
    in_transmission: Option<InTransmission<D>>,
    /// The time at which the transmitter is done, nanoseconds; only with a constant rate.
    transmitter_free: u64,
    /// The bytes of the last turn; only with shared air.
    turn_bytes: usize,
    air: Option<(Air, Station)>,
    /// The next opportunity; only with a recorded rate.
    opportunity: u64,
    loss: LossProcess,
    outages: Option<OutageProcess>,
    delay: DelayProcess,
    fates: VecDeque<Fate<D>>,
    counters: LinkCounters,
    marked: u64,
}

impl<D> QueuedLink<D> {
    /// An idle link.
    pub fn new(config: QueuedLinkConfig) -> Self {
        let QueuedLinkConfig { delay, rate, queue, loss, outages, seed, outage_seed, air } = config;
        Self {
            // Streams of randomness of their own, as in `Link`.
            waiting: Waiting::new(queue, rate.mean(), seed ^ 0x7175_6575_6500_0000),
            loss: LossProcess::new(loss, seed),
            outages: outages.map(|model| OutageProcess::new(model, outage_seed)),
            delay: DelayProcess::new(delay, seed ^ 0x6a69_7474_6572_0000),
            rate,
            in_transmission: None,
            transmitter_free: 0,
            turn_bytes: 0,
            air,
            opportunity: 0,
            fates: VecDeque::new(),
            counters: LinkCounters::default(),
            marked: 0,
        }
    }

    /// Offers a datagram of `length` bytes of payload; `now` must not run backwards. Datagrams of
    /// the same `flow` have the same number; `ecn_capable` ones may be marked.
    pub fn offer(
        &mut self,
        now: Timestamp,
        length: usize,
        flow: u64,
        ecn_capable: bool,
        datagram: D,
    ) {
        self.handle_timeout(now);
        self.counters.offered += 1;
        self.counters.offered_bytes += length as u64;
        let now = nanos(now);
        let queued = Queued { datagram, length, flow, ecn_capable, marked: false, arrived: now };
        match &self.rate {
            Rate::Unlimited => return self.transmitted(queued, now, now),
            Rate::Constant(_) if self.waiting.is_empty() => {
                self.transmitter_free = self.transmitter_free.max(now);
            }
            Rate::Recorded(recording)
                if self.waiting.is_empty() && self.in_transmission.is_none() =>
            {
                // Opportunities that nothing used are lost.
                self.opportunity = self.opportunity.max(recording.first_from(now));
            }
            Rate::Constant(_) | Rate::Recorded(_) => {}
        }
        self.waiting.enqueue(queued, now, self.untransmitted(now));
        self.drop_from_queue();
        self.tell_air(now);
        let backlog = (self.waiting.bytes() + self.untransmitted(now)) as u64;
        self.counters.queue_high_water_bytes = self.counters.queue_high_water_bytes.max(backlog);
        self.serve(now);
    }

    /// The time at which [`Self::handle_timeout`] must be called; `None` while nothing waits.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.next_service().map(|nanos| Timestamp::from_micros(nanos.div_ceil(1000)))
    }

    /// Advances the time: the transmitter takes the datagrams that it can.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.serve(nanos(now));
    }

    /// The fate of the next datagram whose fate is known.
    pub fn poll_fate(&mut self) -> Option<Fate<D>> {
        self.fates.pop_front()
    }

    /// The link's counters; datagrams that wait are neither delivered nor dropped yet.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Datagrams that the queue marked instead of dropping them.
    pub fn marked(&self) -> u64 {
        self.marked
    }

    /// Bytes of the datagrams that wait.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.bytes()
            + self.in_transmission.as_ref().map_or(0, |datagram| datagram.queued.length)
    }

    fn next_service(&self) -> Option<u64> {
        match &self.rate {
            Rate::Unlimited => None,
            Rate::Constant(_) => match &self.air {
                Some((air, station)) => air.turn(*station),
                None => (!self.waiting.is_empty()).then_some(self.transmitter_free),
            },
            Rate::Recorded(recording) => (!self.waiting.is_empty()
                || self.in_transmission.is_some())
            .then(|| recording.time(self.opportunity)),
        }
    }

    fn serve(&mut self, now: u64) {
        while let Some(at) = self.next_service().filter(|at| *at <= now) {
            match &self.rate {
                Rate::Unlimited => return,
                Rate::Constant(rate) => {
                    let rate = *rate;
                    if let Some((air, station)) = self.air.clone() {
                        self.take_turn(&air, station, at, rate);
                    } else if let Some(queued) = self.waiting.dequeue(at) {
                        let took = queued.length as u64 * 8_000_000_000 / rate.max(1);
                        self.transmitter_free = at + took;
                        self.transmitted(queued, at, at + took);
                    }
                }
                Rate::Recorded(_) => self.use_opportunity(at),
            }
            self.drop_from_queue();
        }
    }

    /// An aggregate leaves, and arrives as a whole.
    fn take_turn(&mut self, air: &Air, station: Station, at: u64, rate: u64) {
        let room = air.aggregate();
        let aggregate: Vec<_> = iter::from_fn(|| self.waiting.dequeue(at)).take(room).collect();
        // A queue may have dropped everything that it had.
        if !aggregate.is_empty() {
            self.turn_bytes = aggregate.iter().map(|queued| queued.length).sum();
            let end = air.take(station, at, self.turn_bytes as u64 * 8_000_000_000 / rate.max(1));
            self.transmitter_free = end;
            for queued in aggregate {
                self.transmitted(queued, at, end);
            }
        }
        self.tell_air(at);
    }

    /// Informs the shared air whether this direction has something to send.
    fn tell_air(&self, now: u64) {
        if let Some((air, station)) = &self.air {
            air.set_waiting(*station, !self.waiting.is_empty(), now);
        }
    }

    /// 1500 bytes of IP leave; the rest of a datagram waits for the next opportunity, as in
    /// Mahimahi.
    fn use_opportunity(&mut self, at: u64) {
        self.opportunity += 1;
        let mut room = OPPORTUNITY_BYTES;
        while room > 0 {
            let next = self.in_transmission.take().or_else(|| {
                let queued = self.waiting.dequeue(at)?;
                let left = queued.length + HEADER_BYTES;
                Some(InTransmission { queued, since: at, left })
            });
            let Some(mut next) = next else { return };
            let sent = next.left.min(room);
            room -= sent;
            next.left -= sent;
            if next.left > 0 {
                self.in_transmission = Some(next);
            } else {
                self.transmitted(next.queued, next.since, at);
            }
        }
    }

    /// A datagram has left the transmitter, which worked on it between two instants, nanoseconds.
    fn transmitted(&mut self, queued: Queued<D>, from: u64, to: u64) {
        // Both are asked for each datagram, so that neither changes what the other loses.
        let corrupted = self.loss.next_is_lost();
        let out = self.outages.as_mut().is_some_and(|outages| outages.is_out(from, to));
        let arrival = self.delay.arrival(to);
        let verdict = if corrupted || out {
            self.counters.lost += 1;
            Verdict::Lost
        } else {
            self.counters.delivered += 1;
            self.counters.delivered_bytes += queued.length as u64;
            Verdict::Deliver { at: Timestamp::from_micros(arrival.div_ceil(1000)) }
        };
        self.marked += u64::from(queued.marked);
        self.fates.push_back(Fate { datagram: queued.datagram, verdict, marked: queued.marked });
    }

    fn drop_from_queue(&mut self) {
        for queued in self.waiting.take_dropped() {
            self.counters.queue_dropped += 1;
            self.fates.push_back(Fate {
                datagram: queued.datagram,
                verdict: Verdict::QueueDropped,
                marked: false,
            });
        }
    }

    /// Bytes of payload that the transmitter has taken over and not yet transmitted.
    fn untransmitted(&self, now: u64) -> usize {
        match &self.rate {
            Rate::Unlimited => 0,
            Rate::Constant(rate) => {
                let busy = self.transmitter_free.saturating_sub(now);
                let bytes = (u128::from(busy) * u128::from(*rate) / 8_000_000_000) as usize;
                // The time of a turn that access takes is no room in the queue.
                if self.air.is_some() { bytes.min(self.turn_bytes) } else { bytes }
            }
            Rate::Recorded(_) => self.in_transmission.as_ref().map_or(0, |datagram| datagram.left),
        }
    }
}

fn nanos(at: Timestamp) -> u64 {
    at.as_micros().saturating_mul(1000)
}

#[cfg(test)]
mod tests;
