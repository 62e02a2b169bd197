//! A client that holds the keys of its session and sends any messages.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_eack::{Encoding, Identifier, Sketch, SketchLimits};
use packrat_engine::{Flow, FlowCounters, Gateway, HandshakeOutcome, Outbox, Received};
use packrat_wire::Epoch;
use packrat_wire::control::{Control, PROTOCOL_VERSION};
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::{ClientParams, Established, Initiator, Numbered};
use packrat_wire::identifier::IdentifierScheme;
use packrat_wire::message::{Eack, Message};

use crate::work::neighbour::datagram;

pub(crate) struct Attacker {
    flow: Flow,
    client: Established,
    sketch: Sketch,
    epoch: Epoch,
    sent: u64,
    /// Place of its last datagram towards the server.
    place: u64,
    random: u64,
    counters: FlowCounters,
}

impl Attacker {
    pub(crate) fn new(gateway: &Arc<Gateway>, address: SocketAddr, now: Timestamp) -> Self {
        Self::begin(gateway, address, now).unwrap()
    }

    /// Shakes hands, with a cookie; `None` when the gateway refuses.
    pub(crate) fn begin(
        gateway: &Arc<Gateway>,
        address: SocketAddr,
        now: Timestamp,
    ) -> Option<Self> {
        let mut seed = [address.port() as u8; 32];
        seed[0] = (address.port() >> 8) as u8;
        let params = ClientParams {
            scheme: IdentifierScheme::Trailer,
            limits: SketchLimits { coded_symbols: 0, power_sums: 129 },
            maximum_hold: Duration::from_secs(1),
            token: Vec::new(),
            live: None,
            numbered: Some(Numbered {
                to_client: false,
                to_server: true,
                coded: false,
                largest: 1400,
            }),
            ticket: None,
            bundles: false,
        };
        let initiator = Initiator::new(seed, 7, params, None);
        let (mut discover, mut init, mut out) = (Vec::new(), Vec::new(), Outbox::new());
        Control::Discover { nonce: 7, versions: &[PROTOCOL_VERSION], noise: &[] }
            .encode(&mut discover);
        gateway.receive(&discover, address, now, &mut out);
        let offer = out.datagrams().next().unwrap().to_vec();
        let Ok(Control::Offer { nonce, cookie_time, cookie, .. }) = Control::decode(&offer) else {
            panic!("no Offer")
        };
        let noise = initiator.message().unwrap();
        Control::Init { nonce, cookie_time, cookie, noise: &noise }.encode(&mut init);
        out.clear();
        let Received::Begin(begin) = gateway.receive(&init, address, now, &mut out) else {
            panic!("no session")
        };
        let mut flow = Flow::new(Arc::clone(gateway));
        if flow.begin(begin, seed, now, &mut out) != HandshakeOutcome::Accepted {
            return None;
        }
        let answer = out.datagrams().next().unwrap().to_vec();
        let Ok(Control::InitAck { noise, .. }) = Control::decode(&answer) else {
            panic!("no InitAck")
        };
        let client = initiator.finish(noise).unwrap();
        let sketch = Sketch::new(client.gateway_params.sketch_key(), client.gateway_params.limits);
        let random = u64::from(address.port()) * 77 + 1;
        let counters = FlowCounters::default();
        let epoch = Epoch::FIRST;
        Some(Self { flow, client, sketch, epoch, sent: 0, place: 0, random, counters })
    }

    fn random(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random
    }

    /// Takes the counters since the last call.
    pub(crate) fn take_counters(&mut self) -> FlowCounters {
        self.counters.add(&self.flow.take_counters());
        std::mem::take(&mut self.counters)
    }

    pub(crate) fn cache_bytes(&self) -> u64 {
        self.flow.gauges().cache_bytes
    }

    /// A datagram comes from its server.
    pub(crate) fn forward(&mut self, now: Timestamp) {
        self.flow.forward(&datagram(self.sent), now);
        self.sent += 1;
    }

    /// A datagram towards the server, whose number leads over places that no datagram ever takes.
    pub(crate) fn skip(&mut self, places: u64, now: Timestamp) {
        self.place += places + 1;
        let params = &self.client.gateway_params;
        let datagram = datagram((1 << 40) + self.place);
        let identifier = params.identifier_key().identify(params.scheme, &datagram);
        let header = params.upward_number_key().header(self.place, identifier);
        let numbered = [&header[..], &datagram].concat();
        assert!(self.flow.receive_upward(&numbered, 0, now, &mut Outbox::new()));
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp) {
        if self.flow.next_timeout().is_some_and(|at| at <= now) {
            self.flow.handle_timeout(now, &mut Outbox::new());
        }
    }

    fn speak(
        &mut self,
        newest: Option<Identifier>,
        encoding: Encoding,
        prefix: &[u8],
        now: Timestamp,
    ) {
        let eack = Eack {
            epoch: self.epoch,
            echo: false,
            newest,
            newest_age: Duration::ZERO,
            holes: 0,
            anchor: None,
            encoding,
            prefix,
        };
        let (mut plain, mut sealed) = (Vec::new(), Vec::new());
        Message::Eack(eack).encode(&mut plain);
        self.client.sealer.seal(&plain, &mut sealed).unwrap();
        let mut out = Outbox::new();
        self.flow.control(&sealed, now, &mut out);
        // It follows the gateway's Resets, so that the next eACK is of the right epoch.
        for answer in out.datagrams() {
            if self.client.opener.open(answer, &mut plain).is_ok()
                && let Ok(Message::Reset { epoch, .. }) = Message::decode(&plain)
            {
                self.epoch = epoch;
                let params = &self.client.gateway_params;
                self.sketch = Sketch::new(params.sketch_key(), params.limits);
            }
        }
    }

    /// An eACK that names `count` more identifiers that were never forwarded.
    pub(crate) fn invent(&mut self, count: u8, now: Timestamp) {
        let (before, epoch) = (self.sketch.clone(), self.epoch);
        for _ in 0..count {
            let invented = Identifier::from_hash(self.random());
            self.sketch.insert(invented);
        }
        let encoding = Encoding::PowerSums { count: count + 1 };
        let mut prefix = Vec::new();
        self.sketch.write_prefix(encoding, &mut prefix).unwrap();
        self.counters.add(&self.flow.take_counters());
        let decoded = self.counters.eacks_decoded;
        self.speak(None, encoding, &prefix, now);
        self.counters.add(&self.flow.take_counters());
        // It keeps to what the gateway has taken in, so that the next one is as good.
        if self.counters.eacks_decoded == decoded && self.epoch == epoch {
            self.sketch = before;
        }
    }

    /// An eACK that has lost all but the last of `count` datagrams that were forwarded since the
    /// last one.
    pub(crate) fn lose(&mut self, count: u8, now: Timestamp) {
        for _ in 0..count {
            self.forward(now);
        }
        let params = &self.client.gateway_params;
        let newest = params.identifier_key().identify(params.scheme, &datagram(self.sent - 1));
        self.sketch.insert(newest);
        let encoding = Encoding::PowerSums { count };
        let mut prefix = Vec::new();
        self.sketch.write_prefix(encoding, &mut prefix).unwrap();
        self.speak(Some(newest), encoding, &prefix, now);
    }

    /// An eACK that can't be decoded, about two datagrams that were forwarded since the last one.
    pub(crate) fn fail(&mut self, now: Timestamp) {
        self.forward(now);
        self.forward(now);
        let params = &self.client.gateway_params;
        let newest = params.identifier_key().identify(params.scheme, &datagram(self.sent - 1));
        let encoding = Encoding::PowerSums { count: 2 };
        let mut prefix = vec![0; encoding.encoded_len()];
        for byte in &mut prefix {
            *byte = (self.random() >> 57) as u8;
        }
        self.speak(Some(newest), encoding, &prefix, now);
    }
}
