//! A subscriber to a gateway's stream whose packets have any format: RTP, SRTP, or another. It
//! needs no decryption.

use std::collections::VecDeque;

use packrat_client::{Access, Assist, AssistStats, Datagram, PacketNumber};
use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::IdentifierScheme;

use crate::credibility::{Belief, Credibility};
use crate::receiver::{Receiver, ReceiverConfig, Unit};
use crate::rtp::RtpHeader;
use crate::session::Assistance;
use crate::statistics::Statistics;

/// Most packets without a number that wait to be taken.
const UNNUMBERED_PACKETS: usize = 4096;

/// The numbers by which a subscriber finds missing packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// Numbers of the RTP headers, which SRTP leaves in the clear: units come in order, each at its
    /// time.
    Rtp,
    /// No numbers: the gateway finds losses from eACKs that are sent all the time. Units come as
    /// they arrive, repaired ones late.
    Unknown,
}

/// A subscriber, sans-IO. A unit is a datagram as it was sent.
///
/// ```
/// use packrat_media::{Access, Numbers, ReceiverConfig, Subscription, Timestamp};
///
/// let (now, config) = (Timestamp::from_millis(1000), ReceiverConfig::default());
/// // An application takes the seed from the operating system.
/// let mut stream = Subscription::new(Numbers::Unknown, config, Access::default(), [1; 32], now);
/// assert!(stream.poll_transmit(now).is_some(), "a question for the gateway");
/// stream.on_datagram(b"any format", now);
/// assert_eq!(stream.poll_unit(now).map(|unit| unit.bytes), Some(b"any format".to_vec()));
/// ```
#[derive(Debug)]
pub struct Subscription {
    numbers: Numbers,
    assist: Assist,
    receiver: Receiver,
    credibility: Credibility,
    /// The highest number that has come.
    newest: Option<u64>,
    unnumbered: VecDeque<Unit>,
    count: u64,
}

impl Subscription {
    /// Creates a subscriber. `config`: [`ReceiverConfig::asks`] and [`ReceiverConfig::repeats`]
    /// have no effect here. `seed`: 32 fresh random bytes from the operating system.
    pub fn new(
        numbers: Numbers,
        config: ReceiverConfig,
        access: Access,
        seed: [u8; 32],
        now: Timestamp,
    ) -> Self {
        let config = ReceiverConfig { asks: false, repeats: false, ..config };
        let assistance = Assistance {
            subscribe: true,
            selective: numbers == Numbers::Rtp,
            access,
            ..Assistance::default()
        };
        Self {
            numbers,
            assist: assistance.assist(IdentifierScheme::Payload, &config, seed, now),
            receiver: Receiver::new(config),
            credibility: Credibility::new(Vec::new(), true, now),
            newest: None,
            unnumbered: VecDeque::new(),
            count: 0,
        }
    }

    /// A datagram arrived.
    pub fn on_datagram(&mut self, datagram: &[u8], now: Timestamp) {
        if self.assist.on_datagram(datagram, now) == Datagram::Base {
            self.on_packet(datagram, now);
        }
        // Datagrams recovered from symbols are treated as arrived ones.
        while let Some(datagram) = self.assist.poll_recovered() {
            self.assist.on_datagram(&datagram, now);
            self.on_packet(&datagram, now);
        }
    }

    /// A datagram of the stream.
    fn on_packet(&mut self, datagram: &[u8], now: Timestamp) {
        if self.credibility.ends_doubt(now) {
            // Packets that have passed in the doubt are in no set.
            self.assist.reset(now);
        }
        let header = RtpHeader::decode(datagram).filter(|_| self.numbers == Numbers::Rtp);
        let packet = header.map(|header| (header, header.sequence));
        let belief = match self.numbers {
            Numbers::Rtp => self.credibility.judge(datagram, packet, now),
            // Every datagram is like any other.
            Numbers::Unknown => Belief::Recorded,
        };
        if belief != Belief::Ignored {
            self.assist.on_authentic(now);
        }
        let Belief::Numbered(number) = belief else { return self.pass(datagram, now) };
        let is_newest = self.newest.is_none_or(|newest| number > newest);
        self.newest = self.newest.max(Some(number));
        // The unit of the timestamps is the application's secret: the newest packet counts as sent
        // now, a late one is placed between its neighbours.
        let between = if is_newest { None } else { self.receiver.sent_at(number) };
        let sent = between.unwrap_or(now.as_micros());
        if self.receiver.holds_another(number, datagram) {
            // One of the two may be forged: the application receives both.
            return self.pass(datagram, now);
        }
        self.receiver.on_packet(number, sent, datagram, None, now);
        let first = self.receiver.first().unwrap_or(number);
        if let Some(index) = number.checked_sub(first) {
            self.assist.on_packet_number(PacketNumber::new(index), now);
        }
    }

    /// A datagram without a place in the order.
    fn pass(&mut self, datagram: &[u8], now: Timestamp) {
        let unit = Unit {
            number: self.count,
            sent: now.as_micros(),
            available: now,
            bytes: datagram.to_vec(),
        };
        self.count += 1;
        self.unnumbered.push_back(unit);
        if self.unnumbered.len() > UNNUMBERED_PACKETS {
            self.unnumbered.pop_front();
        }
    }

    /// The next unit, when its time has come.
    pub fn poll_unit(&mut self, now: Timestamp) -> Option<Unit> {
        self.unnumbered.pop_front().or_else(|| self.receiver.poll_unit(now))
    }

    /// The next datagram to send to the gateway.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        let first = self.receiver.first().unwrap_or_default();
        while let Some(number) = self.receiver.poll_overdue(now) {
            self.assist.on_overdue(PacketNumber::new(number - first), now);
        }
        self.assist.poll_transmit(now)
    }

    /// The time at which to call [`Self::handle_timeout`] and to poll again.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        [self.assist.next_timeout(), self.receiver.next_timeout()].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.assist.handle_timeout(now);
    }

    /// Ends the subscription: a last message for the gateway is in [`Self::poll_transmit`].
    pub fn close(&mut self, now: Timestamp) {
        self.assist.close(now);
    }

    /// The receiver's statistics, all zero without numbers; begins a new interval.
    pub fn take_statistics(&mut self) -> Statistics {
        self.receiver.take_statistics()
    }

    /// Counters of the assistance.
    pub fn assistance(&self) -> AssistStats {
        self.assist.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn units_wait_for_their_latency_at_any_age_of_the_stream() {
        let config =
            ReceiverConfig { latency: Duration::from_millis(100), ..ReceiverConfig::default() };
        let mut subscription =
            Subscription::new(Numbers::Rtp, config, Access::default(), [1; 32], Timestamp::ZERO);
        let at = |millis: u64| Timestamp::from_millis(1000 + millis);
        let packet = |sequence: u16| {
            let mut bytes = Vec::new();
            let header = RtpHeader { payload_type: 96, sequence, timestamp: 0, source: 7 };
            header.encode(&mut bytes);
            bytes
        };
        let mut released = Vec::new();
        for number in 0..200u16 {
            let now = at(u64::from(number) * 10);
            // Packet 150 comes 60 ms after its neighbours.
            let late = number.checked_sub(6).filter(|late| *late == 150);
            for number in [Some(number).filter(|number| *number != 150), late].into_iter().flatten()
            {
                subscription.on_datagram(&packet(number), now);
            }
            while let Some(unit) = subscription.poll_unit(now) {
                released.push((RtpHeader::decode(&unit.bytes).unwrap().sequence, now));
            }
        }
        assert_eq!(released.len(), 190);
        for (expected, (number, now)) in (0u16..).zip(released) {
            assert_eq!((number, now), (expected, at(u64::from(expected) * 10 + 100)));
        }
    }
}
