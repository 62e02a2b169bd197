//! Defaults of a route's configuration, each stated here alone. EdgeGateways have the same ones.

use super::{share_of_million, share_of_percent};
use crate::affinity::Affinity;
use crate::sender::SenderKind;

/// `repair_budget`, in percent.
pub const REPAIR_BUDGET_PERCENT: u32 = 25;
/// `residual_loss_target`, in parts per million.
pub const RESIDUAL_LOSS_PER_MILLION: u32 = 10;

/// `idle_timeout_seconds`.
pub const IDLE_TIMEOUT_SECONDS: u64 = 120;

/// `gateway`.
pub fn gateway() -> String {
    "packrat".to_owned()
}

/// `namespace`.
pub fn namespace() -> String {
    "default".to_owned()
}

/// `assist`.
pub const fn assist() -> bool {
    true
}

/// `new_clients`.
pub const fn new_clients() -> bool {
    true
}

/// `cache_bytes_per_session`.
pub const fn cache_bytes_per_session() -> u64 {
    1 << 20
}

/// `cache_bytes_total`.
pub const fn cache_bytes_total() -> u64 {
    256 << 20
}

/// `repair_budget`.
pub const fn repair_budget() -> f64 {
    share_of_percent(REPAIR_BUDGET_PERCENT)
}

/// `early_copies`.
pub const fn early_copies() -> f64 {
    0.5
}

/// `residual_loss_target`.
pub const fn residual_loss_target() -> f64 {
    share_of_million(RESIDUAL_LOSS_PER_MILLION)
}

/// `idle_timeout_seconds`.
pub const fn idle_timeout_seconds() -> u64 {
    IDLE_TIMEOUT_SECONDS
}

/// `maximum_sessions`.
pub const fn maximum_sessions() -> u64 {
    25_000
}

/// `sessions_per_source`.
pub const fn sessions_per_source() -> u32 {
    4096
}

/// `handshakes_per_second_per_source`.
pub const fn handshakes_per_second_per_source() -> u32 {
    100
}

/// `handshakes_per_second_without_cookie`.
pub const fn handshakes_per_second_without_cookie() -> u32 {
    100
}

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
pub(super) fn is_assist(value: &bool) -> bool {
    *value == assist()
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn is_new_clients(value: &bool) -> bool {
    *value == new_clients()
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

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn is_no_holdout(share: &f64) -> bool {
    *share == 0.0
}

pub(super) fn is_off(value: &bool) -> bool {
    !*value
}

pub(super) fn is_early_copies(value: &f64) -> bool {
    *value == early_copies()
}
