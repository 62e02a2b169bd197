//! The packets of live streams: RTP headers and sequence numbers, and receivers of arbitrary
//! packets.
//!
//! Input: byte 0 sets the receiver (bit 0: each packet repeats the unit before; bit 1: a rhythm;
//! bit 2: units are waited for; bit 3: the sender can be asked). Then steps of one byte, the kind
//! in the lower three bits and a number in the upper five; some kinds take a length byte and as
//! many bytes.

use core::time::Duration;

use packrat_media::rtp::{Extender, RtpHeader};
use packrat_media::{
    Access, Assistance, Heard, MediaKey, MediaReceiver, Numbers, ReceiverConfig, Sender,
    SenderConfig, Subscription, Timestamp,
};

use super::take::take;

const SOURCE: u32 = 7;
const SECRET: [u8; 32] = [3; 32];
/// Largest number of units in a receiver, including units not polled yet.
const MOST_AT_ONCE: usize = 20_000;

struct World {
    now: Timestamp,
    sender: Sender,
    /// The unit of each number.
    units: Vec<Vec<u8>>,
    /// Packets in flight: steps may drop, repeat and reorder them.
    under_way: Vec<Vec<u8>>,
    receiver: MediaReceiver,
    subscription: Subscription,
    extender: Extender,
    /// Number of the unit that was released last.
    released: Option<u64>,
}

/// Runs the steps. Panics when a unit is released out of order or was never sent, or when a
/// sequence number differs from RFC 3711's.
pub fn live_packets(data: &[u8]) {
    let (&settings, mut rest) = data.split_first().unwrap_or((&0, &[]));
    let config = ReceiverConfig {
        repeats: settings & 1 != 0,
        rhythm: (settings & 2 != 0).then_some(Duration::from_millis(20)),
        patience: Duration::from_millis(if settings & 4 != 0 { 500 } else { 0 }),
        asks: settings & 8 != 0,
        ..ReceiverConfig::default()
    };
    let now = Timestamp::from_millis(1000);
    let key = MediaKey::new(SECRET);
    let assistance = Assistance::default();
    let sender = SenderConfig { source: SOURCE, repeats: config.repeats };
    let mut world = World {
        now,
        sender: Sender::new(sender, key.clone(), [4; 16]),
        units: Vec::new(),
        under_way: Vec::new(),
        receiver: MediaReceiver::new(SOURCE, config, key, Some(&assistance), [1; 32], now),
        subscription: Subscription::new(Numbers::Rtp, config, Access::default(), [2; 32], now),
        extender: Extender::default(),
        released: None,
    };
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let number = usize::from(step >> 3);
        match step & 7 {
            0 => (0..=number).for_each(|_| world.send()),
            1 => (0..=number).for_each(|_| world.deliver(0)),
            // Overtaken, or lost.
            2 if number % 2 == 0 => world.deliver(number / 2),
            2 => drop(world.under_way.drain(..world.under_way.len().min(number))),
            3 => {
                if let Some(first) = world.under_way.first_mut() {
                    let at = number * 13 % first.len();
                    first[at] ^= 1 << (number % 8);
                }
            }
            4 => world.now = world.now + Duration::from_millis(1 << (number % 12)),
            5 => world.receive(take(&mut rest)),
            6 => world.receive_header(number, take(&mut rest)),
            _ => world.compare(take(&mut rest)),
        }
        world.poll();
    }
}

impl World {
    fn send(&mut self) {
        let number = self.units.len();
        let unit = [&number.to_be_bytes()[..], &vec![number as u8; number * 7 % 90]].concat();
        self.under_way.extend(self.sender.send(&unit, self.now));
        self.units.push(unit);
    }

    fn deliver(&mut self, index: usize) {
        if index < self.under_way.len() {
            let datagram = self.under_way.remove(index);
            self.receive(&datagram);
        }
    }

    fn receive(&mut self, datagram: &[u8]) {
        self.receiver.on_datagram(datagram, self.now);
        self.subscription.on_datagram(datagram, self.now);
    }

    /// Receives an unauthenticated header of the stream.
    fn receive_header(&mut self, number: usize, bytes: &[u8]) {
        let word = |at: usize| bytes.get(at).copied().unwrap_or_default();
        let header = RtpHeader {
            payload_type: [96, 97, 98, 0][number % 4],
            sequence: u16::from_be_bytes([word(0), word(1)]),
            timestamp: u32::from_be_bytes([word(2), word(3), word(4), word(5)]),
            source: SOURCE + (number / 4) as u32 % 3,
        };
        let mut datagram = Vec::new();
        header.encode(&mut datagram);
        assert_eq!(RtpHeader::decode(&datagram), Some(header));
        datagram.extend_from_slice(bytes);
        self.receive(&datagram);
    }

    fn poll(&mut self) {
        self.receiver.handle_timeout(self.now);
        self.subscription.handle_timeout(self.now);
        for _ in 0..MOST_AT_ONCE {
            let Some(unit) = self.receiver.poll_unit(self.now) else { break };
            assert!(self.released.is_none_or(|last| last < unit.number), "not in order");
            self.released = Some(unit.number);
            let sent = usize::try_from(unit.number).ok().and_then(|number| self.units.get(number));
            assert_eq!(
                Some(&unit.bytes),
                sent,
                "unit {} is not the one that was sent",
                unit.number
            );
        }
        assert_eq!(self.receiver.poll_unit(self.now), None, "units without end");
        for _ in 0..MOST_AT_ONCE {
            if self.subscription.poll_unit(self.now).is_none() {
                break;
            }
        }
        assert_eq!(self.subscription.poll_unit(self.now), None, "units without end");
        for _ in 0..100 {
            let Some(asked) = self.receiver.poll_transmit(self.now) else { break };
            let Some(Heard::Asked(again)) = self.sender.on_datagram(&asked) else { continue };
            self.under_way.extend(again);
        }
        assert_eq!(self.receiver.poll_transmit(self.now), None, "messages without end");
        while self.subscription.poll_transmit(self.now).is_some() {}
        assert!(
            self.receiver.next_timeout().is_none_or(|at| at > self.now),
            "a timer that does not end"
        );
    }

    /// RFC 3711, appendix A, literally: the index nearest to the highest one.
    fn compare(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks_exact(2) {
            let sequence = u16::from_be_bytes([pair[0], pair[1]]);
            let number = self.extender.extend(sequence);
            assert_eq!(number as u16, sequence);
            if let Some(highest) = self.extender.newest() {
                let (roc, s_l) = ((highest >> 16) as i64, (highest & 0xffff) as i64);
                let seq = i64::from(sequence);
                let v = if s_l < 32_768 {
                    if seq - s_l > 32_768 { roc - 1 } else { roc }
                } else if s_l - 32_768 > seq {
                    roc + 1
                } else {
                    roc
                };
                // As far behind as ahead: both indices are right.
                if (seq - s_l).abs() != 32_768 && v >= 0 {
                    assert_eq!(number as i64, (v << 16) + seq, "next to {highest}");
                }
            }
            if pair[0] & 1 == 0 {
                self.extender.accept(number);
            }
        }
    }
}
