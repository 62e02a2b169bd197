//! The first window of a sender: is it larger than one of a loss-based sender?
//!
//! A loss-based sender begins with ten datagrams (RFC 9002, section 7.2), or some tens, and sends at
//! most two for each one that is acknowledged. So until it has lost something it has sent its first
//! window, and twice what has arrived. quinn's BBR begins with 200 datagrams, and the gateway knows
//! that it is no common loss-based sender when it has forwarded the first of them.
//!
//! ```text
//!   Unheard --> Open ---> Closed: so much has arrived that another flow may have joined, or the
//!      |          |               first eACK came when more than a handshake had passed
//!      |          +-----> large: more was forwarded than a loss-based sender may have sent
//!      +----------------> Closed
//! ```

/// Datagrams of a first window that no loss-based sender is known to begin with: CDNs have 10 to 64.
const LARGE: u64 = 64;
/// A session that begins with the connection has forwarded no more than so many datagrams when its
/// client speaks first.
const HANDSHAKE: u64 = 16;
/// When so many have arrived the window has passed.
const PASSED: u64 = 64;

/// What is known of a sender's first window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum FirstWindow {
    #[default]
    Unheard,
    Open,
    Closed,
}

impl FirstWindow {
    /// An eACK says that `newest` has arrived, after `forwarded` datagrams were forwarded. True once,
    /// if no loss-based sender sends as much.
    pub(super) fn on_eack(&mut self, newest: Option<u64>, forwarded: u64) -> bool {
        match self {
            Self::Unheard if forwarded <= HANDSHAKE => *self = Self::Open,
            Self::Unheard => *self = Self::Closed,
            Self::Open | Self::Closed => {}
        }
        let Some(arrived) = newest.map(|newest| newest + 1).filter(|_| *self == Self::Open) else {
            return false;
        };
        let is_large = forwarded > LARGE + 2 * arrived;
        if is_large || arrived >= PASSED {
            *self = Self::Closed;
        }
        is_large
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if a sender is found that begins with this window, and has two datagrams acknowledged by
    /// each eACK.
    fn is_found(window: u64, handshake: u64) -> bool {
        let mut first = FirstWindow::default();
        let mut found = first.on_eack(None, handshake) || first.on_eack(Some(1), 2);
        for arrived in (2..1000).step_by(2) {
            found |= first.on_eack(Some(arrived - 1), window + 2 * arrived);
        }
        found
    }

    #[test]
    fn a_window_of_a_hundred_is_large_and_one_of_64_is_not() {
        assert!(is_found(200, 2) && is_found(LARGE + 1, 2));
        for window in [4, 10, 32, 64] {
            assert!(!is_found(window, 2), "{window}");
        }
    }

    #[test]
    fn a_session_within_a_connection_says_nothing() {
        assert!(!is_found(200, 100));
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
