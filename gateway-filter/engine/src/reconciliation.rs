//! Rules of reconciliation that sessions and subscribers of a stream share: the epoch of an eACK,
//! the beginning of an epoch's set, the assumptions that a decode may make, and the consequence
//! when all of them fail.
//!
//! ```text
//!   eACK --- epoch? --- stale? --- anchor ---> decode under an assumption ---> missing, arrived
//!             |                                   | all fail
//!             v                                   v
//!        Current, Entered, Other          a longer prefix, then a Reset
//! ```
//!
//! The rules are functions of small values. The caller stores the state: a session has a sketch of
//! its own, a subscriber only the sums that its set lacks of the stream's.

use core::time::Duration;

use packrat_eack::{Encoding, Identifier, SketchLimits};
use packrat_wire::estimate::RoundTrip;
use packrat_wire::message::Eack;
use packrat_wire::{Epoch, MessageCounter};

use crate::history::History;

/// Failed decodes of the longest prefix in a row before a Reset.
const FAILURES_BEFORE_RESET: u8 = 2;
/// Time beyond a round trip after which a selective client's eACK must know of a datagram that has
/// arrived.
const OVERDUE_MARGIN: Duration = Duration::from_millis(1);

/// Epoch of an eACK, compared with the gateway's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EpochOf {
    /// The gateway's epoch.
    Current,
    /// A newer one: the client has begun it.
    Newer,
    /// An older one, or one that a Reset is to end.
    Other,
}

/// Compares the epoch of an eACK with the gateway's. `resetting`: a Reset is not answered yet.
pub(crate) fn epoch_of(eack: Epoch, own: Epoch, resetting: bool) -> EpochOf {
    if eack.is_newer_than(own) {
        EpochOf::Newer
    } else if eack == own && !resetting {
        EpochOf::Current
    } else {
        EpochOf::Other
    }
}

/// True if an eACK is older than the newest one: sets only grow, so its content is known, or was
/// wrong.
pub(crate) fn is_stale(counter: MessageCounter, newest: Option<MessageCounter>) -> bool {
    newest.is_some_and(|newest| counter <= newest)
}

/// Sequence number of the first datagram in the client's set of this epoch: the datagram behind its
/// anchor. `joined`: first datagram of the session's first epoch, if the client has no anchor.
pub(crate) fn epoch_start(eack: &Eack<'_>, epoch: Epoch, joined: u64, history: &History) -> u64 {
    let known = |identifier: Option<Identifier>| {
        identifier.and_then(|identifier| history.sequence_of(identifier))
    };
    match known(eack.anchor) {
        Some(anchor) => anchor + 1,
        // The client had no datagram before, or this gateway does not remember it: the session's
        // first epoch begins with its first datagram, a later one with the client's newest.
        None if epoch == Epoch::FIRST => joined.max(history.first()),
        None => known(eack.newest).unwrap_or(history.next()),
    }
}

/// Age of the newest datagram that a selective client's eACK must have known of when it arrived.
pub(crate) fn known_age(round_trip: &RoundTrip) -> Option<Duration> {
    Some(round_trip.smoothed()? + round_trip.variation() + OVERDUE_MARGIN)
}

/// Tries assumptions about missing datagrams, one after the other, until `decode` succeeds with
/// one. An assumption equal to an earlier one is left out. `decode` gets the number of the attempt.
///
/// A sketch decodes a difference up to its size. When more datagrams are missing, few of them have
/// arrived, and *these* can be decoded: the datagrams assumed missing are taken out of the
/// gateway's set, so that they are in neither; the arrived ones among them come out as only there.
pub(crate) fn decode_assuming<T>(
    assumptions: &[&[Identifier]],
    mut decode: impl FnMut(usize, &[Identifier]) -> Option<T>,
) -> Option<T> {
    assumptions.iter().enumerate().find_map(|(attempt, assumed)| {
        let repeats = assumptions[..attempt].contains(assumed);
        if repeats { None } else { decode(attempt, assumed) }
    })
}

/// Consequence of a failed decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// The client is asked for this encoding.
    Ask(Encoding),
    /// A new epoch must begin.
    Reset,
}

/// Decides the consequence of a failed decode of an eACK with this encoding. `failures` counts
/// failures of the longest encoding in a row: several eACKs may be under way when the first of them
/// fails.
pub(crate) fn after_failure(
    encoding: Encoding,
    limits: &SketchLimits,
    failures: &mut u8,
) -> AfterFailure {
    let longer = limits.longer(encoding);
    *failures = failures.saturating_add(u8::from(longer.is_none()));
    if *failures < FAILURES_BEFORE_RESET {
        AfterFailure::Ask(longer.unwrap_or(encoding))
    } else {
        AfterFailure::Reset
    }
}

#[cfg(test)]
mod tests {
    use packrat_wire::estimate::Timestamp;

    use super::*;
    use crate::history::SETTLED_ENTRIES;

    fn identifier(number: u64) -> Identifier {
        Identifier::from_hash((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn history(datagrams: u64) -> History {
        let mut history = History::new(1 << 20, SETTLED_ENTRIES);
        for number in 0..datagrams {
            history.make_room(10, |_| true);
            history.push(identifier(number), &[0; 10], Timestamp::ZERO);
        }
        history
    }

    fn eack(anchor: Option<Identifier>, newest: Option<Identifier>) -> Eack<'static> {
        Eack {
            epoch: Epoch::FIRST,
            newest,
            newest_age: Duration::ZERO,
            holes: 0,
            echo: false,
            anchor,
            encoding: Encoding::PowerSums { count: 1 },
            prefix: &[],
        }
    }

    #[test]
    fn an_epoch_that_a_reset_is_to_end_is_not_listened_to_any_more() {
        let (own, next) = (Epoch::new(7), Epoch::new(8));
        assert_eq!(epoch_of(own, own, false), EpochOf::Current);
        assert_eq!(epoch_of(own, own, true), EpochOf::Other);
        assert_eq!([epoch_of(next, own, false), epoch_of(next, own, true)], [EpochOf::Newer; 2]);
        assert_eq!(epoch_of(own, next, false), EpochOf::Other);
    }

    #[test]
    fn an_eack_that_was_overtaken_is_stale() {
        let [four, five, six] = [4, 5, 6].map(MessageCounter::new);
        assert!(!is_stale(five, None) && !is_stale(six, Some(five)));
        assert!(is_stale(five, Some(five)) && is_stale(four, Some(five)));
    }

    #[test]
    fn an_epoch_begins_behind_its_anchor() {
        let (history, later) = (history(10), Epoch::FIRST.next());
        let [third, last, unknown] =
            [Some(identifier(3)), Some(identifier(9)), Some(identifier(77))];
        assert_eq!(epoch_start(&eack(third, last), later, 0, &history), 4);
        assert_eq!(epoch_start(&eack(None, last), Epoch::FIRST, 0, &history), 0);
        assert_eq!(epoch_start(&eack(None, last), Epoch::FIRST, 6, &history), 6);
        assert_eq!(epoch_start(&eack(unknown, last), later, 0, &history), 9);
        assert_eq!(epoch_start(&eack(None, unknown), later, 0, &history), 10);
    }

    #[test]
    fn assumptions_are_tried_in_order_and_once() {
        let all: Vec<_> = (0..4).map(identifier).collect();
        let assumptions: [&[Identifier]; 5] = [&[], &all[2..], &all[..2], &all[..0], &all];
        let mut tried = Vec::new();
        let decoded = decode_assuming(&assumptions, |attempt, assumed| {
            tried.push(attempt);
            (assumed.len() == 4).then_some("decoded")
        });
        assert_eq!((decoded, tried), (Some("decoded"), vec![0, 1, 2, 4]));
        assert_eq!(decode_assuming(&assumptions, |_, _| None::<()>), None);
    }

    #[test]
    fn failures_ask_for_more_symbols_and_at_last_for_a_reset() {
        let limits = SketchLimits { coded_symbols: 0, power_sums: 40 };
        let (mut failures, short, longest) =
            (0, Encoding::PowerSums { count: 10 }, Encoding::PowerSums { count: 40 });
        let first = after_failure(short, &limits, &mut failures);
        assert!(matches!(first, AfterFailure::Ask(wanted) if wanted != short), "{first:?}");
        assert_eq!(failures, 0);
        assert_eq!(after_failure(longest, &limits, &mut failures), AfterFailure::Ask(longest));
        assert_eq!(after_failure(longest, &limits, &mut failures), AfterFailure::Reset);
    }
}
