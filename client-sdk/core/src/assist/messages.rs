//! The gateway's messages, and the beginning and the end of a session.

use core::time::Duration;

use packrat_wire::Epoch;
use packrat_wire::codec::DecodeError;
use packrat_wire::control::{Control, RefusalReason};
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::Established;
use packrat_wire::message::{Message, Report, ResetReason};
use packrat_wire::registry::grease_message;

use super::Assist;
use crate::coded::{Coded, Symbol};
use crate::discovery::{Outcome, Progress};
use crate::epoch::CurrentEpoch;
use crate::events::{ClientEvent, HoldEndedReason, SessionClosedReason};
use crate::group_symbols::GroupSymbols;
use crate::liveness::{ASSUMED_ROUND_TRIP, Liveness};
use crate::reconnection::RECONNECT_AFTER;
use crate::recorder::Recorder;
use crate::scheduler::Scheduler;
use crate::session::{SentEacks, Session};
use crate::upward::Upward;

impl Assist {
    pub(super) fn on_control(&mut self, datagram: &[u8], now: Timestamp) {
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

    /// Handles an unauthenticated refusal of the session. Any host on the path can forge one, so
    /// the client asks the gateway again before it believes the refusal.
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
        if let Some(sample) = sample {
            self.path.on_round_trip(sample);
            self.thin.on_round_trip(sample);
        }
        if self.stats.sessions == 0 {
            self.thin.on_answer(established.gateway_params.hint, now);
        }
        self.stats.sessions += 1;
        self.stats.gateway_key = established.gateway_key;
        self.discovery.set_ticket(established.gateway_params.ticket);
        if self.reconnection.on_established() {
            // The server still sends to the previous gateway.
            self.remind = true;
        }
        let session = established.sealer.session();
        self.events.tell(now, || ClientEvent::SessionOpened { session });
        self.count_upward();
        self.session = Some(Box::new(self.session_of(established, sample, now)));
        // In one session of sixteen: a gateway must ignore unknown messages.
        if let Some(plaintext) = grease_message(self.discovery.nonce()) {
            self.send_plaintext(&plaintext);
        }
    }

    /// The session that a handshake has established, before its first message.
    fn session_of(
        &self,
        established: Established,
        sample: Option<Duration>,
        now: Timestamp,
    ) -> Session {
        let mut scheduler = Scheduler::new(self.is_selective());
        // The first eACK informs the gateway at once of the beginning of the client's set.
        scheduler.on_urgent(now);
        let upward = Upward::new(&established.gateway_params, sample, now).map(Box::new);
        let wished = self.config.live.is_some_and(|live| live.symbols);
        let symbols = established.gateway_params.symbols.as_deref().filter(|_| wished);
        let symbols = symbols.map(|key| GroupSymbols::new(*key));
        // The material of another scheme gives no valid anchor.
        let scheme = established.gateway_params.scheme;
        let material =
            self.reconnection.last_material.as_ref().filter(|_| scheme == self.config.scheme);
        Session {
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
            queue_stands: false,
            was_settled: false,
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
                // The gateway still forwards: a reminder would be too early.
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
            // The gateway has challenged this address; the answer must leave from the address that
            // the challenge came to.
            Ok(Message::PathChallenge { data }) => {
                self.events.tell(now, || ClientEvent::PathChallenged);
                self.send_urgently(&Message::PathResponse { data })
            }
            // A message of a later version, or a meaningless one.
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

    /// Limits holds while a queue stands: holes then wait only for coded repair.
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
        let sample = session.round_trip_of(report, now);
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
        {
            // The gateway's own numbers have no such holes.
            let is_own = session.number_key.is_none();
            session.was_settled |=
                self.hold.settle(settled, now, &mut self.stats) && is_own && !session.queue_stands;
        }
    }

    pub(super) fn on_reset(&mut self, epoch: Epoch, reason: ResetReason, now: Timestamp) {
        let Some(session) = &mut self.session else { return };
        // A Reset may arrive again.
        if !epoch.is_newer_than(session.epoch.number()) {
            return;
        }
        self.stats.resets += u64::from(reason != ResetReason::ClientOverflow);
        self.events.tell(now, || ClientEvent::Reset { epoch, reason });
        session.epoch.begin(epoch);
        session.recorder.reset();
        session.scheduler.on_urgent(now);
    }

    /// Begins an epoch with a set from the gateway. It contains datagrams that this client will
    /// never receive and that the gateway counts as received.
    fn on_baseline(&mut self, epoch: Epoch, set: &[u8], now: Timestamp) {
        let Some(session) = &mut self.session else { return };
        // A Baseline arrives again until an eACK confirms it.
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

    /// Ends the session: the gateway is gone. All holds end, and the client looks for another
    /// gateway.
    pub(super) fn lose_gateway(
        &mut self,
        reason: SessionClosedReason,
        wait: Duration,
        now: Timestamp,
    ) {
        self.hold.give_up(HoldEndedReason::SessionClosed, now);
        self.tell_closed(reason, now);
        self.count_upward();
        self.session = None;
        let at = self.reconnection.on_lost(wait, now);
        let (nonce, seed) = self.random.attempt();
        self.discovery.restart(nonce, seed, at);
        self.discovery.expect_successor();
    }

    /// Reports the end of the session to the observer, if there is a session.
    pub(super) fn tell_closed(&self, reason: SessionClosedReason, now: Timestamp) {
        if let Some(session) = &self.session {
            let session = session.sealer.session();
            self.events.tell(now, || ClientEvent::SessionClosed { session, reason });
        }
    }
}
