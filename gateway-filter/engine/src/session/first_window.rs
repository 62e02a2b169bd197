//! The first window of a sender: is it larger than one of a loss-based sender?
//!
//! A loss-based sender begins with ten datagrams (RFC 9002, section 7.2), or some tens, and sends
//! at most two for each one that is acknowledged. So until its first loss it has sent its first
//! window, and twice the datagrams that have arrived. quinn's BBR begins with 200 datagrams, and
//! the gateway knows that it is no common loss-based sender when it has forwarded the first of
//! them.
//!
//! ```text
//!   Unheard --> Open ---> Closed: so much has arrived that another flow may have joined
//!      |          |
//!      |          +-----> large: more was forwarded than a loss-based sender may have sent
//!      +----------------> Closed: it never waited, as a stream that is sent at a rate
//! ```

use packrat_wire::estimate::is_large_window;

/// Most datagrams that a server sends before the client's first request.
const HANDSHAKE_DATAGRAMS: u64 = 16;
/// Most datagrams that are not acknowledged when a server waits for the first request: more
/// datagrams of a stream at a rate are under way.
const UNDER_WAY_DATAGRAMS: u64 = 2;
/// Datagrams that have arrived when the first window has passed.
const PASSED_DATAGRAMS: u64 = 64;

/// State of the watch on a sender's first window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum FirstWindow {
    #[default]
    Unheard,
    Open,
    Closed,
}

impl FirstWindow {
    /// Handles an eACK after `forwarded` datagrams, which shows that `newest` has arrived. True
    /// once, if no loss-based sender sends as much.
    pub(super) fn on_eack(&mut self, newest: Option<u64>, forwarded: u64) -> bool {
        if *self == Self::Unheard {
            if forwarded > HANDSHAKE_DATAGRAMS {
                *self = Self::Closed;
            } else if newest.is_some_and(|newest| forwarded <= newest + 1 + UNDER_WAY_DATAGRAMS) {
                *self = Self::Open;
            }
        }
        let Some(arrived) = newest.map(|newest| newest + 1).filter(|_| *self == Self::Open) else {
            return false;
        };
        let is_large = is_large_window(forwarded, arrived);
        if is_large || arrived >= PASSED_DATAGRAMS {
            *self = Self::Closed;
        }
        is_large
    }
}

#[cfg(test)]
mod tests {
    use packrat_wire::estimate::LARGE_WINDOW;

    use super::*;

    /// True if a sender is found that begins with this window after a handshake of `handshake`
    /// datagrams, and has two datagrams acknowledged by each eACK.
    fn is_found(window: u64, handshake: u64) -> bool {
        let mut first = FirstWindow::default();
        let mut found =
            first.on_eack(None, handshake) || first.on_eack(Some(handshake - 1), handshake);
        for arrived in (handshake + 2..1000).step_by(2) {
            found |= first.on_eack(Some(arrived - 1), window + 2 * arrived);
        }
        found
    }

    #[test]
    fn a_window_of_a_hundred_is_large_and_one_of_64_is_not() {
        assert!(is_found(200, 2) && is_found(LARGE_WINDOW + 1, 2));
        for window in [4, 10, 32, 64] {
            assert!(!is_found(window, 2), "{window}");
        }
    }

    #[test]
    fn the_handshakes_end_may_lack_an_acknowledgement() {
        let mut first = FirstWindow::default();
        assert!(!first.on_eack(Some(1), 3));
        assert!(first.on_eack(Some(10), 190));
    }

    #[test]
    fn a_session_within_a_connection_says_nothing() {
        assert!(!is_found(200, 100));
    }

    #[test]
    fn a_stream_at_a_rate_is_no_window() {
        let mut first = FirstWindow::default();
        assert!(!first.on_eack(None, 1) && !first.on_eack(None, 10));
        let on_eack = |arrived| first.on_eack(Some(arrived - 1), arrived + 500);
        assert!(!(1..1000u64).any(on_eack));
        // A hundred a second, and five of them under way; then a key frame.
        let mut first = FirstWindow::default();
        assert!(!(1..12).any(|arrived| first.on_eack(Some(arrived - 1), arrived + 4)));
        assert!(!first.on_eack(Some(12), 120));
    }

    #[test]
    fn flows_that_join_later_are_no_first_window() {
        let mut first = FirstWindow::default();
        assert!(!first.on_eack(Some(0), 1) && !first.on_eack(Some(80), 81));
        assert!(!first.on_eack(Some(81), 500));
    }

    #[test]
    fn it_is_found_once() {
        let mut first = FirstWindow::default();
        assert!(!first.on_eack(Some(0), 1));
        assert!(first.on_eack(Some(1), 130) && !first.on_eack(Some(2), 200));
    }
}
