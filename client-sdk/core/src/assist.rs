//! Assistance of one base connection, at its receiver.
//!
//! - here: received datagrams
//! - `arrival`: authentic ones, and the wait for missing ones
//! - `messages`: the gateway's messages
//! - `sending`: datagrams that the transport sends
//! - `transmit`: datagrams that the client itself sends
//! - `time`: the timers

mod arrival;
mod messages;
mod sending;
mod time;
mod transmit;

use core::time::Duration;
use std::collections::VecDeque;

use packrat_eack::{Identifier, MAX_EXPECTED_DIFFERENCE, SketchLimits};
use packrat_wire::control::Control;
use packrat_wire::estimate::{PathEstimate, Timestamp};
use packrat_wire::handshake::{ClientParams, Numbered};
use packrat_wire::identifier::Material;
use packrat_wire::is_control;
use packrat_wire::message::{GoodbyeReason, Message, ResetReason};
use packrat_wire::number::NumberKey;

use crate::bundling::Bundling;
use crate::coded::Symbol;
use crate::config::{ClientConfig, DEFAULT_MAXIMUM_HOLD};
use crate::destinations::Destinations;
use crate::discovery::{Discovery, Progress};
use crate::events::{ClientEvent, Events, HoldEndedReason, Observer, SessionClosedReason};
use crate::first_window::FirstWindow;
use crate::hold::{Direction, Hold};
use crate::packet_number::PacketNumber;
use crate::randomness::Randomness;
use crate::reconnection::Reconnection;
use crate::session::Session;
use crate::stats::{AssistState, AssistStats};
use crate::thin::Thin;
use crate::token::Token;
use crate::upward::UpwardStats;
use crate::whole_path::WholePath;

/// The sketches that this client keeps: all rows of the table, as power sums. Coded symbols are
/// longer for every difference, and would cost both ends time and memory without a benefit.
const LIMITS: SketchLimits =
    SketchLimits { power_sums: MAX_EXPECTED_DIFFERENCE as u8 + 1, coded_symbols: 0 };
/// Number of datagrams that are believed without proof before the first packet number, if the transport
/// reports which datagrams are authentic. Datagrams behind a lost Initial are encrypted with keys that are
/// derived from it, so that without this belief no loss could be repaired. Forged datagrams in their place
/// only make the first eACKs longer ([`crate::recorder`]).
const UNPROVEN_AT_FIRST: u8 = 16;

/// Classification of a received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagram {
    /// A datagram of the transport: pass it on.
    Base,
    /// A datagram of Packrat, already processed: hide it from the transport.
    Control,
}

/// Actions that the shell must take after [`Assist::handle_timeout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeoutActions {
    /// Make the transport send a packet of any kind now, if possible: the next gateway learns of a
    /// connection only from the client's datagrams, and acknowledgements sent during an outage are
    /// lost.
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
    /// True if the datagram is already in the set ([`UNPROVEN_AT_FIRST`]).
    believed: bool,
}

/// Packet numbers that the transport reports.
#[derive(Debug)]
struct PacketNumbers {
    /// True if the transport reports packet numbers; otherwise the last datagram counts as the
    /// newest.
    known: bool,
    /// Packet numbers below this one are reported to the gateway as missing, although no newer one
    /// has arrived.
    overdue_below: PacketNumber,
}

/// Control datagrams to send, and buffers for their encoding.
#[derive(Debug, Default)]
struct Outgoing {
    /// Sealed messages that leave before repairs and eACKs.
    urgent: VecDeque<Vec<u8>>,
    plaintext: Vec<u8>,
    message: Vec<u8>,
    prefix: Vec<u8>,
}

/// Assistance of one base connection, at its receiver.
///
/// Call [`Self::poll_transmit`] until it is empty after every other call with `&mut self`, and
/// [`Self::handle_timeout`] at [`Self::next_timeout`]. No failure in here affects the base
/// connection: without a gateway all methods are nearly free.
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
    /// Set once the shell has asked for bundles.
    bundling: Option<Box<Bundling>>,
    destinations: Destinations,
    /// Time before which the first question for a gateway does not leave: it follows the
    /// transport's first flight. `None` once the flight has ended.
    question_from: Option<Timestamp>,
    /// The datagram that was passed in last, until it is authenticated.
    provisional: Option<Provisional>,
    /// The session's identifier of the datagram that was passed in last.
    identifier: Option<Identifier>,
    /// The round trip to the server, measured with the transport's first datagrams.
    whole_path: WholePath,
    first_window: FirstWindow,
    /// True if the last mile is a small part of the path to the server; `None` while this is
    /// unknown.
    is_short: Option<bool>,
    /// Number of authentic datagrams.
    authentic: u64,
    /// Number of further datagrams that may be believed without proof.
    unproven: u8,
    /// True if the transport has to send a packet to the server ([`TimeoutActions::remind`]).
    remind: bool,
    closed: bool,
    stats: AssistStats,
    events: Events,
}

impl Assist {
    /// Creates the assistance of one connection. `seed`: 32 fresh random bytes from the operating
    /// system. The first [`Self::poll_transmit`] returns a question for a gateway.
    pub fn new(config: ClientConfig, seed: [u8; 32], now: Timestamp) -> Self {
        Self::begin(config, None, seed, now)
    }

    /// Creates the assistance for a caller that removes numbers from the datagrams.
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
            direction: Direction::default(),
            hold: Hold::new(
                expected_repair_time(&config),
                config.live.is_some(),
                config.live.is_some_and(|live| live.subscribe),
                // The receiver of a live stream asks the sender for datagrams that are not held.
                config.laboratory.queues_lose && config.live.is_none(),
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
            destinations: Destinations::default(),
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

    /// Believes only datagrams that the caller reports as authentic, from the first one on: the
    /// caller reports this for each datagram.
    pub(crate) fn believe_proven_only(&mut self) {
        self.unproven = 0;
    }

    /// Reports all further events to `observer`. Without an observer no events are created.
    pub fn observe(&mut self, observer: Observer) {
        self.hold.observe(observer.clone());
        self.events = Events::to(observer);
    }

    /// Reports an event to the observer, if one is set.
    pub(crate) fn tell(&self, now: Timestamp, event: impl FnOnce() -> ClientEvent) {
        self.events.tell(now, event);
    }

    /// Processes a received UDP payload: one datagram, still encrypted, exactly as received.
    ///
    /// A [`Datagram::Base`] is not believed until [`Self::on_packet_number`] or [`Self::on_authentic`]
    /// reports it as authentic; without such a report the next datagram takes its place. (The first 16 of a
    /// connection are believed at once, until it has a packet number: a transport that has lost its first
    /// packet can't authenticate the next.) A caller that authenticates each datagram at once calls
    /// [`Self::on_packet`] instead.
    pub fn on_datagram(&mut self, datagram: &[u8], now: Timestamp) -> Datagram {
        self.provisional = None;
        if is_control(datagram) {
            // Without a session, a datagram that does not decode as a control datagram belongs to
            // the transport, whose own datagrams may begin with the same bytes.
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
        self.destinations.on_received(datagram);
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
        // A second copy of an authentic datagram proves nothing new and is harmless: it indicates
        // that the gateway is in doubt.
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

    /// Called when the first window is larger than any loss-based sender's.
    #[cold]
    fn on_large_window(&mut self, now: Timestamp) {
        let Some(session) = self.session.as_mut().filter(|_| self.config.live.is_none()) else {
            return;
        };
        session.scheduler.on_urgent(now);
        self.hold.give_up(HoldEndedReason::LargeWindow, now);
    }

    /// Returns the next datagram recovered from the symbols that the gateway sends to all subscribers of a
    /// stream: pass it to [`Self::on_datagram`] like a received one, and to the transport. Call this method
    /// after each datagram until it returns `None`. Without [`Live::symbols`] there are no such datagrams.
    ///
    /// [`Live::symbols`]: crate::Live::symbols
    pub fn poll_recovered(&mut self) -> Option<Vec<u8>> {
        let session = self.session.as_mut()?;
        let datagram = session.group.as_mut()?.take()?;
        self.stats.recovered_from_group += 1;
        Some(datagram)
    }

    /// Processes an authentic datagram of a transport that authenticates before it passes anything
    /// on, and the number of its packet: [`Self::on_datagram`] and [`Self::on_packet_number`] in
    /// one call.
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

    /// The number of the session, counted from 1, and the key of its datagrams' numbers, if numbers
    /// were agreed.
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

    /// Called when a datagram was recovered from symbols.
    pub(crate) fn on_recovered(&mut self) {
        let Some(session) = &mut self.session else { return };
        if !session.queue_stands {
            self.thin.on_lost();
        }
        if let Some(coded) = &mut session.coded {
            coded.on_recovered();
        }
    }

    /// True if symbols that are still to come may recover missing datagrams.
    fn is_coded(&self, now: Timestamp) -> bool {
        let coded = self.session.as_ref().and_then(|session| session.coded.as_ref());
        coded.is_some_and(|coded| coded.is_active(now))
    }

    /// The identifier of the datagram that was passed in last, if there was a session.
    pub(crate) fn identifier(&self) -> Option<Identifier> {
        self.identifier
    }

    /// True if second copies can be distinguished from datagrams that a server sends twice.
    #[inline]
    pub(crate) fn knows_copies(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.recorder.knows_copies())
    }

    /// True if the datagram that was passed in last has arrived before with this number.
    pub(crate) fn is_copy(&self, number: PacketNumber) -> bool {
        let recorder = self.session.as_ref().map(|session| &session.recorder);
        self.provisional.is_none()
            && recorder
                .zip(self.identifier)
                .is_some_and(|(recorder, identifier)| recorder.is_copy(identifier, number))
    }

    /// Starts a new epoch with an empty set. For shells that had to drop datagrams unseen.
    pub fn reset(&mut self, now: Timestamp) {
        let Some(session) = &self.session else { return };
        let epoch = session.epoch.number().next();
        let reason = ResetReason::ClientOverflow;
        self.send_urgently(&Message::Reset { epoch, reason });
        self.on_reset(epoch, reason, now);
    }

    /// Ends the assistance with the base connection. [`Self::poll_transmit`] then returns a last Goodbye; all
    /// holds end, and later calls have no effect.
    pub fn close(&mut self, now: Timestamp) {
        self.send_urgently(&Message::Goodbye { reason: GoodbyeReason::Done });
        self.hold.give_up(HoldEndedReason::SessionClosed, now);
        if !self.closed {
            self.tell_closed(SessionClosedReason::Done, now);
        }
        self.closed = true;
        self.thin.forget();
    }

    /// Releases the memory for past datagrams, after a period without traffic.
    pub(crate) fn trim(&mut self) {
        if let Some(session) = &mut self.session {
            session.recorder.trim();
            if let Some(upward) = &mut session.upward {
                upward.trim();
            }
        }
    }

    /// Memory for past datagrams and for datagrams that may be sent again, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let waiting = self.bundling.as_ref().map_or(0, |bundling| bundling.memory());
        let Some(session) = &self.session else { return waiting };
        let upward = session.upward.as_ref().map_or(0, |upward| upward.memory());
        session.recorder.memory() + upward + waiting
    }

    /// Reports that the application or the system changes this client's address: call this method before any
    /// datagram leaves from the new one. Each path then sees a session ID of its own, while the session has
    /// unused ones, and the gateway learns of the move at once. The client detects an unreported move by a
    /// missing echo.
    pub fn on_network_change(&mut self, now: Timestamp) {
        if self.closed {
            return;
        }
        self.thin.forget();
        let Some(session) = &mut self.session else {
            // A nonce is also for one path only.
            if matches!(self.discovery.progress(), Progress::Discovering | Progress::Initiating) {
                let (nonce, seed) = self.random.attempt();
                self.discovery.restart(nonce, seed, now);
            }
            return;
        };
        // Messages that are already sealed bear the old path's session ID.
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

    /// Sets the gateway to accept (`None`: any, on first use) and the token for the next
    /// handshakes. If a gateway has refused because of a missing token, the next handshake begins
    /// at once. A session with a gateway of another key ends; any other session continues.
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
            // Any gateway would answer the current question.
            let (nonce, seed) = self.random.attempt();
            self.discovery.restart(nonce, seed, now);
        } else if gateway_key.is_some() && gateway_key != self.stats.gateway_key {
            self.send_urgently(&Message::Goodbye { reason: GoodbyeReason::Done });
            self.lose_gateway(SessionClosedReason::OtherGateway, Duration::ZERO, now);
        }
    }
}

/// The longest time for which the gateway may repair a missing packet. Without a hold it is not
/// zero, because eACKs have to be long enough for such packets.
fn expected_repair_time(config: &ClientConfig) -> Duration {
    if config.access.maximum_hold.is_zero() {
        config.live.map_or(DEFAULT_MAXIMUM_HOLD, |live| live.window.min(DEFAULT_MAXIMUM_HOLD))
    } else {
        config.access.maximum_hold
    }
}
