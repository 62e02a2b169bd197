//! The helper of an RTP stack, between a stream, an attacker that forges datagrams, and a gateway
//! that sends arbitrary sealed messages.
//!
//! Input: byte 0 sets the helper (bit 0: RTP's own numbers; bit 1: the source is signalled; bit 2:
//! no gateway; bit 3: a short jitter buffer). Then steps of one byte, the kind in the lower three
//! bits and a number in the upper five; some kinds take a length byte and as many bytes.

use core::time::Duration;
use std::collections::HashMap;

use packrat_eack::Identifier;
use packrat_media::{PacketNumbers, RtpAssist, RtpAssistConfig, Timestamp};
use packrat_wire::control::Control;
use packrat_wire::message::{GoodbyeReason, Message, Report, Totals};
use packrat_wire::seal::MAXIMUM_PLAINTEXT_BYTES;
use packrat_wire::{Epoch, MessageCounter};

use super::gateway_half::{GatewayHalf, encode};
use super::take::take;

const SOURCE: u32 = 7;
const EXTENSION: u8 = 3;
/// Delay of timers.
const TIMER: Duration = Duration::from_micros(500);
const GRACE: Duration = Duration::from_millis(2);
/// Gap in packets above which a sender may have restarted.
const WIDEST_GAP: u64 = 60;
/// A packet that is later may be of the numbers before a new beginning.
const LATEST: u64 = 900;

/// Copies of one datagram: how many have arrived, how many the stack has got, and since when one
/// waits.
#[derive(Default)]
struct Copies {
    arrived: u32,
    delivered: u32,
    waits_since: Option<Timestamp>,
}

struct World {
    helper: RtpAssist,
    numbers: PacketNumbers,
    hold: Duration,
    /// The gateway's half of the session, while it lasts.
    gateway: Option<GatewayHalf>,
    has_gateway: bool,
    now: Timestamp,
    next: u64,
    newest: u64,
    lost: Vec<(u64, Vec<u8>)>,
    last: Vec<u8>,
    identifiers: Vec<Identifier>,
    /// Counter of the newest eACK.
    heard: MessageCounter,
    /// All datagrams of the transport's.
    ledger: HashMap<Vec<u8>, Copies>,
    /// The stream's packets, by their bytes.
    packets: HashMap<Vec<u8>, u64>,
    /// Numbers of waiting packets.
    waiting: Vec<u64>,
    /// Set while only the stream has come, with unambiguous numbers.
    is_plain: bool,
}

/// Runs the steps. Panics when a datagram is delivered twice, changed, never, or later than after
/// the hold; when a packet of the stream overtakes a waiting one; when the helper sends without
/// end.
pub fn rtp_assist(data: &[u8]) {
    let (&settings, mut rest) = data.split_first().unwrap_or((&0, &[]));
    let mut world = World::new(settings);
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let number = u64::from(step >> 3);
        match step & 7 {
            0 => (0..=number).for_each(|_| world.send()),
            1 => (0..=number).for_each(|_| world.lose()),
            2 => world.arrive_late(number as usize),
            3 => world.pass(Duration::from_millis(number * number)),
            4 => world.report(number, take(&mut rest)),
            5 => {
                let plaintext = take(&mut rest);
                world.say(&plaintext[..plaintext.len().min(MAXIMUM_PLAINTEXT_BYTES)]);
            }
            6 => world.foreign(number, take(&mut rest)),
            _ => world.change(number),
        }
        world.check();
    }
    world.helper.close(world.now);
    world.poll();
    for copies in world.ledger.values() {
        assert!(copies.delivered > 0, "a datagram was lost");
    }
}

impl World {
    fn new(settings: u8) -> Self {
        let numbers = match settings & 1 {
            0 => PacketNumbers::TransportWide { extension: EXTENSION },
            _ => PacketNumbers::Stream,
        };
        let mut config = RtpAssistConfig::new(numbers);
        if settings & 2 != 0 {
            config.sources.push(SOURCE);
        }
        if settings & 8 != 0 {
            config.latency = Duration::from_millis(60);
        }
        let hold = config.latency.min(config.access.maximum_hold);
        let now = Timestamp::from_millis(1000);
        let mut world = Self {
            helper: RtpAssist::new(config, [1; 32], now),
            numbers,
            hold,
            gateway: None,
            has_gateway: settings & 4 == 0,
            now,
            next: 0,
            newest: 0,
            lost: Vec::new(),
            last: Vec::new(),
            identifiers: Vec::new(),
            heard: MessageCounter::FIRST,
            ledger: HashMap::new(),
            packets: HashMap::new(),
            waiting: Vec::new(),
            is_plain: true,
        };
        world.poll();
        assert_eq!(world.gateway.is_some(), world.has_gateway);
        world
    }

    /// A packet of the stream. Its timestamp makes each one different.
    fn packet(&self, number: u64, source: u32, timestamp: u32) -> Vec<u8> {
        let sequence = (number as u16).to_be_bytes();
        let mut bytes = match self.numbers {
            PacketNumbers::TransportWide { .. } => vec![0x90, 96, 0, 0],
            PacketNumbers::Stream => vec![0x80, 96, sequence[0], sequence[1]],
        };
        bytes.extend_from_slice(&timestamp.to_be_bytes());
        bytes.extend_from_slice(&source.to_be_bytes());
        if matches!(self.numbers, PacketNumbers::TransportWide { .. }) {
            bytes.extend_from_slice(&[0xbe, 0xde, 0, 1, (EXTENSION << 4) | 1]);
            bytes.extend_from_slice(&sequence);
            bytes.push(0);
        }
        bytes.extend_from_slice(&[7; 40]);
        bytes
    }

    fn next_packet(&mut self) -> (u64, Vec<u8>) {
        let number = self.next;
        self.next += 1;
        let packet = self.packet(number, SOURCE, number as u32);
        self.packets.insert(packet.clone(), number);
        if let Some(gateway) = &self.gateway {
            self.identifiers.push(gateway.identify(&packet));
        }
        (number, packet)
    }

    fn send(&mut self) {
        let (number, packet) = self.next_packet();
        self.arrive_packet(number, &packet);
    }

    fn lose(&mut self) {
        let packet = self.next_packet();
        self.lost.push(packet);
    }

    fn arrive_late(&mut self, index: usize) {
        if !self.lost.is_empty() {
            let (number, packet) = self.lost.remove(index % self.lost.len());
            self.arrive_packet(number, &packet);
        }
    }

    fn arrive_packet(&mut self, number: u64, packet: &[u8]) {
        let is_near = number <= self.newest + WIDEST_GAP && number + LATEST >= self.newest;
        self.is_plain &= is_near;
        self.newest = self.newest.max(number);
        self.last = packet.to_vec();
        self.waiting.push(number);
        self.arrive(packet);
    }

    fn arrive(&mut self, datagram: &[u8]) {
        // The helper alone knows whether it is a control datagram of its session.
        if !packrat_wire::is_control(datagram) {
            let copies = self.ledger.entry(datagram.to_vec()).or_default();
            copies.arrived += 1;
            copies.waits_since.get_or_insert(self.now);
        }
        self.helper.on_datagram(datagram, self.now);
        self.poll();
    }

    /// Lets time pass, and serves timers.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..10_000 {
            let Some(at) = self.helper.next_timeout().filter(|at| *at <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(at) + TIMER;
            self.helper.handle_timeout(self.now);
            self.poll();
        }
        panic!("timers without end");
    }

    /// Takes the stack's datagrams, and all of the helper's messages; answers handshakes.
    fn poll(&mut self) {
        while let Some(datagram) = self.helper.poll_deliver() {
            self.deliver(&datagram);
        }
        for _ in 0..200 {
            let Some(datagram) = self.helper.poll_transmit(self.now) else { return };
            match Control::decode(&datagram).expect("the helper said nonsense") {
                Control::Discover { nonce, noise, .. } | Control::Init { nonce, noise, .. }
                    if !noise.is_empty() && self.has_gateway =>
                {
                    self.answer(nonce, noise);
                }
                Control::Discover { .. } | Control::Init { .. } => {}
                Control::Sealed { .. } => {
                    let Some(gateway) = &mut self.gateway else { continue };
                    self.heard = gateway.open(&datagram).unwrap_or(self.heard);
                }
                other => panic!("the helper said {other:?}"),
            }
        }
        panic!("the helper talks without end");
    }

    fn deliver(&mut self, datagram: &[u8]) {
        if packrat_wire::is_control(datagram) {
            return;
        }
        let copies = self.ledger.get_mut(datagram).expect("a datagram that never arrived");
        copies.delivered += 1;
        copies.waits_since = None;
        assert!(copies.delivered <= copies.arrived, "delivered twice");
        if let Some(number) = self.packets.get(datagram) {
            self.waiting.retain(|waiting| waiting != number);
            let lowest = self.waiting.iter().min();
            assert!(
                !self.is_plain || lowest.is_none_or(|lowest| number < lowest),
                "{number} has overtaken {lowest:?}, which waits"
            );
        }
    }

    fn answer(&mut self, nonce: u64, noise: &[u8]) {
        let (gateway, answer) = GatewayHalf::answer(nonce, noise);
        self.gateway = Some(gateway);
        self.helper.on_datagram(&answer, self.now);
    }

    fn report(&mut self, number: u64, details: &[u8]) {
        let detail = |at: usize| details.get(at).copied().unwrap_or_default();
        let settled = self.identifiers.iter().rev().nth(usize::from(detail(0))).copied();
        let report = Report {
            epoch: Epoch::FIRST,
            echo: MessageCounter::new(self.heard.get().wrapping_sub(detail(1).into())),
            echo_age: Duration::from_millis(u64::from(detail(2))),
            missing: u16::from(detail(3)),
            settled: settled.filter(|_| number & 1 != 0),
            wanted: None,
            round_trip: Duration::from_millis(u64::from(detail(4)) * 10),
            loss: u16::from_be_bytes([detail(5), detail(6)]),
            queueing: Duration::from_millis(u64::from(detail(7))),
            totals: Totals::default(),
        };
        self.say(&encode(&Message::Report(report)));
    }

    fn say(&mut self, plaintext: &[u8]) {
        let Some(gateway) = &mut self.gateway else { return };
        let datagram = gateway.seal(plaintext);
        self.helper.on_datagram(&datagram, self.now);
        self.poll();
    }

    /// A datagram of another sender: of the stream's source or another one, with a number near or far,
    /// or anything.
    fn foreign(&mut self, number: u64, bytes: &[u8]) {
        let detail = |at: usize| u64::from(bytes.get(at).copied().unwrap_or_default());
        let near = self.next.wrapping_add(detail(0)).wrapping_sub(128);
        let datagram = match number & 7 {
            0 => self.packet(near, SOURCE, u32::MAX),
            1 => self.packet(near.wrapping_add(detail(1) << 8), SOURCE, u32::MAX),
            2 => self.packet(near, SOURCE + 1 + detail(1) as u32, u32::MAX),
            3 => [&[0x80, 200, 0, 1, 0, 0, 0, SOURCE as u8], bytes].concat(),
            4 => [&[0x00, 0x01, 0, 0, 0x21, 0x12, 0xa4, 0x42], bytes].concat(),
            5 => [&[0x0b, 0x50, 0x6b, 0x72], bytes].concat(),
            6 => [&self.last[..self.last.len().min(usize::from(detail(0) as u8))], bytes].concat(),
            _ => bytes.to_vec(),
        };
        self.is_plain = false;
        self.arrive(&datagram);
    }

    fn change(&mut self, number: u64) {
        match number {
            0 => self.say(&encode(&Message::Goodbye { reason: GoodbyeReason::Draining })),
            1 => self.gateway = None,
            2 if !self.last.is_empty() => {
                let again = self.last.clone();
                self.arrive(&again);
            }
            // The sender restarts.
            3 => {
                self.next += 20_000;
                self.is_plain = false;
            }
            4 => self.helper.close(self.now),
            _ => self.pass(Duration::from_secs(number)),
        }
        self.poll();
    }

    fn check(&mut self) {
        for copies in self.ledger.values() {
            if let Some(since) = copies.waits_since {
                let waited = self.now.saturating_since(since);
                assert!(waited <= self.hold + GRACE, "a datagram waits since {waited:?}");
            }
        }
    }
}
