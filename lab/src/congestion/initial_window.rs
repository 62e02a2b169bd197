//! The window in which a connection begins.

/// The initial window of RFC 9002 for datagrams of this size, bytes.
pub(super) fn initial_window(datagram: u64) -> u64 {
    14_720.clamp(2 * datagram, 10 * datagram)
}
