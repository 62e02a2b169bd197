//! The golden vectors of packrat/2, made by the code. The example `vectors` writes them, the test
//! `vectors` compares.

use core::time::Duration;
use std::net::SocketAddr;

use packrat_code::{Decoder, DecoderLimits, Encoder, Half, Repair, Use, Window};
use packrat_eack::{Encoding, Identifier, Sketch, SketchKey, SketchLimits};
use packrat_wire::bundle::join;
use packrat_wire::control::{Control, PROTOCOL_VERSION, RefusalReason, session_nonce};
use packrat_wire::cookie::CookieKey;
use packrat_wire::estimate::Timestamp;
use packrat_wire::group::{self, GroupCoded};
use packrat_wire::handshake::{
    ClientParams, Established, GatewayParams, Initiator, Live, Numbered, public_key, respond,
};
use packrat_wire::identifier::{IdentifierKey, IdentifierScheme};
use packrat_wire::message::{
    Coded, Eack, GoodbyeReason, Holes, Message, Report, ResetReason, Run, Totals,
};
use packrat_wire::number::NumberKey;
use packrat_wire::peer::{PeerKey, PeerKind, PeerMessage};
use packrat_wire::registry::client_versions;
use packrat_wire::{Epoch, MessageCounter, SessionId};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::{Value, json};

/// The client's and the gateway's randomness in the handshake's vectors.
pub(crate) const CLIENT_SEED: [u8; 32] = [0x11; 32];
/// See [`CLIENT_SEED`].
pub(crate) const GATEWAY_SEED: [u8; 32] = [0x22; 32];
/// The gateway's static private key.
pub(crate) const STATIC_KEY: [u8; 32] = [0x33; 32];
/// The secret of the gateways of one address.
const PEER_SECRET: [u8; 32] = [0x44; 32];
/// The attempt's nonce.
pub(crate) const NONCE: u64 = 0x0102_0304_0506_0708;

/// Every file: its name and its content.
pub(crate) fn files() -> Vec<(&'static str, Value)> {
    vec![
        ("bundles.json", bundles()),
        ("code.json", code()),
        ("control.json", control()),
        ("messages.json", messages()),
        ("cookies.json", cookies()),
        ("handshake.json", handshake()),
        ("live.json", live()),
        ("identifiers.json", identifiers()),
        ("numbers.json", numbers()),
        ("peers.json", peers()),
        ("sketches.json", sketches()),
    ]
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex64(word: u64) -> String {
    hex(&word.to_be_bytes())
}

fn bytes_from(start: u8, count: usize) -> Vec<u8> {
    (0..count).map(|index| start.wrapping_add(index as u8)).collect()
}

fn encode(control: &Control<'_>) -> String {
    let mut bytes = Vec::new();
    control.encode(&mut bytes);
    hex(&bytes)
}

fn control() -> Value {
    let cookie: [u8; 16] = core::array::from_fn(|index| 0xa0 + index as u8);
    let noise = bytes_from(1, 39);
    let answer = bytes_from(1, 139);
    let sealed = bytes_from(0x40, 24);
    json!([
        {
            "name": "discover", "nonce": hex64(NONCE), "versions": [PROTOCOL_VERSION],
            "datagram": encode(&Control::Discover { nonce: NONCE, versions: &[PROTOCOL_VERSION], noise: &[] }),
        },
        {
            "name": "discover_with_noise", "nonce": hex64(NONCE), "versions": [PROTOCOL_VERSION], "noise": hex(&noise),
            "datagram": encode(&Control::Discover { nonce: NONCE, versions: &[PROTOCOL_VERSION], noise: &noise }),
        },
        {
            "name": "discover_with_three_versions", "nonce": hex64(NONCE), "versions": [200, PROTOCOL_VERSION + 1, PROTOCOL_VERSION],
            "datagram": encode(&Control::Discover { nonce: NONCE, versions: &[200, PROTOCOL_VERSION + 1, PROTOCOL_VERSION], noise: &[] }),
        },
        {
            "name": "offer", "nonce": hex64(NONCE), "version": PROTOCOL_VERSION, "cookie_time": 123_456, "cookie": hex(&cookie),
            "datagram": encode(&Control::Offer { nonce: NONCE, version: PROTOCOL_VERSION, cookie_time: 123_456, cookie }),
        },
        {
            "name": "init", "nonce": hex64(NONCE), "cookie_time": 123_456, "cookie": hex(&cookie), "noise": hex(&noise),
            "datagram": encode(&Control::Init { nonce: NONCE, cookie_time: 123_456, cookie, noise: &noise }),
        },
        {
            "name": "init_ack", "nonce": hex64(NONCE), "noise": hex(&answer),
            "datagram": encode(&Control::InitAck { nonce: NONCE, noise: &answer }),
        },
        {
            "name": "refusal", "nonce": hex64(NONCE), "reason": RefusalReason::Version as u8, "versions": [PROTOCOL_VERSION],
            "datagram": encode(&Control::Refusal { nonce: NONCE, reason: RefusalReason::Version, versions: &[PROTOCOL_VERSION] }),
        },
        {
            "name": "refusal_of_a_holdout", "nonce": hex64(NONCE), "reason": RefusalReason::Holdout as u8, "versions": [PROTOCOL_VERSION],
            "datagram": encode(&Control::Refusal { nonce: NONCE, reason: RefusalReason::Holdout, versions: &[PROTOCOL_VERSION] }),
        },
        {
            "name": "refusal_of_a_session", "nonce": hex64(session_nonce(SessionId::new(0x0a0b_0c0d), MessageCounter::new(258))),
            "reason": RefusalReason::Session as u8, "versions": [PROTOCOL_VERSION],
            "datagram": encode(&Control::Refusal {
                nonce: session_nonce(SessionId::new(0x0a0b_0c0d), MessageCounter::new(258)), reason: RefusalReason::Session, versions: &[PROTOCOL_VERSION],
            }),
        },
        {
            "name": "sealed", "session": 0x0a0b_0c0d, "counter": 258, "ciphertext": hex(&sealed),
            "datagram": encode(&Control::Sealed { session: SessionId::new(0x0a0b_0c0d), counter: MessageCounter::new(258), ciphertext: &sealed }),
        },
    ])
}

fn identifier(value: u32) -> Identifier {
    Identifier::new(value).expect("a valid identifier")
}

/// The eACK of the vectors: an echo is asked for, two holes, an anchor, three power sums.
pub(crate) fn eack(prefix: &[u8]) -> Eack<'_> {
    Eack {
        epoch: Epoch::new(7),
        echo: true,
        newest: Some(identifier(0x1122_3344)),
        newest_age: Duration::from_micros(1600),
        holes: 2,
        anchor: Some(identifier(0x5566_7788)),
        encoding: Encoding::PowerSums { count: 3 },
        prefix,
    }
}

/// The Report of the vectors.
pub(crate) fn report() -> Report {
    Report {
        epoch: Epoch::new(7),
        echo: MessageCounter::new(258),
        echo_age: Duration::from_micros(32),
        missing: 3,
        settled: Some(identifier(0x1122_3344)),
        wanted: Some(Encoding::CodedSymbols { count: 21 }),
        round_trip: Duration::from_micros(4321),
        loss: 2621,
        queueing: Duration::from_micros(16_000),
        totals: Totals {
            repaired: 10,
            repair_transmissions: 12,
            unrepairable: 1,
            decode_failures: 2,
            resets: 3,
            cache_high_water: 65_536,
        },
    }
}

fn encode_message(message: &Message<'_>) -> String {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    hex(&bytes)
}

/// A symbol for a group; `names`: a buffer.
fn group_coded<'a>(symbol: &'a [u8], names: &'a mut Vec<u8>) -> Message<'a> {
    let window = Window::new(0x1122_3344, 64, 1).expect("a window");
    let repair = Repair { window, half: Half::First, seed: 513, symbol };
    let named = [7, 0x0102_0304].into_iter().filter_map(Identifier::new);
    Message::GroupCoded(GroupCoded::new(&repair, named, names))
}

fn messages() -> Value {
    let mut names = Vec::new();
    let prefix = bytes_from(1, Encoding::PowerSums { count: 3 }.encoded_len());
    let shortest = Eack {
        epoch: Epoch::FIRST,
        echo: false,
        newest: None,
        newest_age: Duration::ZERO,
        holes: 0,
        anchor: None,
        ..eack(&prefix)
    };
    let runs = [Run { first: 0x1_1122_3340, count: 2 }, Run { first: 0x1_1122_3300, count: 16 }];
    let report_without_wish =
        Report { settled: None, wanted: None, round_trip: Duration::ZERO, ..report() };
    json!([
        {
            "name": "eack", "epoch": 7, "echo": true, "newest": 0x1122_3344, "newest_age_microseconds": 1600, "holes": 2,
            "anchor": 0x5566_7788, "encoding": { "form": 1, "count": 3 }, "prefix": hex(&prefix),
            "plaintext": encode_message(&Message::Eack(eack(&prefix))),
        },
        {
            "name": "eack_without_options", "epoch": 0, "echo": false, "newest": null, "holes": 0, "anchor": null,
            "encoding": { "form": 1, "count": 3 }, "prefix": hex(&prefix),
            "plaintext": encode_message(&Message::Eack(shortest)),
        },
        {
            "name": "report", "epoch": 7, "echo": 258, "echo_age_microseconds": 32, "missing": 3,
            "settled": 0x1122_3344, "wanted": { "form": 2, "count": 21 }, "round_trip_microseconds": 4321, "loss": 2621, "queueing_microseconds": 16000,
            "totals": [10, 12, 1, 2, 3, 65_536],
            "plaintext": encode_message(&Message::Report(report())),
        },
        {
            "name": "report_that_wants_nothing", "epoch": 7, "echo": 258, "echo_age_microseconds": 32, "missing": 3,
            "settled": null, "wanted": null, "round_trip_microseconds": 0, "loss": 2621, "queueing_microseconds": 16000, "totals": [10, 12, 1, 2, 3, 65_536],
            "plaintext": encode_message(&Message::Report(report_without_wish)),
        },
        {
            "name": "reset", "epoch": 8, "reason": ResetReason::DecodeFailed as u8,
            "plaintext": encode_message(&Message::Reset { epoch: Epoch::new(8), reason: ResetReason::DecodeFailed }),
        },
        {
            "name": "goodbye", "reason": GoodbyeReason::Draining as u8,
            "plaintext": encode_message(&Message::Goodbye { reason: GoodbyeReason::Draining }),
        },
        {
            "name": "baseline", "epoch": 8, "encoding": { "form": 1, "count": 3 }, "set": hex(&prefix),
            "plaintext": encode_message(&Message::Baseline { epoch: Epoch::new(8), encoding: Encoding::PowerSums { count: 3 }, set: &prefix }),
        },
        {
            "name": "coded", "half": "second", "first": 0x1122_3344, "count": 64, "step": 2, "seed": 513, "symbol": hex(&prefix),
            "plaintext": encode_message(&Message::Coded(Coded { half: Half::Second, first: 0x1122_3344, count: 64, step: 2, seed: 513, symbol: &prefix })),
        },
        {
            "name": "group_coded", "half": "first", "first": 0x1122_3344, "count": 64, "seed": 513, "names": [7, 0x0102_0304], "symbol": hex(&prefix),
            "plaintext": encode_message(&group_coded(&prefix, &mut names)),
        },
        {
            "name": "recovered", "total": 77,
            "plaintext": encode_message(&Message::Recovered { total: 77 }),
        },
        {
            "name": "holes", "wanted": true, "expected": 0x1122_3344, "age_microseconds": 1600,
            "runs": [{ "first": 0x1122_3340, "count": 2 }, { "first": 0x1122_3300, "count": 16 }],
            "plaintext": encode_message(&Message::Holes(Holes::new(true, 0x1_1122_3344, Duration::from_micros(1600), &runs, &mut Vec::new()))),
        },
        {
            "name": "holes_none", "wanted": false, "expected": 7, "age_microseconds": 0, "runs": [],
            "plaintext": encode_message(&Message::Holes(Holes::new(false, 7, Duration::ZERO, &[], &mut Vec::new()))),
        },
        {
            "name": "path_challenge", "data": hex64(NONCE),
            "plaintext": encode_message(&Message::PathChallenge { data: NONCE }),
        },
        {
            "name": "path_response", "data": hex64(NONCE),
            "plaintext": encode_message(&Message::PathResponse { data: NONCE }),
        },
    ])
}

fn cookies() -> Value {
    let secret = [0x44; 32];
    let key = CookieKey::new(secret);
    let cases =
        [("192.0.2.7:4433", NONCE, 1_000_000), ("[2001:db8::1]:50000", 1, 4_294_967_295_u64 + 10)];
    let cookies: Vec<Value> = cases
        .into_iter()
        .map(|(client, nonce, milliseconds)| {
            let address: SocketAddr = client.parse().expect("an address");
            let (time, cookie) = key.make(address, nonce, Timestamp::from_millis(milliseconds));
            json!({
                "client": client, "nonce": hex64(nonce), "gateway_clock_milliseconds": milliseconds,
                "cookie_time": time, "cookie": hex(&cookie),
            })
        })
        .collect();
    json!({ "secret": hex(&secret), "cookies": cookies })
}

fn peers() -> Value {
    let key = PeerKey::new(&PEER_SECRET);
    let session = SessionId::new(0xa1b2_c3d4);
    let kinds = [
        ("inquiry", PeerKind::Inquiry, NONCE),
        ("not_mine", PeerKind::NotMine, NONCE),
        ("mine", PeerKind::Mine, NONCE),
        ("moved", PeerKind::Moved, NONCE),
        ("arrival", PeerKind::Arrival, NONCE),
    ];
    let messages: Vec<Value> = kinds
        .into_iter()
        .map(|(name, kind, nonce)| {
            let datagram = key.seal(&PeerMessage { kind, nonce, session });
            json!({
                "name": name, "kind": kind as u8, "nonce": hex64(nonce), "session": session.get(),
                "datagram": hex(&datagram),
            })
        })
        .collect();
    json!({ "secret": hex(&PEER_SECRET), "messages": messages })
}

/// The client params of the vectors.
pub(crate) fn client_params() -> ClientParams {
    ClientParams {
        scheme: IdentifierScheme::Trailer,
        limits: SketchLimits { coded_symbols: 191, power_sums: 129 },
        maximum_hold: Duration::from_millis(120),
        token: Vec::new(),
        live: None,
        numbered: None,
        ticket: None,
        bundles: false,
    }
}

/// Both ends of the vectors' session: client, gateway, and the two Noise messages.
pub(crate) fn session() -> (Established, Established, Vec<u8>, Vec<u8>) {
    let initiator = Initiator::new(CLIENT_SEED, NONCE, client_params(), None);
    let first = initiator.message().expect("the first message");
    let (gateway, _, second) =
        respond(GATEWAY_SEED, &STATIC_KEY, NONCE, &first, |client_params, random| {
            let (mut session, mut secret) = ([0; 4], [0; 32]);
            random(&mut session);
            random(&mut secret);
            let limits =
                client_params.limits.within(SketchLimits { coded_symbols: 191, power_sums: 129 });
            GatewayParams {
                session: SessionId::new(u32::from_be_bytes(session)),
                scheme: client_params.scheme,
                limits,
                cache_bytes: 1 << 20,
                secret: secret.into(),
                stream: None,
                symbols: None,
                numbered: None,
                hint: Default::default(),
                ticket: None,
                bundles: false,
                distinct: false,
            }
        })
        .expect("the second message");
    let client = initiator.finish(&second).expect("the end of the handshake");
    (client, gateway, first, second)
}

/// A handshake with records: first message, the gateway's reading of it, second message, and the
/// agreed parameters.
fn extended(
    asking: ClientParams,
    stream: Option<[u8; 32]>,
    numbered: Option<Numbered>,
    distinct: bool,
) -> (Vec<u8>, ClientParams, Vec<u8>, GatewayParams) {
    let initiator = Initiator::new(CLIENT_SEED, NONCE, asking, None);
    let first = initiator.message().expect("the first message");
    let (_, seen, second) =
        respond(GATEWAY_SEED, &STATIC_KEY, NONCE, &first, |client_params, random| {
            let mut secret = [0; 32];
            random(&mut secret);
            GatewayParams {
                session: SessionId::new(0x0506_0708),
                scheme: client_params.scheme,
                limits: SketchLimits { coded_symbols: 0, power_sums: 40 },
                cache_bytes: 65_536,
                secret: secret.into(),
                stream: stream.map(Into::into),
                symbols: None,
                numbered,
                hint: Default::default(),
                ticket: None,
                bundles: client_params.bundles,
                distinct,
            }
        })
        .expect("the second message");
    let agreed = initiator.finish(&second).expect("the end of the handshake").gateway_params;
    (first, seen, second, agreed)
}

/// The handshake of a subscriber to a stream: its differences from [`handshake`].
fn live() -> Value {
    let live = Live {
        selective: true,
        subscribe: true,
        window: Duration::from_millis(400),
        tolerance: Duration::from_millis(20),
        symbols: false,
    };
    let asking = ClientParams { live: Some(live), ..client_params() };
    let (first, _, second, gateway_params) = extended(asking, Some([0x44; 32]), None, false);
    let datagram = bytes_from(1, 60);
    json!({
        "client_params": { "selective": true, "subscribe": true, "window_microseconds": 400_000, "tolerance_microseconds": 20_000 },
        "noise_message_1": hex(&first),
        "gateway_params": { "session": gateway_params.session.get(), "secret": hex(&*gateway_params.secret), "stream_secret": hex(&[0x44; 32]) },
        "noise_message_2": hex(&second),
        "datagram": hex(&datagram),
        "identifier": gateway_params.identifier_key().identify(gateway_params.scheme, &datagram).get(),
        "symbols": symbols(),
    })
}

/// Symbols for a group: the key of a stream from a session's secret, their session ID, and one, sealed.
fn symbols() -> Value {
    let (mut names, mut plaintext, mut sealed) = (Vec::new(), Vec::new(), Vec::new());
    let key = group::fresh_key(&[0x55; 32]);
    group_coded(&bytes_from(1, 40), &mut names).encode(&mut plaintext);
    group::sealer(key).seal(&plaintext, &mut sealed).expect("sealed");
    json!({
        "secret": hex(&[0x55; 32]), "key": hex(&key), "session": group::session(&key).get(),
        "plaintext": hex(&plaintext), "datagram": hex(&sealed),
    })
}

/// The ephemeral private key that Noise draws from a seed.
pub(crate) fn ephemeral(seed: [u8; 32]) -> [u8; 32] {
    let mut key = [0; 32];
    ChaCha20Rng::from_seed(seed).fill_bytes(&mut key);
    key
}

fn first_with_token() -> Vec<u8> {
    let client_params = ClientParams { token: b"token".to_vec(), ..client_params() };
    Initiator::new(CLIENT_SEED, NONCE, client_params, None).message().expect("the first message")
}

fn handshake() -> Value {
    let (mut client, mut gateway, first, second) = session();
    let gateway_params = client.gateway_params;
    let prefix = bytes_from(1, Encoding::PowerSums { count: 3 }.encoded_len());
    let mut plaintexts = [Vec::new(), Vec::new(), Vec::new()];
    Message::Eack(eack(&prefix)).encode(&mut plaintexts[0]);
    Message::Report(report()).encode(&mut plaintexts[1]);
    Message::Goodbye { reason: GoodbyeReason::Done }.encode(&mut plaintexts[2]);
    let mut sealed = [Vec::new(), Vec::new(), Vec::new()];
    client.sealer.seal(&plaintexts[0], &mut sealed[0]).expect("sealed");
    gateway.sealer.seal(&plaintexts[1], &mut sealed[1]).expect("sealed");
    client.sealer.seal(&plaintexts[2], &mut sealed[2]).expect("sealed");
    let directions = ["client to gateway", "gateway to client", "client to gateway"];
    let messages: Vec<Value> = (0..3)
        .map(|index| {
            json!({
                "direction": directions[index], "counter": index / 2,
                "plaintext": hex(&plaintexts[index]), "datagram": hex(&sealed[index]),
            })
        })
        .collect();
    json!({
        "protocol": "Noise_NX_25519_ChaChaPoly_BLAKE2s",
        "nonce": hex64(NONCE),
        "prologue": hex(&[b"packrat/2".as_slice(), &NONCE.to_be_bytes()].concat()),
        "client_ephemeral_private_key": hex(&ephemeral(CLIENT_SEED)),
        "gateway_ephemeral_private_key": hex(&ephemeral(GATEWAY_SEED)),
        "gateway_static_private_key": hex(&STATIC_KEY),
        "gateway_static_public_key": hex(&public_key(&STATIC_KEY).expect("a public key")),
        "client_params": {
            "scheme": 1, "coded_symbols": 191, "power_sums": 129, "maximum_hold_microseconds": 120_000, "token": "",
            "versions": client_versions(NONCE),
        },
        "noise_message_1": hex(&first),
        "noise_message_1_with_token": { "token": hex(b"token"), "noise": hex(&first_with_token()) },
        "gateway_params": {
            "session": gateway_params.session.get(), "scheme": gateway_params.scheme as u8, "coded_symbols": gateway_params.limits.coded_symbols,
            "power_sums": gateway_params.limits.power_sums, "cache_bytes": gateway_params.cache_bytes, "secret": hex(&*gateway_params.secret),
        },
        "names": gateway_params.names().map(SessionId::get),
        "noise_message_2": hex(&second),
        "messages": messages,
    })
}

/// A datagram with a SCONE packet in front; `first` and `version`: the bytes with the advice.
fn scone(first: u8, version: u8, packets: &[u8]) -> Vec<u8> {
    let rest = [0x7d, 0xc0, 0xfd, 8, 7, 7, 7, 7, 7, 7, 7, 7, 0];
    [&[first, version][..], &rest, packets].concat()
}

fn identifiers() -> Value {
    let words = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, 0x0f1e_2d3c_4b5a_6978];
    let key = IdentifierKey::new(words);
    let padded: Vec<u8> = bytes_from(1, 40).into_iter().chain([0; 24]).collect();
    let cases = [
        ("a datagram with a tag", bytes_from(0x40, 48)),
        ("a datagram of 16 bytes", bytes_from(0x80, 16)),
        ("a datagram too short for a tag: hashed", bytes_from(0x10, 15)),
        ("an empty datagram: hashed", Vec::new()),
        ("a datagram that ends in eight zeros or more: hashed", padded.clone()),
        (
            "behind a SCONE packet of unknown advice: as alone",
            scone(0xff, 0xef, &bytes_from(0x40, 48)),
        ),
        (
            "the same, where the path has written its advice",
            scone(0xd4, 0x6f, &bytes_from(0x40, 48)),
        ),
        ("a padded datagram behind a SCONE packet", scone(0xff, 0xef, &padded)),
        ("a SCONE packet that is cut off is none: hashed", scone(0xff, 0xef, &[])[..13].to_vec()),
    ];
    let list: Vec<Value> = cases
        .iter()
        .map(|(name, datagram)| {
            json!({
                "name": name, "datagram": hex(datagram),
                "trailer": key.identify(IdentifierScheme::Trailer, datagram).get(),
                "payload": key.identify(IdentifierScheme::Payload, datagram).get(),
            })
        })
        .collect();
    let (client, ..) = session();
    let datagram = bytes_from(0x40, 48);
    json!({
        "key": words.map(hex64),
        "identifiers": list,
        "of_the_session_in_handshake_json": {
            "datagram": hex(&datagram),
            "trailer": client.gateway_params.identifier_key().identify(IdentifierScheme::Trailer, &datagram).get(),
        },
    })
}

/// The records of an agreement about numbers, and numbered datagrams of its session.
fn numbers() -> Value {
    let wish = Numbered { to_client: true, to_server: true, coded: true, largest: 1464 };
    let granted = Numbered { to_client: true, to_server: false, coded: true, largest: 1444 };
    let asking = ClientParams { numbered: Some(wish), ..client_params() };
    let (_, _, distinct, _) = extended(asking.clone(), None, Some(granted), true);
    let (first, seen, second, agreed) = extended(asking, None, Some(granted), false);
    assert_eq!(seen.numbered, Some(wish));
    assert_eq!(agreed.numbered, Some(granted));
    let (key, identifiers) = (agreed.number_key(), agreed.identifier_key());
    let upward = agreed.upward_number_key();
    let cases = [
        ("the first datagram", 0, bytes_from(0x40, 48)),
        ("the same datagram, repaired much later", 0, bytes_from(0x40, 48)),
        ("the next one", 1, bytes_from(0x41, 48)),
        ("the last number before they begin again", (1 << 24) - 1, bytes_from(0x42, 48)),
        ("a place beyond 24 bits", (1 << 24) + 5, bytes_from(0x43, 48)),
        ("an empty datagram", 7, Vec::new()),
    ];
    let list: Vec<Value> = cases
        .iter()
        .map(|(name, place, base)| {
            let identifier = identifiers.identify(agreed.scheme, base);
            let datagram = |key: NumberKey| {
                let header = key.header(*place, identifier);
                hex(&[&header[..], base].concat())
            };
            json!({
                "name": name, "place": place, "base": hex(base), "identifier": identifier.get(),
                "datagram": datagram(key), "datagram_towards_the_server": datagram(upward),
            })
        })
        .collect();
    let record =
        |numbered: &Numbered, flags: u8| json!({ "flags": flags, "largest": numbered.largest });
    json!({
        "client_params": record(&wish, 7),
        "noise_message_1": hex(&first),
        "gateway_params": {
            "session": agreed.session.get(), "secret": hex(&*agreed.secret), "numbered": record(&granted, 5),
        },
        "noise_message_2": hex(&second),
        "noise_message_2_of_distinct_numbers": hex(&distinct),
        "datagrams": list,
    })
}

/// An agreement about bundles, and some of them.
fn bundles() -> Value {
    let asking = ClientParams { bundles: true, ..client_params() };
    let (first, seen, second, agreed) = extended(asking, None, None, false);
    assert!(seen.bundles && agreed.bundles);
    let mut message = Vec::new();
    Control::Sealed {
        session: agreed.session,
        counter: MessageCounter::new(7),
        ciphertext: &[0x5a; 40],
    }
    .encode(&mut message);
    let (short, long) = (bytes_from(0x40, 21), bytes_from(0x41, 255));
    let sixteen: Vec<_> = (0..16).map(|at| bytes_from(0x40 + at, 30)).collect();
    let cases = [
        ("an acknowledgement, and an eACK", vec![bytes_from(0x40, 32)], &message[..]),
        ("the shortest and the longest, without a message", vec![short, long], &[]),
        ("as many as there may be", sixteen, &message),
    ];
    let list: Vec<Value> = cases
        .iter()
        .map(|(name, datagrams, message)| {
            let mut bundle = Vec::new();
            assert!(join(datagrams, message, &mut bundle));
            let inside: Vec<_> = datagrams.iter().map(|one| hex(one)).collect();
            json!({
                "name": name, "datagrams": inside, "message": hex(message), "bundle": hex(&bundle),
            })
        })
        .collect();
    json!({
        "noise_message_1": hex(&first), "noise_message_2": hex(&second), "bundles": list,
    })
}

/// Sketch prefixes of `count` identifiers `value(index)`.
fn sketch_vectors(name: &str, key: [u64; 2], identifiers: &[u32]) -> Value {
    let mut sketch = Sketch::new(SketchKey::new(key), SketchLimits::LARGEST);
    identifiers.iter().for_each(|value| sketch.insert(identifier(*value)));
    let prefix = |encoding: Encoding| {
        let mut bytes = Vec::new();
        sketch.write_prefix(encoding, &mut bytes).expect("within the limits");
        let [form, count] = encoding.to_wire();
        json!({ "form": form, "count": count, "prefix": hex(&bytes) })
    };
    json!({
        "name": name, "key": key.map(hex64), "identifiers": identifiers,
        "prefixes": [
            prefix(Encoding::PowerSums { count: 2 }),
            prefix(Encoding::PowerSums { count: 24 }),
            prefix(Encoding::CodedSymbols { count: 4 }),
            prefix(Encoding::CodedSymbols { count: 191 }),
        ],
    })
}

fn sketches() -> Value {
    let key = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];
    let many: Vec<u32> =
        (1..=20u32).map(|index| index.wrapping_mul(0x9e37_79b1) % 4_294_967_290 + 1).collect();
    let (client, ..) = session();
    let mut of_session = Sketch::new(client.gateway_params.sketch_key(), SketchLimits::LARGEST);
    of_session.insert(identifier(1));
    let mut bytes = Vec::new();
    of_session
        .write_prefix(Encoding::CodedSymbols { count: 21 }, &mut bytes)
        .expect("within the limits");
    json!({
        "sketches": [
            sketch_vectors("empty", key, &[]),
            sketch_vectors("one identifier", key, &[1]),
            sketch_vectors("the largest identifier", key, &[4_294_967_290]),
            sketch_vectors("twenty identifiers", key, &many),
        ],
        "of_the_session_in_handshake_json": {
            "identifiers": [1], "form": 2, "count": 21, "prefix": hex(&bytes),
        },
    })
}

/// The datagram of a place in the vectors of coded repair.
pub(crate) fn content(place: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (57 * place + 31 * at + at / 32) as u8).collect()
}

/// A flow of the vectors: the lengths of its datagrams, of which the first has place `first`; which
/// of them are lost; the symbols that follow, by window, half and seed.
struct Flow {
    name: &'static str,
    first: u64,
    lengths: Vec<usize>,
    lost: Vec<u64>,
    symbols: Vec<(u64, u8, u8, Half, u16)>,
}

fn code() -> Value {
    let products: Vec<[u8; 3]> = [(2, 128), (0x53, 0xca), (255, 255), (29, 29)]
        .map(|(left, right)| [left, right, product(left, right)])
        .to_vec();
    let coefficients: Vec<Value> = [(0, 16, 1, 1), (1_000_003, 20, 1, 513), (4_294_967_290, 12, 3, 65535), (9, 5, 1, 0)]
        .into_iter()
        .map(|(first, count, step, seed)| {
            let window = Window::new(first, count, step).expect("a window");
            let coefficients: Vec<u8> = window.coefficients(seed).map(|(_, one)| one).collect();
            json!({ "first": first, "count": count, "step": step, "seed": seed, "coefficients": hex(&coefficients) })
        })
        .collect();
    let (first, second) = (Half::First, Half::Second);
    let flows = [
        Flow {
            name: "one of eight, all of one half",
            first: 0,
            lengths: vec![40, 700, 768, 1, 0, 300, 301, 302],
            lost: vec![2],
            symbols: vec![(0, 8, 1, first, 1)],
        },
        Flow {
            name: "both halves of a full-size datagram",
            first: 4_294_967_290,
            lengths: vec![1452, 1452, 1200, 1452, 60, 1452, 1452, 769],
            lost: vec![4_294_967_293],
            symbols: vec![(4_294_967_290, 8, 1, second, 700), (4_294_967_290, 8, 1, first, 701)],
        },
        Flow {
            name: "three of twelve, by overlapping windows; the last window begins later",
            first: 100,
            lengths: vec![500, 510, 520, 530, 540, 550, 560, 570, 580, 590, 600, 610],
            lost: vec![103, 104, 110],
            symbols: vec![(100, 8, 1, first, 11), (100, 12, 1, first, 12), (104, 8, 1, first, 13)],
        },
        Flow {
            name: "a burst of two, by interleaved parities",
            first: 6,
            lengths: vec![90, 80, 70, 60, 50, 40],
            lost: vec![8, 9],
            symbols: vec![(6, 3, 2, first, 0), (7, 3, 2, first, 0)],
        },
    ];
    let flows: Vec<Value> = flows.iter().map(flow).collect();
    json!({
        "content": "byte i of the datagram at place p is (57 p + 31 i + floor(i / 32)) mod 256",
        "products": products,
        "coefficients": coefficients,
        "flows": flows,
    })
}

fn flow(flow: &Flow) -> Value {
    let Flow { name, first, lengths, lost, symbols } = flow;
    let datagrams: Vec<Vec<u8>> =
        (*first..).zip(lengths).map(|(place, length)| content(place, *length)).collect();
    let at = |place: u64| &datagrams[(place - first) as usize][..];
    let mut decoder = Decoder::new(DecoderLimits::DEFAULT);
    let arrived: Vec<u64> =
        (*first..).take(lengths.len()).filter(|place| !lost.contains(place)).collect();
    arrived.iter().for_each(|place| {
        decoder.on_datagram(*place, at(*place));
    });
    let messages: Vec<Value> = symbols
        .iter()
        .map(|(start, count, step, half, seed)| {
            let window = Window::new(*start, *count, *step).expect("a window");
            let mut symbol = Vec::new();
            let made = Encoder::new().encode(
                window,
                *half,
                *seed,
                |place| Some((at(place), &[][..])),
                &mut symbol,
            );
            made.expect("a symbol");
            let repair = Repair { window, half: *half, seed: *seed, symbol: &symbol };
            assert_eq!(decoder.on_repair(&repair), Use::Innovative, "{name}");
            let mut recovered = Vec::new();
            while let Some((place, bytes)) = decoder.next_recovered() {
                assert_eq!(bytes, at(place), "{name}");
                recovered.push(place);
            }
            recovered.sort_unstable();
            json!({
                "half": if *half == Half::First { "first" } else { "second" },
                "first": start, "count": count, "step": step, "seed": seed,
                "plaintext": encode_message(&Message::Coded(Coded::new(&repair))),
                "recovered": recovered,
            })
        })
        .collect();
    assert_eq!(decoder.totals().recovered, lost.len() as u64, "{name}");
    json!({ "name": name, "first_place": first, "lengths": lengths, "lost": lost, "messages": messages })
}

/// The product of two polynomials over GF(2), modulo the field's.
fn product(left: u8, right: u8) -> u8 {
    let mut product = (0..8)
        .filter(|bit| right >> bit & 1 == 1)
        .fold(0u16, |sum, bit| sum ^ u16::from(left) << bit);
    for bit in (8..16).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    product as u8
}
