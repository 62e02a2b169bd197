//! A gateway's stream and its subscribers. One of them sends arbitrary messages, sealed, and
//! strangers send arbitrary datagrams.
//!
//! Input: a sequence of steps. A step is one byte, the kind in its lower three bits and a small
//! number in the upper five, and for some kinds a length byte and as many bytes.

use core::time::Duration;
use std::collections::HashMap;
use std::net::SocketAddr;

use packrat_eack::Encoding;
use packrat_engine::{Gateway, GatewayConfig, Stream, StreamConfig, StreamOutbox, Target};
use packrat_wire::Epoch;
use packrat_wire::control::{Control, PROTOCOL_VERSION};
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::{ClientParams, Initiator, Live};
use packrat_wire::identifier::IdentifierScheme;
use packrat_wire::message::Message;
use packrat_wire::seal::MAXIMUM_PLAINTEXT_BYTES;

use super::claims::{Claims, plain_params};
use super::take::take;

/// Share of the stream that a subscriber may get as repairs.
const REPAIR_SHARE: f64 = 0.25;
/// Repair bytes that a subscriber may get from the start.
const REPAIR_BURST: u64 = 32 * 1024;

struct World {
    stream: Stream,
    address: SocketAddr,
    claims: Claims,
    packets: Vec<Vec<u8>>,
    bytes: u64,
    repaired: u64,
    now: Timestamp,
    out: StreamOutbox,
    /// Bytes from and to addresses without a subscription.
    strangers: HashMap<SocketAddr, [usize; 2]>,
}

/// Runs the steps; panics when the gateway breaks a promise.
pub fn subscribers(data: &[u8]) {
    let mut world = World::begin();
    let mut rest = data;
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let number = usize::from(step >> 3);
        match step & 7 {
            0 => (0..=number).for_each(|_| world.forward(number * 37)),
            1 => world.claims.claim(number),
            2 => {
                world.now = world.now + Duration::from_millis(number as u64);
                if world.stream.next_timeout().is_some_and(|at| at <= world.now) {
                    world.stream.handle_timeout(world.now, &mut world.out);
                }
            }
            3 => world.say_eack(number, take(&mut rest)),
            4 => {
                world.claims.epoch =
                    Epoch::new(world.claims.epoch.get().wrapping_add(number as u16))
            }
            5 => {
                let plaintext = take(&mut rest);
                world.say(&plaintext[..plaintext.len().min(MAXIMUM_PLAINTEXT_BYTES)]);
            }
            // A stranger asks for a subscription.
            6 => {
                let noise = initiator(number as u64).message().expect("a first message");
                let mut discover = Vec::new();
                let nonce = number as u64;
                Control::Discover { nonce, versions: &[PROTOCOL_VERSION], noise: &noise }
                    .encode(&mut discover);
                world.receive(&discover, SocketAddr::from(([198, 51, 100, number as u8], 1)));
            }
            _ => {
                let datagram = take(&mut rest);
                let from = match number % 2 {
                    0 => world.address,
                    _ => SocketAddr::from(([198, 51, 100, number as u8], 1)),
                };
                world.receive(datagram, from);
            }
        }
        world.check();
    }
}

fn initiator(nonce: u64) -> Initiator {
    let window = Duration::from_millis(400);
    let live = Some(Live { selective: true, subscribe: true, window, ..Live::default() });
    let params = ClientParams { live, ..plain_params(IdentifierScheme::Payload, window) };
    Initiator::new([1; 32], nonce, params, None)
}

impl World {
    fn begin() -> Self {
        let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
        let mut stream = Stream::new(gateway, StreamConfig::default(), [5; 32]);
        let now = Timestamp::from_millis(1000);
        let address = SocketAddr::from(([192, 0, 2, 1], 5000));
        let claims = Claims::begin(initiator(7), 7, |question| {
            let mut out = StreamOutbox::new();
            stream.receive(question, address, || [2; 32], now, &mut out);
            out.datagrams().next().expect("an answer").1.to_vec()
        });
        Self {
            stream,
            address,
            claims,
            packets: Vec::new(),
            bytes: 0,
            repaired: 0,
            now,
            out: StreamOutbox::new(),
            strangers: HashMap::new(),
        }
    }

    fn forward(&mut self, length: usize) {
        let mut packet = vec![0x80; length + 24];
        let number = self.packets.len() as u64;
        packet[1..9].copy_from_slice(&number.to_be_bytes());
        self.claims.forwarded(&packet);
        self.stream.forward(&packet, self.now);
        self.bytes += packet.len() as u64;
        self.packets.push(packet);
    }

    /// An eACK of the claimed set. `details`: see [`Claims::eack`].
    fn say_eack(&mut self, number: usize, details: &[u8]) {
        if let Some(eack) = self.claims.eack(number, details, |count| Encoding::PowerSums { count })
        {
            self.say(&eack);
        }
    }

    fn say(&mut self, plaintext: &[u8]) {
        let datagram = self.claims.seal(plaintext);
        self.receive(&datagram, self.address);
    }

    fn receive(&mut self, datagram: &[u8], from: SocketAddr) {
        if from != self.address {
            self.strangers.entry(from).or_default()[0] += datagram.len();
        }
        self.stream.receive(datagram, from, || [6; 32], self.now, &mut self.out);
    }

    /// Every datagram that the gateway sends is a repair for a subscriber, or authentic, or an
    /// answer shorter than its question.
    fn check(&mut self) {
        let mut plaintext = Vec::new();
        for (target, datagram) in self.out.datagrams() {
            let Target::One(to) = target else { panic!("there is no group") };
            match Control::decode(datagram) {
                _ if to != self.address => {
                    self.strangers.get_mut(&to).expect("somebody who has asked")[1] +=
                        datagram.len();
                }
                Ok(Control::Sealed { .. }) => {
                    // Perhaps of the session before, when the subscription has ended.
                    if self.claims.client.opener.open(datagram, &mut plaintext).is_ok() {
                        assert!(Message::decode(&plaintext).is_ok(), "the gateway said nonsense");
                    }
                }
                Ok(Control::Refusal { .. } | Control::Offer { .. }) => {}
                Ok(other) => panic!("the gateway said {other:?}"),
                Err(_) => {
                    assert!(self.packets.iter().any(|known| known == datagram), "never forwarded");
                    self.repaired += datagram.len() as u64;
                }
            }
        }
        self.out.clear();
        for (address, [sent, received]) in &self.strangers {
            assert!(received <= sent, "{address} was sent {received} bytes for {sent}");
        }
        let allowed = REPAIR_BURST + (self.bytes as f64 * REPAIR_SHARE) as u64;
        assert!(self.repaired <= allowed, "{} of {allowed} bytes", self.repaired);
        assert!(self.stream.subscribers().all(|subscriber| subscriber == self.address));
    }
}
