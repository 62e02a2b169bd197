//! Knowledge that no gateway and no client can have: the emulated last mile reports the lost
//! datagrams, and whether the queue or the medium lost them. A trial's gain by it is the upper
//! bound for every method that estimates the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use packrat_wire::estimate::Timestamp;
use packrat_wire::number;

/// Answers of the last mile about the base connection's datagrams on their way to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Oracle {
    /// The losses of the queue: they are shown to the transport at once, and neither waited for nor repaired.
    /// All other losses are the medium's: they are waited for and repaired, whether a queue stands or not.
    Classification,
    /// The losses of the medium: each comes [`RECOVERY_DELAY`] later, in order, if the client waits for it.
    Repair,
    /// Both.
    Both,
}

packrat_emulation::choices!(Oracle, "oracle", [
    Classification "classification",
    Repair "repair",
    Both "both",
]);

/// Delay of the datagrams that [`Oracle::Repair`] recovers.
pub(crate) const RECOVERY_DELAY: Duration = Duration::from_millis(5);

impl Oracle {
    pub(crate) fn classifies(self) -> bool {
        matches!(self, Self::Classification | Self::Both)
    }

    pub(crate) fn repairs(self) -> bool {
        matches!(self, Self::Repair | Self::Both)
    }
}

/// A datagram's fate, as reported to a client's shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The datagram arrives.
    Arrives,
    /// The medium has lost the datagram: it counts as recovered if the client waits for it.
    Recovered,
    /// The queue has lost the datagram: the client does not wait for it, and the transport does not
    /// receive it.
    Shown,
}

/// Datagrams that a shim counts as arrived and a transport must not get.
#[derive(Debug, Default)]
pub(crate) struct Shown(BTreeSet<Vec<u8>>);

/// Datagrams on the last mile towards one client, in the order in which they were offered. A client learns of
/// a loss after the arrivals of all datagrams that were offered before it, whenever the link decides on them:
/// a full queue drops a datagram while earlier ones still wait.
#[derive(Debug)]
pub(crate) struct Order<T> {
    next: u64,
    undecided: BTreeSet<u64>,
    untold: BTreeMap<u64, T>,
    /// The latest arrival, past or to come.
    latest: Option<Timestamp>,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self { next: 0, undecided: BTreeSet::new(), untold: BTreeMap::new(), latest: None }
    }
}

impl<T> Order<T> {
    /// Records a datagram that is offered, and returns its place.
    pub(crate) fn offer(&mut self) -> u64 {
        let place = self.next;
        self.undecided.insert(place);
        self.next += 1;
        place
    }

    /// Records the time at which a datagram arrives.
    pub(crate) fn on_arrival(&mut self, place: u64, at: Timestamp) {
        self.undecided.remove(&place);
        self.latest = self.latest.max(Some(at));
    }

    /// Records a loss. `told`: the report to its client, if there is one.
    pub(crate) fn on_loss(&mut self, place: u64, told: Option<T>) {
        self.undecided.remove(&place);
        self.untold.extend(told.map(|told| (place, told)));
    }

    /// Returns the next loss to report, if all datagrams offered before it have been decided on, and the
    /// latest arrival of these. Losses before the first arrival are not reported.
    pub(crate) fn next_told(&mut self) -> Option<(Timestamp, T)> {
        while let Some(first) = self.untold.first_entry()
            && self.undecided.first().is_none_or(|undecided| first.key() < undecided)
        {
            let told = first.remove();
            if let Some(at) = self.latest {
                return Some((at, told));
            }
        }
        None
    }
}

/// Number of last bytes of a datagram that identify it: the tag of its encryption.
const TAG_BYTES: usize = 16;

fn tag(base: &[u8]) -> &[u8] {
    &base[base.len().saturating_sub(TAG_BYTES)..]
}

impl Shown {
    /// Adds a datagram, with its number, if it has one.
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
    fn a_loss_is_told_behind_what_was_offered_before_it() {
        let mut order = Order::default();
        let places: Vec<u64> = (0..5).map(|_| order.offer()).collect();
        order.on_arrival(places[0], Timestamp::from_millis(10));
        // The queue is full while three datagrams still wait.
        order.on_loss(places[4], Some("queue"));
        assert_eq!(order.next_told(), None);
        order.on_loss(places[1], Some("medium"));
        assert_eq!(order.next_told(), Some((Timestamp::from_millis(10), "medium")));
        order.on_arrival(places[2], Timestamp::from_millis(30));
        order.on_loss(places[3], None);
        assert_eq!(order.next_told(), Some((Timestamp::from_millis(30), "queue")));
        assert_eq!(order.next_told(), None);
    }

    #[test]
    fn a_loss_before_the_first_arrival_is_not_told() {
        let mut order = Order::default();
        let (lost, other) = (order.offer(), order.offer());
        order.on_loss(lost, Some(()));
        assert_eq!(order.next_told(), None);
        order.on_arrival(other, Timestamp::ZERO);
        assert_eq!(order.next_told(), None);
    }

    #[test]
    fn what_the_queue_has_lost_is_kept_from_the_transport_once() {
        let mut shown = Shown::default();
        shown.insert(&[7; 40]);
        assert!(shown.admits(&[8; 40]));
        assert!(!shown.admits(&[7; 40]));
        assert!(shown.admits(&[7; 40]), "its repair");
    }
}
