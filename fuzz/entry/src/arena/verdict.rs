//! The verdict on a run: what was broken, or how near it came.

use std::time::Duration;

/// The promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oracle {
    /// An address that has proved nothing gets no more than came from there, and the base connection
    /// of its owner alone.
    Addresses,
    /// Work is charged as work.
    Work,
    /// An honest session's repairs are what they are without the attackers, and a new client is
    /// answered.
    Neighbours,
    /// No datagram is delivered later than without Packrat and the longest hold.
    Delay,
}

/// A broken promise.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{oracle:?}: {text}")]
pub struct Violation {
    /// Which one.
    pub oracle: Oracle,
    text: String,
}

impl Violation {
    pub(super) fn new(oracle: Oracle, text: String) -> Self {
        Self { oracle, text }
    }
}

/// Measures of how near runs came to breaking a promise.
#[derive(Debug, Clone, Copy, Default)]
pub struct Margins {
    /// Bytes sent to an address that had proved nothing, for each byte that came from there.
    pub amplification: f64,
    /// Operations that were done beyond what forwarding and opening take, for each unit charged.
    pub work: f64,
    /// Datagrams that one step has inserted into sketches, at most.
    pub inserted: u64,
    /// Share of the repairs without attackers that came later than tolerated, or not at all.
    pub repairs_lost: f64,
    /// Longest delay of a repair against the same one without attackers.
    pub repair_delay: Duration,
    /// Longest time for which a datagram was kept from the transport.
    pub kept: Duration,
    /// Datagrams that attackers have sent, and units that they were charged.
    pub attacks: u64,
    /// Repairs that were compared.
    pub repairs: u64,
    /// Sessions that attackers have begun, and moves to addresses of their own.
    pub sessions: u64,
}

impl Margins {
    /// The gateway answers no address with more than came from there before it is validated.
    pub const MOST_AMPLIFICATION: u64 = 1;
    /// Operations per unit charged.
    pub const MOST_WORK: u64 = 2;
    /// Operations that a datagram may cause without a charge: forwarding it, looking for its
    /// session, opening it in vain.
    pub const FREE_WORK: u64 = 4_000;
    /// Operations that each datagram of a server costs later, once: an eACK that knows of it has it
    /// inserted into the sketch. It belongs to forwarding, and is not charged to the eACK.
    pub const INSERTION: u64 = 129;
    /// Datagrams for which that may still be owed, to attackers and to all others.
    pub const MOST_INSERTIONS: u64 = 256;
    /// Share of the repairs that may be late or missing.
    pub const MOST_REPAIRS_LOST: f64 = 0.0;
    /// Lateness from which a repair counts as lost: attackers may cost the client one eACK, not two.
    pub const LATE: Duration = Duration::from_millis(30);

    /// The longest hold that the honest clients have configured.
    pub const LONGEST_HOLD: Duration = Duration::from_millis(300);

    pub(super) fn note_amplification(&mut self, sent: u64, received: u64) {
        self.amplification = self.amplification.max(sent as f64 / received.max(1) as f64);
    }

    /// Takes over what is worse in another run.
    pub fn add(&mut self, other: &Self) {
        self.amplification = self.amplification.max(other.amplification);
        self.work = self.work.max(other.work);
        self.inserted = self.inserted.max(other.inserted);
        self.repairs_lost = self.repairs_lost.max(other.repairs_lost);
        self.repair_delay = self.repair_delay.max(other.repair_delay);
        self.kept = self.kept.max(other.kept);
        self.attacks += other.attacks;
        self.repairs += other.repairs;
        self.sessions += other.sessions;
    }
}
