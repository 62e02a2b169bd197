//! Who subscribes: coming, proving it, moving to another address, going, falling silent.
//!
//! A subscriber is known by the name of its session, not by its address: a sealed message from another address than the one before has
//! that address challenged, and the right answer from there moves the subscription, as with [`crate::Flow`]. Nothing else is sent to an
//! address that has not echoed a cookie or answered a challenge.

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use packrat_estimate::Timestamp;
use packrat_wire::SmallChannel;
use packrat_wire::control::Control;
use packrat_wire::handshake::{Live, respond};
use packrat_wire::is_control;
use packrat_wire::message::{GoodbyeReason, Message, is_newer_epoch};
use packrat_wire::seal::{OVERHEAD, session_of};

use super::subscriber::{FAILED_EACK_COST, Subscriber};
use super::{SWEEP_INTERVAL, Stream, StreamConfig, StreamOutbox, enter_epoch, terms};
use crate::gateway::{Begin, Gateway, HandshakeOutcome, Received, refuse};

/// A handshake must be used within.
const FRESH_LIFETIME: Duration = Duration::from_secs(5);
/// A challenge is no longer than this, and never longer than what it answers.
const CHALLENGE_LENGTH: usize = OVERHEAD + 9;
/// Challenges of the same address keep this distance, and are answered within the lifetime.
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(20);
const CHALLENGE_LIFETIME: Duration = Duration::from_secs(3);
/// Room for subscribers grows by this share of them, and by this many: with thousands, doubling would cost as much as they do.
const GROWTH_SHARE: usize = 8;
const GROWTH: usize = 8;

/// A handshake that was answered, until its subscription is used.
pub(super) struct Fresh {
    nonce: u64,
    /// Repeated for a repeated Init.
    init_ack: Vec<u8>,
    session: u32,
    since: Timestamp,
    /// It is to take the place of another subscription at its address: whoever repeats an old Init must not end one that is in use.
    replaces: Option<Box<Subscriber>>,
}

/// An address that was asked whether a subscriber is there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Challenge {
    address: SocketAddr,
    data: u64,
    at: Timestamp,
}

impl Stream {
    /// Goes on with another configuration; subscribers stay. The size of the cache and the identifiers are those that [`Self::new`] was given.
    pub fn reconfigure(&mut self, gateway: Arc<Gateway>, config: StreamConfig) {
        if !Arc::ptr_eq(&gateway, &self.gateway) {
            let waiting = self.fresh.values_mut().filter_map(|fresh| fresh.replaces.as_deref_mut());
            for subscriber in self.subscribers.iter_mut().chain(waiting) {
                let source = subscriber.address.get().ip();
                subscriber.source = gateway.adopt_seat(source);
                self.gateway.leave_seat(source);
            }
            self.gateway = gateway;
        }
        let (scheme, cache_bytes) = (self.config.scheme, self.config.cache_bytes);
        self.config = StreamConfig { scheme, cache_bytes, ..config };
    }

    /// Where everybody is who has a seat at the gateway.
    fn sources(&self) -> Vec<std::net::IpAddr> {
        let waiting = self.fresh.values().filter_map(|fresh| fresh.replaces.as_deref());
        self.subscribers.iter().chain(waiting).map(|subscriber| subscriber.address.get().ip()).collect()
    }

    /// A datagram from somebody who is, or wants to be, a subscriber. `seed`: 32 fresh random bytes, for a new subscription or a challenge.
    /// Returns how a handshake ended, if it was part of one.
    pub fn receive(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        seed: impl FnOnce() -> [u8; 32],
        now: Timestamp,
        out: &mut StreamOutbox,
    ) -> Option<HandshakeOutcome> {
        if !is_control(datagram) {
            // Subscribers have nothing to say to the stream's sender.
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
        // A subscriber is sent the whole stream: nobody becomes one in the name of an address that has not echoed a cookie.
        if !begin.is_validated {
            return self.gateway.offer(begin.nonce, peer, now, out.for_one());
        }
        if let Some(known) = self.fresh.get(&peer).filter(|fresh| fresh.nonce == begin.nonce) {
            out.for_one().send(|bytes| bytes.extend_from_slice(&known.init_ack));
            return HandshakeOutcome::Accepted;
        }
        self.forget_fresh(peer);
        let Some(source) = self.gateway.take_seat(peer.ip(), now) else {
            self.counters.subscriptions_refused += 1;
            return refuse(begin.nonce, HandshakeOutcome::RefusedFull, out.for_one());
        };
        let replaces = self.subscribers.iter().any(|subscriber| subscriber.address.get() == peer);
        let refused = if !replaces && self.subscribers.len() >= self.config.maximum_subscribers {
            self.counters.subscriptions_refused += 1;
            Some(HandshakeOutcome::RefusedFull)
        } else {
            match self.respond(&begin, seed) {
                Err(outcome) => Some(outcome),
                Ok((channel, live, init_ack)) => {
                    out.for_one().send(|bytes| bytes.extend_from_slice(&init_ack));
                    let next = self.history.next();
                    let mut subscriber = Subscriber::new(peer, channel, source, live, next, self.bytes, now);
                    if self.gateway.config.repair_budget <= 0.0 {
                        subscriber.forgo_repairs();
                    }
                    self.admit(subscriber, begin.nonce, init_ack, replaces, now);
                    None
                }
            }
        };
        let Some(outcome) = refused else { return HandshakeOutcome::Accepted };
        self.gateway.leave_seat(peer.ip());
        if outcome == HandshakeOutcome::Malformed {
            return outcome;
        }
        refuse(begin.nonce, outcome, out.for_one())
    }

    /// The gateway's half of the handshake: the channel, what the client wants, and the answer.
    fn respond(
        &self,
        begin: &Begin,
        seed: [u8; 32],
    ) -> Result<(SmallChannel, Live, Vec<u8>), HandshakeOutcome> {
        let (config, secret, places) = (&self.config, self.secret, &self.places);
        let answered = respond(seed, &self.gateway.static_key, begin.nonce, &begin.noise, |_, random| {
            let (mut session, mut own) = ([0; 4], [0; 32]);
            random(&mut session);
            while places.contains_key(&u32::from_be_bytes(session)) {
                random(&mut session);
            }
            random(&mut own);
            terms(u32::from_be_bytes(session), config.scheme, config.cache_bytes, own, secret)
        });
        let (established, wishes, noise) = answered.map_err(|_| HandshakeOutcome::Malformed)?;
        // Else it wants something that is not here.
        let live = wishes.live.filter(|live| live.subscribe).ok_or(HandshakeOutcome::RefusedDisabled)?;
        let mut init_ack = Vec::new();
        Control::InitAck { nonce: begin.nonce, noise: &noise }.encode(&mut init_ack);
        Ok((established.into_small_channel(), live, init_ack))
    }

    fn admit(
        &mut self,
        subscriber: Subscriber,
        nonce: u64,
        init_ack: Vec<u8>,
        replaces: bool,
        now: Timestamp,
    ) {
        let (peer, session) = (subscriber.address.get(), subscriber.channel.session());
        let replaces = if replaces {
            Some(Box::new(subscriber))
        } else {
            self.add(subscriber);
            None
        };
        self.fresh.insert(peer, Fresh { nonce, init_ack, session, since: now, replaces });
    }

    fn add(&mut self, subscriber: Subscriber) {
        self.counters.subscriptions += 1;
        self.version += 1;
        if self.subscribers.len() == self.subscribers.capacity() {
            self.subscribers.reserve_exact(self.subscribers.len() / GROWTH_SHARE + GROWTH);
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
        self.challenges.remove(&session);
        if let Some(moved) = self.subscribers.get(place) {
            self.places.insert(moved.channel.session(), u32::try_from(place).unwrap_or(u32::MAX));
        }
        self.gateway.leave_seat(subscriber.address.get().ip());
        subscriber
    }

    /// A handshake of this address counts no longer.
    fn forget_fresh(&mut self, address: SocketAddr) {
        if let Some(Fresh { replaces: Some(subscriber), .. }) = self.fresh.remove(&address) {
            self.gateway.leave_seat(subscriber.address.get().ip());
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
            // Not in the way of everything else that a stream does with it.
            let mut subscribers = core::mem::take(&mut self.subscribers);
            let mut stays = true;
            if let Some(subscriber) = subscribers.get_mut(place as usize) {
                let own = subscriber.address.get() == from;
                match subscriber.channel.open(datagram, &mut plaintext) {
                    Ok(counter) if own => {
                        stays = self.message(subscriber, counter, &plaintext, from, now, out);
                    }
                    Ok(_) => {
                        self.message_from_elsewhere(
                            subscriber,
                            datagram.len(),
                            &plaintext,
                            from,
                            seed,
                            now,
                            out,
                        );
                    }
                    Err(_) => self.counters.stream_refused += 1,
                }
            }
            self.subscribers = subscribers;
            if !self.fresh.is_empty() && self.fresh.get(&from).is_some_and(|fresh| fresh.session == named) {
                self.fresh.remove(&from);
            }
            if !stays {
                self.remove(place as usize);
            }
        } else if self.fresh.get(&from).is_some_and(|fresh| fresh.session == named) {
            self.promote(datagram, from, &mut plaintext);
        } else {
            self.counters.stream_refused += 1;
            outcome = Some(self.gateway.refuse_session(datagram, out.for_one()));
        }
        self.plaintext = plaintext;
        outcome
    }

    /// A subscription that is to take another one's place is used for the first time.
    fn promote(&mut self, datagram: &[u8], from: SocketAddr, plaintext: &mut Vec<u8>) {
        let Some(fresh) = self.fresh.get_mut(&from) else { return };
        let opened = fresh
            .replaces
            .as_mut()
            .is_some_and(|subscriber| subscriber.channel.open(datagram, plaintext).is_ok());
        if !opened {
            self.counters.stream_refused += 1;
            return;
        }
        if let Some(Fresh { replaces: Some(subscriber), .. }) = self.fresh.remove(&from) {
            while let Some(place) = self.subscribers.iter().position(|one| one.address.get() == from) {
                self.remove(place);
            }
            // The message itself comes again.
            self.add(*subscriber);
        }
    }

    /// A message of a subscriber; false when it goes.
    fn message(
        &mut self,
        subscriber: &mut Subscriber,
        counter: u32,
        plaintext: &[u8],
        from: SocketAddr,
        now: Timestamp,
        out: &mut StreamOutbox,
    ) -> bool {
        match Message::decode(plaintext) {
            Ok(Message::Eack(eack)) => {
                self.counters.stream_eacks += 1;
                if subscriber.may_speak(now) {
                    subscriber.spend_eack(1.0);
                    self.on_eack(subscriber, counter, &eack, now, out);
                    out.address(from);
                    self.repair(subscriber, &eack, from, now, out);
                } else {
                    self.counters.stream_eacks_limited += 1;
                }
            }
            Ok(Message::Reset { epoch, .. }) if is_newer_epoch(epoch, subscriber.epoch) => {
                enter_epoch(subscriber, epoch);
                subscriber.spend_eack(FAILED_EACK_COST);
            }
            Ok(Message::Goodbye { .. }) => return false,
            // It has come back before the address it was challenged at was accepted.
            Ok(Message::PathResponse { .. }) => {
                self.challenges.remove(&subscriber.channel.session());
            }
            _ => self.counters.stream_refused += 1,
        }
        true
    }

    /// An authentic message from another address than the subscriber's: that address is challenged, or it answers the challenge.
    #[allow(clippy::too_many_arguments)] // what came, from where, when
    fn message_from_elsewhere(
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
        let known = self.challenges.get(&session).copied().filter(|challenge| challenge.address == from);
        match (Message::decode(plaintext), known) {
            (Ok(Message::PathResponse { data }), Some(challenge))
                if data == challenge.data && now.saturating_since(challenge.at) <= CHALLENGE_LIFETIME =>
            {
                self.challenges.remove(&session);
                let old = subscriber.address.get().ip();
                if old != from.ip() {
                    // Another source is charged from now on, if it has room.
                    let Some(source) = self.gateway.take_seat(from.ip(), now) else {
                        self.counters.subscriptions_refused += 1;
                        return;
                    };
                    subscriber.source = source;
                    self.gateway.leave_seat(old);
                }
                subscriber.move_to(from);
                self.version += 1;
                self.counters.subscriptions_moved += 1;
            }
            (Ok(_), Some(challenge)) if now.saturating_since(challenge.at) < CHALLENGE_INTERVAL => {}
            (Ok(_), _) if length >= CHALLENGE_LENGTH => {
                let data = seed().first_chunk().map_or(0, |data| u64::from_be_bytes(*data));
                self.challenges.insert(session, Challenge { address: from, data, at: now });
                self.counters.subscriptions_challenged += 1;
                self.send(subscriber, &Message::PathChallenge { data }, out);
            }
            _ => self.counters.stream_refused += 1,
        }
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.sweep_at
    }

    /// Time has passed: subscribers that are silent are forgotten.
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
            .fresh
            .iter()
            .filter(|(_, fresh)| now.saturating_since(fresh.since) >= FRESH_LIFETIME)
            .map(|(address, _)| *address)
            .collect();
        for address in stale {
            self.forget_fresh(address);
        }
        self.challenges.retain(|_, challenge| now.saturating_since(challenge.at) <= CHALLENGE_LIFETIME);
        let first = self.history.first();
        self.missed.retain(|sequence, _| *sequence >= first);
        let anybody = !self.subscribers.is_empty() || !self.fresh.is_empty();
        self.sweep_at = anybody.then_some(now + SWEEP_INTERVAL);
    }

    /// The stream ends: every subscriber is told.
    pub fn close(&mut self, reason: GoodbyeReason, out: &mut StreamOutbox) {
        while !self.subscribers.is_empty() {
            let mut subscriber = self.remove(0);
            self.send(&mut subscriber, &Message::Goodbye { reason }, out);
            out.address(subscriber.address.get());
        }
        for address in self.fresh.keys().copied().collect::<Vec<_>>() {
            self.forget_fresh(address);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        for source in self.sources() {
            self.gateway.leave_seat(source);
        }
    }
}
