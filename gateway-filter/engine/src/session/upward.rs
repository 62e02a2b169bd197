//! Numbered datagrams from the client towards the server (docs/PROTOCOL.md, section 11, "Uploads"):
//! the missing ones, and the datagrams that wait for them.
//!
//! The client repairs, so the gateway does not cache its datagrams. A datagram above a hole waits
//! for the hole's repair, at most for the patience, and passes in order: to the server, the last
//! mile is a link that repairs its losses, and the server's acknowledgements show the client's
//! transport no loss.
//!
//! ```text
//!   arrives        places below it all passed or given up ----------------------> passes at once
//!                  a hole below, room, repairs not paused -------------> waits -> passes in order
//!   hole           filled, patience over, the queue's, repairs pause, no room -> the wait ends
//! ```

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use packrat_eack::Identifier;
use packrat_wire::estimate::{PATIENCE_MARGIN, Timestamp};
use packrat_wire::handshake::GatewayParams;
use packrat_wire::message::{Holes, Message, Run, SATURATED_AGE};
use packrat_wire::number::{MAXIMUM_JUMP, MaskedNumber, Places};

use super::backlog::Rate;
use super::breaker::Change;
use super::last_mile::LastMile;
use super::queue_losses::{Arrivals, Met, QueueLosses, seconds};
use super::{Breaker, HOLD_STEP_BYTES, Session, Turn};
use crate::lazy_box::LazyBox;
use crate::outbox::Outbox;

/// Bytes of a datagram from which it begins to wait: shorter ones are requests and
/// acknowledgements, which later ones repeat or which need no earlier datagram.
const BULK_LENGTH: usize = 400;
/// Most bytes that wait, beside the limit of a flow's cache.
const MAXIMUM_BYTES: usize = 1 << 20;
/// Most datagrams that wait.
const WAITING_DATAGRAMS: usize = 4096;
/// Most holes that are known.
const MAXIMUM_HOLES: usize = 2048;
/// Most datagrams whose losses are not judged yet.
const PENDING_DATAGRAMS: usize = 2048;
/// Bytes that each waiting datagram takes beside its own.
const OVERHEAD_BYTES: usize = 64;

/// Datagrams after which a message is due.
const EVERY_DATAGRAMS: u32 = 64;
/// Time after its first datagram at which a message is due.
const MESSAGE_DELAY: Duration = Duration::from_millis(25);
/// Datagrams below which a message is due sooner.
const FEW_DATAGRAMS: u32 = 4;
/// Time after its first datagram at which a message about [`FEW_DATAGRAMS`] is due.
const FEW_MESSAGE_DELAY: Duration = Duration::from_millis(5);
/// Least interval of messages.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);
/// Shortest interval at which a hole is reported again.
const HOLE_INTERVAL: Duration = Duration::from_millis(2);
/// Longest time in which a hole is to be filled if no datagram waits for it.
const UNHELD_PATIENCE: Duration = Duration::from_millis(250);
/// The round trip before the first sample.
const ASSUMED_ROUND_TRIP: Duration = Duration::from_millis(30);
/// Work of a message, beside the work of each hole in it.
const HOLES_WORK: u64 = 2500;
/// Work of a hole in a message.
const TOLD_WORK: u64 = 5;
/// Work of a hole that opens.
const HOLE_WORK: u64 = 100;

/// A waiting datagram, and its congestion mark.
#[derive(Debug)]
struct WaitingDatagram {
    datagram: Vec<u8>,
    mark: u8,
}

/// A session's uploads: the record, which a step takes out, and the waiting datagrams, which must
/// outlive a step that fails.
pub(crate) struct Uploads {
    upward: Option<Box<Upward>>,
    waiting: Waiting,
}

impl Uploads {
    /// `None`: the client does not number.
    pub(crate) fn new(params: &GatewayParams) -> Option<Box<Self>> {
        let upward = Some(Upward::new(params)?);
        Some(Box::new(Self { upward, waiting: Waiting::default() }))
    }

    /// Bytes of memory that waiting datagrams and the observer take.
    pub(crate) fn memory(&self) -> usize {
        let observer = self.upward.as_ref().and_then(|upward| upward.observer.as_ref());
        self.waiting.memory() + observer.map_or(0, |observer| observer.memory())
    }

    /// Gives memory back: the flow is quiet.
    pub(crate) fn trim(&mut self) {
        if let Some(upward) = &mut self.upward {
            upward.observer = None;
        }
    }

    /// Forgets measurements of the old path after the client has moved.
    pub(crate) fn move_to_new_path(&mut self) {
        if let Some(upward) = &mut self.upward {
            upward.breaker = LazyBox::new();
            upward.observer = None;
        }
    }

    /// Passes all waiting datagrams in order, and forgets all holes.
    fn release_all(&mut self, out: &mut Outbox) {
        while !self.waiting.is_empty() {
            self.waiting.pass_first(out);
        }
        if let Some(upward) = &mut self.upward {
            upward.holes.clear();
        }
    }
}

/// The datagrams that wait, by their places.
#[derive(Debug, Default)]
struct Waiting {
    by_place: BTreeMap<u64, WaitingDatagram>,
    bytes: usize,
}

impl Waiting {
    fn memory(&self) -> usize {
        self.bytes + self.by_place.len() * OVERHEAD_BYTES
    }

    fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    fn insert(&mut self, place: u64, datagram: &[u8], mark: u8) {
        self.bytes += datagram.len();
        self.by_place.insert(place, WaitingDatagram { datagram: datagram.to_vec(), mark });
    }

    /// Passes the lowest waiting datagram.
    fn pass_first(&mut self, out: &mut Outbox) {
        if let Some((_, WaitingDatagram { datagram, mark })) = self.by_place.pop_first() {
            self.bytes -= datagram.len();
            out.send_to_server(&datagram, mark);
        }
    }
}

/// An empty place below a place that is not empty.
#[derive(Debug, Clone, Copy)]
struct Hole {
    since: Timestamp,
    /// When the datagrams above stop waiting for it.
    until: Timestamp,
}

/// Observer of the fates of the client's datagrams: whose their losses are.
#[derive(Debug, Default)]
struct Observer {
    /// Datagrams in the order of their places, until a lost one is told from an overtaken one.
    pending: VecDeque<(u64, Met)>,
    rate: Rate,
    /// Bytes that have arrived.
    arrived: f64,
    losses: QueueLosses,
}

impl Observer {
    fn memory(&self) -> usize {
        size_of::<Self>() + self.pending.capacity() * size_of::<(u64, Met)>()
    }

    /// The datagram of `place` and `length` bytes has arrived, in order; the places from `from` on
    /// are empty. `backlog`: the delay of a queue, in seconds.
    fn on_newest(&mut self, from: u64, place: u64, length: usize, backlog: f64, now: Timestamp) {
        let sent_at = seconds(now);
        let met = |is_lost| Met { sent_at, backlog, is_lost };
        self.pending.extend((from..place).map(|empty| (empty, met(true))));
        self.pending.push_back((place, met(false)));
        let excess = self.pending.len().saturating_sub(PENDING_DATAGRAMS);
        self.pending.drain(..excess);
        self.arrived += length as f64;
    }

    /// The datagram of `place` was overtaken.
    fn on_overtaken(&mut self, place: u64) {
        if let Ok(index) = self.pending.binary_search_by_key(&place, |it| it.0) {
            self.pending[index].1.is_lost = false;
        }
    }

    /// Judges the datagrams below `confirmed` that no later arrival shows to be overtaken. Returns
    /// the places that the queue has lost.
    fn settle(&mut self, confirmed: u64, path: &LastMile, now: Timestamp) -> Vec<u64> {
        let base = path.base().unwrap_or(ASSUMED_ROUND_TRIP);
        let round_trip = path.path.round_trip().unwrap_or(base).as_secs_f64();
        let (at, base) = (seconds(now), base.as_secs_f64());
        let until = at - path.overtaking().as_secs_f64();
        let is_known = |(place, met): &(u64, Met)| *place < confirmed && met.sent_at <= until;
        let known = self.pending.partition_point(is_known);
        let known: Vec<(u64, Met)> = self.pending.drain(..known).collect();
        let mut queues = Vec::new();
        let Some((_, newest)) = known.last() else { return queues };
        self.rate.on_sample(newest.sent_at, self.arrived, false, base);
        let fastest = self.rate.fastest();
        let arrivals = Arrivals { at: newest.sent_at, bytes: self.arrived, fastest, base };
        let met = known.iter().map(|it| it.1);
        self.losses.take(met, &arrivals, at, round_trip, |index| queues.push(known[index].0));
        queues
    }
}

/// The messages to the client: the datagrams since the last one, and the time of the next.
#[derive(Debug, Default)]
struct Telling {
    untold: u32,
    first_untold: Option<Timestamp>,
    /// A hole has opened since the last message.
    urgent: bool,
    /// Time of the last message; without credit for one, [`MESSAGE_DELAY`] after it was due.
    last: Option<Timestamp>,
}

/// A session's record of the datagrams towards the server.
struct Upward {
    places: Places,
    holes: BTreeMap<u64, Hole>,
    newest_at: Timestamp,
    telling: Telling,
    breaker: LazyBox<Breaker>,
    observer: Option<Box<Observer>>,
    /// Places that the client has used, confirmed by more than one datagram: an invented number
    /// leads ahead of them, and the next datagrams fill the places between.
    confirmed: u64,
}

impl Upward {
    fn new(params: &GatewayParams) -> Option<Box<Self>> {
        params.numbered.filter(|numbered| numbered.to_server)?;
        Some(Box::new(Self {
            places: Places::new(params.upward_number_key()),
            holes: BTreeMap::new(),
            newest_at: Timestamp::ZERO,
            telling: Telling::default(),
            breaker: LazyBox::new(),
            observer: None,
            confirmed: 0,
        }))
    }

    /// Passes the datagrams that have no hole below them, and those beyond the room.
    fn release(&mut self, waiting: &mut Waiting, room: usize, out: &mut Outbox) {
        while let Some((place, _)) = waiting.by_place.first_key_value() {
            let is_full = waiting.bytes > room || waiting.by_place.len() > WAITING_DATAGRAMS;
            let lowest = self.holes.first_key_value().map(|(lowest, _)| *lowest);
            match lowest.filter(|lowest| lowest < place) {
                Some(_) if !is_full => return,
                Some(hole) => drop(self.holes.remove(&hole)),
                None => waiting.pass_first(out),
            }
        }
    }

    /// Time of the next message to the client.
    fn telling_at(&self, again: Duration) -> Option<Timestamp> {
        let Telling { untold, first_untold, urgent, last } = self.telling;
        let soonest = last.map_or(Timestamp::ZERO, |last| last + SHORTEST_INTERVAL);
        let holes = !self.holes.is_empty();
        let repeat = last.filter(|_| holes).map(|last| last + again);
        let every = first_untold.map(|first| match untold {
            // The client does not know yet whether its numbers arrive.
            _ if last.is_none() => first,
            0..FEW_DATAGRAMS => first + FEW_MESSAGE_DELAY,
            FEW_DATAGRAMS..EVERY_DATAGRAMS => first + MESSAGE_DELAY,
            _ => first,
        });
        let at = [urgent.then_some(soonest), repeat, every].into_iter().flatten().min()?;
        Some(at.max(soonest))
    }

    /// The empty places as runs, newest first.
    fn runs(&self) -> Vec<Run> {
        #[cfg(feature = "count-operations")]
        packrat_eack::operations::count(self.holes.len());
        let mut runs: Vec<Run> = Vec::new();
        for &place in self.holes.keys() {
            match runs.last_mut() {
                Some(run) if run.first + u64::from(run.count) == place && run.count < u16::MAX => {
                    run.count += 1;
                }
                _ => runs.push(Run { first: place, count: 1 }),
            }
        }
        runs.reverse();
        runs
    }
}

impl Session {
    /// True if numbers towards the server were agreed.
    pub(crate) fn takes_numbers(&self) -> bool {
        self.uploads.is_some()
    }

    /// Receives a numbered datagram from the client, and puts it into the outbox or lets it wait.
    pub(crate) fn receive_upward(
        &mut self,
        number: MaskedNumber,
        datagram: &[u8],
        mark: u8,
        turn: &mut Turn<'_>,
    ) {
        let identifier = self.agreed.key.identify(self.agreed.scheme, datagram);
        let proven = self.channel.is_proven();
        let taken =
            self.uploads.as_mut().filter(|_| proven).and_then(|uploads| uploads.upward.take());
        let Some(mut upward) = taken else {
            turn.out.send_to_server(datagram, mark);
            return;
        };
        turn.counters.upward_numbered += 1;
        if !self.receive_at_place(&mut upward, number, identifier, datagram, mark, turn) {
            turn.out.send_to_server(datagram, mark);
        }
        self.put_back(upward);
        self.tell_holes(turn);
        if self.memory().abs_diff(self.permit.held()) > HOLD_STEP_BYTES {
            self.permit.hold(self.memory());
        }
    }

    /// True if the datagram waits, or has passed.
    fn receive_at_place(
        &mut self,
        upward: &mut Upward,
        number: MaskedNumber,
        identifier: Identifier,
        datagram: &[u8],
        mark: u8,
        turn: &mut Turn<'_>,
    ) -> bool {
        let now = turn.now;
        let expected = upward.places.expected();
        let Some(place) = upward.places.read(number, identifier, now) else { return false };
        upward.telling.untold += 1;
        upward.telling.first_untold.get_or_insert(now);
        if place >= expected {
            upward.newest_at = now;
            // A jump by so large a number of places skips no datagrams: a far number was believed
            // because later numbers continued from it.
            let from = if place - expected > MAXIMUM_JUMP { place } else { expected };
            upward.confirmed = expected;
            let backlog = self.last_mile.delay_above_base();
            let from = self.open_holes(upward, from, place, backlog, turn);
            let observer = upward.observer.get_or_insert_default();
            observer.on_newest(from, place, datagram.len(), backlog, now);
        } else if let Some(hole) = upward.holes.remove(&place) {
            let overtaking = self.last_mile.overtaking();
            if let Some(observer) = &mut upward.observer {
                observer.arrived += datagram.len() as f64;
                if now.saturating_since(hole.since) < overtaking {
                    observer.on_overtaken(place);
                }
            }
            upward.confirmed = upward.confirmed.max(place + 1);
            turn.counters.upward_repaired += 1;
            upward.breaker.on_delivered(now);
        } else {
            // Known, late, or forged: the transport at the other end decides.
            return false;
        }
        let is_above = upward.holes.first_key_value().is_some_and(|(hole, _)| *hole < place);
        let is_above = is_above && self.waits_upward();
        let room = self.upward_room();
        let Some(Uploads { waiting, .. }) = self.uploads.as_deref_mut() else { return false };
        let waits = is_above && (!waiting.is_empty() || datagram.len() >= BULK_LENGTH);
        if !waits && waiting.is_empty() {
            return false;
        }
        waiting.insert(place, datagram, mark);
        if waits {
            turn.counters.upward_waited += 1;
        }
        upward.release(waiting, room, turn.out);
        true
    }

    /// Bytes that may wait.
    fn upward_room(&self) -> usize {
        let config = self.permit.gateway().config();
        let limit = config.cache_bytes_per_flow.min(MAXIMUM_BYTES);
        if self.permit.is_too_much_held() { 0 } else { limit }
    }

    /// Time for which a hole may be filled; datagrams above wait as long, if they wait at all.
    fn upward_patience(&self) -> Duration {
        let maximum = if self.waits_upward() { self.agreed.maximum_hold } else { UNHELD_PATIENCE };
        self.last_mile.path.patience(PATIENCE_MARGIN, maximum)
    }

    /// True if the client wants its datagrams in order.
    fn waits_upward(&self) -> bool {
        !self.agreed.maximum_hold.is_zero()
    }

    /// True if missing datagrams are left to the client's transport.
    fn is_left_to_client(&self, upward: &Upward, now: Timestamp) -> bool {
        upward.breaker.is_open(now) || self.permit.gateway().config().repair_budget <= 0.0
    }

    /// Records that the places from `from` to `to` are empty: [`MAXIMUM_JUMP`] at most, which is
    /// work for one datagram. `backlog`: the delay of a queue, in seconds; the client's transport
    /// must see the losses of a full one. Returns the place from which on empty places are known to
    /// the observer.
    fn open_holes(
        &mut self,
        upward: &mut Upward,
        from: u64,
        to: u64,
        backlog: f64,
        turn: &mut Turn<'_>,
    ) -> u64 {
        if from == to {
            return to;
        }
        let now = turn.now;
        turn.counters.upward_missing += to - from;
        // A client can skip any number of places.
        if !self.admits_upward(now) {
            return to;
        }
        self.eack_credit.charge(HOLE_WORK * (to - from));
        self.permit.charge_work(HOLE_WORK * (to - from), now);
        upward.telling.urgent = true;
        if upward.observer.as_ref().is_some_and(|it| it.losses.is_queues(backlog)) {
            turn.counters.upward_shown += to - from;
            return from;
        }
        let until = now + self.upward_patience();
        for place in from..to {
            upward.holes.insert(place, Hole { since: now, until });
        }
        while upward.holes.len() > MAXIMUM_HOLES {
            upward.holes.pop_first();
        }
        from
    }

    /// Gives up the holes that the queue has made: the client's transport must see them.
    fn show_queues_losses(&mut self, upward: &mut Upward, turn: &mut Turn<'_>) {
        let Some(observer) = &mut upward.observer else { return };
        let open = upward.holes.len();
        for place in observer.settle(upward.confirmed, &self.last_mile, turn.now) {
            upward.holes.remove(&place);
        }
        let shown = open - upward.holes.len();
        turn.counters.upward_shown += shown as u64;
        if shown > 0
            && let Some(Uploads { waiting, .. }) = self.uploads.as_deref_mut()
        {
            upward.release(waiting, usize::MAX, turn.out);
        }
    }

    /// True if the client may make the gateway work now.
    fn admits_upward(&mut self, now: Timestamp) -> bool {
        self.eack_credit.admits(now) && self.permit.admits_work(self.eack_credit.strain(), now)
    }

    /// Gives up the holes whose patience is over.
    fn expire_upward(&mut self, turn: &mut Turn<'_>) {
        let Some(Uploads { upward: Some(upward), waiting }) = self.uploads.as_deref_mut() else {
            return;
        };
        while let Some(hole) = upward.holes.first_entry()
            && hole.get().until <= turn.now
        {
            hole.remove();
            turn.counters.upward_given_up += 1;
            upward.breaker.on_in_vain(turn.now);
        }
        upward.release(waiting, usize::MAX, turn.out);
    }

    /// Sends the client a message about missing datagrams, if it is due.
    fn tell_holes(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let again = self.again();
        let taken = self.uploads.as_mut().and_then(|uploads| uploads.upward.take());
        let Some(mut upward) = taken else { return };
        if upward.telling_at(again).is_some_and(|at| at <= now) {
            self.tell(&mut upward, turn);
        }
        self.put_back(upward);
    }

    /// Interval at which a hole is reported again.
    fn again(&self) -> Duration {
        let path = &self.last_mile.path;
        let round_trip = path.minimum_round_trip().unwrap_or(ASSUMED_ROUND_TRIP);
        (round_trip / 2).clamp(HOLE_INTERVAL, MESSAGE_DELAY)
    }

    fn tell(&mut self, upward: &mut Upward, turn: &mut Turn<'_>) {
        let now = turn.now;
        self.show_queues_losses(upward, turn);
        let change = upward.breaker.on_repairs(now);
        if matches!(change, Some(Change::Paused(_))) {
            turn.counters.upward_pauses += 1;
        }
        let work = HOLES_WORK + TOLD_WORK * upward.holes.len() as u64;
        let admitted = self.admits_upward(now);
        // Without credit, the gateway does not read the holes, nor tries again soon: there may be
        // thousands of them, in each of thousands of sessions.
        let last = if admitted { now } else { now + MESSAGE_DELAY };
        upward.telling = Telling { last: Some(last), ..Telling::default() };
        let wanted = !self.is_left_to_client(upward, now);
        if admitted {
            self.eack_credit.charge(work);
            self.permit.charge_work(work, now);
            let age = now.saturating_since(upward.newest_at).min(SATURATED_AGE);
            let (runs, mut buffer) = (upward.runs(), Vec::new());
            let expected = upward.places.expected();
            let holes = Holes::new(wanted, expected, age, &runs, &mut buffer);
            self.channel.send(&Message::Holes(holes), turn);
            turn.counters.upward_reports += 1;
        }
        if !wanted {
            turn.counters.upward_shown += upward.holes.len() as u64;
            upward.holes.clear();
            if let Some(uploads) = &mut self.uploads {
                uploads.release_all(turn.out);
            }
        }
    }

    /// When [`Self::on_upward_timeout`] must be called.
    pub(super) fn upward_timeout(&self) -> Option<Timestamp> {
        let upward = self.uploads.as_ref()?.upward.as_deref()?;
        let hole = upward.holes.first_key_value().map(|(_, hole)| hole.until);
        hole.into_iter().chain(upward.telling_at(self.again())).min()
    }

    /// Gives up overdue holes, and sends the message that is due.
    pub(super) fn on_upward_timeout(&mut self, turn: &mut Turn<'_>) {
        self.expire_upward(turn);
        self.tell_holes(turn);
    }

    /// Passes the waiting datagrams in order, when the session ends or has failed.
    pub(crate) fn release_upward(&mut self, out: &mut Outbox) {
        if let Some(uploads) = &mut self.uploads {
            uploads.release_all(out);
        }
    }

    /// Puts the record back after a step.
    fn put_back(&mut self, upward: Box<Upward>) {
        if let Some(uploads) = &mut self.uploads {
            uploads.upward = Some(upward);
        }
    }
}
