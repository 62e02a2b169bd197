//! SCONE packets in front of datagrams, whose advice the path rewrites on its way, in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use packrat_client::{ClientConfig, IdentifierScheme, Released, Shim, Timestamp, Verdict};
use packrat_emulation::schedule::Schedule;
use packrat_engine::{Flow, FlowCounters, Gateway, GatewayConfig, Outbox};
use packrat_wire::{number, scone};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::ends::{Turn, datagram, hear, next};

const CLIENT: &str = "192.0.2.1:5000";
const DATAGRAMS: u64 = 4000;
/// One datagram of this number has a SCONE packet in front: far more than with any sender.
const SCONE_INTERVAL: u64 = 10;
/// Losses per 1000, towards the client.
const LOSS: u32 = 40;

#[derive(Debug)]
enum Event {
    Sends(u64),
    ToClient(Vec<u8>),
    ToGateway(Vec<u8>),
}

/// The datagram with this number as its sender sends it: some with advice that is unknown yet.
fn sent(number: u64) -> Vec<u8> {
    let mut bytes = datagram(number, 1000);
    if number.is_multiple_of(SCONE_INTERVAL) {
        bytes.splice(..0, *b"\xff\xef\x7d\xc0\xfd\x04dest\0");
    }
    bytes
}

/// A last mile that writes its advice into each SCONE packet that it sees.
struct World {
    now: Timestamp,
    random: ChaCha8Rng,
    delay: Duration,
    gateway: Arc<Gateway>,
    flow: Flow,
    shim: Shim<()>,
    schedule: Schedule<Event>,
    counters: FlowCounters,
    lost: u64,
    rewritten: u64,
    /// Datagrams at their receivers, by number, and how often they came.
    at_client: BTreeMap<u64, usize>,
    at_server: BTreeMap<u64, usize>,
}

impl World {
    fn new(scheme: IdentifierScheme, delay: Duration) -> Self {
        let now = Timestamp::from_millis(1000);
        let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
        let mut flow = Flow::new(Arc::clone(&gateway));
        flow.on_server_answered(Duration::from_millis(1));
        let config = ClientConfig::default().with_scheme(scheme).with_uploads(true);
        Self {
            now,
            random: ChaCha8Rng::seed_from_u64(7),
            delay,
            gateway,
            flow,
            shim: Shim::new(config, [9; 32], now),
            schedule: Schedule::new(),
            counters: FlowCounters::default(),
            lost: 0,
            rewritten: 0,
            at_client: BTreeMap::new(),
            at_server: BTreeMap::new(),
        }
    }

    /// The datagram behind the last mile.
    fn rewrite(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        if scone::leads(&bytes) {
            self.rewritten += 1;
            bytes[0] ^= (self.random.next_u32() as u8 & 0x3f).max(1);
            bytes[1] ^= 0x80;
        }
        bytes
    }

    fn down(&mut self, bytes: Vec<u8>) {
        let bytes = self.rewrite(bytes);
        if self.random.next_u32() % 1000 < LOSS {
            self.lost += 1;
        } else {
            self.schedule.plan(self.now + self.delay, Event::ToClient(bytes));
        }
    }

    fn flush(&mut self, out: &mut Outbox) {
        self.counters.add(&self.flow.take_counters());
        let upward: Vec<_> = out.datagrams_to_server().map(|(bytes, _)| bytes.to_vec()).collect();
        upward.iter().for_each(|bytes| Self::note(&mut self.at_server, bytes));
        for bytes in out.datagrams().map(<[u8]>::to_vec).collect::<Vec<_>>() {
            self.down(bytes);
        }
        out.clear();
    }

    /// Notes an arrival at a transport: the bytes are those that were sent, but for the advice.
    fn note(arrived: &mut BTreeMap<u64, usize>, bytes: &[u8]) {
        let packets = scone::behind(bytes);
        let number = u64::from_be_bytes(packets[1..9].try_into().unwrap());
        let sent = sent(number);
        assert_eq!(packets, scone::behind(&sent), "{number}: garbage");
        assert_eq!(bytes.len(), sent.len(), "{number}: another front");
        *arrived.entry(number).or_default() += 1;
    }

    fn send(&mut self, number: u64) {
        let bytes = sent(number);
        let front = self.flow.forward(&bytes, self.now);
        self.down([front.as_ref().map_or(&[][..], |front| front), &bytes].concat());
        let front = self.shim.on_send(&bytes, self.now);
        let bytes = [front.as_ref().map_or(&[][..], |front| front), &bytes].concat();
        let bytes = self.rewrite(bytes);
        self.schedule.plan(self.now + self.delay, Event::ToGateway(bytes));
        if number + 1 < DATAGRAMS {
            self.schedule.plan(self.now + Duration::from_micros(800), Event::Sends(number + 1));
        }
    }

    fn arrive(&mut self, bytes: &[u8]) {
        if let Verdict::Now { skip, .. } = self.shim.on_datagram(bytes, (), self.now) {
            Self::note(&mut self.at_client, &bytes[skip..]);
        }
        self.release();
    }

    fn release(&mut self) {
        while let Some(Released { datagram, .. }) = self.shim.poll_deliver() {
            Self::note(&mut self.at_client, &datagram);
        }
        while let Some(said) = self.shim.poll_transmit(self.now) {
            self.schedule.plan(self.now + self.delay, Event::ToGateway(said));
        }
    }

    fn hear(&mut self, said: &[u8]) {
        let mut out = Outbox::new();
        if number::split(said).is_some() {
            assert!(self.flow.receive_upward(said, 0, self.now, &mut out));
        } else if packrat_wire::is_control(said) {
            let from = CLIENT.parse().unwrap();
            hear(&self.gateway, &mut self.flow, said, from, [5; 32], self.now, &mut out);
        } else {
            Self::note(&mut self.at_server, said);
        }
        self.flush(&mut out);
    }

    fn run(mut self) -> Self {
        self.release();
        self.schedule.plan(self.now + self.delay * 8, Event::Sends(0));
        let end = self.now + Duration::from_secs(12);
        while self.now < end {
            let Self { now, flow, shim, schedule, .. } = &mut self;
            let Some(turn) = next(now, Some(flow), shim, schedule) else { break };
            match turn {
                Turn::Flow(mut out) => self.flush(&mut out),
                Turn::Shim => self.release(),
                Turn::Event(Event::Sends(number)) => self.send(number),
                Turn::Event(Event::ToClient(bytes)) => self.arrive(&bytes),
                Turn::Event(Event::ToGateway(said)) => self.hear(&said),
            }
        }
        self
    }
}

/// All datagrams arrive as they were sent, and a rewritten advice is not taken for a loss.
#[test]
fn rewritten_advice_is_seen_and_is_no_loss() {
    for scheme in [IdentifierScheme::Trailer, IdentifierScheme::Payload] {
        let world = World::new(scheme, Duration::from_millis(5)).run();
        // Each on both ways, and the repairs among them.
        assert!(world.rewritten >= 2 * DATAGRAMS / SCONE_INTERVAL, "{}", world.rewritten);
        assert_eq!(world.at_client.len() as u64, DATAGRAMS, "{scheme:?}");
        assert_eq!(world.at_server.len() as u64, DATAGRAMS, "{scheme:?}");
        let repairs = world.counters.repairs;
        assert!(world.lost > 0 && repairs < 2 * world.lost, "{repairs} for {}", world.lost);
    }
}

/// On a long last mile symbols repair; what they recover is as it was sent.
#[test]
fn symbols_beside_rewritten_advice_yield_no_garbage() {
    for scheme in [IdentifierScheme::Trailer, IdentifierScheme::Payload] {
        let world = World::new(scheme, Duration::from_millis(150)).run();
        assert!(world.shim.stats().recovered > 0);
        assert_eq!(world.at_client.len() as u64, DATAGRAMS, "{scheme:?}");
    }
}
