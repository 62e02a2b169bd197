//! Defaults of a route's configuration that other code needs; `RouteConfig::unchecked` has all.

use crate::affinity::Affinity;
use crate::sender::SenderKind;

/// `repair_budget`, in percent.
pub const REPAIR_BUDGET_PERCENT: u32 = 25;
/// `early_copies`.
pub(super) const EARLY_COPIES: f64 = 0.5;
/// `idle_timeout_seconds`.
pub const IDLE_TIMEOUT_SECONDS: u64 = 120;
/// `maximum_sessions`.
pub const MAXIMUM_SESSIONS: u64 = 25_000;
/// `sessions_per_source`.
pub const SESSIONS_PER_SOURCE: u32 = 4096;
/// `handshakes_per_second_without_cookie`.
pub(super) const HANDSHAKES_PER_SECOND_WITHOUT_COOKIE: u32 = 100;

/// `stream.group_hops`.
pub const fn group_hops() -> u32 {
    1
}

/// `stream.maximum_clients`.
pub const fn maximum_clients() -> u32 {
    10_000
}

/// `stream.cache_bytes`.
pub const fn stream_cache_bytes() -> u32 {
    64 * 1024
}

/// `stream.silence_seconds`.
pub const fn silence_seconds() -> u32 {
    30
}

/// `stream.group_repairs_from`.
pub const fn group_repairs_from() -> u32 {
    3
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn is_on(value: &bool) -> bool {
    *value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn is_any_sender(kind: &SenderKind) -> bool {
    *kind == SenderKind::Any
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn is_affinity(affinity: &Affinity) -> bool {
    *affinity == Affinity::Address
}

pub(super) fn is_nothing(value: &f64) -> bool {
    *value == 0.0
}

pub(super) fn is_off(value: &bool) -> bool {
    !*value
}

pub(super) fn is_early_copies(value: &f64) -> bool {
    *value == EARLY_COPIES
}
