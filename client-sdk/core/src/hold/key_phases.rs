//! Which packets came under which keys (RFC 9001, section 6).
//!
//! ```text
//!              a packet of new keys, the highest so far
//!   one phase -----------------------------------------> newest phase, from this number on
//!                                                           |        ^
//!               a late packet of the old keys is decrypted  |        | one of the new keys
//!                                                           v        |
//!                                                  back in the old one: nothing of the
//!                                                  newest phase may be acknowledged
//! ```
//!
//! A late packet of the old keys makes some stacks seal with the old keys again until the next
//! packet of the new ones arrives. An acknowledgement of a packet of the new keys that is sealed
//! with the old ones is a protocol violation, for which the peer closes the connection (section
//! 6.2), so that such packets are not revealed meanwhile.

/// Which packets came under which keys.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeyPhases {
    /// The phase of the packet decrypted last, which is the one that the transport seals with.
    current: bool,
    /// The phase of the packet with the highest number.
    newest: bool,
    /// The lowest packet number known to have come in the newest phase, once there was an update.
    newest_from: Option<u64>,
}

impl KeyPhases {
    /// The transport uses the keys of this phase now.
    pub(super) fn on_key_phase(&mut self, phase: bool) {
        self.current = phase;
    }

    /// A packet was decrypted in the current phase. `highest`: it has the highest number so far.
    pub(super) fn on_packet_number(&mut self, number: u64, highest: bool) {
        if highest && self.current != self.newest {
            self.newest = self.current;
            self.newest_from = Some(number);
        } else if self.current == self.newest {
            self.newest_from = self.newest_from.map(|from| from.min(number));
        }
    }

    /// The highest packet number that may be acknowledged in a packet that is sealed now.
    pub(super) fn limit(&self) -> u64 {
        match self.newest_from {
            Some(from) if self.current != self.newest => from.saturating_sub(1),
            _ => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_new_keys_is_acknowledged_under_old_ones() {
        let mut keys = KeyPhases::default();
        keys.on_packet_number(5, true);
        assert_eq!(keys.limit(), u64::MAX);
        keys.on_key_phase(true);
        keys.on_packet_number(9, true);
        // A packet of the new keys that was overtaken.
        keys.on_packet_number(8, false);
        assert_eq!(keys.limit(), u64::MAX);
        keys.on_key_phase(false);
        keys.on_packet_number(6, false);
        assert_eq!(keys.limit(), 7);
        keys.on_key_phase(true);
        assert_eq!(keys.limit(), u64::MAX);
    }
}
