//! A client with a session, and a gateway that sends arbitrary messages, sealed as the gateway's
//! own.
//!
//! Input: a sequence of steps. A step is one byte, the kind in its lower three bits and a small
//! number in the upper five, and for some kinds a length byte and as many bytes.

use core::time::Duration;
use std::collections::BTreeMap;

use packrat_client::{Assist, AssistState, ClientConfig, Datagram, PacketNumber};
use packrat_eack::{Encoding, Identifier};
use packrat_wire::control::{Control, RefusalReason, session_nonce};
use packrat_wire::estimate::Timestamp;
use packrat_wire::message::{GoodbyeReason, Message, Report, ResetReason, Totals};
use packrat_wire::seal::MAXIMUM_PLAINTEXT_BYTES;
use packrat_wire::{Epoch, MessageCounter};

use super::gateway_half::{GatewayHalf, encode};
use super::take::take;

const MAXIMUM_HOLD: Duration = Duration::from_millis(300);
/// Delay of timers.
const TIMER: Duration = Duration::from_micros(500);
const GRACE: Duration = Duration::from_millis(1);

struct World {
    client: Assist,
    /// The gateway's half of the session, while it lasts.
    gateway: Option<GatewayHalf>,
    now: Timestamp,
    next: u64,
    /// Packet numbers known to be missing, and the time since when.
    missing: BTreeMap<u64, Timestamp>,
    identifiers: Vec<Identifier>,
    /// Counter of the newest eACK.
    newest: MessageCounter,
    /// The nonce that a refusal of the newest sealed message has to repeat.
    refusable: Option<u64>,
    /// Handshakes answered.
    sessions: u32,
}

/// Runs the steps. Panics when the client waits for too long, sends without end, or sends malformed
/// messages.
pub fn client(data: &[u8]) {
    client_sessions(data);
}

/// Runs the steps. Returns the number of sessions that the client has begun.
pub fn client_sessions(data: &[u8]) -> u32 {
    let now = Timestamp::from_millis(1000);
    let config = ClientConfig::default().with_maximum_hold(MAXIMUM_HOLD);
    let mut world = World {
        client: Assist::new(config, [1; 32], now),
        gateway: None,
        now,
        next: 0,
        missing: BTreeMap::new(),
        identifiers: Vec::new(),
        newest: MessageCounter::FIRST,
        refusable: None,
        sessions: 0,
    };
    world.listen();
    assert_eq!(world.client.stats().state, AssistState::Established);
    let mut rest = data;
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let number = u64::from(step >> 3);
        match step & 7 {
            0 => (0..=number).for_each(|_| world.arrive()),
            // Lost, or late.
            1 if number < 16 => world.skip(number),
            1 => world.arrive_late(number as usize - 16),
            2 => world.pass(Duration::from_millis(number * number)),
            3 => world.report(number, take(&mut rest)),
            4 => {
                let epoch = Epoch::new((number as u16).wrapping_mul(1021));
                let reset = Message::Reset { epoch, reason: ResetReason::DecodeFailed };
                world.say(&encode(&reset));
            }
            5 => {
                let plaintext = take(&mut rest);
                world.say(&plaintext[..plaintext.len().min(MAXIMUM_PLAINTEXT_BYTES)]);
            }
            6 if number == 0 => {
                world.say(&encode(&Message::Goodbye { reason: GoodbyeReason::Draining }))
            }
            6 if number == 1 => world.refuse(),
            6 => {
                let datagram = [&[0x0b, 0x50, 0x6b, 0x72], take(&mut rest)].concat();
                world.client.on_datagram(&datagram, world.now);
            }
            _ => world.change(take(&mut rest)),
        }
        world.listen();
        world.check();
    }
    world.sessions
}

impl World {
    fn packet(&mut self, number: u64) {
        let mut datagram = vec![0x40; 60];
        datagram[44..52].copy_from_slice(&number.to_be_bytes());
        datagram[52..].copy_from_slice(&(number + 1).to_be_bytes());
        if let Some(gateway) = &self.gateway {
            self.identifiers.push(gateway.identify(&datagram));
        }
        assert_eq!(self.client.on_datagram(&datagram, self.now), Datagram::Base);
        self.client.on_packet_number(PacketNumber::new(number), self.now);
    }

    /// Lets time pass, and serves timers.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..10_000 {
            let Some(at) = self.client.next_timeout().filter(|at| *at <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(at) + TIMER;
            self.listen();
        }
        panic!("timers without end");
    }

    fn arrive(&mut self) {
        self.packet(self.next);
        self.next += 1;
    }

    fn skip(&mut self, number: u64) {
        for skipped in self.next..=self.next + number {
            self.missing.insert(skipped, self.now);
        }
        self.next += number + 1;
        self.arrive();
    }

    fn arrive_late(&mut self, index: usize) {
        if let Some(number) = self.missing.keys().nth(index).copied() {
            self.missing.remove(&number);
            self.packet(number);
        }
    }

    fn report(&mut self, number: u64, details: &[u8]) {
        let detail = |at: usize| details.get(at).copied().unwrap_or_default();
        let wanted = Encoding::from_wire([detail(0), detail(1)]);
        let settled = self.identifiers.iter().rev().nth(usize::from(detail(2))).copied();
        let report = Report {
            epoch: Epoch::new(u16::from(detail(3)).wrapping_mul(1021)),
            echo: MessageCounter::new(self.newest.get().wrapping_sub(detail(4).into())),
            echo_age: Duration::from_millis(u64::from(detail(5))),
            missing: u16::from(detail(6)),
            settled: settled.filter(|_| number & 1 != 0),
            wanted: wanted.filter(|_| number & 2 != 0),
            round_trip: Duration::from_millis(u64::from(detail(7)) * 10),
            loss: u16::from_be_bytes([detail(8), detail(9)]),
            queueing: Duration::from_millis(u64::from(detail(10))),
            totals: Totals::default(),
        };
        self.say(&encode(&Message::Report(report)));
    }

    fn say(&mut self, plaintext: &[u8]) {
        let Some(gateway) = &mut self.gateway else { return };
        let datagram = gateway.seal(plaintext);
        self.client.on_datagram(&datagram, self.now);
    }

    /// The gateway, or an attacker on the path, does not know the newest sealed message's session.
    fn refuse(&mut self) {
        let Some(nonce) = self.refusable else { return };
        let mut datagram = Vec::new();
        Control::Refusal { nonce, reason: RefusalReason::Session, versions: &[] }
            .encode(&mut datagram);
        self.client.on_datagram(&datagram, self.now);
    }

    /// Takes all the client's messages; answers handshakes.
    fn listen(&mut self) {
        self.client.handle_timeout(self.now);
        for _ in 0..200 {
            let Some(datagram) = self.client.poll_transmit(self.now) else { return };
            match Control::decode(&datagram).expect("the client said nonsense") {
                Control::Discover { nonce, noise, .. } | Control::Init { nonce, noise, .. }
                    if !noise.is_empty() =>
                {
                    self.answer(nonce, noise);
                }
                Control::Discover { .. } => {}
                Control::Sealed { session, counter, .. } => {
                    self.refusable = Some(session_nonce(session, counter));
                    let Some(gateway) = &mut self.gateway else { continue };
                    self.newest = gateway.open(&datagram).unwrap_or(self.newest);
                }
                other => panic!("the client said {other:?}"),
            }
        }
        panic!("the client talks without end");
    }

    fn answer(&mut self, nonce: u64, noise: &[u8]) {
        let (gateway, answer) = GatewayHalf::answer(nonce, noise);
        self.client.on_datagram(&answer, self.now);
        self.gateway = Some(gateway);
        self.sessions += 1;
    }

    /// Something happens at the client's own host.
    fn change(&mut self, bytes: &[u8]) {
        match bytes.first() {
            None => self.client.on_network_change(self.now),
            Some(0) => self.client.reset(self.now),
            Some(&ahead) => {
                let overdue = PacketNumber::new(self.next + u64::from(ahead));
                self.client.on_overdue(overdue, self.now);
            }
        }
    }

    /// The client waits for no packet longer than the maximum hold, whatever the gateway sends.
    fn check(&mut self) {
        for (number, since) in &self.missing {
            let waited = self.now.saturating_since(*since);
            assert!(
                waited <= MAXIMUM_HOLD + GRACE
                    || !self.client.is_awaited(PacketNumber::new(*number)),
                "{number} is waited for since {waited:?}"
            );
        }
        self.missing.retain(|_, since| self.now.saturating_since(*since) < Duration::from_secs(5));
    }
}
