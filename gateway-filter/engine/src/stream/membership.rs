//! Membership of a stream: subscribers come, prove their address, move to another one, go, fall
//! silent.
//!
//! A subscriber is known by the ID of its session, not by its address: a sealed message from
//! another address has that address challenged, and the right answer from there moves the
//! subscription, as with [`crate::Flow`]. An address gets other datagrams only when it has echoed a
//! cookie or answered a challenge.

use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use packrat_wire::estimate::Timestamp;
use packrat_wire::group::fresh_key;
use packrat_wire::handshake::{ClientParams, Live};
use packrat_wire::is_control;
use packrat_wire::message::{GoodbyeReason, Message};
use packrat_wire::seal::session_of;
use packrat_wire::{MessageCounter, SessionId, SmallChannel};

use super::subscriber::Subscriber;
use super::{
    SUBSCRIPTIONS_PER_ADDRESS, SWEEP_INTERVAL, Stream, StreamConfig, StreamOutbox, enter_epoch,
    gateway_params,
};
use crate::admission::{MESSAGE_WORK, SOURCE_LEVELS, SourceAccount, WorkKind};
use crate::eack_credit::SUBSCRIBER_TARIFF;
use crate::event::Side;
use crate::gateway::{Begin, HandshakeOutcome, Received, refuse};
use crate::handshake::Handshake;
use crate::path_validation::Step;
use crate::session_event::{EackIgnoredReason, SessionEvent};

/// Divisor of the subscribers by which the room for them grows: with thousands, doubling would cost
/// as much as they do.
const GROWTH_DIVISOR: usize = 8;
/// Subscribers for which the room grows at least.
const GROWTH_SUBSCRIBERS: usize = 8;

/// An answered handshake, until its subscription is used.
pub(super) struct Pending {
    handshake: Handshake,
    session: SessionId,
    /// The new subscriber, if it is to replace another one at its address: a repeated old Init must
    /// not end a subscription in use.
    replaces: Option<Box<Subscriber>>,
}

/// An accepted handshake: the channel, the client's request, the key of symbols, the answer.
type Accepted = (SmallChannel, Live, Option<[u8; 32]>, Handshake);

impl Stream {
    /// Applies another configuration; subscribers stay. Identifiers follow the scheme that
    /// [`Self::new`] was given.
    pub fn reconfigure(&mut self, config: StreamConfig) {
        self.history.limit_cache(config.cache_bytes);
        self.config = StreamConfig { scheme: self.config.scheme, ..config };
    }

    /// Sources that the gateway charges for subscribers.
    fn sources(&self) -> Vec<std::net::IpAddr> {
        let waiting = self.pending.values().filter_map(|pending| pending.replaces.as_deref());
        self.subscribers
            .iter()
            .chain(waiting)
            .map(|subscriber| subscriber.address.get().ip())
            .collect()
    }

    /// Receives a datagram from a client that is, or wants to be, a subscriber. `seed`: 32 fresh
    /// random bytes, for a new subscription or a challenge. Returns the outcome of a handshake, if
    /// it was part of one.
    pub fn receive(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        seed: impl FnOnce() -> [u8; 32],
        now: Timestamp,
        out: &mut StreamOutbox,
    ) -> Option<HandshakeOutcome> {
        if !is_control(datagram) {
            // Datagrams of subscribers are not for the stream's sender.
            self.counters.stream_refused += 1;
            return None;
        }
        let outcome = match self.gateway.receive(datagram, from, now, out.for_one()) {
            Received::Done(outcome) => Some(outcome),
            Received::Begin(begin) => Some(self.begin(begin, seed(), now, out)),
            Received::ForFlow => self.sealed(datagram, from, seed, now, out),
        };
        out.address(from);
        self.sweep_at.get_or_insert(now + SWEEP_INTERVAL);
        outcome
    }

    fn begin(
        &mut self,
        begin: Begin,
        seed: [u8; 32],
        now: Timestamp,
        out: &mut StreamOutbox,
    ) -> HandshakeOutcome {
        let peer = begin.peer;
        // A subscriber is sent the whole stream: its address must have echoed a cookie.
        if !begin.is_validated {
            return self.gateway.offer(begin.nonce, peer, now, out.for_one());
        }
        let pending = self.pending.get(&peer);
        if pending.is_some_and(|known| known.handshake.repeat(begin.nonce, out.for_one())) {
            return HandshakeOutcome::Accepted;
        }
        self.forget_pending(peer);
        let Some(source) = self.gateway.admission.admit_subscriber(peer.ip(), now) else {
            self.counters.subscriptions_refused += 1;
            return refuse(begin.nonce, HandshakeOutcome::RefusedFull, out.for_one());
        };
        let replaces = self.subscribers.iter().any(|subscriber| subscriber.address.get() == peer);
        let is_full = !self.has_room(&source, peer.ip());
        let has_time = self.gateway.admission.take_handshake(Some(&source), now);
        let refused = if !has_time || is_full && !replaces {
            self.counters.subscriptions_refused += 1;
            Some(HandshakeOutcome::RefusedFull)
        } else {
            match self.respond(&begin, seed, now) {
                Err(outcome) => Some(outcome),
                Ok((channel, live, symbols, handshake)) => {
                    handshake.send(out.for_one());
                    let next = self.history.next();
                    let mut subscriber =
                        Subscriber::new(peer, channel, source, live, next, self.bytes, now);
                    if self.gateway.config().repair_budget <= 0.0 {
                        subscriber.forgo_repairs();
                    }
                    if let Some(key) = symbols {
                        subscriber.takes_symbols = true;
                        self.symbols.set_key(key);
                    }
                    self.admit(subscriber, handshake, replaces);
                    None
                }
            }
        };
        let Some(outcome) = refused else { return HandshakeOutcome::Accepted };
        self.gateway.admission.release_subscriber(peer.ip());
        if outcome == HandshakeOutcome::Malformed {
            return outcome;
        }
        refuse(begin.nonce, outcome, out.for_one())
    }

    /// True if there is room for another subscriber at this address, which it has proven.
    ///
    /// A source has a number of its own in any case. Further subscriptions are for clients that
    /// prove many addresses; but an attacker with a network has all its addresses, so a source, or
    /// a network, takes more only while it leaves as many places as it has (dynamic thresholds of
    /// Choudhury98): half of all at most.
    fn has_room(&self, source: &SourceAccount, address: IpAddr) -> bool {
        let free = self.config.maximum_subscribers.saturating_sub(self.subscribers.len());
        if free == 0 || self.config.group_repairs_from.is_none() {
            return free > 0;
        }
        let (mut held, mut at_address) = ([0; SOURCE_LEVELS], 0);
        for subscriber in &self.subscribers {
            for (held, level) in held.iter_mut().zip(source.levels()) {
                let is_same = |other: &SourceAccount| core::ptr::eq(level, other);
                *held += usize::from(subscriber.source.levels().any(is_same));
            }
            at_address += usize::from(subscriber.address.get().ip() == address);
        }
        let own = self.config.subscriptions_per_source;
        let is_own = held.first().is_none_or(|held| *held < own);
        (is_own || at_address < SUBSCRIPTIONS_PER_ADDRESS)
            && held.iter().all(|held| *held < own.max(free))
    }

    /// The gateway's half of the handshake: the channel, the client's request, the key of the
    /// stream's symbols if it gets them, and the answer.
    fn respond(
        &self,
        begin: &Begin,
        seed: [u8; 32],
        now: Timestamp,
    ) -> Result<Accepted, HandshakeOutcome> {
        let Self { config, secret, places, .. } = self;
        let is_taken = |session| places.contains_key(&session);
        let grant = |client_params: &ClientParams, session, own| {
            let symbols = client_params
                .live
                .filter(|live| live.symbols && config.sends_symbols())
                .map(|_| self.symbols.key().unwrap_or_else(|| fresh_key(&own)));
            gateway_params(session, config.scheme, config.cache_bytes, own, **secret, symbols)
        };
        let (handshake, established, client_params) =
            Handshake::answer(&self.gateway, begin, seed, now, is_taken, grant)
                .ok_or(HandshakeOutcome::Malformed)?;
        // The client wants a service that is not here.
        let live = client_params
            .live
            .filter(|live| live.subscribe)
            .ok_or(HandshakeOutcome::RefusedDisabled)?;
        let symbols = established.gateway_params.symbols.as_deref().copied();
        Ok((established.into_small_channel(), live, symbols, handshake))
    }

    fn admit(&mut self, subscriber: Subscriber, handshake: Handshake, replaces: bool) {
        let (peer, session) = (subscriber.address.get(), subscriber.channel.session());
        let replaces = if replaces {
            Some(Box::new(subscriber))
        } else {
            self.add(subscriber);
            None
        };
        self.pending.insert(peer, Pending { handshake, session, replaces });
    }

    fn add(&mut self, subscriber: Subscriber) {
        self.counters.subscriptions += 1;
        self.version += 1;
        if self.subscribers.len() == self.subscribers.capacity() {
            self.subscribers
                .reserve_exact(self.subscribers.len() / GROWTH_DIVISOR + GROWTH_SUBSCRIBERS);
        }
        let place = u32::try_from(self.subscribers.len()).unwrap_or(u32::MAX);
        self.places.insert(subscriber.channel.session(), place);
        self.subscribers.push(subscriber);
    }

    /// Takes out the subscriber at this place; the last one is there afterwards.
    fn remove(&mut self, place: usize) -> Subscriber {
        let subscriber = self.subscribers.swap_remove(place);
        let session = subscriber.channel.session();
        self.version += 1;
        self.counters.subscriptions_ended += 1;
        self.places.remove(&session);
        self.path_validation.remove(&session);
        if let Some(moved) = self.subscribers.get(place) {
            self.places.insert(moved.channel.session(), u32::try_from(place).unwrap_or(u32::MAX));
        }
        self.gateway.admission.release_subscriber(subscriber.address.get().ip());
        subscriber
    }

    /// Forgets the pending handshake of this address.
    fn forget_pending(&mut self, address: SocketAddr) {
        if let Some(Pending { replaces: Some(subscriber), .. }) = self.pending.remove(&address) {
            self.gateway.admission.release_subscriber(subscriber.address.get().ip());
        }
    }

    fn sealed(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        seed: impl FnOnce() -> [u8; 32],
        now: Timestamp,
        out: &mut StreamOutbox,
    ) -> Option<HandshakeOutcome> {
        let named = session_of(datagram)?;
        let mut plaintext = core::mem::take(&mut self.plaintext);
        let mut outcome = None;
        if let Some(place) = self.places.get(&named).copied() {
            let stays = self.with_subscribers(|stream, subscribers| {
                let Some(subscriber) = subscribers.get_mut(place as usize) else { return true };
                let own = subscriber.address.get() == from;
                match subscriber.channel.open(datagram, &mut plaintext) {
                    Ok(counter) if own => {
                        return stream.message(subscriber, counter, &plaintext, from, now, out);
                    }
                    Ok(_) => {
                        stream.message_on_new_path(
                            subscriber,
                            datagram.len(),
                            &plaintext,
                            from,
                            seed,
                            now,
                            out,
                        );
                    }
                    Err(_) => stream.counters.stream_refused += 1,
                }
                true
            });
            if !self.pending.is_empty()
                && self.pending.get(&from).is_some_and(|pending| pending.session == named)
            {
                self.pending.remove(&from);
            }
            if !stays {
                self.remove(place as usize);
            }
        } else if self.pending.get(&from).is_some_and(|pending| pending.session == named) {
            self.promote(datagram, from, &mut plaintext);
        } else {
            self.counters.stream_refused += 1;
            outcome = Some(self.gateway.refuse_session(datagram, out.for_one()));
        }
        self.plaintext = plaintext;
        outcome
    }

    /// Runs an action on the subscribers and the rest of the stream. Afterwards the subscribers are
    /// in their place again, even after a panic, so that no subscription is lost.
    pub(super) fn with_subscribers<R>(
        &mut self,
        action: impl FnOnce(&mut Self, &mut [Subscriber]) -> R,
    ) -> R {
        let mut subscribers = core::mem::take(&mut self.subscribers);
        let result = catch_unwind(AssertUnwindSafe(|| action(self, &mut subscribers)));
        self.subscribers = subscribers;
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Replaces a subscription by the pending one, which is used for the first time.
    fn promote(&mut self, datagram: &[u8], from: SocketAddr, plaintext: &mut Vec<u8>) {
        let Some(pending) = self.pending.get_mut(&from) else { return };
        let opened = pending
            .replaces
            .as_mut()
            .is_some_and(|subscriber| subscriber.channel.open(datagram, plaintext).is_ok());
        if !opened {
            self.counters.stream_refused += 1;
            return;
        }
        if let Some(Pending { replaces: Some(subscriber), .. }) = self.pending.remove(&from) {
            while let Some(place) =
                self.subscribers.iter().position(|one| one.address.get() == from)
            {
                self.remove(place);
            }
            // The client sends the message again.
            self.add(*subscriber);
        }
    }

    /// Handles a message of a subscriber; false if it leaves.
    fn message(
        &mut self,
        subscriber: &mut Subscriber,
        counter: MessageCounter,
        plaintext: &[u8],
        from: SocketAddr,
        now: Timestamp,
        out: &mut StreamOutbox,
    ) -> bool {
        match Message::decode(plaintext) {
            Ok(Message::Eack(eack)) => {
                self.counters.stream_eacks += 1;
                let work = &self.gateway.admission.work;
                let admitted = subscriber.admits_eack(now);
                let strain = SUBSCRIBER_TARIFF.strain(&subscriber.eacks);
                let source = Some(&*subscriber.source);
                if admitted && work.admits(WorkKind::Message, source, strain, now) {
                    self.charge(subscriber, MESSAGE_WORK, now);
                    self.on_eack(subscriber, counter, &eack, now, out);
                    out.address(from);
                    self.repair(subscriber, &eack, from, now, out);
                } else {
                    self.counters.stream_eacks_limited += 1;
                    let reason = EackIgnoredReason::Limited;
                    out.tell(subscriber, || SessionEvent::EackIgnored { eack: counter, reason });
                }
            }
            Ok(Message::Reset { epoch, reason }) if epoch.is_newer_than(subscriber.epoch) => {
                enter_epoch(subscriber, epoch);
                let side = Side::Client;
                out.tell(subscriber, || SessionEvent::Reset { epoch, side, reason });
                SUBSCRIBER_TARIFF.charge_epoch(&mut subscriber.eacks);
            }
            Ok(Message::Goodbye { .. }) => return false,
            Ok(Message::Recovered { total }) => {
                self.charge(subscriber, MESSAGE_WORK, now);
                subscriber.on_recovered(total, self.history.next());
            }
            // The client has come back before the address it was challenged at was accepted.
            Ok(Message::PathResponse { .. }) => {
                self.path_validation.remove(&subscriber.channel.session());
            }
            _ => self.counters.stream_refused += 1,
        }
        true
    }

    /// Handles an authentic message from another address than the subscriber's: challenges that
    /// address, or accepts its answer.
    #[allow(clippy::too_many_arguments)] // what came, from where, when
    fn message_on_new_path(
        &mut self,
        subscriber: &mut Subscriber,
        length: usize,
        plaintext: &[u8],
        from: SocketAddr,
        seed: impl FnOnce() -> [u8; 32],
        now: Timestamp,
        out: &mut StreamOutbox,
    ) {
        let session = subscriber.channel.session();
        let Ok(message) = Message::decode(plaintext) else {
            self.counters.stream_refused += 1;
            return;
        };
        match self
            .path_validation
            .entry(session)
            .or_default()
            .on_message(&message, length, from, seed, now)
        {
            Step::Validated => {
                self.path_validation.remove(&session);
                let old = subscriber.address.get().ip();
                if old != from.ip() {
                    // Another source is charged from now on, if it has room.
                    let Some(source) = self.gateway.admission.admit_subscriber(from.ip(), now)
                    else {
                        self.counters.subscriptions_refused += 1;
                        return;
                    };
                    subscriber.source = source;
                    self.gateway.admission.release_subscriber(old);
                }
                subscriber.move_to(from);
                out.tell(subscriber, || SessionEvent::PathValidated);
                self.version += 1;
                self.counters.subscriptions_moved += 1;
            }
            Step::Challenge(data) => {
                self.counters.subscriptions_challenged += 1;
                out.tell(subscriber, || SessionEvent::PathChallenged);
                self.send(subscriber, &Message::PathChallenge { data }, out);
            }
            Step::Wait => {}
            Step::Ignore | Step::Refuse => self.counters.stream_refused += 1,
        }
    }

    /// Time of the next call of [`Self::handle_timeout`].
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.sweep_at
    }

    /// Forgets silent subscribers, and expired handshakes and challenges.
    pub fn handle_timeout(&mut self, now: Timestamp, out: &mut StreamOutbox) {
        if self.sweep_at.is_none_or(|at| at > now) {
            return;
        }
        let silence = self.config.silence;
        let mut place = 0;
        while let Some(subscriber) = self.subscribers.get(place) {
            if subscriber.heard.elapsed(now) < silence {
                place += 1;
                continue;
            }
            let mut subscriber = self.remove(place);
            self.send(&mut subscriber, &Message::Goodbye { reason: GoodbyeReason::Idle }, out);
            out.address(subscriber.address.get());
        }
        let stale: Vec<SocketAddr> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.handshake.is_expired(now))
            .map(|(address, _)| *address)
            .collect();
        for address in stale {
            self.forget_pending(address);
        }
        self.path_validation.retain(|_, paths| !paths.forget_expired(now));
        let first = self.history.first();
        self.missed.retain(|sequence, _| *sequence >= first);
        self.group_repairs.follow(self.missed.values());
        self.measure(now);
        let in_use = !self.subscribers.is_empty() || !self.pending.is_empty();
        if !in_use {
            self.symbols.forget_key();
        }
        self.sweep_at = in_use.then_some(now + SWEEP_INTERVAL);
    }

    /// Ends the stream with a Goodbye to every subscriber.
    pub fn close(&mut self, reason: GoodbyeReason, out: &mut StreamOutbox) {
        while !self.subscribers.is_empty() {
            let mut subscriber = self.remove(0);
            self.send(&mut subscriber, &Message::Goodbye { reason }, out);
            out.address(subscriber.address.get());
        }
        for address in self.pending.keys().copied().collect::<Vec<_>>() {
            self.forget_pending(address);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        for source in self.sources() {
            self.gateway.admission.release_subscriber(source);
        }
    }
}
