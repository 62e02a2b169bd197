//! SCONE packets in front of datagrams, whose advice the path rewrites on its way, in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use packrat_client::{ClientConfig, IdentifierScheme};
use packrat_engine::{Gateway, GatewayConfig};
use packrat_wire::scone;
use rand_chacha::rand_core::RngCore;

use crate::ends::{Ends, Event, World, datagram};

const DATAGRAMS: u64 = 4000;
/// One datagram of this number has a SCONE packet in front: far more than with any sender.
const SCONE_INTERVAL: u64 = 10;
/// Losses per 1000, towards the client.
const LOSS: u32 = 40;

/// The datagram with this number as its sender sends it: some with advice that is unknown yet.
fn sent(number: u64) -> Vec<u8> {
    let mut bytes = datagram(number, 1000);
    if number.is_multiple_of(SCONE_INTERVAL) {
        bytes.splice(..0, *b"\xff\xef\x7d\xc0\xfd\x04dest\0");
    }
    bytes
}

/// A last mile that writes its advice into each SCONE packet that it sees.
struct Path {
    ends: Ends<(), u64>,
    delay: Duration,
    lost: u64,
    rewritten: u64,
    /// Datagrams at their receivers, by number, and how often they came.
    at_client: BTreeMap<u64, usize>,
    at_server: BTreeMap<u64, usize>,
}

impl Path {
    fn run(scheme: IdentifierScheme, delay: Duration) -> Self {
        let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
        let config = ClientConfig::default().with_scheme(scheme).with_uploads(true);
        let mut path = Self {
            ends: Ends::new(gateway, config, 7),
            delay,
            lost: 0,
            rewritten: 0,
            at_client: BTreeMap::new(),
            at_server: BTreeMap::new(),
        };
        path.ends.flow.on_server_answered(Duration::from_millis(1));
        path.release();
        path.ends.plan(delay * 8, Event::Own(0));
        path.run_until(path.ends.now + Duration::from_secs(12));
        path
    }

    /// The datagram behind the last mile.
    fn rewrite(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        if scone::leads(&bytes) {
            self.rewritten += 1;
            bytes[0] ^= (self.ends.random.next_u32() as u8 & 0x3f).max(1);
            bytes[1] ^= 0x80;
        }
        bytes
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
}

impl World for Path {
    type Beside = ();
    type Own = u64;

    fn ends(&mut self) -> &mut Ends<(), u64> {
        &mut self.ends
    }

    fn beside(&mut self) {}

    /// Server and client send the datagram with this number.
    fn happen(&mut self, number: u64) {
        let (bytes, _) = self.ends.forward(sent(number));
        self.down(bytes);
        let mut bytes = sent(number);
        let front = self.ends.shim.on_send(&bytes, self.ends.now);
        bytes.splice(..0, front.into_iter().flatten());
        self.up(bytes);
        if number + 1 < DATAGRAMS {
            self.ends.plan(Duration::from_micros(800), Event::Own(number + 1));
        }
    }

    fn down(&mut self, bytes: Vec<u8>) {
        let bytes = self.rewrite(bytes);
        if self.ends.happens(LOSS) {
            self.lost += 1;
        } else {
            self.ends.plan(self.delay, Event::ToClient(bytes));
        }
    }

    fn up(&mut self, bytes: Vec<u8>) {
        let bytes = self.rewrite(bytes);
        self.ends.plan(self.delay, Event::ToGateway(bytes));
    }

    fn pass(&mut self, bytes: &[u8], (): ()) {
        Self::note(&mut self.at_client, bytes);
    }

    fn serve(&mut self, bytes: &[u8]) {
        Self::note(&mut self.at_server, bytes);
    }
}

/// All datagrams arrive as they were sent, and a rewritten advice is not taken for a loss.
#[test]
fn rewritten_advice_is_seen_and_is_no_loss() {
    for scheme in [IdentifierScheme::Trailer, IdentifierScheme::Payload] {
        let world = Path::run(scheme, Duration::from_millis(5));
        // Each on both ways, and the repairs among them.
        assert!(world.rewritten >= 2 * DATAGRAMS / SCONE_INTERVAL, "{}", world.rewritten);
        assert_eq!(world.at_client.len() as u64, DATAGRAMS, "{scheme:?}");
        assert_eq!(world.at_server.len() as u64, DATAGRAMS, "{scheme:?}");
        let repairs = world.ends.counters.repairs;
        assert!(world.lost > 0 && repairs < 2 * world.lost, "{repairs} for {}", world.lost);
    }
}

/// On a long last mile symbols repair; what they recover is as it was sent.
#[test]
fn symbols_beside_rewritten_advice_yield_no_garbage() {
    for scheme in [IdentifierScheme::Trailer, IdentifierScheme::Payload] {
        let world = Path::run(scheme, Duration::from_millis(150));
        assert!(world.ends.shim.stats().recovered > 0);
        assert_eq!(world.at_client.len() as u64, DATAGRAMS, "{scheme:?}");
    }
}
