//! Assistance of one base connection, at its receiver.

use core::time::Duration;
use std::collections::VecDeque;

use packrat_eack::{Identifier, MAX_EXPECTED_DIFFERENCE, SketchLimits};
use packrat_wire::Epoch;
use packrat_wire::codec::DecodeError;
use packrat_wire::control::{Control, RefusalReason};
use packrat_wire::estimate::{PathEstimate, Timestamp};
use packrat_wire::handshake::{ClientParams, Established, Numbered};
use packrat_wire::identifier::Material;
use packrat_wire::is_control;
use packrat_wire::message::{Eack, GoodbyeReason, Message, Report, ResetReason};
use packrat_wire::number::{NumberHeader, NumberKey};
use packrat_wire::registry::grease_message;
use packrat_wire::seal::reference_of;

use crate::bundling::Bundling;
use crate::coded::{Coded, Symbol};
use crate::config::{ClientConfig, DEFAULT_MAXIMUM_HOLD};
use crate::destination::Destination;
use crate::discovery::{Discovery, Outcome, Progress};
use crate::epoch::CurrentEpoch;
use crate::events::{
    ClientEvent, Events, HoldEndedReason, NotHeldReason, Observer, SessionClosedReason,
};
use crate::first_window::FirstWindow;
use crate::group_symbols::GroupSymbols;
use crate::hold::{Direction, Hold, Onset};
use crate::liveness::{ASSUMED_ROUND_TRIP, ECHO_INTERVAL, Liveness, Silence};
use crate::loss_memory::{Experience, Remembered};
use crate::packet_number::PacketNumber;
use crate::randomness::Randomness;
use crate::reconnection::{RECONNECT_AFTER, Reconnection};
use crate::recorder::{Recorded, Recorder};
use crate::scheduler::Scheduler;
use crate::session::{SentEacks, Session};
use crate::stats::{AssistState, AssistStats};
use crate::thin::Thin;
use crate::timers::Timer;
use crate::token::Token;
use crate::upward::{Upward, UpwardStats};
use crate::whole_path::WholePath;

/// The sketches that this client keeps: every row of the table, all of which are power sums. Coded
/// symbols are longer for every difference, so that keeping them would cost either end time and
/// memory for nothing.
const LIMITS: SketchLimits =
    SketchLimits { power_sums: MAX_EXPECTED_DIFFERENCE as u8 + 1, coded_symbols: 0 };
/// Differences that the holes do not explain: datagrams that came after the gateway had given them
/// up, or that carry no packet number.
const UNEXPLAINED: u64 = 1;
/// The same for a selective client, beside what is lost behind its newest datagram and which the
/// gateway knows by its age.
const UNEXPLAINED_SELECTIVE: u64 = 3;
/// A stream of which nothing has come for this long may have lost sight of its subscriber.
const QUIET_STREAM: Duration = Duration::from_millis(250);
/// Datagrams that are each reported at once until packet numbers are known.
const FIRST_FLIGHT: u64 = 32;
/// Datagrams that are believed unproven, before the first packet number, where the transport says
/// what is authentic. What follows a lost Initial is encrypted with keys that are derived from it, so
/// nothing could be repaired. Forged ones in their place make the first eACKs longer, and no more
/// ([`crate::recorder`]).
const UNPROVEN_AT_FIRST: u8 = 16;
/// The first question for a gateway waits so long for the transport's first datagram, and behind it for
/// the rest of the flight, where the caller has promised one.
const FLIGHT_BEGINS: Duration = Duration::from_millis(50);
const FLIGHT_ENDS: Duration = Duration::from_millis(5);

/// A last mile is short if so many of its round trips are one to the server.
const SHORT: u32 = 4;

/// Bounds of the time for which the gateway does not hear of a hole that symbols may repair.
const WITHIN_SYMBOLS: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_millis(50);

/// Classification of a received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagram {
    /// The transport's: pass it on.
    Base,
    /// Packrat's: consumed, hide it from the transport.
    Control,
}

/// Actions that the shell must take after [`Assist::handle_timeout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeoutActions {
    /// Make the transport send a packet of any kind now, where that is possible: the next gateway
    /// knows a connection only by what its client sends, and acknowledgements sent during an outage
    /// have been lost.
    pub remind: bool,
}

/// A datagram that has arrived and may be forged.
///
/// ```text
///             arrives                 authenticated
///   nothing ----------> Provisional ----------------> in the set; without a session, its anchor
///      ^                     |
///      +---------------------+ the next datagram arrives
/// ```
#[derive(Debug, Clone, Copy)]
struct Provisional {
    material: Material,
    at: Timestamp,
    /// True if it is in the set already ([`UNPROVEN_AT_FIRST`]).
    believed: bool,
}

/// Packet numbers as the transport reports them.
#[derive(Debug)]
struct PacketNumbers {
    /// True if the transport reports them; otherwise the last datagram counts as the newest.
    known: bool,
    /// Packet numbers below this one are announced to the gateway as missing without anything
    /// newer having arrived.
    overdue_below: PacketNumber,
}

/// Control datagrams on their way out, and buffers for making them.
#[derive(Debug, Default)]
struct Outgoing {
    /// Sealed messages that are sent before anything else.
    urgent: VecDeque<Vec<u8>>,
    plaintext: Vec<u8>,
    message: Vec<u8>,
    prefix: Vec<u8>,
}

/// Assistance of one base connection, at its receiver.
///
/// Call [`Self::poll_transmit`] until it is empty after every other call that changes something,
/// and [`Self::handle_timeout`] when [`Self::next_timeout`] has come. Nothing in here can fail the
/// base connection: without a gateway every method is close to free.
///
/// ```
/// use packrat_client::{Assist, AssistState, ClientConfig, Timestamp};
///
/// // An application takes the seed from the operating system.
/// let mut assist = Assist::new(ClientConfig::default(), [7; 32], Timestamp::ZERO);
/// let question = assist.poll_transmit(Timestamp::ZERO);
/// assert!(question.is_some_and(|datagram| !datagram.is_empty()));
/// assert_eq!(assist.stats().state, AssistState::Discovering);
/// ```
#[derive(Debug)]
pub struct Assist {
    config: ClientConfig,
    random: Randomness,
    discovery: Discovery,
    session: Option<Box<Session>>,
    hold: Hold,
    direction: Direction,
    path: PathEstimate,
    numbers: PacketNumbers,
    outgoing: Outgoing,
    reconnection: Reconnection,
    thin: Thin,
    /// Since the shell has asked for bundles.
    bundling: Option<Box<Bundling>>,
    destination: Destination,
    /// The first question is behind the transport's first flight, or waits for it until then.
    question_from: Option<Timestamp>,
    /// The datagram that was passed in last, while nothing has authenticated it.
    provisional: Option<Provisional>,
    /// Its identifier in the session.
    identifier: Option<Identifier>,
    /// The round trip to the server, as the transport's first datagrams have it.
    whole_path: WholePath,
    first_window: FirstWindow,
    /// The last mile is a small part of the way to the server, once that is known.
    is_short: Option<bool>,
    /// Datagrams that were authentic.
    authentic: u64,
    /// Datagrams that may still be believed unproven.
    unproven: u8,
    /// The server is to hear from this client.
    remind: bool,
    closed: bool,
    stats: AssistStats,
    events: Events,
}

impl Assist {
    /// `seed`: 32 fresh random bytes from the operating system. The first [`Self::poll_transmit`]
    /// asks for a gateway.
    pub fn new(config: ClientConfig, seed: [u8; 32], now: Timestamp) -> Self {
        Self::begin(config, None, seed, now)
    }

    /// The same for a caller that takes numbers off the datagrams.
    pub(crate) fn with_numbers(config: ClientConfig, seed: [u8; 32], now: Timestamp) -> Self {
        let to_server = config.uploads;
        let wish = Numbered { to_client: true, to_server, coded: true, largest: u16::MAX };
        let mut assist = Self::begin(config, Some(wish), seed, now);
        assist.hold.number_places();
        assist
    }

    fn begin(
        config: ClientConfig,
        numbered: Option<Numbered>,
        seed: [u8; 32],
        now: Timestamp,
    ) -> Self {
        let mut random = Randomness::new(seed);
        let thin = Thin::new(config.makes_copies(), now);
        let client_params = ClientParams {
            scheme: config.scheme,
            limits: LIMITS,
            maximum_hold: config.access.maximum_hold,
            token: config.access.token.as_bytes().to_vec(),
            live: config.live,
            numbered,
            ticket: None,
            bundles: config.live.is_none(),
        };
        let (nonce, seed) = random.attempt();
        Self {
            discovery: Discovery::new(client_params, config.access.gateway_key, nonce, seed, now),
            // The server of many receivers is asked last of all.
            direction: Direction::default(),
            hold: Hold::new(
                expected_repair_time(&config),
                config.live.is_some(),
                config.live.is_some_and(|live| live.subscribe),
            ),
            config,
            random,
            session: None,
            path: PathEstimate::new(),
            numbers: PacketNumbers { known: false, overdue_below: PacketNumber::new(0) },
            outgoing: Outgoing::default(),
            reconnection: Reconnection::default(),
            thin,
            bundling: None,
            destination: Destination::default(),
            question_from: None,
            provisional: None,
            identifier: None,
            whole_path: WholePath::default(),
            first_window: FirstWindow::default(),
            is_short: None,
            authentic: 0,
            unproven: UNPROVEN_AT_FIRST,
            remind: false,
            closed: false,
            stats: AssistStats::default(),
            events: Events::default(),
        }
    }

    /// Believes nothing that the caller has not said to be authentic, not even at first: it can say
    /// so of each datagram.
    pub(crate) fn believe_proven_only(&mut self) {
        self.unproven = 0;
    }

    /// Tells `observer` of everything from here on. Without one, events are not even made.
    pub fn observe(&mut self, observer: Observer) {
        self.hold.observe(observer.clone());
        self.events = Events::to(observer);
    }

    /// Tells the observer, if there is one.
    pub(crate) fn tell(&self, now: Timestamp, event: impl FnOnce() -> ClientEvent) {
        self.events.tell(now, event);
    }

    /// A UDP payload arrived: still encrypted, exactly as received, one datagram.
    ///
    /// Nothing is believed of [`Datagram::Base`] until [`Self::on_packet_number`] or
    /// [`Self::on_authentic`] says that it is authentic; the next datagram takes its place otherwise.
    /// (The first 16 of a connection are believed at once, until it has a packet number: a transport
    /// that has lost its first packet can't authenticate the next.) A caller that knows at once passes
    /// it to [`Self::on_packet`].
    pub fn on_datagram(&mut self, datagram: &[u8], now: Timestamp) -> Datagram {
        self.provisional = None;
        if is_control(datagram) {
            // Without a session, what is no control datagram of this protocol is the transport's:
            // its own datagrams may begin like this, too.
            if self.session.is_none() && Control::decode(datagram).is_err() {
                return Datagram::Base;
            }
            self.stats.control_bytes_received += datagram.len() as u64;
            self.on_control(datagram, now);
            return Datagram::Control;
        }
        self.stats.datagrams += 1;
        self.whole_path.on_received(now);
        if let Some(bundling) = &mut self.bundling {
            bundling.on_received(self.whole_path.round_trip(), now);
        }
        self.direction.on_received(datagram.len());
        if self.first_window.on_received(self.path.minimum_round_trip(), now) {
            self.on_large_window(now);
        }
        self.destination.on_received(datagram);
        self.stats.bytes += datagram.len() as u64;
        self.events.tell(now, || ClientEvent::DatagramReceived { bytes: datagram.len() });
        let (material, found) = match &mut self.session {
            Some(session) => {
                let material = session.recorder.material(datagram);
                (material, Some(session.recorder.look_up(&material, now)))
            }
            None => (Material::of(self.config.scheme, datagram), None),
        };
        self.identifier = found.map(|(identifier, _)| identifier);
        if let Some(session) = &mut self.session
            && let (Some(group), Some((identifier, false))) = (&mut session.group, found)
        {
            group.on_datagram(identifier, datagram, |bytes| session.recorder.identify(bytes));
        }
        // A second copy of what is authentic proves nothing new, and does no harm: it says that the
        // gateway is in doubt.
        if found.is_some_and(|(_, is_known)| is_known) {
            self.stats.duplicates += 1;
            self.events.tell(now, || ClientEvent::DuplicateReceived);
            self.on_sign_of_life(now);
        } else {
            let believed = !self.numbers.known && self.unproven > 0;
            self.provisional = Some(Provisional { material, at: now, believed });
            if believed {
                self.unproven -= 1;
                self.believe(material, now);
                if let Some(session) = &mut self.session {
                    session.recorder.doubt();
                }
            }
        }
        Datagram::Base
    }

    /// The sender has begun like none that answers losses.
    #[cold]
    fn on_large_window(&mut self, now: Timestamp) {
        let Some(session) = self.session.as_mut().filter(|_| self.config.live.is_none()) else {
            return;
        };
        session.scheduler.on_urgent(now);
        self.hold.give_up(HoldEndedReason::LargeWindow, now);
    }

    /// The next datagram recovered from the symbols that the gateway sends to all subscribers of a
    /// stream: pass it to [`Self::on_datagram`] as one that has arrived, and to the transport. Call it
    /// after each datagram until it is empty. There are none unless [`Live::symbols`] asks for them.
    ///
    /// [`Live::symbols`]: crate::Live::symbols
    pub fn poll_recovered(&mut self) -> Option<Vec<u8>> {
        let session = self.session.as_mut()?;
        let datagram = session.group.as_mut()?.take()?;
        self.stats.recovered_from_group += 1;
        Some(datagram)
    }

    /// An authentic datagram of a transport that authenticates before it passes anything on, and
    /// the number of its packet: [`Self::on_datagram`] and [`Self::on_packet_number`] in one call.
    ///
    /// ```
    /// use packrat_client::{Assist, ClientConfig, Datagram, PacketNumber, Timestamp};
    ///
    /// let mut assist = Assist::new(ClientConfig::default(), [7; 32], Timestamp::ZERO);
    /// let number = PacketNumber::new(0);
    /// let arrived = assist.on_packet(b"ciphertext and tag", number, Timestamp::ZERO);
    /// assert_eq!(arrived, Datagram::Base);
    /// assert_eq!(assist.stats().holes, 0);
    /// ```
    pub fn on_packet(
        &mut self,
        datagram: &[u8],
        packet_number: PacketNumber,
        now: Timestamp,
    ) -> Datagram {
        let arrived = self.on_datagram(datagram, now);
        if arrived == Datagram::Base {
            self.on_packet_number(packet_number, now);
        }
        arrived
    }

    /// Which session this is, counted from 1, and the key of the numbers in it, where numbers were
    /// agreed.
    pub(crate) fn number_key(&self) -> Option<(u64, NumberKey)> {
        Some((self.stats.sessions, self.session.as_ref()?.number_key?))
    }

    /// The highest number that has arrived.
    pub(crate) fn highest_arrived(&self) -> Option<PacketNumber> {
        self.hold.highest_arrived()
    }

    /// True if repair by code was agreed in the session.
    pub(crate) fn repairs_by_code(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.coded.is_some())
    }

    /// The next symbol of the gateway's code.
    pub(crate) fn take_symbol(&mut self) -> Option<Symbol> {
        self.session.as_mut()?.coded.as_mut()?.take()
    }

    /// A datagram was recovered from symbols.
    pub(crate) fn on_recovered(&mut self, now: Timestamp) {
        let Some(session) = &mut self.session else { return };
        session.onset.on_recovered(session.queue_stands, now);
        if !session.queue_stands {
            self.thin.on_lost();
        }
        if let Some(coded) = &mut session.coded {
            coded.on_recovered();
        }
    }

    /// True if what is missing may be recovered from symbols that are still to come.
    fn is_coded(&self, now: Timestamp) -> bool {
        let coded = self.session.as_ref().and_then(|session| session.coded.as_ref());
        coded.is_some_and(|coded| coded.is_active(now))
    }

    /// The identifier of the datagram that was passed in last, if there was a session.
    pub(crate) fn identifier(&self) -> Option<Identifier> {
        self.identifier
    }

    /// The transport decrypted a packet without a number of use here, such as one of the handshake:
    /// the datagram that was passed in last is authentic.
    pub fn on_authentic(&mut self, now: Timestamp) {
        let Some(Provisional { material, at, believed }) = self.provisional.take() else { return };
        self.authentic += 1;
        if self.authentic == 1 {
            self.discovery.on_path_alive(now);
        }
        if !believed {
            self.believe(material, at);
        } else if let Some(session) = &mut self.session {
            session.recorder.trust();
        }
    }

    /// Takes a datagram into the set.
    fn believe(&mut self, material: Material, at: Timestamp) {
        if self.session.is_some() {
            self.thin.on_arrived(1);
        }
        match &mut self.session {
            Some(session) => match session.recorder.record(material, at) {
                Recorded::New if !self.numbers.known => session.recorder.mark_newest(),
                Recorded::New => {}
                Recorded::Duplicate => self.stats.duplicates += 1,
                Recorded::Collision => self.stats.identifier_collisions += 1,
            },
            None => self.reconnection.last_material = Some(material),
        }
        self.on_sign_of_life(at);
    }

    /// An authentic datagram has arrived, for the first time or once more.
    fn on_sign_of_life(&mut self, now: Timestamp) {
        self.reconnection.on_datagram(now);
        let quiet_after = self.quiet_after();
        let Some(session) = &mut self.session else { return };
        session.scheduler.on_datagram(now);
        session.liveness.on_datagram(quiet_after, now);
        session.onset.on_datagram(now);
        // The first flight has no packet numbers that would show a hole, and its loss costs the
        // most: a timeout, or slow start.
        if !self.numbers.known && self.authentic <= FIRST_FLIGHT {
            session.scheduler.on_precious(now);
        }
    }

    /// The first packet number that is waited for: what is above it waits, too.
    pub fn deliverable(&self) -> PacketNumber {
        match self.hold.first_held() {
            Some(first) if self.stats.sessions > 0 && !self.closed => first,
            _ => PacketNumber::MAX,
        }
    }

    /// The transport has authenticated a packet with a number: it was in the datagram that was passed
    /// in last, which is therefore authentic.
    pub fn on_packet_number(&mut self, packet_number: PacketNumber, now: Timestamp) {
        if !self.hold.has_arrived(packet_number) {
            self.on_arrival(packet_number, now);
        }
        self.provisional = None;
    }

    /// The datagram that was passed in last carries a packet of this number.
    fn on_arrival(&mut self, packet_number: PacketNumber, now: Timestamp) {
        self.on_authentic(now);
        self.numbers.known = true;
        let (not_held, is_coded) = (self.not_held(now), self.is_coded(now));
        let is_first_hole = self.hold.held() == 0;
        let within = self.config.live.map(|live| within_symbols(live.window));
        let arrival = self.hold.on_arrival(packet_number, not_held, now, &mut self.stats);
        if let Some(session) = &mut self.session {
            session.recorder.join(packet_number);
            if arrival.newest {
                session.recorder.mark_newest();
            }
            if arrival.filled_hole {
                session.liveness.on_repair();
            }
            // What was announced as overdue is asked for already.
            let symbols = session.group.as_ref().is_some_and(|group| group.is_active(now));
            session.scheduler.set_symbols(within.filter(|_| symbols));
            if arrival.opened_hole
                && !session.scheduler.leaves_to_symbols(is_first_hole, now)
                && packet_number > self.numbers.overdue_below
                && !is_coded
            {
                session.scheduler.on_urgent(now);
            }
            if arrival.opened_hole {
                session.onset.on_hole();
                if let Some(bundling) = &mut self.bundling {
                    bundling.on_hole(now);
                }
            }
            if let Some(time) = arrival.missed_for
                && session.onset.on_filled(time, session.queue_stands, now)
            {
                self.thin.on_lost();
            }
        }
    }

    /// By its sender's clock a packet should be here by now, and nothing newer has come that would
    /// show the hole: the gateway is told at once. For live streams: the gateway takes what it
    /// forwarded more than a round trip before the eACK for missing.
    pub fn on_overdue(&mut self, packet_number: PacketNumber, now: Timestamp) {
        self.numbers.overdue_below =
            self.numbers.overdue_below.max(packet_number.saturating_add(1));
        if let Some(session) = &mut self.session {
            session.scheduler.on_urgent(now);
        }
    }

    /// True if a packet with this number has arrived.
    pub(crate) fn has_arrived(&self, packet_number: PacketNumber) -> bool {
        self.hold.has_arrived(packet_number)
    }

    /// True if the client still waits for a missing packet: the gateway may repair it, so that the
    /// sender need not know yet.
    pub fn is_awaited(&self, packet_number: PacketNumber) -> bool {
        self.hold.is_held(packet_number)
    }

    fn is_selective(&self) -> bool {
        self.config.live.is_some_and(|live| live.selective)
    }

    /// The reason for not waiting for a hole that opens now; `None`: it is waited for.
    fn not_held(&self, now: Timestamp) -> Option<NotHeldReason> {
        if self.config.access.maximum_hold.is_zero() {
            return Some(NotHeldReason::Disabled);
        }
        let Some(session) = self.session.as_ref().filter(|_| !self.closed) else {
            return Some(NotHeldReason::NoSession);
        };
        if self.config.live.is_none() && self.direction.is_upload() {
            return Some(NotHeldReason::Uploading);
        }
        if self.config.live.is_none() && self.first_window.is_large() {
            return Some(NotHeldReason::LargeWindow);
        }
        if self.is_coded(now) {
            return session.liveness.is_silent().then_some(NotHeldReason::Silent);
        }
        // The receiver of a live stream asks its sender for what is not held.
        let is_off = self.config.queues_lose && !session.onset.is_on(now);
        if self.config.live.is_none() && is_off {
            return Some(NotHeldReason::NoRecentLoss);
        }
        if session.queue_stands {
            return Some(NotHeldReason::QueueStands);
        }
        session.liveness.is_silent().then_some(NotHeldReason::Silent)
    }

    fn on_control(&mut self, datagram: &[u8], now: Timestamp) {
        let Ok(control) = Control::decode(datagram) else {
            self.stats.control_dropped += 1;
            return;
        };
        match control {
            Control::Sealed { .. } => return self.on_sealed(datagram, now),
            Control::Refusal { nonce, reason: RefusalReason::Session, .. } => {
                return self.on_doubt(nonce, now);
            }
            _ => {}
        }
        let random = &mut self.random;
        match self.discovery.on_control(&control, now, || random.word()) {
            Outcome::Dropped => self.stats.control_dropped += 1,
            Outcome::Progress => {
                if let Progress::Refused(reason) = self.discovery.progress() {
                    self.events.tell(now, || ClientEvent::Refused { reason });
                }
            }
            Outcome::Established(established, sample) => {
                self.on_established(*established, sample, now)
            }
        }
    }

    /// Anybody who sees the datagrams can say that the session does not exist: ask once more before
    /// believing it.
    fn on_doubt(&mut self, nonce: u64, now: Timestamp) {
        let Some(session) = self.session.as_mut().filter(|session| session.has_sent(nonce)) else {
            self.stats.control_dropped += 1;
            return;
        };
        if session.liveness.on_doubt(&self.path, now) {
            session.scheduler.on_urgent(now);
        }
    }

    fn on_established(
        &mut self,
        established: Established,
        sample: Option<Duration>,
        now: Timestamp,
    ) {
        let mut onset = Onset::default();
        if let Some(sample) = sample {
            self.path.on_round_trip(sample);
            self.thin.on_round_trip(sample);
            onset.on_round_trip(sample, false, now);
        }
        if self.stats.sessions == 0 {
            self.thin.on_answer(established.gateway_params.hint, now);
        }
        self.stats.sessions += 1;
        self.stats.gateway_key = established.gateway_key;
        self.discovery.set_ticket(established.gateway_params.ticket);
        if self.reconnection.on_established() {
            // What the server sends still goes to the gateway before.
            self.remind = true;
        }
        let mut scheduler = Scheduler::new(self.is_selective());
        // The first eACK tells the gateway at once where the client's set begins.
        scheduler.on_urgent(now);
        let session = established.sealer.session();
        self.events.tell(now, || ClientEvent::SessionOpened { session });
        self.count_upward();
        let upward = Upward::new(&established.gateway_params, sample, now).map(Box::new);
        let wished = self.config.live.is_some_and(|live| live.symbols);
        let symbols = established.gateway_params.symbols.as_deref().filter(|_| wished);
        let symbols = symbols.map(|key| GroupSymbols::new(*key));
        // An anchor that was recorded by another scheme names nothing.
        let scheme = established.gateway_params.scheme;
        let material =
            self.reconnection.last_material.as_ref().filter(|_| scheme == self.config.scheme);
        self.session = Some(Box::new(Session {
            recorder: Recorder::new(&established.gateway_params, material),
            number_key: established
                .gateway_params
                .numbered
                .filter(|numbered| numbered.to_client)
                .map(|_| established.gateway_params.number_key()),
            sealer: established.sealer,
            fresh_names: established.gateway_params.names()[1..].to_vec().into_iter(),
            opener: established.opener,
            coded: established
                .gateway_params
                .numbered
                .filter(|numbered| numbered.is_coded())
                .map(|_| Coded::default()),
            group: symbols.map(Box::new),
            bundles: established.gateway_params.bundles,
            upward,
            scheduler,
            epoch: CurrentEpoch::first(),
            sent: SentEacks::default(),
            liveness: Liveness::default(),
            onset,
            queue_stands: false,
        }));
        // In one session of sixteen: a gateway must bear what it does not know.
        if let Some(plaintext) = grease_message(self.discovery.nonce()) {
            self.send_plaintext(&plaintext);
        }
    }

    fn on_sealed(&mut self, datagram: &[u8], now: Timestamp) {
        let mut plaintext = core::mem::take(&mut self.outgoing.plaintext);
        if let Some(session) = &mut self.session
            && let Some(group) = session.group.as_mut().filter(|one| one.is_for_group(datagram))
        {
            let identify = |bytes: &[u8]| session.recorder.identify(bytes);
            let is_symbol = group.on_sealed(datagram, &mut plaintext, identify, now);
            self.stats.control_dropped += u64::from(!is_symbol);
            self.outgoing.plaintext = plaintext;
            return;
        }
        let opened = match &mut self.session {
            Some(session) => session.opener.open(datagram, &mut plaintext).is_ok(),
            None => false,
        };
        if opened && let Some(session) = &mut self.session {
            self.remind |= session.liveness.on_authentic(now);
            if let Some(upward) = &mut session.upward {
                upward.on_authentic();
            }
        }
        match Message::decode(&plaintext) {
            _ if !opened => self.stats.control_dropped += 1,
            Ok(Message::Report(report)) => self.on_report(&report, now),
            Ok(Message::Reset { epoch, reason }) => self.on_reset(epoch, reason, now),
            Ok(Message::Baseline { epoch, set, .. }) => self.on_baseline(epoch, set, now),
            Ok(Message::Goodbye { .. }) => {
                self.lose_gateway(SessionClosedReason::Goodbye, RECONNECT_AFTER, now);
                // It goes on forwarding: there is nothing to remind of yet.
                self.reconnection.on_datagram(now);
            }
            Ok(Message::Coded(coded)) => self.on_symbol(Symbol::from(&coded), now),
            Ok(Message::Holes(holes)) => {
                if let Some(upward) = self.upward() {
                    upward.on_holes(&holes, now);
                    let missing = holes.runs().map(|run| u64::from(run.count)).sum();
                    let wanted = holes.wanted;
                    self.events.tell(now, || ClientEvent::HolesReceived { missing, wanted });
                }
            }
            // This address was asked whether it is there; the answer must leave from where the
            // question came to.
            Ok(Message::PathChallenge { data }) => {
                self.events.tell(now, || ClientEvent::PathChallenged);
                self.send_urgently(&Message::PathResponse { data })
            }
            // A later message, or one without meaning.
            Err(DecodeError::MessageType(_)) => {}
            Ok(_) | Err(_) => self.stats.control_dropped += 1,
        }
        self.outgoing.plaintext = plaintext;
    }

    fn on_symbol(&mut self, symbol: Symbol, now: Timestamp) {
        let Some(coded) = self.session.as_mut().and_then(|session| session.coded.as_mut()) else {
            return;
        };
        coded.on_symbol(symbol, now);
        self.limit_hold(now);
    }

    fn upward(&mut self) -> Option<&mut Upward> {
        self.session.as_mut()?.upward.as_deref_mut()
    }

    /// The transport sends a datagram: what goes in front of it.
    pub(crate) fn on_send(&mut self, datagram: &[u8], now: Timestamp) -> Option<NumberHeader> {
        if self.closed || is_control(datagram) {
            return None;
        }
        self.note_sent(datagram, now);
        // What waits leaves behind this one: not to a connection ID that this one may retire.
        if let Self { bundling: Some(bundling), destination, .. } = self {
            bundling.hurry(now);
            bundling.retain(|datagram| destination.is_in_use(datagram));
        }
        // One that uploads sends all the time: the gateway's Reports are the answers to its eACKs.
        let mut expects_answer = false;
        if let Some(session) = &mut self.session {
            if session.upward.is_none() {
                session.scheduler.on_company(now);
            }
            if session.scheduler.is_silent(now) && session.liveness.on_quiet() {
                session.scheduler.on_urgent(now);
            } else {
                let liveness = &session.liveness;
                expects_answer = session.upward.is_none() && liveness.quiet_deadline().is_none();
            }
        }
        if expects_answer {
            let quiet_after = self.quiet_after();
            if let Some(session) = &mut self.session {
                session.liveness.on_sent(quiet_after, now);
            }
        }
        let number = self.number(datagram, now);
        let is_free = self.session.as_ref().is_none_or(|session| !session.queue_stands);
        // A copy of a numbered one would pass those that wait for a missing one at the gateway, which
        // asks for what is missing in any case.
        if number.is_none() {
            self.thin.on_send(datagram, is_free, now);
        }
        if self.question_from.is_some() {
            self.question_from = Some(now + FLIGHT_ENDS);
        }
        number
    }

    fn note_sent(&mut self, datagram: &[u8], now: Timestamp) {
        self.whole_path.on_sent(now);
        self.direction.on_sent(datagram.len());
        self.follow_destination(datagram);
    }

    fn sends_bundles(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.bundles)
    }

    /// See [`crate::Shim::bundle`].
    pub(crate) fn bundle(&mut self, datagram: &[u8], now: Timestamp) -> bool {
        if self.closed || !Bundling::suits(datagram) || !self.direction.is_download() {
            return false;
        }
        let (held, round_trip) = (self.hold.held(), self.path.round_trip());
        let Some(session) = self.session.as_mut().filter(|session| session.bundles) else {
            return false;
        };
        let bundling = self.bundling.get_or_insert_default();
        if session.scheduler.is_silent(now) || !bundling.has_room() {
            return false;
        }
        let wait = bundling.wait(self.whole_path.round_trip(), now);
        if wait.is_zero() {
            session.scheduler.on_company(now);
            if session.scheduler.due(held > 0, round_trip).is_none_or(|due| due > now) {
                return false;
            }
        }
        bundling.take(datagram, wait, now);
        self.note_sent(datagram, now);
        true
    }

    /// The transport sends a datagram: if it has left a connection ID, nothing is sent there again.
    fn follow_destination(&mut self, datagram: &[u8]) {
        let Self { destination, thin, session, .. } = self;
        if destination.on_sent(datagram) {
            thin.on_destination(destination);
            if let Some(upward) = session.as_mut().and_then(|session| session.upward.as_mut()) {
                upward.retain(|datagram| destination.is_in_use(datagram));
            }
        }
    }

    /// True if a sender that tolerates losses gains by repairs: the last mile is a small part of the way
    /// to the server. It is said once for a path: a sender whose repairs begin in the middle takes their
    /// delay for a slower path.
    fn is_worth_it_for_the_tolerant(&mut self) -> bool {
        if self.is_short.is_none() {
            let paths = self.path.minimum_round_trip().zip(self.whole_path.round_trip());
            self.is_short = paths.map(|(last_mile, whole)| last_mile * SHORT <= whole);
        }
        self.is_short.unwrap_or(false)
    }

    fn number(&mut self, datagram: &[u8], now: Timestamp) -> Option<NumberHeader> {
        self.session.as_ref()?.upward.as_ref()?;
        if self.config.tolerates_losses && !self.is_worth_it_for_the_tolerant() {
            return None;
        }
        let session = self.session.as_mut()?;
        let upward = session.upward.as_deref_mut()?;
        if !upward.takes(datagram.len(), self.direction.is_download(), now) {
            return None;
        }
        Some(upward.number(datagram, session.recorder.identify(datagram), now))
    }

    /// See [`crate::Shim::on_refused`].
    pub(crate) fn on_refused(&mut self, length: usize) {
        if let Some(upward) = self.upward() {
            upward.on_refused(length);
        }
    }

    /// See [`crate::Shim::remember`].
    pub(crate) fn remember(&mut self, remembered: Remembered) {
        self.thin.remember(remembered);
        self.discovery.set_copies(self.thin.copies_of_each(), self.thin.spacing());
    }

    /// See [`crate::Shim::experience`].
    pub(crate) fn experience(&self) -> Experience {
        self.thin.experience()
    }

    /// See [`crate::Shim::expect_first_flight`].
    pub(crate) fn expect_first_flight(&mut self, now: Timestamp) {
        if self.config.makes_copies() {
            self.question_from = Some(now + FLIGHT_BEGINS);
        }
    }

    /// See [`crate::Shim::end_first_flight`].
    pub(crate) fn end_first_flight(&mut self) {
        self.question_from = None;
    }

    /// Takes over the figures of the session before it is forgotten.
    fn count_upward(&mut self) {
        let Some(upward) = self.upward() else { return };
        let UpwardStats { numbered, missing, repairs, repair_bytes } =
            core::mem::take(&mut upward.stats);
        self.stats.upward_numbered += numbered;
        self.stats.upward_missing += missing;
        self.stats.upward_repairs += repairs;
        self.stats.upward_repair_bytes += repair_bytes;
    }

    /// While a queue stands, a hole waits for the code only.
    fn limit_hold(&mut self, now: Timestamp) {
        let Some(session) = &self.session else { return };
        let coded = session.coded.as_ref().filter(|coded| coded.is_active(now));
        self.hold.limit_patience(coded.filter(|_| session.queue_stands).map(Coded::wait));
    }

    fn on_report(&mut self, report: &Report, now: Timestamp) {
        self.stats.reports += 1;
        self.reconnection.on_report();
        self.stats.gateway = report.totals;
        let Some(session) = &mut self.session else { return };
        session.queue_stands = !report.queueing.is_zero();
        self.events.tell(now, || ClientEvent::ReportReceived {
            eack: report.echo,
            missing: report.missing,
            wanted_symbols: report.wanted.map(|wanted| wanted.count()),
            queue_stands: !report.queueing.is_zero(),
        });
        session.liveness.on_answer(report.echo);
        if let Some(asked) = session.sent.time_of(report.echo) {
            self.first_window.on_answer(asked);
        }
        if report.wanted.is_none() && report.epoch == session.epoch.number() {
            session.recorder.on_decoded(report.echo);
        }
        let was_on = session.onset.is_on(now);
        let sample = session.round_trip_of(report, now);
        if let Some(sample) = sample {
            session.onset.on_round_trip(sample, session.queue_stands, now);
        }
        if session.queue_stands {
            session.onset.on_queue();
        }
        let turned_off = self.config.queues_lose && was_on && !session.onset.is_on(now);
        if turned_off && self.config.live.is_none() && !self.is_coded(now) {
            self.hold.give_up(HoldEndedReason::QueueStands, now);
        }
        self.limit_hold(now);
        let Some(session) = &mut self.session else { return };
        if report.epoch != session.epoch.number() {
            return;
        }
        session.epoch.confirm();
        if let Some(sample) = sample {
            self.path.on_round_trip(sample);
            self.thin.on_round_trip(sample);
        }
        if let Some(wanted) = report.wanted.filter(|wanted| session.recorder.can_give(*wanted)) {
            let round_trip = self.path.round_trip().unwrap_or(ASSUMED_ROUND_TRIP);
            if session.epoch.want(wanted, round_trip, now) {
                session.scheduler.on_urgent(now);
            }
        }
        if let Some(settled) =
            report.settled.and_then(|settled| session.recorder.packet_number(settled))
            && self.hold.settle(settled, now, &mut self.stats)
            && session.number_key.is_none()
        {
            // The transport's numbers: its sender has left one out. The gateway leaves none out, and
            // what is settled of its own has come without a number, as an early repair does.
            session.onset.on_settled();
        }
    }

    fn on_reset(&mut self, epoch: Epoch, reason: ResetReason, now: Timestamp) {
        let Some(session) = &mut self.session else { return };
        // A Reset that was heard before is not heard again.
        if !epoch.is_newer_than(session.epoch.number()) {
            return;
        }
        self.stats.resets += u64::from(reason != ResetReason::ClientOverflow);
        self.events.tell(now, || ClientEvent::Reset { epoch, reason });
        session.epoch.begin(epoch);
        session.recorder.reset();
        session.scheduler.on_urgent(now);
    }

    /// A new epoch that begins with more than there is: the gateway knows what this client will
    /// never get, and counts it as received.
    fn on_baseline(&mut self, epoch: Epoch, set: &[u8], now: Timestamp) {
        let Some(session) = &mut self.session else { return };
        // It comes again until an eACK has told of it.
        if !epoch.is_newer_than(session.epoch.number()) {
            return;
        }
        if session.recorder.add(set) {
            session.epoch.begin_from_baseline(epoch);
            self.events.tell(now, || ClientEvent::Baseline { epoch });
        } else {
            self.stats.control_dropped += 1;
        }
    }

    /// Seals a message that is sent before anything else.
    fn send_urgently(&mut self, message: &Message<'_>) {
        let mut plaintext = core::mem::take(&mut self.outgoing.message);
        plaintext.clear();
        message.encode(&mut plaintext);
        self.send_plaintext(&plaintext);
        self.outgoing.message = plaintext;
    }

    fn send_plaintext(&mut self, plaintext: &[u8]) {
        let Some(session) = &mut self.session else { return };
        let mut datagram = Vec::new();
        // A used-up counter costs the message; the session ends at the next eACK.
        if session.sealer.seal(plaintext, &mut datagram).is_ok() {
            self.outgoing.urgent.push_back(datagram);
        }
    }

    /// The gateway is gone: nothing is waited for any more, another one is looked for.
    fn lose_gateway(&mut self, reason: SessionClosedReason, wait: Duration, now: Timestamp) {
        self.hold.give_up(HoldEndedReason::SessionClosed, now);
        self.tell_closed(reason, now);
        self.count_upward();
        self.session = None;
        let at = self.reconnection.on_lost(wait, now);
        let (nonce, seed) = self.random.attempt();
        self.discovery.restart(nonce, seed, at);
        self.discovery.expect_successor();
    }

    /// Tells of the end of the session, if there is one.
    fn tell_closed(&self, reason: SessionClosedReason, now: Timestamp) {
        if let Some(session) = &self.session {
            let session = session.sealer.session();
            self.events.tell(now, || ClientEvent::SessionClosed { session, reason });
        }
    }

    /// The next control datagram to send to the peer's address from the base connection's own
    /// socket.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if self.outgoing.urgent.is_empty()
            && !self.closed
            && let Some((place, again)) = self.upward().and_then(|upward| upward.poll_transmit(now))
        {
            let bytes = again.len();
            self.events.tell(now, || ClientEvent::DatagramSentAgain { place, bytes });
            return Some(again);
        }
        if !self.closed
            && let Some(copy) = self.thin.poll_transmit(now)
        {
            let bytes = copy.len();
            self.events.tell(now, || ClientEvent::CopySent { bytes });
            return Some(copy);
        }
        if (self.closed || !self.sends_bundles())
            && let Some(own) = self.bundling.as_mut().and_then(|bundling| bundling.alone(false))
        {
            return Some(own);
        }
        let datagram = match self.outgoing.urgent.pop_front() {
            Some(urgent) => Some(urgent),
            None if self.closed => None,
            None if self.session.is_some() => return self.poll_with_bundle(now),
            None if self.question_from.is_some_and(|from| now < from) => None,
            None => {
                let random = &mut self.random;
                let question = self.discovery.poll_transmit(now, || random.attempt());
                if question.is_some() {
                    self.question_from = None;
                    self.thin.on_question();
                }
                question
            }
        }?;
        self.stats.control_bytes_sent += datagram.len() as u64;
        Some(datagram)
    }

    /// The next eACK, with what waits to leave with it; or what has waited long enough.
    fn poll_with_bundle(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        let due = self.bundling.as_ref().and_then(|bundling| bundling.deadline());
        let is_due = due.is_some_and(|due| due <= now);
        if is_due && let Some(session) = &mut self.session {
            session.scheduler.on_company(now);
        }
        let eack = self.poll_eack(now);
        let agreed = self.sends_bundles();
        let bundling = self.bundling.as_mut().filter(|_| due.is_some());
        match (eack, bundling) {
            (Some(eack), bundling) => {
                self.stats.control_bytes_sent += eack.len() as u64;
                Some(match bundling {
                    Some(bundling) => bundling.with(eack),
                    None => eack,
                })
            }
            (None, Some(bundling)) if is_due => bundling.alone(agreed),
            (None, _) => None,
        }
    }

    fn poll_eack(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        let selective = self.is_selective();
        let session = self.session.as_mut()?;
        let held = self.hold.held();
        if session.scheduler.due(held > 0, self.path.round_trip())? > now {
            return None;
        }
        let overdue = self
            .hold
            .highest_arrived()
            .map_or(0, |last| self.numbers.overdue_below.get().saturating_sub(last.get() + 1));
        let unexplained = if selective { UNEXPLAINED_SELECTIVE } else { UNEXPLAINED };
        let unexplained = unexplained + session.recorder.unproven();
        let expected = self.hold.expected_missing(&self.path, now) + overdue + unexplained;
        let expected = match self.config.longest_prefix {
            true => MAX_EXPECTED_DIFFERENCE,
            false => usize::try_from(expected).unwrap_or(usize::MAX),
        };
        let sized = session.recorder.encoding_for(expected);
        let wanted = session.epoch.wanted(now);
        let Outgoing { message, prefix, .. } = &mut self.outgoing;
        let encoding = sized.into_iter().chain(wanted).max_by_key(|encoding| encoding.decodable());
        let encoding = encoding.filter(|encoding| session.recorder.write_prefix(*encoding, prefix));
        let Some(encoding) = encoding else {
            session.scheduler.on_sent(now);
            return None;
        };
        // A live stream has no time to lose, and the gateway judges uploads by what it hears often.
        let always = self.config.live.is_some() || session.upward.is_some();
        let wants_echo = session.liveness.wants_echo(always || held > 0, now);
        let newest = session.recorder.newest();
        let eack = Eack {
            epoch: session.epoch.number(),
            echo: wants_echo,
            newest: newest.map(|(identifier, _)| identifier),
            newest_age: newest.map_or(Duration::ZERO, |(_, at)| now.saturating_since(at)),
            holes: u8::try_from(held).unwrap_or(u8::MAX),
            anchor: session.recorder.anchor().filter(|_| !session.epoch.is_confirmed()),
            encoding,
            prefix,
        };
        message.clear();
        Message::Eack(eack).encode(message);
        let mut datagram = Vec::with_capacity(message.len() + packrat_wire::seal::OVERHEAD);
        let Ok(counter) = session.sealer.seal(message, &mut datagram) else {
            // The counter is used up: a new session goes on where this one ends.
            self.lose_gateway(SessionClosedReason::Exhausted, RECONNECT_AFTER, now);
            return None;
        };
        if wants_echo {
            session.liveness.on_asked(counter, now);
        }
        self.events.tell(now, || ClientEvent::EackSent {
            eack: counter,
            epoch: session.epoch.number(),
            symbols: encoding.count(),
            held,
            bytes: datagram.len(),
        });
        session.recorder.on_told(counter);
        session.sent.push(counter, reference_of(&datagram), now);
        session.scheduler.on_sent(now);
        let coded = session.coded.as_mut().and_then(|coded| coded.untold(now));
        let group = session.group.as_mut().and_then(|group| group.untold(now));
        let untold = coded.or(group);
        self.stats.eacks += 1;
        self.stats.eack_bytes += datagram.len() as u64;
        if let Some(total) = untold {
            self.send_urgently(&Message::Recovered { total });
        }
        Some(datagram)
    }

    /// Silence after which the client asks the gateway for an echo; `None`: it never asks.
    fn quiet_after(&self) -> Option<Duration> {
        let session = self.session.as_ref()?;
        let echo = session.liveness.echo_wait(&self.path).max(ECHO_INTERVAL);
        match self.config.live {
            // A stream that stops may go on at an address that the subscriber has no more.
            Some(live) if live.subscribe => Some(echo.max(QUIET_STREAM)),
            // It says now and then that it is there.
            _ if self.is_selective() => None,
            _ => Some(echo),
        }
    }

    /// The table of the connection's timers: when each is due, if it runs.
    fn deadline(&self, timer: Timer) -> Option<Timestamp> {
        let session = self.session.as_deref();
        if self.closed {
            return None;
        }
        match timer {
            Timer::Remind => self.remind.then_some(Timestamp::ZERO),
            Timer::Hold => self.hold.next_timeout(&self.path),
            Timer::Doubt => session?.liveness.doubt_deadline(),
            Timer::Reminder => self.reconnection.reminder_deadline(),
            Timer::Quiet => session?.liveness.quiet_deadline(),
            Timer::Echo => session?.liveness.echo_deadline(&self.path),
            Timer::Tail => session?.upward.as_deref()?.tail_deadline(),
            Timer::Copy => self.thin.next_timeout(),
            Timer::Bundle => self.bundling.as_ref()?.deadline(),
            Timer::Handshake if session.is_none() => {
                let next = self.discovery.next_timeout()?;
                Some(self.question_from.map_or(next, |from| from.max(next)))
            }
            Timer::Handshake => None,
            Timer::Eack => session?.scheduler.due(self.hold.held() > 0, self.path.round_trip()),
        }
    }

    /// When [`Self::handle_timeout`] wants to be called. Changes only by the other calls.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        Timer::ALL.into_iter().filter_map(|timer| self.deadline(timer)).min()
    }

    /// Time has passed. Afterwards call [`Self::poll_transmit`] until it is empty.
    pub fn handle_timeout(&mut self, now: Timestamp) -> TimeoutActions {
        if !self.closed {
            self.hold.expire(&self.path, now, &mut self.stats);
        }
        for timer in Timer::ALL {
            if self.deadline(timer).is_some_and(|at| now >= at) {
                self.on_timer(timer, now);
            }
        }
        TimeoutActions { remind: core::mem::take(&mut self.remind) && !self.closed }
    }

    fn on_timer(&mut self, timer: Timer, now: Timestamp) {
        match (timer, &mut self.session) {
            (Timer::Doubt, _) => {
                self.lose_gateway(SessionClosedReason::Unknown, Duration::ZERO, now);
            }
            (Timer::Reminder, _) => {
                self.remind |= self.reconnection.is_reminder_due(now);
            }
            (Timer::Quiet, Some(session)) => {
                if session.liveness.on_quiet() {
                    session.scheduler.on_urgent(now);
                }
            }
            (Timer::Echo, Some(session)) => {
                session.scheduler.on_urgent(now);
                match session.liveness.on_echo_overdue(now) {
                    Silence::Short => {}
                    Silence::Long => self.hold.give_up(HoldEndedReason::Silent, now),
                    Silence::Gone => {
                        self.lose_gateway(SessionClosedReason::Silent, RECONNECT_AFTER, now);
                    }
                }
            }
            (Timer::Tail, Some(session)) => {
                if let Some(upward) = &mut session.upward {
                    upward.on_tail(now);
                }
            }
            (Timer::Copy, session) => {
                if self.thin.take_reminder(now)
                    && let Some(session) = session
                {
                    session.scheduler.on_urgent(now);
                }
            }
            // What these are for is done by every call: `handle_timeout`, `poll_transmit`.
            (Timer::Remind | Timer::Hold | Timer::Bundle | Timer::Handshake | Timer::Eack, _) => {}
            (Timer::Quiet | Timer::Echo | Timer::Tail, None) => {}
        }
    }

    /// Starts a new epoch on the client's own account: its set is empty from here on. For shells
    /// that had to drop datagrams unseen.
    pub fn reset(&mut self, now: Timestamp) {
        let Some(session) = &self.session else { return };
        let epoch = session.epoch.number().next();
        let reason = ResetReason::ClientOverflow;
        self.send_urgently(&Message::Reset { epoch, reason });
        self.on_reset(epoch, reason, now);
    }

    /// The base connection ends: a last Goodbye is ready in [`Self::poll_transmit`], nothing is waited
    /// for, and nothing else happens after it.
    pub fn close(&mut self, now: Timestamp) {
        self.send_urgently(&Message::Goodbye { reason: GoodbyeReason::Done });
        self.hold.give_up(HoldEndedReason::SessionClosed, now);
        if !self.closed {
            self.tell_closed(SessionClosedReason::Done, now);
        }
        self.closed = true;
        self.thin.forget();
    }

    /// Nothing has passed for a while: gives back the memory that what has passed has taken.
    pub(crate) fn trim(&mut self) {
        if let Some(session) = &mut self.session {
            session.recorder.trim();
            if let Some(upward) = &mut session.upward {
                upward.trim();
            }
        }
    }

    /// Bytes of what is remembered of what has passed, and kept to be sent again.
    pub(crate) fn memory(&self) -> usize {
        let waiting = self.bundling.as_ref().map_or(0, |bundling| bundling.memory());
        let Some(session) = &self.session else { return waiting };
        let upward = session.upward.as_ref().map_or(0, |upward| upward.memory());
        session.recorder.memory() + upward + waiting
    }

    /// The application or the system changes this client's address: call it before anything is sent
    /// from the new one. No path then sees a name that another one has seen, as long as the session
    /// has names left, and the gateway learns of the move at once. A move that it is not told of shows
    /// by a missing echo.
    pub fn on_network_change(&mut self, now: Timestamp) {
        if self.closed {
            return;
        }
        self.thin.forget();
        let Some(session) = &mut self.session else {
            // A nonce, too, is for one path.
            if matches!(self.discovery.progress(), Progress::Discovering | Progress::Initiating) {
                let (nonce, seed) = self.random.attempt();
                self.discovery.restart(nonce, seed, now);
            }
            return;
        };
        // What is sealed already names the path before.
        self.outgoing.urgent.clear();
        if let Some(name) = session.fresh_names.next() {
            session.sealer.set_session(name);
        }
        session.liveness.on_move();
        self.is_short = None;
        if let Some(upward) = &mut session.upward {
            upward.on_move();
        }
        session.scheduler.on_urgent(now);
    }

    /// Accumulated figures.
    pub fn stats(&self) -> AssistStats {
        let (state, refusal) = match self.discovery.progress() {
            _ if self.session.is_some() => (AssistState::Established, None),
            Progress::Refused(reason) => (AssistState::Refused, Some(reason)),
            Progress::NoAnswer => (AssistState::NoGateway, None),
            Progress::Initiating => (AssistState::Initiating, None),
            Progress::Discovering | Progress::Done => (AssistState::Discovering, None),
        };
        let upward = self.session.as_ref().and_then(|session| session.upward.as_ref());
        let upward = upward.map_or_else(UpwardStats::default, |upward| upward.stats);
        AssistStats {
            state,
            refusal,
            round_trip: self.path.round_trip(),
            copies: self.thin.copies,
            copy_bytes: self.thin.copy_bytes,
            bundled: self.bundling.as_ref().map_or(0, |bundling| bundling.bundled()),
            upward_numbered: self.stats.upward_numbered + upward.numbered,
            upward_missing: self.stats.upward_missing + upward.missing,
            upward_repairs: self.stats.upward_repairs + upward.repairs,
            upward_repair_bytes: self.stats.upward_repair_bytes + upward.repair_bytes,
            ..self.stats
        }
    }

    /// The gateway to accept (`None`: any, on first use) and the token for the handshakes to come;
    /// where a gateway has refused for want of one, the next handshake begins at once. A session
    /// with another gateway than this ends; any other goes on.
    pub fn set_access(
        &mut self,
        gateway_key: impl Into<Option<[u8; 32]>>,
        token: &Token,
        now: Timestamp,
    ) {
        let gateway_key = gateway_key.into();
        let is_other_key = self.discovery.set_access(gateway_key, token, now);
        if self.closed || !is_other_key {
            return;
        }
        if self.session.is_none() {
            // The question under way would be answered by any gateway.
            let (nonce, seed) = self.random.attempt();
            self.discovery.restart(nonce, seed, now);
        } else if gateway_key.is_some() && gateway_key != self.stats.gateway_key {
            self.send_urgently(&Message::Goodbye { reason: GoodbyeReason::Done });
            self.lose_gateway(SessionClosedReason::OtherGateway, Duration::ZERO, now);
        }
    }
}

/// The time in which symbols to all subscribers repair most of what is missing: a small part of the
/// window (zero: none), as the gateway sends more for those who wait longer.
fn within_symbols(window: Duration) -> Duration {
    (window / 16).clamp(*WITHIN_SYMBOLS.start(), *WITHIN_SYMBOLS.end())
}

/// The longest time in which a missing packet counts as one that the gateway may repair. It does
/// where nothing waits, too: eACKs are to be long enough for it.
fn expected_repair_time(config: &ClientConfig) -> Duration {
    if config.access.maximum_hold.is_zero() {
        config.live.map_or(DEFAULT_MAXIMUM_HOLD, |live| live.window.min(DEFAULT_MAXIMUM_HOLD))
    } else {
        config.access.maximum_hold
    }
}
