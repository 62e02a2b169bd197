//! Arbitrary bytes for every parser of messages from the network.

use core::time::Duration;

use packrat_eack::{Identifier, SketchLimits};
use packrat_wire::bundle;
use packrat_wire::control::{Control, DISCOVER_LENGTH, INIT_LENGTH, MAXIMUM_LENGTH};
use packrat_wire::handshake::{ClientParams, Established, GatewayParams, Initiator, respond};
use packrat_wire::identifier::{IdentifierKey, IdentifierScheme};
use packrat_wire::is_control;
use packrat_wire::message::{Coded, MAXIMUM_RUNS, Message};
use packrat_wire::number::{self, NumberKey};
use packrat_wire::peer::PeerKey;
use packrat_wire::scone;
use packrat_wire::seal::{MAXIMUM_PLAINTEXT_BYTES, OpenError};
use packrat_wire::{MessageCounter, SessionId};

/// Nonce, seeds and keys of protocol/vectors/handshake.json, so that the corpus can hold genuine
/// messages.
const NONCE: u64 = 0x0102_0304_0506_0708;
const STATIC_KEY: [u8; 32] = [0x33; 32];

/// The bytes as a datagram and as the plaintext of a sealed one. Every decoded message, encoded and
/// decoded again, must be the same.
pub fn wire(data: &[u8]) {
    match Control::decode(data) {
        Ok(control) => {
            assert!(is_control(data));
            match control {
                Control::Discover { .. } => assert!(data.len() >= DISCOVER_LENGTH),
                Control::Init { .. } => assert!(data.len() >= INIT_LENGTH),
                _ => {}
            }
            let mut again = Vec::new();
            control.encode(&mut again);
            assert_eq!(Control::decode(&again), Ok(control));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    check_scone(data);
    if let Some((number, base)) = number::split(data) {
        assert!(is_control(data) && Control::decode(data).is_err(), "a known type, too");
        let (key, identifier) = (NumberKey::new([1, 2]), Identifier::from_hash(3));
        let place = key.place(number, identifier, 1 << 30);
        assert_eq!([&key.header(place, identifier)[..], base].concat(), data);
    }
    if let Some(bundle) = bundle::split(data) {
        assert!(is_control(data) && Control::decode(data).is_err(), "a known type, too");
        let datagrams: Vec<_> = bundle.datagrams().collect();
        let mut again = Vec::new();
        let fits = bundle::join(&datagrams, bundle.message, &mut again);
        assert!(if fits { again == data } else { data.len() > MAXIMUM_LENGTH });
    }
    if let Some(message) = PeerKey::new(&STATIC_KEY).open(data) {
        assert!(is_control(data) && Control::decode(data).is_err(), "a client's type, too");
        assert_eq!(PeerKey::new(&STATIC_KEY).seal(&message), data);
    }
    if let Ok(message) = Message::decode(data) {
        let mut again = Vec::new();
        message.encode(&mut again);
        // An unknown reason becomes the unspecified one.
        assert_eq!(again.len(), data.len(), "{message:?} is not what was read");
        assert_eq!(Message::decode(&again), Ok(message));
        if let Message::Coded(coded) = message
            && let Some(repair) = coded.repair(1 << 40)
        {
            assert_eq!(Coded::new(&repair), coded);
        }
        if let Message::Holes(holes) = message {
            let missing: u64 = holes.runs().map(|run| u64::from(run.count)).sum();
            assert!(missing <= MAXIMUM_RUNS as u64 * u64::from(u16::MAX));
        }
    }
}

/// A path may write any advice into a SCONE packet: the datagram stays the same.
fn check_scone(data: &[u8]) {
    let Some((packet, packets)) = scone::split(data) else { return };
    assert_eq!([packet, packets].concat(), data);
    let mut rewritten = data.to_vec();
    rewritten[0] ^= 0x3f;
    rewritten[1] ^= 0x80;
    assert_eq!(scone::split(&rewritten).map(|(_, packets)| packets), Some(packets));
    let key = IdentifierKey::new([1, 2, 3]);
    for scheme in [IdentifierScheme::Trailer, IdentifierScheme::Payload] {
        assert_eq!(key.identify(scheme, &rewritten), key.identify(scheme, data));
    }
}

/// The bytes as Noise messages, raw and out of an Init or InitAck; as a sealed datagram; and as a
/// plaintext that is sealed, corrupted and replayed.
pub fn handshake(data: &[u8]) {
    let initiator = initiator();
    let first = initiator.message().expect("Noise's own first message");
    let (mut gateway, second) = answer(&first).expect("the answer to it");
    let mut client = initiator.finish(&second).expect("the end of the handshake");

    let (mut as_first, mut as_second) = (data, data);
    match Control::decode(data) {
        Ok(Control::Init { noise, .. }) => as_first = noise,
        Ok(Control::InitAck { noise, .. }) => as_second = noise,
        _ => {}
    }
    if let Some((_, second)) = answer(as_first) {
        let mut init_ack = Vec::new();
        Control::InitAck { nonce: NONCE, noise: &second }.encode(&mut init_ack);
        assert!(init_ack.len() <= INIT_LENGTH, "an answer longer than its question");
        assert_eq!(
            initiator.finish(&second).is_ok(),
            as_first == first,
            "an answer to another first message"
        );
    }
    assert_eq!(initiator.finish(as_second).is_ok(), as_second == second, "a forged answer");

    let mut plaintext = Vec::new();
    assert!(gateway.opener.open(data, &mut plaintext).is_err(), "a forged datagram");
    let message = &data[..data.len().min(MAXIMUM_PLAINTEXT_BYTES)];
    let mut datagram = Vec::new();
    client.sealer.seal(message, &mut datagram).expect("short enough");
    let mut bent = datagram.clone();
    let position = data.len() % bent.len();
    bent[position] ^= 1 << (data.len() % 8);
    assert!(
        gateway.opener.open(&bent, &mut plaintext).is_err(),
        "byte {position} is not protected"
    );
    assert_eq!(gateway.opener.open(&datagram, &mut plaintext), Ok(MessageCounter::FIRST));
    assert_eq!(plaintext, message);
    assert_eq!(gateway.opener.open(&datagram, &mut plaintext), Err(OpenError::Replayed));
}

fn initiator() -> Initiator {
    let limits = SketchLimits { coded_symbols: 191, power_sums: 129 };
    let maximum_hold = Duration::from_millis(120);
    Initiator::new(
        [0x11; 32],
        NONCE,
        ClientParams {
            scheme: IdentifierScheme::Trailer,
            limits,
            maximum_hold,
            token: Vec::new(),
            live: None,
            numbered: None,
            ticket: None,
            bundles: false,
        },
        None,
    )
}

fn answer(first: &[u8]) -> Option<(Established, Vec<u8>)> {
    let answered = respond([0x22; 32], &STATIC_KEY, NONCE, first, |client_params, random| {
        let (mut session, mut secret) = ([0; 4], [0; 32]);
        random(&mut session);
        random(&mut secret);
        let session = SessionId::new(u32::from_be_bytes(session));
        GatewayParams {
            session,
            scheme: client_params.scheme,
            limits: client_params.limits,
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
    });
    answered.ok().map(|(established, _, second)| (established, second))
}
