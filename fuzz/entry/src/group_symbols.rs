//! A subscriber of a stream, and the group's sealed symbols, genuine and forged by another
//! subscriber, who also has their key.
//!
//! Input: a sequence of steps. A step is one byte, the kind in its lower three bits and a small
//! number in the upper five, and for some kinds a length byte and as many bytes. As long as no
//! symbol was forged, a recovered datagram must be a packet of the stream that had not arrived, and
//! comes once.

use core::time::Duration;
use std::collections::BTreeSet;

use packrat_client::{Assist, AssistState, ClientConfig, Datagram, Live};
use packrat_code::{Encoder, Half, Repair, Window};
use packrat_wire::control::Control;
use packrat_wire::estimate::Timestamp;
use packrat_wire::group::{self, GroupCoded, MAXIMUM_NAMES};
use packrat_wire::identifier::IdentifierScheme;
use packrat_wire::message::Message;
use packrat_wire::seal::{MAXIMUM_PLAINTEXT_BYTES, Sealer};

use super::gateway_half::{GROUP_KEY, GatewayHalf, encode};
use super::take::take;

/// The place of the first packet: its lower 32 bits come around.
const FIRST: u64 = u32::MAX as u64 - 100;
/// Packets that a symbol covers, at most.
const WINDOW: u64 = 255;

struct World {
    client: Assist,
    gateway: GatewayHalf,
    sealer: Sealer,
    now: Timestamp,
    /// Packets of the stream so far, and the number that has not arrived.
    packets: u64,
    missing: BTreeSet<u64>,
    seed: u16,
    /// The last sealed datagram.
    last: Vec<u8>,
    is_honest: bool,
    recovered: u64,
}

/// A packet of the stream, of up to 1,500 bytes.
fn packet(number: u64) -> Vec<u8> {
    let hash = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let length = if hash & 1 << 60 == 0 { (hash >> 40) % 1450 } else { (hash >> 40) % 60 };
    let mut bytes = vec![(hash >> 30) as u8; 50 + length as usize];
    bytes[0] = 0x80;
    bytes[1..9].copy_from_slice(&number.to_be_bytes());
    bytes[9..17].copy_from_slice(&hash.to_be_bytes());
    bytes
}

/// Runs the steps. Panics when something is recovered that was not sent, or had arrived.
pub fn group_symbols(data: &[u8]) {
    recovered_by_group_symbols(data);
}

/// Runs the steps. Returns the number of recovered packets.
pub fn recovered_by_group_symbols(data: &[u8]) -> u64 {
    let mut world = World::begin();
    let mut rest = data;
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let number = u64::from(step >> 3);
        match step & 7 {
            0 => (0..=number).for_each(|_| world.send(true)),
            1 => (0..=number).for_each(|_| world.send(false)),
            // Late.
            2 => {
                if let Some(late) = world.missing.iter().nth(number as usize).copied() {
                    world.arrive(late);
                }
            }
            3 => world.symbol(number, take(&mut rest)),
            4 => {
                let plaintext = take(&mut rest);
                world.forge(&plaintext[..plaintext.len().min(MAXIMUM_PLAINTEXT_BYTES)]);
            }
            5 => {
                world.client.on_datagram(take(&mut rest), world.now);
            }
            // Again, or bent.
            6 => {
                let mut datagram = world.last.clone();
                if number > 0
                    && let Some(byte) = datagram.iter_mut().rev().nth(number as usize)
                {
                    *byte ^= 1 << (number % 8);
                }
                world.client.on_datagram(&datagram, world.now);
            }
            _ => world.now = world.now + Duration::from_millis(number * number),
        }
        world.listen();
        world.collect();
    }
    world.recovered
}

impl World {
    fn begin() -> Self {
        let live = Live {
            selective: true,
            subscribe: true,
            window: Duration::from_millis(400),
            tolerance: Duration::ZERO,
            symbols: true,
        };
        let now = Timestamp::from_millis(1000);
        let config = ClientConfig::default().with_live(live).with_scheme(IdentifierScheme::Payload);
        let mut client = Assist::new(config, [1; 32], now);
        let question = client.poll_transmit(now).expect("a question for a gateway");
        let Ok(Control::Discover { nonce, noise, .. }) = Control::decode(&question) else {
            panic!("the client said nonsense")
        };
        let (gateway, answer) = GatewayHalf::answer(nonce, noise);
        client.on_datagram(&answer, now);
        assert_eq!(client.stats().state, AssistState::Established);
        Self {
            client,
            gateway,
            sealer: group::sealer(GROUP_KEY),
            now,
            packets: 0,
            missing: BTreeSet::new(),
            seed: 0,
            last: Vec::new(),
            is_honest: true,
            recovered: 0,
        }
    }

    /// The next packet of the stream; lost, unless it arrives.
    fn send(&mut self, arrives: bool) {
        self.missing.insert(self.packets);
        self.packets += 1;
        if arrives {
            self.arrive(self.packets - 1);
        }
    }

    fn arrive(&mut self, number: u64) {
        self.missing.remove(&number);
        let arrived = self.client.on_datagram(&packet(number), self.now);
        assert_eq!(arrived, Datagram::Base);
        self.client.on_authentic(self.now);
    }

    /// A genuine symbol over the packets before the newest `number`; `details`: how many, and how many of
    /// them it names.
    fn symbol(&mut self, number: u64, details: &[u8]) {
        let detail = |at: usize| details.get(at).copied().unwrap_or(u8::MAX);
        let Some(newest) = self.packets.checked_sub(1 + number / 2) else { return };
        let half = if number.is_multiple_of(2) { Half::First } else { Half::Second };
        let count = u64::from(detail(0)).clamp(1, WINDOW).min(newest + 1);
        let Some(window) = Window::newest(FIRST + newest, count as u8) else { return };
        let first = newest + 1 - count;
        let packets: Vec<Vec<u8>> = (first..=newest).map(packet).collect();
        let bytes = |place: u64| {
            let packet = packets.get((place - FIRST - first) as usize)?;
            Some(packet.split_at(packet.len() / 2))
        };
        self.seed = self.seed.wrapping_add(1);
        let mut symbol = Vec::new();
        if Encoder::new().encode(window, half, self.seed, bytes, &mut symbol).is_err() {
            return;
        }
        let named = usize::from(detail(1)).min(packets.len()).min(MAXIMUM_NAMES);
        let names = packets[packets.len() - named..].iter();
        let names: Vec<_> = names.map(|packet| self.gateway.identify(packet)).collect();
        let repair = Repair { window, half, seed: self.seed, symbol: &symbol };
        let mut buffer = Vec::new();
        let message = GroupCoded::new(&repair, names.into_iter(), &mut buffer);
        self.say(&encode(&Message::GroupCoded(message)));
    }

    /// Another subscriber sends a message with the group's key.
    fn forge(&mut self, plaintext: &[u8]) {
        self.is_honest &= !matches!(Message::decode(plaintext), Ok(Message::GroupCoded(_)));
        self.say(plaintext);
    }

    fn say(&mut self, plaintext: &[u8]) {
        self.last.clear();
        self.sealer.seal(plaintext, &mut self.last).expect("short enough");
        assert_eq!(self.client.on_datagram(&self.last, self.now), Datagram::Control);
    }

    /// Takes all of the client's messages.
    fn listen(&mut self) {
        self.client.handle_timeout(self.now);
        for _ in 0..200 {
            let Some(datagram) = self.client.poll_transmit(self.now) else { return };
            if let Ok(Control::Sealed { .. }) = Control::decode(&datagram) {
                self.gateway.open(&datagram);
            }
        }
        panic!("the client talks without end");
    }

    fn collect(&mut self) {
        for _ in 0..2 * WINDOW {
            let Some(datagram) = self.client.poll_recovered() else { return };
            self.recovered += 1;
            assert_eq!(self.client.on_datagram(&datagram, self.now), Datagram::Base);
            if self.is_honest {
                let number = self.missing.iter().find(|number| packet(**number) == datagram);
                let number = *number.expect("not a packet of the stream that is missing");
                self.missing.remove(&number);
            }
        }
        panic!("more is recovered than a client keeps");
    }
}
