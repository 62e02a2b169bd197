//! An attacker who knows the connection identifier sends headers that seem to be the server's,
//! beside a path that loses packets; between the path and a transport that drops what is not
//! authentic, in virtual time.

use super::*;
use crate::header_protection::SharedKey;
use crate::host::Host;
use crate::packet_protection::ProvingKey;
use crate::test_gateway::{SERVER, TestGateway, TestHost};
use crate::test_keys::{Numbered, Plain, long_header, short_header};
use crate::tls::ConnectionKeys;
use s2n_quic_core::inet::ExplicitCongestionNotification::NotEct;
use s2n_quic_core::path::{RemoteAddress, Tuple};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(10);
/// Milliseconds of a trial.
const TRIAL: u64 = 8_000;
/// One in so many is lost on the last mile.
const LOST: u64 = 50;
/// Packets of the server in a millisecond: more than fit into the transport's window in the time
/// that a repair takes.
const RATE: u64 = 10;
/// The longest hold of the test's client.
const HOLD: Duration = Duration::from_secs(1);

/// A way of forging headers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Forgery {
    None,
    /// Random bytes behind the connection identifier: the number that they are read as is random.
    RandomMask,
    /// A number so far above the newest one, as if the mask were known.
    Ahead(u64),
    /// The number of a packet that has just passed, with another content.
    Copied,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn packet(number: u64) -> Vec<u8> {
    let mut packet = short_header(&[9; 8], number, number as u8);
    let tail = packet.len() - 16;
    packet[tail..tail + 8].copy_from_slice(&(number + 1).to_be_bytes());
    packet
}

/// The number of an authentic packet: its tag fits.
fn authentic(bytes: &[u8]) -> Option<u64> {
    let tail = bytes.len() - 16;
    let number = u64::from_be_bytes(*bytes[tail..].first_chunk()?).checked_sub(1)?;
    (bytes[0] & 0x80 == 0 && bytes.last() == Some(&1) && packet(number) == bytes).then_some(number)
}

fn forge(forgery: Forgery, newest: u64, random: &mut Random) -> Vec<u8> {
    let mut bytes = match forgery {
        Forgery::None => unreachable!("no attack"),
        Forgery::RandomMask => packet(random.next() & 0xffff),
        Forgery::Ahead(distance) => packet(newest + distance),
        Forgery::Copied => packet(newest),
    };
    if forgery == Forgery::RandomMask {
        for chunk in bytes[9..].chunks_mut(8) {
            let length = chunk.len();
            chunk.copy_from_slice(&random.next().to_be_bytes()[..length]);
        }
        bytes[0] ^= (random.next() & 3) as u8;
    }
    let tail = bytes.len() - 16;
    bytes[tail..tail + 8].copy_from_slice(&random.next().to_be_bytes());
    *bytes.last_mut().unwrap() = 0xee;
    bytes
}

#[derive(Default)]
struct Outcome {
    lost: u64,
    /// Of these, packets that the transport has got from the gateway.
    repaired: u64,
    /// The longest time between the arrival of a packet and its passing to the transport.
    slowest: Duration,
    arrived: HashMap<u64, packrat_client::Timestamp>,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lost, repaired, slowest, .. } = self;
        write!(formatter, "{repaired} of {lost} repaired, kept back for {slowest:?} at most")
    }
}

fn run(forgery: Forgery, a_second: u64) -> Outcome {
    let paths = Arc::new(Paths::default());
    let (path, host) = crate::test_gateway::path(true, paths.waker.clone());
    assert!(paths.insert(&path));
    let mut withheld: Withheld<Tuple> =
        Withheld { paths, keys: NewKeys::default(), by_remote: HashMap::new() };
    let mut gateway = TestGateway::meet(&path, &host);
    path.set_keys(ConnectionKeys {
        opener: SharedKey::new(Plain).opener(),
        proofs: ProvingKey::new(Numbered(1)).proofs(),
    });
    // The transport's own window: what is more than 128 behind the newest is dropped.
    let (mut newest, mut received) = (0, BTreeSet::new());
    let mut outcome = Outcome::default();
    let mut transport = |bytes: &[u8], host: &TestHost, outcome: &mut Outcome| {
        let Some(number) = authentic(bytes) else { return };
        if number + 128 < newest || !received.insert(number) {
            return;
        }
        newest = newest.max(number);
        path.on_packet_number(number);
        let waited = host.now().saturating_since(outcome.arrived[&number]);
        outcome.slowest = outcome.slowest.max(waited);
    };
    let header = || {
        let remote =
            s2n_quic_core::inet::SocketAddress::from(SERVER.parse::<SocketAddr>().unwrap());
        Header { path: Tuple::from_remote_address(RemoteAddress::from(remote)), ecn: NotEct }
    };
    withheld.arrive(header(), &mut long_header(), &mut |_, _| path.on_handshake_packet());

    let (mut channel, mut attacker) = (Random(88_172_645_463_325_252), Random(1234));
    let mut down: VecDeque<(packrat_client::Timestamp, Vec<u8>)> = VecDeque::new();
    let mut up: VecDeque<(packrat_client::Timestamp, Vec<u8>)> = VecDeque::new();
    let (mut missing, mut number, mut highest) = (BTreeSet::new(), 0u64, 0u64);
    for tick in 0..TRIAL {
        host.pass(Duration::from_millis(1));
        let now = host.now();
        for _ in 0..RATE {
            gateway.forward(&packet(number), &host);
            if channel.next() % LOST == 0 && tick + 200 < TRIAL {
                missing.insert(number);
                outcome.lost += 1;
            } else {
                down.push_back((now + DELAY, packet(number)));
            }
            number += 1;
        }
        while let Some((_, said)) = up.pop_front_if(|(at, _)| *at <= now) {
            for answer in gateway.hear(&said, &host) {
                if channel.next() % LOST != 0 {
                    down.push_back((now + DELAY, answer));
                }
            }
        }
        if forgery != Forgery::None && tick > 500 {
            for _ in 0..a_second.div_ceil(1000) {
                if a_second < 1000 && tick % (1000 / a_second) != 0 {
                    continue;
                }
                let mut forged = forge(forgery, highest, &mut attacker);
                withheld.arrive(header(), &mut forged, &mut |_, bytes| {
                    transport(bytes, &host, &mut outcome);
                });
            }
        }
        while let Some((_, mut bytes)) = down.pop_front_if(|(at, _)| *at <= now) {
            if let Some(number) = authentic(&bytes) {
                highest = highest.max(number);
                outcome.arrived.entry(number).or_insert(now);
                outcome.repaired += u64::from(missing.remove(&number));
            }
            withheld.arrive(header(), &mut bytes, &mut |_, bytes| {
                transport(bytes, &host, &mut outcome);
            });
        }
        path.step();
        if withheld.is_ready() {
            withheld.release_all(&mut |_, bytes| transport(bytes, &host, &mut outcome));
        }
        up.extend(host.sent().into_iter().map(|said| (now + DELAY, said)));
    }
    outcome
}

#[test]
fn forged_headers_of_a_known_connection_cost_no_repair_and_no_time() {
    let calm = run(Forgery::None, 0);
    assert!(calm.lost > 1000 && calm.repaired * 100 >= calm.lost * 97, "{calm:?}");
    assert!(calm.slowest > Duration::ZERO, "nothing was ever kept back");
    for (forgery, a_second) in [
        (Forgery::RandomMask, 50),
        (Forgery::RandomMask, 2000),
        (Forgery::Ahead(1000), 1),
        (Forgery::Ahead(1000), 2000),
        (Forgery::Ahead(1), 2000),
        (Forgery::Ahead(140), 2000),
        (Forgery::Copied, 2000),
    ] {
        let attacked = run(forgery, a_second);
        let case = format!("{forgery:?}, {a_second} a second: {attacked:?}, else {calm:?}");
        assert!(attacked.repaired * 100 >= calm.repaired * 95, "{case}");
        assert!(attacked.slowest <= calm.slowest.max(HOLD), "{case}");
    }
}
