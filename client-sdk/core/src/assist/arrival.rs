//! Authentic datagrams and their packet numbers, and the wait for missing ones.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::Material;

use super::{Assist, Provisional};
use crate::events::NotHeldReason;
use crate::packet_number::PacketNumber;
use crate::recorder::Recorded;

/// Datagrams that are reported without delay until packet numbers are known.
const FIRST_FLIGHT: u64 = 32;
/// Bounds of the time for which a hole that symbols may repair is not reported to the gateway.
const WITHIN_SYMBOLS: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_millis(50);

impl Assist {
    /// Reports that the transport decrypted a packet without a usable number, such as one of the
    /// handshake: the datagram that was passed in last is authentic.
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

    /// Adds a datagram to the set.
    pub(super) fn believe(&mut self, material: Material, at: Timestamp) {
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

    /// Called when an authentic datagram has arrived, for the first time or again.
    pub(super) fn on_sign_of_life(&mut self, now: Timestamp) {
        self.reconnection.on_datagram(now);
        let quiet_after = self.quiet_after();
        let Some(session) = &mut self.session else { return };
        session.scheduler.on_datagram(now);
        session.liveness.on_datagram(quiet_after, now);
        // The first flight has no packet numbers that would show a hole, and its loss costs the
        // most: a timeout, or slow start.
        if !self.numbers.known && self.authentic <= FIRST_FLIGHT {
            session.scheduler.on_precious(now);
        }
    }

    /// The first packet number that is waited for: packets above it wait as well.
    /// [`PacketNumber::MAX`] if there is no wait.
    pub fn deliverable(&self) -> PacketNumber {
        match self.hold.first_held() {
            Some(first) if self.stats.sessions > 0 && !self.closed => first,
            _ => PacketNumber::MAX,
        }
    }

    /// Reports the number of a packet that the transport has authenticated: it was in the datagram that was
    /// passed in last, which is therefore authentic.
    pub fn on_packet_number(&mut self, packet_number: PacketNumber, now: Timestamp) {
        if !self.hold.has_arrived(packet_number) {
            self.on_arrival(packet_number, now);
        }
        self.provisional = None;
    }

    /// Called when the datagram that was passed in last carries a packet with a new number.
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
            // Packets reported as overdue are already requested.
            let symbols = session.group.as_ref().is_some_and(|group| group.is_active(now));
            session.scheduler.set_symbols(within.filter(|_| symbols));
            if arrival.opened_hole
                && !session.scheduler.leaves_to_symbols(is_first_hole, now)
                && packet_number > self.numbers.overdue_below
                && !is_coded
            {
                session.scheduler.on_urgent(now);
            }
            if arrival.opened_hole
                && let Some(bundling) = &mut self.bundling
            {
                bundling.on_hole(now);
            }
            // A packet that comes sooner was overtaken, not lost.
            let round_trip = self.path.round_trip();
            if let Some((time, round_trip)) = arrival.missed_for.zip(round_trip)
                && !session.queue_stands
                && time * 2 >= round_trip
            {
                session.was_settled = false;
                self.thin.on_lost();
            }
        }
    }

    /// Reports that a packet should have arrived by its sender's clock, while no newer one has
    /// arrived that would show the hole: the next eACK leaves at once. For live streams: the
    /// gateway counts datagrams as missing if it forwarded them more than a round trip before the
    /// eACK.
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

    pub(super) fn is_selective(&self) -> bool {
        self.config.live.is_some_and(|live| live.selective)
    }

    /// The reason for not waiting for a hole that opens now; `None` if the hole is waited for.
    pub(super) fn not_held(&self, now: Timestamp) -> Option<NotHeldReason> {
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
        if session.queue_stands {
            return Some(NotHeldReason::QueueStands);
        }
        if session.was_settled {
            return Some(NotHeldReason::Settled);
        }
        session.liveness.is_silent().then_some(NotHeldReason::Silent)
    }
}

/// The time in which symbols to all subscribers repair most missing datagrams: a small part of the
/// window (zero: no window), because the gateway sends more symbols for receivers with longer
/// windows.
fn within_symbols(window: Duration) -> Duration {
    (window / 16).clamp(*WITHIN_SYMBOLS.start(), *WITHIN_SYMBOLS.end())
}
