//! A bundle: short datagrams of the base connection that travel as one, with a message of the client's
//! behind them (docs/PROTOCOL.md, section 11, "Bundles").
//!
//! ```text
//!   0        1        2        3        4              5        6
//!  +--------+--------+--------+--------+-----+--------+--------+----------+------------------+---------
//!  |  0x0B  |  'P'   |  'k'   |  'r'   | ver |   10   | count  | lengths  | base datagrams   | message
//!  +--------+--------+--------+--------+-----+--------+--------+----------+------------------+---------
//! ```
//!
//! One byte for each length. The message is a whole control datagram, or empty. A bundle is not
//! sealed: its contents carry the same authority as they would alone, and a gateway without the
//! session also passes them on.

use crate::control::{FIRST_BYTE, MAGIC, MAXIMUM_LENGTH, PROTOCOL_VERSION, is_control};

/// Control type of bundles.
const BUNDLE_TYPE: u8 = 10;
/// Bytes in front of the lengths.
const HEADER_BYTES: usize = 6;
/// Largest number of base datagrams in a bundle, and the length of each: at these limits, a forged
/// bundle makes the gateway send at most 2.7 times its own bytes, headers of IPv6 included.
pub const MAXIMUM_BUNDLED: usize = 16;
/// See [`MAXIMUM_BUNDLED`]. No packet of QUIC's with a short header is shorter than the least (RFC 9001,
/// section 5.4.2).
pub const BUNDLED_LENGTHS: core::ops::RangeInclusive<usize> = 21..=255;

/// A bundle that has been taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bundle<'a> {
    lengths: &'a [u8],
    datagrams: &'a [u8],
    /// The client's control datagram behind them; may be empty.
    pub message: &'a [u8],
}

impl<'a> Bundle<'a> {
    /// The base datagrams, in the order in which the client's transport sent them.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.datagrams;
        self.lengths.iter().map_while(move |&length| {
            let (datagram, behind) = rest.split_at_checked(length.into())?;
            rest = behind;
            Some(datagram)
        })
    }
}

/// True for a bundle, well-formed or not.
#[inline]
pub fn is_bundle(datagram: &[u8]) -> bool {
    is_control(datagram) && datagram[4] == PROTOCOL_VERSION << 4 | BUNDLE_TYPE
}

/// Takes a bundle apart. `None` for any other datagram, and for a malformed one: too many
/// datagrams, one that is too short, one of Packrat's own among the base connection's, or bytes
/// behind them that are not a message.
pub fn split(datagram: &[u8]) -> Option<Bundle<'_>> {
    if !is_bundle(datagram) {
        return None;
    }
    let (&count, rest) = datagram.get(HEADER_BYTES - 1..)?.split_first()?;
    let count = usize::from(count);
    if count == 0 || count > MAXIMUM_BUNDLED {
        return None;
    }
    let (lengths, rest) = rest.split_at_checked(count)?;
    let bytes = lengths.iter().map(|&length| usize::from(length)).sum();
    let (datagrams, message) = rest.split_at_checked(bytes)?;
    let bundle = Bundle { lengths, datagrams, message };
    let is_sound = bundle.datagrams().all(fits)
        && (message.is_empty() || is_control(message))
        && !is_bundle(message)
        && crate::number::split(message).is_none();
    is_sound.then_some(bundle)
}

fn fits(base: &[u8]) -> bool {
    BUNDLED_LENGTHS.contains(&base.len()) && !is_control(base)
}

/// Appends the bundle of `datagrams` and `message` to `out`. Returns false if it is impossible: no
/// or too many datagrams, one that is too short or too long or Packrat's own, or more bytes than a
/// control datagram may have.
pub fn join(datagrams: &[impl AsRef<[u8]>], message: &[u8], out: &mut Vec<u8>) -> bool {
    let bytes: usize = datagrams.iter().map(|base| base.as_ref().len()).sum();
    if !(1..=MAXIMUM_BUNDLED).contains(&datagrams.len())
        || !datagrams.iter().all(|base| fits(base.as_ref()))
        || HEADER_BYTES + datagrams.len() + bytes + message.len() > MAXIMUM_LENGTH
    {
        return false;
    }
    let [p, k, r] = MAGIC;
    out.extend_from_slice(&[
        FIRST_BYTE,
        p,
        k,
        r,
        PROTOCOL_VERSION << 4 | BUNDLE_TYPE,
        datagrams.len() as u8,
    ]);
    out.extend(datagrams.iter().map(|base| base.as_ref().len() as u8));
    datagrams.iter().for_each(|base| out.extend_from_slice(base.as_ref()));
    out.extend_from_slice(message);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;
    use proptest::prelude::*;

    const BASE: &[u8] = &[0x41; 21];

    fn joined(datagrams: &[&[u8]], message: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(join(datagrams, message, &mut out));
        out
    }

    #[test]
    fn without_an_agreement_it_is_a_type_that_nobody_knows() {
        let datagram = joined(&[BASE], b"");
        assert!(is_control(&datagram) && Control::decode(&datagram).is_err());
        assert!(crate::number::split(&datagram).is_none());
    }

    /// A bundle that would nest without end, or pass for a message, is refused.
    #[test]
    fn nested_bundles_and_messages_in_bundles_are_refused() {
        let message = b"\x0bPkr\x28 sealed";
        let inner = joined(&[BASE], message);
        let mut out = Vec::new();
        assert!(!join(&[&inner[..]], b"", &mut out), "one in another");
        assert!(!join(&[&BASE[1..]], b"", &mut out) && !join(&[[0; 256]], b"", &mut out));
        assert!(!join(&[[1; 30]; 17], b"", &mut out) && !join(&[BASE; 0], message, &mut out));
        assert!(!join(&[[1; 200]; 6], b"", &mut out), "longer than every path carries");
        assert!(out.is_empty());
        for behind in [&inner[..], b"\x0bPkr\x29\x01\x02\x03base", b"no message"] {
            assert_eq!(split(&joined(&[BASE], behind)), None, "{behind:?}");
        }
        let mut nested = joined(&[BASE], b"");
        nested[7..][..12].copy_from_slice(message);
        assert_eq!(split(&nested), None, "a message among the base connection's");
        for (count, lengths) in [(0, 0), (17, 1), (1, 0), (1, 5)] {
            let mut other = joined(&[BASE], b"");
            (other[5], other[6]) = (count, lengths);
            assert_eq!(split(&other), None, "{count} of {lengths}");
        }
    }

    proptest! {
        #[test]
        fn what_is_joined_comes_apart(
            datagrams in proptest::collection::vec(proptest::collection::vec(0x40..0x80u8, 21..70), 1..=16),
            with_message: bool,
        ) {
            let message: &[u8] = if with_message { b"\x0bPkr\x28 sealed" } else { b"" };
            let mut out = Vec::new();
            prop_assert!(join(&datagrams, message, &mut out));
            let bundle = split(&out).unwrap();
            prop_assert_eq!(bundle.message, message);
            prop_assert!(bundle.datagrams().eq(datagrams.iter().map(Vec::as_slice)));
        }

        #[test]
        fn any_bytes_come_apart_without_anything_left_over(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let datagram = [&joined(&[BASE], b"")[..5], &bytes].concat();
            if let Some(bundle) = split(&datagram) {
                let length: usize = bundle.datagrams().map(<[u8]>::len).sum();
                let count = bundle.datagrams().count();
                prop_assert_eq!(HEADER_BYTES + count + length + bundle.message.len(), datagram.len());
                prop_assert!(count <= MAXIMUM_BUNDLED);
            }
        }
    }
}
