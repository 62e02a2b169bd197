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

mod control;
mod reconciliation;
mod repairs;
mod timers;

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use packrat_eack::{Encoding, Identifier, MAX_EXPECTED_DIFFERENCE, Sketch, SketchLimits};
use packrat_estimate::{PathEstimate, Queueing, STANDING_QUEUE, Timestamp};
use packrat_wire::handshake::{Established, Terms, Wishes};
use packrat_wire::identifier::{IdentifierKey, IdentifierScheme};
use packrat_wire::message::{GoodbyeReason, Message, Report, ResetReason, Totals};
use packrat_wire::seal::{OVERHEAD, Opener, Sealer};

use crate::budget::FlowBudget;
use crate::counters::{FlowCounters, FlowGauges};
use crate::flow::Share;
use crate::history::{
    Fate, History, MAXIMUM_ENTRIES, Pushed, SELECTIVE_ENTRIES, SETTLED_ENTRIES, TRIM_INTERVAL,
};
use crate::lazily::{Lazily, Timed};
use crate::live::LiveStream;
use crate::outbox::Outbox;
use crate::repair::Repair;
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
/// eACKs per second and in a burst. A client sends one per millisecond, or one for every 256 datagrams where these are more.
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
    /// Of this epoch; made when something is in it.
    sketch: Option<Box<Sketch>>,
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
    copies: Lazily<Timed>,
    budget: FlowBudget,
    /// Bytes forwarded that the budget has not heard of yet: it is asked seldom.
    unearned: usize,
    forwarded_since_eack: u64,
    path: Lazily<PathEstimate>,
    queueing: Lazily<Queueing>,
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

/// The sketch of a session, made when it is needed.
fn made<'a>(sketch: &'a mut Option<Box<Sketch>>, terms: &Terms) -> &'a mut Sketch {
    sketch.get_or_insert_with(|| Box::new(Sketch::new(terms.sketch_key(), terms.limits)))
}

impl Session {
    pub(crate) fn new(share: Share, established: Established, wishes: &Wishes, now: Timestamp) -> Self {
        let terms = established.terms;
        let live = wishes.live.map(|live| Box::new(LiveStream::new(live)));
        let selective = live.as_deref().is_some_and(LiveStream::is_selective);
        let entries = if selective { SELECTIVE_ENTRIES } else { MAXIMUM_ENTRIES };
        Self {
            history: History::new(share.gateway().config.cache_bytes_per_flow, entries),
            sketch: None,
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
            copies: Lazily::new(),
            budget: FlowBudget::new(share.gateway().config.repair_budget),
            unearned: 0,
            forwarded_since_eack: 0,
            path: Lazily::new(),
            queueing: Lazily::new(),
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
        let Self { history, sketch, terms, horizon, considered, missing, anchored, .. } = self;
        history.trim(settled_limit, |sequence, entry| {
            if entry.fate == Fate::Missing {
                missing.remove(&sequence);
            }
            *considered = (*considered).max(sequence + 1);
            if sequence >= *horizon {
                *horizon = sequence + 1;
                if *anchored && !entry.in_sketch {
                    made(sketch, terms).insert(entry.identifier);
                }
            }
        });
    }

    fn scratch(&mut self) -> &mut Scratch {
        self.scratch.get_or_insert_default()
    }

    /// Whether what is lost now was lost in a queue, most likely. Live streams do not ask.
    fn queue_stands(&self, now: Timestamp) -> bool {
        self.live.is_none() && self.queueing.standing(now) >= STANDING_QUEUE
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
}
