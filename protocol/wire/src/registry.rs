//! Ranges of the registries, and deliberately meaningless values (docs/PROTOCOL.md, section 15).
//!
//! A receiver that never receives an unknown value soon cannot handle one: devices on the path
//! learn the existing values, and the first new one breaks them (RFC 8701, RFC 9170). Therefore
//! both ends send values of the range that stays unassigned.

use core::ops::RangeInclusive;

use crate::control::PROTOCOL_VERSION;

/// Values of every eight-bit registry that are never assigned.
pub const GREASE_VALUES: RangeInclusive<u8> = 192..=223;

/// One session in this number has a sealed message of a type that is never assigned.
const SESSIONS_PER_GREASE_MESSAGE: u64 = 16;
/// Longest content of one.
const LONGEST_GREASE_BYTES: u64 = 15;

/// A value that is never assigned, chosen by `random`.
pub const fn grease(random: u64) -> u8 {
    *GREASE_VALUES.start() | (random % 32) as u8
}

/// The versions that this client lists in an attempt, best first: one that does not exist, and its
/// own.
pub const fn client_versions(nonce: u64) -> [u8; 2] {
    [grease(nonce >> 8), PROTOCOL_VERSION]
}

/// The versions that this gateway lists in a Refusal.
pub const fn gateway_versions(nonce: u64) -> [u8; 2] {
    [PROTOCOL_VERSION, grease(nonce >> 16)]
}

/// The version to use with a client that lists `versions`; `None` if no version is common.
pub fn choose_version(versions: &[u8]) -> Option<u8> {
    versions.contains(&PROTOCOL_VERSION).then_some(PROTOCOL_VERSION)
}

/// The plaintext of a message without meaning, for one session in sixteen. `random`: of the
/// session.
pub fn grease_message(random: u64) -> Option<Vec<u8>> {
    if !random.is_multiple_of(SESSIONS_PER_GREASE_MESSAGE) {
        return None;
    }
    let mut plaintext = vec![grease(random >> 4)];
    plaintext
        .extend((0..(random >> 9) % LONGEST_GREASE_BYTES).map(|at| (random >> (at % 8)) as u8));
    Some(plaintext)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::DecodeError;
    use crate::control::{Control, RefusalReason};
    use crate::message::Message;

    #[test]
    fn what_is_never_assigned_is_skipped() {
        for random in 0..4096 {
            assert!(GREASE_VALUES.contains(&grease(random)));
            assert_eq!(choose_version(&client_versions(random)), Some(PROTOCOL_VERSION));
            if let Some(plaintext) = grease_message(random) {
                let kind = plaintext[0];
                assert_eq!(Message::decode(&plaintext), Err(DecodeError::MessageType(kind)));
            }
        }
        assert_eq!(choose_version(&[200, 1, PROTOCOL_VERSION + 1]), None);
        assert_eq!((0..1600).filter(|random| grease_message(*random).is_some()).count(), 100);
        let mut refusal = Vec::new();
        let versions = gateway_versions(7);
        Control::Refusal { nonce: 7, reason: RefusalReason::Version, versions: &versions }
            .encode(&mut refusal);
        assert!(matches!(
            Control::decode(&refusal),
            Ok(Control::Refusal { versions, .. }) if choose_version(versions) == Some(PROTOCOL_VERSION)
        ));
    }
}
