//! The first window of a sender, compared with loss-based senders' first windows.

/// Datagrams of the largest first window that a loss-based sender is known to begin with: CDNs have 10
/// (RFC 9002, section 7.2) to 64.
pub const LARGE_WINDOW: u64 = 64;

/// True if no loss-based sender sends `sent` datagrams before its first loss, of which `acknowledged` were
/// acknowledged: it sends its first window, and at most two datagrams for each acknowledged one.
pub const fn is_large_window(sent: u64, acknowledged: u64) -> bool {
    sent > LARGE_WINDOW + 2 * acknowledged
}
