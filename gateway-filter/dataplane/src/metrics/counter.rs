//! A number that any thread counts in and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number now. Numbers read one after the other are not a consistent snapshot.
pub(super) fn load(value: &AtomicU64) -> u64 {
    value.load(Ordering::Relaxed)
}
