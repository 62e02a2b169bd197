//! Datagrams as they leave their senders.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A datagram as it left its sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Departure {
    pub(crate) identity: u64,
    pub(crate) bytes: usize,
    /// True if it is exactly one 1-RTT packet (RFC 9000, section 17.3).
    pub(crate) short_header: bool,
}

impl Departure {
    pub(super) fn of(payload: &[u8]) -> Self {
        let short_header = payload.first().is_some_and(|first| first & 0x80 == 0);
        Self { identity: identity(payload), bytes: payload.len(), short_header }
    }
}

/// Identifies datagrams by their content.
pub(super) fn identity(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    hasher.finish()
}
