//! The reconciliation of one assisted flow.
//!
//! The gateway knows which datagrams it forwarded, in order; an eACK brings a sketch of the
//! client's. Both sets grow for as long as the epoch lasts, only their difference is small. At each
//! eACK the gateway inserts the datagrams forwarded up to the client's newest one (the *horizon*)
//! into its own sketch, subtracts, and decodes both ways:
//!
//! - only here: missing at the client. Repaired while the bytes are kept, else given up and folded
//!   out of the sketch.
//! - only there: the client has it, the sketch has not. Forwarded beyond the horizon, before the
//!   epoch began, or given up: folded in.
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
//! State changes only after a successful decode. After a failure the gateway asks for a longer
//! prefix; when the longest fails as well, it asks for a Reset. A Reset names the next epoch; the
//! client answers with its first eACK of that epoch, whose *anchor* (the last datagram it had when
//! it emptied its set) marks the beginning of the gateway's set.

mod backlog;
mod breaker;
mod channel;
mod coding;
mod eacks;
mod epoch;
mod first_window;
mod judging;
mod last_mile;
mod numbering;
mod outage;
mod queue_losses;
mod repairs;
mod sender;
mod shadow;
mod tail_probe;
mod thin;
mod timers;
mod trial;
mod turn;
mod upward;

use core::time::Duration;

use packrat_eack::{Identifier, MAX_EXPECTED_DIFFERENCE, SketchLimits};
use packrat_wire::SessionId;
use packrat_wire::codec::DecodeError;
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::{ClientParams, Established, SESSION_NAMES};
use packrat_wire::identifier::{IdentifierKey, IdentifierScheme};
use packrat_wire::message::{GoodbyeReason, Message, Totals};
use packrat_wire::number::NumberHeader;

use crate::admission::{MESSAGE_WORK, SessionPermit};
use crate::counters::{FlowCounters, FlowGauges};
use crate::eack_credit::EackCredit;
use crate::event::Event;
use crate::flow::PathEvent;
use crate::history::{
    Fate, History, MAXIMUM_ENTRIES, Pushed, SELECTIVE_ENTRIES, SETTLED_ENTRIES, TRIM_DATAGRAMS,
};
use crate::lazy_box::LazyBox;
use crate::live::LiveStream;
use crate::outbox::Outbox;
use crate::path_validation::{NetworkPath, PathUse};
use crate::session_event::{RepairRefusedReason, SessionEvent};
use backlog::Backlog;
pub(crate) use backlog::Told;
pub(crate) use breaker::Breaker;
use channel::Channel;
use coding::Coding;
use epoch::EpochState;
use first_window::FirstWindow;
use last_mile::LastMile;
pub(crate) use last_mile::Timing;
use numbering::Numbering;
pub(crate) use numbering::granted as granted_numbers;
use repairs::{Means, Repairs};
use shadow::Shadow;
use tail_probe::TailProbe;
use thin::Thin;
use timers::{NEVER_DUE, SHRINK_INTERVAL};
use trial::Trial;
pub(crate) use turn::Turn;
use upward::Uploads;

/// Limits of the sketches that this gateway keeps, whatever a client asks for.
pub(crate) const SKETCH_LIMITS: SketchLimits =
    SketchLimits { power_sums: MAX_EXPECTED_DIFFERENCE as u8 + 1, ..SketchLimits::LARGEST };
/// Silence after which a client may come from an outage.
const OUTAGE_SILENCE: Duration = Duration::from_millis(300);
/// Bytes of the steps in which memory use is reported to the gateway.
const HOLD_STEP_BYTES: usize = 16 * 1024;

/// The client ended the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended(pub(crate) GoodbyeReason);

/// The assisted state of one flow: a composition of machines, each with a file and timers of its
/// own.
pub(crate) struct Session {
    agreed: Agreed,
    permit: SessionPermit,
    channel: Channel,
    eack_credit: EackCredit,
    history: History,
    /// `None`: datagrams go plain.
    numbering: Option<Box<Numbering>>,
    /// `None`: the client does not repair by code.
    coding: Option<Box<Coding>>,
    /// `None`: the client does not number its datagrams.
    uploads: Option<Box<Uploads>>,
    epoch: EpochState,
    repairs: Repairs,
    last_mile: LastMile,
    breaker: LazyBox<Breaker>,
    /// `Some` from the first round trip on, if queues lose datagrams that the sender is to see.
    backlog: Option<Box<Backlog>>,
    probe: TailProbe,
    /// `Some`: the sender is shown losses that it may tolerate, and its answers are judged.
    shown: Option<Box<Trial>>,
    first_window: FirstWindow,
    /// False: the operator has named the senders, they are a live stream's, or this one is known.
    watches_sender: bool,
    /// `Some` from the first round trip on, while its sender is watched.
    shadow: Option<Box<Shadow>>,
    /// Round trip of gateway and server, with the server's time to answer the flow's first datagram.
    server_round_trip: Option<Duration>,
    /// `Some`: the last mile is known to lose datagrams, and rare ones are sent twice.
    thin: Option<Box<Thin>>,
    /// True if later sessions know of this one's losses.
    noted: bool,
    /// The client receives a live stream.
    live: Option<Box<LiveStream>>,
    reported: Reported,
    /// When unused memory is given back.
    shrink_at: Timestamp,
}

/// Parameters that the handshake has settled.
#[derive(Debug)]
struct Agreed {
    scheme: IdentifierScheme,
    key: IdentifierKey,
    maximum_hold: Duration,
    /// See [`crate::GatewayConfig::queues_lose`].
    queues_lose: bool,
}

/// Content of the last Report that the next one may differ in.
#[derive(Debug, Default)]
struct Reported {
    settled: Option<Identifier>,
    /// True if losses were left to the sender.
    queue: bool,
}

impl core::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Session")
            .field("id", &self.id())
            .field("epoch", &self.epoch)
            .field("next", &self.history.next())
            .field("missing", &self.repairs)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(
        permit: SessionPermit,
        established: Established,
        client_params: &ClientParams,
        now: Timestamp,
    ) -> Self {
        let Established { gateway_params, sealer, opener, .. } = established;
        let live = client_params.live.map(|live| Box::new(LiveStream::new(live)));
        let selective = live.as_deref().is_some_and(LiveStream::is_selective);
        let entries = if selective { SELECTIVE_ENTRIES } else { MAXIMUM_ENTRIES };
        let config = permit.gateway().config();
        let mut session = Self {
            agreed: Agreed {
                scheme: gateway_params.scheme,
                key: gateway_params.identifier_key(),
                maximum_hold: client_params.maximum_hold,
                queues_lose: config.queues_lose,
            },
            channel: Channel::new(sealer, opener, gateway_params.names()),
            eack_credit: EackCredit::new(now),
            history: History::new(config.cache_bytes_per_flow, entries),
            numbering: Numbering::new(&gateway_params),
            coding: gateway_params
                .numbered
                .filter(|numbered| numbered.is_coded())
                .map(|_| Box::new(Coding::new(now))),
            uploads: Uploads::new(&gateway_params),
            epoch: EpochState::new(&gateway_params),
            repairs: Repairs::new(config.repair_budget),
            last_mile: LastMile::new(),
            breaker: LazyBox::new(),
            backlog: None,
            probe: TailProbe::new(now),
            shown: None,
            first_window: FirstWindow::default(),
            watches_sender: false,
            shadow: None,
            server_round_trip: None,
            thin: None,
            noted: false,
            live,
            reported: Reported::default(),
            shrink_at: NEVER_DUE,
            permit,
        };
        if session.may_copy_early() {
            let permit = &session.permit;
            let expected = permit.gateway().losses().expect(permit.source(), now);
            session.thin = Thin::new(expected, now);
        }
        if session.permit.is_validated() {
            session.expect_of_sender(now);
        }
        session
    }

    pub(crate) fn set_server_round_trip(&mut self, round_trip: Option<Duration>) {
        self.server_round_trip = round_trip;
    }

    pub(crate) fn id(&self) -> SessionId {
        self.channel.id()
    }

    /// The names that the client may call the session by; the first one is [`Self::id`].
    pub(crate) fn names(&self) -> [SessionId; SESSION_NAMES] {
        self.channel.names()
    }

    /// True if the client may call the session by this name.
    pub(crate) fn answers_to(&self, name: SessionId) -> bool {
        self.names().contains(&name)
    }

    /// True if the client has sealed something with this session's key.
    pub(crate) fn is_proven(&self) -> bool {
        self.channel.is_proven()
    }

    /// Handles a repeated question of the client: most likely the answer was lost, and datagrams
    /// that have passed since then are in no set of the client.
    pub(crate) fn join(&mut self) {
        if !self.channel.is_proven() {
            self.epoch.join(self.history.next());
        }
    }

    /// True if the session keeps no datagrams.
    pub(crate) fn is_quiet(&self) -> bool {
        self.history.cache().capacity() == 0
    }

    /// Records that the client has proven its address. False if its source may not have this
    /// session.
    pub(crate) fn validate(&mut self, now: Timestamp) -> bool {
        let was_validated = self.permit.is_validated();
        let is_validated = self.permit.validate(now);
        if is_validated && !was_validated {
            self.expect_of_sender(now);
        }
        is_validated
    }

    pub(crate) fn totals(&self) -> Totals {
        let (repaired, repair_transmissions, unrepairable) = self.repairs.totals();
        let (decode_failures, resets) = self.epoch.totals();
        let high_water = self.history.cache().high_water();
        Totals {
            repaired,
            repair_transmissions,
            unrepairable,
            decode_failures,
            resets,
            cache_high_water: u32::try_from(high_water).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn gauges(&self) -> FlowGauges {
        let path = &self.last_mile.path;
        FlowGauges {
            assisted: 1,
            cache_bytes: self.history.cache().len() as u64,
            cache_high_water_bytes: self.history.cache().high_water() as u64,
            cache_entries: self.history.cached_entries(),
            round_trip_microseconds: path
                .round_trip()
                .map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            loss_ppm: (path.loss() * 1e6) as u64,
        }
    }

    /// See [`crate::Flow::expect`].
    pub(crate) fn expect(&mut self, bytes: usize, counters: &mut FlowCounters) {
        let permit = &mut self.permit;
        counters.evictions_full += self.history.make_room(bytes, |more| permit.try_take(more));
    }

    /// Records a datagram that passes, and keeps its bytes. Returns the number to put in front of
    /// it. `congested`: it came with the mark CE.
    #[inline]
    pub(crate) fn forward(
        &mut self,
        datagram: &[u8],
        congested: bool,
        now: Timestamp,
        counters: &mut FlowCounters,
    ) -> Option<NumberHeader> {
        let identifier = self.agreed.key.identify(self.agreed.scheme, datagram);
        let permit = &mut self.permit;
        counters.evictions_full +=
            self.history.make_room(datagram.len(), |more| permit.try_take(more));
        match self.history.push(identifier, datagram, now) {
            Pushed::Cached => counters.datagrams_recorded += 1,
            Pushed::Uncached => {
                counters.datagrams_recorded += 1;
                counters.datagrams_uncached += 1;
            }
            Pushed::Duplicate => {
                counters.datagrams_duplicated += 1;
                // A duplicate from the server's side, and no copy: with a number it would be taken
                // for one.
                return None;
            }
        }
        if congested {
            self.history.note_congested();
        }
        self.repairs.on_forward(datagram.len());
        let mut probes = true;
        if let Some(live) = &mut self.live {
            let sequence = self.history.next() - 1;
            live.on_forward(sequence, datagram.len(), &self.last_mile.path, now);
            probes = !live.is_selective();
        }
        self.probe.on_forward(probes, now);
        if self.thin.is_some() {
            self.plan_thin_copy(now);
        }
        if self.shrink_at == NEVER_DUE || self.history.next().is_multiple_of(TRIM_DATAGRAMS) {
            self.look_after_memory(now, counters);
        }
        // A client that has not proven the session may not know it: to its transport, a number
        // would be garbage.
        let numbering = self.numbering.as_mut().filter(|_| self.channel.is_proven())?;
        let number = numbering.number(self.history.next() - 1, identifier, datagram)?;
        if let Some(coding) = &mut self.coding {
            coding.on_forward(now);
        }
        Some(number)
    }

    /// See [`crate::Flow::refuse_numbers`].
    pub(crate) fn refuse_numbers(&mut self, length: usize) {
        if let Some(numbering) = &mut self.numbering {
            numbering.refuse(length);
        }
    }

    /// Work that need not be done for each datagram.
    #[inline(never)]
    fn look_after_memory(&mut self, now: Timestamp, counters: &mut FlowCounters) {
        self.follow_config(counters);
        self.trim(SETTLED_ENTRIES);
        self.shrink_at = self.shrink_at.min(now + SHRINK_INTERVAL);
        if self.memory().abs_diff(self.permit.held()) > HOLD_STEP_BYTES {
            self.permit.hold(self.memory());
        }
    }

    /// Bytes of memory for datagrams, both ways.
    fn memory(&self) -> usize {
        self.history.memory() + self.uploads.as_ref().map_or(0, |uploads| uploads.memory())
    }

    /// Follows the limits in force, which may have changed.
    fn follow_config(&mut self, counters: &mut FlowCounters) {
        let config = self.permit.gateway().config();
        counters.evictions_full += self.history.limit_cache(config.cache_bytes_per_flow);
        if let Some(live) = &mut self.live {
            // A configuration without repairs has no copies of any kind.
            let share = if config.repair_budget > 0.0 { config.early_copies } else { 0.0 };
            live.set_early_copies(share);
        }
    }

    /// Forgets old history.
    fn trim(&mut self, settled_limit: usize) {
        let Self { history, epoch, repairs, .. } = self;
        history.trim(settled_limit, |sequence, entry| {
            if entry.fate == Fate::Missing {
                repairs.forget(sequence);
            }
            epoch.set.forget(sequence, entry);
        });
    }

    /// True if losses are for the sender to see now: the queue has lost datagrams, repairs pause,
    /// or the sender tolerates losses.
    fn shows_losses(&self, now: Timestamp) -> bool {
        self.queue_loses(now) || self.breaker.is_open(now) || self.is_tolerated()
    }

    /// True if the queue of the last mile has lost datagrams within a round trip.
    fn queue_loses(&self, now: Timestamp) -> bool {
        self.backlog.as_ref().is_some_and(|backlog| backlog.losses.is_shown(now))
    }

    /// True if the client's end drops duplicates, as the ends of QUIC, SRTP and live streams do. A
    /// program with another protocol may act upon them.
    fn drops_duplicates(&self) -> bool {
        self.live.is_some() || self.agreed.scheme == IdentifierScheme::Trailer
    }

    /// True if a datagram that may have arrived may be sent again: the client's end drops all but one, or the client does, by
    /// the number.
    fn may_repeat(&self, sequence: u64) -> bool {
        let has_number = || {
            let length = self.history.cached_length(sequence)?;
            let identifier = self.history.get(sequence)?.identifier;
            self.numbering.as_deref()?.again(sequence, identifier, length)
        };
        self.drops_duplicates() || has_number().is_some()
    }

    /// Sends one datagram again, if the budgets allow.
    fn send_repair(&mut self, sequence: u64, turn: &mut Turn<'_>) -> bool {
        if self.breaker.is_open(turn.now) {
            repairs::refuse(sequence, RepairRefusedReason::Paused, turn);
            return false;
        }
        let Self { history, permit, live, numbering, backlog, .. } = self;
        let numbering = numbering.as_deref();
        if let (Some(backlog), Some(length)) = (backlog, history.cached_length(sequence)) {
            backlog.on_extra(history.next(), length);
        }
        self.repairs.send(
            sequence,
            Means { history, permit, live: live.is_some(), numbering },
            turn,
        )
    }

    /// Handles a sealed datagram from the client's address.
    pub(crate) fn control(&mut self, datagram: &[u8], turn: &mut Turn<'_>) -> Option<Ended> {
        let mut plaintext = core::mem::take(&mut turn.scratch().plaintext);
        let mut ended = None;
        if let Some(counter) = self.channel.open(datagram, &mut plaintext, turn.counters) {
            let heard = self.channel.heard();
            let returned =
                heard.is_some_and(|heard| turn.now.saturating_since(heard) >= OUTAGE_SILENCE);
            self.channel.note_heard(turn.now);
            let admitted = self.eack_credit.admits(turn.now)
                && self.permit.admits_work(self.eack_credit.strain(), turn.now);
            if admitted {
                self.charge(MESSAGE_WORK, turn);
            }
            match Message::decode(&plaintext) {
                Ok(Message::Eack(eack)) => self.on_eack(counter, &eack, admitted, turn),
                Ok(Message::Reset { epoch, reason }) => self.on_client_reset(epoch, reason, turn),
                Ok(Message::Recovered { total }) => {
                    if let Some(coding) = &mut self.coding {
                        coding.on_recovered(total);
                    }
                }
                Ok(Message::Goodbye { reason }) => ended = Some(Ended(reason)),
                // The client has come back before the address it was challenged at was accepted.
                Ok(Message::PathResponse { .. }) => self.channel.forget_challenges(),
                // A later message, or one without meaning.
                Err(DecodeError::MessageType(_)) => {}
                Ok(_) | Err(_) => turn.counters.sealed_malformed += 1,
            }
            if returned {
                self.on_return(turn.now);
            }
            if heard.is_none() {
                self.copy_first_flight(turn.now);
            }
            if turn.unpaid_work > 0 {
                self.permit.charge_work(turn.unpaid_work, turn.now);
            }
        }
        turn.scratch().plaintext = plaintext;
        ended
    }

    /// Charges the client for work that one of its messages made necessary.
    fn charge(&mut self, work: u64, turn: &mut Turn<'_>) {
        self.eack_credit.charge(work);
        turn.unpaid_work += work;
    }

    /// See [`crate::Flow::control_on_new_path`].
    pub(crate) fn control_on_new_path(
        &mut self,
        datagram: &[u8],
        from: NetworkPath,
        random: impl FnOnce() -> [u8; 8],
        decide: impl FnOnce() -> PathUse,
        turn: &mut Turn<'_>,
    ) -> PathEvent {
        let name = self.channel.name();
        let event = self.channel.on_new_path(datagram, from, random, decide, turn);
        if event != PathEvent::Validated {
            // The name by which the client has moved is for that path only.
            self.channel.set_name(name);
        }
        match event {
            PathEvent::Challenged => turn.tell(|| SessionEvent::PathChallenged),
            PathEvent::Validated => {
                self.last_mile.move_to_new_path();
                self.breaker = LazyBox::new();
                if let Some(numbering) = &mut self.numbering {
                    numbering.move_to_new_path();
                }
                if let Some(coding) = &mut self.coding {
                    coding.forget_due();
                }
                if let Some(uploads) = &mut self.uploads {
                    uploads.move_to_new_path();
                }
                turn.tell(|| SessionEvent::PathValidated);
                turn.out.event(Event::ClientMoved { session: self.id() });
            }
            PathEvent::Rejected | PathEvent::Held | PathEvent::Refused => {}
        }
        event
    }

    /// Time of the client's last authentic message along its own path.
    pub(crate) fn heard(&self) -> Option<Timestamp> {
        self.channel.heard()
    }

    /// Asks the client whether it is still at its path: an authentic message of any kind confirms
    /// it.
    pub(crate) fn ask(&mut self, random: [u8; 8], turn: &mut Turn<'_>) {
        self.channel.send(&Message::PathChallenge { data: u64::from_be_bytes(random) }, turn);
    }

    pub(crate) fn say_goodbye(&mut self, reason: GoodbyeReason, out: &mut Outbox) {
        self.channel.seal(&Message::Goodbye { reason }, &mut Vec::new(), out);
    }
}
