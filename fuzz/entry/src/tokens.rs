//! Arbitrary bytes as a token, as its text, as the text of a key, and as claims.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packrat_assist_token::{
    Binding, Claims, Key, Keys, MAXIMUM_LENGTH, RouteHash, TokenError, from_text, to_text, verify,
};

const NOW: u64 = 1_800_000_000;
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn keys() -> Keys {
    Keys { current: Key::new(1, [7; 32]), previous: Some(Key::new(2, [8; 32])) }
}

/// The bytes as input of every parser of this crate.
pub fn tokens(data: &[u8]) {
    let (keys, route) = (keys(), RouteHash::of("web"));
    // Without a key, an attacker can only repeat issued tokens.
    if let Ok(claims) = verify(data, &keys, NOW, PEER, route) {
        let previous = keys.previous.as_ref().map(|key| key.issue(&claims));
        assert!(
            data == keys.current.issue(&claims) || Some(data) == previous.as_deref(),
            "{claims:?} was not issued"
        );
        assert!(claims.expires >= NOW && claims.route == route);
        assert!(claims.binding.is_none_or(|binding| binding.contains(PEER)));
    }
    if let Ok(text) = core::str::from_utf8(data) {
        if let Ok(token) = from_text(text) {
            assert_eq!(to_text(&token), text);
            let _ = verify(&token, &keys, NOW, PEER, route);
        }
        if let Ok(key) = Key::from_text(text) {
            assert_eq!(
                text.trim().split(':').next().and_then(|id| id.parse().ok()),
                Some(key.id())
            );
        }
    }
    issued(data);
}

/// The bytes as claims: an issued token is accepted for its route, network and time, and refused
/// with any bit flipped.
fn issued(data: &[u8]) {
    let mut padded = [0; 38];
    let length = data.len().min(padded.len());
    padded[..length].copy_from_slice(&data[..length]);
    let [a, b, c, d, e, f, g, h, nonce, kind, prefix, bend, network @ ..] = padded;
    let expires = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let mut address = [0; 16];
    address.copy_from_slice(&network[..16]);
    let address: IpAddr = match kind % 3 {
        1 => Ipv4Addr::from([address[0], address[1], address[2], address[3]]).into(),
        _ => Ipv6Addr::from(address).into(),
    };
    let binding = if kind % 3 == 0 { None } else { Binding::new(address, prefix).ok() };
    let claims = Claims { expires, route: RouteHash::of("web"), binding, nonce: nonce.into() };
    let keys = keys();
    let mut token = keys.current.issue(&claims);
    assert!(token.len() <= MAXIMUM_LENGTH);
    let check = |token: &[u8], now, peer| verify(token, &keys, now, peer, claims.route);
    let peer = binding.map_or(PEER, |binding| binding.network());
    assert_eq!(check(&token, expires, peer), Ok(claims));
    assert!(
        expires == u64::MAX
            || matches!(check(&token, expires + 1, peer), Err(TokenError::Expired { .. }))
    );
    let place = usize::from(bend) * 7 % token.len();
    token[place] ^= 1 << (bend % 8);
    assert!(check(&token, expires, peer).is_err(), "bent at {place}");
}
