//! The verdict on a run: the broken promise, or the distance to one.

use std::time::Duration;

/// The promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oracle {
    /// An unproven address gets no more bytes than came from there, and only from the base
    /// connection of its owner.
    Addresses,
    /// Work is charged as work.
    Work,
    /// An honest session's repairs are as without the attackers, a new client is answered, and each
    /// is in the same arm of a comparison.
    Neighbours,
    /// No datagram is delivered later than without Packrat and the longest hold.
    Delay,
}

/// A broken promise.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{oracle:?}: {text}")]
pub struct Violation {
    /// The oracle of the broken promise.
    pub oracle: Oracle,
    text: String,
}

/// The end of a step: all promises are kept, or one is broken.
pub(super) type Kept = Result<(), Violation>;

impl Oracle {
    /// The verdict on its promise; `broken` reports the cause.
    pub(super) fn is_kept(self, is_kept: bool, broken: impl FnOnce() -> String) -> Kept {
        if is_kept { Ok(()) } else { Err(Violation { oracle: self, text: broken() }) }
    }
}

/// Measures of how near runs came to breaking a promise.
#[derive(Debug, Clone, Copy, Default)]
pub struct Margins {
    /// Bytes sent to an unproven address, for each byte that came from there.
    pub amplification: f64,
    /// Operations beyond the cost of forwarding and opening, for each unit charged.
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
    /// Bytes sent to an unproven address, including a copy, for each byte that came from there.
    pub copied: f64,
    /// Symbols that attackers were sent.
    pub symbols: u64,
    /// Copies of servers' answers to questions in others' names.
    pub copies: u64,
    /// Datagrams that honest clients have recovered from symbols.
    pub recovered: u64,
    /// Attackers' questions that were refused for comparison.
    pub held_out: u64,
}

impl Margins {
    /// The gateway answers no address with more than came from there before it is validated.
    pub const MOST_AMPLIFICATION: u64 = 1;
    /// Bytes to such an address for each byte from there, where copies are among them.
    pub const MOST_WITH_COPIES: u64 = 3;
    /// Operations per unit charged.
    pub const MOST_WORK: u64 = 2;
    /// Operations that a datagram may cause without a charge: forwarding it, looking for its
    /// session, a failed attempt to open it.
    pub const FREE_WORK: u64 = 4_000;
    /// Operations that passing time may cause: it needs no datagram, and happens again and again.
    pub const FREE_WORK_OF_TIME: u64 = 1_000;
    /// Operations that each datagram of a server costs later, once: an eACK that knows of it has it
    /// inserted into the sketch. It belongs to forwarding, and is not charged to the eACK.
    pub const INSERTION: u64 = 129;
    /// Operations of an insertion, or a removal, that vectors do in the time of one.
    pub const AT_ONCE: u64 = 3;
    /// Datagrams that may be inserted in one step.
    pub const MOST_INSERTED: u64 = 4096;
    /// Share of the repairs that may be late or missing.
    pub const MOST_REPAIRS_LOST: f64 = 0.0;
    /// Lateness from which a repair counts as lost: attackers may cost the client one eACK, not two.
    pub const LATE: Duration = Duration::from_millis(30);
    /// Lateness from which a repair counts as lost in a session in whose client's name another
    /// party makes the server answer: the client lacks more datagrams than it expects, and its
    /// eACKs double in length until they suffice.
    pub const LATE_AMID_OTHERS: Duration = Duration::from_millis(100);
    /// Time for which forged datagrams without a number cost a client repairs that believes numbers, and
    /// how often.
    pub const LONGEST_DOUBT: Duration = Duration::from_millis(600);
    /// See there.
    pub const MOST_DOUBTS: usize = 2;
    /// Time from the beginning of a fast flow until the repairs are as without a forged question: its
    /// session begins a round trip later.
    pub const LATE_BEGIN: Duration = Duration::from_millis(150);

    /// The longest hold that the honest clients have configured.
    pub const LONGEST_HOLD: Duration = Duration::from_millis(300);

    pub(super) fn note_amplification(&mut self, sent: u64, received: u64) {
        self.amplification = self.amplification.max(sent as f64 / received.max(1) as f64);
    }

    /// Takes over the worse figures of another run.
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
        self.copied = self.copied.max(other.copied);
        self.symbols += other.symbols;
        self.copies += other.copies;
        self.recovered += other.recovered;
        self.held_out += other.held_out;
    }
}
