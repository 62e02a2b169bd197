//! Four bytes that stand for one datagram of the base connection.
//!
//! Packrat26 (section 5.2.1) takes four bytes at a fixed offset of the UDP payload, which are not
//! random in QUIC's long headers, in coalesced packets and in small datagrams. Here the identifier
//! comes from the *end* of the datagram, which every AEAD transport fills with an authentication
//! tag: QUIC (RFC 9001 section 5.3), SRTP (RFC 7714), DTLS 1.3, WireGuard. Transports without a tag
//! use a hash of the whole payload. Either is mixed with a key of the session, so that no outsider
//! can make two datagrams collide.

use packrat_eack::Identifier;
use xxhash_rust::xxh3::xxh3_128;
use zeroize::ZeroizeOnDrop;

use crate::codec::DecodeError;
use crate::scone;

/// The source of a datagram's entropy; negotiated in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum IdentifierScheme {
    /// The last 16 bytes (the AEAD tag), and the length.
    #[default]
    Trailer = 1,
    /// A hash of all bytes: for transports whose datagrams do not end in random bytes.
    Payload = 2,
}

impl IdentifierScheme {
    /// Reads a scheme from the wire.
    ///
    /// # Errors
    /// A scheme that is not in the registry.
    pub fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        match byte {
            1 => Ok(Self::Trailer),
            2 => Ok(Self::Payload),
            _ => Err(DecodeError::Field("identifier scheme")),
        }
    }
}

/// The part of a datagram that is kept before the session's key is known: 24 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Material {
    words: [u64; 2],
    length: u64,
}

impl Material {
    /// Takes the entropy out of a datagram, without the SCONE packet that the path may rewrite.
    #[inline]
    pub fn of(scheme: IdentifierScheme, datagram: &[u8]) -> Self {
        let datagram = scone::behind(datagram);
        if scheme == IdentifierScheme::Trailer
            && let Some(tail) = datagram.last_chunk::<16>()
        {
            let tail = u128::from_le_bytes(*tail);
            let words = [tail as u64, (tail >> 64) as u64];
            // A datagram that ends in zeros was padded outside its packets (RFC 9000 section 12.2
            // lets a receiver ignore such bytes): its end does not identify it, so both ends hash
            // the whole datagram.
            if words[1] != 0 {
                return Self { words, length: datagram.len() as u64 };
            }
        }
        Self::of_all(datagram)
    }

    /// Some bits of the material, mixed: they differ for datagrams of one identifier, all but once
    /// in 2^32.
    #[inline]
    pub fn check(&self) -> u32 {
        let [first, second] = self.words;
        let mixed = folded_multiply(first ^ 0x9e37_79b9_7f4a_7c15, second.rotate_left(32));
        (mixed ^ self.length ^ (mixed >> 32)) as u32
    }

    /// Material of a datagram without a tag at its end; kept out of the hot path of datagrams with
    /// one.
    #[cold]
    fn of_all(datagram: &[u8]) -> Self {
        let hash = xxh3_128(datagram);
        Self { words: [hash as u64, (hash >> 64) as u64], length: datagram.len() as u64 }
    }
}

/// The session's key of the identifier mix.
#[derive(ZeroizeOnDrop)]
pub struct IdentifierKey([u64; 3]);

impl core::fmt::Debug for IdentifierKey {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("IdentifierKey(..)")
    }
}

impl IdentifierKey {
    /// Creates a key from 24 bytes of key material.
    pub fn new(words: [u64; 3]) -> Self {
        Self(words)
    }

    /// The identifier of a datagram.
    #[inline]
    pub fn identify(&self, scheme: IdentifierScheme, datagram: &[u8]) -> Identifier {
        self.identify_material(&Material::of(scheme, datagram))
    }

    /// The identifier, from material that was kept earlier.
    #[inline]
    pub fn identify_material(&self, material: &Material) -> Identifier {
        let [first, second, third] = self.0;
        let mixed = folded_multiply(material.words[0] ^ first, material.words[1] ^ second);
        Identifier::from_hash(folded_multiply(
            mixed ^ third,
            material.length ^ 0x9e37_79b9_7f4a_7c15,
        ))
    }
}

/// High and low half of the 128-bit product, xored: two of them mix every input bit into every
/// output bit.
#[inline]
pub(crate) fn folded_multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn key() -> IdentifierKey {
        IdentifierKey::new([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, 0x0f1e_2d3c_4b5a_6978])
    }

    #[test]
    fn every_length_has_an_identifier() {
        let datagram = [0xa5u8; 300];
        let mut seen = HashSet::new();
        for length in 0..=300 {
            seen.insert(key().identify(IdentifierScheme::Trailer, &datagram[..length]));
            seen.insert(key().identify(IdentifierScheme::Payload, &datagram[..length]));
        }
        // Lengths below 16 bytes are hashed whole by both schemes, so those 16 coincide.
        assert_eq!(seen.len(), 301 * 2 - 16);
    }

    #[test]
    fn padding_behind_the_packets_does_not_make_datagrams_equal() {
        let mut first = [0u8; 1200];
        let mut second = [0u8; 1200];
        first[40] = 1;
        second[40] = 2;
        let scheme = IdentifierScheme::Trailer;
        assert_ne!(key().identify(scheme, &first), key().identify(scheme, &second));
    }

    #[test]
    fn another_key_gives_another_identifier() {
        let datagram = [7u8; 64];
        let other = IdentifierKey::new([1, 2, 3]);
        let scheme = IdentifierScheme::Trailer;
        assert_ne!(key().identify(scheme, &datagram), other.identify(scheme, &datagram));
    }

    #[test]
    fn collisions_are_as_rare_as_32_bits_allow() {
        // 60,000 datagrams with sequential trailers, the worst case for a weak mix: 0.42 pairs are
        // expected to collide (n^2 / 2^33); 6 or more would happen by chance once in 10^6
        // runs.
        let mut seen = HashSet::new();
        let mut collisions = 0;
        for number in 0..60_000u64 {
            let mut datagram = [1u8; 32];
            datagram[16..24].copy_from_slice(&number.to_le_bytes());
            collisions +=
                usize::from(!seen.insert(key().identify(IdentifierScheme::Trailer, &datagram)));
        }
        assert!(collisions < 6, "{collisions}");
    }

    #[test]
    fn each_bit_of_the_trailer_counts() {
        let base = [0x5au8; 64];
        let original = key().identify(IdentifierScheme::Trailer, &base);
        for bit in 0..128 {
            let mut bent = base;
            bent[48 + bit / 8] ^= 1 << (bit % 8);
            assert_ne!(key().identify(IdentifierScheme::Trailer, &bent), original, "bit {bit}");
        }
    }

    #[test]
    fn a_key_is_overwritten_when_it_is_dropped() {
        fn is_wiped<T: ZeroizeOnDrop>() {}
        is_wiped::<IdentifierKey>();
    }
}
