//! Assistance of one base connection, at its receiver.

use core::time::Duration;
use std::collections::VecDeque;

use packrat_eack::{Encoding, MAX_EXPECTED_DIFFERENCE, SketchLimits};
use packrat_estimate::{PathEstimate, Timestamp};
use packrat_wire::control::{Control, RefusalReason, session_nonce};
use packrat_wire::handshake::{Established, Wishes};
use packrat_wire::identifier::Material;
use packrat_wire::is_control;
use packrat_wire::message::{Eack, GoodbyeReason, Message, Report, ResetReason, is_newer_epoch};
use packrat_wire::seal::{Opener, Sealer};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::config::ClientConfig;
use crate::discovery::{Discovery, Outcome};
use crate::hold::Hold;
use crate::orphaned::Orphaned;
use crate::recorder::{Recorded, Recorder};
use crate::scheduler::Scheduler;
use crate::stats::{AssistState, AssistStats};

/// The sketches that this client keeps: every row of the table, all of which are power sums. Coded symbols are longer for every difference,
/// so that keeping them would cost either end time and memory for nothing.
const LIMITS: SketchLimits = SketchLimits { power_sums: MAX_EXPECTED_DIFFERENCE as u8 + 1, coded_symbols: 0 };
/// Differences that the holes do not explain: datagrams that came after the gateway had given them up, or that carry no packet number.
const UNEXPLAINED: u64 = 1;
/// The same for a selective client, beside what is lost behind its newest datagram and which the gateway knows by its age.
const UNEXPLAINED_SELECTIVE: u64 = 3;
/// A stream of which nothing has come for this long may have lost sight of its subscriber.
const QUIET_STREAM: Duration = Duration::from_millis(250);
/// While datagrams arrive, the gateway is asked for an echo this often.
const ECHO_INTERVAL: Duration = Duration::from_millis(150);
/// An echo is overdue after a round trip with its variation and this.
const ECHO_MARGIN: Duration = Duration::from_millis(25);
/// A longer prefix that the gateway asked for is given for two round trips and this, however short the round trip is: the next eACKs
/// may not leave at once, and what fails costs so much of the gateway's patience that it may not look at them.
const WANTED_LIFETIME: Duration = Duration::from_millis(100);
/// The round trip that is assumed before one was measured.
const ASSUMED_ROUND_TRIP: Duration = Duration::from_millis(120);
/// So many unanswered echoes in a row, without a repair meanwhile, mean that holes are not waited for any more...
const ECHOES_UNTIL_NO_HOLD: u32 = 8;
/// After each so many it is asked more seldom.
const ECHOES_OF_A_STEP: u32 = 4;
/// ...and so many that the gateway is gone.
const ECHOES_UNTIL_GONE: u32 = 24;
/// After so many a long burst of loss is over when the gateway speaks again: the sender has not heard anything meanwhile either.
const ECHOES_OF_A_BURST: u32 = 3;
/// A session is given up for lost no sooner than this after it was doubted.
const MINIMUM_DOUBT: Duration = Duration::from_millis(20);
/// A new attempt after a gateway has gone comes after this.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);
/// Datagrams that are each reported at once until packet numbers are known.
const FIRST_FLIGHT: u64 = 32;
/// An expected packet number that is further above all others is not believed before it is decrypted.
const MAXIMUM_JUMP: u64 = 1024;
/// eACKs whose time of sending is remembered.
const REMEMBERED_EACKS: usize = 128;

/// What a received datagram was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagram {
    /// The transport's: pass it on.
    Base,
    /// Packrat's: consumed, hide it from the transport.
    Control,
}

/// What the shell should do after [`Assist::handle_timeout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeoutActions {
    /// Make the transport send a packet with an ACK frame now: something that was withheld may be revealed.
    pub force_ack: bool,
}

/// What exists between InitAck and Goodbye.
#[derive(Debug)]
struct Session {
    sealer: Sealer,
    opener: Opener,
    recorder: Recorder,
    scheduler: Scheduler,
    epoch: u16,
    /// The gateway has sent something in this epoch: the anchor need not be repeated.
    epoch_confirmed: bool,
    /// A longer prefix that the gateway asked for, and until when it is sent: eACKs that are under way already will fail, too.
    wanted: Option<(Encoding, Timestamp)>,
    /// Counter and time of the eACKs sent last.
    sent: VecDeque<(u32, Timestamp)>,
    /// The echo that was asked for, when.
    echo: Option<(u32, Timestamp)>,
    last_echo: Option<Timestamp>,
    /// When an echo is asked for unless a datagram comes before.
    quiet_at: Option<Timestamp>,
    unanswered: u32,
    /// Somebody says that the gateway does not know this session; believed at this time, unless the gateway speaks.
    doubted_until: Option<Timestamp>,
}

/// Assistance of one base connection, at its receiver.
///
/// Call [`Self::poll_transmit`] until it is empty after every other call that changes something, and [`Self::handle_timeout`] when
/// [`Self::next_timeout`] has come. Nothing in here can fail the base connection: without a gateway every method is close to free.
#[derive(Debug)]
pub struct Assist {
    config: ClientConfig,
    random: ChaCha20Rng,
    discovery: Discovery,
    session: Option<Box<Session>>,
    hold: Hold,
    path: PathEstimate,
    /// The gateway says that a queue stands on the last mile: what is lost there is not repaired, and the sender must hear of it without
    /// delay, or it gives way later than others.
    queue_stands: bool,
    /// Of the last datagram of the base connection: where the set of a new session begins.
    last_material: Option<Material>,
    /// Whether the transport tells packet numbers; otherwise the last datagram counts as the newest.
    knows_packet_numbers: bool,
    /// Packet numbers below this one are announced to the gateway as missing without anything newer having arrived.
    overdue_below: u64,
    /// Sealed messages that are sent before anything else.
    urgent: VecDeque<Vec<u8>>,
    closed: bool,
    /// Gateways lost in a row without a single report.
    losses: u32,
    /// There was a gateway, and there is none now.
    orphaned: Option<Orphaned>,
    stats: AssistStats,
    plaintext: Vec<u8>,
    message: Vec<u8>,
    prefix: Vec<u8>,
}

impl Assist {
    /// `seed`: 32 fresh random bytes from the operating system. The first [`Self::poll_transmit`] asks for a gateway.
    pub fn new(config: ClientConfig, seed: [u8; 32], now: Timestamp) -> Self {
        let mut random = ChaCha20Rng::from_seed(seed);
        let wishes = Wishes {
            scheme: config.scheme,
            limits: LIMITS,
            maximum_hold: if config.hold { config.maximum_hold } else { Duration::ZERO },
            token: config.token.clone(),
            live: config.live,
        };
        let (nonce, seed) = attempt(&mut random);
        Self {
            discovery: Discovery::new(wishes, config.gateway_key, nonce, seed, now),
            // The server of many receivers is asked last of all.
            hold: Hold::new(
                config.maximum_hold,
                config.live.is_some(),
                config.live.is_some_and(|live| live.subscribe),
            ),
            config,
            random,
            session: None,
            path: PathEstimate::new(),
            queue_stands: false,
            last_material: None,
            knows_packet_numbers: false,
            overdue_below: 0,
            urgent: VecDeque::new(),
            closed: false,
            losses: 0,
            orphaned: None,
            stats: AssistStats::default(),
            plaintext: Vec::new(),
            message: Vec::new(),
            prefix: Vec::new(),
        }
    }

    /// A UDP payload arrived (still encrypted, exactly as received, one datagram).
    pub fn on_datagram(&mut self, datagram: &[u8], now: Timestamp) -> Datagram {
        if is_control(datagram) {
            self.stats.control_bytes_received += datagram.len() as u64;
            self.on_control(datagram, now);
            return Datagram::Control;
        }
        self.stats.datagrams += 1;
        self.stats.bytes += datagram.len() as u64;
        if self.stats.datagrams == 1 {
            self.discovery.on_path_alive(now);
        }
        if let Some(orphaned) = &mut self.orphaned {
            orphaned.on_datagram(now);
        }
        let quiet_at = self.quiet_after().map(|quiet| now + quiet);
        match &mut self.session {
            Some(session) => {
                match session.recorder.record(datagram, now) {
                    Recorded::New if !self.knows_packet_numbers => session.recorder.mark_newest(),
                    Recorded::New => {}
                    Recorded::Duplicate => self.stats.duplicates += 1,
                    Recorded::Collision => self.stats.identifier_collisions += 1,
                }
                session.scheduler.on_datagram(now);
                session.quiet_at = quiet_at;
                // The first flight has no packet numbers that would show a hole, and its loss costs the most: a timeout, or slow start.
                if !self.knows_packet_numbers && self.stats.datagrams <= FIRST_FLIGHT {
                    session.scheduler.on_precious(now);
                }
            }
            None => self.last_material = Some(Material::of(self.config.scheme, datagram)),
        }
        Datagram::Base
    }

    /// The header of the datagram that was passed in last says that it carries a 1-RTT packet of this number; the packet is not
    /// authenticated yet. For shells that know the header protection key (RFC 9001, section 5.4): what is missing is then known before
    /// the transport sees anything, so that the shell can keep back what [`Self::deliverable`] says. A number far above all others is not
    /// believed before it is decrypted.
    pub fn on_expected_packet_number(&mut self, packet_number: u64, now: Timestamp) {
        let highest = self.hold.highest_arrived().map_or(0, |highest| highest + 1);
        if packet_number < highest.saturating_add(MAXIMUM_JUMP) {
            self.on_arrival(packet_number, now);
        }
    }

    /// The highest packet number that a transport may be given which drops what is more than `window` packet numbers behind the newest:
    /// with anything higher, the repair that is waited for would be of no use any more.
    pub fn deliverable(&self, window: u64) -> u64 {
        match self.hold.first_held() {
            Some(first) if self.stats.sessions > 0 && !self.closed => first.saturating_add(window),
            _ => u64::MAX,
        }
    }

    /// The packet number next to which a truncated one is to be found (RFC 9000, appendix A.3): the peer has not heard of anything above.
    pub fn packet_number_reference(&self) -> Option<u64> {
        let below_hole = self.hold.first_held().map(|first| first.checked_sub(1));
        below_hole.unwrap_or_else(|| self.hold.highest_arrived())
    }

    /// The transport decrypted a 1-RTT packet: its packet number. Unless it was expected, it was in the datagram that was passed in last.
    pub fn on_packet_number(&mut self, packet_number: u64, now: Timestamp) {
        if !self.hold.has_arrived(packet_number) {
            self.on_arrival(packet_number, now);
        }
        self.hold.on_decrypted(packet_number);
    }

    /// The datagram that was passed in last carries a packet of this number.
    fn on_arrival(&mut self, packet_number: u64, now: Timestamp) {
        self.knows_packet_numbers = true;
        let active = self.is_holding();
        let arrival = self.hold.on_arrival(packet_number, active, now, &mut self.stats);
        if let Some(session) = &mut self.session {
            session.recorder.join(packet_number);
            if arrival.newest {
                session.recorder.mark_newest();
            }
            if arrival.filled_hole {
                // Most likely a repair: the gateway is at work, whatever became of the echoes.
                session.unanswered = 0;
            }
            // What was announced as overdue is asked for already.
            if arrival.opened_hole && packet_number > self.overdue_below {
                session.scheduler.on_urgent(now);
            }
        }
    }

    /// By its sender's clock a packet should be here by now, and nothing newer has come that would show the hole: the gateway is told
    /// at once. For live streams: the gateway takes what it forwarded more than a round trip before the eACK for missing.
    pub fn on_overdue(&mut self, packet_number: u64, now: Timestamp) {
        self.overdue_below = self.overdue_below.max(packet_number + 1);
        if let Some(session) = &mut self.session {
            session.scheduler.on_urgent(now);
        }
    }

    /// Whether a missing packet is waited for: the gateway may still repair it, so that its sender need not know yet.
    pub fn is_awaited(&self, packet_number: u64) -> bool {
        self.hold.is_held(packet_number)
    }

    fn is_selective(&self) -> bool {
        self.config.live.is_some_and(|live| live.selective)
    }

    /// The key phase (RFC 9001 section 6) that the transport uses now, in which the packet came whose number is passed to
    /// [`Self::on_packet_number`] next, and in which the next packet is sealed. Changes at a key update, and back and forth while late
    /// packets of the old keys arrive. Phase `false` is the first.
    pub fn on_key_phase(&mut self, phase: bool) {
        self.hold.on_key_phase(phase);
    }

    /// Whether holes are waited for now.
    fn is_holding(&self) -> bool {
        self.config.hold
            && !self.closed
            && !self.queue_stands
            && self.session.as_ref().is_some_and(|session| session.unanswered < ECHOES_UNTIL_NO_HOLD)
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
        match self.discovery.on_control(&control, now, || random.next_u32()) {
            Outcome::Dropped => self.stats.control_dropped += 1,
            Outcome::Progress => {}
            Outcome::Established(established, sample) => self.on_established(*established, sample, now),
        }
    }

    /// Anybody who sees the datagrams can say that the session does not exist: ask once more before believing it.
    fn on_doubt(&mut self, nonce: u64, now: Timestamp) {
        let wait = (self.path.round_trip().unwrap_or_default() * 3).max(MINIMUM_DOUBT);
        let Some(session) = &mut self.session else {
            self.stats.control_dropped += 1;
            return;
        };
        let name = session.sealer.session();
        if !session.sent.iter().any(|(counter, _)| session_nonce(name, *counter) == nonce) {
            self.stats.control_dropped += 1;
            return;
        }
        if session.doubted_until.is_none() {
            session.doubted_until = Some(now + wait);
            session.echo = None;
            session.last_echo = None;
            session.scheduler.on_urgent(now);
        }
    }

    fn on_established(&mut self, established: Established, sample: Option<Duration>, now: Timestamp) {
        if let Some(sample) = sample {
            self.path.on_round_trip(sample);
        }
        self.stats.sessions += 1;
        self.stats.gateway_key = Some(established.gateway_key);
        if self.orphaned.take().is_some() {
            // What the server sends still goes to the gateway before.
            self.hold.repeat_ack();
        }
        let mut scheduler = Scheduler::new(self.is_selective());
        // The first eACK tells the gateway at once where the client's set begins.
        scheduler.on_urgent(now);
        self.session = Some(Box::new(Session {
            recorder: Recorder::new(&established.terms, self.last_material.as_ref()),
            sealer: established.sealer,
            opener: established.opener,
            scheduler,
            epoch: 0,
            epoch_confirmed: false,
            wanted: None,
            sent: VecDeque::new(),
            echo: None,
            last_echo: None,
            quiet_at: None,
            unanswered: 0,
            doubted_until: None,
        }));
    }

    fn on_sealed(&mut self, datagram: &[u8], now: Timestamp) {
        let mut plaintext = core::mem::take(&mut self.plaintext);
        let opened = match &mut self.session {
            Some(session) => session.opener.open(datagram, &mut plaintext).is_ok(),
            None => false,
        };
        if opened && let Some(session) = &mut self.session {
            if core::mem::take(&mut session.unanswered) >= ECHOES_OF_A_BURST {
                self.hold.repeat_ack();
            }
            session.doubted_until = None;
        }
        match Message::decode(&plaintext) {
            _ if !opened => self.stats.control_dropped += 1,
            Ok(Message::Report(report)) => self.on_report(&report, now),
            Ok(Message::Reset { epoch, reason: _ }) => self.on_reset(epoch, now),
            Ok(Message::Baseline { epoch, set, .. }) => self.on_baseline(epoch, set),
            Ok(Message::Goodbye { .. }) => {
                self.lose_gateway(now, RECONNECT_AFTER);
                // It goes on forwarding: there is nothing to remind of yet.
                if let Some(orphaned) = &mut self.orphaned {
                    orphaned.on_datagram(now);
                }
            }
            // This address was asked whether it is there; the answer must leave from where the question came to.
            Ok(Message::PathChallenge { data }) => self.send_urgently(&Message::PathResponse { data }),
            Ok(_) | Err(_) => self.stats.control_dropped += 1,
        }
        self.plaintext = plaintext;
    }

    fn on_report(&mut self, report: &Report, now: Timestamp) {
        self.stats.reports += 1;
        self.losses = 0;
        self.stats.gateway = report.totals;
        self.queue_stands = !report.queueing.is_zero();
        let Some(session) = &mut self.session else { return };
        if session.echo.is_some_and(|(counter, _)| report.echo >= counter) {
            session.echo = None;
        }
        if report.epoch != session.epoch {
            return;
        }
        session.epoch_confirmed = true;
        let asked = session.sent.iter().find(|(counter, _)| *counter == report.echo).map(|(_, at)| *at);
        if let Some(asked) = asked {
            self.path.on_round_trip(now.saturating_since(asked).saturating_sub(report.echo_age));
        }
        if let Some(wanted) = report.wanted.filter(|wanted| session.recorder.can_give(*wanted)) {
            let round_trip = self.path.round_trip().unwrap_or(ASSUMED_ROUND_TRIP);
            let longer = session.wanted.is_none_or(|(known, _)| wanted.decodable() > known.decodable());
            if longer {
                session.scheduler.on_urgent(now);
            }
            let kept = session.wanted.map_or(wanted, |(known, _)| if longer { wanted } else { known });
            session.wanted = Some((kept, now + round_trip * 2 + WANTED_LIFETIME));
        }
        if let Some(settled) = report.settled.and_then(|settled| session.recorder.packet_number(settled)) {
            self.hold.settle(settled, &mut self.stats);
        }
    }

    fn on_reset(&mut self, epoch: u16, now: Timestamp) {
        let Some(session) = &mut self.session else { return };
        // A Reset that was heard before is not heard again.
        if !is_newer_epoch(epoch, session.epoch) {
            return;
        }
        session.epoch = epoch;
        session.epoch_confirmed = false;
        session.wanted = None;
        session.recorder.reset();
        session.scheduler.on_urgent(now);
    }

    /// A new epoch that begins with more than there is: the gateway knows what this client will never get, and counts it as received.
    fn on_baseline(&mut self, epoch: u16, set: &[u8]) {
        let Some(session) = &mut self.session else { return };
        // It comes again until an eACK has told of it.
        if !is_newer_epoch(epoch, session.epoch) {
            return;
        }
        if session.recorder.add(set) {
            session.epoch = epoch;
            session.epoch_confirmed = true;
        } else {
            self.stats.control_dropped += 1;
        }
    }

    /// Seals a message that is sent before anything else.
    fn send_urgently(&mut self, message: &Message<'_>) {
        let Some(session) = &mut self.session else { return };
        self.message.clear();
        message.encode(&mut self.message);
        let mut datagram = Vec::new();
        // A used-up counter costs the message; the session ends at the next eACK.
        if session.sealer.seal(&self.message, &mut datagram).is_ok() {
            self.urgent.push_back(datagram);
        }
    }

    /// The gateway is gone: nothing is withheld any more, another one is looked for.
    fn lose_gateway(&mut self, now: Timestamp, wait: Duration) {
        self.session = None;
        self.queue_stands = false;
        self.hold.give_up();
        // A gateway that answers handshakes and nothing else is asked more and more seldom.
        let wait = if self.losses == 0 { wait } else { RECONNECT_AFTER * (1 << self.losses.min(8)) };
        self.losses += 1;
        let (nonce, seed) = attempt(&mut self.random);
        self.discovery.restart(nonce, seed, now + wait);
        self.discovery.expect_successor();
        self.orphaned = Some(Orphaned::new(now, now));
    }

    /// Rewrites the frames of an outgoing 1-RTT packet (plaintext): what is above a hole is not revealed. `room`: largest length that
    /// the payload may have. `force_ack`: insert an ACK frame if there is none. `None`: leave it as it is.
    pub fn rewrite_frames(
        &mut self,
        frames: &[u8],
        room: usize,
        force_ack: bool,
        now: Timestamp,
    ) -> Option<Vec<u8>> {
        // Once withholding has begun, the transport's own record of what was acknowledged is not complete any more, so that the frame is
        // always written from the record kept here (a transport forgets ranges of which it thinks that the peer knows them).
        if self.stats.sessions == 0 || !self.config.hold {
            return None;
        }
        self.hold.expire(&self.path, now, &mut self.stats);
        self.hold.rewrite(frames, room, force_ack, now, &mut self.stats)
    }

    /// The next control datagram to send to the peer's address from the base connection's own socket.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        let datagram = match self.urgent.pop_front() {
            Some(urgent) => Some(urgent),
            None if self.closed => None,
            None if self.session.is_some() => self.poll_eack(now),
            None => {
                let random = &mut self.random;
                self.discovery.poll_transmit(now, || attempt(random))
            }
        }?;
        self.stats.control_bytes_sent += datagram.len() as u64;
        Some(datagram)
    }

    fn poll_eack(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        let selective = self.is_selective();
        let session = self.session.as_mut()?;
        let held = self.hold.held();
        if session.scheduler.due(held > 0, self.path.round_trip())? > now {
            return None;
        }
        let overdue =
            self.hold.highest_arrived().map_or(0, |last| self.overdue_below.saturating_sub(last + 1));
        let unexplained = if selective { UNEXPLAINED_SELECTIVE } else { UNEXPLAINED };
        let expected = self.hold.expected_missing(&self.path, now) + overdue + unexplained;
        let expected = usize::try_from(expected).unwrap_or(usize::MAX);
        session.wanted = session.wanted.filter(|(_, until)| now < *until);
        let sized = session.recorder.encoding_for(expected);
        let wanted = session.wanted.map(|(wanted, _)| wanted);
        let Some(encoding) = sized.into_iter().chain(wanted).max_by_key(|encoding| encoding.decodable())
        else {
            session.scheduler.on_sent(now);
            return None;
        };
        if !session.recorder.write_prefix(encoding, &mut self.prefix) {
            session.scheduler.on_sent(now);
            return None;
        }
        let wants_echo = session.echo.is_none()
            && session.last_echo.is_none_or(|last| now.saturating_since(last) >= ECHO_INTERVAL);
        let newest = session.recorder.newest();
        let eack = Eack {
            epoch: session.epoch,
            echo: wants_echo,
            newest: newest.map(|(identifier, _)| identifier),
            newest_age: newest.map_or(Duration::ZERO, |(_, at)| now.saturating_since(at)),
            holes: u8::try_from(held).unwrap_or(u8::MAX),
            anchor: session.recorder.anchor().filter(|_| !session.epoch_confirmed),
            encoding,
            prefix: &self.prefix,
        };
        self.message.clear();
        Message::Eack(eack).encode(&mut self.message);
        let mut datagram = Vec::with_capacity(self.message.len() + packrat_wire::seal::OVERHEAD);
        let Ok(counter) = session.sealer.seal(&self.message, &mut datagram) else {
            // The counter is used up: a new session goes on where this one ends.
            self.lose_gateway(now, RECONNECT_AFTER);
            return None;
        };
        if wants_echo {
            session.echo = Some((counter, now));
            session.last_echo = Some(now);
        }
        session.sent.push_back((counter, now));
        if session.sent.len() > REMEMBERED_EACKS {
            session.sent.pop_front();
        }
        session.scheduler.on_sent(now);
        self.stats.eacks += 1;
        self.stats.eack_bytes += datagram.len() as u64;
        Some(datagram)
    }

    /// How long nothing has to come until the gateway is asked about it.
    fn quiet_after(&self) -> Option<Duration> {
        let echo = self.echo_wait().max(ECHO_INTERVAL);
        match self.config.live {
            // A stream that stops may go on at an address that the subscriber has no more.
            Some(live) if live.subscribe => Some(echo.max(QUIET_STREAM)),
            // It says now and then that it is there.
            _ if self.is_selective() => None,
            _ => Some(echo),
        }
    }

    fn echo_wait(&self) -> Duration {
        let once = self.path.round_trip().unwrap_or(ASSUMED_ROUND_TRIP)
            + self.path.round_trip_variation() * 4
            + ECHO_MARGIN;
        // Silence may be a long burst of loss: what is asked ever more seldom is still answered when it is over.
        once * (1 + self.session.as_ref().map_or(0, |session| session.unanswered) / ECHOES_OF_A_STEP)
    }

    /// When [`Self::handle_timeout`] wants to be called. Changes only by the other calls.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        if self.closed {
            return self.hold.wants_force_ack().then_some(Timestamp::ZERO);
        }
        let now_for_force = self.hold.wants_force_ack().then_some(Timestamp::ZERO);
        let hole = self.hold.next_timeout(&self.path);
        let reminder = self.orphaned.as_ref().and_then(Orphaned::next_timeout);
        let rest = match &self.session {
            None => self.discovery.next_timeout(),
            Some(session) => {
                let eack = session.scheduler.due(self.hold.held() > 0, self.path.round_trip());
                let echo = session.echo.map(|(_, asked)| asked + self.echo_wait());
                [eack, echo, session.quiet_at, session.doubted_until].into_iter().flatten().min()
            }
        };
        [now_for_force, hole, reminder, rest].into_iter().flatten().min()
    }

    /// Time has passed. Afterwards call [`Self::poll_transmit`] until it is empty.
    pub fn handle_timeout(&mut self, now: Timestamp) -> TimeoutActions {
        if self.closed {
            return TimeoutActions { force_ack: self.hold.take_force_ack() };
        }
        self.hold.expire(&self.path, now, &mut self.stats);
        if self.session.as_ref().is_some_and(|session| session.doubted_until.is_some_and(|at| now >= at)) {
            self.lose_gateway(now, Duration::ZERO);
        }
        if self.orphaned.as_mut().is_some_and(|orphaned| orphaned.is_due(now)) {
            self.hold.repeat_ack();
        }
        let wait = self.echo_wait();
        if let Some(session) = &mut self.session
            && session.quiet_at.take_if(|at| now >= *at).is_some()
            && session.echo.is_none()
        {
            // Everything may be well, or this client has another address that nobody knows yet: what told of it was lost, or the challenge.
            session.last_echo = None;
            session.scheduler.on_urgent(now);
        }
        if let Some(session) = &mut self.session
            && let Some((_, asked)) = session.echo
            && now >= asked + wait
        {
            session.echo = None;
            session.unanswered += 1;
            match session.unanswered {
                ECHOES_UNTIL_GONE.. => self.lose_gateway(now, RECONNECT_AFTER),
                ECHOES_UNTIL_NO_HOLD.. => self.hold.give_up(),
                _ => {}
            }
            if let Some(session) = &mut self.session {
                session.last_echo = None;
                session.scheduler.on_urgent(now);
            }
        }
        let force_ack = self.hold.take_force_ack();
        self.stats.acks_forced += u64::from(force_ack);
        TimeoutActions { force_ack }
    }

    /// Starts a new epoch on the client's own account: its set is empty from here on. For shells that had to drop datagrams unseen.
    pub fn reset(&mut self, now: Timestamp) {
        let Some(session) = &self.session else { return };
        let epoch = session.epoch.wrapping_add(1);
        self.send_urgently(&Message::Reset { epoch, reason: ResetReason::ClientOverflow });
        self.on_reset(epoch, now);
    }

    /// The base connection ends: a last Goodbye is ready in [`Self::poll_transmit`], what was withheld may be revealed, and nothing else happens after it.
    pub fn close(&mut self, _now: Timestamp) {
        self.send_urgently(&Message::Goodbye { reason: GoodbyeReason::Done });
        self.hold.give_up();
        self.closed = true;
    }

    /// Accumulated figures.
    pub fn stats(&self) -> AssistStats {
        let state = match (&self.session, self.discovery.is_waiting()) {
            (Some(_), _) => AssistState::Established,
            (None, Some(Some(_))) => AssistState::Refused,
            (None, Some(None)) => AssistState::NoGateway,
            (None, None) if self.discovery.is_initiating() => AssistState::Initiating,
            (None, None) => AssistState::Discovering,
        };
        let refusal = self.discovery.is_waiting().flatten();
        AssistStats { state, refusal, round_trip: self.path.round_trip(), ..self.stats }
    }

    /// Another token for the handshakes to come; where a gateway has refused for want of one, the next handshake begins at once. A session
    /// that exists is not touched. At most [`packrat_wire::handshake::MAXIMUM_TOKEN`] bytes.
    pub fn set_token(&mut self, token: Vec<u8>, now: Timestamp) {
        self.discovery.set_token(token, now);
    }

    /// Packet numbers received so far as ascending inclusive ranges.
    pub fn received_packet_numbers(&self) -> Vec<(u64, u64)> {
        self.hold.received().ascending().collect()
    }
}

/// Nonce and seed of one handshake attempt.
fn attempt(random: &mut ChaCha20Rng) -> (u64, [u8; 32]) {
    let mut seed = [0; 32];
    random.fill_bytes(&mut seed);
    (random.next_u64(), seed)
}
