//! The tokens that a verifier accepts, and the tokens that it refuses.

use std::net::IpAddr;

use packrat_assist_token::{
    Binding, Claims, Key, Keys, MAXIMUM_LENGTH, RouteHash, TokenError, from_text, to_text, verify,
};
use proptest::prelude::*;

const NOW: u64 = 1_800_000_000;

fn keys() -> Keys {
    Keys { current: Key::new(2, [2; 32]), previous: Some(Key::new(1, [1; 32])) }
}

fn web() -> RouteHash {
    RouteHash::of("web")
}

fn client() -> IpAddr {
    "192.0.2.1".parse().unwrap()
}

fn claims() -> Claims {
    Claims { expires: NOW + 300, route: web(), binding: None, nonce: 0x1122_3344_5566_7788 }
}

fn bound(network: &str, prefix: u8) -> Claims {
    Claims { binding: Some(Binding::new(network.parse().unwrap(), prefix).unwrap()), ..claims() }
}

fn check(token: &[u8]) -> Result<Claims, TokenError> {
    verify(token, &keys(), NOW, client(), web())
}

#[test]
fn every_kind_of_token_is_accepted_and_fits_an_init() {
    for claims in [claims(), bound("192.0.2.77", 24), bound("192.0.2.1", 32), bound("0.0.0.0", 0)] {
        let token = keys().current.issue(&claims);
        assert!(token.len() <= MAXIMUM_LENGTH, "{}", token.len());
        assert_eq!(check(&token), Ok(claims));
    }
    let claims = bound("2001:db8::1", 64);
    let token = keys().current.issue(&claims);
    assert_eq!(token.len(), MAXIMUM_LENGTH);
    assert_eq!(verify(&token, &keys(), NOW, "2001:db8::9".parse().unwrap(), web()), Ok(claims));
    const { assert!(MAXIMUM_LENGTH < 64) };
}

/// The layout is a promise between versions of issuer and verifier. The authentication code was
/// computed with Python's hmac module.
#[test]
fn the_layout_does_not_change_unnoticed() {
    let token = Key::new(7, [9; 32]).issue(&Claims { route: web(), ..bound("192.0.2.0", 24) });
    let text: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        text,
        concat!(
            "01",
            "00000007",
            "000000006b49d32c",
            "c93f329f2242f500",
            "1122334455667788",
            "0418c0000200",
            "c758a8491b8d7fb64637cdfe5b27e61c"
        )
    );
}

#[test]
fn a_token_lives_until_its_last_second() {
    let token = keys().current.issue(&claims());
    assert!(verify(&token, &keys(), NOW + 300, client(), web()).is_ok());
    assert_eq!(
        verify(&token, &keys(), NOW + 301, client(), web()),
        Err(TokenError::Expired { seconds: 1 })
    );
    assert_eq!(
        verify(&token, &keys(), u64::MAX, client(), web()),
        Err(TokenError::Expired { seconds: u64::MAX - NOW - 300 })
    );
}

#[test]
fn keys_rotate() {
    let (one, two, three) = (Key::new(1, [1; 32]), Key::new(2, [2; 32]), Key::new(3, [3; 32]));
    let token = one.issue(&claims());
    let force = |current: &Key, previous: Option<&Key>| {
        let keys = Keys { current: current.clone(), previous: previous.cloned() };
        verify(&token, &keys, NOW, client(), web())
    };
    assert_eq!(force(&one, None), Ok(claims()));
    assert_eq!(force(&two, Some(&one)), Ok(claims()));
    assert_eq!(force(&three, Some(&two)), Err(TokenError::UnknownKey(1)));
    // Another secret under the same identifier.
    assert_eq!(force(&Key::new(1, [4; 32]), Some(&two)), Err(TokenError::Forged));
    // Both under the same identifier: an operator who forgot to count is not punished.
    assert_eq!(force(&Key::new(1, [4; 32]), Some(&one)), Ok(claims()));
}

#[test]
fn other_routes_and_other_networks() {
    let token = keys().current.issue(&claims());
    assert_eq!(
        verify(&token, &keys(), NOW, client(), RouteHash::of("Web")),
        Err(TokenError::OtherRoute)
    );
    let token = keys().current.issue(&bound("192.0.2.0", 24));
    for (peer, good) in [
        ("192.0.2.200", true),
        ("::ffff:192.0.2.200", true),
        ("192.0.3.1", false),
        ("::c000:201", false),
        ("2001:db8::1", false),
    ] {
        let verified = verify(&token, &keys(), NOW, peer.parse().unwrap(), web());
        assert_eq!(verified.err(), (!good).then_some(TokenError::OtherNetwork), "{peer}");
    }
}

#[test]
fn every_bent_bit_is_noticed() {
    for claims in [claims(), bound("192.0.2.0", 24), bound("2001:db8::", 32)] {
        let token = keys().current.issue(&claims);
        for bit in 0..token.len() * 8 {
            let mut bent = token.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(
                matches!(
                    check(&bent),
                    Err(TokenError::Forged | TokenError::Malformed | TokenError::UnknownKey(_))
                ),
                "bit {bit}: {:?}",
                check(&bent)
            );
        }
        for length in 0..token.len() {
            assert!(check(&token[..length]).is_err());
        }
        assert_eq!(check(&[token.as_slice(), &[0]].concat()).err(), Some(TokenError::Malformed));
    }
}

#[test]
fn texts() {
    let token = keys().current.issue(&claims());
    let text = to_text(&token);
    assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'));
    assert_eq!(from_text(&text), Ok(token));
    for wrong in [
        format!("{text}="),
        format!("{text}\n"),
        text.replacen(&text[..1], "+", 1),
        "A".repeat(100),
    ] {
        assert_eq!(from_text(&wrong), Err(TokenError::Malformed), "{wrong}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        prop_assert!(check(&bytes).is_err());
        // A token that names a known key gets as far as its authentication code.
        let mut likely = bytes;
        likely.resize(46, 0);
        likely[..5].copy_from_slice(&[1, 0, 0, 0, 2]);
        likely[29] = 0;
        prop_assert_eq!(check(&likely), Err(TokenError::Forged));
    }

    #[test]
    fn arbitrary_texts_are_refused_without_a_panic(text in ".{0,120}") {
        if let Ok(bytes) = from_text(&text) {
            prop_assert_eq!(to_text(&bytes), text);
        }
    }

    #[test]
    fn issued_claims_are_the_verified_claims(
        key: u32, secret: [u8; 32], lifetime in 0..1_000_000u64, name in ".{0,40}", nonce: u64,
        address: Option<(u128, bool, u8)>
    ) {
        let binding = address.map(|(bits, four, prefix)| match four {
            true => Binding::new(IpAddr::from((bits as u32).to_be_bytes()), prefix % 33).unwrap(),
            false => Binding::new(IpAddr::from(bits.to_be_bytes()), prefix % 33).unwrap(),
        });
        let peer = binding.map_or(client(), |binding| binding.network());
        let claims = Claims { expires: NOW + lifetime, route: RouteHash::of(&name), binding, nonce };
        let keys = Keys { current: Key::new(key, secret), previous: None };
        let token = keys.current.issue(&claims);
        prop_assert_eq!(verify(&token, &keys, NOW, peer, claims.route), Ok(claims));
        prop_assert_eq!(from_text(&to_text(&token)), Ok(token));
    }
}
