//! The places of hosts on the path.

/// The place of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Server,
    Gateway,
    Client,
}
