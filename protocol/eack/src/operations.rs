//! Operations of this thread, counted where they are done: a check on [`crate::Decoder::take_work`],
//! which counts where the work is planned. An operation is about a multiplication in the field.

use core::cell::Cell;

std::thread_local! {
    static OPERATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts operations.
#[inline]
pub fn count(operations: usize) {
    OPERATIONS.set(OPERATIONS.get().wrapping_add(operations as u64));
}

/// Operations of this thread so far.
pub fn counted() -> u64 {
    OPERATIONS.get()
}
