//! An assisted flow of the engine with its real client, without sockets.
//!
//! The setting of Packrat26, section 7.3.4: datagrams of a full packet, 4 % loss, an eACK of the
//! real client for every sixteenth datagram (16.3 there).

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packrat_client::{Assist, ClientConfig, Datagram, PacketNumber};
use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox, Received};
use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::{IdentifierKey, IdentifierScheme};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Datagrams between two eACKs.
pub const PER_EACK: usize = 16;
/// Time between two datagrams of 1200 bytes at 100 Mbit/s.
const DATAGRAM_SPACING: Duration = Duration::from_micros(96);

/// An assisted flow with its client.
#[derive(Debug)]
pub struct Scene {
    flow: Flow,
    client: Assist,
    random: ChaCha8Rng,
    now: Timestamp,
    number: u64,
    loss: f64,
    datagrams: Vec<Vec<u8>>,
    out: Outbox,
}

impl Scene {
    /// A flow after the handshake; datagrams are of `bytes` bytes, and the last mile loses a share
    /// `loss`.
    pub fn new(
        gateway: &Arc<Gateway>,
        bytes: usize,
        loss: f64,
        seed: u64,
    ) -> Result<Self, Box<dyn Error>> {
        let (flow, client, _) = handshake(gateway, seed)?;
        let now = begin_of(seed);
        let datagrams = vec![vec![0x40; bytes]; PER_EACK];
        Ok(Self {
            flow,
            client,
            random: ChaCha8Rng::seed_from_u64(seed),
            now,
            number: 0,
            loss,
            datagrams,
            out: Outbox::new(),
        })
    }

    /// Forwards sixteen datagrams and answers their eACK; returns the time that the engine took for
    /// each.
    pub fn turn(&mut self) -> (Duration, Duration) {
        for (number, datagram) in (self.number..).zip(&mut self.datagrams) {
            let tail = datagram.len() - 16;
            self.random.fill_bytes(&mut datagram[tail..]);
            datagram[1..9].copy_from_slice(&number.to_be_bytes());
        }
        let started = Instant::now();
        measured_forward(&mut self.flow, &self.datagrams, self.now);
        let forward = started.elapsed();
        for datagram in &self.datagrams {
            self.now = self.now + DATAGRAM_SPACING;
            if f64::from(self.random.next_u32()) >= self.loss * f64::from(u32::MAX) {
                self.client.on_datagram(datagram, self.now);
                self.client.on_packet_number(PacketNumber::new(self.number), self.now);
            }
            self.number += 1;
        }
        let later = self.now + Duration::from_millis(10);
        self.client.handle_timeout(later);
        let mut eack = Duration::ZERO;
        while let Some(message) = self.client.poll_transmit(later) {
            let started = Instant::now();
            measured_eack(&mut self.flow, &message, self.now, &mut self.out);
            eack += started.elapsed();
        }
        for datagram in self.out.datagrams() {
            if self.client.on_datagram(datagram, self.now) == Datagram::Base
                && let Some(number) = datagram.get(1..).and_then(|rest| rest.first_chunk())
            {
                let number = PacketNumber::new(u64::from_be_bytes(*number));
                self.client.on_packet_number(number, self.now);
            }
        }
        self.out.clear();
        (forward, eack)
    }
}

/// The time at which a flow begins: each a moment after the previous one, because a gateway's
/// thread spends a limited time on the messages of all clients.
#[must_use]
pub fn begin_of(seed: u64) -> Timestamp {
    Timestamp::from_millis(1000 + seed)
}

/// An assisted flow, and the time of the gateway's part of the handshake.
pub fn assisted_flow(
    gateway: &Arc<Gateway>,
    seed: u64,
) -> Result<(Flow, Duration), Box<dyn Error>> {
    handshake(gateway, seed).map(|(flow, _, took)| (flow, took))
}

/// The handshake up to the client's first sealed message; each `seed` makes another flow.
fn handshake(
    gateway: &Arc<Gateway>,
    seed: u64,
) -> Result<(Flow, Assist, Duration), Box<dyn Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut secret = [0; 32];
    random.fill_bytes(&mut secret);
    let mut flow = Flow::new(Arc::clone(gateway));
    let begin_at = begin_of(seed);
    let mut client = Assist::new(ClientConfig::default(), secret, begin_at);
    let mut out = Outbox::new();
    let mut took = Duration::ZERO;
    // Question and answer twice if the gateway asks for a cookie, then the first sealed message.
    for _ in 0..6 {
        while let Some(question) = client.poll_transmit(begin_at) {
            random.fill_bytes(&mut secret);
            let started = Instant::now();
            match gateway.receive(&question, peer(seed), begin_at, &mut out) {
                Received::Begin(begin) => {
                    flow.begin(begin, secret, begin_at, &mut out);
                }
                // The first sealed message: only now the session begins.
                Received::ForFlow => flow.control(&question, begin_at, &mut out),
                Received::Done(_) => {}
            }
            took += started.elapsed();
        }
        out.datagrams().for_each(|answer| {
            client.on_datagram(answer, begin_at);
        });
        out.clear();
    }
    if flow.is_assisted() {
        Ok((flow, client, took))
    } else {
        Err("the handshake of a flow failed".into())
    }
}

/// An address of its own for every flow.
pub(crate) fn peer(seed: u64) -> std::net::SocketAddr {
    let [.., a, b, c, d, e, f] = seed.to_be_bytes();
    ([10, a.wrapping_add(b), c, d], u16::from_be_bytes([e, f])).into()
}

#[inline(never)]
fn measured_forward(flow: &mut Flow, datagrams: &[Vec<u8>], now: Timestamp) {
    for datagram in datagrams {
        flow.forward(datagram, now);
    }
}

#[inline(never)]
fn measured_eack(flow: &mut Flow, message: &[u8], now: Timestamp, out: &mut Outbox) {
    flow.control(message, now, out);
}

#[inline(never)]
fn measured_identify(key: &IdentifierKey, datagrams: &[Vec<u8>]) -> u64 {
    datagrams
        .iter()
        .map(|datagram| u64::from(key.identify(IdentifierScheme::Trailer, datagram).get()))
        .sum()
}

/// A gateway without limits on admission, with `cache_bytes_per_flow` for each session.
pub fn gateway(cache_bytes_per_flow: usize) -> Arc<Gateway> {
    let config = GatewayConfig {
        cache_bytes_per_flow,
        maximum_sessions: usize::MAX,
        sessions_per_source: u32::MAX,
        handshakes_per_second_per_source: u32::MAX,
        cache_bytes_total: usize::MAX / 2,
        ..GatewayConfig::default()
    };
    Gateway::new(config, [1; 32], [2; 32])
}

/// The workload whose cache misses are counted: `turns` of sixteen datagrams and their eACK, for one
/// of many sessions after the other.
pub fn workload_of_many(sessions: usize, turns: usize) -> Result<(), Box<dyn Error>> {
    let gateway = gateway(1 << 20);
    let seeds = 0..sessions as u64;
    let mut scenes =
        seeds.map(|seed| Scene::new(&gateway, 1200, 0.01, seed)).collect::<Result<Vec<_>, _>>()?;
    // Each turn comes when its session has been quiet for as long as the others take.
    let quiet = DATAGRAM_SPACING * (PER_EACK * sessions) as u32;
    for turn in 0..turns {
        if let Some(scene) = scenes.get_mut(turn % sessions) {
            scene.now = scene.now + quiet;
            scene.turn();
        }
    }
    Ok(())
}

/// The workload whose instructions are counted.
pub fn workload(bytes: usize, loss: f64, turns: usize) -> Result<(), Box<dyn Error>> {
    let mut scene = Scene::new(&gateway(1 << 20), bytes, loss, 1)?;
    for _ in 0..turns {
        scene.turn();
    }
    black_box(measured_identify(&IdentifierKey::new([1, 2, 3]), &scene.datagrams));
    Ok(())
}
