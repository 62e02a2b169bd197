//! The code against the committed golden vectors, byte by byte and in both directions.

use std::path::Path;

use packrat_code::{Decoder, DecoderLimits, Use};
use packrat_wire::bundle;
use packrat_wire::control::Control;
use packrat_wire::handshake::{ClientParams, Initiator, Numbered, public_key};
use packrat_wire::message::Message;
use packrat_wire::number::split;
use packrat_wire::seal::OpenError;
use serde_json::Value;
use vectors_generator::{
    CLIENT_SEED, GATEWAY_SEED, NONCE, client_params, content, ephemeral, files, hex, session,
};

use crate::vectors_generator;

fn committed(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors").join(name);
    serde_json::from_slice(&std::fs::read(path).expect("the file is there")).expect("JSON")
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no text in {field}"))
}

fn bytes(value: &Value, field: &str) -> Vec<u8> {
    let text = text(value, field);
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex"))
        .collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

#[test]
fn the_code_makes_exactly_the_committed_vectors() {
    for (name, made) in files() {
        assert_eq!(made, committed(name), "{name}: a change of the protocol needs a new version");
    }
}

#[test]
fn every_file_is_checked() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors");
    let checked: Vec<&str> = files().into_iter().map(|(name, _)| name).collect();
    for file in std::fs::read_dir(folder).expect("the folder is there") {
        let name = file.expect("readable").file_name().into_string().expect("plain names");
        assert!(
            !name.ends_with(".json") || checked.contains(&name.as_str()),
            "{name} is checked by nobody"
        );
    }
}

#[test]
fn committed_control_datagrams_decode_to_their_fields() {
    for vector in list(&committed("control.json")) {
        let datagram = bytes(vector, "datagram");
        let nonce = || u64::from_str_radix(text(vector, "nonce"), 16).expect("hex");
        let name = text(vector, "name");
        match Control::decode(&datagram).expect(name) {
            Control::Discover { nonce: seen, versions, noise } => {
                let brought = vector.get("noise").and_then(Value::as_str).unwrap_or_default();
                assert_eq!(hex(noise), brought, "{name}");
                assert_eq!(
                    (seen, Value::from(versions)),
                    (nonce(), vector["versions"].clone()),
                    "{name}"
                );
            }
            Control::Offer { nonce: seen, version, cookie_time, cookie } => {
                assert_eq!((seen, hex(&cookie).as_str()), (nonce(), text(vector, "cookie")));
                assert_eq!(
                    [Value::from(version), cookie_time.into()],
                    ["version", "cookie_time"].map(|at| vector[at].clone())
                );
            }
            Control::Init { nonce: seen, cookie_time, cookie, noise } => {
                assert_eq!((seen, hex(&cookie).as_str()), (nonce(), text(vector, "cookie")));
                assert_eq!(
                    (Value::from(cookie_time), hex(noise).as_str()),
                    (vector["cookie_time"].clone(), text(vector, "noise"))
                );
            }
            Control::InitAck { nonce: seen, noise } => {
                assert_eq!((seen, hex(noise).as_str()), (nonce(), text(vector, "noise")));
            }
            Control::Refusal { nonce: seen, reason, versions } => {
                assert_eq!(seen, nonce());
                assert_eq!(
                    [Value::from(reason as u8), versions.into()],
                    ["reason", "versions"].map(|at| vector[at].clone())
                );
            }
            Control::Sealed { session, counter, ciphertext } => {
                assert_eq!(
                    [Value::from(session.get()), counter.get().into()],
                    ["session", "counter"].map(|at| vector[at].clone())
                );
                assert_eq!(hex(ciphertext), text(vector, "ciphertext"));
            }
        }
    }
}

#[test]
fn committed_messages_decode_and_encode_to_themselves() {
    for vector in list(&committed("messages.json")) {
        let plaintext = bytes(vector, "plaintext");
        let mut again = Vec::new();
        Message::decode(&plaintext).expect("a message").encode(&mut again);
        assert_eq!(again, plaintext, "{}", text(vector, "name"));
    }
}

#[test]
fn the_committed_handshake_opens_the_committed_datagrams() {
    let vector = committed("handshake.json");
    let initiator = Initiator::new(
        CLIENT_SEED,
        NONCE,
        client_params(),
        Some(bytes(&vector, "gateway_static_public_key").try_into().expect("32 bytes")),
    );
    let mut client =
        initiator.finish(&bytes(&vector, "noise_message_2")).expect("the committed answer");
    let (_, mut gateway, ..) = session();
    let mut plaintext = Vec::new();
    for message in list(&vector["messages"]) {
        let datagram = bytes(message, "datagram");
        let (receiver, other) = match text(message, "direction") {
            "client to gateway" => (&mut gateway.opener, &mut client.opener),
            _ => (&mut client.opener, &mut gateway.opener),
        };
        let counter = receiver.open(&datagram, &mut plaintext).expect("the committed datagram");
        assert_eq!(
            (Value::from(counter.get()), &plaintext),
            (message["counter"].clone(), &bytes(message, "plaintext"))
        );
        assert_eq!(receiver.open(&datagram, &mut plaintext), Err(OpenError::Replayed));
        assert!(other.open(&datagram, &mut plaintext).is_err(), "opened in the wrong direction");
    }
}

#[test]
fn committed_numbers_lead_to_the_places_of_their_datagrams() {
    let vector = committed("numbers.json");
    let wish = Numbered { to_client: true, to_server: true, coded: true, largest: 1464 };
    let asking = ClientParams { numbered: Some(wish), ..client_params() };
    let agreed = |answer| {
        Initiator::new(CLIENT_SEED, NONCE, asking.clone(), None)
            .finish(&bytes(&vector, answer))
            .expect("the committed answer")
            .gateway_params
    };
    let distinct = agreed("noise_message_2_of_distinct_numbers").distinct;
    let agreed = agreed("noise_message_2");
    assert_eq!((agreed.distinct, distinct), (false, true));
    assert_eq!(
        agreed.numbered.map(|granted| (granted.to_server, granted.largest)),
        Some((false, 1444))
    );
    for case in list(&vector["datagrams"]) {
        let name = text(case, "name");
        let place = case["place"].as_u64().expect("a number");
        for (field, key) in [
            ("datagram", agreed.number_key()),
            ("datagram_towards_the_server", agreed.upward_number_key()),
        ] {
            let datagram = bytes(case, field);
            let (number, base) = split(&datagram).expect(name);
            assert_eq!(base, bytes(case, "base"), "{name}");
            let identifier = agreed.identifier_key().identify(agreed.scheme, base);
            for expected in [place, place + 100, place.saturating_sub(100)] {
                assert_eq!(key.place(number, identifier, expected), place, "{name}: {field}");
            }
        }
    }
}

#[test]
fn committed_symbols_recover_the_datagrams_of_their_flows() {
    for flow in list(&committed("code.json")["flows"]) {
        let name = text(flow, "name");
        let number = |value: &Value| value.as_u64().expect("a number");
        let lengths: Vec<usize> =
            list(&flow["lengths"]).iter().map(|length| number(length) as usize).collect();
        let mut decoder = Decoder::new(DecoderLimits::DEFAULT);
        let first = number(&flow["first_place"]);
        let lost: Vec<u64> = list(&flow["lost"]).iter().map(number).collect();
        for (place, length) in (first..).zip(&lengths) {
            if !lost.contains(&place) {
                decoder.on_datagram(place, &content(place, *length));
            }
        }
        let newest = first + lengths.len() as u64 - 1;
        for message in list(&flow["messages"]) {
            let plaintext = bytes(message, "plaintext");
            let Ok(Message::Coded(coded)) = Message::decode(&plaintext) else {
                panic!("{name}: no symbol")
            };
            let repair = coded.repair(newest).expect(name);
            assert_eq!(repair.window.first(), number(&message["first"]), "{name}");
            assert_eq!(decoder.on_repair(&repair), Use::Innovative, "{name}");
            let mut recovered = Vec::new();
            while let Some((place, datagram)) = decoder.next_recovered() {
                let length = lengths[(place - first) as usize];
                assert_eq!(datagram, content(place, length), "{name}: {place}");
                recovered.push(place);
            }
            recovered.sort_unstable();
            assert_eq!(Value::from(recovered), message["recovered"], "{name}");
        }
    }
}

/// The vectors name Noise's ephemeral private keys, so that other implementations can make the same
/// messages.
#[test]
fn the_ephemeral_keys_are_the_ones_that_were_used() {
    let vector = committed("handshake.json");
    for (seed, field) in [(CLIENT_SEED, "noise_message_1"), (GATEWAY_SEED, "noise_message_2")] {
        let public = public_key(&ephemeral(seed)).expect("a public key");
        assert_eq!(bytes(&vector, field)[..32], public, "{field}");
    }
}

#[test]
fn committed_bundles_come_apart() {
    let vector = committed("bundles.json");
    let asking = ClientParams { bundles: true, ..client_params() };
    let agreed = Initiator::new(CLIENT_SEED, NONCE, asking, None)
        .finish(&bytes(&vector, "noise_message_2"))
        .expect("the committed answer")
        .gateway_params;
    assert!(agreed.bundles);
    for case in list(&vector["bundles"]) {
        let name = text(case, "name");
        let committed = bytes(case, "bundle");
        let bundle = bundle::split(&committed).expect(name);
        let inside: Vec<Value> = bundle.datagrams().map(|one| hex(one).into()).collect();
        assert_eq!(inside, list(&case["datagrams"]), "{name}");
        assert_eq!(bundle.message, bytes(case, "message"), "{name}");
    }
}
