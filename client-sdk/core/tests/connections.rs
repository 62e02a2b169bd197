//! One shim with several connections to its server, with forged datagrams, and with a protocol other than
//! QUIC.

use std::time::Duration;

use packrat_client::{
    AssistState, ClientConfig, IdentifierScheme, Input, Shim, Timestamp, Verdict,
};
use packrat_wire::SessionId;
use packrat_wire::bundle;
use packrat_wire::control::Control;
use packrat_wire::handshake::{Established, GatewayParams, Numbered, respond};
use packrat_wire::message::{Holes, Message, Run};
use packrat_wire::number::split;
use packrat_wire::registry::GREASE_VALUES;

/// The client, and the gateway's half of its session.
struct World {
    shim: Shim<()>,
    gateway: Established,
    now: Timestamp,
}

/// A session of a client that uploads, or of one whose acknowledgements leave in bundles.
/// `handshakes`: the connection IDs of earlier handshakes.
fn session(uploads: bool, handshakes: &[&[u8]]) -> World {
    let config =
        ClientConfig::default().with_scheme(IdentifierScheme::Trailer).with_uploads(uploads);
    let numbered = Numbered { to_client: false, to_server: true, coded: false, largest: 1472 };
    agreed(config, uploads.then_some(numbered), false, handshakes)
}

/// A session with the options that the gateway grants.
fn agreed(
    config: ClientConfig,
    numbered: Option<Numbered>,
    distinct: bool,
    handshakes: &[&[u8]],
) -> World {
    let now = Timestamp::from_millis(1000);
    let mut shim = Shim::new(config, [1; 32], now);
    let question = shim.poll_transmit(now).unwrap();
    shim.on_send(&long(1, &[4; 8], &[5, 5]), now);
    let now = now + Duration::from_millis(60);
    for id in handshakes {
        shim.on_datagram(&long(1, &[5, 5], id), (), now);
        shim.on_send(&long(1, id, &[5, 5]), now);
    }
    let Ok(Control::Discover { nonce, noise, .. }) = Control::decode(&question) else {
        panic!("{question:x?}")
    };
    let params = |scheme, limits| GatewayParams {
        session: SessionId::new(5),
        scheme,
        limits,
        cache_bytes: 1 << 20,
        secret: [6; 32].into(),
        stream: None,
        symbols: None,
        numbered,
        hint: Default::default(),
        ticket: None,
        bundles: numbered.is_none(),
        distinct,
    };
    let (gateway, _, noise) =
        respond([2; 32], &[3; 32], nonce, noise, |client, _| params(client.scheme, client.limits))
            .unwrap();
    let mut answer = Vec::new();
    Control::InitAck { nonce, noise: &noise }.encode(&mut answer);
    let mut world = World { shim, gateway, now };
    world.pass(10);
    assert_eq!(world.shim.on_datagram(&answer, (), world.now), Verdict::Never);
    assert_eq!(world.shim.assistance().state, AssistState::Established);
    world.leaving();
    world
}

impl World {
    fn pass(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
    }

    /// A datagram of the server's.
    fn receive(&mut self, datagram: &[u8]) {
        self.shim.on_datagram(datagram, (), self.now);
    }

    /// Delivers a datagram; returns the datagrams that the transport has received by then.
    fn passes(&mut self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let verdict = self.shim.on_datagram(datagram, (), self.now);
        let at_once = match verdict {
            Verdict::Now { skip, .. } => Some(datagram[skip..].to_vec()),
            Verdict::Later | Verdict::Never => None,
        };
        let released = std::iter::from_fn(|| self.shim.poll_deliver());
        at_once.into_iter().chain(released.map(|released| released.datagram)).collect()
    }

    /// The datagram of this place, as the gateway numbers it.
    fn at(&self, place: u64, base: &[u8]) -> Vec<u8> {
        let params = &self.gateway.gateway_params;
        let identifier = params.identifier_key().identify(params.scheme, base);
        [&params.number_key().header(place, identifier)[..], base].concat()
    }

    /// The transport sends a datagram. Returns true if it has a number.
    fn send(&mut self, datagram: &[u8]) -> bool {
        self.shim.on_send(datagram, self.now).is_some()
    }

    /// The transport's datagrams that leave behind these.
    fn leaving(&mut self) -> Vec<Vec<u8>> {
        let mut leaving = Vec::new();
        while let Some(datagram) = self.shim.poll_transmit(self.now) {
            if let Some(bundle) = bundle::split(&datagram) {
                leaving.extend(bundle.datagrams().map(<[u8]>::to_vec));
            } else if let Some((_, base)) = split(&datagram) {
                leaving.push(base.to_vec());
            } else if Control::decode(&datagram).is_err() {
                leaving.push(datagram);
            }
        }
        leaving
    }

    /// The gateway has all of the first numbered datagrams but these.
    fn miss(&mut self, places: std::ops::Range<u64>, expected: u64) {
        let (mut runs, mut plaintext) = (Vec::new(), Vec::new());
        let missing = [Run { first: places.start, count: places.count() as u16 }];
        let holes = Holes::new(true, expected, Duration::ZERO, &missing, &mut runs);
        Message::Holes(holes).encode(&mut plaintext);
        self.say(&plaintext);
    }

    fn say(&mut self, plaintext: &[u8]) {
        let mut datagram = Vec::new();
        self.gateway.sealer.seal(plaintext, &mut datagram).unwrap();
        self.receive(&datagram);
    }
}

/// A long header of this version, to one connection ID and from another.
fn long(version: u32, to: &[u8], from: &[u8]) -> Vec<u8> {
    let ids = [&[to.len() as u8][..], to, &[from.len() as u8], from].concat();
    [&[0xc0][..], &version.to_be_bytes(), &ids, &[0; 20]].concat()
}

/// A short header to this connection ID, of `length` bytes.
fn short(id: &[u8], number: u8, length: usize) -> Vec<u8> {
    let mut datagram = [&[0x41][..], id].concat();
    datagram.resize(length, number);
    datagram
}

#[test]
fn two_connections_get_the_repairs_of_both() {
    let (one, other) = ([7; 8], [9; 8]);
    let mut world = session(true, &[&one, &other]);
    for number in 0..20 {
        let id = if number % 2 == 0 { one } else { other };
        assert!(world.send(&short(&id, number, 1200)), "{number}");
        world.pass(1);
    }
    world.miss(16..18, 20);
    assert_eq!(world.leaving(), [short(&one, 16, 1200), short(&other, 17, 1200)]);
}

/// Of two connections, one changes its connection ID: no repair follows to the former one.
#[test]
fn repairs_do_not_go_to_a_connections_former_id() {
    let (one, other, changed) = ([7; 8], [9; 8], [8; 8]);
    let mut world = session(true, &[&one, &other]);
    for (number, id) in [one, other, one, other, changed, other, changed].into_iter().enumerate() {
        assert!(world.send(&short(&id, number as u8, 1200)));
    }
    world.pass(50);
    world.miss(2..5, 7);
    assert_eq!(world.leaving(), [short(&other, 3, 1200), short(&changed, 4, 1200)]);
}

#[test]
fn a_forged_long_header_costs_no_repair() {
    for forged in [&[7; 20][..], &[0x33; 20], &[0x33; 4], &[7], &[]] {
        let mut world = session(true, &[&[7; 8]]);
        assert!(world.send(&short(&[7; 8], 0, 1200)));
        world.receive(&long(1, &[5, 5], forged));
        for number in 1..10 {
            assert!(world.send(&short(&[7; 8], number, 1200)));
        }
        world.pass(50);
        world.miss(3..4, 10);
        assert_eq!(world.leaving(), [short(&[7; 8], 3, 1200)], "{forged:x?}");
    }
}

/// A download that is as fast as it gets, so that acknowledgements wait for others.
fn download(handshakes: &[&[u8]]) -> World {
    let mut world = session(false, handshakes);
    for number in 0..200_u8 {
        let acknowledgement = short(&[7; 8], number, 40);
        if number > 20 && !world.shim.bundle(&acknowledgement, world.now) {
            world.send(&acknowledgement);
        }
        world.receive(&[&[0x41, number][..], &[number; 1200]].concat());
        // The gateway is there.
        world.say(&[*GREASE_VALUES.start()]);
        world.pass(4);
        world.shim.handle(Input::Timeout, world.now);
        world.leaving();
    }
    world.pass(20);
    world.leaving();
    world
}

#[test]
fn what_waits_for_others_leaves_also_behind_another_connection() {
    let mut world = download(&[&[7; 8]]);
    for id in [[7; 8], [9; 8]] {
        world.send(&short(&id, 200, 200));
        world.send(&short(&[7; 8], 200, 200));
    }
    let waiting = [short(&[7; 8], 201, 40), short(&[7; 8], 202, 40)];
    for acknowledgement in &waiting {
        assert!(world.shim.bundle(acknowledgement, world.now));
    }
    assert!(world.leaving().is_empty(), "they wait");
    world.send(&short(&[9; 8], 203, 200));
    assert_eq!(world.leaving(), waiting);
    // The same behind a connection ID that may replace theirs.
    assert!(world.shim.bundle(&waiting[0], world.now));
    world.send(&short(&[8; 8], 203, 200));
    assert!(world.leaving().is_empty());
}

#[test]
fn nothing_of_another_protocol_is_bundled_or_lost() {
    for version in [1, 0x5eed_1234] {
        let mut world = download(&[]);
        world.receive(&long(version, &[5, 5], &[3; 8]));
        for number in 201..204 {
            let datagram = short(&[number; 8], number, 40);
            if world.shim.bundle(&datagram, world.now) {
                assert!(world.leaving().is_empty(), "it waits");
                world.send(&short(&[3; 8], 3, 300));
                assert_eq!(world.leaving(), [datagram]);
            }
        }
        assert_eq!(world.shim.assistance().bundled, 0);
    }
}

/// A session in which datagrams towards the client are numbered.
fn numbered(scheme: IdentifierScheme, maximum_hold: Duration, distinct: bool) -> World {
    let config = ClientConfig::default().with_scheme(scheme).with_maximum_hold(maximum_hold);
    let largest = 1472;
    let numbered = Numbered { to_client: true, to_server: false, coded: false, largest };
    agreed(config, Some(numbered), distinct, &[])
}

/// A datagram with this number in front, and bytes at its end that make it unique.
fn base(number: u64) -> Vec<u8> {
    [&number.to_be_bytes()[..], &[7; 60], &(number + 1).to_be_bytes(), &[9; 8]].concat()
}

const HOLDS: [Duration; 2] = [Duration::ZERO, Duration::from_secs(1)];

#[test]
fn a_second_copy_is_dropped_where_it_is_known_to_be_one() {
    use IdentifierScheme::{Payload, Trailer};
    // If a gateway does not confirm that numbers are distinct, the datagram may be the server's
    // own; and part of the bytes does not distinguish it from a forged one.
    for (scheme, distinct, comes) in [(Payload, true, 1), (Payload, false, 3), (Trailer, true, 3)] {
        for hold in HOLDS {
            let mut world = numbered(scheme, hold, distinct);
            let mut passed = Vec::new();
            // The sixth comes late; copies come while others wait for it, and afterwards.
            let late = (0..20).filter(|place| *place != 5).chain([7, 19, 5, 5, 5]);
            for place in late.chain((0..20).filter(|place| *place != 5)).chain([3, 9]) {
                passed.extend(world.passes(&world.at(place, &base(place))));
                world.pass(1);
            }
            for (place, copies) in [(5, comes), (7, comes), (0, comes.min(2)), (9, comes)] {
                let count = passed.iter().filter(|datagram| **datagram == base(place)).count();
                assert_eq!(count, copies, "{scheme:?}, {distinct}, {hold:?}: {place}");
            }
        }
    }
}

#[test]
fn what_is_no_copy_is_handed_on() {
    for hold in HOLDS {
        let mut world = numbered(IdentifierScheme::Payload, hold, true);
        let arrive = |world: &mut World, places: std::ops::Range<u64>| {
            for place in places {
                let passed = world.passes(&world.at(place, &base(place)));
                assert_eq!(passed, [base(place)], "{place}");
                if place % 50 == 0 {
                    // The gateway is there.
                    world.say(&[*GREASE_VALUES.start()]);
                }
            }
        };
        arrive(&mut world, 0..1500);
        let again = |world: &mut World, place| world.passes(&world.at(place, &base(7))).len();
        assert_eq!(again(&mut world, 7), 0, "of a place that is not believed any more, too");
        assert_eq!(world.passes(&base(7)).len(), 1, "the server's own, which goes plain");
        assert_eq!(again(&mut world, 1500), 1, "the gateway has forgotten the first one");
        assert_eq!(again(&mut world, 1500), 0);
        // The sender's places are older than the remembered ones.
        arrive(&mut world, 1501..9000);
        assert_eq!(again(&mut world, 1500), 1);
        // Another epoch is the same places.
        let epoch = [3, 0, 1, 1];
        world.say(&epoch);
        assert_eq!(world.passes(&world.at(8990, &base(8990))).len(), 0);
        arrive(&mut world, 9000..9010);
    }
}

/// An attacker who sees datagrams can be faster than they are.
#[test]
fn a_forged_datagram_with_a_genuine_tag_takes_no_place() {
    for hold in HOLDS {
        let mut world = numbered(IdentifierScheme::Trailer, hold, true);
        let genuine = base(0);
        let mut forged = genuine.clone();
        forged[20] ^= 1;
        assert_eq!(world.passes(&world.at(0, &forged)), [forged]);
        assert_eq!(world.passes(&world.at(0, &genuine)), [genuine]);
    }
}
