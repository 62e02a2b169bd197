//! The claims of a token, and their verification.

use alloc::vec::Vec;
use core::net::IpAddr;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::binding::Binding;
use crate::key::Keys;

/// Longest token, in bytes.
pub const MAXIMUM_LENGTH: usize = FIXED_LENGTH + 17 + TAG_LENGTH;
/// Bytes of the truncated authentication code (RFC 2104, section 5: at least half of the hash's).
pub(crate) const TAG_LENGTH: usize = 16;

/// Version of the claims, their first byte.
const CLAIMS_VERSION: u8 = 1;
/// Everything up to the kind of binding.
const FIXED_LENGTH: usize = 30;
/// Kind of address of a token that is valid at every address.
const UNBOUND_KIND: u8 = 0;
/// Kind of address of a token that is bound to an IPv4 address.
const IPV4_KIND: u8 = 4;
/// Kind of address of a token that is bound to an IPv6 network.
const IPV6_KIND: u8 = 6;

/// Names a route in few bytes. Not a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteHash([u8; 8]);

impl RouteHash {
    /// Hashes a route's name, as issuer and verifier are configured with it.
    pub fn of(name: &str) -> Self {
        let digest = Sha256::new_with_prefix(b"packrat route ").chain_update(name).finalize();
        let mut hash = [0; 8];
        hash.copy_from_slice(&digest[..8]);
        Self(hash)
    }
}

/// The claims of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claims {
    /// The last second at which the token is accepted, since 1970 (UTC).
    pub expires: u64,
    /// The route whose sessions the token permits.
    pub route: RouteHash,
    /// The network whose clients may use the token; `None` permits any.
    pub binding: Option<Binding>,
    /// Drawn at random for each token.
    pub nonce: u64,
}

/// The reason why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The bytes are not a token: wrong length, another version, or not base64url.
    #[error("this is not a token of version 1; ask the token endpoint for one")]
    Malformed,
    /// Neither the current nor the previous key has this identifier.
    #[error(
        "the token was made with key {0}, which is not in force (any more); ask the token endpoint for a new one"
    )]
    UnknownKey(u32),
    /// The authentication code is wrong: the token was changed in transit, or forged.
    #[error(
        "the token's authentication code is wrong; issuer and gateway must be configured with the same key"
    )]
    Forged,
    /// Too old.
    #[error("the token has expired {seconds} s ago; ask the token endpoint for a new one")]
    Expired {
        /// Seconds since the expiry.
        seconds: u64,
    },
    /// The token is for another route.
    #[error("the token is for another route")]
    OtherRoute,
    /// The token is for clients of another network.
    #[error("the token is for clients of another network; ask the token endpoint from this one")]
    OtherNetwork,
}

impl Claims {
    pub(crate) fn encode(&self, key: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAXIMUM_LENGTH);
        bytes.push(CLAIMS_VERSION);
        bytes.extend_from_slice(&key.to_be_bytes());
        bytes.extend_from_slice(&self.expires.to_be_bytes());
        bytes.extend_from_slice(&self.route.0);
        bytes.extend_from_slice(&self.nonce.to_be_bytes());
        match self.binding.map(|binding| (binding.network(), binding.prefix())) {
            None => bytes.push(UNBOUND_KIND),
            Some((IpAddr::V4(network), prefix)) => {
                bytes.extend_from_slice(&[IPV4_KIND, prefix]);
                bytes.extend_from_slice(&network.octets());
            }
            Some((IpAddr::V6(network), prefix)) => {
                bytes.extend_from_slice(&[IPV6_KIND, prefix]);
                bytes.extend_from_slice(&network.octets());
            }
        }
        bytes
    }

    /// Reads the claims and the identifier of the key. Each set of claims has exactly one encoding.
    fn decode(bytes: &[u8]) -> Option<(Self, u32)> {
        let (version, rest) = take::<1>(bytes)?;
        let (key, rest) = take(rest)?;
        let (expires, rest) = take(rest)?;
        let (route, rest) = take(rest)?;
        let (nonce, rest) = take(rest)?;
        let ([kind], rest) = take(rest)?;
        let (binding, rest) = match kind {
            UNBOUND_KIND => (None, rest),
            IPV4_KIND => {
                let ([prefix], rest) = take(rest)?;
                let (network, rest) = take::<4>(rest)?;
                (Some(bound(network.into(), prefix)?), rest)
            }
            IPV6_KIND => {
                let ([prefix], rest) = take(rest)?;
                let (network, rest) = take::<16>(rest)?;
                (Some(bound(network.into(), prefix)?), rest)
            }
            _ => return None,
        };
        let claims = Self {
            expires: u64::from_be_bytes(expires),
            route: RouteHash(route),
            binding,
            nonce: u64::from_be_bytes(nonce),
        };
        (version == [CLAIMS_VERSION] && rest.is_empty())
            .then_some((claims, u32::from_be_bytes(key)))
    }
}

/// Reads an encoded binding; `None` when host bits are set.
fn bound(network: IpAddr, prefix: u8) -> Option<Binding> {
    Binding::new(network, prefix).ok().filter(|binding| binding.network() == network)
}

fn take<const LENGTH: usize>(bytes: &[u8]) -> Option<([u8; LENGTH], &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((*head, rest))
}

/// The verified claims of a token, for a client at `peer` that asks for assistance on `route`.
/// `unix_now`: seconds since 1970.
///
/// # Errors
/// The reason of the refusal. No claim is read before the authentication code is verified.
pub fn verify(
    token: &[u8],
    keys: &Keys,
    unix_now: u64,
    peer: IpAddr,
    route: RouteHash,
) -> Result<Claims, TokenError> {
    let (bytes, tag) = token.split_last_chunk::<TAG_LENGTH>().ok_or(TokenError::Malformed)?;
    let (claims, key) = Claims::decode(bytes).ok_or(TokenError::Malformed)?;
    let mut named = keys.named(key).peekable();
    if named.peek().is_none() {
        return Err(TokenError::UnknownKey(key));
    }
    if !named.any(|key| key.made(bytes, tag)) {
        return Err(TokenError::Forged);
    }
    if unix_now > claims.expires {
        return Err(TokenError::Expired { seconds: unix_now - claims.expires });
    }
    if claims.route != route {
        return Err(TokenError::OtherRoute);
    }
    if claims.binding.is_some_and(|binding| !binding.contains(peer)) {
        return Err(TokenError::OtherNetwork);
    }
    Ok(claims)
}
