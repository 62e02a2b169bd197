//! Packets that a subscriber misses: found by its eACKs, sent again, given up.

use core::time::Duration;
use std::collections::HashSet;
use std::net::SocketAddr;

use packrat_wire::estimate::Timestamp;
use packrat_wire::message::Eack;

use super::group::Missed;
use super::subscriber::{OUTSTANDING_PACKETS, Outstanding, Subscriber};
use super::{Changes, SWEEP_INTERVAL, Stream, StreamOutbox, Target};
use crate::admission::Network;
use crate::repair::Decision;
use crate::sequence::Sequence;
use crate::session_event::{GiveUpReason, RepairRefusedReason, SessionEvent};

/// Work of deciding about a missing packet.
const REPAIR_WORK: u64 = 80;

/// Whom a packet's next repair serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Serves {
    /// The subscriber that misses it.
    One,
    /// The group: enough addresses miss it.
    Group,
    /// A repair is on its way to the group already.
    UnderWay,
}

impl Stream {
    /// Applies the changes that a decoded eACK shows.
    pub(super) fn settle(
        &mut self,
        subscriber: &mut Subscriber,
        changes: &Changes,
        now: Timestamp,
        out: &mut StreamOutbox,
    ) {
        if changes.arrived.is_empty() && changes.missing.is_empty() {
            return;
        }
        let mut outstanding = subscriber.take_outstanding();
        for identifier in &changes.arrived {
            match outstanding.iter().position(|one| one.identifier == *identifier) {
                Some(place) => {
                    let one = outstanding.swap_remove(place);
                    self.counters.stream_repairs_arrived += u64::from(one.transmissions() > 0);
                    out.tell(subscriber, || SessionEvent::MissingArrived {
                        datagram: Sequence::new(one.sequence),
                        transmissions: one.transmissions().into(),
                        age: self.age(one.sequence, now),
                    });
                }
                None => {
                    subscriber.regain(*identifier);
                    let is_known = self.history.sequence_of(*identifier).is_some();
                    self.counters.stream_foreign += u64::from(!is_known);
                }
            }
        }
        self.counters.stream_missing += changes.missing.len() as u64;
        subscriber.on_missed(changes.missing.len());
        if subscriber.takes_symbols {
            self.symbols.on_lost(changes.missing.len());
        }
        for identifier in &changes.missing {
            let sequence = self.history.sequence_of(*identifier);
            let datagram = sequence.map(Sequence::new);
            let reason = match sequence {
                Some(sequence) if outstanding.len() < OUTSTANDING_PACKETS => {
                    outstanding.push(Outstanding::new(sequence, *identifier, now));
                    out.tell(subscriber, || SessionEvent::DatagramMissing {
                        datagram: Sequence::new(sequence),
                        age: self.age(sequence, now),
                    });
                    continue;
                }
                Some(_) => GiveUpReason::TooManyMissing,
                None => GiveUpReason::Forgotten,
            };
            self.counters.stream_unrepairable += 1;
            subscriber.give_up(*identifier);
            out.tell(subscriber, || SessionEvent::GivenUp { datagram, transmissions: 0, reason });
        }
        subscriber.set_outstanding(outstanding);
    }

    /// Time since a packet was forwarded.
    fn age(&self, sequence: u64, now: Timestamp) -> Duration {
        let forwarded = self.history.get(sequence).map(|entry| entry.forwarded_at);
        forwarded.map_or(Duration::ZERO, |at| now.saturating_since(at))
    }

    /// Sends the missing packets that are worth a repair. Given-up packets are in the base from
    /// then on.
    pub(super) fn repair(
        &mut self,
        subscriber: &mut Subscriber,
        eack: &Eack<'_>,
        to: SocketAddr,
        now: Timestamp,
        out: &mut StreamOutbox,
    ) {
        let newest = eack.newest.and_then(|identifier| self.history.sequence_of(identifier));
        self.charge(subscriber, REPAIR_WORK * subscriber.outstanding().len() as u64, now);
        let mut outstanding = subscriber.take_outstanding();
        let wait = subscriber.symbol_wait();
        let waiting = self.symbols.waiting(wait, &self.history);
        let (mut waited_for, mut oldest) = (0, None);
        outstanding.retain_mut(|one| {
            if subscriber.takes_symbols
                && one.transmissions() == 0
                && let Some(entry) = self.history.get(one.sequence)
            {
                let age = now.saturating_since(entry.forwarded_at);
                if waiting.has(one.sequence, age) {
                    waited_for += 1;
                    let older = oldest.is_none_or(|(sequence, _)| one.sequence < sequence);
                    oldest = if older { Some((one.sequence, age)) } else { oldest };
                    return true;
                }
            }
            match self.decide(subscriber, one, newest, now) {
                Decision::Wait => true,
                Decision::Send => {
                    self.send_repair(subscriber, one, to, now, out);
                    true
                }
                Decision::GiveUp(reason) => {
                    subscriber.give_up(one.identifier);
                    let datagram = Some(Sequence::new(one.sequence));
                    let transmissions = one.transmissions().into();
                    out.tell(subscriber, || SessionEvent::GivenUp {
                        datagram,
                        transmissions,
                        reason,
                    });
                    false
                }
            }
        });
        subscriber.set_outstanding(outstanding);
        if let Some((sequence, age)) = oldest {
            let lacked = self.symbols.lacked(waited_for, sequence, age, wait);
            self.ask_for_symbols(subscriber, lacked);
        }
    }

    /// Decides about a missing packet.
    fn decide(
        &mut self,
        subscriber: &Subscriber,
        one: &Outstanding,
        newest: Option<u64>,
        now: Timestamp,
    ) -> Decision {
        let (entry, bytes) = (self.history.get(one.sequence), self.history.bytes(one.sequence));
        let Some((entry, _)) = entry.zip(bytes) else {
            self.counters.stream_unrepairable += 1;
            return Decision::GiveUp(GiveUpReason::BytesGone);
        };
        let decision = subscriber.decide(one, newest, entry.forwarded_at, now);
        if matches!(decision, Decision::GiveUp(_)) {
            self.counters.stream_late += 1;
        }
        decision
    }

    /// Sends a missing packet again, to the subscriber or to the group, within the budgets.
    fn send_repair(
        &mut self,
        subscriber: &mut Subscriber,
        one: &mut Outstanding,
        to: SocketAddr,
        now: Timestamp,
        out: &mut StreamOutbox,
    ) {
        let serves = self.serves(subscriber, one.sequence, to, now);
        let (datagram, age) = (Sequence::new(one.sequence), self.age(one.sequence, now));
        let next = self.history.next();
        let Some((first, second)) = self.history.bytes(one.sequence) else { return };
        let length = first.len() + second.len();
        let sent = |one: &mut Outstanding, subscriber: &Subscriber, out: &mut StreamOutbox| {
            one.sent(next, now);
            let transmission = one.transmissions().into();
            out.tell(subscriber, || SessionEvent::RepairSent { datagram, transmission, age });
        };
        if serves == Serves::UnderWay {
            sent(one, subscriber, out);
            return;
        }
        // The subscriber that asks pays, also for the group's repairs: otherwise a subscriber that
        // claims to miss everything, again and again, would have the stream sent to all of them
        // many times over.
        let share = self.gateway.config().repair_budget;
        if share <= 0.0
            || !subscriber.may_repair(length, self.bytes, share)
            || !self.gateway.budget.take_shared(&subscriber.source.repairs, length, true)
        {
            self.counters.stream_budget_refusals += 1;
            let reason = RepairRefusedReason::BudgetEmpty;
            out.tell(subscriber, || SessionEvent::RepairRefused { datagram, reason });
            return;
        }
        // Many subscribers that ask may not have it sent to all of them again and again, either.
        let target = if serves == Serves::Group && self.group_repairs.take(length) {
            if let Some(missed) = self.missed.get_mut(&one.sequence) {
                missed.sent_to_group();
            }
            self.counters.stream_group_repairs += 1;
            Target::Group
        } else {
            Target::One(to)
        };
        self.counters.stream_repairs += 1;
        self.counters.stream_repair_bytes += length as u64;
        out.send(target, |bytes| {
            bytes.extend_from_slice(first);
            bytes.extend_from_slice(second);
        });
        sent(one, subscriber, out);
    }

    /// Records that an address misses a packet, and says whom its repair serves.
    fn serves(
        &mut self,
        subscriber: &Subscriber,
        sequence: u64,
        to: SocketAddr,
        now: Timestamp,
    ) -> Serves {
        let Some(threshold) = self.config.group_repairs_from else { return Serves::One };
        let round_trip = subscriber.round_trip.get().smoothed().unwrap_or(SWEEP_INTERVAL);
        let missed = self.missed.entry(sequence).or_insert_with(|| Missed::since(now));
        if missed.age(now) > round_trip {
            *missed = Missed::since(now);
        }
        missed.by(to.ip());
        match missed.addresses() >= threshold as usize {
            _ if missed.is_under_way() => Serves::UnderWay,
            true => Serves::Group,
            false => Serves::One,
        }
    }

    /// Asks for more symbols to the group; the subscriber pays, as for a repair to the group.
    fn ask_for_symbols(&mut self, subscriber: &mut Subscriber, lacked: u32) {
        let (length, share) = (self.symbols.length(), self.gateway.config().repair_budget);
        let mut paid = 0;
        while paid < lacked
            && subscriber.may_repair(length, self.bytes, share)
            && self.gateway.budget.take_shared(&subscriber.source.repairs, length, true)
        {
            paid += 1;
        }
        self.symbols.ask(paid);
    }

    /// Sends the symbols that are due to the group: after each packet, or several of them, when
    /// these have been sent.
    pub fn send_symbols(&mut self, now: Timestamp, out: &mut StreamOutbox) {
        if self.symbols.are_wanted() {
            self.measure(now);
        }
        while self.symbols.take_due() {
            let Self { symbols, history, group_repairs, gateway, counters, .. } = self;
            let sent = symbols.make(history, |datagram| {
                let granted =
                    group_repairs.take(datagram.len()) && gateway.budget.take_live(datagram.len());
                if granted {
                    counters.stream_symbols += 1;
                    counters.stream_symbol_bytes += datagram.len() as u64;
                    out.send(Target::Group, |bytes| bytes.extend_from_slice(datagram));
                } else {
                    counters.stream_budget_refusals += 1;
                }
                granted
            });
            if !sent {
                self.symbols.forget_due();
            }
        }
    }

    /// Measures the losses of subscribers since the last measurement, and sets the rate of symbols.
    pub(super) fn measure(&mut self, now: Timestamp) {
        let next = self.history.next();
        // eACKs about the packets of the last round trip are still under way.
        let mut taking = self.subscribers.iter().filter(|one| one.takes_symbols);
        let age = taking.find_map(|one| one.round_trip.get().smoothed());
        let told_at = now.checked_sub(age.unwrap_or_default()).unwrap_or_default();
        let told = self.history.newest_until(told_at).map_or(0, |newest| newest + 1);
        let Some(packets) = self.symbols.to_measure(told) else { return };
        let taking = self.subscribers.iter().filter(|one| one.takes_symbols);
        let (lost, all) = taking
            .fold((0, 0u64), |(lost, all), one| (lost + u64::from(one.missed()), all + packets));
        let mean = lost as f64 / all.max(1) as f64;
        let (mut experience, mut losers) = (Vec::new(), HashSet::new());
        let (mut addresses, mut sources) = (0, 0);
        let repairs = self.gateway.config().repair_budget > 0.0;
        if let Some(threshold) =
            self.config.group_repairs_from.filter(|_| repairs && self.config.sends_symbols())
        {
            let taking = self.subscribers.iter_mut().filter(|one| one.takes_symbols);
            for subscriber in taking {
                let has_lost = subscriber.has_lost();
                let one = subscriber.measure(packets, mean);
                if has_lost {
                    losers.insert(subscriber.address.get().ip());
                }
                experience.push(one);
            }
            addresses = losers.len();
            sources = losers.into_iter().map(Network::of).collect::<HashSet<_>>().len();
            addresses = if addresses >= threshold as usize { addresses } else { 0 };
        }
        self.symbols.follow(&mut experience, addresses > 0, (told, told_at), next);
        if self.symbols.are_sent() {
            self.group_repairs.serve(sources);
        }
    }
}
