//! Recorded sessions of packrat/2 against this build, in virtual time: the recorded client's
//! datagrams reach this gateway, the recorded gateway's this client.
//!
//! Randomness is an argument, so that each end's secrets are the recorded ones. A failure is either
//! a change of the protocol, which needs a new version (docs/PROTOCOL.md, section 4), or a change of
//! the handshake's bytes, or of the order of secrets, that old peers understand. Only after the
//! latter, record anew:
//! `PACKRAT_RECORD_SESSIONS=1 cargo test -p packrat-engine --test suite golden`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ends::{Turn, datagram, hear, next, number_of};
use packrat_client::{
    AssistState, ClientConfig, IdentifierScheme, Released, Shim, Timestamp, Verdict,
};
use packrat_emulation::schedule::Schedule;
use packrat_engine::{Flow, FlowCounters, Gateway, GatewayConfig, Outbox};
use packrat_wire::hexadecimal;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::ends;

const CLIENT: &str = "192.0.2.1:5000";
const DATAGRAM_BYTES: usize = 400;
const LOSSES_PER_1000: u32 = 40;
const BEGIN: Timestamp = Timestamp::from_millis(1000);
/// The client's datagrams are numbered from here on, the server's from zero.
const FIRST_OF_CLIENT: u64 = 1 << 32;

/// A last mile and its traffic.
#[derive(Debug, Clone, Copy)]
struct Setting {
    name: &'static str,
    scheme: IdentifierScheme,
    delay: Duration,
    /// Numbers of the server's and of the client's datagrams.
    datagrams: [u64; 2],
}

const DOWNLOAD: Setting = Setting {
    name: "download",
    scheme: IdentifierScheme::Trailer,
    delay: Duration::from_millis(5),
    datagrams: [250, 0],
};

const SETTINGS: [Setting; 4] = [
    DOWNLOAD,
    Setting { name: "program", scheme: IdentifierScheme::Payload, ..DOWNLOAD },
    Setting { name: "upload", datagrams: [125, 300], ..DOWNLOAD },
    Setting { name: "code", delay: Duration::from_millis(24), datagrams: [600, 0], ..DOWNLOAD },
];

/// An end of the last mile, and the side of it from which a datagram arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Arrival {
    Server,
    Transport,
    Gateway,
    Client,
}

/// When it arrives, where, and the datagram in hexadecimal digits: the transport's is `+` and its
/// number.
type Step = (u64, Arrival, String);

/// The number of the transport's datagram at the end of these bytes.
fn number_in(bytes: &[u8]) -> Option<u64> {
    number_of(&bytes[bytes.len().checked_sub(DATAGRAM_BYTES)?..], DATAGRAM_BYTES)
}

fn to_text(bytes: &[u8]) -> String {
    let Some(number) = number_in(bytes) else { return hexadecimal::encode(bytes) };
    format!("{}+{number}", hexadecimal::encode(&bytes[..bytes.len() - DATAGRAM_BYTES]))
}

fn from_text(text: &str) -> Vec<u8> {
    let (digits, number) = text.split_once('+').unwrap_or((text, ""));
    let pairs = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]);
    let own = pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap());
    own.chain(number.parse().into_iter().flat_map(|it| datagram(it, DATAGRAM_BYTES))).collect()
}

/// Both ends. While recording, a lossy path joins them; afterwards the record speaks for the other
/// end of each.
struct World {
    setting: Setting,
    now: Timestamp,
    /// `Some` while recording: decides about losses.
    path: Option<ChaCha8Rng>,
    gateway: Arc<Gateway>,
    flow: Flow,
    shim: Shim<()>,
    schedule: Schedule<(Arrival, Vec<u8>)>,
    steps: Vec<Step>,
    /// The transport's datagrams in the order in which client and server got them.
    passed: [Vec<u64>; 2],
    counters: FlowCounters,
}

impl World {
    fn new(setting: Setting, path: Option<ChaCha8Rng>) -> Self {
        let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
        let mut flow = Flow::new(Arc::clone(&gateway));
        flow.on_server_answered(Duration::from_millis(1));
        let config = ClientConfig::default()
            .with_scheme(setting.scheme)
            .with_uploads(setting.datagrams[1] > 0);
        Self {
            setting,
            now: BEGIN,
            path,
            gateway,
            flow,
            shim: Shim::new(config, [9; 32], BEGIN),
            schedule: Schedule::new(),
            steps: Vec::new(),
            passed: [const { Vec::new() }; 2],
            counters: FlowCounters::default(),
        }
    }

    /// A session of this build's ends.
    fn record(setting: Setting) -> Vec<Step> {
        let mut world = Self::new(setting, Some(ChaCha8Rng::seed_from_u64(1)));
        let ends = [(Arrival::Server, 0), (Arrival::Transport, FIRST_OF_CLIENT)];
        for ((end, first), count) in ends.into_iter().zip(setting.datagrams) {
            for number in 0..count {
                let at = BEGIN + Duration::from_micros(100_000 + 800 * number);
                world.schedule.plan(at, (end, datagram(first + number, DATAGRAM_BYTES)));
            }
        }
        world.run().steps
    }

    /// This build's ends, each with the recorded other one.
    fn replay(setting: Setting, steps: &[Step]) -> Self {
        let mut world = Self::new(setting, None);
        for (microseconds, end, text) in steps {
            let at = Timestamp::from_micros(*microseconds);
            world.schedule.plan(at, (*end, from_text(text)));
        }
        world.run()
    }

    fn run(mut self) -> Self {
        self.flush_client();
        while let Some(turn) =
            next(&mut self.now, Some(&mut self.flow), &mut self.shim, &mut self.schedule)
            && self.now < BEGIN + Duration::from_secs(2)
        {
            match turn {
                Turn::Flow(mut out) => self.flush_gateway(&mut out),
                Turn::Shim => self.flush_client(),
                Turn::Event((end, bytes)) => self.arrive(end, bytes),
            }
        }
        self
    }

    fn arrive(&mut self, end: Arrival, mut bytes: Vec<u8>) {
        self.steps.push((self.now.as_micros(), end, to_text(&bytes)));
        let mut out = Outbox::new();
        match end {
            Arrival::Server | Arrival::Transport => {
                let (header, to) = match end {
                    Arrival::Server => (self.flow.forward(&bytes, self.now), Arrival::Client),
                    _ => (self.shim.on_send(&bytes, self.now), Arrival::Gateway),
                };
                drop(bytes.splice(..0, header.into_iter().flatten()));
                self.transmit(bytes, to);
            }
            Arrival::Client => {
                if let Verdict::Now { .. } = self.shim.on_datagram(&bytes, (), self.now) {
                    self.passed[0].extend(number_in(&bytes));
                }
            }
            Arrival::Gateway if self.flow.receive_upward(&bytes, 0, self.now, &mut out) => {}
            Arrival::Gateway => {
                let (from, now): (SocketAddr, _) = (CLIENT.parse().unwrap(), self.now);
                self.passed[1].extend(number_in(&bytes));
                hear(&self.gateway, &mut self.flow, &bytes, from, [5; 32], now, &mut out);
            }
        }
        self.flush_gateway(&mut out);
        self.flush_client();
    }

    fn flush_gateway(&mut self, out: &mut Outbox) {
        self.counters.add(&self.flow.take_counters());
        self.passed[1].extend(out.datagrams_to_server().filter_map(|(it, _)| number_in(it)));
        for bytes in out.datagrams() {
            self.transmit(bytes.to_vec(), Arrival::Client);
        }
    }

    fn flush_client(&mut self) {
        while let Some(Released { datagram, .. }) = self.shim.poll_deliver() {
            self.passed[0].extend(number_in(&datagram));
        }
        while let Some(said) = self.shim.poll_transmit(self.now) {
            self.transmit(said, Arrival::Gateway);
        }
    }

    fn transmit(&mut self, bytes: Vec<u8>, to: Arrival) {
        if self.path.as_mut().is_some_and(|random| random.next_u32() % 1000 >= LOSSES_PER_1000) {
            self.schedule.plan(self.now + self.setting.delay, (to, bytes));
        }
    }

    /// Each end has understood the other one: it was assisted, and repaired every loss.
    fn check(&self) {
        let Setting { name, datagrams: [served, sent], .. } = self.setting;
        let all = [0..served, FIRST_OF_CLIENT..FIRST_OF_CLIENT + sent];
        let passed = self.passed.each_ref().map(|all| BTreeSet::from_iter(all.iter().copied()));
        assert_eq!(passed, all.map(BTreeSet::from_iter), "{name}: complete");
        let (client, shim, gateway) = (self.shim.assistance(), self.shim.stats(), self.counters);
        // On a long path the client asks twice, and needs one answer.
        assert!(client.control_dropped <= 1, "{name}: {client:?}");
        assert_eq!(client.state, AssistState::Established, "{name}");
        let FlowCounters { sealed_forged, sealed_malformed, eacks_failed, .. } = gateway;
        assert_eq!([sealed_forged, sealed_malformed, eacks_failed], [0; 3], "{name}: gateway");
        assert_eq!((gateway.sessions_begun, gateway.eacks_decoded), (1, gateway.eacks_received));
        assert_eq!((shim.far, gateway.upward_numbered), (0, sent), "{name}");
        assert!(shim.numbered > served / 2 && client.reports > 0, "{name}: {shim:?} {client:?}");
        let repairs = match name {
            "upload" => [client.upward_missing, gateway.upward_repaired],
            "code" => [shim.recovered, gateway.symbols],
            _ => [client.filled_in_time, gateway.repairs_arrived],
        };
        assert!(repairs.iter().all(|repairs| *repairs >= 5), "{name}: {repairs:?}");
    }
}

#[test]
fn golden_sessions_of_older_peers_go_on() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden_sessions.json");
    if std::env::var_os("PACKRAT_RECORD_SESSIONS").is_some() {
        let sessions = SETTINGS.map(|setting| (setting.name, World::record(setting)));
        let text = serde_json::to_string(&BTreeMap::from(sessions)).unwrap();
        std::fs::write(&path, text.replace("],", "],\n") + "\n").unwrap();
    }
    let sessions: BTreeMap<String, Vec<Step>> =
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for setting in SETTINGS {
        World::replay(setting, &sessions[setting.name]).check();
    }
}
