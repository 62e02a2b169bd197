//! A gateway and one assisted flow, driven by bytes: datagrams pass, time passes, and the client
//! sends arbitrary messages, sealed as its own.
//!
//! Input: a sequence of steps. A step is one byte, the kind in its lower three bits and a small
//! number in the upper five, and for some kinds a length byte and as many bytes.

use core::time::Duration;
use std::net::SocketAddr;

use packrat_eack::Encoding;
use packrat_engine::{Flow, Gateway, GatewayConfig, NetworkPath, Outbox, PathUse, Received};
use packrat_wire::Epoch;
use packrat_wire::control::Control;
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::Initiator;
use packrat_wire::identifier::IdentifierScheme;
use packrat_wire::message::Message;
use packrat_wire::seal::MAXIMUM_PLAINTEXT_BYTES;

use super::claims::{Claims, plain_params};
use super::take::take;

const CACHE_BYTES: usize = 32 * 1024;
const REPAIR_BUDGET: f64 = 0.25;
/// Repair bytes that a flow may send before it has forwarded any datagram.
const REPAIR_BURST: u64 = 64 * 1024;
const NONCE: u64 = 7;

struct World {
    flow: Flow,
    claims: Claims,
    forwarded: Vec<Vec<u8>>,
    forwarded_bytes: u64,
    repaired_bytes: u64,
    now: Timestamp,
    out: Outbox,
}

/// Runs the steps; panics when the gateway breaks a promise.
pub fn gateway(data: &[u8]) {
    let config = GatewayConfig {
        cache_bytes_per_flow: CACHE_BYTES,
        repair_budget: REPAIR_BUDGET,
        ..GatewayConfig::default()
    };
    let gateway = Gateway::new(config, [3; 32], [4; 32]);
    let peer = SocketAddr::from(([192, 0, 2, 1], 5000));
    let mut world = World::begin(&gateway, peer);
    let mut rest = data;
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let number = usize::from(step >> 3);
        match step & 7 {
            0 => (0..=number).for_each(|_| world.forward(number * 47)),
            1 => world.claims.claim(number),
            2 => {
                world.now = world.now + Duration::from_millis(number as u64);
                if world.flow.next_timeout().is_some_and(|at| at <= world.now) {
                    world.flow.handle_timeout(world.now, &mut world.out);
                }
            }
            3 => world.say_eack(number, take(&mut rest)),
            4 => {
                world.claims.epoch =
                    Epoch::new(world.claims.epoch.get().wrapping_add(number as u16))
            }
            5 => world.say(take(&mut rest)),
            6 => world.say_from_elsewhere(number as u8, take(&mut rest)),
            _ => {
                let datagram = take(&mut rest);
                let mut out = Outbox::new();
                if let Received::ForFlow = gateway.receive(datagram, peer, world.now, &mut out) {
                    world.flow.control(datagram, world.now, &mut world.out);
                }
                assert!(
                    out.datagrams().map(<[u8]>::len).sum::<usize>() <= datagram.len(),
                    "amplified"
                );
            }
        }
        world.check();
    }
}

impl World {
    fn begin(gateway: &std::sync::Arc<Gateway>, peer: SocketAddr) -> Self {
        let now = Timestamp::from_millis(1000);
        let params = plain_params(IdentifierScheme::Trailer, Duration::from_millis(120));
        let mut flow = Flow::new(std::sync::Arc::clone(gateway));
        let claims =
            Claims::begin(Initiator::new([1; 32], NONCE, params, None), NONCE, |question| {
                let mut out = Outbox::new();
                if let Received::Begin(begin) = gateway.receive(question, peer, now, &mut out) {
                    flow.begin(begin, [2; 32], now, &mut out);
                }
                out.datagrams().next().expect("an answer").to_vec()
            });
        Self {
            flow,
            claims,
            forwarded: Vec::new(),
            forwarded_bytes: 0,
            repaired_bytes: 0,
            now,
            out: Outbox::new(),
        }
    }

    fn forward(&mut self, length: usize) {
        let mut datagram = vec![0xa5; length + 24];
        let number = self.forwarded.len() as u64;
        datagram[length..length + 8].copy_from_slice(&number.to_le_bytes());
        datagram[length + 16..].copy_from_slice(&(number + 1).to_le_bytes());
        self.claims.forwarded(&datagram);
        self.flow.forward(&datagram, self.now);
        self.forwarded_bytes += datagram.len() as u64;
        self.forwarded.push(datagram);
    }

    /// An eACK of the claimed set. `details`: see [`Claims::eack`].
    fn say_eack(&mut self, number: usize, details: &[u8]) {
        let encoding = |count| match number & 1 {
            0 => Encoding::PowerSums { count },
            _ => Encoding::CodedSymbols { count },
        };
        if let Some(eack) = self.claims.eack(number, details, encoding) {
            self.say(&eack);
        }
    }

    fn seal(&mut self, plaintext: &[u8]) -> Vec<u8> {
        self.claims.seal(&plaintext[..plaintext.len().min(MAXIMUM_PLAINTEXT_BYTES)])
    }

    fn say(&mut self, plaintext: &[u8]) {
        let datagram = self.seal(plaintext);
        self.flow.control(&datagram, self.now, &mut self.out);
    }

    /// Sends a sealed message from another address, with a bent seal from each second one.
    fn say_from_elsewhere(&mut self, number: u8, plaintext: &[u8]) {
        let mut datagram = self.seal(plaintext);
        if let Some(byte) = datagram.last_mut() {
            *byte ^= number % 2;
        }
        let (client, gateway) = (([198, 51, 100, number], 1).into(), ([192, 0, 2, 1], 443).into());
        let from = NetworkPath { client, gateway };
        let (now, out) = (self.now, &mut self.out);
        self.flow.control_on_new_path(&datagram, from, || [number; 8], || PathUse::Free, now, out);
    }

    /// Every datagram that the gateway sends is a repair of a forwarded one, or authentic, and the
    /// gateway keeps within its limits.
    fn check(&mut self) {
        let mut plaintext = Vec::new();
        for datagram in self.out.datagrams() {
            match Control::decode(datagram) {
                Ok(Control::Sealed { .. }) => {
                    self.claims
                        .client
                        .opener
                        .open(datagram, &mut plaintext)
                        .expect("authentic and new");
                    assert!(Message::decode(&plaintext).is_ok(), "the gateway said nonsense");
                }
                Ok(Control::Refusal { .. }) => {}
                Ok(other) => panic!("the gateway said {other:?}"),
                Err(_) => {
                    assert!(
                        self.forwarded.iter().any(|known| known == datagram),
                        "never forwarded"
                    );
                    self.repaired_bytes += datagram.len() as u64;
                }
            }
        }
        self.out.clear();
        // Twice the configured budget, when the client claims that much loss.
        let allowed = REPAIR_BURST + (self.forwarded_bytes as f64 * REPAIR_BUDGET * 2.0) as u64;
        assert!(self.repaired_bytes <= allowed, "{} of {allowed} bytes", self.repaired_bytes);
        assert!(self.flow.gauges().cache_bytes <= CACHE_BYTES as u64);
    }
}
