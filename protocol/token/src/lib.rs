//! Assist tokens: the permission to be assisted, issued over TLS and verified offline.
//!
//! The issuer (the token endpoint on the gateway's HTTPS listener) and the verifier (the gateway's
//! UDP filter) share only secrets. A token is a short text of claims with a truncated HMAC-SHA256
//! (RFC 2104, RFC 6234) behind it:
//!
//! ```text
//!  bytes   what
//!      1   version of this layout: 1
//!      4   identifier of the key
//!      8   expiry, seconds since 1970 (big endian, as everything here)
//!      8   route: the first 8 bytes of a SHA-256 of its name
//!      8   nonce: makes every token another one
//!      1   binding: 0 none; 4 or 6: the version of the IP network that follows
//!   0, 5   IPv4: length of the prefix, 4 bytes of network (host bits are 0)
//!  or 17   IPv6: length of the prefix, 16 bytes of network (host bits are 0)
//!     16   the first 16 bytes of HMAC-SHA256(key, "packrat assist token" and all of the above)
//! ```
//!
//! A token therefore has 46 to 63 bytes: it fits the padded Init of the handshake, which must not
//! grow. In JSON and in URLs it is base64url without padding (RFC 4648, section 5).
//!
//! A token is not an identity. It travels in the clear in the first handshake message, so an
//! attacker who reads the path can also use it until it expires; a [`Binding`] to the client's
//! network limits that. It only permits the gateway's assistance.
//!
//! Keys rotate: the verifier knows two at a time ([`Keys`]), so that tokens of the previous key are
//! valid until they expire.
//!
//! Issuer and gateway limit rates with the same [`token_bucket`], whose tokens are another thing.
//!
//! ```
//! use packrat_assist_token::{Claims, Key, Keys, RouteHash, verify};
//!
//! let keys = Keys { current: Key::new(7, [1; 32]), previous: None };
//! let route = RouteHash::of("web");
//! let claims = Claims { expires: 1_700_000_300, route, binding: None, nonce: 42 };
//! let token = keys.current.issue(&claims);
//! let client = "192.0.2.1".parse().unwrap();
//! assert_eq!(verify(&token, &keys, 1_700_000_000, client, route), Ok(claims));
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod binding;
mod claims;
mod key;
mod text;
pub mod token_bucket;

pub use binding::{Binding, BindingError};
pub use claims::{Claims, MAXIMUM_LENGTH, RouteHash, TokenError, verify};
pub use key::{Key, KeyError, Keys};
pub use text::{from_text, to_text};

/// Path at which a gateway's HTTPS listener issues tokens (a well-known URI, RFC 8615).
pub const WELL_KNOWN_PATH: &str = "/.well-known/packrat";
