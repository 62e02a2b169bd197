//! Operations of this thread's encoders, counted where they are executed: a check on the stated
//! cost of a symbol. An operation adds a multiple of a vector of 32 bytes.

use core::cell::Cell;

/// Bytes of a vector.
const VECTOR_BYTES: usize = 32;

std::thread_local! {
    /// Operations of this thread.
    static OPERATION_COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts the multiplication of this number of bytes.
pub(crate) fn count(bytes: usize) {
    let operations = bytes.div_ceil(VECTOR_BYTES) as u64;
    OPERATION_COUNT.set(OPERATION_COUNT.get().wrapping_add(operations));
}

/// Operations of this thread so far.
pub fn counted() -> u64 {
    OPERATION_COUNT.get()
}
