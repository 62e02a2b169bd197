//! The reconciliation of one assisted flow.
//!
//! The gateway knows what it forwarded, in order; an eACK brings a sketch of what the client has. Both sets grow for as long as the
//! epoch lasts, only their difference is small. At each eACK the gateway inserts what it forwarded up to the client's newest datagram
//! (the *horizon*) into its own sketch, subtracts, and decodes both ways:
//!
//! - only here: missing at the client. Repaired while the bytes are kept, else given up and folded out of the sketch.
//! - only there: the client has it, the sketch has not. Forwarded beyond the horizon, before the epoch began, or given up: folded in.
//!
//! ```text
//!                  decoded                      only here, bytes kept
//!   Unknown ---------------------> Received    Unknown -------------> Missing --+ repaired, still missing
//!      |                              ^                                | ^  |   | (mark overtaken)
//!      | only here, bytes gone        | not missing any more           | +--|---+
//!      v                              +--------------------------------+    | deadline, evicted
//!   GivenUp <----------------------------------------------------------------+
//!      +----- only there (it came after all) ----> Received
//! ```
//!
//! State changes only after a successful decode. After a failure the gateway asks for a longer prefix; when the longest fails, too, it
//! asks for a Reset. A Reset names the next epoch; the client answers with its first eACK of that epoch, whose *anchor* (the
//! last datagram it had when it emptied its set) says where the gateway's set begins.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use packrat_eack::{EncodedPrefix, Encoding, Identifier, MAX_EXPECTED_DIFFERENCE, Sketch, SketchLimits};
use packrat_estimate::{PathEstimate, Queueing, STANDING_QUEUE, Timestamp};
use packrat_wire::handshake::{Established, Terms, Wishes};
use packrat_wire::identifier::{IdentifierKey, IdentifierScheme};
use packrat_wire::message::{Eack, GoodbyeReason, Message, Report, ResetReason, Totals, is_newer_epoch};
use packrat_wire::seal::{OVERHEAD, OpenError, Opener, Sealer};

use crate::budget::FlowBudget;
use crate::counters::{FlowCounters, FlowGauges};
use crate::event::{Event, Side};
use crate::flow::{Elsewhere, Share};
use crate::history::{
    Fate, History, MAXIMUM_ENTRIES, Pushed, QUIET_ENTRIES, SELECTIVE_ENTRIES, SETTLED_ENTRIES, TRIM_INTERVAL,
};
use crate::live::LiveStream;
use crate::outbox::Outbox;
use crate::repair::{Decision, Repair, copies, patience};
use crate::scratch::Scratch;

/// The sketches that this gateway keeps at most, whatever a client asks for.
pub(crate) const LIMITS: SketchLimits =
    SketchLimits { power_sums: MAX_EXPECTED_DIFFERENCE as u8 + 1, ..SketchLimits::LARGEST };
/// Failed decodes of the longest prefix in a row before a Reset.
const FAILURES_BEFORE_RESET: u32 = 2;
/// A Reset is repeated at most this often.
const RESET_INTERVAL: Duration = Duration::from_millis(10);
/// Tail probes of one silence.
const MAXIMUM_PROBES: u32 = 12;
/// The first tail probe comes no sooner than this after the last datagram.
const MINIMUM_PROBE_DELAY: Duration = Duration::from_millis(25);
/// eACKs per second and in a burst. A client sends one per millisecond for new holes at most, and one for every 24 datagrams.
const EACKS_PER_SECOND: f64 = 20_000.0;
const EACK_BURST: f64 = 4_000.0;
/// What a new session may spend before it has lasted.
const EACK_START: f64 = 1_000.0;
/// A new epoch keeps the gateway as busy as this many eACKs.
const EPOCH_COST: f64 = 50.0;
/// An eACK that can't be decoded keeps the gateway as busy as this many that can.
const FAILED_EACK_COST: f64 = 400.0;
/// Later ones come this long after each other, or as long as the first one took.
const LONGEST_PROBE_DELAY: Duration = Duration::from_millis(200);
/// A challenge is no longer than this, and never longer than what it answers.
const CHALLENGE_LENGTH: usize = OVERHEAD + 9;
/// Challenges of the same address keep this distance, and are answered within the lifetime.
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(20);
const CHALLENGE_LIFETIME: Duration = Duration::from_secs(3);
/// How far back a datagram is looked for that the client has.
const SETTLED_SEARCH: usize = 512;
/// After this time without a datagram nothing of what was sent before is worth repairing.
const QUIET: Duration = Duration::from_secs(1);
/// How often memory that was not used is given back.
const SHRINK_INTERVAL: Duration = Duration::from_secs(1);
/// Memory use is told to the gateway in steps of this size.
const SHARE_STEP: usize = 16 * 1024;

/// The client ended the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended(pub(crate) GoodbyeReason);

/// The reconciliation of one assisted flow.
pub(crate) struct Session {
    share: Share,
    sealer: Sealer,
    opener: Opener,
    /// The client has sent something with this session's key.
    proven: bool,
    terms: Terms,
    /// The address that was challenged last, with what, when.
    challenge: Option<Box<(SocketAddr, u64, Timestamp)>>,
    challenges: u64,
    /// eACKs that may be processed now; an eACK that can't be decoded costs more than one that can.
    eack_credit: f64,
    eack_credited: Timestamp,
    scheme: IdentifierScheme,
    key: IdentifierKey,
    maximum_hold: Duration,
    /// The client receives a live stream.
    live: Option<Box<LiveStream>>,

    history: History,
    sketch: Sketch,
    epoch: u16,
    /// Whether it is known where the client's set of this epoch begins.
    anchored: bool,
    /// Everything before this sequence number has been considered for the sketch.
    horizon: u64,
    /// Of everything before this sequence number the client has spoken, in an eACK that was decoded.
    considered: u64,
    /// Counter of the newest eACK processed.
    newest_eack: Option<u32>,
    /// Failed decodes of the longest prefix since one succeeded.
    failures: u32,
    /// What the client was told last to be settled.
    told: Option<Identifier>,
    /// Whether the client was told last that a queue stands on the last mile.
    told_queue: bool,
    /// A Reset that the client has not answered yet, and when it was last sent.
    pending_reset: Option<(u16, ResetReason, Timestamp)>,

    missing: BTreeMap<u64, Repair>,
    /// Repairs are numbered in the order of sending.
    transmissions: u64,
    /// One of this number, or a later one, has arrived.
    arrived_transmission: u64,
    /// Spaced copies of repairs that are still to be sent, by time.
    copies: VecDeque<(Timestamp, u64)>,
    budget: FlowBudget,
    /// Bytes forwarded that the budget has not heard of yet: it is asked seldom.
    unearned: usize,
    forwarded_since_eack: u64,
    path: PathEstimate,
    queueing: Queueing,
    /// Sequence number of the newest datagram whose round trip was measured.
    measured: Option<u64>,

    last_forward: Timestamp,
    probes: u32,
    probe_at: Option<Timestamp>,
    /// The probe follows the last datagram; when exactly is computed when somebody asks, not for each datagram.
    probe_follows: bool,
    /// When memory that was not used is given back.
    shrink_at: Option<Timestamp>,

    totals: Totals,
    /// Lent by the thread while it works on a control datagram.
    scratch: Option<Box<Scratch>>,
}

impl core::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Session")
            .field("name", &self.name())
            .field("epoch", &self.epoch)
            .field("horizon", &self.horizon)
            .field("next", &self.history.next())
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(share: Share, established: Established, wishes: &Wishes, now: Timestamp) -> Self {
        let terms = established.terms;
        let live = wishes.live.map(|live| Box::new(LiveStream::new(live)));
        let selective = live.as_deref().is_some_and(LiveStream::is_selective);
        let entries = if selective { SELECTIVE_ENTRIES } else { MAXIMUM_ENTRIES };
        Self {
            history: History::new(share.gateway().config.cache_bytes_per_flow, entries),
            sketch: Sketch::new(terms.sketch_key(), terms.limits),
            terms,
            proven: false,
            challenge: None,
            challenges: 0,
            eack_credit: EACK_START,
            eack_credited: now,
            scheme: terms.scheme,
            key: terms.identifier_key(),
            sealer: established.sealer,
            opener: established.opener,
            maximum_hold: wishes.maximum_hold,
            live,
            epoch: 0,
            anchored: false,
            horizon: 0,
            considered: 0,
            shrink_at: None,
            newest_eack: None,
            failures: 0,
            told: None,
            told_queue: false,
            pending_reset: None,
            missing: BTreeMap::new(),
            transmissions: 0,
            arrived_transmission: 0,
            copies: VecDeque::new(),
            budget: FlowBudget::new(share.gateway().config.repair_budget),
            unearned: 0,
            forwarded_since_eack: 0,
            path: PathEstimate::new(),
            queueing: Queueing::new(),
            measured: None,
            last_forward: now,
            probes: 0,
            probe_at: None,
            probe_follows: false,
            totals: Totals::default(),
            scratch: None,
            share,
        }
    }

    pub(crate) fn name(&self) -> u32 {
        self.sealer.session()
    }

    /// Whether the client has sent something with this session's key.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Whether it keeps nothing of what passed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.history.cache().capacity() == 0
    }

    /// The client has proven its address; whether its source may have this session.
    pub(crate) fn validate(&mut self, now: Timestamp) -> bool {
        self.share.validate(now)
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            cache_high_water: u32::try_from(self.history.cache().high_water()).unwrap_or(u32::MAX),
            ..self.totals
        }
    }

    pub(crate) fn gauges(&self) -> FlowGauges {
        FlowGauges {
            assisted: 1,
            cache_bytes: self.history.cache().len() as u64,
            cache_high_water_bytes: self.history.cache().high_water() as u64,
            cache_entries: self.history.cached_entries(),
            round_trip_microseconds: self
                .path
                .round_trip()
                .map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            loss_ppm: (self.path.loss() * 1e6) as u64,
        }
    }

    /// A datagram passes: remember its identifier, keep its bytes.
    #[inline]
    pub(crate) fn forward(&mut self, datagram: &[u8], now: Timestamp, counters: &mut FlowCounters) {
        let identifier = self.key.identify(self.scheme, datagram);
        let share = &mut self.share;
        counters.evictions_full += self.history.make_room(datagram.len(), |more| share.try_take(more));
        match self.history.push(identifier, datagram, now) {
            Pushed::Cached => counters.datagrams_recorded += 1,
            Pushed::Uncached => {
                counters.datagrams_recorded += 1;
                counters.datagrams_uncached += 1;
            }
            Pushed::Duplicate => {
                counters.datagrams_duplicated += 1;
                return;
            }
        }
        self.unearned += datagram.len();
        if let Some(live) = &mut self.live {
            let config = &self.share.gateway().config;
            // Whoever configures no repairs wants none of any kind.
            let share = if config.repair_budget > 0.0 { config.early_copies } else { 0.0 };
            live.on_forward(self.history.next() - 1, datagram.len(), share, &self.path, now);
        }
        self.forwarded_since_eack += datagram.len() as u64;
        self.last_forward = now;
        self.probes = 0;
        if !self.live.as_deref().is_some_and(LiveStream::is_selective) {
            self.probe_follows = true;
        }
        if self.shrink_at.is_none() || self.history.next().is_multiple_of(TRIM_INTERVAL) {
            self.look_after_memory(now);
        }
    }

    /// What need not be done for each datagram.
    #[inline(never)]
    fn look_after_memory(&mut self, now: Timestamp) {
        self.trim(SETTLED_ENTRIES);
        self.shrink_at.get_or_insert(now + SHRINK_INTERVAL);
        if self.history.memory().abs_diff(self.share.held()) > SHARE_STEP {
            self.share.hold(self.history.memory());
        }
    }

    /// Forgets old history. What was never considered for the sketch is considered now, so that the horizon stays inside the history.
    fn trim(&mut self, settled_limit: usize) {
        let Self { history, sketch, horizon, considered, missing, anchored, .. } = self;
        history.trim(settled_limit, |sequence, entry| {
            if entry.fate == Fate::Missing {
                missing.remove(&sequence);
            }
            *considered = (*considered).max(sequence + 1);
            if sequence >= *horizon {
                *horizon = sequence + 1;
                if *anchored && !entry.in_sketch {
                    sketch.insert(entry.identifier);
                }
            }
        });
    }

    /// A sealed datagram from the client's address.
    pub(crate) fn control(
        &mut self,
        datagram: &[u8],
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) -> Option<Ended> {
        self.scratch = Scratch::borrow();
        let mut plaintext = core::mem::take(&mut self.scratch().plaintext);
        let mut ended = None;
        if let Some(counter) = self.open(datagram, &mut plaintext, counters) {
            match Message::decode(&plaintext) {
                Ok(Message::Eack(eack)) => self.on_eack(counter, &eack, now, counters, out),
                Ok(Message::Reset { epoch, reason }) => self.on_client_reset(epoch, reason, counters, out),
                Ok(Message::Goodbye { reason }) => ended = Some(Ended(reason)),
                // The client has come back before the address it was challenged at was accepted.
                Ok(Message::PathResponse { .. }) => self.challenge = None,
                Ok(_) | Err(_) => counters.sealed_malformed += 1,
            }
        }
        self.scratch().plaintext = plaintext;
        Scratch::give_back(self.scratch.take());
        ended
    }

    fn scratch(&mut self) -> &mut Scratch {
        self.scratch.get_or_insert_default()
    }

    /// Opens a sealed datagram; counts why when that fails.
    fn open(&mut self, datagram: &[u8], plaintext: &mut Vec<u8>, counters: &mut FlowCounters) -> Option<u32> {
        match self.opener.open(datagram, plaintext) {
            Ok(counter) => {
                self.proven = true;
                return Some(counter);
            }
            Err(OpenError::Replayed) => counters.sealed_replayed += 1,
            Err(OpenError::Forged) => counters.sealed_forged += 1,
            Err(_) => counters.sealed_malformed += 1,
        }
        None
    }

    /// See [`crate::Flow::control_from_elsewhere`].
    pub(crate) fn control_from_elsewhere(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) -> Elsewhere {
        self.scratch = Scratch::borrow();
        let mut plaintext = core::mem::take(&mut self.scratch().plaintext);
        let opened = self.open(datagram, &mut plaintext, counters).is_some();
        let message = Message::decode(&plaintext);
        let elsewhere = match (message, self.challenge.as_deref().copied()) {
            _ if !opened => Elsewhere::Refused,
            (Ok(Message::PathResponse { data }), Some((challenged, expected, at)))
                if challenged == from
                    && data == expected
                    && now.saturating_since(at) <= CHALLENGE_LIFETIME =>
            {
                self.challenge = None;
                counters.paths_moved += 1;
                // Another path, another round trip; what is known of its loss is the best guess.
                self.path.forget_round_trip();
                self.queueing = Queueing::new();
                self.measured = None;
                out.event(Event::SessionMoved { session: self.name() });
                Elsewhere::Moved
            }
            (Ok(_), Some((challenged, _, at)))
                if challenged == from && now.saturating_since(at) < CHALLENGE_INTERVAL =>
            {
                Elsewhere::Challenged
            }
            (Ok(_), _) if datagram.len() < CHALLENGE_LENGTH => Elsewhere::Refused,
            (Ok(_), _) => {
                let data = self.terms.path_challenge(self.challenges);
                self.challenges += 1;
                self.challenge = Some(Box::new((from, data, now)));
                counters.paths_challenged += 1;
                self.send(&Message::PathChallenge { data }, out);
                Elsewhere::Challenged
            }
            (Err(_), _) => {
                counters.sealed_malformed += 1;
                Elsewhere::Refused
            }
        };
        self.scratch().plaintext = plaintext;
        Scratch::give_back(self.scratch.take());
        elsewhere
    }

    fn on_eack(
        &mut self,
        counter: u32,
        eack: &Eack<'_>,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) {
        counters.eacks_received += 1;
        counters.eack_prefix_bytes += eack.prefix.len() as u64;
        if !self.accept_epoch(eack, now, counters, out) {
            return;
        }
        self.eack_credit = (self.eack_credit
            + now.saturating_since(self.eack_credited).as_secs_f64() * EACKS_PER_SECOND)
            .min(EACK_BURST);
        self.eack_credited = now;
        if self.eack_credit < 1.0 {
            counters.eacks_limited += 1;
            return;
        }
        self.eack_credit -= 1.0;
        // Sets only grow: what an older eACK says is known, or was wrong.
        if self.newest_eack.is_some_and(|newest| counter <= newest) {
            counters.eacks_stale += 1;
            return;
        }
        let forwarded = core::mem::take(&mut self.forwarded_since_eack);
        self.share.earn(forwarded, self.budget.share());
        if !self.anchored {
            self.begin_epoch(eack);
        }
        let newest = eack.newest.and_then(|identifier| self.history.sequence_of(identifier));
        if let Some(newest) = newest {
            self.measure(newest, eack.newest_age, now);
        }
        self.advance_horizon(newest.max(self.known_by_time(now)));
        match self.decode(eack, now) {
            Some(()) => {
                self.newest_eack = Some(counter);
                self.failures = 0;
                counters.eacks_decoded += 1;
                self.settle(now, counters);
                self.repair(newest, now, counters, out);
                self.history.release_settled();
                // Holes that are not missing here are not worth waiting for; the client is told which.
                let in_vain = usize::from(eack.holes) > self.missing.len();
                let settled = if in_vain || eack.echo { self.settled() } else { None };
                let news =
                    in_vain && settled.is_some_and(|settled| self.told.replace(settled) != Some(settled));
                // What a full queue loses is the sender's to see, at once: the client does not even begin to wait.
                let turned = self.queue_stands(now) != self.told_queue;
                if eack.echo || news || turned {
                    self.report(counter, None, settled, now, counters, out);
                }
            }
            None => self.on_failed_decode(counter, eack, now, counters, out),
        }
        self.trim(SETTLED_ENTRIES);
        self.schedule_probe(now);
    }

    /// Whether an eACK belongs to this epoch; may begin a new one.
    fn accept_epoch(
        &mut self,
        eack: &Eack<'_>,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) -> bool {
        if eack.epoch == self.epoch && self.pending_reset.is_none() {
            return true;
        }
        if is_newer_epoch(eack.epoch, self.epoch) {
            self.enter_epoch(eack.epoch);
            return true;
        }
        counters.eacks_other_epoch += 1;
        match self.pending_reset {
            Some((epoch, reason, sent_at)) if now.saturating_since(sent_at) >= RESET_INTERVAL => {
                self.pending_reset = Some((epoch, reason, now));
                self.send(&Message::Reset { epoch, reason }, out);
            }
            // The client has not heard of the Reset that it asked for itself, or its eACK was overtaken: nothing to do.
            _ => {}
        }
        false
    }

    fn enter_epoch(&mut self, epoch: u16) {
        self.eack_credit -= EPOCH_COST;
        self.epoch = epoch;
        self.pending_reset = None;
        self.anchored = false;
        self.newest_eack = None;
        self.failures = 0;
        self.missing.clear();
        self.copies.clear();
        self.sketch.clear();
    }

    /// Finds where the client's set begins: behind its anchor. Everything up to there is settled, one way or the other.
    fn begin_epoch(&mut self, eack: &Eack<'_>) {
        let anchor = eack.anchor.and_then(|identifier| self.history.sequence_of(identifier));
        let start = match anchor {
            Some(anchor) => anchor + 1,
            // Nothing received before, or before this gateway remembers: the session's first epoch begins with its first datagram,
            // a later one with the client's newest.
            None if self.epoch == 0 => self.history.first(),
            None => eack
                .newest
                .and_then(|identifier| self.history.sequence_of(identifier))
                .unwrap_or(self.history.next()),
        };
        for sequence in self.history.first()..self.history.next() {
            if let Some(entry) = self.history.get_mut(sequence) {
                entry.in_sketch = false;
                if sequence < start && entry.fate != Fate::Received {
                    entry.fate = Fate::GivenUp;
                } else if sequence >= start {
                    entry.fate = Fate::Unknown;
                }
            }
        }
        self.horizon = start;
        self.considered = start;
        self.anchored = true;
        self.history.release_settled();
    }

    fn measure(&mut self, newest: u64, age: Duration, now: Timestamp) {
        if self.measured.is_some_and(|measured| newest <= measured) {
            return;
        }
        if let Some(entry) = self.history.get(newest)
            && !entry.resent
        {
            let sample = now.saturating_since(entry.forwarded_at).saturating_sub(age);
            self.path.on_round_trip(sample);
            self.queueing.on_round_trip(sample, now);
            self.measured = Some(newest);
        }
    }

    /// The newest datagram of which a selective client's eACK that arrives now must have known.
    fn known_by_time(&self, now: Timestamp) -> Option<u64> {
        let until = self.live.as_ref()?.known_until(&self.path, now)?;
        let after =
            |sequence: &u64| self.history.get(*sequence).is_some_and(|entry| entry.forwarded_at > until);
        (self.horizon..self.history.next()).rev().find(|sequence| !after(sequence))
    }

    /// Inserts everything up to the client's newest datagram into the sketch. Idempotent, so that a failed decode does no harm.
    fn advance_horizon(&mut self, newest: Option<u64>) {
        let Some(newest) = newest else { return };
        for sequence in self.horizon..=newest {
            let Some(entry) = self.history.get_mut(sequence) else { continue };
            if !entry.in_sketch {
                entry.in_sketch = true;
                self.sketch.insert(entry.identifier);
            }
        }
        self.horizon = self.horizon.max(newest + 1);
    }

    /// Decodes the difference into `only_here` and `only_there`; `None` when that fails. Changes nothing else.
    ///
    /// First as it is: what is missing is only here. When more is missing than a sketch decodes, little of it has arrived, and *that* can
    /// be decoded: of the datagrams forwarded since the last eACK (a long burst), of those that were missing before (a long repair), or of
    /// both. Assumed missing and taken out of the sketch, those of them that have arrived come out as only there.
    fn decode(&mut self, eack: &Eack<'_>, now: Timestamp) -> Option<()> {
        let prefix = EncodedPrefix::new(eack.encoding, eack.prefix).ok()?;
        let history = &self.history;
        let identifier = |sequence| history.get(sequence).map(|entry| entry.identifier);
        let Scratch { candidates, only_here, only_there, decoder, .. } =
            &mut **self.scratch.get_or_insert_default();
        let decoder = decoder.get_or_insert_default();
        candidates.clear();
        candidates.extend(self.missing.keys().copied().filter_map(identifier));
        let known = candidates.len();
        let unknown =
            |sequence: &u64| history.get(*sequence).is_some_and(|entry| entry.fate == Fate::Unknown);
        candidates.extend((self.considered..self.horizon).filter(unknown).filter_map(identifier));
        let (all, end) = (&*candidates, candidates.len());
        for (attempt, assumed) in [0..0, known..end, 0..known, 0..end].into_iter().enumerate() {
            // The first assumes nothing; the last only differs from the others when both of them assume something.
            let pointless = assumed.is_empty() || (attempt == 3 && (known == 0 || known == end));
            if attempt > 0 && (pointless || !self.share.gateway().allows_costly_decode(now)) {
                continue;
            }
            let candidates = all[..assumed.start].iter().chain(&all[assumed.end..]).copied();
            let assumed = &all[assumed];
            let reduced;
            let sketch = if assumed.is_empty() {
                &self.sketch
            } else {
                reduced = assumed.iter().fold(self.sketch.clone(), |mut sketch, identifier| {
                    sketch.remove(*identifier);
                    sketch
                });
                &reduced
            };
            let Ok(difference) = sketch.decode(prefix, candidates, decoder) else { continue };
            let arrived = |identifier: &Identifier| difference.only_there.binary_search(identifier).is_ok();
            only_here.clear();
            only_here.extend_from_slice(difference.only_here);
            only_here.extend(assumed.iter().filter(|identifier| !arrived(identifier)));
            only_there.clear();
            only_there
                .extend(difference.only_there.iter().filter(|identifier| !assumed.contains(identifier)));
            return Some(());
        }
        None
    }

    /// Takes in what a decoded eACK says.
    fn settle(&mut self, now: Timestamp, counters: &mut FlowCounters) {
        let only_there = core::mem::take(&mut self.scratch().only_there);
        for &identifier in &only_there {
            self.sketch.insert(identifier);
            match self.history.sequence_of(identifier).and_then(|sequence| self.history.get_mut(sequence)) {
                Some(entry) => {
                    entry.in_sketch = true;
                    entry.fate = Fate::Received;
                }
                None => counters.identifiers_foreign += 1,
            }
        }
        self.scratch().only_there = only_there;

        let only_here = core::mem::take(&mut self.scratch().only_here);
        let mut still_missing = core::mem::take(&mut self.scratch().still_missing);
        still_missing.clear();
        let mut newly_missing = 0u64;
        for &identifier in &only_here {
            let Some(sequence) = self.history.sequence_of(identifier) else {
                self.fold_out(identifier);
                continue;
            };
            still_missing.push(sequence);
            if let std::collections::btree_map::Entry::Vacant(place) = self.missing.entry(sequence) {
                place.insert(Repair::new(now));
                newly_missing += 1;
                if let Some(entry) = self.history.get_mut(sequence) {
                    entry.fate = Fate::Missing;
                }
            }
        }
        self.scratch().only_here = only_here;
        still_missing.sort_unstable();

        let Self { missing, history, arrived_transmission, .. } = self;
        missing.retain(|sequence, repair| {
            let keep = still_missing.binary_search(sequence).is_ok();
            if !keep {
                counters.repairs_arrived += u64::from(repair.transmissions() > 0);
                *arrived_transmission = (*arrived_transmission).max(repair.first_transmission());
                if let Some(entry) = history.get_mut(*sequence) {
                    entry.fate = Fate::Received;
                }
            }
            keep
        });
        self.scratch().still_missing = still_missing;
        for sequence in self.considered..self.horizon {
            if let Some(entry) = self.history.get_mut(sequence)
                && entry.fate == Fate::Unknown
            {
                entry.fate = Fate::Received;
            }
        }
        counters.datagrams_missing += newly_missing;
        let covered = self.horizon - self.considered;
        self.path.on_fate(covered, newly_missing.min(covered));
        self.budget.earn(core::mem::take(&mut self.unearned));
        self.budget.follow(self.path.loss());
        self.considered = self.horizon;
    }

    fn fold_out(&mut self, identifier: Identifier) {
        self.sketch.remove(identifier);
    }

    fn give_up(&mut self, sequence: u64) {
        self.missing.remove(&sequence);
        self.totals.unrepairable += 1;
        let Some(entry) = self.history.get_mut(sequence) else { return };
        entry.fate = Fate::GivenUp;
        if entry.in_sketch {
            entry.in_sketch = false;
            let identifier = entry.identifier;
            self.fold_out(identifier);
        }
    }

    /// Whether what is lost now was lost in a queue, most likely. Live streams do not ask.
    fn queue_stands(&self, now: Timestamp) -> bool {
        self.live.is_none() && self.queueing.standing(now) >= STANDING_QUEUE
    }

    /// Sends what is missing and worth sending.
    fn repair(&mut self, newest: Option<u64>, now: Timestamp, counters: &mut FlowCounters, out: &mut Outbox) {
        if self.missing.is_empty() {
            return;
        }
        let target = self.share.gateway().config.residual_loss_target;
        let congested = self.queue_stands(now);
        let patience = patience(&self.path, self.live.is_some(), self.maximum_hold);
        let mut sequences = core::mem::take(&mut self.scratch().sequences);
        sequences.clear();
        sequences.extend(self.missing.keys());
        for &sequence in &sequences {
            let Some(repair) = self.missing.get(&sequence) else { continue };
            // Lost in a queue that stands, most likely: its sender must know, or it takes what belongs to others.
            if congested && repair.is_new(now) {
                counters.losses_shown += 1;
                self.give_up(sequence);
                continue;
            }
            if self.history.cached_length(sequence).is_none() {
                counters.repairs_evicted += 1;
                self.give_up(sequence);
                continue;
            }
            let late = match (&self.live, self.history.get(sequence)) {
                (Some(live), Some(entry)) => live.is_late(entry.forwarded_at, now),
                _ => false,
            };
            let decision = repair.decide(newest, self.arrived_transmission, &self.path, patience, now);
            match if late { Decision::GiveUp } else { decision } {
                Decision::Wait => {}
                Decision::GiveUp => {
                    counters.repairs_late += 1;
                    self.give_up(sequence);
                }
                Decision::Send => {
                    let behind = self.history.next().saturating_sub(sequence);
                    let (copies, spacing) = copies(repair, &self.path, patience, target, behind, now);
                    if self.send_repair(sequence, now, counters, out) {
                        for copy in 1..copies {
                            self.copies.push_back((now + spacing * copy, sequence));
                        }
                    }
                }
            }
        }
        self.scratch().sequences = sequences;
        self.copies.make_contiguous().sort_unstable();
    }

    /// Sends one datagram again, if the budget allows.
    fn send_repair(
        &mut self,
        sequence: u64,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) -> bool {
        let Some((first, second)) = self.history.bytes(sequence) else { return false };
        let length = first.len() + second.len();
        self.budget.earn(core::mem::take(&mut self.unearned));
        if !self.share.take_repair(&mut self.budget, length, self.live.is_some()) {
            counters.budget_refusals += 1;
            return false;
        }
        out.send(|bytes| {
            bytes.extend_from_slice(first);
            bytes.extend_from_slice(second);
        });
        counters.repair_bytes += length as u64;
        self.totals.repair_transmissions += 1;
        if let Some(entry) = self.history.get_mut(sequence) {
            entry.resent = true;
        }
        self.transmissions += 1;
        let next = self.history.next();
        if let Some(repair) = self.missing.get_mut(&sequence) {
            if repair.transmissions() == 0 {
                counters.repairs += 1;
                self.totals.repaired += 1;
            } else {
                counters.repair_copies += 1;
            }
            repair.sent(next, self.transmissions, now);
        }
        true
    }

    /// The last datagram that the client has before the first that is being repaired.
    fn settled(&self) -> Option<Identifier> {
        let end = self.missing.keys().next().copied().unwrap_or(self.horizon);
        let sequences = (self.history.first()..end).rev().take(SETTLED_SEARCH);
        sequences
            .filter_map(|sequence| self.history.get(sequence))
            .find(|entry| entry.fate == Fate::Received)
            .map(|entry| entry.identifier)
    }

    fn on_failed_decode(
        &mut self,
        counter: u32,
        eack: &Eack<'_>,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) {
        counters.eacks_failed += 1;
        self.eack_credit -= FAILED_EACK_COST * f64::from(self.share.failure_factor(now));
        self.totals.decode_failures += 1;
        // Several eACKs may be under way when the first of them fails: only those that could not have been longer count.
        let longer = self.sketch.limits().longer(eack.encoding);
        self.failures += u32::from(longer.is_none());
        let wanted = longer.unwrap_or(eack.encoding);
        match Some(wanted).filter(|_| self.failures < FAILURES_BEFORE_RESET) {
            Some(wanted) => {
                let settled = self.settled();
                self.report(counter, Some(wanted), settled, now, counters, out);
            }
            None => {
                let (epoch, reason) = (self.epoch.wrapping_add(1), ResetReason::DecodeFailed);
                counters.resets_gateway += 1;
                self.totals.resets += 1;
                self.pending_reset = Some((epoch, reason, now));
                self.send(&Message::Reset { epoch, reason }, out);
                out.event(Event::Reset { session: self.name(), side: Side::Gateway, reason, epoch });
            }
        }
    }

    fn on_client_reset(
        &mut self,
        epoch: u16,
        reason: ResetReason,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) {
        if !is_newer_epoch(epoch, self.epoch) || self.eack_credit < EPOCH_COST {
            counters.eacks_other_epoch += 1;
            return;
        }
        counters.resets_client += 1;
        self.totals.resets += 1;
        self.enter_epoch(epoch);
        out.event(Event::Reset { session: self.name(), side: Side::Client, reason, epoch });
    }

    fn report(
        &mut self,
        echo: u32,
        wanted: Option<Encoding>,
        settled: Option<Identifier>,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) {
        counters.reports_sent += 1;
        self.told_queue = self.queue_stands(now);
        let report = Report {
            epoch: self.epoch,
            echo,
            // Reports are sent while the eACK is processed.
            echo_age: Duration::ZERO,
            missing: u16::try_from(self.missing.len()).unwrap_or(u16::MAX),
            settled,
            wanted,
            round_trip: self.path.round_trip().unwrap_or_default(),
            loss: (self.path.loss() * 65536.0).min(65535.0) as u16,
            queueing: if self.told_queue { self.queueing.standing(now) } else { Duration::ZERO },
            totals: self.totals(),
        };
        self.send(&Message::Report(report), out);
    }

    fn send(&mut self, message: &Message<'_>, out: &mut Outbox) {
        let buffer = &mut self.scratch.get_or_insert_default().message;
        buffer.clear();
        message.encode(buffer);
        // A used-up counter or an oversized message (neither can happen in practice) costs the message, nothing else.
        let _ = out.send(|bytes| self.sealer.seal(buffer, bytes));
    }

    pub(crate) fn say_goodbye(&mut self, reason: GoodbyeReason, out: &mut Outbox) {
        self.send(&Message::Goodbye { reason }, out);
    }

    fn probe_delay(&self) -> Duration {
        let round_trip = self.path.round_trip().unwrap_or(MINIMUM_PROBE_DELAY);
        let first = (round_trip * 2 + self.path.round_trip_variation() * 4).max(MINIMUM_PROBE_DELAY);
        (first * (1 << self.probes.min(8))).min(first.max(LONGEST_PROBE_DELAY))
    }

    /// When the next tail probe is due.
    fn probe_at(&self) -> Option<Timestamp> {
        if self.probe_follows { Some(self.last_forward + self.probe_delay()) } else { self.probe_at }
    }

    fn schedule_probe(&mut self, now: Timestamp) {
        // A selective client is silent as long as it misses nothing: its silence says nothing.
        let silent = !self.live.as_deref().is_some_and(LiveStream::is_selective);
        let unspoken = silent && self.horizon < self.history.next();
        let tail = self.anchored && (unspoken || !self.missing.is_empty());
        self.probe_follows = false;
        self.probe_at = (tail && self.probes < MAXIMUM_PROBES)
            .then(|| (self.last_forward + self.probe_delay()).max(now + MINIMUM_PROBE_DELAY / 2));
    }

    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        let copy = self.copies.front().map(|(at, _)| *at);
        let early = self.live.as_deref().and_then(LiveStream::next_timeout);
        [copy, early, self.probe_at(), self.shrink_at].into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp, counters: &mut FlowCounters, out: &mut Outbox) {
        self.budget.earn(core::mem::take(&mut self.unearned));
        while let Some(&(at, sequence)) = self.copies.front() {
            if at > now {
                break;
            }
            self.copies.pop_front();
            if self.missing.contains_key(&sequence) && self.budget.is_ample() {
                self.send_repair(sequence, now, counters, out);
            }
        }
        self.send_early_copies(now, counters, out);
        if self.shrink_at.is_some_and(|at| at <= now) {
            if now.saturating_since(self.last_forward) >= QUIET {
                self.forget_bytes();
                self.trim(QUIET_ENTRIES);
            }
            self.history.shrink();
            self.share.hold(self.history.memory());
            self.shrink_at = (self.history.cache().capacity() > 0).then_some(now + SHRINK_INTERVAL);
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            self.probe(now, counters, out);
        }
    }

    /// Sends the second copies of a thin stream that are due, unless the client has spoken meanwhile.
    fn send_early_copies(&mut self, now: Timestamp, counters: &mut FlowCounters, out: &mut Outbox) {
        let Some(live) = &mut self.live else { return };
        while let Some(sequence) = live.take_due(now) {
            let unknown = self.history.get(sequence).is_some_and(|entry| entry.fate == Fate::Unknown);
            if let Some((first, second)) = self.history.bytes(sequence).filter(|_| unknown) {
                out.send(|bytes| {
                    bytes.extend_from_slice(first);
                    bytes.extend_from_slice(second);
                });
                counters.early_copies += 1;
                counters.early_copy_bytes += (first.len() + second.len()) as u64;
            }
        }
    }

    /// The flow is quiet for so long that no client waits for a repair of what it was sent: the cache is empty from here on.
    fn forget_bytes(&mut self) {
        let missing: Vec<u64> = self.missing.keys().copied().collect();
        for sequence in missing {
            self.give_up(sequence);
        }
        self.copies.clear();
        while self.history.cache().len() > 0 {
            self.history.free_oldest();
        }
    }

    /// The flow went quiet and its tail is unacknowledged: the last datagram, sent again, makes the client speak (as TCP's tail loss
    /// probe, RFC 8985 section 7, with the difference that a duplicate is harmless to the base connection).
    fn probe(&mut self, now: Timestamp, counters: &mut FlowCounters, out: &mut Outbox) {
        let last = self.history.next().checked_sub(1);
        if self.newest_eack.is_some()
            && let Some(last) = last
            && self.send_repair(last, now, counters, out)
        {
            counters.tail_probes += 1;
        }
        self.probes += 1;
        self.schedule_probe(now);
    }
}
