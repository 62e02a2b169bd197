//! Knowledge that no gateway and no client can have: the emulated last mile tells what it lost, and
//! why. What a trial gains by it is the bound of everything that measures the same.

use packrat_wire::number;
use std::collections::BTreeSet;
use std::time::Duration;

/// Answers of the last mile about the base connection's datagrams on their way to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Oracle {
    /// Which losses are the queue's: they are shown to the transport at once, and neither waited for
    /// nor repaired. All others are the medium's: they are waited for and repaired, whether a queue
    /// stands or not.
    Classification,
    /// The losses of the medium: each comes [`RECOVERY`] later, in order, if the client waits for it.
    Repair,
    /// Both.
    Both,
}

packrat_emulation::choices!(Oracle, "oracle", [
    Classification "classification",
    Repair "repair",
    Both "both",
]);

/// Delay of what [`Oracle::Repair`] recovers.
pub(crate) const RECOVERY: Duration = Duration::from_millis(5);

impl Oracle {
    pub(crate) fn classifies(self) -> bool {
        matches!(self, Self::Classification | Self::Both)
    }

    pub(crate) fn repairs(self) -> bool {
        matches!(self, Self::Repair | Self::Both)
    }
}

/// A datagram's fate, as a client's shim is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing: it arrives.
    Arrives,
    /// The medium has lost it: it counts if it is waited for.
    Recovered,
    /// The queue has lost it: no client need wait for it, and the transport does not get it.
    Shown,
}

/// Datagrams that a shim counts as arrived and a transport must not get.
#[derive(Debug, Default)]
pub(crate) struct Shown(BTreeSet<Vec<u8>>);

/// Last bytes of a datagram that tell it from others: the tag of its encryption.
const TAG: usize = 16;

fn tag(base: &[u8]) -> &[u8] {
    &base[base.len().saturating_sub(TAG)..]
}

impl Shown {
    /// A datagram, with its number, if it has one.
    pub(crate) fn insert(&mut self, datagram: &[u8]) {
        let base = number::split(datagram).map_or(datagram, |(_, base)| base);
        self.0.insert(tag(base).to_vec());
    }

    /// True if the transport may have this datagram, which has no number any more.
    pub(crate) fn admits(&mut self, base: &[u8]) -> bool {
        self.0.is_empty() || !self.0.remove(tag(base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_queue_has_lost_is_kept_from_the_transport_once() {
        let mut shown = Shown::default();
        shown.insert(&[7; 40]);
        assert!(shown.admits(&[8; 40]));
        assert!(!shown.admits(&[7; 40]));
        assert!(shown.admits(&[7; 40]), "its repair");
    }
}
