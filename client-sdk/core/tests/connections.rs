//! One shim with several connections to its server, with forged datagrams, and with a protocol other than
//! QUIC.

use std::time::Duration;

use packrat_client::{AssistState, ClientConfig, IdentifierScheme, Shim, Timestamp, Verdict};
use packrat_wire::SessionId;
use packrat_wire::bundle;
use packrat_wire::control::Control;
use packrat_wire::handshake::{Established, GatewayParams, Numbered, respond};
use packrat_wire::message::{Holes, Message, Run};
use packrat_wire::number::split;
use packrat_wire::registry::GREASE;

/// The client, and the gateway's half of its session.
struct World {
    shim: Shim<()>,
    gateway: Established,
    now: Timestamp,
}

/// A session of a client that uploads, or of one whose acknowledgements leave in bundles. `handshakes`: the
/// connection IDs of those that have passed.
fn session(uploads: bool, handshakes: &[&[u8]]) -> World {
    let now = Timestamp::from_millis(1000);
    let config =
        ClientConfig::default().with_scheme(IdentifierScheme::Trailer).with_uploads(uploads);
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
        numbered: uploads.then_some(Numbered {
            to_client: false,
            to_server: true,
            coded: false,
            largest: 1472,
        }),
        hint: Default::default(),
        ticket: None,
        bundles: !uploads,
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

    /// The transport sends a datagram. Returns true if it has a number.
    fn send(&mut self, datagram: &[u8]) -> bool {
        self.shim.on_send(datagram, self.now).is_some()
    }

    /// The transport's datagrams that leave behind those that it sends.
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

/// A short header to this connection ID, of so many bytes.
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

#[test]
fn the_repairs_of_two_connections_do_not_follow_one_that_changes_its_connection_id() {
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
        world.say(&[*GREASE.start()]);
        world.pass(4);
        world.shim.handle_timeout(world.now);
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
    // Once more, behind a connection ID that may be in place of theirs.
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
